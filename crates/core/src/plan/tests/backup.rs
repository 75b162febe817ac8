//! Backups: who takes which, and what is said of them.

use bellwether_api::labels;
use bellwether_api::v1::{BackupPhase, BackupStatus};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::contract::Effort;
use crate::object::Kind;
use crate::plan::backup::ATTEMPTS;
use crate::plan::world::World;
use crate::plan::{Effect, Plan, plan};

const FIRST: &str = "orders-20260101-0000";

pub(super) fn stored(replicas: i32) -> Value {
    // What becomes of them once they are complete: see `verify`.
    json!({"replicas": replicas, "backup": {
        "schedule": "0 2 * * *", "store": {"url": "s3://acme/pg"}, "verification": {"policy": "never"},
    }})
}

/// A cluster that has settled, and has taken its first backup.
pub(super) fn backed_up(replicas: i32) -> World {
    let mut world = World::settled(stored(replicas));
    complete(&mut world);
    world.settle();
    assert_eq!((world.backup(FIRST).phase, world.order()), (Some(BackupPhase::Completed), None));
    world
}

/// Whoever was told takes it.
pub(super) fn complete(world: &mut World) {
    let more = json!({
        "id": "20260101T000100Z", "archive": "7-u", "ended": "2026-01-01T00:02:12.9Z", "bytes": 1_288_490_189, "stored": 512,
        "timeline": 1, "start": "0/2000028", "stop": "0/2000100",
    });
    world.told_of_backup("Completed", &more);
}

fn phase(world: &World, name: &str) -> Option<BackupPhase> {
    world.backup(name).phase
}

fn message(world: &World, name: &str) -> String {
    world.backup(name).message.unwrap_or_default()
}

fn taker(world: &World) -> Option<(String, String, i32)> {
    world.order().map(|order| (order.backup, order.instance, order.attempt))
}

fn is_told(world: &World, backup: &str, instance: &str, attempt: i32) {
    assert_eq!(taker(world), Some((backup.to_owned(), instance.to_owned(), attempt)));
}

fn said(plan: &Plan) -> Vec<&str> {
    let said = plan.actions.iter().filter(|action| matches!(action.effect, Effect::BackupStatus { .. }));
    said.map(|action| action.effect.target().1).collect()
}

#[test]
fn a_backup_goes_from_pending_to_running_to_completed_and_then_nothing_is_written() {
    let mut world = backed_up(3);
    world.ask_for_backup("mine");
    world.settle();
    is_told(&world, "mine", "orders-2", 1);
    let pending = world.backup("mine");
    assert_eq!((pending.phase, pending.attempts), (Some(BackupPhase::Pending), 0));
    assert_eq!(
        (pending.message.as_deref(), pending.instance.as_deref()),
        (Some("orders-2 is to take it"), Some("orders-2"))
    );
    assert_eq!(world.plan().actions, []);

    world.told_of_backup("Running", &json!({"message": "copying: 30 %"}));
    world.settle();
    let running = world.backup("mine");
    assert_eq!((running.phase, running.attempts), (Some(BackupPhase::Running), 1));
    assert_eq!(running.message.as_deref(), Some("copying: 30 %"));
    assert_eq!(world.plan().actions, [], "nothing is written while nothing is new");

    complete(&mut world);
    world.settle();
    let completed = world.backup("mine");
    let wanted: BackupStatus = serde_json::from_value(json!({
        "phase": "Completed", "instance": "orders-2", "attempts": 1, "id": "20260101T000100Z", "archive": "7-u",
        "startedAt": "2026-01-01T00:01:00Z", "completedAt": "2026-01-01T00:02:12Z", "duration": "1m 12s", "size": "1.2 GiB",
        "sizeBytes": 1_288_490_189, "stored": "512 B", "storedBytes": 512, "timeline": 1, "startLsn": "0/2000028", "stopLsn": "0/2000100",
    }))
    .unwrap();
    assert_eq!(completed, wanted);
    assert_eq!(world.order(), None);
    world.now += SignedDuration::from_mins(30);
    assert_eq!((world.plan().actions, world.plan().status), (vec![], Some(world.status())));
}

#[test]
fn the_cluster_tells_of_its_beginning_and_its_end() {
    let mut world = backed_up(1);
    world.ask_for_backup("mine");
    world.settle();
    let news = |world: &mut World| {
        let plan = world.step();
        plan.actions
            .iter()
            .filter_map(|action| action.note())
            .map(|note| format!("{} {}", note.reason, note.message))
            .collect::<Vec<_>>()
    };
    world.told_of_backup("Running", &json!({"message": "copying: 10 %"}));
    assert_eq!(news(&mut world), ["BackupBegun orders-1 began backup mine"]);
    world.told_of_backup("Running", &json!({"message": "copying: 20 %"}));
    assert_eq!(news(&mut world), [""; 0], "how far it is, the backup says");
    complete(&mut world);
    assert_eq!(news(&mut world), ["BackupCompleted backup mine from orders-1 is complete, 1.2 GiB in 1m 12s"]);
}

#[test]
fn one_is_taken_at_a_time_and_the_oldest_first() {
    let mut world = backed_up(3);
    for name in ["b", "a", "c"] {
        world.ask_for_backup(name);
    }
    for name in ["b", "a", "c"] {
        world.settle();
        is_told(&world, name, "orders-2", 1);
        complete(&mut world);
    }
    assert_eq!(message(&world, "c"), "orders-2 is to take it");
    world.ask_for_backup("d");
    world.settle();
    assert_eq!((world.order().unwrap().backup.as_str(), phase(&world, "c")), ("d", Some(BackupPhase::Completed)));
}

#[test]
fn whoever_waits_says_for_which() {
    let mut world = backed_up(2);
    world.ask_for_backup("b");
    world.ask_for_backup("a");
    world.settle();
    assert_eq!(
        (phase(&world, "a"), message(&world, "a").as_str()),
        (Some(BackupPhase::Pending), "waiting for backup b, which is taken first")
    );
}

#[test]
fn a_standby_takes_it_and_where_none_streams_the_primary() {
    let mut world = backed_up(3);
    world.run("orders-2", 2, "standby", "CatchingUp");
    world.ask_for_backup("mine");
    world.step();
    is_told(&world, "mine", "orders-3", 1);

    let mut world = backed_up(3);
    world.run("orders-2", 2, "standby", "NotStreaming");
    world.run("orders-3", 3, "standby", "NotStreaming");
    world.ask_for_backup("mine");
    world.step();
    is_told(&world, "mine", "orders-1", 1);
    assert_eq!(backed_up(1).order(), None);
}

#[test]
fn while_nobody_can_take_it_it_waits_and_says_so_once() {
    let mut world = backed_up(1);
    world.run("orders-1", 1, "primary", "Down");
    world.ask_for_backup("mine");
    world.step();
    assert_eq!((phase(&world, "mine"), world.order()), (Some(BackupPhase::Pending), None));
    assert!(message(&world, "mine").contains("no instance can take it now"), "{}", message(&world, "mine"));
    assert_eq!(said(&world.plan()), [""; 0]);
    world.run("orders-1", 1, "primary", "Leading");
    world.step();
    is_told(&world, "mine", "orders-1", 1);
}

#[test]
fn whoever_was_told_stays() {
    let mut world = backed_up(3);
    world.run("orders-2", 2, "standby", "NotStreaming");
    world.ask_for_backup("mine");
    world.step();
    world.told_of_backup("Running", &json!({}));
    world.agents();
    world.settle();
    is_told(&world, "mine", "orders-3", 1);
    world.run("orders-3", 3, "standby", "NotStreaming");
    world.step();
    is_told(&world, "mine", "orders-3", 1);
    assert_eq!(phase(&world, "mine"), Some(BackupPhase::Running), "its standby looks for a primary, and copies on");
}

#[test]
fn one_that_does_not_stream_and_has_not_begun_is_not_waited_for() {
    let mut world = backed_up(3);
    world.ask_for_backup("mine");
    world.step();
    is_told(&world, "mine", "orders-2", 1);
    world.run("orders-2", 2, "standby", "NotStreaming");
    world.step();
    is_told(&world, "mine", "orders-3", 1);
    assert_eq!(world.backup("mine").attempts, 0, "it was not begun");
}

#[test]
fn a_pod_that_goes_takes_its_attempt_along() {
    let mut world = backed_up(3);
    world.ask_for_backup("mine");
    world.step();
    world.told_of_backup("Running", &json!({}));
    world.step();
    world.get(Kind::Pod, "orders-2")["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    world.step();
    is_told(&world, "mine", "orders-3", 2);
    let told = message(&world, "mine");
    assert_eq!(told, "attempt 1 on orders-2: its pod is being stopped; orders-3 is to take it");
    world.objects.remove(&(Kind::Pod, "orders-2".to_owned()));
    world.settle();
    is_told(&world, "mine", "orders-3", 2);
    assert_eq!((message(&world, "mine"), world.backup("mine").attempts), (told, 1), "said once");
}

#[test]
fn an_attempt_that_failed_is_made_again_by_another_and_after_three_the_backup_failed() {
    let mut world = backed_up(3);
    world.ask_for_backup("mine");
    world.settle();
    for (attempt, instance) in [(1, "orders-2"), (2, "orders-3"), (3, "orders-2")] {
        is_told(&world, "mine", instance, attempt);
        world.told_of_backup("Running", &json!({}));
        world.settle();
        world.told_of_backup(
            "Failed",
            &json!({"message": format!("no room {attempt}"), "ended": "2026-01-01T00:03:00Z"}),
        );
        world.settle();
    }
    let failed = world.backup("mine");
    assert_eq!((failed.phase, failed.attempts), (Some(BackupPhase::Failed), ATTEMPTS));
    assert_eq!(failed.message.as_deref(), Some("attempt 3 of 3, on orders-2: no room 3"));
    assert_eq!((world.order(), world.plan().actions), (None, vec![]));
    let (status, reason, message) = world.condition("BackedUp");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "BackupFailed"));
    assert!(message.contains("no room 3") && message.contains("completed is of 2026-01-01T00:02:12Z"), "{message}");
}

#[test]
fn a_single_instance_tries_again_by_itself() {
    let mut world = backed_up(1);
    world.ask_for_backup("mine");
    world.settle();
    world.told_of_backup("Failed", &json!({"message": "the store is down"}));
    world.settle();
    is_told(&world, "mine", "orders-1", 2);
    assert_eq!(message(&world, "mine"), "attempt 1 on orders-1: the store is down; orders-1 is to take it");
}

#[test]
fn note_20_a_backup_that_failed_does_not_block_the_next() {
    let mut world = backed_up(2);
    world.ask_for_backup("first");
    world.ask_for_backup("second");
    world.settle();
    for _ in 0..ATTEMPTS {
        world.told_of_backup("Failed", &json!({"message": "the store is down"}));
        world.settle();
    }
    assert_eq!(phase(&world, "first"), Some(BackupPhase::Failed));
    is_told(&world, "second", "orders-2", 1);
    complete(&mut world);
    world.settle();
    assert_eq!(phase(&world, "second"), Some(BackupPhase::Completed));
    assert_eq!(world.condition("BackedUp").0, "True");
    // Nor the schedule.
    world.now = "2026-01-02T02:01:00Z".parse().unwrap();
    world.settle();
    is_told(&world, "orders-20260102-0200", "orders-2", 1);
}

#[test]
fn a_report_of_another_backup_another_attempt_or_another_instance_counts_for_nothing() {
    let mut world = backed_up(3);
    world.ask_for_backup("mine");
    world.settle();
    let before = world.backup("mine");
    for other in [json!({"uid": "another"}), json!({"attempt": 2})] {
        world.told_of_backup("Completed", &other);
        assert_eq!(said(&world.plan()), [""; 0], "{other}");
    }
    world.change_report("orders-2", |report| report["backup"] = Value::Null);
    let order = world.order().unwrap();
    world.change_report("orders-3", |report| {
        report["backup"] = json!({"uid": order.uid, "attempt": order.attempt, "state": "Completed"});
    });
    world.step();
    assert_eq!(world.backup("mine"), before);
}

#[test]
fn the_order_stands_until_it_is_written_that_the_backup_is_over() {
    let mut world = backed_up(3);
    world.ask_for_backup("mine");
    world.settle();
    complete(&mut world);
    let (order, plan) = (world.order(), world.plan());
    let mut crashed = world.clone();
    let mut cut = plan.clone();
    cut.actions.retain(|action| !matches!(action.effect, Effect::BackupStatus { .. }));
    crashed.apply_all(&cut);
    assert_eq!(crashed.order(), order, "its agent would forget what became of it");
    crashed.settle();
    assert_eq!((phase(&crashed, "mine"), crashed.backup("mine").attempts), (Some(BackupPhase::Completed), 1));
}

/// Each plan is cut off after any of its actions: the same comes of it.
#[test]
fn a_crash_at_any_moment_of_a_retry_changes_nothing() {
    let prepared = backed_up(3);
    let run = |cut: Option<(usize, usize)>| {
        let mut world = prepared.clone();
        world.ask_for_backup("mine");
        let mut plans = 0;
        let mut advance = |world: &mut World| {
            for _ in 0..4 {
                let mut plan = world.plan();
                if cut.is_some_and(|(at, _)| at == plans) {
                    plan.actions.truncate(cut.map_or(0, |(_, length)| length));
                    plan.status = None;
                }
                plans += 1;
                world.apply_all(&plan);
                world.agents();
            }
        };
        advance(&mut world);
        world.told_of_backup("Running", &json!({}));
        advance(&mut world);
        world.told_of_backup("Failed", &json!({"message": "no"}));
        advance(&mut world);
        let again = taker(&world);
        complete(&mut world);
        advance(&mut world);
        (again, world.backup("mine"), world.order(), plans)
    };
    let calm = run(None);
    assert_eq!(calm.0, Some(("mine".to_owned(), "orders-3".to_owned(), 2)));
    for at in 0..calm.3 {
        for length in 0..3 {
            assert_eq!(run(Some((at, length))), calm, "plan {at} after {length} actions");
        }
    }
}

#[test]
fn a_configuration_that_somebody_removed_is_written_again_and_the_backup_goes_on() {
    let mut world = backed_up(3);
    world.run("orders-2", 2, "standby", "NotStreaming");
    world.ask_for_backup("mine");
    world.step();
    world.told_of_backup("Running", &json!({}));
    world.step();
    let (order, status) = (world.order(), world.backup("mine"));
    world.objects.remove(&(Kind::ConfigMap, "orders-config".to_owned()));
    world.run("orders-2", 2, "standby", "Streaming");
    world.step();
    assert_eq!((world.order(), world.backup("mine")), (order, status));
}

#[test]
fn without_a_store_a_backup_waits_and_says_what_to_write() {
    let mut world = World::settled(json!({"replicas": 2}));
    world.ask_for_backup("mine");
    world.settle();
    let told = message(&world, "mine");
    assert_eq!((phase(&world, "mine"), world.order()), (Some(BackupPhase::Pending), None));
    assert!(told.contains("spec.backup.store") && told.contains("s3://bucket/path"), "{told}");
    world.change_spec(|spec| spec["backup"] = json!({"store": {"url": "s3://acme/pg"}}));
    world.settle();
    assert_eq!(world.order().map(|order| order.backup).as_deref(), Some("mine"));
    assert!(world.restarts.len() >= 2, "PostgreSQL begins to archive at a start: {:?}", world.restarts);
    // Its store is taken away again.
    world.told_of_backup("Running", &json!({}));
    world.step();
    world.change_spec(|spec| spec["backup"] = json!({}));
    world.step();
    assert_eq!(
        (phase(&world, "mine"), message(&world, "mine"), world.order()),
        (Some(BackupPhase::Pending), told, None)
    );
}

#[test]
fn a_backup_whose_object_is_deleted_is_no_longer_ordered() {
    let mut world = backed_up(3);
    world.ask_for_backup("mine");
    world.settle();
    world.told_of_backup("Running", &json!({}));
    world.settle();
    // As long as somebody holds it, and then.
    let mut held = world.clone();
    held.get(Kind::Backup, "mine")["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    held.step();
    assert_eq!((held.order(), said(&held.plan())), (None, vec![]));
    world.objects.remove(&(Kind::Backup, "mine".to_owned()));
    world.settle();
    assert_eq!(world.order(), None);
}

#[test]
fn the_backups_of_a_cluster_that_goes_fail() {
    let mut world = backed_up(2);
    world.ask_for_backup("mine");
    world.settle();
    let mut held = world.clone();
    held.cluster.as_mut().unwrap()["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    held.step();
    assert_eq!(
        (phase(&held, "mine"), message(&held, "mine").as_str()),
        (Some(BackupPhase::Failed), "the cluster was deleted")
    );
    assert_eq!(held.plan().actions, []);

    world.delete_cluster();
    let mut anew = world.clone();
    world.step();
    assert_eq!(message(&world, "mine"), "the cluster was deleted");
    assert_eq!(phase(&world, FIRST), Some(BackupPhase::Completed), "what is over stays as it is");
    assert_eq!(world.plan().actions, []);

    // It was made anew before anybody looked.
    anew.now += SignedDuration::from_mins(1);
    anew.recreate(stored(2));
    anew.settle();
    assert_eq!(message(&anew, "mine"), "the cluster was deleted");
    assert_eq!(
        anew.order().map(|order| order.backup).as_deref(),
        Some("orders-20260101-0001"),
        "{:?}",
        anew.names(Kind::Backup)
    );
}

#[test]
fn a_backup_of_no_cluster_fails_and_the_field_is_named() {
    let mut world = World::with(json!({}));
    world.cluster = None;
    world.ask_for_backup("mine");
    world.step();
    let told = message(&world, "mine");
    assert_eq!(phase(&world, "mine"), Some(BackupPhase::Failed));
    assert!(told.starts_with("spec.cluster: there is no PostgresCluster \"orders\" in this namespace"), "{told}");
    assert_eq!(world.plan().actions, []);
}

#[test]
fn what_was_not_seen_changes_nothing() {
    let mut world = backed_up(3);
    world.ask_for_backup("mine");
    world.settle();
    complete(&mut world);
    world.ask_for_backup("another");
    let order = world.order();
    for kind in [Kind::Backup, Kind::Pod, Kind::ConfigMap] {
        // What is there of a configuration is known, also before all of them were seen.
        for hidden in [false, true].into_iter().filter(|hidden| *hidden || kind != Kind::ConfigMap) {
            let mut blind = world.clone();
            blind.unseen = vec![kind];
            if hidden {
                blind.objects.retain(|(other, _), _| *other != kind);
            }
            let plan = plan(&blind.observe(), blind.now, &Default::default());
            assert_eq!(said(&plan), [""; 0], "{kind}");
            assert!(!plan.actions.iter().any(|action| action.effect.target().0 == Kind::Backup), "{kind}");
            blind.unseen.clear();
            let orders = plan.actions.iter().filter(|action| action.effect.target().0 == Kind::ConfigMap);
            assert_eq!(orders.count(), 0, "{kind}");
        }
    }
    assert_eq!(world.order(), order);
    let mut unknown = world.clone();
    unknown.unseen = vec![Kind::Backup];
    unknown.cluster = None;
    assert!(
        plan(&unknown.observe(), unknown.now, &Default::default())
            .actions
            .iter()
            .all(|action| !action.effect.destroys())
    );
}

#[test]
fn a_cluster_that_is_not_acted_on_begins_nothing_and_what_was_begun_goes_on() {
    let mut world = backed_up(3);
    world.ask_for_backup("mine");
    world.settle();
    world.ask_for_backup("later");
    world.change_spec(|spec| spec["backup"]["schedule"] = "0 2 31 4-6/2 *".into());
    world.told_of_backup("Running", &json!({}));
    world.step();
    assert_eq!(phase(&world, "mine"), Some(BackupPhase::Running));
    complete(&mut world);
    world.step();
    world.step();
    assert_eq!(phase(&world, "mine"), Some(BackupPhase::Completed));
    assert!(message(&world, "later").contains("which can't be acted on"), "{}", message(&world, "later"));
    assert_eq!(said(&world.plan()), [""; 0]);
}

#[test]
fn a_cluster_that_is_paused_is_backed_up_all_the_same() {
    let mut world = backed_up(3);
    world.cluster.as_mut().unwrap()["metadata"]["annotations"] = json!({labels::PAUSED: "true"});
    world.ask_for_backup("mine");
    world.settle();
    is_told(&world, "mine", "orders-2", 1);
}

#[test]
fn agents_are_told_of_the_store_and_may_read_its_credentials() {
    let mut world = backed_up(2);
    let secrets = |world: &mut World| {
        let rules = world.get(Kind::Role, "orders-agent")["rules"].as_array().unwrap().clone();
        rules.into_iter().filter(|rule| rule["resources"] == json!(["secrets"])).collect::<Vec<_>>()
    };
    assert_eq!(secrets(&mut world), [Value::Null; 0]);
    world.change_spec(|spec| spec["backup"]["store"]["credentials"] = json!({"name": "s3"}));
    world.settle();
    let [rule] = &secrets(&mut world)[..] else { panic!("one rule") };
    assert_eq!((&rule["resourceNames"], &rule["verbs"]), (&json!(["s3"]), &json!(["get"])));
    let archive = world.observe().config.known().unwrap().archive.clone().unwrap();
    assert_eq!((archive.store.url.as_str(), archive.incarnation.as_str()), ("s3://acme/pg", "uid-1"));
    world.change_spec(|spec| spec["backup"] = json!({}));
    world.settle();
    assert_eq!(secrets(&mut world), [Value::Null; 0]);
    assert_eq!(world.observe().config.known().unwrap().archive, None);
}

#[test]
fn how_hard_it_is_tried_is_told_where_it_is_not_left_to_the_agents() {
    let mut world = backed_up(2);
    let effort = |world: &World| world.observe().config.known().unwrap().archive.clone().unwrap().effort;
    assert_eq!(effort(&world), Effort::default());
    let before = world.get(Kind::ConfigMap, "orders-config").to_string();
    assert!(!before.contains("effort"), "an operator that is upgraded tells nobody anything new: {before}");
    world.change_spec(|spec| {
        spec["backup"]["compression"] = json!({"level": 7, "workers": 2});
        spec["backup"]["maxRate"] = "20Mi".into();
    });
    world.settle();
    assert_eq!(effort(&world), Effort { level: Some(7), workers: Some(2), max_rate: Some(20 * 1024) });
    assert_eq!(world.restarts, [], "that restarts nothing");
    // What an older definition let pass is brought within what PostgreSQL takes.
    world.change_spec(|spec| spec["backup"]["maxRate"] = "10".into());
    world.settle();
    assert_eq!(effort(&world).max_rate, Some(32));
}

#[test]
fn whether_the_log_is_archived_is_said_by_the_primary_or_unknown() {
    let archiving = |world: &World| {
        let (status, reason, _) = world.condition("Archiving");
        (status, reason)
    };
    let is = |status: &str, reason: &str| (status.to_owned(), reason.to_owned());
    let mut world = backed_up(2);
    assert_eq!(archiving(&world), is("Unknown", "ArchiveFailing"), "it has not said anything yet");
    world.change_report("orders-1", |report| report["archiving"] = json!({}));
    world.settle();
    assert_eq!(archiving(&world), is("True", "AsSpecified"));
    let since = world.status().conditions.into_iter().find(|one| one.type_ == "Archiving").unwrap();
    world.change_report("orders-1", |report| report["archiving"] = json!({"failing": "s3://acme/pg: access denied"}));
    world.settle();
    assert_eq!(archiving(&world), is("False", "ArchiveFailing"));
    assert!(world.condition("Archiving").2.contains("orders-1: s3://acme/pg: access denied"));
    assert_ne!(world.status().conditions.into_iter().find(|one| one.type_ == "Archiving").unwrap(), since);
    world.run("orders-1", 1, "primary", "Down");
    world.step();
    assert_eq!(archiving(&world), is("Unknown", "NoPrimary"));
    assert!(World::settled(json!({"replicas": 1})).status().conditions.iter().all(|one| one.type_ != "Archiving"));
}

#[test]
fn the_moments_that_can_be_restored_are_said_and_no_later_end_than_is_known() {
    let mut world = backed_up(2);
    let window = |world: &World| {
        let text = |at: Option<Time>| at.map(|at| at.0.to_string());
        let status = world.status();
        (text(status.recoverable_from), text(status.recoverable_to))
    };
    let (since, until) = ("2026-01-01T00:02:12Z", "2026-01-03T11:59:00Z");
    let is = |since: &str, until: Option<&str>| (Some(since.to_owned()), until.map(str::to_owned));
    let say = |world: &mut World, archiving: Value| {
        world.change_report("orders-1", |report| report["archiving"] = archiving);
        world.settle();
    };
    assert_eq!(window(&world), (None, None), "nobody has looked yet");
    say(&mut world, json!({"retention": {"policy": "30d", "since": since}}));
    assert_eq!(window(&world), is(since, None), "up to now");
    say(&mut world, json!({"failing": "down", "until": until, "retention": {"policy": "30d", "since": since}}));
    assert_eq!(window(&world), is(since, Some(until)));
    // Its archiver begins anew while the store is down: it knows neither.
    say(&mut world, json!({"failing": "down"}));
    assert_eq!(window(&world), is(since, Some(until)));
    let later = "2026-01-02T02:03:00Z";
    say(&mut world, json!({"retention": {"policy": "30d", "since": later}}));
    assert_eq!(window(&world), is(later, None));
    say(&mut world, json!({"retention": {"policy": "30d", "since": since, "failing": "403"}}));
    assert_eq!(window(&world), is(later, None), "what failed half-way has seen nothing");
    world.change_spec(|spec| spec["backup"] = json!({}));
    world.settle();
    assert_eq!(window(&world), (None, None), "nothing of a store that is not named");
}

#[test]
fn a_cluster_with_a_store_says_whether_it_is_backed_up_and_when_it_last_was() {
    let mut world = World::settled(stored(2));
    assert_eq!(world.condition("BackedUp").1, "NoBackup");
    assert_eq!(world.status().last_backup, None);
    complete(&mut world);
    world.settle();
    assert_eq!(world.condition("BackedUp").0, "True");
    let last = world.status().last_backup.unwrap().0;
    assert_eq!(last.to_string(), "2026-01-01T00:02:12Z");
    world.objects.remove(&(Kind::Backup, FIRST.to_owned()));
    world.settle();
    assert_eq!(
        (world.condition("BackedUp").0.as_str(), world.status().last_backup.unwrap().0),
        ("True", last),
        "it is in the store"
    );
    assert!(World::settled(json!({"replicas": 1})).status().conditions.iter().all(|one| one.type_ != "BackedUp"));
}

#[test]
fn with_a_store_schedule_and_retention_are_acted_on() {
    let (_, _, with) = backed_up(1).condition("Accepted");
    assert!(!with.contains("spec.backup"), "{with}");
    let (_, _, without) = World::settled(json!({"replicas": 1})).condition("Accepted");
    assert!(without.contains("spec.backup.schedule") && without.contains("spec.backup.retention"), "{without}");
}
