//! Deleting a cluster, and what its volumes mean to the next one of its name.

use bellwether_api::labels;
use bellwether_api::v1::Phase;
use serde_json::json;

use crate::object::Kind;
use crate::plan::world::{SYSTEM, World};

fn deleted(on_delete: &str) -> World {
    let mut world = World::settled(json!({"replicas": 3, "storage": {"onDelete": on_delete}}));
    world.delete_cluster();
    world
}

#[test]
fn retained_volumes_stay() {
    let mut world = deleted("Retain");
    assert_eq!(world.step().actions, []);
    assert_eq!(world.names(Kind::PersistentVolumeClaim).len(), 3);
}

#[test]
fn volumes_marked_for_deletion_go_once_their_pods_are_gone() {
    let mut world = deleted("Delete");
    let pod = World::settled(json!({"replicas": 3})).get(Kind::Pod, "orders-2").clone();
    world.put(Kind::Pod, "orders-2", pod);
    world.step();
    assert_eq!(world.names(Kind::PersistentVolumeClaim), ["orders-2-data"]);
    world.objects.remove(&(Kind::Pod, "orders-2".to_owned()));
    world.step();
    assert_eq!(world.names(Kind::PersistentVolumeClaim), [""; 0]);
}

#[test]
fn a_volume_whose_mark_is_gone_stays() {
    let mut world = deleted("Delete");
    world.get(Kind::PersistentVolumeClaim, "orders-1-data")["metadata"]["annotations"] = json!({});
    world.step();
    assert_eq!(world.names(Kind::PersistentVolumeClaim), ["orders-1-data"]);
}

#[test]
fn a_cluster_created_again_brings_its_data_back() {
    let mut world = deleted("Retain");
    world.recreate(json!({"replicas": 3}));
    let plan = world.step();
    let config = world.observe().config;
    assert!(config.known().unwrap().system_identifier.is_some(), "nobody may initialise");
    assert_eq!(config.known().unwrap().bootstrap_instance, "orders-1");
    assert_eq!(plan.actions.iter().filter_map(|a| a.note()).filter(|n| n.reason == "VolumeAdopted").count(), 3);
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Ready));
}

#[test]
fn a_smaller_cluster_takes_the_primarys_volume_and_leaves_the_rest_alone() {
    let mut world = World::settled(json!({"replicas": 3}));
    let leader = json!({"instance": "orders-3", "address": "10.0.0.3"}).to_string();
    world.get(Kind::Lease, "orders")["metadata"]["annotations"][labels::LEADER] = leader.into();
    world.settle();
    world.delete_cluster();
    world.recreate(json!({"replicas": 1, "storage": {"onDelete": "Delete"}}));
    world.settle();
    assert_eq!(world.names(Kind::Pod), ["orders-3"]);
    assert_eq!(world.names(Kind::PersistentVolumeClaim).len(), 3, "volumes that it never used are not its to delete");
}

#[test]
fn a_new_cluster_waits_for_the_volumes_of_its_predecessor_to_go() {
    let mut world = deleted("Delete");
    world.recreate(json!({"replicas": 3}));
    world.step();
    assert_eq!(world.condition("Ready").1, "WaitingForVolumes");
    assert_eq!(world.names(Kind::Pod), [""; 0]);
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Ready));
}

#[test]
fn volumes_of_two_databases_are_refused() {
    let mut world = deleted("Retain");
    world.get(Kind::PersistentVolumeClaim, "orders-2-data")["metadata"]["annotations"][labels::SYSTEM_IDENTIFIER] =
        "42".into();
    world.recreate(json!({"replicas": 3}));
    assert_eq!(world.step().actions, []);
    assert_eq!(world.condition("Ready").1, "SystemIdentifierMismatch");
    assert!(world.condition("Ready").2.contains("orders-2-data holds 42"), "{:?}", world.condition("Ready"));
}

#[test]
fn two_former_primaries_are_refused_rather_than_guessed() {
    let mut world = deleted("Retain");
    world.get(Kind::PersistentVolumeClaim, "orders-2-data")["metadata"]["annotations"][labels::LAST_ROLE] =
        "primary".into();
    world.recreate(json!({"replicas": 3}));
    assert_eq!(world.step().actions, []);
    assert_eq!(world.condition("Ready").1, "AdoptionAmbiguous");
}

#[test]
fn a_cluster_that_nobody_was_seen_to_lead_runs_on_its_own_volumes_and_leaves_it_to_the_agents_who_leads() {
    let mut world = World::settled(json!({"replicas": 3}));
    for volume in ["orders-1-data", "orders-2-data", "orders-3-data"] {
        let claim = world.get(Kind::PersistentVolumeClaim, volume);
        claim["metadata"]["annotations"].as_object_mut().unwrap().remove(labels::LAST_ROLE);
    }
    world.get(Kind::Lease, "orders")["metadata"]["annotations"] = json!({});
    world.get(Kind::Lease, "orders")["spec"] = json!({});
    world.cluster.as_mut().unwrap()["status"] = json!({});
    world.objects.remove(&(Kind::Pod, "orders-2".to_owned()));
    world.step();
    assert_eq!(world.names(Kind::Pod), ["orders-1", "orders-2", "orders-3"]);
    assert_ne!(world.condition("Ready").1, "AdoptionAmbiguous");
}

#[test]
fn a_volume_that_several_nodes_may_write_is_refused() {
    let mut world = deleted("Retain");
    world.get(Kind::PersistentVolumeClaim, "orders-2-data")["spec"]["accessModes"] =
        json!(["ReadWriteOnce", "ReadWriteMany"]);
    world.recreate(json!({"replicas": 3}));
    assert_eq!(world.step().actions, []);
    assert_eq!(world.condition("Ready").1, "SharedVolume");
    assert!(world.condition("Ready").2.contains("orders-2-data"), "{:?}", world.condition("Ready"));
}

#[test]
fn a_pod_waits_for_its_claim_and_says_which_it_is() {
    let mut world = World::with(json!({"replicas": 1}));
    let plan = world.step();
    assert_eq!(world.names(Kind::Pod), [""; 0]);
    assert!(plan.waiting_on.iter().any(|on| on.to_string().contains("orders-1-data")), "{:?}", plan.waiting_on);
    world.step();
    let uid = world.get(Kind::PersistentVolumeClaim, "orders-1-data")["metadata"]["uid"].clone();
    let pod = world.get(Kind::Pod, "orders-1");
    let variables = pod["spec"]["containers"][0]["env"].as_array().unwrap();
    assert!(variables.contains(&json!({"name": "BELLWETHER_CLAIM_UID", "value": uid})), "{variables:#?}");
}

#[test]
fn what_the_garbage_collector_has_not_removed_yet_is_waited_for() {
    let mut world = World::settled(json!({"replicas": 1}));
    world.recreate(json!({"replicas": 1}));
    let plan = world.step();
    assert_eq!(plan.actions, []);
    assert!(plan.waiting_on[0].to_string().contains("Pod orders-1"), "{:?}", plan.waiting_on);
    assert_eq!(world.status().primary, None, "the old Lease says nothing about the new cluster");
    assert_eq!(world.status().system_identifier.as_deref(), Some(SYSTEM), "but its volume does");
}

#[test]
fn note_15_a_volume_on_its_way_out_holds_its_instance_back() {
    let mut world = World::with(json!({"replicas": 1}));
    world.step();
    world.objects.remove(&(Kind::Pod, "orders-1".to_owned()));
    world.get(Kind::PersistentVolumeClaim, "orders-1-data")["metadata"]["deletionTimestamp"] =
        "2026-01-01T00:00:00Z".into();
    let plan = world.step();
    assert_eq!(world.names(Kind::Pod), [""; 0]);
    assert!(plan.waiting_on.iter().any(|on| on.to_string().contains("orders-1-data")), "{:?}", plan.waiting_on);
}

#[test]
fn volumes_grow_and_never_shrink() {
    let mut world = World::settled(json!({"replicas": 1, "storage": {"size": "10Gi"}}));
    world.change_spec(|spec| spec["storage"]["size"] = "10240Mi".into());
    assert_eq!(world.plan().actions, [], "the same size in other words");
    world.change_spec(|spec| spec["storage"]["size"] = "20Gi".into());
    world.step();
    let size =
        world.get(Kind::PersistentVolumeClaim, "orders-1-data")["spec"]["resources"]["requests"]["storage"].clone();
    assert_eq!(size, "20Gi");
    world.step();
    let (status, reason, message) = world.condition("Synced");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "VolumeGrowing"), "asked for is not had");
    assert_eq!(message, "orders-1-data has 10Gi, 20Gi is asked for");
    world.settle();
    assert_eq!(world.condition("Synced").0, "True");
    world.change_spec(|spec| spec["storage"]["size"] = "5Gi".into());
    assert_eq!(world.plan().actions, []);
}

#[test]
fn a_claim_without_storage_behind_it_is_not_asked_to_grow() {
    let mut world = World::settled(json!({"replicas": 1, "storage": {"size": "10Gi"}}));
    world.get(Kind::PersistentVolumeClaim, "orders-1-data")["status"] = json!({"phase": "Pending"});
    world.change_spec(|spec| spec["storage"]["size"] = "20Gi".into());
    assert_eq!(world.step().actions, []);
    let message = world.condition("Synced").2;
    assert_eq!(message, "orders-1-data asks for 10Gi and grows to 20Gi once it is bound");
}

#[test]
fn what_storage_says_about_a_volume_that_does_not_grow_is_said() {
    let mut world = World::settled(json!({"replicas": 1, "storage": {"size": "10Gi"}}));
    world.change_spec(|spec| spec["storage"]["size"] = "20Gi".into());
    world.step();
    let mut says = |status: serde_json::Value| {
        world.get(Kind::PersistentVolumeClaim, "orders-1-data")["status"] = status;
        world.step();
        (world.condition("Synced").1, world.condition("Synced").2)
    };
    let pending = json!([{"type": "FileSystemResizePending", "status": "True"}]);
    let (reason, message) = says(json!({"phase": "Bound", "capacity": {"storage": "10Gi"}, "conditions": pending}));
    assert_eq!((reason.as_str(), message.contains("file system")), ("VolumeGrowing", true), "{message}");
    let error = json!([{"type": "ControllerResizeError", "status": "True", "message": "out of quota"}]);
    let (reason, message) = says(json!({"phase": "Bound", "capacity": {"storage": "10Gi"}, "conditions": error}));
    assert_eq!((reason.as_str(), message.contains("out of quota")), ("VolumeNotGrown", true), "{message}");
    let (reason, _) = says(json!({
        "phase": "Bound", "capacity": {"storage": "10Gi"}, "allocatedResourceStatuses": {"storage": "NodeResizeInfeasible"},
    }));
    assert_eq!(reason, "VolumeNotGrown");
}
