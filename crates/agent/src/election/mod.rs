//! The agent's share of the election: [`driver`] runs `core::election::step` and carries out what it wants done; what concerns PostgreSQL
//! goes to the instance's loop as a [`Want`], and comes back as [`News`].
//!
//! ```text
//!   peers (mTLS)     Lease (watch, read, PUT)     clock
//!        └──────────────────┬───────────────────────┘
//!                           ▼
//!                  driver: step(event, now)  ──► memory on the volume, messages, writes of the Lease, the guard's deadline
//!                   │ Want           ▲ News
//!                   ▼                │
//!                  the instance's loop, and one PostgreSQL
//! ```
//!
//! Never: PostgreSQL writable without tenure. The guard has the deadline directly from the driver, not through the loop.

pub mod driver;
pub mod ids;
pub mod memory;
pub mod peers;
pub mod record;
pub mod steward;
pub mod tls;
pub mod wire;

use std::collections::BTreeMap;

use bellwether_core::election::{MemberId, Position, Voters};
use bellwether_core::instance::space::Space;
use bellwether_core::wal::{Lsn, Term, Timeline};

/// What PostgreSQL is wanted as. A later want makes an earlier one void.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// Counts up: what is answered says for which.
    pub number: u64,
    /// As what.
    pub role: Role,
}

/// What PostgreSQL is wanted as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// A standby that receives from nobody: its log ends where it ends.
    Stand,
    /// A standby of this leader; rewound or copied first if need be.
    Follow {
        /// The leader.
        leader: MemberId,
        /// The highest term known, which is the leader's.
        term: Option<Term>,
    },
    /// The primary.
    Lead {
        /// Of this term.
        term: Term,
        /// Whom commits wait for, from the first client on.
        voters: Option<Voters>,
    },
    /// Not running, with no process left.
    Stop(Manner),
}

/// How PostgreSQL is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Killed: tenure ends.
    AtOnce,
    /// Shut down, so that standbys get everything: a switchover.
    Gently,
}

/// What the instance's loop tells the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It initialised the database of a cluster that has none.
    Initialised,
    /// As wanted by this number, nobody is received from, and the log ends here.
    Standing(u64, Option<Position>),
    /// As wanted by this number, no process is left, and the log ends here, if that can be told.
    Stopped(u64, Option<Position>),
    /// It streams from there, or from nobody any more.
    Streaming(Option<MemberId>),
    /// PostgreSQL died by itself while it was wanted as the primary.
    Crashed,
    /// No backend goes by older voters any more, and a quorum of these holds everything that was acknowledged till then.
    InForce(Option<Voters>),
}

/// The own log, for others to compare theirs with: told with each message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The timeline that a primary writes.
    pub timeline: Option<Timeline>,
    /// The term in which it does.
    pub term: Option<Term>,
    /// Where the log of one ends that is being promoted.
    pub promoting: Option<Lsn>,
    /// Where the timelines before it ended, oldest first.
    pub forks: Vec<(Timeline, Lsn)>,
    /// From where on it keeps WAL for the others, by slot.
    pub slots: BTreeMap<String, Lsn>,
}

/// What another writes, as it told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The timeline that it writes, if it is a primary.
    pub timeline: Option<Timeline>,
    /// The term in which it does, if it said.
    pub term: Option<Term>,
    /// Where its log ends, if it is being promoted: on the timeline above which, by the last entry of `log`, it will write.
    pub promoting: Option<Lsn>,
    /// Where the timelines before it ended.
    pub forks: Vec<(Timeline, Lsn)>,
    /// Who wrote which timelines.
    pub log: Vec<memory::WrittenBy>,
    /// How much room its volumes have, if it said.
    pub space: Option<Space>,
    /// From where on it keeps WAL for the others, by slot.
    pub slots: BTreeMap<String, Lsn>,
}

impl History {
    /// Whether it may be what its leader writes in this term. What it told when it led before is something else: whoever followed others
    /// since would seem to have parted from it, and whoever didn't would take its new WAL for that of the old term.
    pub fn may_be_of(&self, term: Term) -> bool {
        // Agents of earlier versions don't say. A later term than the one that was seen is no earlier one.
        self.term.is_none_or(|told| told >= term)
    }

    /// Whether it is the same history, however far anybody is by now.
    pub fn is_that_of(&self, other: &Self) -> bool {
        (self.timeline, &self.forks, &self.log) == (other.timeline, &other.forks, &other.log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_leader_told_in_an_earlier_term_is_not_what_it_writes_now() {
        let told = |term: Option<u64>| History { term: term.map(Term), ..History::default() };
        assert!(!told(Some(2)).may_be_of(Term(4)));
        assert!(told(Some(4)).may_be_of(Term(4)) && told(Some(5)).may_be_of(Term(4)) && told(None).may_be_of(Term(4)));
    }
}
