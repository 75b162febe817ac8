//! Decides what is said of the proof of backups: the condition `BackupVerified`, and which backup was found good last.
//!
//! From: the backups, their verifications, the schedule. Never: true while the newest backup that was looked at is none, while nobody looks, or while what was
//! found good is older than the schedule would have it.

use bellwether_api::reason::Reason;
use bellwether_api::schedule::Schedule;
use bellwether_api::v1::{BackupPhase, BackupPolicy, VerificationPolicy};
use jiff::{SignedDuration, Timestamp};

use super::backed_up::{ended, over};
use super::conditions::{Holds, Says};
use super::status::View;

/// The newest backup that should have been verified was restored, and found good. Said where there is an object store.
pub const BACKUP_VERIFIED: &str = "BackupVerified";

/// Whether backups are known to be some.
pub(super) fn verified(view: &View<'_>) -> Option<Says> {
    let policy = &view.parent.cluster.spec.backup;
    policy.store.as_ref()?;
    let says = |holds, reason, message| Some(Says { type_: BACKUP_VERIFIED, holds, reason, message });
    let last = last(view);
    let before = || match last {
        Some(last) => format!("the last that was found good is of {last}"),
        None => "none has been found good yet".to_owned(),
    };
    if let Some((name, why)) = refuted(view) {
        return says(Holds::No, Reason::VerificationFailed, format!("backup {name}: {why}; {}", before()));
    }
    if policy.verification.policy == VerificationPolicy::Never {
        let message = format!(
            "spec.backup.verification.policy is never, so nobody knows whether a backup can be restored; {}",
            before()
        );
        return says(Holds::No, Reason::VerificationOff, message);
    }
    let Some(last) = last else {
        let message = "no backup has been restored and found good yet".to_owned();
        return says(Holds::No, Reason::NoVerifiedBackup, message);
    };
    if is_old(policy, last, view.now) {
        let message = format!(
            "the newest backup that was restored and found good is of {last}, and by spec.backup.schedule, {}, there should be two newer ones",
            policy.schedule
        );
        return says(Holds::No, Reason::VerifiedBackupOld, message);
    }
    says(Holds::Yes, Reason::AsSpecified, format!("the backup of {last} was restored, and nothing is wrong with it"))
}

/// When the newest backup was completed that was found good; of one whose object is gone, as it was said before.
pub(super) fn last(view: &View<'_>) -> Option<Timestamp> {
    let before = view.before().and_then(|status| status.last_verified_backup.as_ref()).map(|at| at.0);
    let verified = over(view).filter(|(_, status)| status.phase == Some(BackupPhase::Verified));
    before.into_iter().chain(verified.filter_map(|(_, status)| ended(status))).max()
}

/// The newest backup whose verification is over, if it failed, and why.
fn refuted<'a>(view: &'a View<'_>) -> Option<(&'a str, &'a str)> {
    let looked_at = over(view).filter(|(_, status)| {
        status.verification.is_some() && matches!(status.phase, Some(BackupPhase::Verified | BackupPhase::Failed))
    });
    let (backup, status) = looked_at.max_by_key(|(backup, status)| (ended(status), &backup.name))?;
    // One that was found good later, and whose object is gone, counts too.
    let failed = status.phase == Some(BackupPhase::Failed) && last(view) < ended(status);
    failed.then(|| (backup.name.as_str(), status.message.as_deref().unwrap_or("it did not say why")))
}

/// Two times of the schedule have come since: one backup may be on its way.
fn is_old(policy: &BackupPolicy, last: Timestamp, now: Timestamp) -> bool {
    let Ok(schedule) = Schedule::read(&policy.schedule, &policy.time_zone) else { return false };
    let second_last = schedule.last(now).and_then(|time| schedule.last(time - SignedDuration::from_secs(1)));
    second_last.is_some_and(|time| last < time)
}
