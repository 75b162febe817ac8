//! Gives PostgreSQL the files that it asks for while it recovers, and fetches the next ones meanwhile: it replays faster than one file after the other
//! comes over a network.
//!
//! Never: a failure swallowed, for what could not be fetched ahead is fetched again when it is asked for, and then it is told; more files on disk than asked for.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ahead::Ahead;
use super::fetch::is_staged;
use super::{WalError, fetch};
use crate::layout::{SegmentName, WalFile};
use crate::store::Store;

/// Fetches the files of one archive.
pub struct Prefetcher {
    archive: Store,
    directory: Arc<Path>,
    segment_size: u64,
    ahead: Ahead<PathBuf>,
}

impl Prefetcher {
    /// From the archive at this root; so many segments ahead of what is asked for are kept in a directory of its own, which is made, and emptied. It should be
    /// in the same filesystem as what is asked for.
    pub async fn new(archive: Store, directory: &Path, segment_size: u64, ahead: usize) -> Result<Self, WalError> {
        let io = WalError::io(directory);
        tokio::fs::create_dir_all(directory).await.map_err(io)?;
        let prefetcher = Self { archive, directory: directory.into(), segment_size, ahead: Ahead::new(ahead) };
        prefetcher.sweep(Sweep::All).await?;
        Ok(prefetcher)
    }

    /// Puts a file there; `false` when the archive does not have it.
    pub async fn fetch(&self, file: WalFile, destination: &Path) -> Result<bool, WalError> {
        let there = match self.ahead.take(file).await {
            Some(path) => tokio::fs::rename(&path, destination).await.is_ok(),
            None => false,
        };
        if !there && !fetch(&self.archive, file, destination).await? {
            return Ok(false);
        }
        if let WalFile::Segment(name) = file {
            self.look_ahead(name).await?;
        }
        Ok(true)
    }

    async fn look_ahead(&self, asked: SegmentName) -> Result<(), WalError> {
        let number = asked.number(self.segment_size);
        let following = (1..=self.ahead.bound() as u64)
            .map(|by| WalFile::Segment(SegmentName::numbered(asked.timeline, number + by, self.segment_size)));
        let following: Vec<_> = following.collect();
        let unwanted = self.ahead.files().iter().any(|file| !following.contains(file));
        self.ahead.want(&following, |file| {
            let (archive, path) = (self.archive.clone(), self.directory.join(file.to_string()));
            // One that is not there yet may be when it is asked for.
            async move { fetch(&archive, file, &path).await.is_ok_and(|there| there).then_some(path) }
        });
        if unwanted { self.sweep(Sweep::Unwanted).await } else { Ok(()) }
    }

    /// Removes what nobody will ask for: it was fetched for another timeline, or by a program that has ended.
    async fn sweep(&self, sweep: Sweep) -> Result<(), WalError> {
        let (directory, wanted) = (self.directory.clone(), self.ahead.files());
        let path = self.directory.clone();
        let swept = tokio::task::spawn_blocking(move || {
            for entry in std::fs::read_dir(&directory)? {
                let name = entry?.file_name();
                let text = name.to_str().unwrap_or_default();
                let unwanted = match sweep {
                    Sweep::All => text.parse::<WalFile>().is_ok() || is_staged(text),
                    Sweep::Unwanted => text.parse().is_ok_and(|file| !wanted.contains(&file)),
                };
                if unwanted {
                    std::fs::remove_file(directory.join(name))?;
                }
            }
            Ok(())
        });
        swept.await.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(WalError::io(&path))
    }
}

/// What is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sweep {
    /// All of ours: nothing is under way.
    All,
    /// What was fetched, and is not wanted any longer.
    Unwanted,
}
