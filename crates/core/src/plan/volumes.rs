//! Decides what is written on volumes: whose they are, which database is on them, who led last, and what happens to them with their
//! cluster.
//!
//! This is what a later cluster of the same name adopts by, so it is written as soon as it is known. Never: takes a volume that
//! no wanted instance uses, or changes a recorded system identifier.

use std::collections::BTreeMap;

use bellwether_api::labels;

use super::action::{Action, Effect};
use super::adopt::Identity;
use super::instances::Members;
use super::orphans;
use crate::build::{self, Parent};
use crate::observed::{Observed, Volume, VolumeRole};

/// What to write on the volumes that are there.
pub fn keep(observed: &Observed, parent: &Parent<'_>, identity: &Identity, members: &Members) -> Vec<Action> {
    let taken = |volume: &&Volume| {
        members.wanted.contains(&volume.instance) || volume.cluster_uid.as_deref() == Some(&parent.uid)
    };
    observed
        .volumes
        .items
        .values()
        .filter(|volume| !volume.terminating && volume.role.is_some())
        .filter(taken)
        .filter_map(|volume| annotate(observed, parent, identity, volume))
        .collect()
}

fn annotate(observed: &Observed, parent: &Parent<'_>, identity: &Identity, volume: &Volume) -> Option<Action> {
    let annotations = annotations(observed, parent, identity, volume);
    let why = match volume.cluster_uid.as_deref() == Some(&parent.uid) {
        true => "it records what is on the volume",
        false => "it holds this cluster's database and is adopted",
    };
    let changes = !annotations.is_empty();
    let effect = Effect::AnnotateVolume { target: orphans::target(volume), annotations };
    changes.then(|| Action { effect, why: why.to_owned() })
}

/// Only those that are not as they should be.
fn annotations(
    observed: &Observed,
    parent: &Parent<'_>,
    identity: &Identity,
    volume: &Volume,
) -> BTreeMap<String, String> {
    let mut wanted = BTreeMap::new();
    let mut set = |key: &str, value: String| drop(wanted.insert(key.to_owned(), value));
    if volume.cluster_uid.as_deref() != Some(&parent.uid) {
        set(labels::CLUSTER_UID, parent.uid.clone());
    }
    let policy = parent.cluster.spec.storage.on_delete;
    if volume.on_delete != Some(policy) {
        set(labels::ON_DELETE, build::volume::on_delete(policy).to_owned());
    }
    let report = observed.pods.items.get(&volume.instance).and_then(|pod| pod.report.known());
    if volume.system_identifier.is_none()
        && let Some(system) = report.and_then(|report| report.system_identifier)
    {
        set(labels::SYSTEM_IDENTIFIER, system.to_string());
    }
    // Who led is the Lease's to say: a dead primary's last report would go on claiming it.
    let has_data =
        volume.system_identifier.is_some() || report.is_some_and(|report| report.system_identifier.is_some());
    if volume.role == Some(VolumeRole::Data) && has_data && observed.leader().is_some() {
        let led = identity.primary.as_deref() == Some(&volume.instance);
        if volume.was_primary != Some(led) {
            set(labels::LAST_ROLE, if led { "primary" } else { "standby" }.to_owned());
        }
    }
    wanted
}
