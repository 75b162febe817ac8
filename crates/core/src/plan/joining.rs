//! Decides who is still joining, and how far a scale-up has come: `ScalingUp`, `Syncing`, `UpdatingEndpoints`, and then it is over.
//!
//! From: whom the agents were told of before, who was joining before, what each says of itself, and the `-ro` slice as it is. An instance joins from
//! when it is first wanted until readers are sent to it: agents call themselves streaming once they had, within a second, all that their primary had
//! ([`crate::instance::standby::CAUGHT_UP_WITHIN`]), and only those are in the slice. Never: calls one joining that had joined and fell
//! over; that is a repair.

use std::collections::BTreeSet;

use bellwether_api::v1::{InstanceState, OperationStep, PostgresClusterStatus};

use super::instances::{Members, ours};
use super::status::{Health, health};
use crate::build::{AddressType, Parent};
use crate::fence::Fences;
use crate::object::Kind;
use crate::observed::{Observed, Pod};

/// The instances that are joining.
pub fn joining(observed: &Observed, parent: &Parent<'_>, members: &Members, fences: &Fences) -> BTreeSet<String> {
    let before = parent.cluster.status.as_ref();
    let was = |name: &str| {
        let entry = |status: &PostgresClusterStatus| status.instances.iter().any(|old| old.name == name && old.joining);
        before.is_some_and(entry)
    };
    let told = observed.config.known();
    // Whoever was told of is no news. Before anything was ever told, everybody is.
    let is_new = |name: &str| match told {
        Some(config) => !config.instances.iter().any(|other| other == name),
        None => before.is_none(),
    };
    let joins = |name: &&String| {
        let pod = observed.pods.items.get(*name).filter(|pod| ours(pod, parent));
        (was(name) || is_new(name)) && !pod.is_some_and(|pod| has_joined(observed, parent, pod, fences))
    };
    members.wanted.iter().filter(joins).cloned().collect()
}

/// How far they have come: as far as the last of them.
pub fn step(observed: &Observed, joining: &BTreeSet<String>) -> OperationStep {
    joining
        .iter()
        .map(|name| of_one(observed.pods.items.get(name)))
        .min_by_key(order)
        .unwrap_or(OperationStep::UpdatingEndpoints)
}

fn of_one(pod: Option<&Pod>) -> OperationStep {
    match pod {
        None => OperationStep::ScalingUp,
        Some(pod) if pod.streams() => OperationStep::UpdatingEndpoints,
        Some(pod) if pod.state() == InstanceState::Pending => OperationStep::ScalingUp,
        Some(_) => OperationStep::Syncing,
    }
}

fn order(step: &OperationStep) -> u8 {
    match step {
        OperationStep::ScalingUp => 0,
        OperationStep::Syncing => 1,
        _ => 2,
    }
}

/// What one does that is not as it should be, for `waitingOn`.
pub fn doing(pod: Option<&Pod>, said: Option<String>) -> String {
    let does = match pod.map(|pod| (pod, pod.state())) {
        None => "its pod is to be made",
        Some((_, InstanceState::Pending)) => "its pod is starting",
        Some((_, InstanceState::Bootstrapping | InstanceState::Joining)) => "copying",
        Some((_, InstanceState::Starting)) => "starting",
        Some((_, InstanceState::CatchingUp)) => "replaying, a second or more behind",
        Some((pod, InstanceState::Streaming)) if pod.streams() => "streaming, not in -ro yet",
        Some((_, InstanceState::Streaming)) => "streaming, and does not answer yet",
        Some((_, InstanceState::NotStreaming)) => "not streaming",
        Some((_, InstanceState::Down)) => "down",
        Some((_, InstanceState::Leading)) => "leading, and does not answer yet",
        Some((_, InstanceState::Fenced)) => "fenced",
    };
    match said {
        Some(said) if said == "stopping" => said,
        Some(said) => format!("{does}: {said}"),
        None => does.to_owned(),
    }
}

/// It leads, or readers are sent to it.
fn has_joined(observed: &Observed, parent: &Parent<'_>, pod: &Pod, fences: &Fences) -> bool {
    health(Some(pod), fences) == Health::Good && (pod.leads() || is_readable(observed, parent, pod))
}

/// Whether the `-ro` Service leads to it; or never will, because it has no address of the Services' family.
fn is_readable(observed: &Observed, parent: &Parent<'_>, pod: &Pod) -> bool {
    let family = pod.ip.as_deref().map(AddressType::of);
    if family.is_some_and(|family| family != parent.settings.addresses) {
        return true;
    }
    let slice = observed.object(Kind::EndpointSlice, &parent.names.ro());
    let endpoints = slice.known().and_then(|slice| slice["endpoints"].as_array());
    let mut targets = endpoints.into_iter().flatten().map(|endpoint| &endpoint["targetRef"]["uid"]);
    targets.any(|uid| uid.as_str() == Some(&pod.uid))
}
