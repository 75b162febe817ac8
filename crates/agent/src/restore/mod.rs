//! Restores the database of a new cluster from an object store, where another would run `initdb`.
//!
//! ```text
//! look      what the archive has, whether the target can be reached, whether it fits      nothing is touched
//! unpack    the backup, into the scratch directory, by a program of its own ([`unpack`])  marked as unfinished
//! recover   PostgreSQL runs there apart from the network until it has promoted ([`recover`])
//! part      nothing of the original's is left that would act in its name ([`part`])
//! in place  one rename; from here on it is as after an `initdb`
//! ```
//!
//! Whatever ends before the last step leaves a scratch directory that is removed, and the work is begun again. What can't be had now is waited for, and that is said; what ended with an error is not
//! begun again before the agent is: it would be the same error, and the whole of a backup each time.
//!
//! Never: anything touched for a target that is known to be out of reach; a database in place that did not reach its target; an empty one in place of a restored one.

mod archive;
mod part;
mod recover;
pub mod unpack;

use std::path::PathBuf;
use std::time::Duration;

use bellwether_api::v1::InstanceState;
use bellwether_backup::gaps::Window;
use bellwether_backup::record::Commit;
use bellwether_backup::restore::ready::{Door, Standing, make_ready};
use bellwether_backup::restore::recovery::{Along, Recovery, Target, Then};
use bellwether_core::contract::{POSTGRES_PORT, RecoveryOrder, RecoveryState};
use bellwether_core::fact::Fact;
use bellwether_core::instance::start::{Start, VolumeState, start};
use bellwether_core::words;
use tokio::time::Instant;

use crate::archive::restore_wal;
use crate::archive::restore_wal::access::Access;
use crate::backoff::Backoff;
use crate::election::Role;
use crate::election::driver::Fence;
use crate::instance::{Instance, LOOK_AGAIN_REFUSED, TICK, Turn};
use crate::kubernetes::lease;
use crate::tool::{Line, Tool};
use crate::trouble::Trouble;
use crate::volume::Work;
use unpack::Said;

/// How soon a store that does not answer is asked again, and what can't be reached is looked for: twice as long each time.
const AGAIN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
/// For how long nothing of a backup may come before its unpacking is begun again.
const SILENCE: Duration = Duration::from_secs(300);
/// How long PostgreSQL waits for a store before it stops, and is started again: that is when it is said.
const STORE_AWAY_SECONDS: u64 = 60;
/// The way into the store, in the directory of generated files, which is in memory. It is there while PostgreSQL recovers.
const ACCESS: &str = "restore.json";
/// A condition has room for so much.
const LONGEST: usize = 2000;

/// What is known of a restore between two attempts.
#[derive(Debug)]
pub struct Restoring {
    /// Why it is not tried again.
    failed: Option<String>,
    /// Not before this is it tried again.
    not_before: Instant,
    backoff: Backoff,
}

impl Default for Restoring {
    fn default() -> Self {
        Self { failed: None, not_before: Instant::now(), backoff: Backoff::new(AGAIN.0, AGAIN.1) }
    }
}

/// Why the database is not restored.
#[derive(Debug)]
pub(crate) enum Unrestored {
    /// What is there now says nothing: a store that does not answer, a Secret that is not there.
    Away(String),
    /// There is no such archive.
    NoSource(String),
    /// The target can't be reached. Nothing was touched.
    OutOfReach(String),
    /// It was tried, and it is no use to try again.
    Failed(String),
    /// Something else is wanted, or the volume is in trouble.
    Trouble(Trouble),
}

impl<T: Into<Trouble>> From<T> for Unrestored {
    fn from(trouble: T) -> Self {
        Self::Trouble(trouble.into())
    }
}

/// What is restored, once that was looked at.
pub(crate) struct Chosen {
    /// Where the archive is.
    pub access: Access,
    /// The backup.
    pub commit: Commit,
    /// How far its log goes.
    pub window: Window,
    /// How far to go.
    pub target: Target,
}

impl Instance {
    /// Restores the database. It is announced, and led, in the next turn.
    pub(crate) async fn restore(&mut self, order: &RecoveryOrder, state: &VolumeState) -> Result<Turn, Trouble> {
        if let Some(why) = self.restoring.failed.clone() {
            self.report_restore(InstanceState::Down, RecoveryState::Failed, &why);
            return Ok(Turn::Wait(LOOK_AGAIN_REFUSED));
        }
        let rest = self.restoring.not_before.saturating_duration_since(Instant::now());
        if !rest.is_zero() {
            return Ok(Turn::Wait(rest));
        }
        let ended = self.restored(order, state).await;
        // Of no use to anybody any more, whatever came of it.
        self.forget_access();
        match ended {
            Ok(()) => {
                self.restoring = Restoring::default();
                return Ok(Turn::Again);
            }
            Err(Unrestored::Trouble(trouble)) => return Err(trouble),
            Err(Unrestored::Away(why)) => {
                tracing::warn!(why, "the restore is begun again");
                self.report_restore(InstanceState::Bootstrapping, RecoveryState::Restoring, &format!("waiting: {why}"));
            }
            Err(Unrestored::NoSource(why)) => {
                self.report_restore(InstanceState::Down, RecoveryState::NoSource, &why);
            }
            Err(Unrestored::OutOfReach(why)) => {
                self.report_restore(InstanceState::Down, RecoveryState::OutOfReach, &why);
            }
            Err(Unrestored::Failed(why)) => {
                tracing::error!(why, "the database can't be restored");
                self.restoring.failed = Some(why.clone());
                self.report_restore(InstanceState::Down, RecoveryState::Failed, &why);
            }
        }
        let wait = self.restoring.backoff.next_wait();
        self.restoring.not_before = Instant::now() + wait;
        Ok(Turn::Wait(wait))
    }

    /// From the first look to the database in its place.
    async fn restored(&mut self, order: &RecoveryOrder, state: &VolumeState) -> Result<(), Unrestored> {
        let chosen = self.look_into_archive(order).await?;
        let commit = &chosen.commit;
        tracing::info!(backup = %commit.id, timeline = chosen.window.timeline.0, target = ?chosen.target, "restoring");
        self.volume.begin_restore(&order.incarnation, state)?;
        let scratch = self.volume.scratch();
        self.forget_access();
        let access = self.access_path();
        chosen.access.write(&access).map_err(|error| Unrestored::Failed(error.to_string()))?;
        self.unpack(&chosen, &access).await?;
        let standing = Standing {
            installation: &self.installation,
            port: POSTGRES_PORT,
            door: Door::Directory(self.places.socket.path().to_owned()),
            recovery: Recovery {
                restore_command: restore_wal::line(&self.places.program, &access),
                target: chosen.target.clone(),
                along: Along::Timeline(chosen.window.timeline),
                then: Then::Promote,
            },
            end_command: restore_wal::end_line(&access),
            run_as: None,
            outside: vec![],
        };
        {
            let _pause = self.children.pause();
            let ready = make_ready(commit, &scratch, &standing).await;
            ready.map_err(|error| Unrestored::Failed(error.to_string()))?;
        }
        let timeline = self.recover(&chosen, &scratch).await?;
        part::on_disk(&scratch, timeline)?;
        let _pause = self.children.pause();
        let system = self.volume.finish(Work::Restore, &self.installation, Some(commit.system_identifier)).await?;
        tracing::info!(%system, backup = %commit.id, timeline = timeline.0, "restored the database");
        Ok(())
    }

    /// Runs the program that unpacks.
    async fn unpack(&mut self, chosen: &Chosen, access: &std::path::Path) -> Result<(), Unrestored> {
        let id = chosen.commit.id.to_string();
        let what = format!("backup {id} ({})", words::size(chosen.commit.bytes));
        self.say_restoring(&format!("unpacking {what}"));
        let tool = Tool {
            name: unpack::ROLE,
            program: self.places.program.clone(),
            arguments: unpack::arguments(access, &id, &self.volume.scratch(), self.volume.wal().as_deref()),
            within: None,
        };
        let board = self.board.clone();
        let failed = std::sync::Arc::new(std::sync::Mutex::new(None));
        let heard = failed.clone();
        let understand = move |line: &str| match serde_json::from_str(line) {
            // In tens, because each change is a write to the API.
            Ok(Said::Unpacked { percent }) => {
                let message = format!("unpacking {what}: {} %", percent / 10 * 10);
                board.report(|report| report.message = Some(message));
                Line::Understood
            }
            Ok(Said::Failed { again, why }) => {
                if let Ok(mut failed) = heard.lock() {
                    *failed = Some((again, why));
                }
                Line::Understood
            }
            Err(_) => Line::Said,
        };
        let mut looked = Instant::now();
        let objection = move |this: &mut Self, silent: Duration| {
            if silent > SILENCE {
                return Some(Trouble::Tool { name: unpack::ROLE, said: "nothing came for too long".to_owned() });
            }
            (looked.elapsed() > TICK).then(|| looked = Instant::now())?;
            this.not_restored_any_more()
        };
        let run = self.run_tool(tool, understand, objection).await;
        let failed = failed.lock().ok().and_then(|mut failed| failed.take());
        match (run, failed) {
            (Ok(()), _) => Ok(()),
            (Err(Trouble::Tool { .. }), Some((false, why))) => Err(Unrestored::Failed(why)),
            (Err(Trouble::Tool { .. }), Some((true, why))) => Err(Unrestored::Away(why)),
            (Err(Trouble::Tool { said, .. }), None) => Err(Unrestored::Away(said)),
            (Err(trouble), _) => Err(trouble.into()),
        }
    }

    /// Why what is under way is not wanted any more, if it isn't: asked again and again, because a restore takes hours.
    fn not_restored_any_more(&mut self) -> Option<Trouble> {
        self.refresh();
        let lease = match &*self.lease.borrow() {
            Fact::Known(object) => lease::view(object).map_or(Fact::Unknown, Fact::Known),
            Fact::Absent => Fact::Absent,
            Fact::Unknown => Fact::Unknown,
        };
        // What could not be read ends nothing.
        let goes_on = lease.is_unknown() || {
            let decision =
                start(&VolumeState::UnfinishedRestore, &lease, &self.inputs.config, &self.environment.instance);
            matches!(decision, Start::Restore(_))
        };
        let stopped = matches!(self.wanted_meanwhile(), Some(Role::Stop(_))) || self.fence() == Fence::Up;
        (stopped || !goes_on).then_some(Trouble::NotWanted)
    }

    fn say_restoring(&self, message: &str) {
        self.report_restore(InstanceState::Bootstrapping, RecoveryState::Restoring, message);
    }

    fn report_restore(&self, state: InstanceState, recovery: RecoveryState, message: &str) {
        self.board.report(|report| {
            report.state = state;
            report.accepts_sql = false;
            report.recovery = Some(recovery);
            report.message = Some(one_line(message));
        });
    }

    fn access_path(&self) -> PathBuf {
        self.environment.run_dir.join(ACCESS)
    }

    fn forget_access(&self) {
        let path = self.access_path();
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %path.display(), "the way into the store can't be removed");
            }
            _ => {}
        }
    }
}

/// What a report and a condition have room for.
fn one_line(message: &str) -> String {
    let lines: Vec<_> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = lines.join("; ").replace(":; ", ": ").replace(";; ", "; ");
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_target_is_one_line_of_which_a_condition_has_room() {
        let said = one_line("it can't be reached\n  not from a: too late\nwhat can be reached:\n  from b");
        assert_eq!(said, "it can't be reached; not from a: too late; what can be reached: from b");
        assert_eq!(one_line(&"ä".repeat(3000)).chars().count(), LONGEST + 1);
    }
}
