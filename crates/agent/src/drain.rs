//! Drains a primary before another leads: everybody who could write is gone, nobody is let in, and the standbys have all that was written.
//!
//! ```text
//! postmaster stopped (it lets nobody in) ─► whoever may write is told to go ─► a last commit makes everything durable
//!   ─► every standby that streams has it ─► all is killed, and another leads
//! ```
//!
//! A shutdown in order is what this replaces in a switchover: it writes a checkpoint while nobody can write, and those who connect again
//! meanwhile are let in and sent away one by one, each by a process of its own. What it is good for, that nothing is lost, is certain here too.
//! Never: a log that is said to end before something that was acknowledged; a postmaster that stays stopped when this fails.

use std::time::Duration;

use bellwether_core::wal::{Lsn, Timeline};
use bellwether_postgres::sql::{Session, SqlError};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};

use crate::process::tree;

/// How long those who may write have to go. Whoever does not hear a signal for that long is left to a shutdown in order.
const LEAVE: Duration = Duration::from_millis(500);
/// How long standbys have to confirm what was written last. One that is further behind is not who takes over.
const CONFIRM: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Why a primary can't be drained.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DrainError {
    /// It does not answer.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// A signal can't be sent.
    #[error("the postmaster can't be stopped: {0}")]
    Signal(#[from] nix::errno::Errno),
    /// Somebody stays.
    #[error("{0} processes that may write are still there after {LEAVE:?}")]
    Stay(usize),
    /// There is nobody who could have everything.
    #[error("no standby streams")]
    Nobody,
}

/// Where the log ends, of a primary on which nobody can write any more. It is to be killed then.
pub(crate) async fn drain(session: &Session, postmaster: i32) -> Result<(Timeline, Lsn), DrainError> {
    let stopped = Stopped::stop(Pid::from_raw(postmaster))?;
    let until = Instant::now() + LEAVE;
    loop {
        let silent = session.silent_processes().await?;
        let children = tree::descendants(postmaster, &tree::all()).into_iter().filter(|process| !process.is_zombie());
        let writers: Vec<i32> = children.map(|process| process.pid).filter(|pid| !silent.contains(pid)).collect();
        if writers.is_empty() {
            break;
        }
        if Instant::now() > until {
            return Err(DrainError::Stay(writers.len()));
        }
        for pid in writers {
            // It may have gone by itself.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        sleep(LOOK_AGAIN).await;
    }
    let end = session.last_word().await?;
    confirmed(session, end.1).await?;
    stopped.stays();
    Ok(end)
}

/// Until every standby that streams has the log up to here, or waiting for the last of them would take too long.
async fn confirmed(session: &Session, end: Lsn) -> Result<(), DrainError> {
    let until = Instant::now() + CONFIRM;
    loop {
        let mut standbys = session.standbys().await?;
        standbys.retain(|standby| standby.streaming);
        let having = standbys.iter().filter(|standby| standby.flushed >= Some(end)).count();
        if having == 0 && (standbys.is_empty() || Instant::now() > until) {
            return Err(DrainError::Nobody);
        }
        if having == standbys.len() || Instant::now() > until {
            return Ok(());
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// A postmaster that runs again when this is dropped, unless it is to be killed.
struct Stopped(Option<Pid>);

impl Stopped {
    fn stop(postmaster: Pid) -> nix::Result<Self> {
        kill(postmaster, Signal::SIGSTOP)?;
        Ok(Self(Some(postmaster)))
    }
    fn stays(mut self) {
        self.0 = None;
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if let Some(postmaster) = self.0 {
            let _ = kill(postmaster, Signal::SIGCONT);
        }
    }
}
