//! Why the instance isn't further: every layer's errors, as the agent's loop meets them. What they say ends up in the
//! report, in front of a user.

use bellwether_core::wal::SystemIdentifier;
use bellwether_postgres::initdb::InitdbError;
use bellwether_postgres::sql::{SqlError, TlsError};

use crate::guard::orders::End;
use crate::kubernetes::ApiError;
use crate::settings::SettingsError;
use crate::volume::VolumeError;

/// Something went wrong; the loop waits a little and looks again.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The volume.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The configuration.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// `initdb`.
    #[error(transparent)]
    Initdb(#[from] InitdbError),
    /// SQL.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// Certificates for SQL.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The Kubernetes API.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The control file.
    #[error(transparent)]
    Control(#[from] bellwether_postgres::control::ControlError),
    /// What the volume remembers.
    #[error(transparent)]
    Memory(#[from] crate::election::memory::MemoryError),
    /// Where the log ends.
    #[error(transparent)]
    Position(#[from] bellwether_postgres::sql::CutError),
    /// The leader serves another database than the Lease says.
    #[error("{leader} serves database {found}, but the cluster's is {expected}: nothing is copied")]
    WrongLeader {
        /// Who.
        leader: String,
        /// What it serves.
        found: SystemIdentifier,
        /// What it should.
        expected: SystemIdentifier,
    },
    /// A program that works on the volume failed.
    #[error("{name} failed: {said}")]
    Tool {
        /// Which.
        name: &'static str,
        /// What it said last.
        said: String,
    },
    /// A rewound database can't be made whole.
    #[error("rewound, but not whole: {0}")]
    NotWhole(String),
    /// A statement of the user's failed.
    #[error("spec.bootstrap.initdb.postInitSql[{index}] failed, and nothing of it was kept: {cause}")]
    PostInitSql {
        /// Which.
        index: usize,
        /// Why.
        cause: SqlError,
    },
    /// A standby accepts writes, and nobody elected it.
    #[error("somebody promoted this standby, which nobody elected: it is stopped, and what it wrote is set aside")]
    PromotedByOthers,
    /// What is under way is not wanted any more.
    #[error("something else is wanted now")]
    NotWanted,
    /// There is no room to start.
    #[error("the {volume} is full: PostgreSQL is not started before there is room")]
    NoRoom {
        /// Where.
        volume: String,
    },
    /// SQL is answered, but not as a primary should.
    #[error("{0}")]
    NotWritable(String),
    /// PostgreSQL ended by itself.
    #[error("{end}{}", complaint.as_ref().map(|text| format!(": {text}")).unwrap_or_default())]
    Ended {
        /// How.
        end: End,
        /// What it last complained about.
        complaint: Option<String>,
    },
    /// A process or file.
    #[error("{what}: {cause}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What came back.
        cause: std::io::Error,
    },
}
