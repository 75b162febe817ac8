//! Unpacks a backup into a data directory, makes that recover to a moment, and starts one apart from everything to see whether it is a backup.
//!
//! From a commit and the objects that it names, nothing of which is believed before it was checked: every object against its digest, every path
//! against leaving its directory, every part of a file against its neighbours. Never: a directory touched in which there is anything; half a
//! copy that looks whole ([`MARKER`] goes last, and until then `pg_control` has another name, so that PostgreSQL refuses it too).

pub mod apart;
mod arriving;
pub mod choose;
mod files;
pub mod owner;
pub mod ready;
pub mod recovery;
mod target;
#[cfg(test)]
mod tests;
pub mod verify;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;

use futures::stream::{self, StreamExt as _};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::record::{Commit, Object};
use crate::store::{Store, StoreError};
use arriving::Arriving;
use files::Files;
use target::Directories;

/// The file that a data directory has until everything is in it.
pub const MARKER: &str = "bellwether.restoring";
/// Pieces of an object that are on their way from the store to whoever unpacks it.
const ON_THE_WAY: usize = 8;

/// What becomes of the original's configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Configuration {
    /// It is where it was. PostgreSQL would act by it.
    #[default]
    InPlace,
    /// Under other names ([`apart::ORIGINAL`]): PostgreSQL does not start there until somebody writes another ([`ready`]).
    Aside,
}

/// Where a backup goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many packs are unpacked at the same time.
    pub workers: usize,
    /// Where tablespaces go, by OID; one that is not named goes to `tablespaces/<oid>` beside the data directory.
    pub tablespaces: BTreeMap<u32, PathBuf>,
    /// Where the write-ahead log goes when it has a volume of its own.
    pub wal_dir: Option<PathBuf>,
    /// What becomes of the original's configuration.
    pub configuration: Configuration,
}

impl Default for Options {
    fn default() -> Self {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        Self { workers, tablespaces: BTreeMap::new(), wal_dir: None, configuration: Configuration::default() }
    }
}

/// How far a restore is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of files that were written.
    pub done: u64,
    /// Bytes of files in all.
    pub total: u64,
}

/// Why a backup could not be unpacked. What was written stays as it is, with [`MARKER`] in it.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// There is something where it should go.
    #[error("{}: not empty{}; nothing was touched", dir.display(), if *.half { ": a restore was broken off there" } else { "" })]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
        /// Whether it is what is left of another restore.
        half: bool,
    },
    /// A directory that depends on where somebody stands.
    #[error("{}: not an absolute path", dir.display())]
    Relative {
        /// The directory.
        dir: PathBuf,
    },
    /// A directory for a tablespace that isn't there.
    #[error("tablespace {oid} was given a directory, and the backup has no such tablespace")]
    NoSuchTablespace {
        /// Its OID.
        oid: u32,
    },
    /// The system does not let us.
    #[error("{what} {}: {cause}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// What came back.
        cause: io::Error,
    },
    /// The store does not have or give it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An object is not what was written.
    #[error("{key} is damaged: {problem}")]
    Damaged {
        /// Its key.
        key: String,
        /// What is wrong.
        problem: String,
    },
    /// All objects are what was written, and yet something is missing.
    #[error("backup {id} is not whole: {path}: {problem}")]
    Incomplete {
        /// The backup.
        id: String,
        /// The file.
        path: String,
        /// What is missing.
        problem: String,
    },
    /// A thread ended that should not have.
    #[error("unpacking {key} was broken off")]
    Aborted {
        /// What it was unpacking.
        key: String,
    },
}

pub(crate) fn io_error(what: &'static str, path: &Path, cause: io::Error) -> RestoreError {
    RestoreError::Io { what, path: path.to_owned(), cause }
}

/// Unpacks a backup of the archive whose root `store` is into `target`, which must be absent or empty. Dropped, it leaves what is there, with
/// [`MARKER`] in it, and its threads end at their next piece.
pub async fn unpack(
    commit: &Commit,
    store: &Store,
    target: &Path,
    options: &Options,
    progress: &watch::Sender<Progress>,
) -> Result<(), RestoreError> {
    progress.send_modify(|progress| *progress = Progress { done: 0, total: commit.bytes });
    let (target, spaces, wanted) = (target.to_owned(), commit.tablespaces.clone(), options.clone());
    let id = commit.id.to_string();
    let prepare = move || Directories::prepare(&id, &target, &spaces, &wanted);
    let directories = blocking(commit.id.as_str(), prepare).await?;
    let stop = CancellationToken::new();
    // Threads go on when nobody waits for them any more, unless they are told.
    let _told = stop.clone().drop_guard();
    let files = Arc::new(Files::new(directories, commit, progress.clone(), stop.clone()));

    let objects = commit.packs.iter().map(|pack| (pack, What::Pack)).chain([(&commit.manifest, What::Manifest)]);
    let unpacking = stream::iter(objects).map(|(object, what)| unpack_object(store, object, what, &files, &stop));
    let mut unpacked = pin!(unpacking.buffer_unordered(options.workers.max(1)));
    let mut failed = None;
    while let Some(done) = unpacked.next().await {
        if let Err(error) = done {
            // The first is why the others end. They are waited for: whoever is told that it failed may remove what is there.
            failed.get_or_insert(error);
            stop.cancel();
        }
    }
    match failed {
        Some(error) => Err(error),
        None => {
            let files = Arc::clone(&files);
            blocking(commit.id.as_str(), move || files.finish()).await
        }
    }
}

/// What an object holds.
#[derive(Clone, Copy)]
enum What {
    Pack,
    Manifest,
}

async fn unpack_object(
    store: &Store,
    object: &Object,
    what: What,
    files: &Arc<Files>,
    stop: &CancellationToken,
) -> Result<(), RestoreError> {
    let aborted = || RestoreError::Aborted { key: object.key.clone() };
    let opened = stop.run_until_cancelled(store.stream(&object.key)).await;
    let mut pieces = opened.ok_or_else(aborted)??;
    let (sender, receiver) = mpsc::channel(ON_THE_WAY);
    let (files, expected) = (Arc::clone(files), object.clone());
    let unpacked = tokio::task::spawn_blocking(move || {
        let arriving = Arriving::new(receiver, &expected);
        match what {
            What::Pack => files.pack(arriving),
            What::Manifest => files.manifest(arriving),
        }
    });
    while let Some(Some(piece)) = stop.run_until_cancelled(pieces.next()).await {
        let broken = piece.is_err();
        // Nobody takes it any more: the reason is below.
        if sender.send(piece).await.is_err() || broken {
            break;
        }
    }
    drop(sender);
    unpacked.await.unwrap_or_else(|_| Err(aborted()))
}

/// Runs what waits for the disk where that holds nobody up.
async fn blocking<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> Result<T, RestoreError> + Send + 'static,
) -> Result<T, RestoreError> {
    let key = what.to_owned();
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(RestoreError::Aborted { key }))
}
