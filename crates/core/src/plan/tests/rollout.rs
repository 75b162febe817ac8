//! Changes that take a restart.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::lease_object::{SWITCHOVER, SWITCHOVER_ASKED};
use crate::object::Kind;
use crate::plan::plan;
use crate::plan::world::{NAME, World};
use bellwether_api::labels;
use bellwether_api::v1::{OperationKind, OperationStep, Phase};

fn three() -> World {
    World::settled(json!({"replicas": 3, "parameters": {"max_connections": "100"}}))
}

fn image(world: &mut World, image: &str) {
    world.change_spec(|spec| spec["image"] = image.into());
}

fn connections(world: &mut World, value: &str) {
    world.change_spec(|spec| spec["parameters"] = json!({"max_connections": value}));
}

fn images(world: &mut World) -> Vec<String> {
    let names: Vec<_> = world.names(Kind::Pod).into_iter().map(str::to_owned).collect();
    let image =
        |name: &String| world.get(Kind::Pod, name)["spec"]["containers"][0]["image"].as_str().unwrap().to_owned();
    names.iter().map(image).collect()
}

fn restarts(world: &World) -> Vec<String> {
    world.restarts.iter().map(|(name, how)| format!("{name} {how}")).collect()
}

/// The kubelet can't have its image, or it has no other trouble than that it is not there.
fn broken(world: &mut World, name: &str) {
    world.get(Kind::Pod, name)["status"] = json!({"phase": "Pending", "containerStatuses": [{
        "name": "postgres", "image": "postgres:none", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}},
    }]});
}

fn pause(world: &mut World, value: Option<&str>) {
    let annotations = value.map_or(Value::Null, |value| json!({labels::PAUSED: value}));
    world.cluster.as_mut().unwrap()["metadata"]["annotations"] = annotations;
}

fn destroys(world: &World) -> bool {
    let plan = plan(&world.observe(), world.now, &Default::default());
    plan.actions.iter().any(|action| action.effect.destroys())
}

#[test]
fn an_image_comes_to_standbys_first_then_by_a_switchover_to_the_old_primary() {
    let mut world = three();
    image(&mut world, "postgres:18.1");
    world.settle();
    let how = ["orders-2 standby", "orders-3 standby", "orders-1 handed over", "orders-1 standby"];
    assert_eq!(restarts(&world), how);
    assert_eq!(images(&mut world), ["postgres:18.1"; 3]);
    assert_eq!(world.status().phase, Some(Phase::Ready));
    assert_eq!(world.condition("Synced").1, "AsSpecified");
    assert_eq!(world.status().operation, None);
}

#[test]
fn the_next_standby_waits_until_the_one_before_streams_again() {
    let mut world = three();
    image(&mut world, "postgres:18.1");
    world.step();
    assert_eq!(world.names(Kind::Pod), ["orders-1", "orders-3"]);
    world.step();
    for state in ["Starting", "CatchingUp"] {
        world.run("orders-2", 2, "standby", state);
        assert!(!destroys(&world), "{state}");
        world.step();
        let operation = world.status().operation.unwrap();
        assert_eq!((operation.kind, operation.step), (OperationKind::Rollout, OperationStep::Standbys));
        assert!(operation.waiting_on.contains("orders-2 ("), "{}", operation.waiting_on);
    }
    world.run("orders-2", 2, "standby", "Streaming");
    world.step();
    assert_eq!(world.names(Kind::Pod), ["orders-1", "orders-2"]);
}

#[test]
fn a_raised_parameter_comes_to_standbys_first_and_the_switchover_restarts_the_rest() {
    let mut world = three();
    connections(&mut world, "200");
    world.settle();
    assert_eq!(restarts(&world), ["orders-2 standby", "orders-3 standby", "orders-1 handed over"]);
    assert_eq!(world.condition("Synced").0, "True");
}

#[test]
fn an_old_primary_that_starts_again_after_the_switchover_is_left_alone() {
    let mut world = three();
    connections(&mut world, "200");
    while world.restarts.len() < 2 {
        world.step();
        world.agents();
    }
    while !world.step().actions.iter().any(|action| action.to_string().starts_with("ask")) {
        world.agents();
    }
    // It is down, and its last report still has what waited.
    let mut old = world.get(Kind::Pod, "orders-1").clone();
    world.agents();
    let report = old["metadata"]["annotations"][labels::REPORT].as_str().unwrap().replace("Leading", "Down");
    old["metadata"]["annotations"][labels::REPORT] = report.into();
    world.put(Kind::Pod, "orders-1", old);
    world.run("orders-2", 2, "primary", "Leading");
    assert!(!destroys(&world));
    world.settle();
    assert_eq!(restarts(&world), ["orders-2 standby", "orders-3 standby", "orders-1 handed over"]);
}

#[test]
fn a_lowered_parameter_comes_to_the_primary_first_in_place() {
    let mut world = three();
    connections(&mut world, "50");
    world.settle();
    assert_eq!(restarts(&world), ["orders-1 in place", "orders-2 standby", "orders-3 standby"]);
    assert_eq!(world.condition("Synced").0, "True");
    let config = world.observe().config.known().unwrap().clone();
    assert_eq!(config.restart, None, "nothing is asked any more");
}

#[test]
fn a_primary_that_could_not_start_with_a_lower_value_is_not_followed_by_the_next() {
    let mut world = three();
    connections(&mut world, "50");
    while world.observe().config.known().unwrap().restart.is_none() {
        world.step();
        let serials = [("orders-1", 1, "primary", "Leading"), ("orders-2", 2, "standby", "Streaming")];
        for (name, serial, role, state) in serials.into_iter().chain([("orders-3", 3, "standby", "Streaming")]) {
            world.run(name, serial, role, state);
        }
    }
    let lease = world.get(Kind::Lease, NAME);
    lease["metadata"]["annotations"][labels::LEADER] =
        json!({"instance": "orders-2", "address": "10.0.0.2"}).to_string().into();
    lease["spec"]["leaseTransitions"] = 2.into();
    world.settle();
    assert_eq!(world.condition("Synced").1, "RolloutStalled");
    assert!(
        world.condition("Synced").2.contains("orders-1 was to restart in place"),
        "{:?}",
        world.condition("Synced")
    );
    assert_eq!(world.condition("Ready").0, "True");
    connections(&mut world, "100");
    world.settle();
    assert_eq!(world.condition("Synced").0, "True");
    assert_eq!(restarts(&world), [""; 0]);
}

#[test]
fn nothing_is_restarted_before_everybody_has_read_the_parameters() {
    let mut world = three();
    connections(&mut world, "200");
    world.step();
    world.run("orders-1", 1, "primary", "Leading");
    let plan = world.step();
    assert!(!plan.actions.iter().any(|action| action.effect.destroys()));
    let operation = world.status().operation.unwrap();
    assert!(operation.waiting_on.contains("orders-2, orders-3 to read spec.parameters"), "{}", operation.waiting_on);
}

#[test]
fn a_parameter_that_is_reloaded_restarts_nothing() {
    let mut world = three();
    world.change_spec(|spec| spec["parameters"]["work_mem"] = "8MB".into());
    world.settle();
    assert_eq!(restarts(&world), [""; 0]);
    assert_eq!(world.condition("Synced").0, "True");
}

#[test]
fn a_single_instance_is_simply_made_anew_and_that_is_said() {
    let mut world = World::settled(json!({"replicas": 1}));
    image(&mut world, "postgres:18.1");
    let plan = world.step();
    assert!(plan.actions[0].to_string().contains("it is the only instance, so nobody accepts writes until it is back"));
    assert_eq!(plan.actions[0].note().unwrap().reason, "InstanceRestarted");
    world.step();
    assert_eq!(world.status().operation.unwrap().kind, OperationKind::Rollout);
    world.settle();
    assert_eq!(restarts(&world), ["orders-1 primary"]);
    assert_eq!(world.condition("Ready").0, "True");
}

#[test]
fn the_switchover_is_asked_for_once_and_again_only_when_it_was_not_followed() {
    let mut world = three();
    image(&mut world, "postgres:18.1");
    for name in ["orders-2", "orders-3"] {
        world.step();
        world.step();
        let serial = if name == "orders-2" { 2 } else { 3 };
        world.run(name, serial, "standby", "Streaming");
    }
    let asks = |world: &mut World| world.step().actions.iter().filter(|a| a.to_string().starts_with("ask")).count();
    assert_eq!(asks(&mut world), 1);
    assert_eq!(world.status().operation.unwrap().step, OperationStep::Switchover);
    assert_eq!(asks(&mut world), 0);
    world.now += jiff::SignedDuration::from_mins(6);
    assert_eq!(asks(&mut world), 1, "a refused request is looked at again only when it is new");
}

#[test]
fn a_request_that_nobody_needs_any_more_is_withdrawn_but_not_in_the_middle_of_a_hand_over() {
    let mut world = three();
    let now = world.now.to_string();
    let annotations = &mut world.get(Kind::Lease, NAME)["metadata"]["annotations"];
    annotations[SWITCHOVER] = "any".into();
    annotations[SWITCHOVER_ASKED] = now.into();
    let mut hands_over = world.clone();
    hands_over.run("orders-1", 1, "primary", "Down");
    hands_over.step();
    assert_eq!(hands_over.get(Kind::Lease, NAME)["metadata"]["annotations"][SWITCHOVER], "any");
    world.step();
    assert!(world.get(Kind::Lease, NAME)["metadata"]["annotations"][SWITCHOVER].is_null());
}

#[test]
fn a_persons_request_is_neither_repeated_nor_withdrawn() {
    let mut world = three();
    world.get(Kind::Lease, NAME)["metadata"]["annotations"][SWITCHOVER] = "orders-3".into();
    assert_eq!(world.plan().actions, []);
}

#[test]
fn a_rollout_that_makes_an_instance_fail_stops_says_so_and_is_taken_back_with_the_spec() {
    let mut world = three();
    let before = images(&mut world);
    image(&mut world, "postgres:none");
    world.step();
    world.step();
    broken(&mut world, "orders-2");
    let plan = world.step();
    assert_eq!(plan.actions, []);
    let (holds, reason, message) = world.condition("Synced");
    assert_eq!((holds.as_str(), reason.as_str()), ("False", "RolloutStalled"));
    assert!(message.contains("orders-2") && message.contains("not found"), "{message}");
    assert_eq!(world.condition("Progressing").1, "RolloutStalled");
    assert_eq!(world.condition("Ready").0, "True", "the others go on");
    assert_eq!(world.status().operation.unwrap().step, OperationStep::Stalled);
    assert!(plan.events.iter().any(|note| note.warning && note.reason == "RolloutStalled"), "{:?}", plan.events);
    assert_eq!(world.step().events, [], "once");
    let said = world.status();
    let state = &mut world.get(Kind::Pod, "orders-2")["status"]["containerStatuses"][0]["state"];
    state["waiting"] = json!({"reason": "ImagePullBackOff", "message": "Back-off pulling image"});
    world.step();
    assert_eq!(world.status(), said, "however the kubelet words it");
    world.change_spec(|spec| drop(spec.as_object_mut().unwrap().remove("image")));
    world.settle();
    assert_eq!(images(&mut world), before);
    assert_eq!(world.condition("Synced").0, "True");
    assert_eq!(restarts(&world), ["orders-2 standby"], "the primary and the other standby were never touched");
}

#[test]
fn a_healthy_instance_on_a_spec_that_is_no_longer_wanted_is_rolled_back_too() {
    let mut world = three();
    let before = images(&mut world);
    image(&mut world, "postgres:18.1");
    world.step();
    world.step();
    world.run("orders-2", 2, "standby", "Streaming");
    world.change_spec(|spec| drop(spec.as_object_mut().unwrap().remove("image")));
    world.settle();
    assert_eq!(images(&mut world), before);
    assert_eq!(restarts(&world), ["orders-2 standby", "orders-2 standby"]);
}

#[test]
fn the_last_instance_that_fails_is_a_stalled_rollout_as_well() {
    let mut world = World::settled(json!({"replicas": 2}));
    image(&mut world, "postgres:18.1");
    while world.restarts.len() < 3 {
        world.step();
        if world.restarts.len() < 3 {
            world.agents();
        }
    }
    world.step();
    broken(&mut world, "orders-1");
    world.step();
    assert_eq!(world.condition("Synced").1, "RolloutStalled");
    world.run("orders-1", 1, "standby", "Streaming");
    let plan = world.step();
    assert_eq!(world.condition("Synced").0, "True");
    assert!(plan.events.iter().any(|note| note.reason == "RolledOut"), "{:?}", plan.events);
}

#[test]
fn an_instance_that_stays_away_without_any_trouble_to_see_is_a_failure_after_a_while() {
    let mut world = three();
    image(&mut world, "postgres:18.1");
    world.step();
    world.step();
    let made = world.now.to_string();
    world.get(Kind::Pod, "orders-2")["metadata"]["creationTimestamp"] = made.into();
    let plan = world.step();
    assert_eq!(plan.requeue, Some(jiff::SignedDuration::from_mins(10)));
    assert_eq!(world.condition("Synced").1, "RollingOut");
    world.now += jiff::SignedDuration::from_mins(10);
    world.step();
    assert_eq!(world.condition("Synced").1, "RolloutStalled");
}

#[test]
fn a_broken_standby_on_an_outdated_spec_is_restarted_first() {
    let mut world = three();
    world.run("orders-3", 3, "standby", "NotStreaming");
    image(&mut world, "postgres:18.1");
    let plan = world.step();
    assert_eq!(world.names(Kind::Pod), ["orders-1", "orders-2"]);
    assert!(plan.actions.iter().any(|action| action.to_string().contains("it does not work as it is")));
    world.step();
    assert!(!destroys(&world), "and nobody else before it is back");
}

#[test]
fn one_that_still_acknowledges_commits_is_not_restarted_while_they_need_it() {
    let mut world = three();
    world.run("orders-2", 2, "standby", "NotStreaming");
    world.run("orders-3", 3, "standby", "CatchingUp");
    image(&mut world, "postgres:18.1");
    world.step();
    assert_eq!(world.names(Kind::Pod), ["orders-1", "orders-3"], "the broken one goes");
    let mut world = three();
    world.run("orders-2", 2, "standby", "CatchingUp");
    world.run("orders-3", 3, "standby", "CatchingUp");
    image(&mut world, "postgres:18.1");
    assert!(!destroys(&world));
}

#[test]
fn a_broken_primary_is_never_restarted_for_a_rollout() {
    let mut world = three();
    image(&mut world, "postgres:18.1");
    world.run("orders-1", 1, "primary", "Down");
    assert!(!destroys(&world));
    let mut world = World::settled(json!({"replicas": 1}));
    image(&mut world, "postgres:18.1");
    world.run("orders-1", 1, "primary", "Down");
    assert!(!destroys(&world), "what is wrong with it is not known to be the old spec");
}

#[test]
fn nothing_is_restarted_while_commits_wait_or_somebody_is_fenced() {
    let mut world = three();
    image(&mut world, "postgres:18.1");
    let mut waits = world.clone();
    let report = &mut waits.get(Kind::Pod, "orders-1")["metadata"]["annotations"][labels::REPORT];
    let mut said: Value = serde_json::from_str(report.as_str().unwrap()).unwrap();
    said["commitsWait"] = true.into();
    *report = said.to_string().into();
    assert!(!destroys(&waits));
    world.cluster.as_mut().unwrap()["metadata"]["annotations"] = json!({labels::FENCED: "orders-3"});
    assert!(!destroys(&world));
}

#[test]
fn a_scale_down_comes_before_a_rollout() {
    let mut world = three();
    world.change_spec(|spec| {
        spec["image"] = "postgres:18.1".into();
        spec["replicas"] = 2.into();
    });
    while world.names(Kind::Pod).len() == 3 {
        assert_eq!(world.restarts, []);
        world.step();
        world.agents();
    }
    assert_eq!(world.names(Kind::Pod), ["orders-1", "orders-2"]);
    world.settle();
    assert_eq!(images(&mut world), ["postgres:18.1"; 2]);
}

#[test]
fn a_paused_cluster_begins_no_step_says_so_and_goes_on_when_it_may() {
    let mut world = three();
    pause(&mut world, Some("true"));
    world.change_spec(|spec| {
        spec["image"] = "postgres:18.1".into();
        spec["replicas"] = 2.into();
    });
    let plan = world.step();
    assert!(plan.events.iter().any(|note| note.reason == "Paused"), "{:?}", plan.events);
    world.settle();
    assert_eq!((world.names(Kind::Pod).len(), restarts(&world)), (3, vec![]));
    assert_eq!(world.condition("Paused").0, "True");
    assert_eq!(world.condition("Synced").1, "Paused");
    let operation = world.status().operation.unwrap();
    assert!(operation.waiting_on.contains("bellwether.dev/paused to be removed"), "{}", operation.waiting_on);
    pause(&mut world, None);
    world.settle();
    assert_eq!(world.names(Kind::Pod).len(), 2);
    assert_eq!(world.condition("Synced").0, "True");
    assert!(world.status().conditions.iter().all(|condition| condition.type_ != "Paused"));
}

#[test]
fn a_paused_scale_down_is_not_said_to_progress() {
    let mut world = three();
    pause(&mut world, Some("true"));
    world.change_spec(|spec| spec["replicas"] = 1.into());
    world.settle();
    assert_eq!(world.names(Kind::Pod).len(), 3);
    assert_eq!(
        (world.condition("Progressing").0.as_str(), world.condition("Progressing").1.as_str()),
        ("False", "Paused")
    );
    let operation = world.status().operation.unwrap();
    assert_eq!((operation.kind, operation.waiting_on.matches("paused").count()), (OperationKind::ScaleDown, 1));
    assert_eq!(world.condition("Synced").0, "True");
}

#[test]
fn a_pause_that_is_none_is_said() {
    let mut world = three();
    pause(&mut world, Some("yes"));
    image(&mut world, "postgres:18.1");
    world.settle();
    assert_eq!(world.condition("Paused").0, "False");
    assert!(world.condition("Paused").2.contains("\"yes\""));
    assert_eq!(images(&mut world), ["postgres:18.1"; 3]);
}

#[test]
fn a_rollout_under_way() {
    let mut world = three();
    image(&mut world, "postgres:18.1");
    insta::assert_snapshot!(super::words::told(&world.plan()));
}

#[test]
fn a_stalled_rollout() {
    let mut world = three();
    image(&mut world, "postgres:none");
    world.step();
    world.step();
    broken(&mut world, "orders-2");
    insta::assert_snapshot!(super::words::told(&world.plan()));
}

fn changes() -> impl Strategy<Value = Value> {
    let image = prop_oneof![Just(Value::Null), Just(json!("postgres:18.1"))];
    let memory = prop_oneof![Just(Value::Null), Just(json!({"limits": {"memory": "2Gi"}}))];
    let connections = prop_oneof![Just("50"), Just("100"), Just("200")];
    (image, memory, connections, 1..=4i32).prop_map(|(image, memory, connections, replicas)| {
        let mut spec = json!({"replicas": replicas, "parameters": {"max_connections": connections}});
        for (key, value) in [("image", image), ("resources", memory)] {
            if !value.is_null() {
                spec[key] = value;
            }
        }
        spec
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The test world itself refuses a standby below its primary, and `check` everything else that must never be.
    #[test]
    fn any_change_is_rolled_out_and_then_nothing_is_left_to_do(from in changes(), to in changes(), cut in 0usize..12) {
        let mut world = World::settled(from);
        world.change_spec(|spec| *spec = to.clone());
        for _ in 0..cut {
            world.step();
            world.agents();
        }
        // What was wanted changes again half way.
        world.change_spec(|spec| spec["image"] = "postgres:18.2".into());
        world.settle();
        let plan = world.plan();
        prop_assert_eq!(plan.actions, []);
        prop_assert_eq!(plan.events, []);
        prop_assert_eq!(world.condition("Synced").0, "True");
        prop_assert_eq!(world.condition("Ready").0, "True");
        prop_assert!(images(&mut world).iter().all(|image| image == "postgres:18.2"));
        let switchovers = world.restarts.iter().filter(|(_, how)| *how == "handed over").count();
        prop_assert!(switchovers <= 2, "{:?}", world.restarts);
    }

    #[test]
    fn what_was_not_seen_is_never_restarted(
        to in changes(),
        steps in 0usize..10,
        unseen in proptest::sample::subsequence(vec![Kind::Pod, Kind::PersistentVolumeClaim, Kind::Lease], 1..=3),
    ) {
        let mut world = three();
        world.change_spec(|spec| *spec = to.clone());
        for _ in 0..steps {
            world.step();
            world.agents();
        }
        world.unseen = unseen.clone();
        prop_assert!(!destroys(&world));
        world.objects.retain(|(kind, _), _| !unseen.contains(kind));
        prop_assert!(!destroys(&world));
    }
}
