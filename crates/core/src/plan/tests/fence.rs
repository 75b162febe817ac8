//! Instances that a person has stopped.

use serde_json::{Value, json};

use crate::contract::InstanceConfig;
use crate::object::Kind;
use crate::plan::world::World;
use bellwether_api::labels;
use bellwether_api::v1::{InstanceState, Phase};

fn annotate(world: &mut World, names: Option<&str>) {
    let annotations = names.map_or(Value::Null, |names| json!({labels::FENCED: names}));
    world.cluster.as_mut().unwrap()["metadata"]["annotations"] = annotations;
}

/// The agent of this instance has done what was wanted of it.
fn stopped(world: &mut World, name: &str) {
    let mut pod = world.get(Kind::Pod, name).clone();
    let report = json!({"role": null, "state": "Fenced", "acceptsSql": false, "message": "stopped"});
    pod["metadata"]["annotations"][labels::REPORT] = report.to_string().into();
    pod["status"]["conditions"] = json!([{"type": "Ready", "status": "False"}]);
    world.put(Kind::Pod, name, pod);
}

fn config(world: &mut World) -> InstanceConfig {
    let text = world.get(Kind::ConfigMap, "orders-config")["data"]["instance.json"].as_str().unwrap().to_owned();
    serde_json::from_str(&text).unwrap()
}

fn fenced(names: &str, who: &[&str]) -> World {
    let mut world = World::settled(json!({"replicas": 3}));
    annotate(&mut world, Some(names));
    for name in who {
        stopped(&mut world, name);
    }
    while !world.step().actions.is_empty() {}
    world
}

#[test]
fn the_wish_reaches_the_agents_through_their_configuration() {
    let mut world = fenced("orders-2", &[]);
    assert_eq!(config(&mut world).fenced, ["orders-2"]);
    let (status, reason, message) = world.condition("Fenced");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "Fenced"));
    assert!(message.contains("to be stopped: orders-2"), "{message}");
    assert_eq!(world.status().phase, Some(Phase::Ready), "it still streams");
}

#[test]
fn a_fenced_standby_is_no_trouble_but_the_cluster_is_not_as_specified() {
    let mut world = fenced("orders-2", &["orders-2"]);
    let status = world.status();
    assert_eq!((status.phase, status.operation), (Some(Phase::Degraded), None));
    assert_eq!(status.instances[1].state, InstanceState::Fenced);
    assert_eq!(world.condition("Ready").0, "True", "writes work");
    assert_eq!(world.condition("Degraded").1, "Fenced");
    assert_eq!(world.condition("Progressing").0, "False");
    let before = world.status();
    world.now += jiff::SignedDuration::from_hours(1);
    assert_eq!((world.step().actions, world.status()), (vec![], before), "an hour later nothing is different");
}

#[test]
fn a_fenced_primary_that_nobody_replaced_is_why_nothing_is_written() {
    let world = fenced("orders-1", &["orders-1"]);
    let (status, reason, message) = world.condition("Ready");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Fenced"));
    assert!(message.contains("orders-1 leads by the Lease and is fenced"), "{message}");
    let operation = world.status().operation.unwrap();
    assert!(operation.waiting_on.contains("the fence on orders-1 to be lifted"), "{}", operation.waiting_on);
}

#[test]
fn too_few_standbys_because_of_a_fence_is_said_so() {
    let world = fenced("orders-2,orders-3", &["orders-2", "orders-3"]);
    let (status, reason, message) = world.condition("Ready");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "NoSynchronousStandby"));
    assert!(message.contains("fenced: orders-2, orders-3"), "{message}");
}

#[test]
fn a_name_that_no_instance_has_stops_nothing_and_is_said() {
    let world = fenced("orders-9", &[]);
    let (status, _, message) = world.condition("Fenced");
    assert_eq!(status, "False");
    assert!(message.contains("orders-9") && message.contains("orders-1, orders-2, orders-3"), "{message}");
    assert_eq!(world.status().phase, Some(Phase::Ready));
}

#[test]
fn each_change_of_the_wish_is_an_event_once() {
    let mut world = World::settled(json!({"replicas": 3}));
    let reasons = |world: &mut World| world.step().events.into_iter().map(|note| note.reason).collect::<Vec<_>>();
    annotate(&mut world, Some("orders-2"));
    assert_eq!(reasons(&mut world), ["Fenced"]);
    assert_eq!(reasons(&mut world), Vec::<String>::new());
    stopped(&mut world, "orders-2");
    assert_eq!(reasons(&mut world), ["Degraded", "Fenced"]);
    annotate(&mut world, None);
    assert_eq!(reasons(&mut world), ["FenceLifted"]);
    world.agents();
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Ready));
    assert!(world.status().conditions.iter().all(|condition| condition.type_ != "Fenced"));
}
