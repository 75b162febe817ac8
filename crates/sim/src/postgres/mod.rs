//! PostgreSQL as far as the promise depends on it: a write-ahead log with positions and timelines, streaming, synchronous replication,
//! crash and recovery, promotion, rewind, clone, sessions.
//!
//! Left out: pages, visibility, locks, and everything else that does not decide which commits exist where. A record is durable where it
//! is in a log; what was written and not flushed is not modelled, because nothing is ever acknowledged from it.

mod follow;
mod log;
mod orders;
mod replication;
mod synchronous;

use std::collections::VecDeque;

use bellwether_core::election::{Plant, Voters};
use bellwether_core::wal::{Term, Timeline};

use crate::world::{Data, Who, World};

pub use replication::Connection;

/// How long after silence both ends give a connection up (`wal_receiver_timeout`, `wal_sender_timeout`: ours to set).
pub const SILENCE: u64 = 5_000;

/// What every record of WAL in the world is.
#[derive(Clone, Debug, Default)]
pub struct Records(Vec<Record>);

/// One record.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// Of the leader that began its timeline; none of what `initdb` wrote.
    term: Option<Term>,
    timeline: Timeline,
}

impl Records {
    fn write(&mut self, term: Option<Term>, timeline: Timeline) -> u32 {
        self.0.push(Record { term, timeline });
        u32::try_from(self.0.len() - 1).unwrap_or(u32::MAX)
    }
}

/// What the server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pg {
    /// Nothing.
    Down,
    /// Comes up, as one or the other.
    Starting,
    /// Recovers and replays.
    Standby,
    /// Accepts writes.
    Primary,
}

/// PostgreSQL's processes.
#[derive(Clone, Debug)]
pub struct Server {
    /// What it does.
    pub state: Pg,
    /// Sessions and connections of an earlier boot are gone.
    pub boot: u32,
    /// Which orders are the newest: work that was begun on older ones is void.
    pub orders: u32,
    /// A rewind is under way.
    pub rewinding: bool,
    /// It was told to stop, and its last process is not reaped yet.
    pub stopping: bool,
    /// Nobody can write to it any more.
    pub drained: bool,
    /// The postmaster was killed; its children live on until they are reaped.
    pub headless: bool,
    /// Where its WAL comes from.
    pub receiver: Option<usize>,
    /// Where its WAL goes.
    pub senders: Vec<usize>,
    /// Commits that wait for standbys.
    pub waiting: VecDeque<Commit>,
    /// `synchronous_standby_names` as configured.
    pub rule: Option<Voters>,
    /// Counts its changes.
    pub rule_number: u32,
    /// As the checkpointer has read it: whether backends wait at all.
    pub defined: bool,
    /// The change up to which the checkpointer has read it.
    pub defined_number: u32,
    /// Where the log ended when the last process had read the rule.
    pub in_force_from: Option<usize>,
    /// The agent was told that it is in force.
    pub in_force: bool,
}

/// A commit that waits.
#[derive(Clone, Copy, Debug)]
pub struct Commit {
    /// Where its record is in the log.
    pub at: usize,
    /// Whose it is.
    pub client: usize,
    /// Which statement.
    pub statement: u32,
}

/// Work that takes time, and ends.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// It accepts writes.
    Leads(u64),
    /// It runs as a standby.
    Started,
    /// It is time to try to stream.
    Follow,
    /// The rewind ended.
    Rewound,
    /// The copy of this primary's data ended.
    Cloned(Who),
    /// `initdb` ended.
    Initialised,
}

impl Server {
    /// One that does not run.
    pub fn down() -> Self {
        Self {
            state: Pg::Down,
            boot: 0,
            orders: 0,
            rewinding: false,
            stopping: false,
            drained: false,
            headless: false,
            receiver: None,
            senders: Vec::new(),
            waiting: VecDeque::new(),
            rule: None,
            rule_number: 0,
            defined: false,
            defined_number: 0,
            in_force_from: None,
            in_force: false,
        }
    }
    /// Whether a session could write.
    pub fn writable(&self) -> bool {
        self.state == Pg::Primary && !self.drained
    }
}

impl World {
    /// Whether this bug is planted.
    pub fn planted(&self, plant: Plant) -> bool {
        self.settings.planted == Some(plant)
    }

    /// The data of an instance.
    pub fn data(&self, instance: usize) -> Option<&Data> {
        self.volumes[self.instances[instance].volume].data.as_ref()
    }

    /// The same, to change it.
    pub fn data_mut(&mut self, instance: usize) -> Option<&mut Data> {
        let volume = self.instances[instance].volume;
        self.volumes[volume].data.as_mut()
    }

    /// The system identifier on an instance's volume; 0 where there is none.
    pub fn system(&self, instance: usize) -> u64 {
        self.data(instance).map_or(0, |data| data.system)
    }

    /// How far two logs are the same.
    pub fn common(&self, one: usize, other: usize) -> usize {
        let (Some(one), Some(other)) = (self.data(one), self.data(other)) else { return 0 };
        one.log.iter().zip(&other.log).take_while(|(a, b)| a == b).count()
    }

    /// A session's statement: one commit, or no answer at all. False: the server is not one that can.
    pub fn commit(&mut self, who: Who, client: usize, statement: u32) -> bool {
        if self.container(who).is_none_or(|container| !container.server.writable()) {
            return false;
        }
        self.judge_write(who);
        let at = self.append(who.instance);
        let Some(container) = self.container_mut(who) else { return false };
        container.server.waiting.push_back(Commit { at, client, statement });
        if !container.server.defined {
            self.acknowledge(who, at);
        }
        self.pump_all(who);
        true
    }
}
