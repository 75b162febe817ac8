//! Decides what is said about the cluster: its phase, its instances, the operation under way and what that waits on.
//!
//! From: what was seen, and the status as it was (a step keeps the time it began; "was ready once" tells a cluster that comes
//! up from one that fell over). Never: says ready of what only reported so and is gone: the kubelet must agree.

use std::collections::BTreeSet;

use bellwether_api::labels;
use bellwether_api::reason::Reason;
use bellwether_api::v1::{
    InstanceRole, InstanceState, InstanceStatus, Operation, OperationKind, OperationStep, Phase, PostgresCluster,
    PostgresClusterStatus,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::adopt::Identity;
use super::backed_up;
use super::backup::Backups;
use super::conditions;
use super::instances::{Members, ours};
use super::joining;
use super::rollout::{Rollout, Stage};
use super::schedule;
use super::verified;
use super::{WaitingOn, effective_durability};
use crate::build::Parent;
use crate::fence::Fences;
use crate::instance::space::VolumeKind;
use crate::observed::{Observed, Pod};

/// Whether the spec is being acted on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Yes.
    Go,
    /// Not yet.
    Waiting(WaitingOn),
    /// No: what is there forbids it.
    Refused(Reason, String),
    /// No: the spec can't be acted on.
    Invalid(String),
}

/// What the status is made from.
pub(super) struct View<'a> {
    pub observed: &'a Observed,
    pub parent: &'a Parent<'a>,
    pub identity: &'a Identity,
    pub members: &'a Members,
    pub joining: &'a BTreeSet<String>,
    pub rollout: &'a Rollout,
    pub verdict: &'a Verdict,
    pub fences: &'a Fences,
    pub backups: &'a Backups,
    pub now: Timestamp,
}

/// How an instance is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// It leads or streams, and answers.
    Good,
    /// It is on its way there.
    Coming,
    /// It is not, and won't be by waiting.
    Broken,
    /// PostgreSQL is stopped there, as a person wants it.
    Fenced,
}

impl View<'_> {
    /// The status before.
    pub fn before(&self) -> Option<&PostgresClusterStatus> {
        self.parent.cluster.status.as_ref()
    }

    /// The cluster's pods.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.observed.pods.items.values().filter(|pod| ours(pod, self.parent))
    }

    /// The primary, if it accepts writes: by the Lease, by its own account, and by the kubelet's.
    pub fn leading(&self) -> Option<&Pod> {
        let leader = self.observed.leader()?;
        self.pods().find(|pod| pod.name == leader && pod.leads())
    }

    /// The instance that the Lease names, if it is fenced: nobody has taken over.
    pub fn fenced_leader(&self) -> Option<&str> {
        self.observed.leader().filter(|leader| self.health(leader) == Health::Fenced)
    }

    /// Whether its database is one that is restored.
    pub fn is_restored(&self) -> bool {
        self.parent.cluster.spec.bootstrap.recovery.is_some()
    }

    /// Whether the cluster has been as specified before: from then on, what is missing is missing and not still coming.
    pub fn established(&self) -> bool {
        self.before().is_some_and(|status| {
            let creating = status.operation.as_ref().is_some_and(|operation| operation.kind == OperationKind::Create);
            match status.phase {
                Some(Phase::Ready | Phase::Degraded | Phase::Unavailable) => true,
                Some(Phase::Joining) => !creating,
                _ => false,
            }
        })
    }

    /// Whether the operation before was a rollout.
    fn was_rolling(&self) -> bool {
        let operation = self.before().and_then(|status| status.operation.as_ref());
        operation.is_some_and(|operation| operation.kind == OperationKind::Rollout)
    }

    /// Wanted instances of the given health, with what they say.
    pub fn named(&self, health: Health) -> Vec<(String, Option<String>)> {
        let wanted = self.members.wanted.iter().filter(|name| self.health(name) == health);
        wanted.map(|name| (name.clone(), self.pod(name).and_then(|pod| self.said(pod)))).collect()
    }

    /// The Secret and key that the user named for the owner's password, while the cluster can't go on without it.
    pub fn missing_owner_password(&self) -> Option<(String, String)> {
        let from = self.parent.cluster.spec.bootstrap.initdb.owner_password.as_ref()?;
        let has =
            |secret: &crate::observed::Secret| secret.keys.iter().any(|key| key == crate::contract::key::PASSWORD);
        let app = self.observed.secrets.items.get(&self.parent.names.app());
        let there = self.observed.owner_password.known().is_some() || app.is_some_and(has);
        (!there).then(|| (from.name.clone(), from.key.clone()))
    }

    /// What keeps an instance.
    pub fn said(&self, pod: &Pod) -> Option<String> {
        said(pod, self.before())
    }

    fn pod(&self, name: &str) -> Option<&Pod> {
        self.pods().find(|pod| pod.name == name)
    }

    fn health(&self, name: &str) -> Health {
        health(self.pod(name), self.fences)
    }

    /// The volumes of an instance that are full, by the names of their claims.
    pub fn full_volumes(&self, pod: &Pod) -> Option<String> {
        let names = &self.parent.names;
        let claim = |kind: &VolumeKind| match kind {
            VolumeKind::Data => format!("{kind} {}", names.data_volume(&pod.name)),
            VolumeKind::Wal => format!("{kind} {}", names.wal_volume(&pod.name)),
        };
        let full: Vec<_> = pod.full().iter().map(claim).collect();
        (!full.is_empty()).then(|| full.join(" and "))
    }

    /// Whether all that is missing is being added, and nothing that was there is.
    fn only_joining(&self) -> bool {
        let missing = |name: &&String| matches!(self.health(name), Health::Coming | Health::Broken);
        self.members.wanted.iter().filter(missing).all(|name| self.joining.contains(name))
    }
}

/// How an instance with this pod is doing.
pub(super) fn health(pod: Option<&Pod>, fences: &Fences) -> Health {
    let Some(pod) = pod else { return Health::Coming };
    match pod.state() {
        _ if pod.trouble.is_some() || pod.report.is_unknown() => Health::Broken,
        _ if !pod.full().is_empty() => Health::Broken,
        InstanceState::Leading | InstanceState::Streaming if pod.answers() => Health::Good,
        InstanceState::NotStreaming | InstanceState::Down => Health::Broken,
        InstanceState::Fenced if fences.instances.contains(&pod.name) => Health::Fenced,
        _ => Health::Coming,
    }
}

/// What keeps an instance, in the words of whoever knows best. The kubelet words one failing pull in turns ("ErrImagePull",
/// "Back-off"): the first wording stays, so that it doesn't make a write every few seconds.
pub(super) fn said(pod: &Pod, before: Option<&PostgresClusterStatus>) -> Option<String> {
    if pod.terminating {
        return Some("stopping".to_owned());
    }
    let Some(trouble) = &pod.trouble else { return pod.report.known()?.message.clone() };
    let before = before.and_then(|status| status.instances.iter().find(|old| old.name == pod.name));
    let worded = before.and_then(|old| old.message.clone()).filter(|old| {
        let subject = |text: &str| text.split(": ").next().map(str::to_owned);
        trouble.reason == Reason::ImageUnavailable && subject(old) == subject(&trouble.message)
    });
    Some(worded.unwrap_or_else(|| trouble.message.clone()))
}

/// The whole status.
pub(super) fn status(view: &View<'_>, waiting_on: &[WaitingOn]) -> PostgresClusterStatus {
    let phase = phase(view);
    let kind = operation_kind(view, phase);
    let spec = &view.parent.cluster.spec;
    let lease = view.observed.own_lease();
    let before = view.before();
    let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    PostgresClusterStatus {
        observed_generation: view.parent.cluster.metadata.generation,
        phase: Some(phase),
        conditions: conditions::conditions(view, phase, kind),
        // Who led last stays while nobody does: adoption and people both look for it.
        primary: view.observed.leader().map(str::to_owned).or_else(|| before?.primary.clone()),
        term: lease.and_then(|lease| i64::try_from(lease.term?).ok()).or_else(|| before?.term),
        system_identifier: view
            .identity
            .system
            .map(|system| system.to_string())
            .or_else(|| before?.system_identifier.clone()),
        replicas: count(view.pods().count()),
        ready_replicas: count(view.pods().filter(|pod| pod.answers()).count()),
        selector: Some(format!("{}={}", labels::CLUSTER, view.parent.names.cluster())),
        instances: instances(view),
        durability: Some(effective_durability(spec.durability.mode, spec.replicas)),
        operation: kind.map(|kind| operation(view, kind, phase, waiting_on)),
        last_backup: backed_up::last_completed(view).map(Time),
        last_verified_backup: verified::last(view).map(Time),
        recoverable_from: backed_up::recoverable_from(view).map(Time),
        recoverable_to: backed_up::recoverable_to(view).map(Time),
        last_scheduled_backup: schedule::last(view.observed, view.parent).map(Time),
    }
}

/// What the cluster itself waits on, beyond what its objects do.
pub(super) fn waiting(view: &View<'_>) -> Vec<WaitingOn> {
    if *view.verdict != Verdict::Go {
        return vec![];
    }
    if view.leading().is_none() {
        if let Some(fenced) = view.fenced_leader() {
            return vec![WaitingOn::Fenced(fenced.to_owned())];
        }
        let leader = view.observed.leader();
        return match (leader, view.members.wanted.first()) {
            (None, Some(first)) if view.identity.system.is_none() => {
                let first = view
                    .observed
                    .config
                    .known()
                    .map(|config| config.bootstrap_instance.clone())
                    .unwrap_or(first.clone());
                let message = view.pod(&first).and_then(|pod| view.said(pod));
                match view.is_restored() {
                    true => vec![WaitingOn::Restore(first, message)],
                    false => vec![WaitingOn::Bootstrap(first, message)],
                }
            }
            (leader, _) => vec![WaitingOn::Primary(leader.or(view.identity.primary.as_deref()).map(str::to_owned))],
        };
    }
    if let Some(primary) = view.leading().filter(|primary| !primary.full().is_empty()) {
        return vec![WaitingOn::Primary(Some(primary.name.clone()))];
    }
    let comes =
        |name: &&String| matches!(view.health(name), Health::Coming | Health::Broken) || view.joining.contains(*name);
    let doing = |name: &String| {
        let pod = view.pod(name);
        (name.clone(), joining::doing(pod, pod.and_then(|pod| view.said(pod))))
    };
    let coming: Vec<_> = view.members.wanted.iter().filter(comes).map(doing).collect();
    if coming.is_empty() { vec![] } else { vec![WaitingOn::Joins(coming)] }
}

fn phase(view: &View<'_>) -> Phase {
    match view.verdict {
        Verdict::Invalid(_) | Verdict::Refused(..) => return Phase::Invalid,
        Verdict::Waiting(_) => return Phase::Provisioning,
        Verdict::Go => {}
    }
    if view.leading().is_none() {
        return coming_up(view);
    }
    let (coming, broken) = (view.named(Health::Coming), view.named(Health::Broken));
    let fenced = !view.named(Health::Fenced).is_empty();
    let missing = !coming.is_empty() || !broken.is_empty();
    if !view.established() && (missing || !view.joining.is_empty()) {
        return Phase::Joining;
    }
    match view.only_joining() {
        true if broken.is_empty() && !view.joining.is_empty() => Phase::Joining,
        true if broken.is_empty() && !fenced => Phase::Ready,
        _ => Phase::Degraded,
    }
}

/// Nobody leads: not yet, or no longer.
fn coming_up(view: &View<'_>) -> Phase {
    // Standbys have copies of a database that nobody leads: whatever made them led once.
    let abandoned = view.pods().any(|pod| pod.state() == InstanceState::NotStreaming);
    if view.established() || abandoned {
        return Phase::Unavailable;
    }
    let initialising = view.pods().any(|pod| {
        matches!(pod.state(), InstanceState::Bootstrapping | InstanceState::Starting | InstanceState::Leading)
            || pod.recovery().is_some()
    });
    if initialising { Phase::Bootstrapping } else { Phase::Provisioning }
}

/// Nothing is missing but what a person has stopped.
fn only_fenced(view: &View<'_>) -> bool {
    view.named(Health::Coming).is_empty() && view.named(Health::Broken).is_empty()
}

fn operation_kind(view: &View<'_>, phase: Phase) -> Option<OperationKind> {
    let rolling = view.established() && view.rollout.stage != Stage::Done;
    match phase {
        // A primary that fails by itself is a repair; one that a rollout restarts, or that hands over, is not.
        Phase::Ready | Phase::Joining | Phase::Degraded if rolling => Some(OperationKind::Rollout),
        Phase::Unavailable if rolling && view.was_rolling() => Some(OperationKind::Rollout),
        Phase::Provisioning | Phase::Bootstrapping => Some(OperationKind::Create),
        Phase::Joining if !view.established() => Some(OperationKind::Create),
        Phase::Joining => Some(OperationKind::ScaleUp),
        Phase::Degraded if !only_fenced(view) && view.only_joining() => Some(OperationKind::ScaleUp),
        // A fence is no repair: nothing is under way before it is lifted.
        Phase::Degraded if !only_fenced(view) => Some(OperationKind::Repair),
        Phase::Unavailable => Some(OperationKind::Repair),
        Phase::Ready | Phase::Degraded if !view.members.surplus.is_empty() => Some(OperationKind::ScaleDown),
        Phase::Ready | Phase::Degraded | Phase::Invalid | Phase::Deleting => None,
    }
}

fn operation(view: &View<'_>, kind: OperationKind, phase: Phase, waiting_on: &[WaitingOn]) -> Operation {
    let step = match (kind, phase) {
        (OperationKind::ScaleUp, _) => joining::step(view.observed, view.joining),
        (OperationKind::ScaleDown, _) => view.members.leave.step.unwrap_or(OperationStep::Leaving),
        (OperationKind::Rollout, _) => view.rollout.stage.step(),
        (_, Phase::Unavailable) => OperationStep::Unavailable,
        (_, Phase::Provisioning) => OperationStep::Provisioning,
        (_, Phase::Bootstrapping) if view.is_restored() => OperationStep::Restoring,
        (_, Phase::Bootstrapping) => OperationStep::Bootstrapping,
        (_, Phase::Joining) => OperationStep::Joining,
        (_, Phase::Ready | Phase::Degraded | Phase::Invalid | Phase::Deleting) => OperationStep::Degraded,
    };
    let before = view.before().and_then(|status| status.operation.as_ref());
    let going_on = before.filter(|before| before.kind == kind && before.step == step);
    let waiting: Vec<_> = waiting_on.iter().map(ToString::to_string).collect();
    Operation {
        kind,
        step,
        since: going_on.map_or(Time(view.now), |before| before.since.clone()),
        waiting_on: waiting.join("; "),
    }
}

fn instances(view: &View<'_>) -> Vec<InstanceStatus> {
    let mut instances: Vec<_> = view.pods().map(|pod| instance(view, pod)).collect();
    // Who is to join is remembered before it has a pod.
    let to_come = view.joining.iter().filter(|name| view.pod(name).is_none());
    instances.extend(to_come.map(|name| InstanceStatus {
        name: name.clone(),
        joining: true,
        ..InstanceStatus::default()
    }));
    instances.sort_by_key(|instance| view.parent.names.serial(&instance.name));
    instances
}

fn instance(view: &View<'_>, pod: &Pod) -> InstanceStatus {
    let report = pod.report.known();
    InstanceStatus {
        name: pod.name.clone(),
        role: pod.role().filter(|role| *role != InstanceRole::Primary || !pod.terminating),
        state: pod.state(),
        ready: pod.answers(),
        timeline: report.and_then(|report| report.timeline).map(|timeline| i64::from(timeline.0)),
        node: pod.node.clone(),
        joining: view.joining.contains(&pod.name),
        message: view.said(pod),
    }
}

/// The status of a cluster whose deletion waits for something.
pub(super) fn deleting(cluster: &PostgresCluster, now: Timestamp) -> PostgresClusterStatus {
    let mut status = cluster.status.clone().unwrap_or_default();
    let ready = |condition: &Condition| condition.type_ == conditions::READY;
    if status.phase != Some(Phase::Deleting) {
        let since =
            status.conditions.iter().find(|c| ready(c) && c.status == "False").map(|c| c.last_transition_time.clone());
        status.conditions.retain(|condition| !ready(condition));
        status.conditions.insert(
            0,
            Condition {
                type_: conditions::READY.to_owned(),
                status: "False".to_owned(),
                reason: Reason::Deleting.to_string(),
                message: "the cluster is being deleted".to_owned(),
                last_transition_time: since.unwrap_or(Time(now)),
                observed_generation: cluster.metadata.generation,
            },
        );
        status.phase = Some(Phase::Deleting);
        status.operation = None;
    }
    status
}
