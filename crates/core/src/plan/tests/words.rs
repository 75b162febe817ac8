//! What a plan reads like, and what is said when something is wrong.

use serde_json::{Value, json};

use crate::object::Kind;
use crate::plan::Plan;
use crate::plan::world::World;

pub(super) fn told(plan: &Plan) -> String {
    let mut lines = vec![];
    lines.extend(plan.actions.iter().map(|action| format!("do: {action}")));
    lines.extend(plan.waiting_on.iter().map(|on| format!("waiting for: {on}")));
    if let Some(status) = &plan.status {
        lines.push(format!(
            "phase: {:?}, primary {:?}, ready {}",
            status.phase.unwrap(),
            status.primary,
            status.ready_replicas
        ));
        lines.extend(status.operation.iter().map(|op| format!("operation: {:?} at {:?}", op.kind, op.step)));
        for condition in &status.conditions {
            lines.push(format!("{}={} {}: {}", condition.type_, condition.status, condition.reason, condition.message));
        }
    }
    lines.extend(plan.events.iter().map(|note| format!("event: {} {}", note.reason, note.message)));
    lines.join("\n")
}

fn waiting(world: &mut World, name: &str, reason: &str, message: &str) {
    let status: Value = json!({"phase": "Pending", "containerStatuses": [{
        "name": "postgres", "image": "postgres:99", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": reason, "message": message}},
    }]});
    world.get(Kind::Pod, name)["status"] = status;
}

#[test]
fn a_new_cluster() {
    insta::assert_snapshot!(told(&World::with(json!({"replicas": 3})).plan()));
}

#[test]
fn the_first_instance_initialises() {
    let mut world = World::made(json!({"replicas": 3}));
    world.run("orders-1", 1, "primary", "Bootstrapping");
    insta::assert_snapshot!(told(&world.step()));
}

#[test]
fn a_settled_cluster() {
    insta::assert_snapshot!(told(&World::settled(json!({"replicas": 3})).plan()));
}

#[test]
fn scaling_down() {
    let mut world = World::settled(json!({"replicas": 3}));
    world.change_spec(|spec| spec["replicas"] = 2.into());
    insta::assert_snapshot!(told(&world.plan()));
}

#[test]
fn a_standby_that_does_not_stream() {
    let mut world = World::settled(json!({"replicas": 3}));
    world.run("orders-2", 2, "standby", "NotStreaming");
    insta::assert_snapshot!(told(&world.plan()));
}

#[test]
fn the_primary_is_gone() {
    let mut world = World::settled(json!({"replicas": 3}));
    world.objects.remove(&(Kind::Pod, "orders-1".to_owned()));
    insta::assert_snapshot!(told(&world.plan()));
}

#[test]
fn adoption() {
    let mut world = World::settled(json!({"replicas": 2}));
    world.delete_cluster();
    world.recreate(json!({"replicas": 2}));
    insta::assert_snapshot!(told(&world.plan()));
}

#[test]
fn the_pod_of_an_instance() {
    let mut world = World::made(json!({
        "replicas": 1, "version": "17", "storage": {"wal": {"size": "1Gi"}}, "resources": {"limits": {"memory": "2Gi"}},
    }));
    let mut pod = world.get(Kind::Pod, "orders-1").clone();
    pod["spec"]["initContainers"][0]["image"] = "(the operator's)".into();
    insta::assert_yaml_snapshot!(pod["spec"]);
}

#[test]
fn an_image_that_cannot_be_pulled_is_said_once_however_often_the_kubelet_rewords_it() {
    let mut world = World::made(json!({"replicas": 1}));
    waiting(&mut world, "orders-1", "ErrImagePull", "manifest unknown");
    world.step();
    let said = world.condition("Degraded");
    assert_eq!((said.0.as_str(), said.1.as_str()), ("True", "ImageUnavailable"));
    assert!(said.2.contains("postgres:99") && said.2.contains("manifest unknown"), "{}", said.2);
    let before = world.status();
    waiting(&mut world, "orders-1", "ImagePullBackOff", "Back-off pulling image");
    world.step();
    assert_eq!(world.status(), before);
}

#[test]
fn the_time_of_a_condition_moves_only_when_it_flips() {
    let mut world = World::settled(json!({"replicas": 2}));
    let since = |world: &World, kind: &str| {
        world.status().conditions.into_iter().find(|c| c.type_ == kind).unwrap().last_transition_time.0
    };
    let (ready, progressing) = (since(&world, "Ready"), since(&world, "Progressing"));
    world.now += jiff::SignedDuration::from_mins(5);
    world.run("orders-2", 2, "standby", "NotStreaming");
    world.step();
    assert_eq!(since(&world, "Ready"), ready, "two instances with `preferred` go on");
    assert!(since(&world, "Progressing") > progressing);
}

#[test]
fn all_on_one_node_is_a_warning_and_not_a_failure() {
    let mut world = World::settled(json!({"replicas": 2}));
    world.get(Kind::Pod, "orders-2")["spec"]["nodeName"] = "node-1".into();
    world.step();
    assert_eq!(world.condition("Spread").1, "SharedFailureDomain");
    assert_eq!(world.condition("Ready").0, "True");
}

#[test]
fn quorum_without_a_streaming_standby_is_not_ready() {
    let mut world = World::settled(json!({"replicas": 3}));
    for serial in [2, 3] {
        world.run(&format!("orders-{serial}"), serial, "standby", "NotStreaming");
    }
    world.step();
    let (status, reason, message) = world.condition("Ready");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "NoSynchronousStandby"), "{message}");
}

fn report(world: &mut World, name: &str, change: impl FnOnce(&mut Value)) {
    let report = &mut world.get(Kind::Pod, name)["metadata"]["annotations"][bellwether_api::labels::REPORT];
    let mut told: Value = serde_json::from_str(report.as_str().expect("a report")).expect("JSON");
    change(&mut told);
    *report = told.to_string().into();
}

#[test]
fn a_full_volume_of_the_primary_is_named_and_the_cluster_is_not_ready() {
    let mut world = World::settled(json!({"replicas": 3, "storage": {"wal": {"size": "1Gi"}}}));
    report(&mut world, "orders-1", |told| told["full"] = json!(["wal"]));
    world.step();
    let (status, reason, message) = world.condition("Ready");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "VolumeFull"), "{message}");
    assert!(message.contains("orders-1") && message.contains("WAL volume orders-1-wal"), "{message}");
    assert_eq!(world.condition("Degraded").1, "VolumeFull");
    report(&mut world, "orders-1", |told| told["full"] = json!([]));
    world.step();
    assert_eq!(world.condition("Ready").0, "True");
}

#[test]
fn a_full_volume_of_a_standby_is_named_and_the_others_go_on() {
    let mut world = World::settled(json!({"replicas": 3}));
    report(&mut world, "orders-2", |told| {
        told["full"] = json!(["data"]);
        told["state"] = "NotStreaming".into();
    });
    world.step();
    let (status, reason, message) = world.condition("Degraded");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "VolumeFull"), "{message}");
    assert!(message.contains("data volume orders-2-data"), "{message}");
    assert_eq!(world.condition("Ready").0, "True");
}

#[test]
fn quorum_whose_standbys_are_full_says_so() {
    let mut world = World::settled(json!({"replicas": 3}));
    for name in ["orders-2", "orders-3"] {
        report(&mut world, name, |told| {
            told["full"] = json!(["data"]);
            told["state"] = "NotStreaming".into();
        });
    }
    world.step();
    let (status, reason, message) = world.condition("Ready");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "VolumeFull"), "{message}");
    assert!(message.contains("orders-2-data") && message.contains("orders-3-data"), "{message}");
}

#[test]
fn a_primary_whose_commits_wait_is_not_ready_whatever_the_standbys_say() {
    let mut world = World::settled(json!({"replicas": 3}));
    report(&mut world, "orders-1", |told| told["commitsWait"] = true.into());
    world.step();
    let (status, reason, message) = world.condition("Ready");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "NoSynchronousStandby"), "{message}");
}

#[test]
fn a_primary_that_the_service_does_not_lead_to_is_not_ready() {
    let mut world = World::settled(json!({"replicas": 1}));
    world.get(Kind::EndpointSlice, "orders-rw")["endpoints"] = json!([]);
    world.step();
    assert_eq!(world.condition("Ready").0, "False");
}

#[test]
fn fields_without_effect_are_named() {
    let world = World::settled(json!({"replicas": 1}));
    let (status, reason, message) = world.condition("Accepted");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "NotYetActedOn"));
    assert!(message.contains("spec.backup.schedule"), "{message}");
}

#[test]
fn a_spec_that_cannot_be_acted_on_is_named_and_nothing_is_done() {
    let mut world = World::with(json!({"replicas": 3, "version": "9"}));
    assert_eq!(world.step().actions, []);
    let (status, reason, message) = world.condition("Accepted");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "InvalidSpec"));
    assert!(message.contains("spec.version") && message.contains("\"9\""), "{message}");
}

#[test]
fn a_promised_password_is_waited_for_and_never_made_up() {
    let mut world = World::with(json!({
        "replicas": 1, "bootstrap": {"initdb": {"ownerPassword": {"name": "mine", "key": "pw"}}},
    }));
    let plan = world.step();
    assert!(!world.names(Kind::Secret).contains(&"orders-app"));
    assert_eq!(world.names(Kind::Pod), [""; 0]);
    assert!(plan.waiting_on.iter().any(|on| on.to_string() == "key pw in Secret mine"), "{:?}", plan.waiting_on);
    assert_eq!(world.condition("Accepted").1, "InvalidSpec");
}

#[test]
fn a_node_that_does_not_say_that_its_pod_has_stopped_is_said_to_be_lost_after_a_minute() {
    let mut world = World::settled(json!({"replicas": 3}));
    let gone_by = world.now + jiff::SignedDuration::from_secs(30);
    world.get(Kind::Pod, "orders-2")["metadata"]["deletionTimestamp"] = gone_by.to_string().into();
    let plan = world.step();
    assert_eq!(world.condition("Degraded").1, "Restarting", "it may just be stopping");
    assert_eq!(plan.requeue, Some(jiff::SignedDuration::from_secs(90)), "nothing will tell");
    world.now += jiff::SignedDuration::from_secs(90);
    assert_eq!(world.step().actions, [], "what is on its volume may be the only copy");
    let (_, reason, message) = world.condition("Degraded");
    assert_eq!(reason, "NodeLost");
    assert!(message.starts_with("orders-2: node node-2 "), "{message}");
    assert_eq!(world.condition("Ready").0, "True", "the others go on");
}

#[test]
fn a_volume_that_is_gone_is_named_and_its_claim_is_left_alone() {
    let mut world = World::settled(json!({"replicas": 3, "storage": {"onDelete": "Delete"}}));
    world.get(Kind::PersistentVolumeClaim, "orders-3-data")["status"] = json!({"phase": "Lost"});
    world.run("orders-3", 3, "standby", "Down");
    assert!(!world.step().actions.iter().any(|action| action.effect.destroys()));
    let (_, reason, message) = world.condition("Degraded");
    assert_eq!((reason.as_str(), message.contains("orders-3-data")), ("VolumeLost", true), "{message}");
}
