//! Our connection to one instance: made, kept, and made again.
//!
//! Never: a message to whoever happens to be at an address. It must prove the instance's name by its certificate, and greet as that
//! instance.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bellwether_core::election::MemberId;
use rustls::pki_types::ServerName;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::mailbox::Mailbox;
use super::{DEADLINE, HANDSHAKE, Reached, Shared, prepare};
use crate::backoff::Backoff;
use crate::election::wire::{self, Hello};

/// Short, because a failover waits for it; a failed attempt costs one packet.
const AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Keeps us connected to one instance.
pub struct Dialer {
    instance: String,
    host: String,
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    nudge: Arc<Notify>,
    /// Which of the addresses is tried next.
    turn: usize,
    look_up: Option<JoinHandle<Option<IpAddr>>>,
}

impl Dialer {
    pub fn new(instance: &str, shared: Arc<Shared>, mailbox: Arc<Mailbox>, nudge: Arc<Notify>) -> Self {
        let host = shared.me.names.host(instance, &shared.me.namespace);
        Self { instance: instance.to_owned(), host, shared, mailbox, nudge, turn: 0, look_up: None }
    }

    /// For ever.
    pub async fn run(mut self) {
        let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
        loop {
            match self.connect().await {
                Ok((stream, address, them)) => {
                    let (number, end) = self.reached(address, &them);
                    tracing::info!(peer = self.instance, %address, "connected");
                    let why = self.converse(stream, them.identity.into(), &end).await;
                    tracing::info!(peer = self.instance, %address, why, "disconnected");
                    // One that gave way to another with its identity must not take it back at once.
                    if self.left(number) {
                        backoff.reset();
                    }
                }
                Err(error) => {
                    self.turn = self.turn.wrapping_add(1);
                    tracing::debug!(peer = self.instance, %error, "not connected");
                }
            }
            tokio::select! {
                () = tokio::time::sleep(backoff.next_wait()) => {}
                () = self.nudge.notified() => backoff.reset(),
            }
        }
    }

    async fn connect(&mut self) -> io::Result<(TlsStream<TcpStream>, IpAddr, Hello)> {
        let address = self.address().await.ok_or_else(|| io::Error::other("its address is not known"))?;
        let stream = within(DEADLINE, connect(self.shared.me.address, SocketAddr::new(address, self.shared.me.port)));
        let stream = stream.await?;
        let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(Arc::clone(&self.shared.tls().client));
        let greeting = async {
            let mut stream = connector.connect(name, stream).await?;
            wire::write(&mut stream, &wire::frame(&self.shared.hello)?).await?;
            let them: Hello = wire::read(&mut stream).await?;
            Ok((stream, them))
        };
        let (stream, them) = within(HANDSHAKE, greeting).await.inspect_err(|error| {
            if error.kind() == io::ErrorKind::InvalidData {
                self.shared.complain(&self.instance, &error.to_string());
            }
        })?;
        let stranger = || (them.instance != self.instance).then(|| format!("{} is at its address", them.instance));
        match them.objection(&self.shared.hello).or_else(stranger) {
            None => Ok((stream, address, them)),
            Some(objection) => {
                self.shared.complain(&self.instance, &objection);
                Err(io::Error::other(objection))
            }
        }
    }

    /// Where it came from when it connected to us, where the caller says that it is, and what the name service says: each in turn,
    /// because each may be old.
    async fn address(&mut self) -> Option<IpAddr> {
        let mut known: Vec<IpAddr> = vec![];
        {
            let state = self.shared.state();
            let inbound = state.inbound.values().filter(|inbound| inbound.instance == self.instance);
            known.extend(inbound.max_by_key(|inbound| inbound.number).map(|inbound| inbound.address));
            known.extend(state.addresses.get(&self.instance));
        }
        known.dedup();
        match known.get(self.turn % (known.len() + 1)) {
            Some(address) => Some(*address),
            None => self.look_up().await.or(known.first().copied()),
        }
    }

    /// One look-up at a time: a name service that is away may keep each waiting for long.
    async fn look_up(&mut self) -> Option<IpAddr> {
        let target = (self.host.clone(), self.shared.me.port);
        let task = self.look_up.get_or_insert_with(|| {
            tokio::spawn(async move { tokio::net::lookup_host(target).await.ok()?.next().map(|found| found.ip()) })
        });
        let found = timeout(DEADLINE, task).await.ok()?;
        self.look_up = None;
        found.ok().flatten()
    }

    /// Notes who was reached. Whoever has the same identity elsewhere gives way.
    fn reached(&self, address: IpAddr, them: &Hello) -> (u64, Arc<Notify>) {
        let identity = MemberId::from(them.identity);
        let end = Arc::new(Notify::new());
        let mut state = self.shared.state();
        state.connections += 1;
        let number = state.connections;
        let mut other = None;
        for (instance, peer) in &mut state.peers {
            if *instance == self.instance {
                let end = Arc::clone(&end);
                peer.reached = Some(Reached { identity, address, number, connected: true, end });
            } else if let Some(twin) = peer.reached.take_if(|reached| reached.identity == identity) {
                if twin.connected {
                    other = Some(instance.clone());
                }
                twin.end.notify_one();
            }
        }
        drop(state);
        if let Some(other) = other {
            self.shared.complain(&other, &format!("{} has its identity {identity} too, and came later", self.instance));
        }
        (number, end)
    }

    /// Answers whether it was still the one in force.
    fn left(&self, number: u64) -> bool {
        let mut state = self.shared.state();
        let reached = state.peers.get_mut(&self.instance).and_then(|peer| peer.reached.as_mut());
        match reached.filter(|reached| reached.number == number) {
            Some(reached) => {
                reached.connected = false;
                true
            }
            None => false,
        }
    }

    /// Sends what there is to send, until it can't.
    async fn converse(&self, mut stream: TlsStream<TcpStream>, to: MemberId, end: &Notify) -> String {
        let mut nothing = [0];
        loop {
            tokio::select! {
                frame = self.mailbox.next(to) => {
                    if let Err(error) = within(DEADLINE, wire::write(&mut stream, &frame)).await {
                        return error.to_string();
                    }
                }
                // It has nothing to say here but its farewell.
                heard = stream.read(&mut nothing) => return match heard {
                    Ok(_) => "it has closed the connection".to_owned(),
                    Err(error) => error.to_string(),
                },
                () = end.notified() => return "another has its identity, and came later".to_owned(),
            }
        }
    }
}

/// From our own address, which is how the other end knows where we are: on loopback it would be 127.0.0.1 for all.
async fn connect(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if from.is_ipv4() == to.is_ipv4() {
        socket.bind(SocketAddr::new(from, 0))?;
    }
    let stream = socket.connect(to).await?;
    prepare(&stream)?;
    Ok(stream)
}

async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(limit, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
