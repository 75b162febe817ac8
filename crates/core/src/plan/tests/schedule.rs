//! When the schedule creates a backup.

use std::collections::BTreeSet;

use bellwether_api::labels;
use bellwether_api::v1::BackupPhase;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::backup::{backed_up, complete, stored};
use crate::object::Kind;
use crate::plan::world::World;

const FIRST: &str = "orders-20260101-0000";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The name of the backup that is created now.
fn created(world: &World) -> Option<String> {
    let plan = world.plan();
    let mut created = plan.actions.iter().filter(|action| action.to_string().starts_with("create Backup"));
    let name = created.next().map(|action| action.effect.target().1.to_owned());
    assert!(created.next().is_none(), "one at most");
    name
}

/// The moment at which the first backup after the very first begins.
fn moment(world: &World) -> Timestamp {
    let mut world = world.clone();
    world.now = at("2026-01-01T01:59:59Z");
    assert_eq!(created(&world), None);
    world.now += world.plan().requeue.unwrap();
    assert_eq!(created(&world).as_deref(), Some("orders-20260101-0200"), "it is looked again when it is due");
    world.now - SignedDuration::from_secs(1)
}

#[test]
fn a_new_cluster_takes_its_first_backup_as_soon_as_it_is_ready() {
    let mut world = World::made(stored(3));
    world.run("orders-1", 1, "primary", "Bootstrapping");
    world.step();
    assert_eq!(world.names(Kind::Backup), [""; 0]);
    world.settle();
    assert_eq!((world.names(Kind::Backup), world.condition("Ready").0.as_str()), (vec![FIRST], "True"));
    let backup = world.get(Kind::Backup, FIRST).clone();
    let metadata = &backup["metadata"];
    assert_eq!(metadata["labels"][labels::CLUSTER], "orders");
    assert_eq!(metadata["annotations"][labels::CREATED_BECAUSE], "schedule 0 2 * * * of PostgresCluster orders");
    assert_eq!(metadata.get("ownerReferences"), None, "it outlives its cluster");
    assert_eq!(backup["spec"], json!({"cluster": "orders"}));
}

#[test]
fn a_backup_is_created_at_its_time_and_named_by_it() {
    let mut world = backed_up(2);
    world.now = moment(&world);
    assert_eq!(created(&world), None, "a second before");
    world.now += SignedDuration::from_secs(1);
    world.settle();
    assert_eq!((world.names(Kind::Backup), created(&world)), (vec![FIRST, "orders-20260101-0200"], None));
    assert_eq!(world.status().last_scheduled_backup.map(|time| time.0), Some(at("2026-01-01T02:00:00Z")));
}

#[test]
fn clusters_begin_within_a_minute_of_their_time_and_not_all_at_once() {
    let prepared = backed_up(1);
    let moments: BTreeSet<_> = (0..12)
        .map(|number| {
            let mut world = prepared.clone();
            let uid = format!("0000-{number}");
            world.cluster.as_mut().unwrap()["metadata"]["uid"] = uid.as_str().into();
            for (kind, name) in world.objects.keys().cloned().collect::<Vec<_>>() {
                let object = world.get(kind, &name).to_string().replace("uid-1", &uid);
                *world.get(kind, &name) = serde_json::from_str(&object).unwrap();
            }
            moment(&world)
        })
        .collect();
    assert!(moments.len() > 8, "{moments:?}");
    let (first, last) = (moments.first().unwrap(), moments.last().unwrap());
    assert!(*first >= at("2026-01-01T01:59:59Z") && *last < at("2026-01-01T02:01:00Z"), "{moments:?}");
}

#[test]
fn a_tenth_of_the_time_until_the_next_is_the_most_that_anybody_waits() {
    let mut world = backed_up(1);
    world.change_spec(|spec| spec["backup"]["schedule"] = "* * * * *".into());
    world.settle();
    for minute in [10, 20, 30] {
        world.now = at("2026-01-02T00:00:06Z") + SignedDuration::from_mins(minute);
        assert_eq!(created(&world), Some(format!("orders-20260102-00{minute}")));
    }
}

#[test]
fn note_30_however_many_times_were_missed_one_is_made_up_for() {
    let mut world = backed_up(2);
    // The operator was down for a year.
    world.now = at("2027-01-01T12:00:00Z");
    world.settle();
    assert_eq!(world.names(Kind::Backup), [FIRST, "orders-20270101-0200"]);
    complete(&mut world);
    world.settle();
    assert_eq!((world.names(Kind::Backup).len(), created(&world)), (2, None));
}

#[test]
fn note_30_a_schedule_that_is_in_the_spec_takes_effect() {
    let mut world = backed_up(2);
    world.change_spec(|spec| spec["backup"]["schedule"] = "*/10 * * * *".into());
    world.settle();
    let mut taken = 0;
    for _ in 0..60 {
        world.now += SignedDuration::from_mins(1);
        world.settle();
        if world.order().is_some() {
            complete(&mut world);
            world.settle();
            taken += 1;
        }
    }
    assert_eq!(taken, 6, "{:?}", world.names(Kind::Backup));
}

#[test]
fn a_time_at_which_nobody_led_is_made_up_for_once() {
    let mut world = backed_up(1);
    world.run("orders-1", 1, "primary", "Down");
    for day in 2..6 {
        world.now = at(&format!("2026-01-0{day}T02:05:00Z"));
        world.step();
        assert_eq!(created(&world), None);
    }
    world.settle();
    assert_eq!(world.names(Kind::Backup), [FIRST, "orders-20260105-0200"]);
}

#[test]
fn one_that_was_asked_for_since_the_time_counts() {
    let mut world = backed_up(1);
    world.now = at("2026-01-02T02:00:00Z");
    world.ask_for_backup("mine");
    world.now += SignedDuration::from_mins(5);
    world.settle();
    assert_eq!(world.names(Kind::Backup), ["mine", FIRST]);
}

#[test]
fn while_one_of_the_schedule_s_waits_there_is_no_other() {
    let mut world = backed_up(1);
    for day in 2..5 {
        world.now = at(&format!("2026-01-0{day}T02:05:00Z"));
        world.settle();
        assert_eq!(world.names(Kind::Backup), [FIRST, "orders-20260102-0200"]);
    }
    complete(&mut world);
    world.settle();
    assert_eq!(world.names(Kind::Backup), [FIRST, "orders-20260102-0200", "orders-20260104-0200"]);
    assert_eq!(world.backup("orders-20260102-0200").phase, Some(BackupPhase::Completed));
}

#[test]
fn one_that_somebody_deleted_is_not_created_again() {
    let mut world = backed_up(1);
    world.now = at("2026-01-02T02:05:00Z");
    world.settle();
    world.objects.remove(&(Kind::Backup, "orders-20260102-0200".to_owned()));
    world.settle();
    assert_eq!((world.names(Kind::Backup), world.order()), (vec![FIRST], None));
}

#[test]
fn the_schedule_is_meant_by_the_clocks_of_its_zone() {
    let mut world = backed_up(1);
    world.change_spec(|spec| spec["backup"]["timeZone"] = "America/New_York".into());
    world.settle();
    world.now = at("2026-01-01T06:59:59Z");
    assert_eq!(created(&world), None, "two has passed, but not there");
    world.now = at("2026-01-01T07:01:00Z");
    let name = created(&world);
    assert_eq!(
        name.as_deref(),
        Some("orders-20260101-0700"),
        "in UTC: clocks that are set back would give two one name"
    );
}

#[test]
fn without_a_store_nothing_is_scheduled() {
    let mut world = World::settled(json!({"replicas": 1, "backup": {"schedule": "* * * * *"}}));
    world.now = at("2026-01-02T02:05:00Z");
    let plan = world.plan();
    assert_eq!((plan.actions, created(&world)), (vec![], None));
    assert!(plan.requeue.is_none_or(|rest| rest > SignedDuration::from_hours(1)), "{:?}", plan.requeue);
}

#[test]
fn a_cluster_that_is_made_anew_takes_a_first_backup_of_its_own() {
    let mut world = backed_up(2);
    world.delete_cluster();
    world.now = at("2026-01-01T00:30:00Z");
    world.recreate(stored(2));
    world.settle();
    assert_eq!(world.names(Kind::Backup), [FIRST, "orders-20260101-0030"]);
    assert_eq!(
        (world.condition("BackedUp").1.as_str(), world.status().last_backup),
        ("NoBackup", None),
        "the other is of another cluster"
    );
}
