//! Backups, request by request.

use serde_json::{Value, json};

use crate::world::{Fate, World};
use crate::{requests, settle, writes};

fn backup(world: &World, name: &str) -> Value {
    let all = world.list("backups");
    all.iter().find(|backup| backup["metadata"]["name"] == name).map_or(Value::Null, |backup| backup["status"].clone())
}

/// The order in the ConfigMap.
fn order(world: &World) -> Value {
    let maps = world.list("configmaps");
    let config = maps.iter().find(|map| map["metadata"]["name"] == "orders-config").unwrap();
    let config: Value = serde_json::from_str(config["data"]["instance.json"].as_str().unwrap()).unwrap();
    config["archive"]["order"].clone()
}

/// Everybody does his part until nothing is left to do.
fn rest(mut world: World) -> World {
    loop {
        let before = world.store.revision();
        world = settle(world, None);
        world.others();
        if world.store.revision() == before {
            return world;
        }
    }
}

/// A cluster with a store that has taken its first backup, and verified it.
fn backed_up() -> World {
    let mut world = World::new().with_namespace("shop");
    world.create_cluster(&json!({"replicas": 2, "backup": {"store": {"url": "s3://acme/pg"}}}));
    let world = rest(world);
    assert_eq!(world.names("backups").len(), 1);
    assert_eq!(
        backup(&world, &world.names("backups")[0])["phase"],
        "Verified",
        "{:?}",
        world.condition("BackupVerified")
    );
    world
}

#[test]
fn a_backup_is_ordered_taken_and_written_down_and_then_nothing_is_written() {
    let mut world = backed_up();
    world.ask_for_backup("mine", "orders");
    let mut world = settle(world, None);
    assert_eq!(backup(&world, "mine")["phase"], "Pending");
    assert_eq!((&order(&world)["backup"], &order(&world)["instance"]), (&json!("mine"), &json!("orders-2")));
    world.others();
    let mut world = settle(world, None);
    assert_eq!(backup(&world, "mine")["phase"], "Running");
    // The process is gone and another one starts: it goes on from what is there.
    world.restart();
    let before = writes(&world);
    let mut world = settle(world, None);
    assert_eq!(writes(&world), before, "{:?}", requests(&world).last());
    world.others();
    let mut world = rest(world);
    assert_eq!(
        (&backup(&world, "mine")["phase"], &backup(&world, "mine")["size"]),
        (&json!("Completed"), &json!("4.0 KiB"))
    );
    assert_eq!((order(&world), world.condition("BackedUp")["status"].clone()), (Value::Null, json!("True")));
    let before = writes(&world);
    world.restart();
    world.look();
    world.pass(|_| Fate::Served);
    assert_eq!(writes(&world), before, "{:?}", requests(&world).last());
    let told = world.log.iter().filter(|request| request.to_string().starts_with("create Event"));
    assert!(told.count() > 0);
}

#[test]
fn a_backup_of_a_cluster_that_is_not_there_fails_after_a_live_look_and_names_the_field() {
    let mut world = World::new().with_namespace("shop");
    world.ask_for_backup("mine", "orders");
    let before = world.log.len();
    let mut world = settle(world, None);
    let first = world.log[before].to_string();
    assert_eq!(first, "get PostgresCluster shop/orders");
    let status = backup(&world, "mine");
    assert_eq!(status["phase"], "Failed");
    assert!(
        status["message"].as_str().unwrap().starts_with("spec.cluster: there is no PostgresCluster \"orders\""),
        "{status}"
    );
    let before = world.log.len();
    world.restart();
    let world = settle(world, None);
    assert_eq!(world.log.len(), before, "what is over is not asked for again");
}

/// An operator takes over whose view is from before the backup was begun, and says what it sees.
#[test]
fn what_is_over_is_not_taken_back_by_an_operator_with_an_old_view() {
    let mut world = backed_up();
    world.ask_for_backup("mine", "orders");
    let mut world = settle(world, None);
    world.others();
    let mut world = world.fork();
    world.look();
    world.pass(|_| Fate::Served);
    assert_eq!(backup(&world, "mine")["phase"], "Running");
    world.others();
    world.look();
    let mut done = false;
    world.pass(|request| {
        done |= request.to_string().starts_with("apply-status Backup");
        if done { Fate::IntoThePast } else { Fate::Served }
    });
    assert_eq!(backup(&world, "mine")["phase"], "Completed");
    let before = world.log.len();
    world.pass(|_| Fate::Served);
    assert!(
        requests(&world)[before..].contains(&"apply-status Backup shop/mine".to_owned()),
        "it believes that it runs"
    );
    assert_eq!(backup(&world, "mine")["phase"], "Completed");
    assert_eq!(backup(&rest(world), "mine")["phase"], "Completed");
}
