//! A dozen workloads, and an accident at each single write and each single event of them: the operator dies before it, after it, without an
//! answer, leaves a successor that has seen only the past, is not alone, or hears of something late or never. The same comes of it.

use std::collections::BTreeMap;

use bellwether_apiserver::request::Subresource;
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::world::{Deaf, Fate, World};

/// More rounds than any workload takes; what takes longer is a loop.
const PATIENCE: usize = 300;
/// Rounds without a change after which there is none to come.
const QUIET: usize = 4;

/// One in so many accidents, unless all are asked for. No factor of the number of fates.
const STEP: usize = 7;

/// What comes of a workload.
#[derive(Debug, PartialEq)]
struct Outcome {
    objects: Vec<String>,
    /// How often a pod of each instance was made.
    made: BTreeMap<String, usize>,
    status: Value,
    /// Of each backup its name, phase, size, and attempts at it and its verification.
    backups: Vec<Value>,
}

/// Passes, and others' work, until nothing happens any more.
fn settle(world: &mut World, mut decide: impl FnMut(usize) -> Fate) -> Outcome {
    let (mut quiet, mut writes) = (0, 0);
    for _ in 0..PATIENCE {
        let before = world.store.revision();
        world.look();
        world.pass(|request| match request.verb.name() {
            "get" => Fate::Served,
            _ => {
                writes += 1;
                decide(writes)
            }
        });
        world.others();
        world.later(SignedDuration::from_secs(4));
        quiet = if world.store.revision() == before && !world.is_deaf() { quiet + 1 } else { 0 };
        if quiet == QUIET {
            return outcome(world);
        }
    }
    panic!("still writing after {PATIENCE} passes: {}", world.log.last().unwrap());
}

fn outcome(world: &World) -> Outcome {
    let clusters = world.list("postgresclusters");
    let status = clusters.first().map_or(Value::Null, |cluster| {
        let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let said: Vec<_> = conditions.iter().map(|one| json!([one["type"], one["status"], one["reason"]])).collect();
        json!({"phase": cluster["status"]["phase"], "conditions": said, "operation": cluster["status"]["operation"]["kind"]})
    });
    let made = world.made.iter().map(|(instance, pods)| (instance.clone(), pods.len())).collect();
    let said = |backup: &Value| {
        let status = &backup["status"];
        let verified = &status["verification"]["attempts"];
        json!([backup["metadata"]["name"], status["phase"], status["attempts"], status["size"], verified])
    };
    let backups = world.list("backups").iter().map(said).collect();
    Outcome { objects: world.shape(), made, status, backups }
}

/// Every accident that can happen to `change`, on a cluster with this spec that has settled.
///
/// All of them with `ACCIDENTS=all`, else some, others each time: those whose number leaves this rest.
fn whatever_happens(spec: Option<Value>, change: impl Fn(&mut World)) {
    let mut prepared = World::new().with_namespace("shop");
    if let Some(spec) = spec {
        prepared.create_cluster(&spec);
        let settled = settle(&mut prepared, |_| Fate::Served);
        assert_eq!(settled.status["phase"], "Ready", "{settled:#?}");
    }
    let begin = || {
        let mut world = prepared.fork();
        world.others();
        world.look();
        world.heard = 0;
        change(&mut world);
        world
    };
    let mut calm = begin();
    let mut writes = 0;
    let expected = settle(&mut calm, |_| {
        writes += 1;
        Fate::Served
    });
    assert!(writes > 0 && calm.heard > 0, "nothing was done");
    let fates = [Fate::CrashBefore, Fate::CrashAfter, Fate::Lost, Fate::IntoThePast, Fate::NotAlone];
    let at_writes = (1..=writes).flat_map(|at| fates.iter().map(move |fate| (at, fate)));
    for (at, fate) in at_writes.skip(rest()).step_by(step()) {
        let found = settle(&mut begin(), |write| if write == at { fate.clone() } else { Fate::Served });
        assert_eq!(found, expected, "{fate:?} at write {at} of {writes}");
    }
    let at_events = (1..=calm.heard).flat_map(|at| [Deaf::Late, Deaf::Never].map(|deaf| (at, deaf)));
    for (at, deaf) in at_events.skip(rest()).step_by(step()) {
        let mut world = begin();
        world.deaf = Some((at, deaf));
        let found = settle(&mut world, |_| Fate::Served);
        assert_eq!(found, expected, "event {at} of {}: {deaf:?}", calm.heard);
    }
}

fn step() -> usize {
    if std::env::var_os("ACCIDENTS").is_some_and(|which| which == "all") { 1 } else { STEP }
}

fn rest() -> usize {
    let second = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    usize::try_from(second).unwrap() % step()
}

fn of(replicas: i32) -> Option<Value> {
    Some(json!({"replicas": replicas, "storage": {"size": "10Gi", "onDelete": "Delete"}}))
}

fn set(spec: Value) -> impl Fn(&mut World) {
    move |world| world.merge("postgresclusters", "orders", Subresource::Main, &json!({"spec": spec}))
}

#[test]
fn a_cluster_is_created() {
    whatever_happens(None, |world| world.create_cluster(&of(2).unwrap()));
}

#[test]
fn instances_are_added() {
    whatever_happens(of(1), set(json!({"replicas": 3})));
}

#[test]
fn note_14_instances_are_removed_with_their_volumes() {
    whatever_happens(of(3), set(json!({"replicas": 1})));
}

#[test]
fn instances_are_removed_and_their_volumes_stay() {
    let retain = json!({"replicas": 3, "storage": {"onDelete": "Retain"}});
    whatever_happens(Some(retain), set(json!({"replicas": 2})));
}

#[test]
fn a_parameter_is_changed() {
    whatever_happens(of(2), set(json!({"parameters": {"work_mem": "8MB"}})));
}

#[test]
fn an_image_is_rolled_out() {
    whatever_happens(of(2), set(json!({"image": "registry.example/postgres:17.6-2"})));
}

#[test]
fn volumes_are_made_larger() {
    whatever_happens(of(2), set(json!({"storage": {"size": "20Gi"}})));
}

#[test]
fn a_standby_is_gone() {
    whatever_happens(of(2), |world| world.delete("pods", "orders-2"));
}

#[test]
fn the_primary_is_gone() {
    whatever_happens(of(3), |world| world.delete("pods", "orders-1"));
}

#[test]
fn a_standby_is_gone_with_its_volume() {
    whatever_happens(of(2), |world| {
        world.delete("pods", "orders-2");
        world.delete("persistentvolumeclaims", "orders-2-data");
    });
}

#[test]
fn a_secret_is_gone_and_another_changed() {
    whatever_happens(of(1), |world| {
        world.delete("secrets", "orders-server");
        let changed = json!({"stringData": {"password": "another"}});
        world.merge("secrets", "orders-app", Subresource::Main, &changed);
    });
}

#[test]
fn somebody_changes_what_is_ours() {
    whatever_happens(of(1), |world| {
        world.delete("configmaps", "orders-config");
        world.merge("poddisruptionbudgets", "orders", Subresource::Main, &json!({"spec": {"minAvailable": 7}}));
        world.delete("services", "orders-ro");
        world.delete("rolebindings", "orders-agent");
    });
}

#[test]
fn a_backup_is_asked_for() {
    let stored = json!({"replicas": 2, "backup": {"store": {"url": "s3://acme/pg"}}});
    whatever_happens(Some(stored), |world| world.ask_for_backup("mine", "orders"));
}

#[test]
fn a_store_is_named_and_the_first_backup_is_taken() {
    whatever_happens(of(2), set(json!({"backup": {"store": {"url": "s3://acme/pg"}}})));
}

#[test]
fn a_backup_is_deleted_while_it_is_taken() {
    let stored = json!({"replicas": 1, "backup": {"store": {"url": "s3://acme/pg"}}});
    whatever_happens(Some(stored), |world| {
        world.ask_for_backup("mine", "orders");
        world.look();
        world.pass(|_| Fate::Served);
        world.others();
        world.delete("backups", "mine");
    });
}

#[test]
fn a_cluster_is_deleted() {
    whatever_happens(of(2), |world| world.delete("postgresclusters", "orders"));
}

#[test]
fn a_cluster_is_deleted_and_created_again() {
    whatever_happens(of(2), |world| {
        world.delete("postgresclusters", "orders");
        world.create_cluster(&json!({"replicas": 2}));
    });
}
