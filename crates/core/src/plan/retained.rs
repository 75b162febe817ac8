//! Decides what is said of retention: the condition `Retained`.
//!
//! From: what the primary says became of it, and the policy in the spec. Never: true because nobody says otherwise, or of a policy that nobody has
//! looked at yet; anything where there is no store to remove from.

use bellwether_api::reason::Reason;

use super::conditions::{Holds, Says, stopped};
use super::status::View;
use crate::contract::Removed;
use crate::words;

/// What the policy does not keep is gone from the object store, and what is left is known to be worth something. Said where there is a store.
pub const RETAINED: &str = "Retained";

/// Whether retention is carried out.
pub(super) fn retained(view: &View<'_>) -> Option<Says> {
    let policy = &view.parent.cluster.spec.backup;
    let url = &policy.store.as_ref()?.url;
    let policy = &policy.retention;
    let says = |holds, reason, message| Some(Says { type_: RETAINED, holds, reason, message });
    let unknown = |reason, message| says(Holds::Unknown, reason, message);
    if let Some((reason, message)) = stopped(view) {
        return unknown(reason, message);
    }
    let Some(primary) = view.leading() else {
        let message = "no instance accepts writes, so nobody removes anything from the store".to_owned();
        return unknown(Reason::NoPrimary, message);
    };
    let name = &primary.name;
    let archiving = primary.report.known().and_then(|report| report.archiving.as_ref());
    let Some(said) = archiving.and_then(|archiving| archiving.retention.as_ref()) else {
        let message = format!("{name} has yet to look at what is to be removed: it leads, or reaches {url}, only now");
        return unknown(Reason::RetentionFailing, message);
    };
    if said.policy != *policy {
        let message = format!("{name} removes what {:?} does not keep, and has yet to look at {policy:?}", said.policy);
        return unknown(Reason::RetentionFailing, message);
    }
    match (&said.failing, &said.alarm) {
        (Some(why), _) => {
            says(Holds::No, Reason::RetentionFailing, format!("{name}: what {policy:?} does not keep stays: {why}"))
        }
        (None, Some(alarm)) => says(Holds::No, Reason::RetentionHeld, alarm.clone()),
        (None, None) => {
            let removed = said.removed.as_ref().map(|removed| format!("; {}", last(removed))).unwrap_or_default();
            says(Holds::Yes, Reason::AsSpecified, format!("what {policy:?} does not keep is gone from {url}{removed}"))
        }
    }
}

fn last(removed: &Removed) -> String {
    let at = removed.at.map(|at| format!(" at {at:.0}")).unwrap_or_default();
    format!(
        "last removed{at}: {} and {} of the log, {}",
        words::counted(removed.backups, "backup"),
        words::counted(removed.log, "file"),
        words::size(removed.bytes)
    )
}
