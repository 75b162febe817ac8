//! Decides which volumes are removed because their cluster is gone.
//!
//! From: the volumes under the cluster's name, the UID of the cluster that lives now (if any), and the pods. Never: a volume
//! that isn't marked `Delete`, one without a mark, one of the cluster that lives, or one whose pod is still there or could not
//! be seen.

use bellwether_api::v1::OnDelete;

use super::action::{Action, Effect, Target};
use crate::observed::{Observed, Volume};

/// The volumes of clusters that are gone, and should go with them.
pub fn doomed<'a>(observed: &'a Observed, live_uid: Option<&str>) -> Vec<&'a Volume> {
    let marked = observed.volumes.items.values().filter(|volume| volume.on_delete == Some(OnDelete::Delete));
    marked.filter(|volume| volume.cluster_uid.is_some() && volume.cluster_uid.as_deref() != live_uid).collect()
}

/// Removes them, each once no pod uses it.
pub fn remove(observed: &Observed, live_uid: Option<&str>) -> Vec<Action> {
    if !observed.sees_instances() {
        return vec![];
    }
    let free = |volume: &&Volume| !volume.terminating && observed.pods.get(&volume.instance).is_absent();
    doomed(observed, live_uid)
        .into_iter()
        .filter(free)
        .map(|volume| Action {
            effect: Effect::DeleteVolume(target(volume)),
            why: "its cluster was deleted with storage.onDelete: Delete".to_owned(),
        })
        .collect()
}

/// The volume as it was seen.
pub(super) fn target(volume: &Volume) -> Target {
    Target { name: volume.name.clone(), uid: volume.uid.clone(), resource_version: volume.resource_version.clone() }
}
