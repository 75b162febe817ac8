//! The world that the election is explored in: three instances, the API, the network between them.
//!
//! What runs inside an instance is the real `step`; everything here stands for what surrounds it. Within one tick every packet is
//! delivered: the ends take turns, and what is on its way to the one whose turn it is arrives in order for each sender, in any
//! order across senders. Whatever deviates from that (lost, late, overtaken) is a fault.

use std::collections::VecDeque;
use std::sync::Arc;

use bellwether_core::election::{
    Deadline, LeaseContent, LeaseUid, LeaseVersion, LeaseView, LeaseWrite, MemberId, Memory, Message, Moment, Outcome,
    Position, RequestId, State, Voters,
};
use bellwether_core::fact::Fact;
use bellwether_core::wal::{Lsn, Term, Timeline};

/// How many instances there are.
pub const NODES: usize = 3;
/// The API's place among the ends of a channel.
pub const API: usize = NODES;
/// Every pair of ends.
pub const CHANNELS: usize = (NODES + 1) * (NODES + 1);

/// One instance: its pod, its volume, its PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// The agent, if it runs.
    pub agent: Option<State>,
    /// What the volume remembers.
    pub memory: Memory,
    /// Which pod this is (E13).
    pub id: MemberId,
    /// How often its agent started.
    pub lives: u8,
    /// Stopped in time, with everything in it.
    pub frozen: bool,
    /// How far its clock is off.
    pub drift: i8,
    /// Its log: of each record, the term that wrote it.
    pub log: Vec<u8>,
    /// Whom its WAL receiver is connected to.
    pub receiver: Option<MemberId>,
    /// The primary that runs here, if one does.
    pub primary: Option<Primary>,
    /// Calls to the API without an answer yet.
    pub calls: Vec<Call>,
}

/// A PostgreSQL that runs as primary.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Primary {
    /// Whom its commits wait for.
    pub voters: Option<Voters>,
    /// When the guard kills it.
    pub guard: Deadline,
    /// The agent waits to hear that the voters are in force.
    pub awaited: bool,
}

/// A call to the API.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// Its number.
    pub request: RequestId,
    /// What was sent, of a write.
    pub write: Option<LeaseWrite>,
}

/// What travels: calls carry the life of the agent that made them, so that no later one takes the answer.
#[allow(missing_docs, reason = "each field is named after its type, which says what it is")]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Packet {
    /// Between agents, from the pod of this identity to the pod of that.
    Peer { from: MemberId, to: MemberId, message: Message },
    /// To the API.
    Read { life: u8, request: RequestId },
    /// To the API.
    Write { life: u8, request: RequestId, write: LeaseWrite },
    /// From the API.
    Sight { life: u8, request: Option<RequestId>, view: Option<LeaseView> },
    /// From the API.
    Written { life: u8, request: RequestId, outcome: Outcome },
}

/// The Lease as the API has it, and what was acknowledged to clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shared {
    /// The Lease.
    pub lease: Option<LeaseView>,
    /// Versions that it had, newest last.
    pub history: Vec<LeaseView>,
    /// The last version given out.
    pub version: u64,
    /// The last uid given out.
    pub uid: u128,
    /// Acknowledged commits: place in the log, and term.
    pub acknowledged: Vec<(u8, u8)>,
    /// The highest term that had tenure.
    pub reigned: u64,
}

/// Everything on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Net {
    /// In order, for each pair of ends.
    pub channels: Vec<VecDeque<Packet>>,
    /// Held back by a fault: it may arrive at any time, or never.
    pub late: Vec<(u8, Packet)>,
}

/// What is small and changes often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Env {
    /// The true time, in ticks.
    pub time: u8,
    /// Faults still allowed.
    pub faults: u8,
    /// Commits still to be made by clients.
    pub commits: u8,
    /// Channels that are cut.
    pub cut: u16,
    /// Whose turn it is to receive: what is on its way to this end arrives, in any order across channels, before the next end's.
    pub turn: u8,
    /// Whether some clock was off already: more than once would exceed the bound that δ stands for.
    pub drifted: bool,
}

/// All of it.
#[derive(Clone, Debug)]
pub struct World {
    /// The instances.
    pub nodes: [Arc<Node>; NODES],
    /// The API and the ghosts.
    pub shared: Arc<Shared>,
    /// The network.
    pub net: Arc<Net>,
    /// The rest.
    pub env: Env,
}

/// The channel between two ends.
pub fn channel(from: usize, to: usize) -> usize {
    from * (NODES + 1) + to
}

/// The ends of a channel.
pub fn ends(channel: usize) -> (usize, usize) {
    (channel / (NODES + 1), channel % (NODES + 1))
}

/// The name of an end.
pub fn name(end: usize) -> &'static str {
    ["A", "B", "C", "API"][end]
}

impl Net {
    /// Nothing on its way.
    pub fn empty() -> Self {
        Self { channels: vec![VecDeque::new(); CHANNELS], late: vec![] }
    }
}

impl Node {
    /// A pod whose agent has not started.
    pub fn new(id: MemberId, log: Vec<u8>) -> Self {
        Self {
            agent: None,
            memory: Memory::default(),
            id,
            lives: 0,
            frozen: false,
            drift: 0,
            log,
            receiver: None,
            primary: None,
            calls: vec![],
        }
    }
    /// Where its log ends.
    pub fn position(&self) -> Option<Position> {
        let term = *self.log.last()?;
        Some(Position {
            term: Term(u64::from(term)),
            timeline: Timeline(u32::from(term)),
            lsn: Lsn(self.log.len() as u64),
        })
    }
    /// Whether it runs and is not frozen.
    pub fn awake(&self) -> bool {
        self.agent.is_some() && !self.frozen
    }
}

impl World {
    /// What this instance's clock shows.
    pub fn clock(&self, node: usize) -> Moment {
        Moment((i64::from(self.env.time) + i64::from(self.nodes[node].drift)).unsigned_abs())
    }
    /// Whether something is on its way to this end and can arrive.
    pub fn expects(&self, to: usize) -> bool {
        (to == API || self.nodes[to].awake())
            && (0..=NODES).any(|from| !self.net.channels[channel(from, to)].is_empty())
    }
    /// Passes the turn to the next end that expects something. False: nobody does.
    pub fn pass_turn(&mut self) -> bool {
        let ends = NODES + 1;
        let first = usize::from(self.env.turn);
        let next = (0..ends).map(|step| (first + step) % ends).find(|end| self.expects(*end));
        self.env.turn = next.unwrap_or(0) as u8;
        next.is_some()
    }
    /// Whether packets pass from one end to the other.
    pub fn open(&self, from: usize, to: usize) -> bool {
        self.env.cut & (1 << channel(from, to)) == 0
    }
    /// Where the pod of this identity is.
    pub fn place(&self, id: MemberId) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == id)
    }
    /// Whether a client's write would succeed here now.
    pub fn writable(&self, node: usize, guarded: bool) -> bool {
        let it = &self.nodes[node];
        let Some(primary) = &it.primary else { return false };
        it.awake() && !(guarded && primary.guard.passed(self.clock(node)))
    }
    /// Puts a packet on its way, unless the way is cut or nobody is there.
    pub fn send(&mut self, from: usize, to: usize, packet: Packet) {
        let listens = to == API || self.nodes[to].agent.is_some();
        if listens && self.open(from, to) {
            Arc::make_mut(&mut self.net).channels[channel(from, to)].push_back(packet);
        }
    }
    /// Changes the Lease and tells every watcher.
    pub fn set_lease(&mut self, content: Option<LeaseContent>) {
        let shared = Arc::make_mut(&mut self.shared);
        shared.version += 1;
        let uid = match &shared.lease {
            Some(lease) => lease.uid,
            None => {
                shared.uid += 1;
                LeaseUid(shared.uid)
            }
        };
        if let Some(old) = shared.lease.take() {
            shared.history.push(old);
            if shared.history.len() > 2 {
                shared.history.remove(0);
            }
        }
        let version = LeaseVersion(shared.version);
        shared.lease = content.map(|content| LeaseView { uid, version, content });
        let view = shared.lease.clone();
        for to in 0..NODES {
            let life = self.nodes[to].lives;
            self.send(API, to, Packet::Sight { life, request: None, view: view.clone() });
        }
    }
    /// What the API says to a read.
    pub fn sight(view: Option<LeaseView>) -> Fact<LeaseView> {
        Fact::looked_up(view)
    }
}
