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
mod margin;
pub mod memory;
pub mod peers;
pub mod record;
pub mod steward;
pub mod tls;
pub mod wire;

use std::collections::BTreeMap;

use bellwether_core::election::{MemberId, Position, Voters};
use bellwether_core::instance::history::Told;
use bellwether_core::instance::space::Space;
use bellwether_core::wal::{Lsn, Term};

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
        /// Its term.
        term: Term,
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
    /// Shut down, so that standbys get everything.
    Gently,
    /// Killed once nobody writes any more and standbys have everything; shut down where that can't be had. A switchover.
    Drained,
}

/// What the instance's loop tells the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It initialised the database of a cluster that has none.
    Initialised,
    /// As wanted by this number, nobody is received from, and the log ends here.
    Standing(u64, Option<Position>),
    /// As wanted by this number, nobody can write any more, standbys have everything, and the log ends here.
    Drained(u64, Option<Position>),
    /// As wanted by this number, no process is left, and the log ends here, if that can be told.
    Stopped(u64, Option<Position>),
    /// It streams from there, or from nobody any more.
    Streaming(Option<MemberId>),
    /// PostgreSQL died by itself while it was wanted as the primary.
    Crashed,
    /// No backend goes by older voters any more, and a quorum of these holds everything that was acknowledged till then.
    InForce(Option<Voters>),
}

/// The own log, for others to compare theirs with: goes along with each message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Which one, while this instance leads.
    pub told: Told,
    /// From where on it keeps WAL for the others, by slot.
    pub slots: BTreeMap<String, Lsn>,
}

/// What is known of another, as it told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Of its log.
    pub told: Told,
    /// How far it had written, if it leads.
    pub written: Option<Lsn>,
    /// How much room its volumes have, if it said.
    pub space: Option<Space>,
    /// From where on it keeps WAL for the others, by slot.
    pub slots: BTreeMap<String, Lsn>,
}
