//! The program that unpacks a backup onto an instance's volume: a process of its own, which needs memory for as long as it runs and gives all of it back.
//!
//! From a file that says how to get into the archive ([`Access`]), the backup's name, and directories. It says how far it is, and at its end why it failed, in lines of JSON on standard error. Never:
//! a secret in an argument; anything outside of the directories that it is given.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bellwether_backup::BackupId;
use bellwether_backup::base::seal::{self, CommitError};
use bellwether_backup::restore::{self, Configuration, Options, Progress, RestoreError};
use bellwether_backup::store::StoreError;
use bellwether_runtime::client;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::archive::restore_wal::access::{Access, AccessError};

/// The hidden role's name: `bellwether unpack-backup <access> <backup> <data> [<wal>]`.
pub const ROLE: &str = "unpack-backup";
/// How often it is said how far it is, if it is any further.
const SAY: Duration = Duration::from_secs(1);
/// When memory is short, this goes first.
const FIRST_TO_GO: &[u8] = b"900";

/// What it says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// So much of it is on the volume.
    Unpacked {
        /// In per cent.
        percent: u64,
    },
    /// It failed.
    Failed {
        /// Whether it may succeed if it is begun again.
        again: bool,
        /// Why.
        why: String,
    },
}

/// The arguments by which it unpacks a backup there.
pub(crate) fn arguments(access: &Path, backup: &str, data: &Path, wal: Option<&Path>) -> Vec<OsString> {
    let mut arguments = vec![ROLE.into(), access.into(), backup.into(), data.into()];
    arguments.extend(wal.map(Into::into));
    arguments
}

/// Unpacks.
pub fn main(arguments: &[String]) -> ExitCode {
    // Where it can't be had, the kernel chooses.
    let _ = std::fs::write("/proc/self/oom_score_adj", FIRST_TO_GO);
    client::install_crypto();
    let unpacked = match arguments {
        [access, backup, data] => run(access, backup, data, None),
        [access, backup, data, wal] => run(access, backup, data, Some(wal.into())),
        _ => Err(NotUnpacked::Called),
    };
    match unpacked {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&Said::Failed { again: error.may_succeed_again(), why: error.to_string() });
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum NotUnpacked {
    #[error("a file that says how to get into the archive, a backup's name and a data directory are needed")]
    Called,
    #[error("{0:?} is no name of a backup")]
    Id(String),
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error("asynchronous runtime: {0}")]
    Runtime(std::io::Error),
}

impl NotUnpacked {
    /// Not what is missing or damaged in the store, and not what is wrong with the call.
    fn may_succeed_again(&self) -> bool {
        match self {
            Self::Called | Self::Id(_) => false,
            Self::Access(_) | Self::Runtime(_) => true,
            Self::Commit(CommitError::Store(error)) | Self::Restore(RestoreError::Store(error)) => {
                !matches!(error, StoreError::Missing { .. } | StoreError::Conflict { .. })
            }
            Self::Commit(_) => false,
            Self::Restore(error) => matches!(error, RestoreError::Io { .. } | RestoreError::Aborted { .. }),
        }
    }
}

fn say(said: &Said) {
    if let Ok(line) = serde_json::to_string(said) {
        let _nobody_listens = writeln!(std::io::stderr(), "{line}");
    }
}

fn run(access: &str, backup: &str, data: &str, wal: Option<PathBuf>) -> Result<(), NotUnpacked> {
    let id: BackupId = backup.parse().map_err(|_| NotUnpacked::Id(backup.to_owned()))?;
    let archive = Access::read(Path::new(access))?.open()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(NotUnpacked::Runtime)?;
    let unpacked = runtime.block_on(async {
        let commit = seal::read(&archive, &id).await?;
        let options = Options { wal_dir: wal, configuration: Configuration::Aside, ..Options::default() };
        let progress = watch::Sender::new(Progress::default());
        let unpacking = restore::unpack(&commit, &archive, Path::new(data), &options, &progress);
        tokio::select! {
            unpacked = unpacking => Ok(unpacked?),
            never = tell(progress.subscribe()) => match never {},
        }
    });
    runtime.shutdown_background();
    unpacked
}

async fn tell(progress: watch::Receiver<Progress>) -> std::convert::Infallible {
    let mut said = None;
    loop {
        tokio::time::sleep(SAY).await;
        let Progress { done, total } = *progress.borrow();
        // One that gets no further is not heard: that is how it is noticed.
        if said != Some(done) {
            said = Some(done);
            say(&Said::Unpacked { percent: done.saturating_mul(100).checked_div(total).unwrap_or(0) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_from_the_store_is_not_waited_for_and_a_store_that_is_away_is() {
        let (store, key) = ("s3://b".to_owned(), "base/x/commit.json".to_owned());
        let missing = StoreError::Missing { store: store.clone(), key: key.clone() };
        assert!(!NotUnpacked::from(CommitError::from(missing)).may_succeed_again());
        let failed = StoreError::Failed { store, what: "get", key: key.clone(), message: "timed out".to_owned() };
        assert!(NotUnpacked::from(RestoreError::from(failed)).may_succeed_again());
        let damaged = RestoreError::Damaged { key, problem: "its SHA-256 is another".to_owned() };
        assert!(!NotUnpacked::from(damaged).may_succeed_again());
    }

    #[test]
    fn no_secret_is_an_argument() {
        let arguments = arguments(Path::new("/run/r.json"), "20261118T020000Z", Path::new("/d"), Some(Path::new("/w")));
        assert_eq!(arguments, [ROLE, "/run/r.json", "20261118T020000Z", "/d", "/w"]);
    }
}
