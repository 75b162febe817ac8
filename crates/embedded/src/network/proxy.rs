//! One port of a Service: accepts connections and passes them to a ready endpoint, each in turn.
//!
//! While there is no endpoint nobody listens, so that a client is refused at once instead of being let in and dropped. When an
//! endpoint leaves, its connections are closed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long an endpoint may take to accept before the next one is tried; it is on the same machine.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// How long after a failed attempt the address is tried again.
const BIND_AGAIN: Duration = Duration::from_secs(1);

/// Starts a proxy. It follows the endpoints that are sent, and ends when the sender is dropped.
pub fn start(address: SocketAddr, endpoints: BTreeSet<SocketAddr>) -> watch::Sender<BTreeSet<SocketAddr>> {
    let (sender, receiver) = watch::channel(endpoints);
    tokio::spawn(run(address, receiver));
    sender
}

async fn run(address: SocketAddr, mut endpoints: watch::Receiver<BTreeSet<SocketAddr>>) {
    let mut live: BTreeMap<SocketAddr, CancellationToken> = BTreeMap::new();
    let mut listener: Option<TcpListener> = None;
    let mut turn = 0_usize;
    loop {
        let current = endpoints.borrow_and_update().clone();
        live.retain(|endpoint, token| {
            current.contains(endpoint) || {
                token.cancel();
                false
            }
        });
        for endpoint in &current {
            live.entry(*endpoint).or_default();
        }
        listener = match listener {
            _ if current.is_empty() => None,
            Some(open) => Some(open),
            None => listen(address).await,
        };
        tokio::select! {
            changed = endpoints.changed() => if changed.is_err() {
                live.values().for_each(CancellationToken::cancel);
                return;
            },
            Some(accepted) = accept(listener.as_ref()) => match accepted {
                Ok((client, _)) => {
                    turn = turn.wrapping_add(1);
                    tokio::spawn(pass(client, in_turn(&live, turn)));
                }
                // Out of descriptors, most likely; they come back.
                Err(_) => tokio::time::sleep(BIND_AGAIN).await,
            },
            () = tokio::time::sleep(BIND_AGAIN), if listener.is_none() && !current.is_empty() => {}
        }
    }
}

async fn listen(address: SocketAddr) -> Option<TcpListener> {
    match TcpListener::bind(address).await {
        Ok(listener) => Some(listener),
        Err(error) => {
            let by = crate::range::listener_of(address);
            tracing::warn!(%address, %error, "a Service's address is taken{by}");
            None
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> Option<std::io::Result<(TcpStream, SocketAddr)>> {
    Some(listener?.accept().await)
}

fn in_turn(live: &BTreeMap<SocketAddr, CancellationToken>, turn: usize) -> Vec<(SocketAddr, CancellationToken)> {
    let mut all: Vec<_> = live.iter().map(|(endpoint, token)| (*endpoint, token.clone())).collect();
    let count = all.len().max(1);
    all.rotate_left(turn % count);
    all
}

async fn pass(mut client: TcpStream, candidates: Vec<(SocketAddr, CancellationToken)>) {
    for (endpoint, left) in candidates {
        let Ok(Ok(mut server)) = tokio::time::timeout(CONNECT_WITHIN, TcpStream::connect(endpoint)).await else {
            continue;
        };
        // A database's questions and answers are small; waiting to fill a packet only adds latency.
        let _best_effort = (client.set_nodelay(true), server.set_nodelay(true));
        tokio::select! {
            _ended = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
            () = left.cancelled() => {}
        }
        return;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn echo(prefix: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    stream.write_all(prefix.as_bytes()).await.unwrap();
                    let _until_closed = stream.read(&mut [0; 1]).await;
                });
            }
        });
        address
    }

    async fn free_address() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
    }

    async fn connect(address: SocketAddr) -> (TcpStream, String) {
        let mut stream = loop {
            match TcpStream::connect(address).await {
                Ok(stream) => break stream,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let mut answer = [0; 1];
        stream.read_exact(&mut answer).await.unwrap();
        (stream, String::from_utf8_lossy(&answer).into_owned())
    }

    #[tokio::test]
    async fn connections_go_round_the_endpoints() {
        let (a, b, front) = (echo("a").await, echo("b").await, free_address().await);
        let _proxy = start(front, BTreeSet::from([a, b]));
        let mut seen = BTreeSet::new();
        for _ in 0..2 {
            seen.insert(connect(front).await.1);
        }
        assert_eq!(seen.len(), 2);
    }

    #[tokio::test]
    async fn an_endpoint_that_left_has_its_connections_closed() {
        let (a, front) = (echo("a").await, free_address().await);
        let proxy = start(front, BTreeSet::from([a]));
        let (mut stream, _) = connect(front).await;
        proxy.send_replace(BTreeSet::new());
        assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0);
    }

    #[tokio::test]
    async fn without_endpoints_clients_are_refused_at_once() {
        let (a, front) = (echo("a").await, free_address().await);
        let proxy = start(front, BTreeSet::from([a]));
        let (mut stream, _) = connect(front).await;
        proxy.send_replace(BTreeSet::new());
        let _closed = stream.read(&mut [0; 1]).await;
        let refused = TcpStream::connect(front).await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    }
}
