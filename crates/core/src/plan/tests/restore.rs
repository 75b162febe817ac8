//! Clusters whose database is to be restored: from where, what agents are told, what is said, and that none of them is ever initialised.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::contract::{InstanceConfig, RecoveryTarget, RecoveryWay};
use crate::fact::Fact;
use crate::object::Kind;
use crate::observed::RawSource;
use crate::plan::world::{SYSTEM, World};
use crate::wal::Lsn;

fn store(name: &str, secret: &str) -> Value {
    json!({"url": format!("s3://{name}/pg"), "credentials": {"name": secret}})
}

/// A cluster `orders` that is restored, and has a store of its own.
fn restored(recovery: &Value) -> World {
    World::with(json!({
        "replicas": 3, "backup": {"store": store("ours", "own")}, "bootstrap": {"recovery": recovery},
    }))
}

/// The cluster that it is restored from.
fn shop() -> Fact<Arc<Value>> {
    Fact::Known(Arc::new(json!({
        "apiVersion": "bellwether.dev/v1", "kind": "PostgresCluster",
        "metadata": {"name": "shop", "namespace": "shop", "uid": "uid-shop"},
        "spec": {"backup": {"store": store("theirs", "their-own")}},
        "status": {"systemIdentifier": SYSTEM},
    })))
}

fn backup(phase: &str) -> Fact<Arc<Value>> {
    let status = json!({"phase": phase, "id": "20261118T020000Z", "archive": "7-uid-shop", "message": "for a reason"});
    Fact::Known(Arc::new(json!({
        "apiVersion": "bellwether.dev/v1", "kind": "Backup", "metadata": {"name": "nightly", "namespace": "shop"},
        "spec": {"cluster": "shop"}, "status": status,
    })))
}

fn config(world: &World) -> Option<InstanceConfig> {
    let map = world.objects.get(&(Kind::ConfigMap, "orders-config".to_owned()))?;
    Some(serde_json::from_str(map["data"]["instance.json"].as_str().unwrap()).unwrap())
}

/// The Secrets of the user's that agents may read.
fn secrets(world: &World) -> Vec<String> {
    let role = world.objects.iter().find(|((kind, _), _)| *kind == Kind::Role).map(|(_, role)| role.clone()).unwrap();
    let rules = role["rules"].as_array().unwrap().clone();
    let of = |rule: &Value| rule["resources"][0] == "secrets";
    let names = rules.iter().filter(|rule| of(rule)).flat_map(|rule| rule["resourceNames"].as_array().unwrap());
    names.map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// Nothing at all is made, and this is said.
fn waits(world: &mut World, words: &str) {
    let plan = world.step();
    assert_eq!(plan.actions, [], "{words}");
    assert!(plan.requeue.is_some(), "nothing tells when it is there");
    let (status, reason, message) = world.condition("Ready");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "RecoverySourceMissing"), "{message}");
    assert!(message.contains(words), "{message}");
    assert!(plan.waiting_on.iter().any(|on| on.to_string().contains(words)), "{:?}", plan.waiting_on);
}

#[test]
fn agents_are_told_where_from_and_how_far_until_there_is_a_database_and_no_longer() {
    let target = json!({"lsn": "16/B374D848", "exclusive": true});
    let mut world = restored(&json!({"cluster": {"name": "shop"}, "target": target, "timeline": "2"}));
    world.source.cluster = shop();
    world.step();
    let told = config(&world).unwrap();
    let order = told.recovery.clone().expect("it is to be restored");
    assert_eq!((order.incarnation.as_str(), order.archive), ("uid-1", format!("{SYSTEM}-uid-shop")));
    assert_eq!((order.store.url.as_str(), order.backup), ("s3://theirs/pg", None));
    assert_eq!(order.target, RecoveryTarget::Lsn { at: Lsn(0x16_B374_D848), exclusive: true });
    assert_eq!(order.way, RecoveryWay::Timeline(crate::wal::Timeline(2)));
    assert_eq!(told.archive.unwrap().incarnation, "uid-1", "it archives in its own name");
    assert_eq!(secrets(&world), ["own", "their-own"]);
    world.settle();
    let told = config(&world).unwrap();
    assert_eq!((told.recovery, told.system_identifier.is_some()), (None, true));
    assert_eq!(secrets(&world), ["own"]);
    assert_eq!(world.condition("Ready").0, "True");
}

#[test]
fn a_store_and_an_archive_need_nobody_else() {
    let archive = json!({"store": store("theirs", "own"), "archive": "shop/orders", "backupId": "20261118T020000Z"});
    let mut world = restored(&archive);
    world.step();
    let order = config(&world).unwrap().recovery.unwrap();
    assert_eq!((order.archive.as_str(), order.backup.as_deref()), ("shop/orders", Some("20261118T020000Z")));
    assert_eq!((order.target, order.way), (RecoveryTarget::Latest, RecoveryWay::Latest));
    assert_eq!(secrets(&world), ["own"], "one Secret for both is named once");
}

#[test]
fn a_backup_is_restored_from_the_store_of_its_cluster() {
    for phase in ["Completed", "Verifying", "Verified"] {
        let mut world = restored(&json!({"backup": {"name": "nightly"}}));
        world.source = RawSource { backup: backup(phase), cluster: shop() };
        world.step();
        let order = config(&world).unwrap().recovery.unwrap();
        assert_eq!((order.archive.as_str(), order.backup.as_deref()), ("7-uid-shop", Some("20261118T020000Z")));
        assert_eq!(order.store.url, "s3://theirs/pg");
    }
}

#[test]
fn what_is_not_there_is_named_and_nothing_is_made_before_it_is() {
    let by_cluster = || restored(&json!({"cluster": {"name": "shop"}}));
    waits(&mut by_cluster(), "there is no PostgresCluster \"shop\"");
    let changed = |change: fn(&mut Value)| {
        let mut world = by_cluster();
        let mut shop = Value::clone(shop().known().unwrap());
        change(&mut shop);
        world.source.cluster = Fact::Known(Arc::new(shop));
        world
    };
    waits(&mut changed(|shop| shop["status"] = json!({})), "has no database yet");
    waits(&mut changed(|shop| shop["spec"] = json!({})), "names no object store");
    waits(&mut restored(&json!({"cluster": {"name": "orders"}})), "this cluster itself");
    let mut unseen = by_cluster();
    unseen.source.cluster = Fact::Unknown;
    assert_eq!(unseen.step().actions, []);

    let by_backup = |backup, cluster| {
        let mut world = restored(&json!({"backup": {"name": "nightly"}}));
        world.source = RawSource { backup, cluster };
        world
    };
    waits(&mut by_backup(Fact::Absent, Fact::Absent), "there is no Backup \"nightly\"");
    waits(&mut by_backup(backup("Running"), shop()), "is Running (for a reason), and has to be Completed");
    waits(&mut by_backup(backup("Failed"), shop()), "is Failed (for a reason)");
    waits(&mut by_backup(backup("Verified"), Fact::Absent), "archive: 7-uid-shop, backupId: 20261118T020000Z");

    let mut world = by_cluster();
    waits(&mut world, "there is no PostgresCluster");
    world.source.cluster = shop();
    world.settle();
    assert_eq!(world.condition("Ready").0, "True", "it goes on by itself");
}

#[test]
fn a_source_that_goes_away_while_it_is_restored_from_stays_what_agents_were_told() {
    let mut world = restored(&json!({"cluster": {"name": "shop"}}));
    world.source.cluster = shop();
    world.step();
    let told = config(&world).unwrap().recovery;
    world.source.cluster = Fact::Absent;
    world.step();
    assert_eq!(config(&world).unwrap().recovery, told);
    assert_ne!(world.condition("Ready").1, "RecoverySourceMissing", "it goes on");
    // What was told to an earlier cluster of the name is not.
    world.delete_cluster();
    world.recreate(json!({"bootstrap": {"recovery": {"cluster": {"name": "shop"}}}}));
    waits(&mut world, "there is no PostgresCluster");
}

#[test]
fn retained_volumes_are_never_taken_for_what_was_to_be_restored() {
    let mut world = World::settled(json!({"replicas": 2}));
    world.delete_cluster();
    world.recreate(json!({"replicas": 2, "bootstrap": {"recovery": {"cluster": {"name": "shop"}}}}));
    world.source.cluster = shop();
    assert_eq!(world.step().actions, []);
    let (status, reason, message) = world.condition("Ready");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "VolumesInTheWay"), "{message}");
    assert!(message.contains("orders-1-data") && message.contains("without spec.bootstrap.recovery"), "{message}");
    world.objects.retain(|(kind, _), _| *kind != Kind::PersistentVolumeClaim);
    world.settle();
    assert_eq!(world.condition("Ready").0, "True");
}

#[test]
fn how_a_restore_goes_is_said_in_the_operation_and_by_reasons_of_its_own() {
    let mut world = restored(&json!({"cluster": {"name": "shop"}}));
    world.source.cluster = shop();
    world.step();
    world.step();
    world.run("orders-1", 1, "standby", "Bootstrapping");
    let mut says = |state: &str, recovery: &str, message: &str| {
        world.change_report("orders-1", |report| {
            report["state"] = state.into();
            report["recovery"] = recovery.into();
            report["message"] = message.into();
            report["acceptsSql"] = false.into();
            // What is not in its place yet is nobody's database.
            report["systemIdentifier"] = Value::Null;
        });
        world.step();
        let operation = world.status().operation.expect("it is being made");
        assert!(
            operation.waiting_on.contains(&format!("orders-1 ({message}) to restore the database")),
            "{operation:?}"
        );
        assert_eq!(format!("{:?}", operation.step), "Restoring");
        let of = |world: &World, kind: &str| (world.condition(kind).0, world.condition(kind).1);
        (of(&world, "Ready"), of(&world, "Progressing"), world.condition("Degraded").0)
    };
    let is = |status: &str, reason: &str| (status.to_owned(), reason.to_owned());
    let (ready, progressing, degraded) = says("Bootstrapping", "Restoring", "unpacking backup x: 40 %");
    assert_eq!((ready, progressing), (is("False", "Restoring"), is("True", "Restoring")));
    assert_eq!(degraded, "False");
    for (recovery, reason) in [
        ("OutOfReach", "RecoveryTargetUnreachable"),
        ("Failed", "RecoveryFailed"),
        ("NoSource", "RecoverySourceMissing"),
    ] {
        let (ready, progressing, degraded) = says("Down", recovery, "it says why");
        assert_eq!((ready, progressing), (is("False", reason), is("False", reason)));
        assert_eq!(degraded, "True");
    }
}
