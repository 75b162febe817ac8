//! Decides which instances should exist, and which one is removed next.
//!
//! From: the wanted number, pods, volumes, and who leads. Never: removes the primary or one that may be it, removes anything
//! while something could not be seen, removes more than one at a time (commits may wait for a quorum of those that are left), or
//! deletes a volume while its pod is there or while no primary is known to have the data.

use std::collections::BTreeSet;

use bellwether_api::v1::{InstanceRole, OnDelete};

use super::action::{Action, Effect, Target, WaitingOn};
use super::adopt::Identity;
use super::orphans;
use crate::build::{self, Parent};
use crate::observed::{Observed, Pod, PodPhase, VolumeRole};

/// Who belongs to the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Members {
    /// The instances that should exist, by serial.
    pub wanted: Vec<String>,
    /// Instances that have a pod but should not exist.
    pub surplus: Vec<String>,
    /// Removals.
    pub actions: Vec<Action>,
    /// What they wait on.
    pub waiting_on: Vec<WaitingOn>,
}

/// Who should exist, and what goes.
pub fn members(observed: &Observed, parent: &Parent<'_>, identity: &Identity) -> Members {
    let wanted = wanted(observed, parent, identity);
    let is_surplus = |pod: &&Pod| ours(pod, parent) && !wanted.contains(&pod.name);
    let surplus: Vec<&Pod> = observed.pods.items.values().filter(is_surplus).collect();
    let mut members = Members { surplus: surplus.iter().map(|pod| pod.name.clone()).collect(), ..Members::default() };
    match remove_next(observed, parent, &surplus) {
        Ok(action) => members.actions.extend(action),
        Err(waiting) => members.waiting_on.push(waiting),
    }
    members.actions.extend(replace_ended(observed, parent, &wanted));
    members.actions.extend(replace_never_ran(observed, parent, &wanted));
    members.actions.extend(unused_volumes(observed, parent, &wanted));
    members.wanted = wanted;
    members
}

/// The primary first, then instances that run, then those whose volume is still there (a pod that was drained, or one that a
/// scale-down left behind), then new ones with the lowest free numbers.
fn wanted(observed: &Observed, parent: &Parent<'_>, identity: &Identity) -> Vec<String> {
    let names = &parent.names;
    let with_pod =
        observed.pods.items.values().filter(|pod| ours(pod, parent) && !pod.terminating).map(|pod| &pod.name);
    let with_volume = observed
        .volumes
        .items
        .values()
        .filter(|volume| volume.role == Some(VolumeRole::Data) && !volume.terminating)
        .map(|volume| &volume.instance);
    let serials = |instances: Vec<&String>| {
        instances.into_iter().filter_map(|name| names.serial(name)).collect::<BTreeSet<u32>>()
    };
    let primary = serials(identity.primary.iter().collect());
    let (running, stored) = (serials(with_pod.collect()), serials(with_volume.collect()));
    let mut chosen: Vec<u32> = vec![];
    for serial in primary.iter().chain(&running).chain(&stored).copied().chain(1..) {
        if chosen.len() >= usize::try_from(parent.cluster.spec.replicas).unwrap_or(0) {
            break;
        }
        if !chosen.contains(&serial) {
            chosen.push(serial);
        }
    }
    chosen.sort_unstable();
    chosen.into_iter().map(|serial| names.instance(serial)).collect()
}

/// The surplus instance with the highest number, when it is certain that another one leads.
fn remove_next(observed: &Observed, parent: &Parent<'_>, surplus: &[&Pod]) -> Result<Option<Action>, WaitingOn> {
    let Some(next) = surplus.iter().max_by_key(|pod| parent.names.serial(&pod.name)) else { return Ok(None) };
    let stopping: Vec<_> = surplus.iter().filter(|pod| pod.terminating).map(|pod| pod.name.clone()).collect();
    if !stopping.is_empty() {
        return Err(WaitingOn::Stopping(stopping));
    }
    if !observed.sees_instances() {
        return Err(WaitingOn::Sight(observed.unseen()));
    }
    if !another_leads(observed, &next.name) || next.role() == Some(InstanceRole::Primary) || next.report.is_unknown() {
        return Err(WaitingOn::LeaderUnsure(next.name.clone()));
    }
    Ok(Some(Action {
        effect: Effect::DeletePod(target(next)),
        why: format!("spec.replicas is {} and it is a standby with the highest number", parent.cluster.spec.replicas),
    }))
}

/// A pod that ended (evicted, node shut down) is never started again by a kubelet; it goes, and is made anew on its volume.
fn replace_ended(observed: &Observed, parent: &Parent<'_>, wanted: &[String]) -> Vec<Action> {
    let ended = |pod: &&Pod| {
        ours(pod, parent) && pod.phase == PodPhase::Ended && !pod.terminating && wanted.contains(&pod.name)
    };
    observed
        .pods
        .items
        .values()
        .filter(ended)
        .map(|pod| Action {
            effect: Effect::DeletePod(target(pod)),
            why: "its containers ended and no kubelet starts them again; it is made anew on its volume".to_owned(),
        })
        .collect()
}

/// A pod that never ran is made anew when the spec changes: its image or its node can't be had, and the change is what its user
/// mends that with. Nothing of a database is in it yet, so nothing is restarted.
fn replace_never_ran(observed: &Observed, parent: &Parent<'_>, wanted: &[String]) -> Vec<Action> {
    let outdated = |pod: &&Pod| {
        ours(pod, parent)
            && pod.never_ran
            && !pod.terminating
            && wanted.contains(&pod.name)
            && pod.hash.as_deref() != Some(&build::pod::current_hash(parent, &pod.name))
    };
    let all = observed.pods.items.values().filter(outdated);
    all.map(|pod| Action {
        effect: Effect::DeletePod(target(pod)),
        why: "it never ran, and the spec that it was made from has changed".to_owned(),
    })
    .collect()
}

/// Volumes of instances that were removed, where the policy says so.
fn unused_volumes(observed: &Observed, parent: &Parent<'_>, wanted: &[String]) -> Vec<Action> {
    if parent.cluster.spec.storage.on_delete != OnDelete::Delete || !observed.sees_instances() {
        return vec![];
    }
    observed
        .volumes
        .items
        .values()
        .filter(|volume| {
            volume.cluster_uid.as_deref() == Some(&parent.uid) && volume.on_delete == Some(OnDelete::Delete)
        })
        .filter(|volume| !wanted.contains(&volume.instance) && !volume.terminating)
        .filter(|volume| observed.pods.get(&volume.instance).is_absent() && another_leads(observed, &volume.instance))
        .map(|volume| Action {
            effect: Effect::DeleteVolume(orphans::target(volume)),
            why: "its instance was removed and storage.onDelete is Delete".to_owned(),
        })
        .collect()
}

/// Whether an instance other than `name` leads, by the Lease and by its own account.
fn another_leads(observed: &Observed, name: &str) -> bool {
    observed
        .leader()
        .filter(|leader| *leader != name)
        .and_then(|leader| observed.pods.items.get(leader))
        .is_some_and(Pod::leads)
}

/// Whether the pod belongs to this cluster and not to an earlier one of its name.
pub(super) fn ours(pod: &Pod, parent: &Parent<'_>) -> bool {
    pod.owner.as_deref() == Some(&parent.uid)
}

fn target(pod: &Pod) -> Target {
    Target { name: pod.name.clone(), uid: pod.uid.clone(), resource_version: pod.resource_version.clone() }
}
