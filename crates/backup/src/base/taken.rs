//! A backup of which everything is in the store but the commit, and what has to be so before that is written.
//!
//! The data directory alone is worth nothing: its files were read while others were written, and only the log from its beginning to its end makes
//! them fit together. So every segment of that is read back from the archive, whole, before anybody may call the backup one.

use std::time::Duration;

use bellwether_core::wal::{Lsn, Timeline};
use bytes::Bytes;
use tokio::time::Instant;

use super::objects::remove;
use super::{BaseError, seal};
use crate::layout::{COMMIT, SegmentName, WalFile};
use crate::record::Commit;
use crate::store::Store;
use crate::wal::{self, Contents, WalError};

/// How often the archive is asked for a segment that isn't there yet.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// A backup that becomes one when it is committed.
#[derive(Debug)]
#[must_use = "a backup that is not committed is none"]
pub struct Taken(pub(super) Commit);

/// Why the log of a backup can't be counted on.
#[derive(Debug, thiserror::Error)]
pub enum ReadBackError {
    /// It did not come in time.
    #[error("{key} is needed by the backup, and was not in the archive within {patience:?}{}", last.as_ref().map(|error| format!(": {error}")).unwrap_or_default())]
    NotArchived {
        /// The file's key.
        key: String,
        /// How long we waited.
        patience: Duration,
        /// What went wrong last, if it was not merely that there is none.
        last: Option<WalError>,
    },
    /// It is there, and can't be used; or the store does not let us read it.
    #[error("{key} is needed by the backup: {cause}")]
    Unusable {
        /// The file's key.
        key: String,
        /// What is wrong.
        cause: WalError,
    },
    /// It is whole, and of another size than every segment of this database.
    #[error("{key} is needed by the backup, and has {found} bytes instead of {expected}")]
    Size {
        /// The segment's key.
        key: String,
        /// What it has.
        found: u64,
        /// What it should have.
        expected: u64,
    },
}

impl Taken {
    /// What will be committed.
    pub fn commit_to_be(&self) -> &Commit {
        &self.0
    }

    /// The segments that the database is not consistent without.
    pub fn needed_segments(&self) -> Vec<SegmentName> {
        needed_segments(&self.0)
    }

    /// Waits until every segment that is needed is in the archive, and what says where its timeline came from, and reads them.
    pub async fn read_back(&self, store: &Store, patience: Duration) -> Result<(), ReadBackError> {
        let Commit { timeline, segment_size, .. } = self.0;
        read_back(store, &self.needed_segments(), segment_size, patience).await?;
        if timeline > Timeline(1) {
            appears(store, WalFile::History(timeline), Instant::now() + patience, patience).await?;
        }
        Ok(())
    }

    /// Writes the commit: with it, the backup exists.
    pub async fn commit(self, store: &Store) -> Result<Commit, BaseError> {
        let text = seal::seal(&self.0).map_err(|cause| BaseError::Commit { id: self.0.id.clone(), cause })?;
        store.put_new(&self.0.id.key(COMMIT), Bytes::from(text)).await?;
        Ok(self.0)
    }

    /// Removes what there is of it, as well as that can be done.
    pub async fn discard(self, store: &Store) {
        let objects = self.0.packs.into_iter().chain([self.0.manifest]);
        remove(store, &objects.map(|object| object.key).collect::<Vec<_>>()).await;
    }
}

/// The segments from where a backup begins to where it ends.
pub fn needed_segments(commit: &Commit) -> Vec<SegmentName> {
    let size = commit.segment_size;
    // Where it ends is behind the last byte that is needed.
    let (first, last) = (commit.start.0 / size, Lsn(commit.stop.0.saturating_sub(1)).0 / size);
    (first..=last).map(|number| SegmentName::numbered(commit.timeline, number, size)).collect()
}

/// Waits until each of these is in the archive, and reads it to its end.
pub async fn read_back(
    store: &Store,
    segments: &[SegmentName],
    segment_size: u64,
    patience: Duration,
) -> Result<(), ReadBackError> {
    let until = Instant::now() + patience;
    for &segment in segments {
        let file = WalFile::Segment(segment);
        let Contents { size, .. } = appears(store, file, until, patience).await?;
        if size != segment_size {
            return Err(ReadBackError::Size { key: file.key(), found: size, expected: segment_size });
        }
    }
    Ok(())
}

async fn appears(store: &Store, file: WalFile, until: Instant, patience: Duration) -> Result<Contents, ReadBackError> {
    loop {
        let last = match wal::read_back(store, file).await {
            Ok(Some(contents)) => return Ok(contents),
            Ok(None) => None,
            Err(error) if error.is_transient() => Some(error),
            Err(cause) => return Err(ReadBackError::Unusable { key: file.key(), cause }),
        };
        if Instant::now() + ASK_AGAIN > until {
            return Err(ReadBackError::NotArchived { key: file.key(), patience, last });
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}
