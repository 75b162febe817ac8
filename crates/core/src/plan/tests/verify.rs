//! Verification of backups: which, by which pod, and what is said of it.

use bellwether_api::labels;
use bellwether_api::v1::BackupPhase;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::backup::{complete, stored};
use crate::contract::CONTAINER;
use crate::object::Kind;
use crate::plan::verify::ATTEMPTS;
use crate::plan::world::World;
use crate::plan::{Effect, Plan};

const FIRST: &str = "orders-20260101-0000";

fn spec(policy: &str) -> Value {
    let mut spec = stored(3);
    spec["backup"]["verification"] = json!({"policy": policy});
    spec
}

/// A cluster whose first backup has just been completed.
fn completed(policy: &str) -> World {
    let mut world = World::settled(spec(policy));
    complete(&mut world);
    world.settle();
    world
}

fn verifiers(world: &World) -> Vec<String> {
    world.observe().verifiers.items.into_keys().collect()
}

fn phase(world: &World, name: &str) -> Option<BackupPhase> {
    world.backup(name).phase
}

fn message(world: &World, name: &str) -> String {
    world.backup(name).message.unwrap_or_default()
}

/// The pod of an attempt ends with these words.
fn ends(world: &mut World, name: &str, words: &str) {
    let mut pod = world.get(Kind::Pod, name).clone();
    let terminated = json!({"exitCode": 1, "reason": "Error", "message": words, "finishedAt": world.now.to_string()});
    let state = json!({"terminated": terminated});
    pod["status"] = json!({"phase": "Failed", "containerStatuses": [
        {"name": CONTAINER, "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state},
    ]});
    world.put(Kind::Pod, name, pod);
}

fn good() -> String {
    json!({
        "outcome": "Good", "ended": "2026-01-01T00:07:12.5Z", "restoredIn": 12_400, "reached": "0/2000100", "timeline": 1,
        "phases": [["unpack", 11_000], ["recovery", 1_400]], "dataOf": "2026-01-01T00:02:12Z", "queries": 0,
        "notLookedAt": ["pages: the database has no checksums of its pages"],
    })
    .to_string()
}

fn does(plan: &Plan) -> Vec<String> {
    let verifiers = |effect: &Effect| matches!(effect, Effect::CreateVerifier(_) | Effect::DeleteVerifier(_));
    plan.actions.iter().filter(|action| verifiers(&action.effect)).map(ToString::to_string).collect()
}

#[test]
fn a_scheduled_backup_is_verified_and_its_pod_goes_once_that_is_written_down() {
    let mut world = completed("scheduled");
    assert_eq!(
        (phase(&world, FIRST), verifiers(&world)),
        (Some(BackupPhase::Verifying), vec![format!("{FIRST}.verify-1")])
    );
    assert_eq!(message(&world, FIRST), format!("waiting for {FIRST}.verify-1 to start"));
    assert_eq!(world.condition("BackupVerified").1, "NoVerifiedBackup");
    assert_eq!(world.plan().actions, [], "nothing is written while nothing is new");

    ends(&mut world, &format!("{FIRST}.verify-1"), &good());
    let plan = world.step();
    assert_eq!((phase(&world, FIRST), does(&plan)), (Some(BackupPhase::Verified), vec![]));
    let plan = world.step();
    assert_eq!(does(&plan), [format!("delete Pod {FIRST}.verify-1: backup {FIRST} needs it no longer")]);
    world.settle();
    assert_eq!(verifiers(&world), [""; 0]);
    let status = world.backup(FIRST);
    let verification = serde_json::to_value(status.verification.unwrap()).unwrap();
    let wanted = json!({
        "attempts": 1, "verifiedAt": "2026-01-01T00:07:12Z", "restoreTime": "12s", "restoreSeconds": 12, "reachedLsn": "0/2000100", "timeline": 1,
        "phases": [{"name": "unpack", "milliseconds": 11_000}, {"name": "recovery", "milliseconds": 1_400}], "dataAgeSeconds": 300,
        "notLookedAt": ["pages: the database has no checksums of its pages"],
    });
    assert_eq!(verification, wanted);
    assert_eq!((status.size.as_deref(), status.message), (Some("1.2 GiB"), None), "what was said of its taking stays");
    assert_eq!(world.condition("BackupVerified").0, "True");
    assert_eq!(world.status().last_verified_backup, world.status().last_backup);
    assert_eq!(world.plan().actions, []);
}

#[test]
fn its_pod_has_nothing_of_the_cluster() {
    let mut world = completed("scheduled");
    let pod = world.get(Kind::Pod, &format!("{FIRST}.verify-1")).clone();
    assert!(
        pod["metadata"]["labels"][labels::CLUSTER].is_null(),
        "neither Services nor the disruption budget count it"
    );
    assert_eq!(pod["spec"]["automountServiceAccountToken"], false);
    assert_eq!(pod["spec"]["restartPolicy"], "Never");
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    assert!(volumes.iter().all(|volume| volume["persistentVolumeClaim"].is_null() && volume["configMap"].is_null()));
    assert!(volumes.iter().any(|volume| volume["ephemeral"]["volumeClaimTemplate"].is_object()));
    assert_eq!(world.status().replicas, 3, "it is no instance");
    insta::assert_json_snapshot!(pod["spec"]);
}

#[test]
fn the_policy_says_which() {
    for (policy, verify, expected) in [
        ("scheduled", None, BackupPhase::Completed),
        ("scheduled", Some(true), BackupPhase::Verifying),
        ("always", None, BackupPhase::Verifying),
        ("always", Some(false), BackupPhase::Completed),
        ("never", None, BackupPhase::Completed),
        ("never", Some(true), BackupPhase::Verifying),
    ] {
        let mut world = completed(policy);
        if !verifiers(&world).is_empty() {
            ends(&mut world, &format!("{FIRST}.verify-1"), &good());
            world.settle();
        }
        world.now += SignedDuration::from_mins(10);
        world.ask_for_backup("mine");
        if let Some(verify) = verify {
            world.get(Kind::Backup, "mine")["spec"]["verify"] = verify.into();
        }
        world.settle();
        let more = json!({"id": "20260101T001000Z", "archive": "7-u", "ended": "2026-01-01T00:12:00Z"});
        world.told_of_backup("Completed", &more);
        world.settle();
        assert_eq!(phase(&world, "mine"), Some(expected), "{policy}, {verify:?}");
    }
}

#[test]
fn what_is_wrong_with_it_is_said_and_the_cluster_says_so_too() {
    let mut world = completed("scheduled");
    let finding =
        json!({"outcome": "Bad", "finding": "base/x/pack-00001.tar.zst is damaged: its SHA-256 is 12 instead of 13"});
    ends(&mut world, &format!("{FIRST}.verify-1"), &finding.to_string());
    world.settle();
    assert_eq!((phase(&world, FIRST), verifiers(&world)), (Some(BackupPhase::Failed), vec![]));
    let said = message(&world, FIRST);
    assert_eq!(said, "verification: base/x/pack-00001.tar.zst is damaged: its SHA-256 is 12 instead of 13");
    let (status, reason, message) = world.condition("BackupVerified");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "VerificationFailed"));
    assert!(message.contains("pack-00001") && message.contains("none has been found good yet"), "{message}");
}

#[test]
fn what_could_not_be_finished_is_begun_again_later_and_given_up_in_the_end() {
    let mut world = completed("scheduled");
    for attempt in 1..=ATTEMPTS {
        let name = format!("{FIRST}.verify-{attempt}");
        assert_eq!(verifiers(&world), std::slice::from_ref(&name), "attempt {attempt}");
        let words = if attempt == 2 { "" } else { r#"{"outcome": "Inconclusive", "finding": "s3://acme: timed out"}"# };
        ends(&mut world, &name, words);
        world.settle();
        if attempt < ATTEMPTS {
            assert_eq!(verifiers(&world), [name], "not at once: a store that is away comes back");
            assert!(message(&world, FIRST).ends_with("the next begins soon"), "{}", message(&world, FIRST));
            let rest = world.plan().requeue.expect("it looks again by itself");
            world.now += rest;
            world.settle();
        }
    }
    assert_eq!((phase(&world, FIRST), verifiers(&world)), (Some(BackupPhase::Failed), vec![]));
    let said = message(&world, FIRST);
    assert_eq!(said, "verification: it could not be verified, attempt 3 of 3: s3://acme: timed out");
}

#[test]
fn good_without_where_recovery_ended_is_not_good() {
    let mut world = completed("scheduled");
    ends(&mut world, &format!("{FIRST}.verify-1"), r#"{"outcome": "Good"}"#);
    world.settle();
    assert_eq!(phase(&world, FIRST), Some(BackupPhase::Verifying));
}

#[test]
fn a_pod_that_fits_nowhere_says_so_and_does_not_wait_for_ever() {
    let mut world = completed("scheduled");
    let name = format!("{FIRST}.verify-1");
    let mut pod = world.get(Kind::Pod, &name).clone();
    pod["status"] = json!({"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes have room"},
    ]});
    world.put(Kind::Pod, &name, pod);
    world.settle();
    assert_eq!(message(&world, FIRST), format!("{name} can't start: 0/3 nodes have room"));
    world.now += SignedDuration::from_hours(2);
    world.settle();
    assert_eq!(verifiers(&world), [format!("{FIRST}.verify-2")]);
    assert_eq!(phase(&world, FIRST), Some(BackupPhase::Verifying));
}

#[test]
fn the_newest_is_verified_and_what_is_older_than_a_good_one_is_left_alone() {
    let mut world = completed("never");
    for (name, id, at) in [("b1", "20260101T010000Z", "01:02"), ("b2", "20260101T020000Z", "02:02")] {
        world.ask_for_backup(name);
        world.settle();
        let more = json!({"id": id, "archive": "7-u", "ended": format!("2026-01-01T{at}:00Z")});
        world.told_of_backup("Completed", &more);
        world.settle();
    }
    world.change_spec(|spec| spec["backup"]["verification"]["policy"] = "always".into());
    world.settle();
    assert_eq!(verifiers(&world), ["b2.verify-1"], "one at a time");
    ends(&mut world, "b2.verify-1", &good());
    world.settle();
    assert_eq!((phase(&world, "b1"), phase(&world, "b2")), (Some(BackupPhase::Completed), Some(BackupPhase::Verified)));
    assert_eq!(world.plan().actions, []);
}

#[test]
fn a_policy_that_is_switched_off_ends_what_is_under_way() {
    let mut world = completed("scheduled");
    world.change_spec(|spec| spec["backup"]["verification"]["policy"] = "never".into());
    world.settle();
    assert_eq!((phase(&world, FIRST), verifiers(&world)), (Some(BackupPhase::Completed), vec![]));
    assert_eq!(world.condition("BackupVerified").1, "VerificationOff");
}

#[test]
fn a_deleted_backup_takes_its_pod_along() {
    let mut world = completed("scheduled");
    world.objects.remove(&(Kind::Backup, FIRST.to_owned()));
    world.settle();
    assert_eq!(verifiers(&world), [""; 0]);
}

#[test]
fn the_pod_of_another_backup_of_this_name_is_not_believed() {
    let mut world = completed("scheduled");
    let name = format!("{FIRST}.verify-1");
    world.get(Kind::Pod, &name)["metadata"]["annotations"][labels::BACKUP_UID] = "another".into();
    ends(&mut world, &name, &good());
    world.step();
    assert_eq!(phase(&world, FIRST), Some(BackupPhase::Verifying));
    world.settle();
    assert_eq!(
        (phase(&world, FIRST), verifiers(&world)),
        (Some(BackupPhase::Verifying), vec![name]),
        "made anew, by this one"
    );
}

#[test]
fn pods_that_were_not_seen_are_not_made_again() {
    let mut world = completed("scheduled");
    world.unseen = vec![Kind::Pod];
    assert_eq!(does(&world.plan()), [""; 0]);
    world.objects.remove(&(Kind::Pod, format!("{FIRST}.verify-1")));
    assert_eq!(does(&world.plan()), [""; 0]);
}

#[test]
fn a_cluster_that_goes_gives_its_verification_up() {
    let mut world = completed("scheduled");
    world.delete_cluster();
    world.step();
    assert_eq!(phase(&world, FIRST), Some(BackupPhase::Completed), "it is in the store, and stays there");
    assert_eq!(world.plan().actions, []);
}

#[test]
fn note_30_a_proof_that_grows_old_is_said() {
    let mut world = completed("scheduled");
    ends(&mut world, &format!("{FIRST}.verify-1"), &good());
    world.settle();
    assert_eq!(world.condition("BackupVerified").0, "True");
    world.now += SignedDuration::from_hours(25);
    world.step();
    assert_eq!(world.condition("BackupVerified").0, "True", "tonight's may still be on its way");
    world.now += SignedDuration::from_hours(24);
    world.step();
    assert_eq!(world.condition("BackupVerified").1, "VerifiedBackupOld");
}
