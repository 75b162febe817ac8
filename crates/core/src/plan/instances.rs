//! Decides which instances should exist, which are too many, and which pods are made anew.
//!
//! From: the wanted number, pods, volumes, and who leads. Who of those that are too many leaves next, and when, is [`super::leave`]'s to decide. Never:
//! calls the primary one too many, or deletes a volume while its pod is there, while no primary is known to have the data, or while a
//! person paused the cluster.

use std::collections::BTreeSet;

use bellwether_api::v1::OnDelete;
use jiff::Timestamp;

use super::action::{Action, Effect, Target, WaitingOn};
use super::adopt::Identity;
use super::leave::{self, Leave, another_leads};
use super::orphans;
use super::rollout::paused;
use super::usefulness::{Because, least_useful};
use crate::build::{self, Parent};
use crate::observed::{Observed, Pod, PodPhase, VolumeRole};

/// Who belongs to the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Members {
    /// The instances that should exist, by serial.
    pub wanted: Vec<String>,
    /// Instances that have a pod but should not exist, the least useful first.
    pub surplus: Vec<String>,
    /// Who of these is on its way out.
    pub leave: Leave,
    /// Removals.
    pub actions: Vec<Action>,
    /// What they wait on.
    pub waiting_on: Vec<WaitingOn>,
}

/// Who should exist, and what goes.
pub fn members(observed: &Observed, parent: &Parent<'_>, identity: &Identity, now: Timestamp) -> Members {
    let (wanted, too_many) = wanted(observed, parent, identity);
    let mut leave = leave::leave(observed, parent, &too_many, now);
    let mut actions: Vec<_> = leave.action.take().into_iter().collect();
    actions.extend(replace_ended(observed, parent, &wanted));
    actions.extend(replace_never_ran(observed, parent, &wanted));
    actions.extend(unused_volumes(observed, parent, &wanted));
    Members {
        surplus: too_many.iter().map(|(pod, _)| pod.name.clone()).collect(),
        waiting_on: leave.waiting_on.take().into_iter().collect(),
        wanted,
        leave,
        actions,
    }
}

/// The primary first, then instances that run, the most useful first, then those that belong and have a volume and no pod (it was drained), then those
/// whose volume a scale-down left behind, then new ones with the lowest free numbers. And those with a pod that are too many.
///
/// Who was drained is a member of the election, and may alone hold what was acknowledged; who left is neither. To look at, both are a volume without
/// a pod: what tells them apart is whom the agents were told of.
fn wanted<'a>(
    observed: &'a Observed,
    parent: &Parent<'_>,
    identity: &Identity,
) -> (Vec<String>, Vec<(&'a Pod, Because)>) {
    let names = &parent.names;
    let all: Vec<&Pod> = observed.pods.items.values().filter(|pod| ours(pod, parent)).collect();
    let is_primary = |name: &str| identity.primary.as_deref() == Some(name);
    let mut there: Vec<&Pod> = all.iter().copied().filter(|pod| !pod.terminating).collect();
    let stored = observed
        .volumes
        .items
        .values()
        .filter(|volume| volume.role == Some(VolumeRole::Data) && !volume.terminating)
        .filter_map(|volume| names.serial(&volume.instance));
    let size = usize::try_from(parent.cluster.spec.replicas).unwrap_or(0);
    let primary: BTreeSet<u32> = identity.primary.iter().filter_map(|name| names.serial(name)).collect();
    let told = observed.config.known();
    let mut too_many = vec![];
    loop {
        let standbys: Vec<&Pod> = there.iter().copied().filter(|pod| !is_primary(&pod.name)).collect();
        if standbys.len() + primary.len() <= size {
            break;
        }
        let Some((least, because)) = least_useful(&standbys, &there, told, names) else { break };
        there.retain(|pod| pod.name != least.name);
        too_many.push((least, because));
    }
    let running: BTreeSet<u32> = there.iter().filter_map(|pod| names.serial(&pod.name)).collect();
    let belong: BTreeSet<u32> =
        told.into_iter().flat_map(|told| &told.instances).filter_map(|name| names.serial(name)).collect();
    let (drained, left): (BTreeSet<u32>, BTreeSet<u32>) = stored.partition(|serial| belong.contains(serial));
    let mut chosen: Vec<u32> = vec![];
    for serial in primary.iter().chain(&running).chain(&drained).chain(&left).copied().chain(1..) {
        if chosen.len() >= size {
            break;
        }
        if !chosen.contains(&serial) {
            chosen.push(serial);
        }
    }
    chosen.sort_unstable();
    let wanted: Vec<String> = chosen.into_iter().map(|serial| names.instance(serial)).collect();
    let stops = |pod: &&&Pod| pod.terminating && !wanted.contains(&pod.name);
    let stopping: Vec<_> = all.iter().filter(stops).map(|pod| (*pod, Because::default())).collect();
    too_many.extend(stopping);
    (wanted, too_many)
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
            && pod.hash.as_deref() != Some(&build::pod::current_hash(parent))
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
    // Before it was seen who belongs, one that was drained looks like one that left.
    let seen = observed.sees_instances() && !observed.config.is_unknown();
    if parent.cluster.spec.storage.on_delete != OnDelete::Delete || !seen || paused(parent.cluster) {
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

/// Whether the pod belongs to this cluster and not to an earlier one of its name.
pub(super) fn ours(pod: &Pod, parent: &Parent<'_>) -> bool {
    pod.owner.as_deref() == Some(&parent.uid)
}

pub(super) fn target(pod: &Pod) -> Target {
    Target { name: pod.name.clone(), uid: pod.uid.clone(), resource_version: pod.resource_version.clone() }
}
