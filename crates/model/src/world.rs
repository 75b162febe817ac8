//! The world that the election is explored in: three instances, the API, the network between them.
//!
//! What runs inside an instance is the real `step`; everything here stands for what surrounds it. Without a fault, packets arrive
//! within the tick in the order in which they were sent. Whatever deviates from that (lost, late, overtaken) is a fault, or
//! part of one. A clock always shows [`NOW`]: as time passes, it is what an instance remembers that grows older.

use std::collections::VecDeque;
use std::sync::Arc;

use bellwether_core::election::{
    Deadline, LeaseContent, LeaseUid, LeaseVersion, LeaseView, LeaseWrite, MemberId, Memory, Message, Moment, Outcome,
    Position, RequestId, State, Voters,
};
use bellwether_core::wal::{Lsn, Term, Timeline};

/// How many instances there are.
pub const NODES: usize = 3;
/// The API's place among the ends of a channel.
pub const API: usize = NODES;
/// What every clock shows, at all times.
pub const NOW: Moment = Moment(100);

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
    /// What arrived while it was frozen.
    pub inbox: Vec<Packet>,
    /// Its log: of each record, the term that wrote it.
    pub log: Vec<u8>,
    /// Whom its WAL receiver is connected to.
    pub receiver: Option<MemberId>,
    /// Whether it streams, but lags: it receives nothing for now.
    pub lagging: bool,
    /// The primary that runs here, if one does.
    pub primary: Option<Primary>,
    /// A primary that is to be drained before it is stopped: then nobody can write to it, and its processes are gone a tick later.
    pub drain: Drain,
    /// Calls to the API without an answer yet.
    pub calls: Vec<Call>,
}

/// How a primary is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Drain {
    /// At once.
    No,
    /// Nobody is to write to it first.
    Wanted,
    /// Nobody can, and its processes may be there.
    Done,
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
    /// How many ticks ago.
    pub age: u8,
}

/// What travels from one end to another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Packet {
    /// From this end.
    pub from: u8,
    /// To that.
    pub to: u8,
    /// What it says.
    pub body: Body,
}

/// What a packet says. Calls carry the life of the agent that made them, so that no later one takes the answer.
#[allow(missing_docs, reason = "each field is named after its type, which says what it is")]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Body {
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
    /// What it was before each change of term or members, newest last: what a backup may hold, or a stale cache.
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Net {
    /// In the order of arrival.
    pub queue: VecDeque<Packet>,
    /// Held back by a fault, or left behind by a crash: it may arrive at any time, or never.
    pub late: Vec<Packet>,
}

/// What is small and changes often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Env {
    /// Ticks since the beginning, up to the horizon; zero if there is none.
    pub time: u8,
    /// Faults still allowed.
    pub faults: u8,
    /// Commits still to be made by clients.
    pub commits: u8,
    /// Switchovers still to be asked for.
    pub switchovers: u8,
    /// Times that a person may still make an instance lead by force.
    pub forces: u8,
    /// Whether the Lease as it is now carries a person's word.
    pub wished: bool,
    /// Channels that are cut, by one fault each.
    pub cuts: [u16; 2],
    /// At which end something happened last.
    pub last: u8,
    /// Whether some clock was off already: more than once would exceed the bound that δ stands for.
    pub drifted: bool,
}

/// Nothing happened in this tick yet.
pub const NOBODY: u8 = u8::MAX;

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

/// The bit of a channel.
pub fn channel(from: usize, to: usize) -> u16 {
    1 << (from * (NODES + 1) + to)
}

/// The name of an end.
pub fn name(end: usize) -> &'static str {
    ["A", "B", "C", "API"][end]
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
            inbox: vec![],
            log,
            receiver: None,
            lagging: false,
            primary: None,
            drain: Drain::No,
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
    /// Whether a client's write would succeed here now.
    pub fn writable(&self, guarded: bool) -> bool {
        self.awake() && self.primary.as_ref().is_some_and(|primary| !(guarded && primary.guard.passed(NOW)))
    }
}

impl World {
    /// Whether packets pass from one end to the other.
    pub fn open(&self, from: usize, to: usize) -> bool {
        (self.env.cuts[0] | self.env.cuts[1]) & channel(from, to) == 0
    }
    /// Whether nothing is on its way but what a fault holds back.
    pub fn quiet(&self) -> bool {
        self.net.queue.is_empty()
    }
    /// Where the pod of this identity is.
    pub fn place(&self, id: MemberId) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == id)
    }
    /// Puts a packet on its way.
    pub fn send(&mut self, from: usize, to: usize, body: Body) {
        Arc::make_mut(&mut self.net).queue.push_back(Packet { from: from as u8, to: to as u8, body });
    }
    /// Tells a watcher what is there.
    pub fn notify(&mut self, to: usize) {
        if self.nodes[to].agent.is_some() {
            let life = self.nodes[to].lives;
            let view = self.shared.lease.clone();
            self.send(API, to, Body::Sight { life, request: None, view });
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
            let same = |one: &LeaseContent, other: &LeaseContent| {
                one.term == other.term && one.members == other.members && one.sync == other.sync
            };
            let kept = content.as_ref().is_some_and(|new| same(new, &old.content));
            if !kept && old.content.term.is_some() {
                shared.history.retain(|view| !same(&view.content, &old.content));
                shared.history.push(old);
            }
            if shared.history.len() > 2 {
                shared.history.remove(0);
            }
        }
        let version = LeaseVersion(shared.version);
        shared.lease = content.map(|content| LeaseView { uid, version, content });
        self.env.wished = false;
        for to in 0..NODES {
            self.notify(to);
        }
    }
}
