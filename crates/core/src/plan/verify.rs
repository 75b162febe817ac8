//! Decides which backup is verified now, by which pod, and what is said of it.
//!
//! From: the backups that are complete, the policy, and the pods that verify, each of which says at its end what came of it. One at a time and the
//! newest first: what was found good later is worth more, and a backup that is older than one that was found good is verified only if somebody asked for
//! it. What could not be finished says nothing of the backup, and is begun again, at most [`ATTEMPTS`] times, longer after each. A pod goes once what it said
//! is written down. Never: a backup called good on any word but that of a pod that was made for this very attempt; one called bad because its store, node
//! or volume failed once; a pod that is left when nobody needs it.

use std::cmp::Reverse;

use bellwether_api::v1::{BackupPhase, BackupStatus, VerificationPhase, VerificationPolicy, VerificationStatus};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::action::{Action, Effect, Target};
use super::backup::{is_older_than, say};
use super::certificates::whole_seconds;
use crate::build::{Parent, verifier};
use crate::contract::{VerifyOutcome, VerifyResult};
use crate::fact::Fact;
use crate::observed::{Backup, Ended, Observed, PodPhase, Verifier};
use crate::words;

/// So many times a verification is begun that could not be finished.
pub const ATTEMPTS: i32 = 3;
/// How long after each: a store or a node that is away for a moment, and one that is away for longer.
const PAUSES: [SignedDuration; 2] = [SignedDuration::from_mins(1), SignedDuration::from_mins(15)];
/// How long a pod may wait for a node and a volume. By then they don't come by waiting, and the next attempt says so again.
const PLACED_WITHIN: SignedDuration = SignedDuration::from_hours(1);

/// What to do about verification.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verifying {
    /// What is to be said, and done.
    pub actions: Vec<Action>,
    /// When to look again.
    pub requeue: Option<SignedDuration>,
}

/// The verification of the cluster's backups. While the cluster can't be acted on, none is begun, and what runs goes on.
pub fn verify(observed: &Observed, parent: &Parent<'_>, acts: bool, now: Timestamp) -> Verifying {
    let mut result = Verifying::default();
    if !observed.backups.complete || !observed.verifiers.complete {
        return result;
    }
    let mut under_way: Vec<_> =
        own(observed, parent).filter(|backup| backup.phase() == Some(BackupPhase::Verifying)).collect();
    under_way.sort_by_key(|backup| Reverse(age(backup)));
    let store = parent.cluster.spec.backup.store.is_some();
    let current = under_way.iter().copied().find(|backup| store && is_wanted(backup, parent));
    let desk = Desk { observed, parent, acts, now };
    for backup in under_way {
        let step = match current {
            Some(current) if current.uid == backup.uid => desk.go_on(backup),
            _ => Step::of(put_back(backup, "it is no longer to be verified")),
        };
        result.actions.extend(say(backup, step.status));
        result.actions.extend(step.action);
        result.requeue = result.requeue.into_iter().chain(step.requeue).min();
    }
    if current.is_none()
        && store
        && acts
        && let Some(next) = next(observed, parent)
    {
        result.actions.extend(say(next, begun(next)));
    }
    result.actions.extend(sweep(observed, parent, current));
    result
}

/// The cluster is gone, or goes: what is in the store stays, and nobody looks at it any more.
pub fn broken_off(observed: &Observed) -> Vec<Action> {
    let under_way = observed.backups.items.values().filter(|backup| backup.phase() == Some(BackupPhase::Verifying));
    under_way
        .filter_map(|backup| say(backup, put_back(backup, "the cluster was deleted before it was verified")))
        .collect()
}

/// Whether somebody wants a backup to be verified.
pub(super) fn is_wanted(backup: &Backup, parent: &Parent<'_>) -> bool {
    backup.verify.unwrap_or(match parent.cluster.spec.backup.verification.policy {
        VerificationPolicy::Always => true,
        VerificationPolicy::Scheduled => backup.scheduled.is_some(),
        VerificationPolicy::Never => false,
    })
}

/// Backups of this cluster, and not of an earlier one of its name.
fn own<'a>(observed: &'a Observed, parent: &Parent<'_>) -> impl Iterator<Item = &'a Backup> {
    observed.backups.items.values().filter(|backup| !backup.terminating && !is_older_than(backup, parent))
}

/// When it was completed: its place among the others.
fn age(backup: &Backup) -> (Option<Timestamp>, &str) {
    (completed_at(backup), &backup.name)
}

fn completed_at(backup: &Backup) -> Option<Timestamp> {
    backup.status.known()?.completed_at.as_ref().map(|at| at.0)
}

/// The newest that is to be verified and isn't.
fn next<'a>(observed: &'a Observed, parent: &Parent<'_>) -> Option<&'a Backup> {
    let before = parent.cluster.status.as_ref().and_then(|status| status.last_verified_backup.as_ref()).map(|at| at.0);
    let verified = own(observed, parent).filter(|backup| backup.phase() == Some(BackupPhase::Verified));
    let newest = before.into_iter().chain(verified.filter_map(completed_at)).max();
    let is_due = |backup: &&Backup| {
        let status = backup.status.known();
        status.is_some_and(|status| {
            status.phase == Some(BackupPhase::Completed) && status.id.is_some() && status.archive.is_some()
        }) && is_wanted(backup, parent)
            && (backup.verify == Some(true) || completed_at(backup) > newest)
    };
    own(observed, parent).filter(is_due).max_by_key(|backup| age(backup))
}

fn before(backup: &Backup) -> BackupStatus {
    backup.status.known().cloned().unwrap_or_default()
}

fn begun(backup: &Backup) -> BackupStatus {
    attempt(backup, 1, "it is to be restored and checked".to_owned())
}

fn attempt(backup: &Backup, attempts: i32, message: String) -> BackupStatus {
    BackupStatus {
        phase: Some(BackupPhase::Verifying),
        message: Some(message),
        verification: Some(VerificationStatus { attempts, ..VerificationStatus::default() }),
        ..before(backup)
    }
}

/// It is complete, as it was.
fn put_back(backup: &Backup, why: &str) -> BackupStatus {
    BackupStatus {
        phase: Some(BackupPhase::Completed),
        message: Some(why.to_owned()),
        verification: None,
        ..before(backup)
    }
}

/// Pods that nobody needs: what they said is written down, or nobody waits for it.
fn sweep(observed: &Observed, parent: &Parent<'_>, current: Option<&Backup>) -> Vec<Action> {
    let needed = current.map(|backup| (verifier::name(&backup.name, attempts(backup)), &backup.uid));
    let is_needed =
        |pod: &Verifier| needed.as_ref().is_some_and(|(name, uid)| pod.name == *name && pod.backup_uid == **uid);
    let spare = observed.verifiers.items.values().filter(|pod| {
        // Those of an earlier cluster go with it.
        pod.owner.as_ref() == Some(&parent.uid) && !pod.terminating && !is_needed(pod)
    });
    let removed = spare.map(|pod| Action {
        effect: Effect::DeleteVerifier(Target {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            resource_version: pod.resource_version.clone(),
        }),
        why: format!("backup {} needs it no longer", pod.backup),
    });
    removed.collect()
}

fn attempts(backup: &Backup) -> i32 {
    let verification = backup.status.known().and_then(|status| status.verification.as_ref());
    verification.map_or(1, |verification| verification.attempts.max(1))
}

/// What comes next for a backup.
struct Step {
    status: BackupStatus,
    action: Option<Action>,
    requeue: Option<SignedDuration>,
}

impl Step {
    fn of(status: BackupStatus) -> Self {
        Self { status, action: None, requeue: None }
    }
}

struct Desk<'a> {
    observed: &'a Observed,
    parent: &'a Parent<'a>,
    acts: bool,
    now: Timestamp,
}

impl Desk<'_> {
    fn go_on(&self, backup: &Backup) -> Step {
        let (attempts, was) = (attempts(backup), before(backup));
        let name = verifier::name(&backup.name, attempts);
        let waits = |message: String| attempt(backup, attempts, message);
        let Fact::Known(pod) = self.observed.verifiers.get(&name) else {
            let (Some(archive), Some(id)) = (&was.archive, &was.id) else {
                return Step::of(put_back(backup, "its status does not say where it is in the store"));
            };
            let action = self.acts.then(|| Action {
                effect: Effect::CreateVerifier(verifier::verifier(self.parent, backup, attempts, archive, id)),
                why: format!("backup {} is to be verified", backup.name),
            });
            return Step { action, ..Step::of(was) };
        };
        if pod.terminating || pod.backup_uid != backup.uid || pod.owner.as_ref() != Some(&self.parent.uid) {
            return Step::of(waits(format!("waiting for the pod {name}, which is another's or stops, to go")));
        }
        match (&pod.ended, pod.phase) {
            (Some(ended), _) => self.ended(backup, pod, ended),
            (None, PodPhase::Pending) => self.pending(backup, pod),
            (None, _) => Step::of(waits(format!("{name} restores and checks it"))),
        }
    }

    fn pending(&self, backup: &Backup, pod: &Verifier) -> Step {
        let waited = pod.created.map(|created| self.now.duration_since(created));
        let trouble = pod.trouble.as_ref().map(|trouble| trouble.message.as_str());
        let rest = waited.map(|waited| PLACED_WITHIN - waited);
        if rest.is_some_and(|rest| rest <= SignedDuration::ZERO) {
            let why = trouble.unwrap_or("its pod did not start").to_owned();
            return self.again(backup, pod, None, &why);
        }
        let message = match trouble {
            Some(trouble) => format!("{} can't start: {trouble}", pod.name),
            None => format!("waiting for {} to start", pod.name),
        };
        Step { requeue: rest, ..Step::of(attempt(backup, attempts(backup), message)) }
    }

    fn ended(&self, backup: &Backup, pod: &Verifier, ended: &Ended) -> Step {
        match &ended.said {
            Err(why) => self.again(backup, pod, ended.at, why),
            Ok(said) => match said.outcome {
                VerifyOutcome::Good if said.reached.is_some() => Step::of(self.verified(backup, said)),
                VerifyOutcome::Good => self.again(backup, pod, ended.at, "it does not say where recovery ended"),
                VerifyOutcome::Bad => {
                    Step::of(failed(backup, said.finding.as_deref().unwrap_or("no finding was given")))
                }
                VerifyOutcome::Inconclusive => {
                    self.again(backup, pod, ended.at, said.finding.as_deref().unwrap_or("nobody says why"))
                }
            },
        }
    }

    /// It could not be finished.
    fn again(&self, backup: &Backup, pod: &Verifier, at: Option<Timestamp>, why: &str) -> Step {
        let attempts = attempts(backup);
        let pause = usize::try_from(attempts - 1).ok().and_then(|index| PAUSES.get(index).copied());
        let Some(pause) = pause.filter(|_| attempts < ATTEMPTS) else {
            return Step::of(failed(
                backup,
                &format!("it could not be verified, attempt {attempts} of {ATTEMPTS}: {why}"),
            ));
        };
        let since = at.or(pod.created).unwrap_or(self.now);
        let rest = pause - self.now.duration_since(since);
        if rest > SignedDuration::ZERO {
            let message =
                format!("attempt {attempts} of {ATTEMPTS} could not be finished: {why}; the next begins soon");
            return Step { requeue: Some(rest), ..Step::of(attempt(backup, attempts, message)) };
        }
        Step::of(attempt(
            backup,
            attempts + 1,
            format!("attempt {attempts} of {ATTEMPTS} could not be finished: {why}"),
        ))
    }

    fn verified(&self, backup: &Backup, said: &VerifyResult) -> BackupStatus {
        let ended = whole_seconds(said.ended.unwrap_or(self.now));
        let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let restored = SignedDuration::from_millis(count(said.restored_in));
        let phase = |(name, took): &(String, u64)| VerificationPhase { name: name.clone(), milliseconds: count(*took) };
        let not_recorded = said.not_recorded.as_ref();
        BackupStatus {
            phase: Some(BackupPhase::Verified),
            message: not_recorded.map(|why| format!("the store does not say that it was verified: {why}")),
            verification: Some(VerificationStatus {
                attempts: attempts(backup),
                verified_at: Some(Time(ended)),
                restore_time: Some(words::duration(restored)),
                restore_seconds: Some(restored.as_secs()),
                phases: said.phases.iter().map(phase).collect(),
                reached_lsn: said.reached.map(|lsn| lsn.to_string()),
                timeline: said.timeline.map(|timeline| i64::from(timeline.0)),
                data_age_seconds: said.data_of.map(|of| ended.duration_since(of).as_secs().max(0)),
                not_looked_at: said.not_looked_at.clone(),
                queries: Some(count(said.queries)).filter(|queries| *queries > 0),
            }),
            ..before(backup)
        }
    }
}

fn failed(backup: &Backup, why: &str) -> BackupStatus {
    BackupStatus {
        phase: Some(BackupPhase::Failed),
        message: Some(format!("verification: {why}")),
        verification: Some(VerificationStatus { attempts: attempts(backup), ..VerificationStatus::default() }),
        ..before(backup)
    }
}
