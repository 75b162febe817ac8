//! Decides what is said of the archive of the log and of the backups: the conditions `Archiving` and `BackedUp`, and when the last one was completed.
//!
//! From: what the primary says of its archive, and the backups that are over. Never: true because nobody says otherwise. A primary that doesn't speak
//! of its archive has none, or is not heard: that is unknown.

use bellwether_api::reason::Reason;
use bellwether_api::v1::{BackupPhase, BackupStatus};
use jiff::Timestamp;

use super::backup::is_older_than;
use super::conditions::{Holds, Says, stopped};
use super::status::View;
use crate::contract::Archiving;
use crate::observed::Backup;

/// The log gets into the object store. Said where there is one.
pub const ARCHIVING: &str = "Archiving";
/// The last backup was completed. Said where there is an object store.
pub const BACKED_UP: &str = "BackedUp";

/// Whether the log gets into the store.
pub(super) fn archiving(view: &View<'_>) -> Option<Says> {
    let store = view.parent.cluster.spec.backup.store.as_ref()?;
    let says = |holds, reason, message| Some(Says { type_: ARCHIVING, holds, reason, message });
    if let Some((reason, message)) = stopped(view) {
        return says(Holds::Unknown, reason, message);
    }
    let Some(primary) = view.leading() else {
        let message = "no instance accepts writes, so nobody says whether the log gets into the store".to_owned();
        return says(Holds::Unknown, Reason::NoPrimary, message);
    };
    let (name, said) = (&primary.name, primary.report.known().and_then(|report| report.archiving.as_ref()));
    match said {
        Some(said) => match &said.failing {
            Some(why) => says(Holds::No, Reason::ArchiveFailing, format!("{name}: {why}")),
            None => says(Holds::Yes, Reason::AsSpecified, format!("the log of {name} gets into {}", store.url)),
        },
        None => {
            let message = format!(
                "{name} does not say whether its log gets into {}: it began before the store was named, or has yet to look",
                store.url
            );
            says(Holds::Unknown, Reason::ArchiveFailing, message)
        }
    }
}

/// Whether there is a backup, and the last one succeeded.
pub(super) fn backed_up(view: &View<'_>) -> Option<Says> {
    view.parent.cluster.spec.backup.store.as_ref()?;
    let says = |holds, reason, message| Some(Says { type_: BACKED_UP, holds, reason, message });
    let last = last_completed(view);
    let newest = over(view).max_by_key(|(backup, status)| (ended(status), &backup.name));
    match newest {
        Some((backup, status)) if status.phase == Some(BackupPhase::Failed) => {
            let why = status.message.as_deref().unwrap_or("it did not say why");
            let before = match last {
                Some(last) => format!("the last that was completed is of {last}"),
                None => "none has been completed yet".to_owned(),
            };
            says(Holds::No, Reason::BackupFailed, format!("backup {} failed: {why}; {before}", backup.name))
        }
        Some((backup, status)) => {
            let at = ended(status).map(|at| format!(" at {at}")).unwrap_or_default();
            says(Holds::Yes, Reason::AsSpecified, format!("backup {} was completed{at}", backup.name))
        }
        // Its object was deleted, which deletes nothing in the store.
        None => match last {
            Some(last) => says(Holds::Yes, Reason::AsSpecified, format!("a backup was completed at {last}")),
            None => says(Holds::No, Reason::NoBackup, "no backup has been completed yet".to_owned()),
        },
    }
}

/// When the newest completed backup was; of one whose object is gone, as it was said before.
pub(super) fn last_completed(view: &View<'_>) -> Option<Timestamp> {
    let before = view.before().and_then(|status| status.last_backup.as_ref()).map(|at| at.0);
    let completed = over(view).filter(|(_, status)| status.phase.is_some_and(BackupPhase::is_complete));
    before.into_iter().chain(completed.filter_map(|(_, status)| ended(status))).max()
}

/// Since when every moment can be restored. Who leads only now has yet to look, and what its predecessor saw still holds.
pub(super) fn recoverable_from(view: &View<'_>) -> Option<Timestamp> {
    view.parent.cluster.spec.backup.store.as_ref()?;
    match of_primary(view).and_then(|said| said.retention.as_ref()) {
        Some(said) if said.failing.is_none() => said.since,
        _ => view.before()?.recoverable_from.as_ref().map(|at| at.0),
    }
}

/// Up to when, where that is not up to now.
pub(super) fn recoverable_to(view: &View<'_>) -> Option<Timestamp> {
    view.parent.cluster.spec.backup.store.as_ref()?;
    let before = view.before().and_then(|status| status.recoverable_to.as_ref()).map(|at| at.0);
    match of_primary(view) {
        Some(said) if said.failing.is_none() => None,
        // An archiver that began while the store was down has seen nothing get there.
        Some(said) => said.until.or(before),
        None => before,
    }
}

/// What the primary says of the archive.
fn of_primary<'a>(view: &'a View<'_>) -> Option<&'a Archiving> {
    view.leading()?.report.known()?.archiving.as_ref()
}

/// The cluster's backups that are over, with what is said of them as of now.
pub(super) fn over<'a>(view: &'a View<'_>) -> impl Iterator<Item = (&'a Backup, &'a BackupStatus)> {
    let own = view.observed.backups.items.values().filter(|backup| !is_older_than(backup, view.parent));
    let said = own.filter_map(|backup| Some((backup, view.backups.status(backup)?)));
    said.filter(|(_, status)| status.phase.is_some_and(BackupPhase::is_taken))
}

pub(super) fn ended(status: &BackupStatus) -> Option<Timestamp> {
    status.completed_at.as_ref().map(|at| at.0)
}
