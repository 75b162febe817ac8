//! Archives what PostgreSQL asks for, and in parallel what it will ask for next: it asks for one file at a time, and on a busy database one at a time is too slow.
//!
//! From: the files in `archive_status` that are ready. Decides which are next ([`next`]). Never: "archived" said of a file before the store has acknowledged these very
//! contents; a failure of a file that was not asked for told for the one that was.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ahead::Ahead;
use super::{Archive, Pushed, WalError, blocking, push};
use crate::layout::WalFile;

/// What a file that is ready to be archived has behind its name, in `archive_status`.
const READY: &str = ".ready";

/// Which of the files that are ready are asked for next, after the one that was: histories first, and then in the order of names, as PostgreSQL does.
pub fn next(asked: WalFile, ready: impl IntoIterator<Item = WalFile>, bound: usize) -> Vec<WalFile> {
    let mut ready: Vec<_> = ready.into_iter().filter(|file| *file != asked).collect();
    ready.sort_by_cached_key(|file| (!matches!(file, WalFile::History(_)), file.to_string()));
    ready.dedup();
    ready.truncate(bound);
    ready
}

/// Archives the files of one `pg_wal`.
pub struct Uploader {
    work: Arc<Work>,
    ahead: Ahead<Done>,
}

struct Work {
    archive: Archive,
    wal: PathBuf,
    segment_size: u64,
    level: i32,
}

/// A file that was archived before it was asked for.
struct Done {
    pushed: Pushed,
    identity: Identity,
}

/// A file, told apart from any other that ever had its name.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Identity {
    fn of(path: &Path) -> io::Result<Self> {
        let meta = std::fs::metadata(path)?;
        Ok(Self { inode: meta.ino(), size: meta.len(), modified: (meta.mtime(), meta.mtime_nsec()) })
    }
}

impl Uploader {
    /// For the files in the directory `wal`, compressed at this level, and so many ahead of what is asked for.
    pub fn new(archive: Archive, wal: &Path, segment_size: u64, level: i32, ahead: usize) -> Self {
        let work = Arc::new(Work { archive, wal: wal.to_owned(), segment_size, level });
        Self { work, ahead: Ahead::new(ahead) }
    }

    /// The archive.
    pub fn archive(&self) -> &Archive {
        &self.work.archive
    }

    /// Archives the file that PostgreSQL asks for. One that was archived in the meantime is answered at once.
    pub async fn archive_file(&self, file: WalFile) -> Result<Pushed, WalError> {
        self.look_ahead(file).await;
        if let Some(Done { pushed, identity }) = self.ahead.take(file).await {
            let work = self.work.clone();
            let now = blocking(file, move || work.identity(file)).await?;
            if now == identity {
                return Ok(pushed);
            }
        }
        self.work.push(file).await
    }

    async fn look_ahead(&self, file: WalFile) {
        // Whether the store is back shows the file that somebody waits for.
        if !self.work.archive.store().works() {
            return;
        }
        let waiting = self.ahead.files();
        // Looking is for when there is room for a few.
        if waiting.contains(&file) && waiting.len() > self.ahead.bound() / 2 {
            return;
        }
        let work = self.work.clone();
        // Without knowing what is ready nothing is done ahead; what was asked for is.
        let Ok(ready) = blocking(file, move || work.ready()).await else { return };
        let mut wanted = next(file, ready, self.ahead.bound());
        if waiting.contains(&file) {
            wanted.insert(0, file);
        }
        self.ahead.want(&wanted, |file| {
            let work = self.work.clone();
            async move {
                let before = work.clone();
                let identity = blocking(file, move || before.identity(file)).await.ok()?;
                // What is wrong is said when the file is asked for: it is tried again then.
                let pushed = work.push(file).await.ok()?;
                Some(Done { pushed, identity })
            }
        });
    }
}

impl Work {
    async fn push(&self, file: WalFile) -> Result<Pushed, WalError> {
        push(&self.archive, file, &self.path(file), self.segment_size, self.level).await
    }

    fn path(&self, file: WalFile) -> PathBuf {
        self.wal.join(file.to_string())
    }

    fn identity(&self, file: WalFile) -> Result<Identity, WalError> {
        let path = self.path(file);
        Identity::of(&path).map_err(WalError::io(&path))
    }

    fn ready(&self) -> Result<Vec<WalFile>, WalError> {
        let directory = self.wal.join("archive_status");
        let list = || -> io::Result<Vec<WalFile>> {
            let mut ready = vec![];
            for entry in std::fs::read_dir(&directory)? {
                let name = entry?.file_name();
                ready.extend(name.to_str().and_then(|name| name.strip_suffix(READY)?.parse::<WalFile>().ok()));
            }
            Ok(ready)
        };
        list().map_err(WalError::io(&directory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn files(names: &[&str]) -> Vec<WalFile> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    #[test]
    fn the_oldest_are_next_and_histories_before_all() {
        let ready = files(&[
            "000000020000000000000005",
            "000000010000000000000004.partial",
            "000000010000000000000003",
            "000000010000000000000002",
            "00000002.history",
        ]);
        let asked = "000000010000000000000002".parse().unwrap();
        let expected = files(&["00000002.history", "000000010000000000000003", "000000010000000000000004.partial"]);
        assert_eq!(next(asked, ready, 3), expected);
    }

    proptest! {
        #[test]
        fn what_is_next_was_ready_is_no_more_than_asked_for_and_never_the_file_itself(
            numbers in prop::collection::vec(0u64..30, 0..40), asked in 0u64..30, bound in 0usize..10,
        ) {
            let file = |number: u64| format!("00000001{number:016X}").parse::<WalFile>().unwrap();
            let ready: Vec<_> = numbers.iter().copied().map(file).collect();
            let next = next(file(asked), ready.clone(), bound);
            prop_assert!(next.len() <= bound && next.is_sorted() && !next.contains(&file(asked)));
            prop_assert!(next.iter().all(|file| ready.contains(file)));
            let older = |file: &WalFile| next.last().is_none_or(|last| next.len() == bound && file > last);
            prop_assert!(ready.iter().filter(|ready| **ready != file(asked)).all(|ready| next.contains(ready) || bound == 0 || older(ready)));
        }
    }
}
