//! Cuts a standby's WAL receiver, and says where its log ends then.
//!
//! Must never happen: that more WAL arrives, and is acknowledged, after the end was read. What PostgreSQL does, and why each step is
//! there:
//!
//! - The startup process ends the receiver when it finds `primary_conninfo` changed, but only when it next waits for WAL. While it
//!   replays, or waits for a query that is in its way, the receiver goes on receiving and acknowledging. So the receiver is
//!   ended here, by the same signal.
//! - A reload is asynchronous. A session that began after it and sees no `primary_conninfo` proves that the postmaster has taken
//!   it over, and has told the startup process, before that session was made.
//! - `pg_stat_wal_receiver` does not show a receiver that is still connecting; `pg_stat_activity` shows it from before it connects.
//! - The startup process looks at its settings before it asks for another receiver. One that it had asked for at that very moment
//!   may still come, with the old settings; it can't connect, because the key that these name is gone ([`Cut::key`]).

use std::collections::BTreeSet;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bellwether_core::wal::{Lsn, Timeline};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};

use super::facts::Answer;
use super::{Session, SqlError};
use crate::wal;

/// How often the server is asked.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// How to cut a receiver. The caller has written a configuration without `primary_conninfo` before.
#[derive(Clone, Copy, Debug)]
pub struct Cut<'a> {
    /// The private key that the old `primary_conninfo` names; it is removed. Whoever lets the standby follow again puts it back.
    pub key: Option<&'a Path>,
    /// How long it may take.
    pub patience: Duration,
}

/// Why the end of a standby's log can't be said.
#[derive(Debug, thiserror::Error)]
pub enum CutError {
    /// The server did not answer, or not as it should.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// A file.
    #[error("{}: {cause}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What came back.
        cause: std::io::Error,
    },
    /// The server is a primary.
    #[error("the server is no standby")]
    NotStandby,
    /// It took too long.
    #[error("not within {after:?}: {what}")]
    TooLate {
        /// What should have happened.
        what: &'static str,
        /// How long we waited.
        after: Duration,
    },
    /// There is no segment with the end of the log in it.
    #[error("no segment in pg_wal holds what is before {end}")]
    NoSegment {
        /// Where the log ends.
        end: Lsn,
    },
}

impl Cut<'_> {
    /// Cuts the receiver. The answer is a session that was made after the new configuration was in force; `open` makes one. `present` is
    /// any that there is already, to ask for the reload: a new one takes time that clients wait for.
    pub async fn run<F>(self, present: &Session, open: impl Fn() -> F) -> Result<Session, CutError>
    where
        F: Future<Output = Result<Session, SqlError>>,
    {
        let deadline = Instant::now() + self.patience;
        let too_late = |what| CutError::TooLate { what, after: self.patience };
        if let Some(key) = self.key {
            remove(key)?;
        }
        if !present.is_usable() || present.reload().await.is_err() {
            open().await?.reload().await?;
        }
        let session = loop {
            let session = open().await?;
            let (recovery, upstream) = session.upstream().await?;
            if !recovery {
                return Err(CutError::NotStandby);
            }
            if upstream.is_empty() {
                break session;
            }
            if Instant::now() > deadline {
                return Err(too_late("the configuration without a primary is in force"));
            }
            sleep(LOOK_AGAIN).await;
        };
        let mut told = BTreeSet::new();
        loop {
            let receivers = session.receivers().await?;
            if receivers.is_empty() {
                return Ok(session);
            }
            for pid in receivers.into_iter().filter(|pid| told.insert(*pid)) {
                // It may have ended by itself.
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
            if Instant::now() > deadline {
                return Err(too_late("the WAL receiver is gone"));
            }
            sleep(LOOK_AGAIN).await;
        }
    }
}

fn remove(path: &Path) -> Result<(), CutError> {
    match std::fs::remove_file(path) {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
            Err(CutError::Io { path: path.to_owned(), cause })
        }
        _ => Ok(()),
    }
}

impl Session {
    /// Where the log of a standby ends whose receiver was cut: the newest timeline that is there, and how far it reaches.
    ///
    /// A standby that was started and has not come to the end of the WAL that it has does not know where that is; then this waits
    /// until `patience` is over. Reading less would deny what was acknowledged before the start.
    pub async fn end_of_log(&self, data_dir: &Path, patience: Duration) -> Result<(Timeline, Lsn), CutError> {
        let deadline = Instant::now() + patience;
        while !self.knows_its_end().await? {
            if Instant::now() > deadline {
                return Err(CutError::TooLate { what: "it has replayed what it has", after: patience });
            }
            sleep(LOOK_AGAIN).await;
        }
        let (recovery, end, segment_size) = self.end().await?;
        if !recovery {
            return Err(CutError::NotStandby);
        }
        let newest = wal::newest_timeline(data_dir, end, segment_size)
            .map_err(|cause| CutError::Io { path: data_dir.join("pg_wal"), cause })?;
        newest.map(|timeline| (timeline, end)).ok_or(CutError::NoSegment { end })
    }

    async fn upstream(&self) -> Result<(bool, String), SqlError> {
        const WHAT: &str = "ask whom it follows";
        const SQL: &str = "select pg_is_in_recovery() as recovery, current_setting('primary_conninfo') as upstream";
        let row = self.within(WHAT, self.client.query_one(SQL, &[])).await?;
        let row = Answer { what: WHAT, row: &row };
        Ok((row.get("recovery")?, row.get("upstream")?))
    }

    async fn receivers(&self) -> Result<Vec<i32>, SqlError> {
        const WHAT: &str = "ask for the WAL receiver";
        const SQL: &str = "select pid from pg_stat_activity where backend_type = 'walreceiver'
                           union select pid from pg_stat_wal_receiver where pid is not null";
        let rows = self.within(WHAT, self.client.query(SQL, &[])).await?;
        rows.iter().map(|row| Answer { what: WHAT, row }.get("pid")).collect()
    }

    /// A receiver is asked for only when everything that is there is replayed, so a position of a receiver says that it was so once;
    /// and the startup process waits for more only when it is so now.
    async fn knows_its_end(&self) -> Result<bool, SqlError> {
        const WHAT: &str = "ask whether it has replayed what it has";
        const SQL: &str = "select not pg_is_in_recovery() or pg_last_wal_receive_lsn() is not null or exists (
                select from pg_stat_activity where backend_type = 'startup'
                   and wait_event in ('RecoveryRetrieveRetryInterval', 'RecoveryWalStream')) as known";
        let row = self.within(WHAT, self.client.query_one(SQL, &[])).await?;
        Answer { what: WHAT, row: &row }.get("known")
    }

    async fn end(&self) -> Result<(bool, Lsn, u64), SqlError> {
        const WHAT: &str = "ask where the log ends";
        const SQL: &str = "select pg_is_in_recovery() as recovery,
                   greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())::text as end,
                   pg_size_bytes(current_setting('wal_segment_size')) as segment_size";
        let row = self.within(WHAT, self.client.query_one(SQL, &[])).await?;
        let row = Answer { what: WHAT, row: &row };
        let segment_size: i64 = row.get("segment_size")?;
        let end = row.parsed("end")?.ok_or_else(|| row.odd("end"))?;
        let segment_size = u64::try_from(segment_size).ok().filter(|size| size.is_power_of_two());
        Ok((row.get("recovery")?, end, segment_size.ok_or_else(|| row.odd("segment_size"))?))
    }
}
