//! Clones an instance with `pg_basebackup`: what it is called with, and what it says about how far it is.
//!
//! Must never happen: that it goes over a directory with anything in it. It refuses that by itself.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::conninfo::ConnInfo;
use crate::installation::Installation;
use crate::slot::SlotName;

/// A clone of another instance.
#[derive(Clone, Debug)]
pub struct BaseBackup<'a> {
    /// Where from.
    pub source: &'a ConnInfo,
    /// The slot, which must exist there: WAL from the first byte of the copy on is kept for us until we stream. Without one it is kept
    /// for as long as the copy takes.
    pub slot: Option<&'a SlotName>,
    /// Where the data goes: absent or empty.
    pub data_dir: &'a Path,
    /// Where the write-ahead log goes when it has a volume of its own: absent or empty.
    pub wal_dir: Option<&'a Path>,
}

/// How far a clone is. The total is PostgreSQL's estimate, and grows when it was too low.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// KiB that have arrived.
    pub done_kib: u64,
    /// KiB that are expected in all.
    pub total_kib: u64,
}

impl Progress {
    /// In per cent, at most 100; nothing expected is all done.
    pub fn percent(self) -> u8 {
        let share = self.done_kib.saturating_mul(100).checked_div(self.total_kib).unwrap_or(100);
        u8::try_from(share.min(100)).unwrap_or(100)
    }
}

impl BaseBackup<'_> {
    /// The program. Who runs it makes sure that it, and what it starts, ends with its agent.
    pub fn program(&self, installation: &Installation) -> PathBuf {
        installation.program("pg_basebackup")
    }

    /// Its arguments.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec![
            format!("--dbname={}", self.source).into(),
            "--no-password".into(),
            "--pgdata".into(),
            self.data_dir.into(),
            // WAL is streamed beside the data: fetched at the end, it could be gone by then.
            "--format=plain".into(),
            "--wal-method=stream".into(),
            // A spread checkpoint would take minutes before the first byte; somebody is waiting for this instance.
            "--checkpoint=fast".into(),
            "--progress".into(),
            "--verbose".into(),
            format!("--label=bellwether {}", self.source.application_name).into(),
        ];
        arguments.extend(self.slot.map(|slot| format!("--slot={slot}").into()));
        if let Some(wal_dir) = self.wal_dir {
            arguments.extend(["--waldir".into(), wal_dir.into()]);
        }
        arguments
    }
}

/// How far it is, if it says so on this line: `22344/30000 kB (74%), 0/1 tablespace (…file)`.
pub fn progress(line: &str) -> Option<Progress> {
    let (amount, rest) = line.split_once(" kB (")?;
    let (done, total) = amount.split_once('/')?;
    rest.contains("tablespace").then_some(())?;
    Some(Progress { done_kib: done.trim().parse().ok()?, total_kib: total.trim().parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_reads_as_pg_basebackup_writes_it() {
        let percent = |line| progress(line).map(Progress::percent);
        assert_eq!(percent("pg_basebackup: initiating base backup"), None);
        assert_eq!(percent("     0/30000 kB (0%), 0/1 tablespace (...base/1/2)"), Some(0));
        assert_eq!(percent("22500/30000 kB (75%), 0/1 tablespace"), Some(75));
        assert_eq!(percent("30001/30001 kB (100%), 1/1 tablespace"), Some(100));
        assert_eq!(percent("pg_basebackup: error: out of luck"), None);
    }

    #[test]
    fn a_share_of_nothing_is_all() {
        assert_eq!(Progress { done_kib: 0, total_kib: 0 }.percent(), 100);
        assert_eq!(Progress { done_kib: u64::MAX, total_kib: 1 }.percent(), 100);
    }
}
