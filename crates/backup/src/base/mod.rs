//! Takes a base backup: PostgreSQL sends its data directory over the local socket, and what arrives goes to the store in packs.
//!
//! PostgreSQL decides what is in a backup, checks its pages while it reads them, and writes the manifest; we cut, compress and upload
//! ([`pack`], [`objects`]). [`take`] ends with a [`Taken`]: everything is in the store but the commit. Whoever called it makes sure that the log
//! from the backup's beginning to its end can be read from the store ([`Taken::read_back`]), and only then commits.
//!
//! Never: a commit before everything it speaks of; a backup of another database, or across a change of timelines; a backup in which PostgreSQL
//! found a broken page.

pub mod header;
pub mod objects;
pub mod pack;
mod packing;
pub mod protocol;
pub mod seal;
mod taken;
pub mod tar;
#[cfg(test)]
pub(crate) mod tests;

use std::io;
use std::path::Path;
use std::time::Duration;

use bellwether_core::wal::{Lsn, SystemIdentifier, Timeline};
use jiff::Timestamp;
use tokio::sync::watch;

use crate::layout::BackupId;
use crate::record::{self, Commit, FORMAT};
use crate::store::{Store, StoreError};
use header::Inside;
use objects::{Effort, Objects};
use packing::{Packed, Packing};
use protocol::{Checkpoint, Connection, FileChecksums, ProtocolError, Purpose, Request, Start, Step};
use tar::TarError;

pub use taken::{ReadBackError, Taken, needed_segments, read_back};

/// Bytes of files in a pack. Large enough that no store minds their number, small enough that a few fit into memory, and that a restore has work
/// for all its workers.
pub const PACK: u64 = 64 << 20;
/// The oldest PostgreSQL whose stream is understood.
const OLDEST: u32 = 15;

/// What is backed up, and how.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// What the backup will be called.
    pub id: BackupId,
    /// The directory of the server's socket.
    pub socket_dir: &'a Path,
    /// The server's port.
    pub port: u16,
    /// The database that it must be.
    pub system_identifier: SystemIdentifier,
    /// The instance, for people.
    pub instance: &'a str,
    /// Our version, for people.
    pub agent_version: &'a str,
    /// How the backup begins.
    pub checkpoint: Checkpoint,
    /// How long the server's checkpoint may take.
    pub checkpoint_patience: Duration,
    /// How long the server may say nothing after that.
    pub silence: Duration,
    /// What the server sends at most, in KiB each second.
    pub max_rate: Option<u32>,
    /// What the manifest holds. Our own objects have SHA-256 in any case.
    pub checksums: FileChecksums,
    /// Bytes of files in a pack.
    pub pack_bytes: u64,
    /// How packs are compressed and uploaded.
    pub effort: Effort,
}

impl<'a> Options<'a> {
    /// With what suits most.
    pub fn new(id: BackupId, socket_dir: &'a Path, port: u16, system_identifier: SystemIdentifier) -> Self {
        Self {
            id,
            socket_dir,
            port,
            system_identifier,
            instance: "",
            agent_version: env!("CARGO_PKG_VERSION"),
            checkpoint: Checkpoint::Fast,
            // A spread one takes most of `checkpoint_timeout`, which may be a day; an hour is what people set.
            checkpoint_patience: Duration::from_secs(2 * 3600),
            silence: Duration::from_secs(120),
            max_rate: None,
            checksums: FileChecksums::Crc32c,
            pack_bytes: PACK,
            effort: Effort::default(),
        }
    }
}

/// How far a backup is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of files that have arrived.
    pub done: u64,
    /// Bytes that are expected in all: the server's estimate, and never less than what has arrived.
    pub total: u64,
    /// Objects that the store has.
    pub objects: u64,
    /// Bytes that the store has.
    pub stored: u64,
}

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    /// The server did not do it. What PostgreSQL finds wrong with its own pages is among these.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The store did not take it.
    #[error(transparent)]
    Store(StoreError),
    /// What the server sent is not understood.
    #[error("the server's backup: {0}")]
    Tar(#[from] TarError),
    /// It comes in an order in which it never does.
    #[error("the server's backup: {0}")]
    Stream(&'static str),
    /// A link, which no backup has.
    #[error("the server's backup: {0} is a link")]
    Link(Inside),
    /// A file is missing without which no backup is one.
    #[error("the server's backup: there is no {0} in it")]
    Incomplete(&'static str),
    /// Nothing can be compressed.
    #[error("compressing or hashing failed: {0}")]
    Compress(io::Error),
    /// The server is another database's.
    #[error("the server is database {found}, and a backup of {expected} was wanted; nothing was read")]
    OtherDatabase {
        /// What was expected.
        expected: SystemIdentifier,
        /// What it is.
        found: SystemIdentifier,
    },
    /// It is too old, or not understood.
    #[error("the server is PostgreSQL {0:?}; backups are taken of {OLDEST} and later")]
    Version(String),
    /// There was a failover meanwhile, or shortly before.
    #[error("the backup begins on timeline {start} and ends on {end}; take another")]
    TimelineChanged {
        /// Where it began.
        start: Timeline,
        /// Where it ended.
        end: Timeline,
    },
    /// It ends before it begins.
    #[error("the backup begins at {start} and ends at {stop}, which is not behind it")]
    NoRange {
        /// Where it begins.
        start: Lsn,
        /// Where it ends.
        stop: Lsn,
    },
    /// The commit can't be written down.
    #[error("the commit of backup {id} can't be written: {cause}")]
    Commit {
        /// The backup.
        id: BackupId,
        /// Why.
        cause: serde_json::Error,
    },
}

/// Takes a backup into the archive whose root `store` is. Dropped, it is broken off: PostgreSQL ends it, and objects that were written already
/// are removed as well as that can be done, as they are after an error.
pub async fn take(
    options: &Options<'_>,
    store: &Store,
    progress: &watch::Sender<Progress>,
) -> Result<Taken, BaseError> {
    let started = Timestamp::now();
    let Options { socket_dir, port, silence, .. } = *options;
    let mut server = Connection::open(socket_dir, port, Purpose::Replication, silence).await?;
    let version = server.version().to_owned();
    if major(&version).is_none_or(|major| major < OLDEST) {
        return Err(BaseError::Version(version));
    }
    let found = server.identify_system().await?.system_identifier;
    if found != options.system_identifier {
        return Err(BaseError::OtherDatabase { expected: options.system_identifier, found });
    }
    let segment_size = server.segment_size().await?;
    let (start, mut copy) = server.base_backup(&request(options)).await?;
    progress.send_modify(|progress| progress.total = start.estimate);

    let objects = Objects::new(store, options.effort, progress);
    let mut packing = Packing::new(options.id.clone(), options.pack_bytes, objects, progress);
    let mut in_manifest = false;
    while let Some(step) = copy.next().await? {
        match step {
            Step::Archive(_) if in_manifest => return Err(BaseError::Stream("an archive behind the manifest")),
            Step::Archive(archive) => packing.archive(archive)?,
            Step::Manifest if in_manifest => return Err(BaseError::Stream("two manifests")),
            Step::Manifest => {
                packing.end_of_archives().await?;
                in_manifest = true;
            }
            Step::Data(data) if in_manifest => packing.manifest(data).await?,
            Step::Data(data) => packing.data(data).await?,
        }
    }
    let end = copy.end().await?;
    check(&start, &end)?;
    let finished = Timestamp::now();
    let Packed { packs, manifest, bytes } = packing.finish().await?;
    packing.keep();
    let tablespaces = start.tablespaces.into_iter();
    Ok(Taken(Commit {
        format: FORMAT,
        id: options.id.clone(),
        system_identifier: found,
        postgres_version: version,
        agent_version: options.agent_version.to_owned(),
        instance: options.instance.to_owned(),
        started,
        finished,
        timeline: start.timeline,
        start: start.position,
        stop: end.position,
        segment_size,
        tablespaces: tablespaces.map(|space| record::Tablespace { oid: space.oid, location: space.location }).collect(),
        packs,
        manifest,
        bytes,
    }))
}

fn request<'a>(options: &'a Options<'_>) -> Request<'a> {
    Request {
        label: options.id.as_str(),
        checkpoint: options.checkpoint,
        checkpoint_patience: options.checkpoint_patience,
        checksums: options.checksums,
        max_rate: options.max_rate,
    }
}

/// A backup that was begun right after a failover may begin before it, on the timeline that ended: the standby has made no restart point since.
fn check(start: &Start, end: &protocol::End) -> Result<(), BaseError> {
    if start.timeline != end.timeline {
        return Err(BaseError::TimelineChanged { start: start.timeline, end: end.timeline });
    }
    if end.position <= start.position {
        return Err(BaseError::NoRange { start: start.position, stop: end.position });
    }
    Ok(())
}

/// `17.6` is a 17, and so is `17beta1`.
fn major(version: &str) -> Option<u32> {
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}
