//! Clones an instance with `pg_basebackup`, and says how far it is.
//!
//! Must never happen: that it starts on a directory with anything in it, or goes on after nobody waits for it any more.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::conninfo::ConnInfo;
use crate::file;
use crate::installation::Installation;
use crate::slot::SlotName;

/// A clone of another instance.
#[derive(Clone, Debug)]
pub struct BaseBackup<'a> {
    /// Where from.
    pub source: &'a ConnInfo,
    /// The slot, which must exist there: WAL from the first byte of the copy on is kept for us until we stream.
    pub slot: &'a SlotName,
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

/// Why there is no clone.
#[derive(Debug, thiserror::Error)]
pub enum BaseBackupError {
    /// There is something already.
    #[error("{dir:?} is not empty: nothing is cloned over what is there")]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
    },
    /// A directory or program can't be used.
    #[error("{path:?}: {source}")]
    Io {
        /// The directory or program.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It failed; often worth another try, from whoever leads then.
    #[error("pg_basebackup failed ({status}): {message}")]
    Failed {
        /// How it ended.
        status: ExitStatus,
        /// What it said last.
        message: String,
    },
}

/// How many of its last lines are kept for the error: the cause, and a little of what led to it.
const KEPT_LINES: usize = 8;

impl BaseBackup<'_> {
    /// The command, for [`BaseBackup::run_command`].
    pub fn command(&self, installation: &Installation) -> Command {
        let mut command = Command::new(installation.program("pg_basebackup"));
        command.arg(format!("--dbname={}", self.source)).arg("--no-password");
        command.arg("--pgdata").arg(self.data_dir);
        // WAL is streamed beside the data: fetched at the end, it could be gone by then.
        command.args(["--format=plain", "--wal-method=stream"]).arg(format!("--slot={}", self.slot));
        // A spread checkpoint would take minutes before the first byte; somebody is waiting for this instance.
        command.args(["--checkpoint=fast", "--progress", "--verbose"]);
        command.arg(format!("--label=bellwether {}", self.source.application_name));
        if let Some(wal_dir) = self.wal_dir {
            command.arg("--waldir").arg(wal_dir);
        }
        command
    }

    /// Clones; `progress` is told whenever it changes.
    pub async fn run(
        &self,
        installation: &Installation,
        progress: impl FnMut(Progress),
    ) -> Result<(), BaseBackupError> {
        self.run_command(self.command(installation), progress).await
    }

    /// Clones with a command that was made by [`BaseBackup::command`] and changed by the caller. Dropping the future
    /// kills it.
    pub async fn run_command(
        &self,
        mut command: Command,
        mut progress: impl FnMut(Progress),
    ) -> Result<(), BaseBackupError> {
        for dir in [Some(self.data_dir), self.wal_dir].into_iter().flatten() {
            match file::is_absent_or_empty(dir) {
                Ok(true) => {}
                Ok(false) => return Err(BaseBackupError::NotEmpty { dir: dir.to_owned() }),
                Err(source) => return Err(BaseBackupError::Io { path: dir.to_owned(), source }),
            }
        }
        let program = PathBuf::from(command.as_std().get_program());
        let io = |source| BaseBackupError::Io { path: program.clone(), source };
        command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(io)?;
        let mut stderr = child.stderr.take().expect("stderr was piped above");
        let mut lines = Lines::default();
        let mut chunk = [0; 4096];
        loop {
            let length = stderr.read(&mut chunk).await.map_err(io)?;
            if length == 0 {
                break;
            }
            lines.push(&chunk[..length], &mut progress);
        }
        let status = child.wait().await.map_err(io)?;
        if status.success() {
            return Ok(());
        }
        Err(BaseBackupError::Failed { status, message: lines.said() })
    }
}

/// What it prints: lines that end with a line break, or with a carriage return where it thinks of a terminal.
#[derive(Default)]
struct Lines {
    unfinished: Vec<u8>,
    kept: VecDeque<String>,
    last: Option<Progress>,
}

impl Lines {
    fn push(&mut self, bytes: &[u8], progress: &mut impl FnMut(Progress)) {
        for &byte in bytes {
            if !matches!(byte, b'\n' | b'\r') {
                self.unfinished.push(byte);
                continue;
            }
            let line = String::from_utf8_lossy(&self.unfinished).trim().to_owned();
            self.unfinished.clear();
            if line.is_empty() {
                continue;
            }
            match parse_progress(&line) {
                Some(now) if self.last == Some(now) => {}
                Some(now) => {
                    self.last = Some(now);
                    progress(now);
                }
                None => {
                    self.kept.push_back(line);
                    if self.kept.len() > KEPT_LINES {
                        self.kept.pop_front();
                    }
                }
            }
        }
    }

    fn said(&self) -> String {
        let mut said: Vec<_> = self.kept.iter().cloned().collect();
        said.extend(Some(String::from_utf8_lossy(&self.unfinished).trim().to_owned()).filter(|rest| !rest.is_empty()));
        said.join("; ")
    }
}

/// From `22344/30000 kB (74%), 0/1 tablespace (…file)`.
fn parse_progress(line: &str) -> Option<Progress> {
    let (amount, rest) = line.split_once(" kB (")?;
    let (done, total) = amount.split_once('/')?;
    rest.contains("tablespace").then_some(())?;
    Some(Progress { done_kib: done.trim().parse().ok()?, total_kib: total.trim().parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> ConnInfo {
        ConnInfo {
            host: "orders-1.orders-pods.shop.svc".into(),
            address: "127.0.0.1".parse().unwrap(),
            port: 5432,
            user: "bellwether_replication".into(),
            application_name: "orders-2".into(),
            tls: crate::conninfo::ClientTls::in_dir(Path::new("/tls")),
        }
    }

    #[test]
    fn progress_reads_as_pg_basebackup_writes_it() {
        let mut seen = vec![];
        let mut lines = Lines::default();
        let said = "pg_basebackup: initiating base backup\n     0/30000 kB (0%), 0/1 tablespace (...base/1/2)\r\
                    22500/30000 kB (75%), 0/1 tablespace\n22500/30000 kB (75%), 0/1 tablespace\n\
                    30001/30001 kB (100%), 1/1 tablespace\npg_basebackup: error: out of luck";
        for byte in said.as_bytes() {
            lines.push(&[*byte], &mut |progress: Progress| seen.push(progress.percent()));
        }
        assert_eq!(seen, [0, 75, 100]);
        assert_eq!(lines.said(), "pg_basebackup: initiating base backup; pg_basebackup: error: out of luck");
    }

    #[test]
    fn a_share_of_nothing_is_all() {
        assert_eq!(Progress { done_kib: 0, total_kib: 0 }.percent(), 100);
        assert_eq!(Progress { done_kib: u64::MAX, total_kib: 1 }.percent(), 100);
    }

    #[tokio::test]
    async fn nothing_is_cloned_over_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("precious"), "").unwrap();
        let (source, slot) = (source(), SlotName::of_instance("orders-2").unwrap());
        let backup = BaseBackup { source: &source, slot: &slot, data_dir: dir.path(), wal_dir: None };
        let error = backup.run_command(Command::new("/bin/true"), |_| {}).await.unwrap_err();
        assert!(matches!(error, BaseBackupError::NotEmpty { .. }), "{error}");
    }
}
