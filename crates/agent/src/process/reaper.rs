//! Reaps orphans that come back to the agent (PID 1, or child subreaper), and nobody else's children.
//!
//! Never: takes the exit code of a child that somebody in this process waits for. `waitpid(-1)` would. So it looks first,
//! without reaping (`WNOWAIT`), and leaves known children to their owner.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};

use super::tree;

/// The children that somebody in this process waits for.
#[derive(Clone, Debug, Default)]
pub struct Children {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    known: BTreeSet<i32>,
    pauses: usize,
}

/// A child is left to its owner for as long as this lives: until its exit code was taken.
#[derive(Debug)]
pub struct Known {
    pid: i32,
    children: Children,
}

/// Nothing is reaped for as long as this lives.
#[derive(Debug)]
pub struct Pause {
    children: Children,
}

impl Children {
    /// Reaps nothing until the answer is dropped: for calls that start programs and wait for them by themselves, whose
    /// process ids we don't learn. PostgreSQL isn't running meanwhile, so nobody is orphaned either.
    pub fn pause(&self) -> Pause {
        self.lock().pauses += 1;
        Pause { children: self.clone() }
    }

    /// Leaves the child to whoever holds the answer. Call it in the same breath as the spawn: between the two, nothing may be
    /// awaited, or the reaper could come first.
    pub fn own(&self, pid: i32) -> Known {
        self.lock().known.insert(pid);
        Known { pid, children: self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are waited for.
    pub fn known(&self) -> BTreeSet<i32> {
        self.lock().known.clone()
    }

    /// Reaps every orphan that is dead by now. Answers how many.
    pub fn reap_orphans(&self) -> usize {
        let mut reaped = 0;
        if self.lock().pauses > 0 {
            return reaped;
        }
        loop {
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
            match waitid(Id::All, flags) {
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return reaped,
                Err(Errno::EINTR) => {}
                Err(errno) => {
                    tracing::error!(error = %errno, "can't look for dead children");
                    return reaped;
                }
                Ok(status) => match status.pid() {
                    Some(pid) if !self.lock().known.contains(&pid.as_raw()) => reaped += reap(pid),
                    // A known child that its owner has not waited for yet is always shown first; orphans may hide
                    // behind it.
                    _ => return reaped + self.reap_hidden(),
                },
            }
        }
    }

    fn reap_hidden(&self) -> usize {
        let me = std::process::id() as i32;
        let orphan = |process: &tree::Process| {
            process.parent == me && process.is_zombie() && !self.lock().known.contains(&process.pid)
        };
        tree::all().into_iter().filter(orphan).map(|process| reap(Pid::from_raw(process.pid))).sum()
    }

    /// Kills whatever descends from this process, known children and theirs apart, and reaps until nothing is left.
    pub async fn kill_orphans(&self) {
        let me = std::process::id() as i32;
        loop {
            let alive = tree::kill_descendants(me, &self.known());
            self.reap_orphans();
            if alive == 0 {
                return;
            }
            // A killed process needs the kernel's time, not ours; there is no event for a grandchild's death.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        self.children.lock().known.remove(&self.pid);
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        self.children.lock().pauses -= 1;
        self.children.reap_orphans();
    }
}

fn reap(pid: Pid) -> usize {
    usize::from(matches!(waitpid(pid, Some(WaitPidFlag::WNOHANG)), Ok(status) if status != WaitStatus::StillAlive))
}

/// Reaps orphans as they die, for ever.
pub async fn reap_for_ever(children: Children) -> std::io::Result<()> {
    let mut deaths = signal(SignalKind::child())?;
    loop {
        children.reap_orphans();
        deaths.recv().await;
    }
}
