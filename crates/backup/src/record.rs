//! What the store says about itself: whose an archive is, and what a backup consists of.
//!
//! JSON, so that people can read it, with every field that a restore needs and nothing that is secret. Never: a field that changes its meaning; a
//! reader refuses a [`FORMAT`] that is newer than its own.

use bellwether_core::wal::{Lsn, SystemIdentifier, Timeline};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::layout::BackupId;

/// The version of what is written here.
pub const FORMAT: u32 = 1;

/// Whose an archive is ([`crate::layout::OWNER`]). Written once, by whoever archives there first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// [`FORMAT`].
    pub format: u32,
    /// The database.
    pub system_identifier: SystemIdentifier,
    /// One life of that database: a cluster that was restored from this archive has another, and an archive of its own.
    pub incarnation: String,
    /// The cluster's namespace, for people.
    pub namespace: String,
    /// The cluster's name, for people.
    pub cluster: String,
}

/// A whole backup ([`crate::layout::COMMIT`]).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Commit {
    /// [`FORMAT`].
    pub format: u32,
    /// Which backup.
    pub id: BackupId,
    /// The database.
    pub system_identifier: SystemIdentifier,
    /// PostgreSQL's full version, such as `17.6`.
    pub postgres_version: String,
    /// Version of the agent that took it.
    pub agent_version: String,
    /// The instance that it was taken from, for people.
    pub instance: String,
    /// When it was begun.
    pub started: Timestamp,
    /// When its last byte was read.
    pub finished: Timestamp,
    /// The timeline that it was taken on.
    pub timeline: Timeline,
    /// Where recovery begins: WAL is needed from the segment of this position on …
    pub start: Lsn,
    /// … to this one, before the database is consistent.
    pub stop: Lsn,
    /// Bytes in a segment of WAL.
    pub segment_size: u64,
    /// Tablespaces outside the data directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tablespaces: Vec<Tablespace>,
    /// The parts of the data directory.
    pub packs: Vec<Object>,
    /// PostgreSQL's manifest, compressed.
    pub manifest: Object,
    /// Bytes of files, before compression.
    pub bytes: u64,
}

/// A tablespace outside the data directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tablespace {
    /// Its OID: the link in `pg_tblspc`.
    pub oid: u32,
    /// Where it was.
    pub location: String,
}

/// An object of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Object {
    /// Its key below the archive's root.
    pub key: String,
    /// Its size.
    pub size: u64,
    /// Its SHA-256, in hexadecimal digits.
    pub sha256: String,
    /// Bytes of files in it, before compression.
    pub bytes: u64,
}

impl Commit {
    /// Bytes in the store, the log apart.
    pub fn stored(&self) -> u64 {
        self.packs.iter().map(|pack| pack.size).sum::<u64>() + self.manifest.size
    }
}

/// The name of a backup's [`Verified`], beside its commit.
pub const VERIFIED: &str = "verified.json";

/// A backup that was restored, recovered and checked ([`VERIFIED`]). Written once, when it was found good; there is none of one that was not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verified {
    /// [`FORMAT`].
    pub format: u32,
    /// Which backup.
    pub id: BackupId,
    /// When that was.
    pub verified: Timestamp,
    /// Version of the agent that did it.
    pub agent_version: String,
    /// The timeline that recovery ended on …
    pub timeline: Timeline,
    /// … and where.
    pub reached: Lsn,
    /// How long each phase took: what a restore takes.
    pub phases: Vec<Took>,
    /// What could not be looked at, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_looked_at: Vec<String>,
    /// Queries of the user's that answered as expected.
    #[serde(default)]
    pub queries: u64,
}

/// How long a phase of a verification took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Took {
    /// Which phase.
    pub phase: String,
    /// How long.
    pub milliseconds: u64,
}
