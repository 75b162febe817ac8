//! What is said of retention.

use serde_json::{Value, json};

use super::backup::backed_up;
use crate::plan::world::World;

/// The primary says this became of retention.
fn said(world: &mut World, retention: &Value) {
    world.change_report("orders-1", |report| report["archiving"] = json!({"retention": retention}));
    world.settle();
}

fn retained(world: &World) -> (String, String) {
    let (status, reason, _) = world.condition("Retained");
    (status, reason)
}

fn is(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[test]
fn what_became_of_retention_is_said_by_the_primary_or_unknown() {
    let mut world = backed_up(2);
    assert_eq!(retained(&world), is("Unknown", "RetentionFailing"), "it has not said anything yet");
    world.change_report("orders-1", |report| report["archiving"] = json!({}));
    world.settle();
    assert_eq!(retained(&world), is("Unknown", "RetentionFailing"), "it has not looked yet");
    said(&mut world, &json!({"policy": "30d"}));
    assert_eq!(retained(&world), is("True", "AsSpecified"));
    assert_eq!(world.condition("Retained").2, "what \"30d\" does not keep is gone from s3://acme/pg");
    assert_eq!(world.plan().actions, [], "nothing is written while nothing is new");
    let removed = json!({"at": "2026-01-02T02:10:00.5Z", "backups": 1, "log": 12, "bytes": 1_288_490_189});
    said(&mut world, &json!({"policy": "30d", "removed": removed}));
    let told = world.condition("Retained").2;
    let wanted = "last removed at 2026-01-02T02:10:00Z: 1 backup and 12 files of the log, 1.2 GiB";
    assert!(told.ends_with(wanted), "{told}");
    world.run("orders-1", 1, "primary", "Down");
    world.step();
    assert_eq!(retained(&world), is("Unknown", "NoPrimary"));
    assert!(World::settled(json!({"replicas": 1})).status().conditions.iter().all(|one| one.type_ != "Retained"));
}

#[test]
fn a_store_that_removes_nothing_and_an_archive_of_unknown_worth_are_told_apart() {
    let mut world = backed_up(1);
    said(&mut world, &json!({"policy": "30d", "failing": "s3://acme/pg: delete: 403", "alarm": "none was verified"}));
    assert_eq!(retained(&world), is("False", "RetentionFailing"));
    assert!(world.condition("Retained").2.contains("orders-1: what \"30d\" does not keep stays: s3://acme/pg"));
    assert_ne!(world.condition("Archiving").0, "False", "the log gets there all the same");
    said(&mut world, &json!({"policy": "30d", "alarm": "none was verified"}));
    assert_eq!(world.condition("Retained").2, "none was verified");
    assert_eq!(retained(&world), is("False", "RetentionHeld"));
}

#[test]
fn a_policy_that_nobody_has_looked_at_yet_is_not_said_to_be_carried_out() {
    let mut world = backed_up(1);
    said(&mut world, &json!({"policy": "30d"}));
    world.change_spec(|spec| spec["backup"]["retention"] = "7d and 3 backups".into());
    world.settle();
    assert_eq!(retained(&world), is("Unknown", "RetentionFailing"));
    let archive = world.observe().config.known().unwrap().archive.clone().unwrap();
    assert_eq!(archive.retention, "7d and 3 backups", "agents are told");
    said(&mut world, &json!({"policy": "7d and 3 backups"}));
    assert_eq!(retained(&world), is("True", "AsSpecified"));
}
