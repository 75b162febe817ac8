//! Decides the conditions of a cluster: what is true of it, and why, under reasons that have a runbook each.
//!
//! Never: a condition that is true because something could not be seen, or a `lastTransitionTime` that moves without a flip.

use std::collections::BTreeSet;

use bellwether_api::labels;
use bellwether_api::reason::Reason;
use bellwether_api::v1::{AutomationGate, DurabilityMode, OperationKind, Phase, PostgresClusterStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt;

use super::rollout::Stage;
use super::schedule::Cluster;
use super::status::{Health, Verdict, View};
use super::{WaitingOn, backed_up, effective_durability, retained, stuck, verified};
use crate::contract::RecoveryState;
use crate::fence::Fences;
use crate::object::Kind;
use crate::observed::Pod;

/// The `rw` endpoint answers as the application's user, accepts writes, and durability can be met.
pub const READY: &str = "Ready";
/// An operation is under way.
pub const PROGRESSING: &str = "Progressing";
/// Something is wrong that was right before.
pub const DEGRADED: &str = "Degraded";
/// The spec was understood. Names the fields that this release doesn't act on.
pub const ACCEPTED: &str = "Accepted";
/// All instances run with the spec as it is now.
pub const SYNCED: &str = "Synced";
/// Instances run on different nodes.
pub const SPREAD: &str = "Spread";
/// A person wants no rollout and no scale-down to begin a new step. Not said where nobody does.
pub const PAUSED: &str = "Paused";
/// A person wants PostgreSQL stopped on some instances. Not said where nobody does.
pub const FENCED: &str = "Fenced";
/// Somebody leads, or led, by a person's word, and acknowledged commits may be lost. Said until the record is removed from the Lease.
pub const FORCED: &str = "Forced";

/// What a condition says.
pub(super) struct Says {
    pub type_: &'static str,
    pub holds: Holds,
    pub reason: Reason,
    pub message: String,
}

/// Whether it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Yes,
    No,
    /// Nobody who would know says so.
    Unknown,
}

impl Holds {
    fn as_str(self) -> &'static str {
        match self {
            Self::Yes => "True",
            Self::No => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Holds {
    fn from(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }
}

/// All conditions, in a fixed order.
pub(super) fn conditions(view: &View<'_>, phase: Phase, operation: Option<OperationKind>) -> Vec<Condition> {
    let said = [
        Some(ready(view, phase)),
        Some(progressing(view, phase, operation)),
        Some(degraded(view, phase)),
        Some(accepted(view)),
        Some(synced(view)),
        spread(view),
        paused(view),
        fenced(view),
        forced(view),
        backed_up::archiving(view),
        backed_up::backed_up(view),
        verified::verified(view),
        retained::retained(view),
    ];
    let before = view.before().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let generation = view.parent.cluster.metadata.generation;
    said.into_iter().flatten().map(|says| stamped(says, before, generation, view.now)).collect()
}

/// How far the cluster is, for whoever wants to begin something.
pub(super) fn cluster(view: &View<'_>, status: &PostgresClusterStatus) -> Cluster {
    let ready = status.conditions.iter().any(|condition| condition.type_ == READY && condition.status == "True");
    match view.leading() {
        Some(_) if ready => Cluster::Ready,
        Some(_) => Cluster::Led,
        None => Cluster::Down,
    }
}

/// The time moves only with the status.
fn stamped(says: Says, before: &[Condition], generation: Option<i64>, now: Timestamp) -> Condition {
    let status = says.holds.as_str();
    let unflipped = before.iter().find(|old| old.type_ == says.type_ && old.status == status);
    Condition {
        type_: says.type_.to_owned(),
        status: status.to_owned(),
        reason: says.reason.to_string(),
        message: says.message,
        last_transition_time: unflipped.map_or(Time(now), |old| old.last_transition_time.clone()),
        observed_generation: generation,
    }
}

fn ready(view: &View<'_>, phase: Phase) -> Says {
    let not = |reason, message: String| Says { type_: READY, holds: Holds::No, reason, message };
    if let Some((reason, message)) = stopped(view) {
        return not(reason, message);
    }
    let Some(primary) = view.leading() else {
        if let Some(leader) = view.fenced_leader() {
            return not(Reason::Fenced, fenced_leader(leader));
        }
        let broken = view.first_trouble();
        return match (phase, broken) {
            (_, Some((reason, message))) => not(reason, message),
            (Phase::Provisioning, None) => not(Reason::Provisioning, "the first instance is being created".to_owned()),
            (Phase::Bootstrapping, None) => {
                let (reason, message) = comes_into_being(view);
                not(reason, message.to_owned())
            }
            (_, None) => match view.leader_full() {
                Some(full) => not(Reason::VolumeFull, full),
                None => not(Reason::NoPrimary, no_primary(view)),
            },
        };
    };
    if !in_rw_endpoint(view, primary) {
        return not(
            Reason::NoPrimary,
            format!("{} leads, but Service {} doesn't lead to it yet", primary.name, view.parent.names.rw()),
        );
    }
    if let Some(full) = view.full_volumes(primary) {
        let message = format!("{} refuses writes: its {full} is full; reads work", primary.name);
        return not(Reason::VolumeFull, message);
    }
    let spec = &view.parent.cluster.spec;
    let needed = usize::try_from(spec.replicas - 1).unwrap_or(0).div_ceil(2);
    let streaming = view.pods().filter(|pod| pod.streams()).count();
    let reason = match view.told_full() {
        Some(_) => Reason::VolumeFull,
        None if view.established() => Reason::NoSynchronousStandby,
        None => Reason::Joining,
    };
    let full = view.told_full().map(|full| format!("; {full}")).unwrap_or_default();
    if effective_durability(spec.durability.mode, spec.replicas) == DurabilityMode::Quorum && streaming < needed {
        let fenced = match view.named(Health::Fenced) {
            none if none.is_empty() => String::new(),
            some => format!("; fenced: {}", names(&some)),
        };
        return not(
            reason,
            format!("durability quorum needs {needed} streaming standbys, {streaming} stream{fenced}{full}"),
        );
    }
    // A standby may not have noticed that nobody hears it.
    if primary.report.known().is_some_and(|report| report.commits_wait) {
        return not(
            reason,
            format!("commits on {} wait: too few standbys acknowledge them; reads work{full}", primary.name),
        );
    }
    Says {
        type_: READY,
        holds: Holds::Yes,
        reason: Reason::AsSpecified,
        message: format!("{} accepts writes at {}", primary.name, view.parent.names.rw()),
    }
}

fn progressing(view: &View<'_>, phase: Phase, operation: Option<OperationKind>) -> Says {
    let says = |holds: bool, reason, message: &str| Says {
        type_: PROGRESSING,
        holds: holds.into(),
        reason,
        message: message.to_owned(),
    };
    if let Some((reason, message)) = stopped(view) {
        return says(false, reason, &message);
    }
    match (operation, phase) {
        (None, _) => says(false, Reason::AsSpecified, "nothing is under way"),
        (Some(_), Phase::Provisioning) => says(true, Reason::Provisioning, "the cluster's objects are being created"),
        (Some(_), Phase::Bootstrapping) => match view.not_restored() {
            Some((reason, message)) => says(false, reason, &message),
            None => {
                let (reason, message) = comes_into_being(view);
                says(true, reason, message)
            }
        },
        (Some(OperationKind::ScaleDown), _) if super::paused(view.parent.cluster) => {
            says(false, Reason::Paused, "a scale-down begins no new step while the cluster is paused")
        }
        (Some(OperationKind::ScaleDown), _) => says(true, Reason::Provisioning, "instances are being removed"),
        (Some(OperationKind::ScaleUp), _) => says(true, Reason::Joining, "instances are joining"),
        (Some(OperationKind::Rollout), _) => match &view.rollout.stage {
            Stage::Stalled(why) => says(false, Reason::RolloutStalled, why),
            Stage::Paused => says(false, Reason::Paused, "a rollout begins no new step while the cluster is paused"),
            _ => says(
                true,
                Reason::RollingOut,
                "instances are restarted one by one, because what changed takes a restart",
            ),
        },
        (Some(OperationKind::Repair), _) => says(true, Reason::Restarting, "instances are being brought back"),
        (Some(_), _) => says(true, Reason::Joining, "instances are joining"),
    }
}

fn comes_into_being(view: &View<'_>) -> (Reason, &'static str) {
    match view.is_restored() {
        true => (Reason::Restoring, "the database is being restored"),
        false => (Reason::Bootstrapping, "the database is being initialised"),
    }
}

fn degraded(view: &View<'_>, phase: Phase) -> Says {
    let says = |holds: bool, reason, message| Says { type_: DEGRADED, holds: holds.into(), reason, message };
    if let Some((reason, message)) = view.first_trouble() {
        return says(true, reason, message);
    }
    if let Some(full) = view.told_full() {
        return says(true, Reason::VolumeFull, full);
    }
    match (phase, view.fenced_leader()) {
        (Phase::Unavailable, Some(leader)) => says(true, Reason::Fenced, fenced_leader(leader)),
        (Phase::Unavailable, None) => says(true, Reason::NoPrimary, no_primary(view)),
        (Phase::Degraded, _) => {
            let broken = view.named(Health::Broken);
            let back = view.named(Health::Coming);
            match (broken.is_empty(), back.is_empty()) {
                (false, _) => says(true, Reason::ReplicaUnhealthy, format!("not streaming: {}", told(&broken))),
                (true, false) => says(true, Reason::Restarting, format!("coming back: {}", told(&back))),
                (true, true) => says(true, Reason::Fenced, format!("fenced: {}", names(&view.named(Health::Fenced)))),
            }
        }
        _ => says(false, Reason::AsSpecified, "nothing is wrong".to_owned()),
    }
}

/// Whether the spec was understood, and what of it has no effect yet. Green while a field is ignored would be a lie.
fn accepted(view: &View<'_>) -> Says {
    let says = |holds: bool, reason, message| Says { type_: ACCEPTED, holds: holds.into(), reason, message };
    if let Verdict::Invalid(message) = view.verdict {
        return says(false, Reason::InvalidSpec, message.clone());
    }
    if let Some((secret, key)) = view.missing_owner_password() {
        let message = format!(
            "spec.bootstrap.initdb.ownerPassword: key {key:?} in Secret {secret:?} isn't there: create it, or leave the field out to \
             have a password generated"
        );
        return says(false, Reason::InvalidSpec, message);
    }
    let idle = not_acted_on(view);
    if idle.is_empty() {
        return says(true, Reason::AsSpecified, "accepted, and all of it is acted on".to_owned());
    }
    says(true, Reason::NotYetActedOn, format!("accepted, but not acted on by this release: {}", idle.join(", ")))
}

/// Fields that this release stores and ignores. Monitoring is on by default, so that the list is rarely empty.
fn not_acted_on(view: &View<'_>) -> Vec<&'static str> {
    let spec = &view.parent.cluster.spec;
    let mut fields = vec![];
    // Without a store there is nowhere to put a backup, and nothing to remove.
    if spec.backup.store.is_none() {
        fields.extend(["spec.backup.schedule", "spec.backup.retention"]);
    }
    fields.extend(spec.monitoring.enabled.then_some("spec.monitoring.enabled"));
    fields.extend((spec.automation.updates != AutomationGate::Auto).then_some("spec.automation.updates"));
    fields
}

fn synced(view: &View<'_>) -> Says {
    let says = |holds: bool, reason, message| Says { type_: SYNCED, holds: holds.into(), reason, message };
    let rollout = view.rollout;
    let each = |(name, lacks): (&String, &String)| format!("{name}: {lacks}");
    let mut outdated: Vec<_> = rollout.outdated.iter().map(each).collect();
    outdated.extend(rollout.unsure.iter().map(|name| format!("{name}: it has not read spec.parameters as they are")));
    let held = |name: &&String| !rollout.outdated.contains_key(*name);
    let held = rollout.held.iter().filter(held);
    outdated
        .extend(held.map(|name| format!("{name}: it has more than spec.parameters say, as long as its primary had")));
    let outdated = outdated.join("; ");
    match &rollout.stage {
        Stage::Stalled(why) if outdated.is_empty() => says(false, Reason::RolloutStalled, why.clone()),
        Stage::Stalled(why) => {
            says(false, Reason::RolloutStalled, format!("{why}; nothing more is restarted. {outdated}"))
        }
        Stage::Paused => says(false, Reason::Paused, outdated),
        _ if outdated.is_empty() => match super::growth::told(view.observed, view.parent) {
            Some((reason, told)) => says(false, reason, told),
            None => says(true, Reason::AsSpecified, "every instance runs with the spec as it is".to_owned()),
        },
        _ => says(false, Reason::RollingOut, outdated),
    }
}

/// Whether a person wants no new step, by the annotation. A value that means nothing is said too: who set it relies on it.
fn paused(view: &View<'_>) -> Option<Says> {
    let value = view.parent.cluster.annotations().get(labels::PAUSED)?;
    let holds = super::paused(view.parent.cluster);
    let message = match holds {
        true => format!("no rollout and no scale-down begins a new step until {} is removed", labels::PAUSED),
        false => format!("{} is {value:?}, which pauses nothing; \"true\" does", labels::PAUSED),
    };
    Some(Says { type_: PAUSED, holds: holds.into(), reason: Reason::Paused, message })
}

/// Said only where there is something to spread, and once everybody has a node.
fn spread(view: &View<'_>) -> Option<Says> {
    let pods: Vec<&Pod> = view.pods().collect();
    let nodes: Option<BTreeSet<&str>> = pods.iter().map(|pod| pod.node.as_deref()).collect();
    let nodes = nodes.filter(|_| pods.len() > 1)?;
    Some(match nodes.len() {
        1 => Says {
            type_: SPREAD,
            holds: Holds::No,
            reason: Reason::SharedFailureDomain,
            message: format!(
                "all {} instances are on node {}",
                pods.len(),
                nodes.into_iter().next().unwrap_or_default()
            ),
        },
        count => Says {
            type_: SPREAD,
            holds: Holds::Yes,
            reason: Reason::AsSpecified,
            message: format!("{} instances on {count} nodes", pods.len()),
        },
    })
}

/// Who is fenced, by the annotation, and how far that has come. It is a wish, so a name that no instance has is said here too.
fn fenced(view: &View<'_>) -> Option<Says> {
    if *view.fences == Fences::default() {
        return None;
    }
    let stopped = names(&view.named(Health::Fenced));
    let mut parts = vec![];
    if !stopped.is_empty() {
        parts.push(format!(
            "PostgreSQL is stopped on {stopped} until {} no longer names it (`bellwether unfence`)",
            labels::FENCED
        ));
    }
    let not_yet = |name: &&String| !view.named(Health::Fenced).iter().any(|(other, _)| other == *name);
    let stopping: Vec<_> = view.fences.instances.iter().filter(not_yet).map(String::as_str).collect();
    if !stopping.is_empty() {
        parts.push(format!("to be stopped: {}", stopping.join(", ")));
    }
    if !view.fences.strangers.is_empty() {
        let there = view.members.wanted.join(", ");
        let strangers = view.fences.strangers.join(", ");
        parts.push(format!("{} names {strangers}, which no instance is called; there are {there}", labels::FENCED));
    }
    let holds = !view.fences.instances.is_empty();
    Some(Says { type_: FENCED, holds: holds.into(), reason: Reason::Fenced, message: parts.join("; ") })
}

/// The record on the Lease, in words.
fn forced(view: &View<'_>) -> Option<Says> {
    let record = view.observed.own_lease()?.forced.as_ref()?;
    Some(Says { type_: FORCED, holds: Holds::Yes, reason: Reason::ForcedFailover, message: record.to_string() })
}

fn fenced_leader(leader: &str) -> String {
    format!("{leader} leads by the Lease and is fenced, and no standby could take over")
}

/// Nothing will happen before a person, or something outside, does its part.
pub(super) fn stopped(view: &View<'_>) -> Option<(Reason, String)> {
    match view.verdict {
        Verdict::Invalid(message) => Some((Reason::InvalidSpec, message.clone())),
        Verdict::Refused(reason, message) => Some((*reason, message.clone())),
        Verdict::Waiting(WaitingOn::Volumes(names)) => Some((
            Reason::WaitingForVolumes,
            format!("volumes of a deleted cluster are being removed: {}", names.join(", ")),
        )),
        Verdict::Waiting(WaitingOn::Source(why)) => Some((Reason::RecoverySourceMissing, why.clone())),
        Verdict::Waiting(on) => Some((Reason::Provisioning, format!("waiting for {on}"))),
        Verdict::Go => None,
    }
}

fn no_primary(view: &View<'_>) -> String {
    match view.observed.leader() {
        Some(leader) => format!("{leader} leads by the Lease, but does not accept writes"),
        None => "no instance leads".to_owned(),
    }
}

fn in_rw_endpoint(view: &View<'_>, primary: &Pod) -> bool {
    let Some(slice) = view.observed.object(Kind::EndpointSlice, &view.parent.names.rw()).known().copied() else {
        return false;
    };
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let mut addresses = endpoints.flat_map(|endpoint| endpoint["addresses"].as_array().into_iter().flatten());
    primary.ip.as_deref().is_some_and(|ip| addresses.any(|address| address == ip))
}

fn names(instances: &[(String, Option<String>)]) -> String {
    instances.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
}

fn told(instances: &[(String, Option<String>)]) -> String {
    let one = |(name, message): &(String, Option<String>)| match message {
        Some(message) => format!("{name} ({message})"),
        None => name.clone(),
    };
    instances.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The status after the API server refused something: the refusal is said, and the rest stands.
pub fn refused(
    mut status: PostgresClusterStatus,
    before: Option<&PostgresClusterStatus>,
    message: String,
    now: Timestamp,
) -> PostgresClusterStatus {
    put(&mut status, before, Says { type_: DEGRADED, holds: Holds::Yes, reason: Reason::ApiRefused, message }, now);
    status
}

/// The status after volumes were refused to become larger: that is said, and the rest stands.
pub fn not_grown(
    mut status: PostgresClusterStatus,
    before: Option<&PostgresClusterStatus>,
    message: String,
    now: Timestamp,
) -> PostgresClusterStatus {
    put(&mut status, before, Says { type_: SYNCED, holds: Holds::No, reason: Reason::VolumeNotGrown, message }, now);
    status
}

/// Says this in place of what the condition says.
fn put(status: &mut PostgresClusterStatus, before: Option<&PostgresClusterStatus>, says: Says, now: Timestamp) {
    let old = before.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let condition = stamped(says, old, status.observed_generation, super::whole_seconds(now));
    match status.conditions.iter_mut().find(|other| other.type_ == condition.type_) {
        Some(other) => *other = condition,
        None => status.conditions.push(condition),
    }
}

impl View<'_> {
    /// The first that something keeps from running, and what.
    fn first_trouble(&self) -> Option<(Reason, String)> {
        let of_pod = || {
            let pod = self.pods().find(|pod| pod.trouble.is_some())?;
            let message = format!("{}: {}", pod.name, self.said(pod).unwrap_or_default());
            Some((pod.trouble.as_ref()?.reason, message))
        };
        stuck::lost_volume(self.observed, self.parent)
            .or_else(of_pod)
            .or_else(|| self.not_restored())
            .or_else(|| stuck::lost_node(self.observed, self.parent, self.now))
    }

    /// Why the database is not restored, and won't be by waiting.
    fn not_restored(&self) -> Option<(Reason, String)> {
        self.pods().find_map(|pod| {
            let reason = match pod.recovery()? {
                RecoveryState::Restoring => return None,
                RecoveryState::NoSource => Reason::RecoverySourceMissing,
                RecoveryState::OutOfReach => Reason::RecoveryTargetUnreachable,
                RecoveryState::Failed => Reason::RecoveryFailed,
            };
            Some((reason, format!("{}: {}", pod.name, self.said(pod).unwrap_or_default())))
        })
    }

    /// Every instance with a volume that is full, and which.
    fn told_full(&self) -> Option<String> {
        let full = self.pods().filter_map(|pod| Some((&pod.name, self.full_volumes(pod)?)));
        let told: Vec<_> = full.map(|(name, volumes)| format!("{name}: its {volumes} is full")).collect();
        (!told.is_empty()).then(|| told.join(", "))
    }

    /// Whether the leader by the Lease is full.
    fn leader_full(&self) -> Option<String> {
        let leader = self.observed.leader()?;
        let pod = self.pods().find(|pod| pod.name == leader)?;
        Some(format!("{leader} leads by the Lease, but its {} is full", self.full_volumes(pod)?))
    }
}
