//! Planners with a bug: every plan that destroys something, on the way of clusters that shrink, roll out, are repaired and go, changed in one
//! place. The check refuses each of them, and every rule of it is what refuses one.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_api::v1::{OnDelete, Recovery};
use serde_json::{Value, json};

use crate::build::{self, Parent, Settings};
use crate::check::{Rule, check};
use crate::contract::{Archive, BackupOrder, InstanceConfig};
use crate::fact::Fact;
use crate::observed::{Observed, PodPhase};
use crate::plan::world::World;
use crate::plan::{Action, Effect, Plan, Target};

type Mutant = (&'static str, Plan, Observed);

fn pod(observed: &Observed, name: &str) -> Target {
    let pod = &observed.pods.items[name];
    Target { name: name.to_owned(), uid: pod.uid.clone(), resource_version: pod.resource_version.clone() }
}

fn volume(observed: &Observed, name: &str) -> Target {
    let volume = &observed.volumes.items[name];
    Target { name: name.to_owned(), uid: volume.uid.clone(), resource_version: volume.resource_version.clone() }
}

fn because(effect: Effect) -> Action {
    Action { effect, why: "a bug".to_owned() }
}

/// What is destroyed by an action.
fn target(action: &mut Action) -> Option<&mut Target> {
    match &mut action.effect {
        Effect::DeletePod(target) | Effect::RestartPod(target) | Effect::DeleteVolume(target) => Some(target),
        _ => None,
    }
}

/// The plan with one destructive action in another form.
fn altered(plan: &Plan, at: usize, alter: impl Fn(&mut Target)) -> Plan {
    let mut plan = plan.clone();
    alter(target(&mut plan.actions[at]).unwrap());
    plan
}

fn with(plan: &Plan, effect: Effect) -> Plan {
    let mut plan = plan.clone();
    plan.actions.push(because(effect));
    plan
}

/// Whether something runs in this pod.
fn runs(observed: &Observed, name: &str) -> bool {
    observed.pods.items.get(name).is_some_and(|pod| pod.phase != PodPhase::Ended && !pod.never_ran)
}

/// Mistakes in a plan that destroys something already.
fn of_what_it_destroys(plan: &Plan, observed: &Observed) -> Vec<Mutant> {
    let mut found = vec![];
    for (at, action) in plan.actions.iter().enumerate().filter(|(_, action)| action.effect.destroys()) {
        let mut mutant = |what, plan| found.push((what, plan, observed.clone()));
        mutant("another object of its name", altered(plan, at, |target| target.uid = "another".to_owned()));
        mutant("as it was before", altered(plan, at, |target| target.resource_version = "1".to_owned()));
        mutant("one that nobody saw", altered(plan, at, |target| target.name = "orders-99".to_owned()));
        if let (Effect::RestartPod(_) | Effect::DeletePod(_), Some(leader)) = (&action.effect, observed.leader())
            && observed.pods.items.len() > 1
            && runs(observed, leader)
        {
            mutant("the primary", altered(plan, at, |target| *target = pod(observed, leader)));
        }
        if let Effect::RestartPod(target) = &action.effect {
            let others = observed.pods.items.keys().filter(|name| **name != target.name && runs(observed, name));
            for other in others.filter(|name| Some(name.as_str()) != observed.leader()) {
                mutant("two at once", with(plan, Effect::RestartPod(pod(observed, other))));
            }
        }
        let blinded = [
            ("pods unseen", Box::new(|seen: &mut Observed| seen.pods.complete = false) as Box<dyn Fn(&mut Observed)>),
            ("volumes unseen", Box::new(|seen: &mut Observed| seen.volumes.complete = false)),
            ("Lease unseen", Box::new(|seen: &mut Observed| seen.lease = Fact::Unknown)),
        ];
        for (what, blind) in blinded {
            let mut seen = observed.clone();
            blind(&mut seen);
            found.push((what, plan.clone(), seen));
        }
    }
    found
}

/// Things that no plan does in any of these worlds.
fn of_any(plan: &Plan, observed: &Observed, live: bool) -> Vec<Mutant> {
    let mut found = vec![];
    for (name, seen) in &observed.volumes.items {
        let gone = || Effect::DeleteVolume(volume(observed, name));
        if observed.pods.items.contains_key(&seen.instance) {
            found.push(("the volume of an instance that is there", with(plan, gone()), observed.clone()));
        }
        let mut kept = observed.clone();
        kept.volumes.items.get_mut(name).unwrap().on_delete = None;
        found.push(("a volume that is to stay", with(plan, gone()), kept));
        if live && seen.on_delete == Some(OnDelete::Delete) {
            let mut alone = observed.clone();
            alone.pods.items.clear();
            found.push(("the last copy", with(plan, gone()), alone));
        }
    }
    let told = |name: &str| observed.config.known().is_some_and(|config| config.is_leaving(name));
    let leads = |name: &str| observed.leader() == Some(name);
    for (name, _) in observed.pods.items.iter().filter(|(name, pod)| pod.streams() && !leads(name) && !told(name)) {
        let removed = with(plan, Effect::DeletePod(pod(observed, name)));
        found.push(("a member that nobody was told leaves", removed.clone(), observed.clone()));
        if observed.cluster.known().is_some_and(|cluster| cluster.spec.replicas > 2) {
            let mut short = observed.clone();
            short.pods.items.iter_mut().filter(|(other, _)| *other != name).for_each(|(_, pod)| pod.ready = false);
            found.push(("one that commits need", removed, short));
        }
    }
    if let Some(lease) = observed.own_lease() {
        let seen = Target {
            name: lease.name.clone(),
            uid: lease.uid.clone(),
            resource_version: lease.resource_version.clone(),
        };
        let wish = Some(("orders-2".to_owned(), jiff::Timestamp::UNIX_EPOCH));
        let mut lonely = observed.clone();
        lonely.pods.items.retain(|name, _| Some(name.as_str()) == observed.leader());
        let asked = with(plan, Effect::AskSwitchover { target: seen, wish });
        found.push(("a hand-over to nobody", asked, lonely));
    }
    if let Some(cluster) = observed.cluster.known() {
        let settings = Settings::default();
        let order = BackupOrder { instance: "orders-99".to_owned(), attempt: 1, ..BackupOrder::default() };
        let archive = Some(Archive { order: Some(order), ..Archive::default() });
        let config = InstanceConfig { archive, ..InstanceConfig::default() };
        let config = build::config::config(&Parent::of(cluster, &settings).unwrap(), &config);
        found.push(("a backup by nobody", with(plan, Effect::Apply(config)), observed.clone()));
        let mut restored = observed.clone();
        let mut wanted = cluster.clone();
        wanted.spec.bootstrap.recovery = Some(Recovery::default());
        let config = build::config::config(&Parent::of(&wanted, &settings).unwrap(), &InstanceConfig::default());
        restored.cluster = Fact::Known(wanted);
        found.push(("an empty database for a restored one", with(plan, Effect::Apply(config)), restored));
        let parent = Parent::of(cluster, &settings).unwrap();
        for (name, pod) in &observed.pods.items {
            let instance = build::pod::pod(&parent, name, &pod.uid, "");
            found.push(("an instance that verifies", with(plan, Effect::CreateVerifier(instance)), observed.clone()));
        }
    }
    if let Some(cluster) = observed.cluster.known().filter(|_| !observed.lease.is_absent()) {
        let settings = Settings::default();
        let lease = build::lease::lease(&Parent::of(cluster, &settings).unwrap(), None);
        found.push(("a Lease written anew", with(plan, Effect::Create(lease)), observed.clone()));
    }
    found
}

fn refused(by: &mut BTreeMap<&'static str, BTreeSet<String>>, mutants: Vec<Mutant>) {
    for (what, plan, observed) in mutants {
        let violations = check(&plan, &observed).expect_err(what);
        by.entry(what).or_default().extend(violations.iter().map(|violation| format!("{:?}", violation.rule)));
    }
}

/// A cluster on its way, with agents and kubelets doing their part, as long as there is anything to do.
fn on_its_way(by: &mut BTreeMap<&'static str, BTreeSet<String>>, mut world: World) {
    for _ in 0..40 {
        let (observed, plan) = (world.observe(), world.plan());
        refused(by, of_what_it_destroys(&plan, &observed));
        refused(by, of_any(&plan, &observed, world.cluster.is_some()));
        let before = (world.objects.clone(), world.cluster.clone());
        world.step();
        if world.cluster.is_some() {
            world.agents();
        }
        world.now += jiff::SignedDuration::from_secs(1);
        if (&world.objects, &world.cluster) == (&before.0, &before.1) {
            return;
        }
    }
    panic!("it never settles");
}

fn changed(replicas: i32, change: impl Fn(&mut Value)) -> World {
    let mut world = World::settled(json!({"replicas": replicas, "storage": {"onDelete": "Delete"}}));
    world.change_spec(change);
    world
}

#[test]
fn every_mutant_of_the_planner_is_refused_and_every_rule_refuses_one() {
    let mut by = BTreeMap::new();
    on_its_way(&mut by, changed(3, |spec| spec["replicas"] = 1.into()));
    on_its_way(&mut by, changed(5, |spec| spec["replicas"] = 2.into()));
    on_its_way(&mut by, changed(3, |spec| spec["image"] = "registry.example/postgres:17.6-2".into()));
    on_its_way(&mut by, changed(1, |spec| spec["image"] = "registry.example/postgres:17.6-2".into()));
    let mut deleted = changed(2, |_| {});
    deleted.delete_cluster();
    on_its_way(&mut by, deleted);
    let expected = [
        "a Lease written anew",
        "a backup by nobody",
        "a hand-over to nobody",
        "a member that nobody was told leaves",
        "a volume that is to stay",
        "an empty database for a restored one",
        "an instance that verifies",
        "another object of its name",
        "as it was before",
        "Lease unseen",
        "one that commits need",
        "one that nobody saw",
        "pods unseen",
        "the last copy",
        "the primary",
        "the volume of an instance that is there",
        "two at once",
        "volumes unseen",
    ];
    assert_eq!(by.keys().copied().collect::<BTreeSet<_>>(), BTreeSet::from(expected), "each was tried");
    let rules: BTreeSet<_> = by.values().flatten().cloned().collect();
    let all: BTreeSet<_> = Rule::ALL.iter().map(|rule| format!("{rule:?}")).collect();
    assert_eq!(rules, all, "{by:#?}");
}
