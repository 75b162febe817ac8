//! Decides whether a finished plan may be carried out: a second pair of eyes that knows only the invariants.
//!
//! It looks at the plan and at what was observed, and shares no code with the decisions. Never passes: the deletion of a volume of
//! a live instance or of the last copy, the removal of the primary, anything destructive on facts that are unknown, a
//! destructive action without the identity of what it was decided on, or a write to a Lease that exists.

use std::fmt;

use bellwether_api::v1::{InstanceRole, OnDelete};
use kube::ResourceExt;

use crate::fact::Fact;
use crate::object::Kind;
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
        })
    }
}

/// Everything that is wrong with the plan.
pub fn check(plan: &Plan, observed: &Observed) -> Result<(), Vec<Violation>> {
    let violations: Vec<_> = plan
        .actions
        .iter()
        .filter_map(|action| broken_rule(action, observed).map(|rule| Violation { action: action.to_string(), rule }))
        .collect();
    if violations.is_empty() { Ok(()) } else { Err(violations) }
}

fn broken_rule(action: &Action, observed: &Observed) -> Option<Rule> {
    match &action.effect {
        Effect::DeletePod(target) => pod(target, observed),
        Effect::DeleteVolume(target) => volume(target, observed),
        Effect::Apply(desired) if desired.kind == Kind::Lease => Some(Rule::Lease),
        Effect::Create(desired) if desired.kind == Kind::Lease && !observed.lease.is_absent() => Some(Rule::Lease),
        Effect::Apply(_)
        | Effect::Create(_)
        | Effect::Issue(_)
        | Effect::AnnotateVolume { .. }
        | Effect::AnnotatePod { .. }
        | Effect::GrowVolume { .. } => None,
    }
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

    #[test]
    fn a_standby_may_go_and_the_primary_may_not() {
        assert_eq!(rule(&three("Retain"), Kind::Pod, "orders-3"), None);
        assert_eq!(rule(&three("Retain"), Kind::Pod, "orders-1"), Some(Rule::Primary));
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
}
