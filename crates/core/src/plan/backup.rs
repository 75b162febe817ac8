//! Decides which backup is taken now and by whom, and what is said of each.
//!
//! From: the `Backup`s that name the cluster, what the agents were told ([`BackupOrder`]), and what the instance that was told reports. One at a time,
//! the oldest that is not over; a failed attempt is made again by another instance if there is one, at most [`ATTEMPTS`] times. A report counts only
//! if it is of this backup and this attempt. The order stands until it is written down that the backup is over: an agent forgets what it is no longer
//! told of, and a crash in between must not make the same backup twice. Never: two at once; one that failed and holds up the next; anything about
//! backups that was not seen; or a second word where nothing changed.

use bellwether_api::v1::{BackupPhase, BackupStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::action::{Action, Effect, Target};
use super::certificates::whole_seconds;
use super::instances::ours;
use super::taker::{Begun, Ground, NOBODY};
use super::verify;
use crate::build::Parent;
use crate::contract::{BackupOrder, BackupReport, BackupState};
use crate::fact::Fact;
use crate::observed::{Backup, Observed};
use crate::words;

/// So many times a backup is begun. What fails three times, on two instances where there are two, fails for a reason that a fourth time meets too.
pub const ATTEMPTS: i32 = 3;

/// Why a status is written: its instance began.
pub(super) const BEGUN: &str = "its instance began";
const GOES_ON: &str = "it goes on";
const WAITS: &str = "what it waits for";
const OVER: &str = "it is over";
const VERIFICATION_BEGUN: &str = "its verification begins";
/// Why a status is written: nobody verifies it any more.
pub(super) const PUT_BACK: &str = "it is not verified";
/// Of backups that nobody can take any more.
const DELETED: &str = "the cluster was deleted";

/// What to do about the backups of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Backups {
    /// What agents are told to take.
    pub order: Option<BackupOrder>,
    /// What is to be said, of those of which something else is said now.
    pub actions: Vec<Action>,
}

impl Backups {
    /// What is said of a backup once this is carried out.
    pub fn status<'a>(&'a self, backup: &'a Backup) -> Option<&'a BackupStatus> {
        let now = self.actions.iter().find_map(|action| match &action.effect {
            Effect::BackupStatus { target, status } if target.uid == backup.uid => Some(&**status),
            _ => None,
        });
        now.or(backup.status.known())
    }
}

/// The cluster's backups. Without a ground (the cluster can't be acted on) nothing new is begun, and what was begun goes on.
pub fn backups(observed: &Observed, parent: &Parent<'_>, ground: Option<Ground<'_>>, now: Timestamp) -> Backups {
    let told = observed.config.known().and_then(|config| config.archive.as_ref()?.order.clone());
    if !observed.backups.complete || !observed.pods.complete || observed.config.is_unknown() {
        return Backups { order: told, actions: vec![] };
    }
    let mut result = Backups::default();
    let mut first = None;
    for backup in open(observed) {
        let desk = Desk { observed, parent, ground, now, backup, told: told.as_ref() };
        let status = match first {
            _ if is_of_an_earlier_life(backup, parent) => desk.failed(DELETED.to_owned()),
            _ if parent.cluster.spec.backup.store.is_none() => desk.waits(no_store(parent)),
            Some(first) => desk.waits(format!("waiting for backup {first}, which is taken first")),
            None => {
                first = Some(&backup.name);
                let (order, status) = desk.take();
                result.order = order;
                status
            }
        };
        result.actions.extend(say(backup, status));
    }
    result
}

/// The cluster is being deleted: nobody takes its backups any more.
pub fn deleting(observed: &Observed, now: Timestamp) -> Vec<Action> {
    let open = open(observed).into_iter().filter_map(|backup| say(backup, over(backup, DELETED.to_owned(), now)));
    open.chain(verify::broken_off(observed)).collect()
}

/// There is no such cluster. Of one that was looked at before, there was.
pub fn without_cluster(observed: &Observed, now: Timestamp) -> Vec<Action> {
    let why = |backup: &Backup| match backup.phase() {
        Some(_) => DELETED.to_owned(),
        None => {
            let cluster = observed.names.cluster();
            format!(
                "spec.cluster: there is no PostgresCluster {cluster:?} in this namespace; create another Backup once there is"
            )
        }
    };
    let open = open(observed).into_iter().filter_map(|backup| say(backup, over(backup, why(backup), now)));
    open.chain(verify::broken_off(observed)).collect()
}

/// Those that are not over, the oldest first.
fn open(observed: &Observed) -> Vec<&Backup> {
    let mut open: Vec<_> = observed.backups.items.values().filter(|backup| backup.is_open()).collect();
    open.sort_by_key(|backup| (backup.created, &backup.name));
    open
}

/// It was created for an earlier cluster of this name, which looked at it. One that nobody had looked at waited for this one.
fn is_of_an_earlier_life(backup: &Backup, parent: &Parent<'_>) -> bool {
    is_older_than(backup, parent) && backup.phase().is_some()
}

/// Whether it was there before the cluster.
pub(super) fn is_older_than(backup: &Backup, parent: &Parent<'_>) -> bool {
    let born = parent.cluster.metadata.creation_timestamp.as_ref().map(|at| at.0);
    born.is_some() && backup.created.is_some() && backup.created < born
}

fn no_store(parent: &Parent<'_>) -> String {
    format!(
        "spec.backup.store of PostgresCluster {:?} names no object store to put it in: write one, such as {{url: s3://bucket/path, credentials: \
         {{name: a-secret}}}}",
        parent.names.cluster()
    )
}

/// One backup, and what is known of it.
struct Desk<'a> {
    observed: &'a Observed,
    parent: &'a Parent<'a>,
    ground: Option<Ground<'a>>,
    now: Timestamp,
    backup: &'a Backup,
    /// What the agents were told of, be it this one or another.
    told: Option<&'a BackupOrder>,
}

impl Desk<'_> {
    /// Goes on with it, or begins.
    fn take(&self) -> (Option<BackupOrder>, BackupStatus) {
        let before = before(self.backup);
        let Some(order) = self.order(&before) else { return self.begin(before.attempts + 1, None) };
        let report = self.report(&order);
        let heard = report.is_some() || before.attempts >= order.attempt;
        let begun = if heard { Begun::Yes } else { Begun::NotKnown };
        let why = match report {
            Some(report) if report.state == BackupState::Completed => {
                let status = self.completed(&order, report);
                return (Some(order), status);
            }
            Some(report) if report.state == BackupState::Failed => {
                Some(report.message.clone().unwrap_or_else(|| "it failed, and its agent did not say why".to_owned()))
            }
            _ => self.ground.and_then(|ground| ground.lost(&order, begun)),
        };
        match why {
            Some(why) if heard && order.attempt >= ATTEMPTS => {
                let status = self.given_up(&order, report, &why);
                (Some(order), status)
            }
            Some(why) => self.begin(order.attempt + i32::from(heard), Some((&order, &why))),
            None => {
                let status = report.map_or_else(|| self.told(&order), |report| self.runs(&order, report));
                (Some(order), status)
            }
        }
    }

    /// What its instance was told, or must have been when somebody removed the configuration.
    fn order(&self, before: &BackupStatus) -> Option<BackupOrder> {
        if let Some(told) = self.told.filter(|told| told.uid == self.backup.uid) {
            return Some(told.clone());
        }
        let instance = before.instance.clone().filter(|_| before.phase == Some(BackupPhase::Running))?;
        Some(self.order_of(before.attempts, &instance))
    }

    fn order_of(&self, attempt: i32, instance: &str) -> BackupOrder {
        let (backup, uid) = (self.backup.name.clone(), self.backup.uid.clone());
        BackupOrder { backup, uid, attempt, instance: instance.to_owned() }
    }

    /// What the instance that was told says of this attempt.
    fn report(&self, order: &BackupOrder) -> Option<&BackupReport> {
        let pod = self.observed.pods.items.get(&order.instance).filter(|pod| ours(pod, self.parent))?;
        let report = pod.report.known()?.backup.as_ref()?;
        (report.uid == order.uid && report.attempt == order.attempt).then_some(report)
    }

    /// Tells an instance, another than the one that failed if there is one. What was never begun keeps its number.
    fn begin(&self, attempt: i32, lost: Option<(&BackupOrder, &str)>) -> (Option<BackupOrder>, BackupStatus) {
        let before = before(self.backup);
        let Some(ground) = self.ground else {
            // The configuration isn't written now, so the agents go on with what they were told.
            let message = format!(
                "waiting for PostgresCluster {:?}, which can't be acted on; its conditions say why",
                self.parent.names.cluster()
            );
            return (lost.map(|(order, _)| order.clone()), self.waits(message));
        };
        let failed = lost.map(|(order, why)| match attempt > order.attempt {
            true => format!("attempt {} on {}: {why}; ", order.attempt, order.instance),
            false => format!("not begun on {}: {why}; ", order.instance),
        });
        let failed_on = lost.map(|(order, _)| order.instance.as_str());
        let attempts = attempt - 1;
        let Some(instance) = ground.choose(failed_on) else {
            let said = before.message.as_ref().is_some_and(|message| message.ends_with(NOBODY));
            let message = match said && lost.is_none() {
                true => before.message.clone(),
                false => Some(format!("{}{NOBODY}", failed.unwrap_or_default())),
            };
            return (
                None,
                BackupStatus { phase: Some(BackupPhase::Pending), message, attempts, ..BackupStatus::default() },
            );
        };
        let status = BackupStatus {
            phase: Some(BackupPhase::Pending),
            message: Some(format!("{}{instance} is to take it", failed.unwrap_or_default())),
            instance: Some(instance.to_owned()),
            attempts,
            ..BackupStatus::default()
        };
        (Some(self.order_of(attempt, instance)), status)
    }

    /// Its instance was told and has not said anything yet, or says nothing any more.
    fn told(&self, order: &BackupOrder) -> BackupStatus {
        let before = before(self.backup);
        let of_this = before.instance.as_ref() == Some(&order.instance);
        match before.phase {
            Some(BackupPhase::Pending) if of_this => before,
            Some(BackupPhase::Running) if of_this && before.attempts == order.attempt => before,
            _ => BackupStatus {
                phase: Some(BackupPhase::Pending),
                message: Some(format!("{} is to take it", order.instance)),
                instance: Some(order.instance.clone()),
                attempts: order.attempt - 1,
                ..BackupStatus::default()
            },
        }
    }

    fn runs(&self, order: &BackupOrder, report: &BackupReport) -> BackupStatus {
        let before = before(self.backup);
        let known = before.started_at.filter(|_| before.attempts == order.attempt).map(|at| at.0);
        let started = report.started.or(known).unwrap_or(self.now);
        BackupStatus {
            phase: Some(BackupPhase::Running),
            message: report.message.clone(),
            instance: Some(order.instance.clone()),
            attempts: order.attempt,
            id: report.id.clone(),
            archive: report.archive.clone(),
            started_at: Some(Time(whole_seconds(started))),
            ..BackupStatus::default()
        }
    }

    fn completed(&self, order: &BackupOrder, report: &BackupReport) -> BackupStatus {
        let (running, ended) = (self.runs(order, report), whole_seconds(report.ended.unwrap_or(self.now)));
        let count = |bytes: Option<u64>| bytes.and_then(|bytes| i64::try_from(bytes).ok());
        BackupStatus {
            phase: Some(BackupPhase::Completed),
            message: None,
            completed_at: Some(Time(ended)),
            duration: running.started_at.as_ref().map(|began| words::duration(ended.duration_since(began.0))),
            size: report.bytes.map(words::size),
            size_bytes: count(report.bytes),
            stored: report.stored.map(words::size),
            stored_bytes: count(report.stored),
            timeline: report.timeline.map(|timeline| i64::from(timeline.0)),
            start_lsn: report.start.map(|lsn| lsn.to_string()),
            stop_lsn: report.stop.map(|lsn| lsn.to_string()),
            ..running
        }
    }

    /// The last attempt failed.
    fn given_up(&self, order: &BackupOrder, report: Option<&BackupReport>, why: &str) -> BackupStatus {
        let last = match report {
            Some(report) => self.runs(order, report),
            None => before(self.backup),
        };
        let ended = report.and_then(|report| report.ended).unwrap_or(self.now);
        BackupStatus {
            phase: Some(BackupPhase::Failed),
            message: Some(format!("attempt {} of {ATTEMPTS}, on {}: {why}", order.attempt, order.instance)),
            completed_at: Some(Time(whole_seconds(ended))),
            ..last
        }
    }

    fn failed(&self, why: String) -> BackupStatus {
        over(self.backup, why, self.now)
    }

    /// It waits for its turn, or for something that somebody has to do.
    fn waits(&self, message: String) -> BackupStatus {
        let attempts = before(self.backup).attempts;
        let (phase, message) = (Some(BackupPhase::Pending), Some(message));
        BackupStatus { phase, message, attempts, ..BackupStatus::default() }
    }
}

/// What was said of it.
fn before(backup: &Backup) -> BackupStatus {
    backup.status.known().cloned().unwrap_or_default()
}

/// It failed, before its end or before it was begun at all.
fn over(backup: &Backup, why: String, now: Timestamp) -> BackupStatus {
    let completed_at = Some(Time(whole_seconds(now)));
    BackupStatus { phase: Some(BackupPhase::Failed), message: Some(why), completed_at, ..before(backup) }
}

/// Says it, unless that is what was said.
pub(super) fn say(backup: &Backup, status: BackupStatus) -> Option<Action> {
    let before = match &backup.status {
        Fact::Known(before) => Some(before),
        Fact::Absent => None,
        // It may be a word of a later release.
        Fact::Unknown => return None,
    };
    if before == Some(&status) {
        return None;
    }
    let ran = before.is_some_and(|before| before.phase == status.phase && before.attempts == status.attempts);
    let why = match status.phase {
        Some(BackupPhase::Running) if !ran => BEGUN,
        Some(BackupPhase::Running) => GOES_ON,
        Some(BackupPhase::Verifying) if before.is_none_or(|before| before.phase != status.phase) => VERIFICATION_BEGUN,
        Some(BackupPhase::Verifying) => GOES_ON,
        Some(BackupPhase::Completed) if before.is_some_and(|before| before.phase == Some(BackupPhase::Verifying)) => {
            PUT_BACK
        }
        Some(BackupPhase::Completed | BackupPhase::Verified | BackupPhase::Failed) => OVER,
        Some(BackupPhase::Pending) | None => WAITS,
    };
    let target = Target {
        name: backup.name.clone(),
        uid: backup.uid.clone(),
        resource_version: backup.resource_version.clone(),
    };
    Some(Action { effect: Effect::BackupStatus { target, status: Box::new(status) }, why: why.to_owned() })
}
