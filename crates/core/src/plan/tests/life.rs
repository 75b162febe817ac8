//! Creating, scaling, repairing.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::fact::Fact;
use crate::object::Kind;
use crate::observed::{Readings, observe, observe_again};
use crate::plan::world::{NAME, World};
use crate::plan::{Action, Content, Effect};
use bellwether_api::labels;
use bellwether_api::v1::{OperationKind, Phase};

#[test]
fn two_passes_create_everything_and_a_third_writes_nothing() {
    let world = World::made(json!({"replicas": 3}));
    assert_eq!(world.names(Kind::Pod), ["orders-1", "orders-2", "orders-3"]);
    assert_eq!(world.names(Kind::PersistentVolumeClaim), ["orders-1-data", "orders-2-data", "orders-3-data"]);
    assert_eq!(world.plan().actions, []);
}

#[test]
fn what_was_read_before_is_what_would_be_read_now() {
    let mut world = World::settled(json!({"replicas": 3}));
    let mut readings = Readings::default();
    let mut raw = world.raw();
    observe_again("shop", NAME, raw.clone(), &mut readings);
    world.run("orders-2", 2, "standby", "NotStreaming");
    let pods = raw.children.get_mut(&Kind::Pod).unwrap();
    pods.items.remove("orders-3");
    pods.items.insert("orders-2".to_owned(), Arc::new(world.get(Kind::Pod, "orders-2").clone()));
    let (again, anew) = (observe_again("shop", NAME, raw.clone(), &mut readings), observe("shop", NAME, raw));
    assert_eq!(format!("{again:?}"), format!("{anew:?}"));
    assert!(!again.pods.items["orders-2"].streams());
}

#[test]
fn a_cluster_comes_up_to_ready_and_stays_silent() {
    let mut world = World::settled(json!({"replicas": 3}));
    assert_eq!(world.status().phase, Some(Phase::Ready));
    assert_eq!(world.condition("Ready").0, "True");
    assert_eq!(world.status().primary.as_deref(), Some("orders-1"));
    assert_eq!(world.status().ready_replicas, 3);
    let before = world.status();
    world.now += jiff::SignedDuration::from_hours(1);
    assert_eq!(world.step().actions, []);
    assert_eq!(world.status(), before, "an hour later nothing is different, so nothing may be written");
}

#[test]
fn the_agents_rights_stay_for_as_long_as_their_pods() {
    let mut world = World::settled(json!({"replicas": 3}));
    for kind in [Kind::ServiceAccount, Kind::Role, Kind::RoleBinding] {
        let owners = world.get(kind, "orders-agent")["metadata"]["ownerReferences"].as_array().unwrap().clone();
        let names: Vec<_> = owners.iter().map(|owner| owner["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["orders", "orders-1", "orders-2", "orders-3"], "{kind}");
    }
    // The garbage collector takes a pod that is gone from the list: nobody puts it back, or tells of drift.
    let owners = &mut world.get(Kind::Role, "orders-agent")["metadata"]["ownerReferences"];
    owners.as_array_mut().unwrap().remove(3);
    world.objects.remove(&(Kind::Pod, "orders-3".to_owned()));
    let written: Vec<_> = world.plan().actions.iter().map(ToString::to_string).collect();
    assert_eq!(written.iter().filter(|action| action.contains("Role")).count(), 0, "{written:?}");
}

#[test]
fn what_only_pods_own_any_more_is_waited_for() {
    let mut world = World::settled(json!({"replicas": 3}));
    let mut role = world.get(Kind::Role, "orders-agent").clone();
    role["metadata"]["ownerReferences"].as_array_mut().unwrap().remove(0);
    world.delete_cluster();
    world.put(Kind::Role, "orders-agent", role);
    world.recreate(json!({"replicas": 3}));
    let waiting: Vec<_> = world.plan().waiting_on.iter().map(ToString::to_string).collect();
    assert!(waiting.iter().any(|on| on.contains("Role orders-agent")), "{waiting:?}");
}

#[test]
fn kubelets_are_told_of_a_new_configuration_once_it_is_there() {
    let mut world = World::settled(json!({"replicas": 3}));
    world.change_spec(|spec| spec["parameters"] = json!({"work_mem": "5MB"}));
    let told = |plan: &crate::plan::Plan| {
        let pods = plan.actions.iter().filter(|action| action.to_string().starts_with("annotate Pod "));
        pods.count()
    };
    assert_eq!(told(&world.step()), 0, "the ConfigMap is written first");
    assert_eq!(told(&world.step()), 3);
    assert_eq!(world.step().actions, []);
}

#[test]
fn slices_that_kubernetes_makes_for_a_service_of_ours_are_not_waited_for() {
    let mut world = World::settled(json!({"replicas": 3}));
    let service = json!({"apiVersion": "v1", "kind": "Service", "name": "orders-pods", "uid": "s", "controller": true});
    let slice = json!({"metadata": {"name": "orders-pods-x7k2p", "ownerReferences": [service]}, "endpoints": []});
    world.put(Kind::EndpointSlice, "orders-pods-x7k2p", slice);
    assert_eq!(world.settle().waiting_on, []);
    assert_eq!(world.condition("Ready").0, "True");
}

#[test]
fn read_only_clients_reach_streaming_standbys_and_nobody_else() {
    let mut world = World::settled(json!({"replicas": 3}));
    world.run("orders-3", 3, "standby", "CatchingUp");
    world.step();
    let endpoints = |world: &mut World, name: &str| -> Vec<String> {
        let slice = world.get(Kind::EndpointSlice, name);
        slice["endpoints"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| e["targetRef"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(endpoints(&mut world, "orders-ro"), ["orders-2"]);
    assert_eq!(endpoints(&mut world, "orders-r"), ["orders-1", "orders-2"]);
}

#[test]
fn scaling_up_adds_instances_and_names_the_operation() {
    let mut world = World::settled(json!({"replicas": 1}));
    world.change_spec(|spec| spec["replicas"] = 3.into());
    world.step();
    world.step();
    assert_eq!(world.names(Kind::Pod), ["orders-1", "orders-2", "orders-3"]);
    assert_eq!(world.status().operation.unwrap().kind, OperationKind::ScaleUp);
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Ready));
}

#[test]
fn scaling_down_removes_standbys_and_keeps_their_volumes() {
    let mut world = World::settled(json!({"replicas": 3}));
    world.change_spec(|spec| spec["replicas"] = 1.into());
    world.settle();
    assert_eq!(world.names(Kind::Pod), ["orders-1"]);
    assert_eq!(world.names(Kind::PersistentVolumeClaim).len(), 3, "retained");
}

#[test]
fn scaling_down_spares_the_primary_whatever_its_number() {
    let mut world = World::settled(json!({"replicas": 3}));
    let leader = json!({"instance": "orders-3", "address": "10.0.0.3"}).to_string();
    world.get(Kind::Lease, NAME)["metadata"]["annotations"][labels::LEADER] = leader.into();
    world.settle();
    world.change_spec(|spec| spec["replicas"] = 1.into());
    world.settle();
    assert_eq!(world.names(Kind::Pod), ["orders-3"]);
}

#[test]
fn nothing_is_removed_while_the_primary_is_down() {
    let mut world = World::settled(json!({"replicas": 3}));
    world.change_spec(|spec| spec["replicas"] = 1.into());
    world.run("orders-1", 1, "primary", "Down");
    let plan = world.step();
    assert_eq!(world.names(Kind::Pod).len(), 3);
    assert!(
        plan.waiting_on.iter().any(|on| on.to_string().contains("orders-3 does not lead")),
        "{:?}",
        plan.waiting_on
    );
}

#[test]
fn scaling_down_with_delete_removes_the_volume_after_the_pod() {
    let mut world = World::settled(json!({"replicas": 2, "storage": {"onDelete": "Delete"}}));
    world.change_spec(|spec| spec["replicas"] = 1.into());
    world.step();
    assert_eq!(world.names(Kind::PersistentVolumeClaim).len(), 2, "its pod was there when this was planned");
    world.settle();
    assert_eq!(world.names(Kind::PersistentVolumeClaim), ["orders-1-data"]);
}

#[test]
fn an_evicted_pod_is_made_anew_on_its_volume() {
    let mut world = World::settled(json!({"replicas": 3}));
    world.get(Kind::Pod, "orders-1")["status"]["phase"] = "Failed".into();
    world.step();
    assert_eq!(world.names(Kind::Pod), ["orders-2", "orders-3"]);
    world.step();
    assert_eq!(world.names(Kind::Pod).len(), 3);
}

#[test]
fn a_pod_that_never_ran_is_made_anew_when_its_image_is_corrected() {
    let mut world = World::made(json!({"replicas": 2, "image": "postgres:none"}));
    world.change_spec(|spec| spec["image"] = "postgres:18.1".into());
    world.step();
    assert_eq!(world.names(Kind::Pod), Vec::<&str>::new());
    world.settle();
    assert_eq!(world.get(Kind::Pod, "orders-1")["spec"]["containers"][0]["image"], "postgres:18.1");
    assert_eq!(world.condition("Ready").0, "True");
}

#[test]
fn the_operators_own_image_is_no_reason_to_restart() {
    let world = World::settled(json!({"replicas": 1}));
    let observed = world.observe();
    let settings = crate::build::Settings { image: "bellwether:next".into(), ..Default::default() };
    let plan = crate::plan::plan(&observed, world.now, &settings);
    assert_eq!(plan.actions, []);
    assert_eq!(plan.status, observed.cluster.known().unwrap().status);
}

#[test]
fn drift_is_corrected_and_told() {
    let mut world = World::settled(json!({"replicas": 1}));
    world.get(Kind::Service, "orders-rw")["spec"]["ports"][0]["port"] = 1234.into();
    let plan = world.step();
    assert_eq!(plan.actions.len(), 1);
    assert_eq!(plan.actions[0].note().unwrap().reason, "DriftCorrected");
    assert_eq!(world.plan().actions, []);
}

#[test]
fn the_lease_is_created_once_and_never_written() {
    let mut world = World::settled(json!({"replicas": 1}));
    world.get(Kind::Lease, NAME)["metadata"]["labels"] = json!({});
    assert_eq!(world.plan().actions, []);
}

#[test]
fn a_deleted_lease_comes_back_with_the_last_term_and_the_last_primary() {
    let mut world = World::settled(json!({"replicas": 3}));
    let leader = json!({"instance": "orders-2", "address": "10.0.0.2"}).to_string();
    world.get(Kind::Lease, NAME)["metadata"]["annotations"][labels::LEADER] = leader.into();
    world.get(Kind::Lease, NAME)["spec"]["leaseTransitions"] = 5.into();
    world.settle();
    world.objects.remove(&(Kind::Lease, NAME.to_owned()));
    world.step();
    assert_eq!(world.get(Kind::Lease, NAME)["spec"]["leaseTransitions"], 5);
    let config = world.observe().config;
    assert_eq!(config.known().unwrap().bootstrap_instance, "orders-2", "no standby may take it");
    assert!(config.known().unwrap().system_identifier.is_some(), "and nobody may initialise");
}

#[test]
fn whoever_was_told_to_initialise_stays_the_only_one() {
    let mut world = World::with(json!({"replicas": 3}));
    world.step();
    let mut config: Value =
        serde_json::from_str(world.get(Kind::ConfigMap, "orders-config")["data"]["instance.json"].as_str().unwrap())
            .unwrap();
    config["bootstrapInstance"] = "orders-3".into();
    world.get(Kind::ConfigMap, "orders-config")["data"]["instance.json"] = config.to_string().into();
    world.step();
    assert_eq!(world.observe().config.known().unwrap().bootstrap_instance, "orders-3");
}

#[test]
fn a_password_that_is_supplied_anew_is_taken_once_and_one_that_is_gone_takes_nothing_back() {
    let from = json!({"name": "mine", "key": "pw"});
    let mut world = World::with(json!({"replicas": 1, "bootstrap": {"initdb": {"ownerPassword": from}}}));
    world.owner_password = Fact::Known("u/1".to_owned());
    world.settle();
    assert_eq!(world.get(Kind::Secret, "orders-app")["metadata"]["annotations"][labels::PASSWORD_FROM], "u/1");
    assert_eq!(world.plan().requeue, Some(jiff::SignedDuration::from_secs(60)), "no watch tells of it");
    world.owner_password = Fact::Known("u/2".to_owned());
    let plan = world.step();
    let anew = |action: &Action| match &action.effect {
        Effect::Issue(order) => matches!(order.content, Content::Application { password_anew: true, .. }),
        _ => false,
    };
    assert!(plan.actions.len() == 1 && anew(&plan.actions[0]), "{:?}", plan.actions);
    for unseen in [Fact::Absent, Fact::Unknown, Fact::Known("u/2".to_owned())] {
        world.owner_password = unseen;
        assert_eq!(world.plan().actions, []);
    }
}

#[test]
fn certificates_are_renewed_with_a_third_left_and_passwords_are_not() {
    let mut world = World::settled(json!({"replicas": 1}));
    world.now += jiff::SignedDuration::from_hours(24 * 365 * 2 / 3 + 24);
    let plan = world.step();
    let renewed: Vec<_> = plan.actions.iter().map(|action| action.effect.target().1).collect();
    assert_eq!(renewed, ["orders-server", "orders-replication"]);
    assert_eq!(world.plan().actions, []);
}

#[test]
fn a_new_authority_reissues_what_the_old_one_signed() {
    let mut world = World::settled(json!({"replicas": 1}));
    world.objects.remove(&(Kind::Secret, "orders-ca".to_owned()));
    world.now += jiff::SignedDuration::from_hours(1);
    let issued: Vec<_> = world.step().actions.iter().map(|action| action.effect.target().1.to_owned()).collect();
    assert_eq!(issued, ["orders-ca", "orders-server", "orders-replication", "orders-app"]);
}
