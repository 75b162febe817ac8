//! Decides which instances don't come back by waiting, and what is said of them: one whose node does not say that its pod has stopped, and one
//! whose volume is lost.
//!
//! From: when a pod was to be gone, and what is behind the claims. Never: does anything about it. Whether a node is gone for good, and whether a
//! volume is, nobody here can know; what is on it may be the only copy.

use bellwether_api::reason::Reason;
use jiff::{SignedDuration, Timestamp};

use super::instances::ours;
use crate::build::Parent;
use crate::observed::{Observed, Pod};

/// A kubelet that lives removes a pod within its grace period; this much more is for one that was slow.
const OVERDUE: SignedDuration = SignedDuration::from_secs(60);

/// Volumes that are lost, by their claims.
pub(super) fn lost_volume(observed: &Observed, parent: &Parent<'_>) -> Option<(Reason, String)> {
    let ours = |uid: Option<&str>| uid == Some(&parent.uid);
    let lost = observed.volumes.items.values().find(|volume| volume.lost && ours(volume.cluster_uid.as_deref()))?;
    let message = format!("{}: the volume behind its claim {} is gone", lost.instance, lost.name);
    Some((Reason::VolumeLost, message))
}

/// The first pod that should have been gone for long.
pub(super) fn lost_node(observed: &Observed, parent: &Parent<'_>, now: Timestamp) -> Option<(Reason, String)> {
    let pod = leaving(observed, parent).find(|(_, overdue)| *overdue <= now)?.0;
    let node = pod.node.as_deref().unwrap_or("its node");
    let message = format!("{}: node {node} does not say that its pod has stopped; it may be gone", pod.name);
    Some((Reason::NodeLost, message))
}

/// No event tells that time has passed.
pub(super) fn look_again(observed: &Observed, parent: &Parent<'_>, now: Timestamp) -> Option<SignedDuration> {
    let to_come = leaving(observed, parent).map(|(_, overdue)| overdue.duration_since(now));
    to_come.filter(SignedDuration::is_positive).min()
}

/// Pods that are being deleted, and from when on that takes too long. One that was never placed has no node.
fn leaving<'a>(observed: &'a Observed, parent: &Parent<'a>) -> impl Iterator<Item = (&'a Pod, Timestamp)> {
    let pods = observed.pods.items.values().filter(|pod| ours(pod, parent) && pod.node.is_some());
    pods.filter_map(|pod| Some((pod, pod.gone_by? + OVERDUE)))
}
