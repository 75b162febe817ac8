//! The other agents of the cluster: messages to them and from them, over mTLS, on a port of their own.
//!
//! ```text
//!            ┌── mailbox ──► dial: our connection to it ──────► its serve ──► Incoming
//!   send ────┤                (hello, then our messages)
//!            └── mailbox ──► dial …
//!   Incoming ◄── serve: its connection to us ◄──────────────── its dial ◄── mailbox
//! ```
//!
//! Each agent connects to every other and sends on that connection; what it hears comes by the others' connections. The election
//! counts on nothing: messages may be lost, late or doubled. So nothing here ever waits for anybody: a message that can't leave
//! within a second is dropped, because the next round says it better.
//!
//! Never: a call that blocks the election; a message to somebody other than the identity it is for; a message from somebody without
//! the certificate for replication.

mod dial;
mod mailbox;
mod serve;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether_api::names::Names;
use bellwether_core::election::{MemberId, Message};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::AbortHandle;

use super::ids::Uid;
use super::tls::PeerTls;
pub use super::wire::About;
use super::wire::{Hello, Letter, PROTOCOL, frame};
use mailbox::Mailbox;

/// A connection to be made, or a message to be written, that takes longer is given up.
const DEADLINE: Duration = Duration::from_secs(1);
/// TLS and greetings. Longer, because both ends compute, and a container that is short of CPU is not one that is gone.
const HANDSHAKE: Duration = Duration::from_secs(2);
/// Messages that the election has not fetched. It fetches within milliseconds; what is beyond was answered too late anyway.
const UNREAD: usize = 256;

/// Who we are, and where the others reach us.
#[derive(Clone, Debug)]
pub struct Me {
    /// The names of the cluster.
    pub names: Names,
    /// Its namespace.
    pub namespace: String,
    /// This instance.
    pub instance: String,
    /// The identity of its volume.
    pub identity: MemberId,
    /// Its address.
    pub address: IpAddr,
    /// The port of all ([`bellwether_core::contract::PEER_PORT`]).
    pub port: u16,
}

/// A message from another agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Who it is.
    pub from: MemberId,
    /// The name of its instance.
    pub instance: String,
    /// Where it is.
    pub address: IpAddr,
    /// What it says to the election, if anything.
    pub message: Option<Message>,
    /// What goes along with it.
    pub about: About,
}

/// The other agents. Connections end when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Peers {
    shared: Arc<Shared>,
    _tasks: Arc<Tasks>,
}

#[derive(Debug)]
struct Tasks {
    shared: Arc<Shared>,
    serve: AbortHandle,
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.serve.abort();
        for peer in self.shared.state().peers.values() {
            peer.task.abort();
        }
    }
}

#[derive(Debug)]
struct Shared {
    me: Me,
    hello: Hello,
    tls: watch::Receiver<Arc<PeerTls>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Those we connect to, by instance.
    peers: BTreeMap<String, Peer>,
    /// Where the caller says that they are.
    addresses: BTreeMap<String, IpAddr>,
    /// Those who are connected to us.
    inbound: BTreeMap<MemberId, Inbound>,
    /// Complaints that were made, so that each is made once.
    said: BTreeSet<String>,
    connections: u64,
}

#[derive(Debug)]
struct Peer {
    mailbox: Arc<Mailbox>,
    /// Something has changed that may make it reachable.
    nudge: Arc<Notify>,
    task: AbortHandle,
    /// Whom we have reached there; kept while the connection is made anew.
    reached: Option<Reached>,
}

#[derive(Debug)]
struct Reached {
    identity: MemberId,
    address: IpAddr,
    /// Greater for later ones.
    number: u64,
    connected: bool,
    /// Ends the connection.
    end: Arc<Notify>,
}

#[derive(Debug)]
struct Inbound {
    instance: String,
    address: IpAddr,
    number: u64,
    task: AbortHandle,
}

impl Peers {
    /// Begins to listen. Nobody is connected to before [`Self::set_instances`].
    pub async fn start(
        me: Me,
        tls: watch::Receiver<Arc<PeerTls>>,
    ) -> std::io::Result<(Self, mpsc::Receiver<Incoming>)> {
        let listener = TcpListener::bind(SocketAddr::new(me.address, me.port)).await?;
        let hello = Hello {
            protocol: PROTOCOL,
            cluster: me.names.cluster().to_owned(),
            namespace: me.namespace.clone(),
            instance: me.instance.clone(),
            identity: Uid::from(me.identity),
        };
        let shared = Arc::new(Shared { me, hello, tls, state: Mutex::default() });
        let (incoming, receiver) = mpsc::channel(UNREAD);
        let serve = tokio::spawn(serve::for_ever(listener, Arc::clone(&shared), incoming)).abort_handle();
        Ok((Self { shared: Arc::clone(&shared), _tasks: Arc::new(Tasks { shared, serve }) }, receiver))
    }

    /// The instances of the cluster; this one may be among them.
    pub fn set_instances(&self, instances: &[String]) {
        let mut state = self.shared.state();
        state.peers.retain(|name, peer| {
            let stays = instances.contains(name);
            if !stays {
                peer.task.abort();
            }
            stays
        });
        for instance in instances.iter().filter(|instance| **instance != self.shared.me.instance) {
            state.peers.entry(instance.clone()).or_insert_with(|| {
                let (mailbox, nudge) = (Arc::<Mailbox>::default(), Arc::<Notify>::default());
                let dialer =
                    dial::Dialer::new(instance, Arc::clone(&self.shared), Arc::clone(&mailbox), Arc::clone(&nudge));
                Peer { mailbox, nudge, task: tokio::spawn(dialer.run()).abort_handle(), reached: None }
            });
        }
    }

    /// The other instances of the cluster.
    pub fn instances(&self) -> Vec<String> {
        self.shared.state().peers.keys().cloned().collect()
    }

    /// Where instances are, as far as the caller knows. The others are looked up by name; without a name service (`bellwether up`)
    /// this is how they are found.
    pub fn set_addresses(&self, addresses: BTreeMap<String, IpAddr>) {
        let mut state = self.shared.state();
        if state.addresses == addresses {
            return;
        }
        state.addresses = addresses;
        state.peers.values().for_each(|peer| peer.nudge.notify_one());
    }

    /// Sends, if that one can be reached within the next second.
    pub fn send(&self, to: MemberId, message: &Message, about: About) {
        self.post(to, Some(message), about);
    }

    /// Sends what goes along with messages, when it is news.
    pub fn tell(&self, to: MemberId, about: About) {
        self.post(to, None, about);
    }

    fn post(&self, to: MemberId, message: Option<&Message>, about: About) {
        let frame = match frame(&Letter::new(message, about)) {
            Ok(frame) => frame,
            Err(error) => return tracing::error!(%error, "a message can't be written"),
        };
        let state = self.shared.state();
        let is_there = |peer: &&Peer| peer.reached.as_ref().is_some_and(|reached| reached.identity == to);
        let newest = |peer: &&Peer| peer.reached.as_ref().map(|reached| reached.number);
        match state.peers.values().filter(is_there).max_by_key(newest) {
            Some(peer) => peer.mailbox.put(to, frame),
            None => tracing::debug!(%to, "not known where it is"),
        }
    }

    /// Those we are connected to, and where they are.
    pub fn who(&self) -> Vec<(MemberId, String, IpAddr)> {
        let state = self.shared.state();
        let connected = |(instance, peer): (&String, &Peer)| {
            let reached = peer.reached.as_ref().filter(|reached| reached.connected)?;
            Some((reached.identity, instance.clone(), reached.address))
        };
        state.peers.iter().filter_map(connected).collect()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tls(&self) -> Arc<PeerTls> {
        Arc::clone(&self.tls.borrow())
    }

    /// Complains once about each thing.
    fn complain(&self, about: &str, complaint: &str) {
        let mut state = self.state();
        // Bounded, because anybody may call; then everything may be said once more.
        if state.said.len() >= 100 {
            state.said.clear();
        }
        if state.said.insert(format!("{about}: {complaint}")) {
            tracing::warn!(peer = about, complaint, "not talking to it");
        }
    }
}

/// Small messages leave at once, and a machine that is gone is noticed though it says no farewell.
fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    // What was sent must be acknowledged within this time (a full buffer would take minutes to notice), and so must the probes
    // on a connection on which nothing is sent.
    setsockopt(stream, sockopt::TcpUserTimeout, &(DEADLINE.as_millis() as u32))?;
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &1)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &1)?;
    Ok(())
}

#[cfg(test)]
mod tests;
