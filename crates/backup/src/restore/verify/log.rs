//! Fetches the log that a backup needs, from the archive as a restore would find it.

use std::fs;
use std::path::Path;

use bellwether_core::wal::Timeline;

use super::{RestoreError, VerifyError};
use crate::base::needed_segments;
use crate::layout::WalFile;
use crate::record::Commit;
use crate::restore::io_error;
use crate::store::{Store, StoreError};
use crate::wal;

/// Puts every segment from the backup's beginning to its end into a directory, and what says where its timeline came from.
pub(super) async fn fetch(commit: &Commit, store: &Store, directory: &Path) -> Result<(), VerifyError> {
    fs::create_dir(directory).map_err(|cause| io_error("make", directory, cause))?;
    // The first timeline has no history; without that of another, PostgreSQL says that there is no such timeline.
    let history = (commit.timeline > Timeline(1)).then_some(WalFile::History(commit.timeline));
    for file in needed_segments(commit).into_iter().map(WalFile::Segment).chain(history) {
        let key = file.key();
        match wal::fetch(store, file, &directory.join(file.to_string())).await {
            Ok(true) => {}
            Ok(false) => {
                return Err(RestoreError::from(StoreError::Missing { store: store.to_string(), key }).into());
            }
            Err(cause) => return Err(VerifyError::Archive { key, cause }),
        }
    }
    Ok(())
}
