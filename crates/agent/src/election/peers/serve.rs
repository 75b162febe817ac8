//! The others' connections to us.
//!
//! Never: a word heard from somebody without the certificate for replication; more than a few strangers at once.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bellwether_core::election::MemberId;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{HANDSHAKE, Inbound, Incoming, Shared, prepare};
use crate::election::tls::is_replications;
use crate::election::wire::{self, Hello, Letter};

/// Connections that have not shown a certificate yet. More wait in the kernel.
const STRANGERS: usize = 16;

/// Serves until it is dropped, and every connection with it.
pub async fn for_ever(listener: TcpListener, shared: Arc<Shared>, incoming: mpsc::Sender<Incoming>) {
    let strangers = Arc::new(Semaphore::new(STRANGERS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&strangers).acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, from)) => {
                let (shared, incoming) = (Arc::clone(&shared), incoming.clone());
                let (start, started) = tokio::sync::oneshot::channel();
                let task = connections.spawn(async move {
                    let Ok(task) = started.await else { return };
                    attend(stream, from, permit, &shared, &incoming, task).await;
                });
                let _ = start.send(task);
            }
            Err(error) => {
                // Out of file descriptors, for example: others need the moment to close some.
                tracing::warn!(%error, "can't accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn attend(
    stream: TcpStream,
    from: SocketAddr,
    permit: OwnedSemaphorePermit,
    shared: &Shared,
    incoming: &mpsc::Sender<Incoming>,
    task: tokio::task::AbortHandle,
) {
    let greeted = timeout(HANDSHAKE, greet(stream, shared)).await;
    let (mut stream, them) = match greeted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(greeted) => greeted,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return shared.complain(&from.ip().to_string(), &error.to_string());
        }
        Err(error) => return tracing::debug!(%from, %error, "no greeting"),
    };
    drop(permit);
    let number = arrived(shared, &them, from.ip(), task);
    let error = listen(&mut stream, from.ip(), &them, incoming).await;
    tracing::debug!(peer = them.instance, %error, "it is no longer connected to us");
    let mut state = shared.state();
    let identity = MemberId::from(them.identity);
    if state.inbound.get(&identity).is_some_and(|inbound| inbound.number == number) {
        state.inbound.remove(&identity);
    }
}

async fn greet(stream: TcpStream, shared: &Shared) -> io::Result<(TlsStream<TcpStream>, Hello)> {
    let denied = |why: &str| io::Error::new(io::ErrorKind::PermissionDenied, why);
    prepare(&stream)?;
    let mut stream = TlsAcceptor::from(Arc::clone(&shared.tls().server)).accept(stream).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    if !shown.is_some_and(is_replications) {
        return Err(denied("its certificate is not the one for replication"));
    }
    let them: Hello = wire::read(&mut stream).await?;
    // Said before the objection is raised: the other end says the same of us, where a person may look for it.
    wire::write(&mut stream, &wire::frame(&shared.hello)?).await?;
    match them.objection(&shared.hello) {
        None => Ok((stream, them)),
        Some(objection) => Err(denied(&objection)),
    }
}

/// Notes who is connected. The newer connection wins: the older is one that its end has given up, or a second instance with the
/// same identity, which must not happen.
fn arrived(shared: &Shared, them: &Hello, address: IpAddr, task: tokio::task::AbortHandle) -> u64 {
    let identity = MemberId::from(them.identity);
    let mut state = shared.state();
    state.connections += 1;
    let number = state.connections;
    let inbound = Inbound { instance: them.instance.clone(), address, number, task };
    if let Some(older) = state.inbound.insert(identity, inbound) {
        older.task.abort();
        let Inbound { instance, address: before, .. } = older;
        if instance == them.instance {
            tracing::info!(peer = instance, %before, now = %address, "connected to us anew");
        } else {
            tracing::warn!(%identity, before = instance, now = them.instance, "two instances claim one identity");
        }
    }
    // It is up, so it can be reached.
    if let Some(peer) = state.peers.get(&them.instance) {
        match &peer.reached {
            Some(reached) if reached.connected && reached.identity == identity => {}
            // Ours leads to one that was there before.
            Some(reached) if reached.connected => reached.end.notify_one(),
            _ => peer.nudge.notify_one(),
        }
    }
    number
}

async fn listen(
    stream: &mut TlsStream<TcpStream>,
    address: IpAddr,
    them: &Hello,
    incoming: &mpsc::Sender<Incoming>,
) -> io::Error {
    loop {
        let (message, about) = match wire::read::<Letter>(stream).await {
            Ok(letter) => letter.open(),
            Err(error) => return error,
        };
        let from = MemberId::from(them.identity);
        let heard = Incoming { from, instance: them.instance.clone(), address, message, about };
        match incoming.try_send(heard) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => tracing::debug!(%from, "too many messages; one is dropped"),
            Err(error @ mpsc::error::TrySendError::Closed(_)) => return io::Error::other(error.to_string()),
        }
    }
}
