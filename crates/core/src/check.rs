//! Decides whether a finished plan may be carried out: a second pair of eyes that knows only the invariants.
//!
//! It looks at the plan and at what was observed, and shares no code with the decisions. Never passes: the deletion of a volume of
//! a live instance or of the last copy, the removal of the primary, of one that commits need, of a member of the election that nobody was told
//! leaves, or of two at once; anything destructive on facts that are unknown, a
//! destructive action without the identity of what it was decided on, a write to a Lease that exists (but for the request to hand over, and
//! that only where another could), a restart of an instance while another goes, an order to take a backup for an instance that nobody knows, a configuration by which
//! a cluster that is to be restored would be initialised, or a pod that verifies a backup on an
//! instance's volume.

use std::fmt;

use bellwether_api::labels;
use bellwether_api::names::CONFIG_KEY;
use bellwether_api::v1::{DurabilityMode, InstanceRole, OnDelete};
use kube::ResourceExt;

use crate::contract::InstanceConfig;
use crate::fact::Fact;
use crate::object::{Desired, Kind};
use crate::observed::{Observed, PodPhase};
use crate::plan::{Action, Effect, Plan, Target};

/// Why a plan must not be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{action} is forbidden: {rule}")]
pub struct Violation {
    /// The action.
    pub action: String,
    /// The rule that it breaks.
    pub rule: Rule,
}

/// The rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Nothing is destroyed on facts that are unknown.
    Sight,
    /// What is destroyed is named by UID and version, as it was seen.
    Precondition,
    /// The primary is not removed.
    Primary,
    /// A volume is not deleted while its pod is there.
    LiveVolume,
    /// A volume is deleted only where its mark says so.
    Retain,
    /// A volume of a cluster that lives is deleted only while another instance leads.
    LastCopy,
    /// The Lease is the agents'.
    Lease,
    /// At most one instance is restarted or removed, while nobody else goes.
    OneAtATime,
    /// No instance is removed that commits need.
    Quorum,
    /// No member of the election is removed that the agents were not told of.
    Member,
    /// Nobody is asked to hand over while nobody could take over.
    Successor,
    /// A backup is ordered of an instance that is there.
    Taker,
    /// What verifies a backup is no instance, and has no instance's volume.
    Verifier,
    /// A cluster that is to be restored is never initialised.
    Restored,
}

impl Rule {
    /// Every rule, for tests.
    pub const ALL: [Self; 14] = [
        Self::Sight,
        Self::Precondition,
        Self::Primary,
        Self::LiveVolume,
        Self::Retain,
        Self::LastCopy,
        Self::Lease,
        Self::OneAtATime,
        Self::Quorum,
        Self::Member,
        Self::Successor,
        Self::Taker,
        Self::Verifier,
        Self::Restored,
    ];
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sight => "it destroys something on facts that are unknown",
            Self::Precondition => "it does not name what was observed",
            Self::Primary => "it removes an instance that leads or may lead",
            Self::LiveVolume => "it deletes a volume whose pod is there",
            Self::Retain => "it deletes a volume that is not marked for deletion",
            Self::LastCopy => "it deletes a volume of a live cluster while no other instance is known to have the data",
            Self::Lease => "it writes a Lease that exists",
            Self::OneAtATime => "it restarts or removes an instance while another goes",
            Self::Quorum => "it removes a standby that commits need",
            Self::Member => "it removes a member of the election that nobody was told leaves",
            Self::Successor => "it asks a primary to hand over while nobody could take over",
            Self::Taker => "it orders a backup of an instance that nobody knows",
            Self::Restored => "it tells agents to make an empty database where a restored one is wanted",
            Self::Verifier => {
                "it makes a pod to verify a backup that is taken for an instance, or has an instance's volume"
            }
        })
    }
}

/// Everything that is wrong with the plan.
pub fn check(plan: &Plan, observed: &Observed) -> Result<(), Vec<Violation>> {
    let broken = |action| broken_rule(action, observed).or_else(|| crowded(action, plan, observed));
    let violations: Vec<_> = plan
        .actions
        .iter()
        .filter_map(|action| broken(action).map(|rule| Violation { action: action.to_string(), rule }))
        .collect();
    if violations.is_empty() { Ok(()) } else { Err(violations) }
}

fn broken_rule(action: &Action, observed: &Observed) -> Option<Rule> {
    match &action.effect {
        Effect::DeletePod(target) => pod(target, observed).or_else(|| removal(target, observed)),
        Effect::RestartPod(target) => restart(target, observed),
        Effect::AskSwitchover { target, wish } => switchover(target, wish.is_some(), observed),
        Effect::DeleteVolume(target) => volume(target, observed),
        Effect::Apply(desired) if desired.kind == Kind::Lease => Some(Rule::Lease),
        Effect::Create(desired) if desired.kind == Kind::Lease && !observed.lease.is_absent() => Some(Rule::Lease),
        Effect::Apply(desired) if desired.kind == Kind::ConfigMap => configured(desired, observed),
        Effect::CreateVerifier(desired) => verifier(desired),
        Effect::DeleteVerifier(target) => spent(target, observed),
        Effect::Apply(_)
        | Effect::Create(_)
        | Effect::Issue(_)
        | Effect::AnnotateVolume { .. }
        | Effect::AnnotatePod { .. }
        | Effect::GrowVolume { .. }
        | Effect::BackupStatus { .. } => None,
    }
}

/// A pod that is made to verify a backup.
fn verifier(desired: &Desired) -> Option<Rule> {
    let labels = &desired.value["metadata"]["labels"];
    let apart = labels[labels::CLUSTER].is_null() && labels[labels::VERIFIES].is_string();
    let mut volumes = desired.value["spec"]["volumes"].as_array().into_iter().flatten();
    let shared = volumes.any(|volume| !volume["persistentVolumeClaim"].is_null());
    (!apart || shared || desired.kind != Kind::Pod).then_some(Rule::Verifier)
}

/// A pod that verified a backup, and is to go.
fn spent(target: &Target, observed: &Observed) -> Option<Rule> {
    let Fact::Known(pod) = observed.verifiers.get(&target.name) else { return Some(Rule::Precondition) };
    (pod.uid != target.uid || pod.resource_version != target.resource_version).then_some(Rule::Precondition)
}

fn blind(observed: &Observed) -> bool {
    !observed.pods.complete
        || !observed.volumes.complete
        || observed.lease.is_unknown()
        || observed.cluster.is_unknown()
}

fn pod(target: &Target, observed: &Observed) -> Option<Rule> {
    let Fact::Known(pod) = observed.pods.get(&target.name) else { return Some(Rule::Precondition) };
    if pod.uid != target.uid || pod.resource_version != target.resource_version {
        return Some(Rule::Precondition);
    }
    // Its containers are gone already: deleting the object is what lets it come back.
    if pod.phase == PodPhase::Ended {
        return None;
    }
    // No PostgreSQL ever ran in it: whoever leads, it isn't this one.
    if pod.never_ran && pod.phase == PodPhase::Pending && pod.report.is_absent() {
        return None;
    }
    if blind(observed) || pod.report.is_unknown() {
        return Some(Rule::Sight);
    }
    let leads = observed.leader() == Some(&target.name) || pod.role() == Some(InstanceRole::Primary);
    (leads || observed.leader().is_none()).then_some(Rule::Primary)
}

/// What a scale-down may remove, beyond what any pod may be.
fn removal(target: &Target, observed: &Observed) -> Option<Rule> {
    let pod = observed.pods.items.get(&target.name)?;
    if pod.phase == PodPhase::Ended || pod.never_ran {
        return None;
    }
    let spec = observed.cluster.known().map(|cluster| &cluster.spec);
    let quorum = spec.filter(|spec| {
        let by_size = spec.durability.mode.is_none() && spec.replicas > 2;
        by_size || spec.durability.mode == Some(DurabilityMode::Quorum)
    });
    let needed = quorum.map_or(0, |spec| usize::try_from(spec.replicas / 2).unwrap_or(0));
    let others = observed.pods.items.values().filter(|other| other.name != pod.name && other.owner == pod.owner);
    if pod.streams() && others.filter(|other| other.streams()).count() < needed {
        return Some(Rule::Quorum);
    }
    let identity = pod.report.known().and_then(|report| report.identity.as_ref()).unwrap_or(&pod.uid);
    let members = observed.own_lease().and_then(|lease| lease.members.as_ref());
    let member = members.is_some_and(|members| members.contains(identity));
    let told = observed.config.known().is_some_and(|config| config.is_leaving(&pod.name));
    (member && !told).then_some(Rule::Member)
}

/// What a rollout may restart: a standby, or the only instance there is.
fn restart(target: &Target, observed: &Observed) -> Option<Rule> {
    let seen = match pod(target, observed) {
        Some(Rule::Primary) => observed.pods.items.get(&target.name)?,
        broken => return broken,
    };
    let alone = observed.pods.items.values().all(|other| other.name == seen.name || other.owner != seen.owner);
    let single = observed.cluster.known().is_some_and(|cluster| cluster.spec.replicas == 1);
    let leads = observed.leader() == Some(&target.name) && seen.leads();
    (!alone || !single || !leads).then_some(Rule::Primary)
}

/// Whether an instance is restarted or removed while another goes. Pods in which nothing runs don't count.
fn crowded(action: &Action, plan: &Plan, observed: &Observed) -> Option<Rule> {
    let runs =
        |name: &str| observed.pods.items.get(name).is_some_and(|pod| pod.phase != PodPhase::Ended && !pod.never_ran);
    let (target, restarts) = match &action.effect {
        Effect::RestartPod(target) => (target, true),
        Effect::DeletePod(target) if runs(&target.name) => (target, false),
        _ => return None,
    };
    let goes = |action: &&Action| match &action.effect {
        Effect::DeletePod(other) | Effect::RestartPod(other) => other.name != target.name && runs(&other.name),
        _ => false,
    };
    // A pod that somebody else deletes is no reason to keep one too many; commits are counted without it.
    let stopping = restarts && observed.pods.items.values().any(|pod| pod.terminating);
    (stopping || plan.actions.iter().any(|action| goes(&action))).then_some(Rule::OneAtATime)
}

fn switchover(target: &Target, wished: bool, observed: &Observed) -> Option<Rule> {
    let Some(lease) = observed.own_lease() else { return Some(Rule::Sight) };
    if lease.uid != target.uid || lease.resource_version != target.resource_version {
        return Some(Rule::Precondition);
    }
    let leader = observed.leader();
    let successor = observed.pods.items.values().any(|pod| Some(pod.name.as_str()) != leader && pod.streams());
    (wished && !successor).then_some(Rule::Successor)
}

/// What agents are told.
fn configured(desired: &Desired, observed: &Observed) -> Option<Rule> {
    let text = desired.value["data"][CONFIG_KEY].as_str().unwrap_or_default();
    let config: InstanceConfig = serde_json::from_str(text).ok()?;
    let restored = observed.cluster.known().is_some_and(|cluster| cluster.spec.bootstrap.recovery.is_some());
    if restored && config.recovery.is_none() && config.system_identifier.is_none() {
        return Some(Rule::Restored);
    }
    taker(&config, observed)
}

/// Nobody would take the backup, and no other would be taken before it is over. What was ordered before stays, also while pods can't be seen.
fn taker(config: &InstanceConfig, observed: &Observed) -> Option<Rule> {
    let order = config.archive.as_ref()?.order.as_ref()?;
    let before = observed.config.known().and_then(|config| config.archive.as_ref()?.order.as_ref());
    let known = observed.pods.items.contains_key(&order.instance);
    (before != Some(order) && !known).then_some(Rule::Taker)
}

fn volume(target: &Target, observed: &Observed) -> Option<Rule> {
    let Fact::Known(volume) = observed.volumes.get(&target.name) else { return Some(Rule::Precondition) };
    if volume.uid != target.uid || volume.resource_version != target.resource_version {
        return Some(Rule::Precondition);
    }
    if blind(observed) {
        return Some(Rule::Sight);
    }
    if volume.on_delete != Some(OnDelete::Delete) || volume.cluster_uid.is_none() {
        return Some(Rule::Retain);
    }
    if !observed.pods.get(&volume.instance).is_absent() {
        return Some(Rule::LiveVolume);
    }
    let live = observed.cluster.known().and_then(|cluster| cluster.uid());
    let of_live_cluster = live.is_some() && live == volume.cluster_uid;
    let led_by_another = observed
        .leader()
        .filter(|leader| *leader != volume.instance)
        .and_then(|leader| observed.pods.items.get(leader))
        .is_some_and(|leader| leader.leads());
    (of_live_cluster && !led_by_another).then_some(Rule::LastCopy)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::world::World;

    /// A plan of a careless planner: it deletes the named thing as it was seen.
    fn careless(observed: &Observed, kind: Kind, name: &str) -> Plan {
        let effect = match kind {
            Kind::Pod => {
                let pod = &observed.pods.items[name];
                Effect::DeletePod(Target {
                    name: name.to_owned(),
                    uid: pod.uid.clone(),
                    resource_version: pod.resource_version.clone(),
                })
            }
            _ => {
                let volume = &observed.volumes.items[name];
                Effect::DeleteVolume(Target {
                    name: name.to_owned(),
                    uid: volume.uid.clone(),
                    resource_version: volume.resource_version.clone(),
                })
            }
        };
        Plan { actions: vec![Action { effect, why: "careless".to_owned() }], ..Plan::default() }
    }
    fn rule(world: &World, kind: Kind, name: &str) -> Option<Rule> {
        let observed = world.observe();
        check(&careless(&observed, kind, name), &observed).err().map(|violations| violations[0].rule)
    }
    fn three(on_delete: &str) -> World {
        World::settled(json!({"replicas": 3, "storage": {"onDelete": on_delete}}))
    }

    /// The agents are told that this one leaves.
    fn tell(world: &mut World, instance: &str) {
        let map = &mut world.get(Kind::ConfigMap, "orders-config")["data"]["instance.json"];
        let mut config: serde_json::Value = serde_json::from_str(map.as_str().unwrap()).unwrap();
        config["leaving"] = json!([{"instance": instance, "since": "2026-01-01T00:00:00Z"}]);
        *map = config.to_string().into();
    }

    #[test]
    fn a_standby_may_go_once_the_agents_know_and_the_primary_may_not() {
        let mut world = three("Retain");
        assert_eq!(rule(&world, Kind::Pod, "orders-3"), Some(Rule::Member));
        tell(&mut world, "orders-3");
        assert_eq!(rule(&world, Kind::Pod, "orders-3"), None);
        assert_eq!(rule(&world, Kind::Pod, "orders-1"), Some(Rule::Primary));
    }

    #[test]
    fn a_standby_that_commits_need_stays() {
        let mut world = three("Retain");
        tell(&mut world, "orders-3");
        world.run("orders-2", 2, "standby", "NotStreaming");
        assert_eq!(rule(&world, Kind::Pod, "orders-3"), Some(Rule::Quorum));
        world.change_spec(|spec| spec["durability"] = json!({"mode": "preferred"}));
        assert_eq!(rule(&world, Kind::Pod, "orders-3"), None);
    }

    #[test]
    fn two_are_not_removed_at_once() {
        let mut world = World::settled(json!({"replicas": 5}));
        tell(&mut world, "orders-4");
        world.run("orders-5", 5, "standby", "NotStreaming");
        let observed = world.observe();
        let mut plan = careless(&observed, Kind::Pod, "orders-4");
        plan.actions.extend(careless(&observed, Kind::Pod, "orders-5").actions);
        assert_eq!(check(&plan, &observed).unwrap_err()[0].rule, Rule::OneAtATime);
    }

    #[test]
    fn nobody_goes_while_the_lease_was_not_seen() {
        let mut world = three("Retain");
        world.unseen = vec![Kind::Lease];
        world.objects.remove(&(Kind::Lease, "orders".to_owned()));
        assert_eq!(rule(&world, Kind::Pod, "orders-3"), Some(Rule::Sight));
    }

    #[test]
    fn the_volume_of_an_instance_that_runs_stays() {
        assert_eq!(rule(&three("Delete"), Kind::PersistentVolumeClaim, "orders-3-data"), Some(Rule::LiveVolume));
    }

    #[test]
    fn a_retained_volume_stays_even_when_nobody_uses_it() {
        let mut world = three("Retain");
        world.delete_cluster();
        assert_eq!(rule(&world, Kind::PersistentVolumeClaim, "orders-3-data"), Some(Rule::Retain));
    }

    #[test]
    fn the_last_copy_stays() {
        let mut world = three("Delete");
        for serial in 1..=3 {
            world.objects.remove(&(Kind::Pod, format!("orders-{serial}")));
        }
        assert_eq!(rule(&world, Kind::PersistentVolumeClaim, "orders-3-data"), Some(Rule::LastCopy));
        world.delete_cluster();
        assert_eq!(
            rule(&world, Kind::PersistentVolumeClaim, "orders-3-data"),
            None,
            "its cluster said so, and is gone"
        );
    }

    #[test]
    fn what_changed_since_it_was_seen_is_not_destroyed() {
        let world = three("Retain");
        let observed = world.observe();
        let mut plan = careless(&observed, Kind::Pod, "orders-3");
        if let Effect::DeletePod(target) = &mut plan.actions[0].effect {
            target.resource_version = "1".to_owned();
        }
        assert_eq!(check(&plan, &observed).unwrap_err()[0].rule, Rule::Precondition);
    }

    #[test]
    fn a_lease_that_exists_is_not_written() {
        let observed = three("Retain").observe();
        let cluster = observed.cluster.known().unwrap();
        let settings = crate::build::Settings::default();
        let parent = crate::build::Parent::of(cluster, &settings).unwrap();
        let effect = Effect::Create(crate::build::lease::lease(&parent, None));
        let plan = Plan { actions: vec![Action { effect, why: String::new() }], ..Plan::default() };
        assert_eq!(check(&plan, &observed).unwrap_err()[0].rule, Rule::Lease);
    }

    fn restart(observed: &Observed, name: &str) -> Action {
        let plan = careless(observed, Kind::Pod, name);
        let Effect::DeletePod(target) = plan.actions[0].effect.clone() else { unreachable!("it is a pod") };
        Action { effect: Effect::RestartPod(target), why: "careless".to_owned() }
    }
    fn restarting(world: &World, names: &[&str]) -> Option<Rule> {
        let observed = world.observe();
        let actions = names.iter().map(|name| restart(&observed, name)).collect();
        check(&Plan { actions, ..Plan::default() }, &observed).err().map(|violations| violations[0].rule)
    }

    #[test]
    fn a_rollout_restarts_a_standby_or_the_only_instance_but_no_primary_that_another_could_follow() {
        assert_eq!(restarting(&three("Retain"), &["orders-2"]), None);
        assert_eq!(restarting(&three("Retain"), &["orders-1"]), Some(Rule::Primary));
        let mut single = World::settled(json!({"replicas": 1}));
        assert_eq!(restarting(&single, &["orders-1"]), None);
        single.run("orders-1", 1, "primary", "Down");
        assert_eq!(restarting(&single, &["orders-1"]), Some(Rule::Primary));
        single.unseen = vec![Kind::Lease];
        assert_eq!(restarting(&single, &["orders-1"]), Some(Rule::Sight));
    }

    #[test]
    fn a_rollout_restarts_one_at_a_time() {
        let mut world = three("Retain");
        assert_eq!(restarting(&world, &["orders-2", "orders-3"]), Some(Rule::OneAtATime));
        world.get(Kind::Pod, "orders-3")["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(restarting(&world, &["orders-2"]), Some(Rule::OneAtATime));
    }

    #[test]
    fn nobody_is_asked_to_hand_over_to_nobody() {
        let asked = |world: &World, version: Option<&str>| {
            let observed = world.observe();
            let lease = observed.own_lease().unwrap();
            let resource_version = version.unwrap_or(&lease.resource_version).to_owned();
            let target = Target { name: lease.name.clone(), uid: lease.uid.clone(), resource_version };
            let effect = Effect::AskSwitchover { target, wish: Some(("any".to_owned(), world.now)) };
            let plan = Plan { actions: vec![Action { effect, why: String::new() }], ..Plan::default() };
            check(&plan, &observed).err().map(|violations| violations[0].rule)
        };
        let mut world = three("Retain");
        assert_eq!(asked(&world, None), None);
        assert_eq!(asked(&world, Some("1")), Some(Rule::Precondition));
        world.run("orders-2", 2, "standby", "CatchingUp");
        world.run("orders-3", 3, "standby", "NotStreaming");
        assert_eq!(asked(&world, None), Some(Rule::Successor));
    }
}
