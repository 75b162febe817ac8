//! Server-side apply as a whole, through the store.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::store::fixture::{Fixture, config_map};
use crate::store::object;

fn owned(object: &Value, manager: &str) -> Value {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    entries.into_iter().find(|one| one["manager"] == manager).map(|one| one["fieldsV1"].clone()).unwrap_or_default()
}

#[test]
fn an_applied_pod_is_not_changed_by_the_same_apply_in_spite_of_defaults() {
    let mut fixture = Fixture::new();
    let pod = json!({"spec": {
        "containers": [{
            "name": "c", "image": "x", "ports": [{"containerPort": 5432}], "resources": {"limits": {"memory": "1024Mi"}},
            "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "readinessProbe": {"httpGet": {"port": 8443, "scheme": "HTTPS"}},
        }],
        "volumes": [{"name": "v", "secret": {"secretName": "s"}}],
    }});
    let first = fixture.apply("pods/a", "operator", pod.clone()).unwrap();
    fixture.seconds += 60;
    let second = fixture.apply("pods/a", "operator", pod).unwrap();
    assert!(first.created && !second.created);
    assert_eq!(first.object, second.object);
}

#[test]
fn two_managers_share_an_endpoint_slice() {
    let mut fixture = Fixture::new();
    let slice = json!({"addressType": "IPv4", "ports": [{"port": 5432, "name": "postgres"}], "metadata": {"labels": {"kubernetes.io/service-name": "rw"}}});
    fixture.apply("endpointslices/rw", "operator", slice.clone()).unwrap();
    let endpoints =
        json!({"addressType": "IPv4", "endpoints": [{"addresses": ["127.1.0.1"], "conditions": {"ready": true}}]});
    fixture.apply("endpointslices/rw", "agent", endpoints).unwrap();
    let object = fixture.apply("endpointslices/rw", "operator", slice).unwrap().object;
    assert_eq!(object["endpoints"][0]["addresses"], json!(["127.1.0.1"]));
}

#[test]
fn a_conflict_names_the_other_manager_and_force_takes_the_field() {
    let mut fixture = Fixture::new();
    fixture.apply("configmaps/a", "one", json!({"data": {"k": "1"}})).unwrap();
    let error = fixture.apply("configmaps/a", "two", json!({"data": {"k": "2"}})).unwrap_err();
    assert_eq!(error.message, "Apply failed with 1 conflict: conflict with \"one\": .data.k");
    let object = fixture.force("configmaps/a", "two", json!({"data": {"k": "2"}})).object;
    assert_eq!(owned(&object, "one"), Value::Null);
    assert_eq!(owned(&object, "two"), json!({"f:data": {"f:k": {}}}));
}

#[test]
fn an_update_takes_fields_from_their_owners() {
    let mut fixture = Fixture::new();
    fixture.given("configmaps", config_map("a", json!({"x": "1"})));
    fixture.apply("configmaps/a", "one", json!({"data": {"y": "1"}})).unwrap();
    let object = fixture.merge("configmaps/a", json!({"data": {"y": "2"}})).unwrap();
    assert_eq!(owned(&object, "one"), Value::Null);
    let error = fixture.apply("configmaps/a", "one", json!({"data": {"y": "1"}})).unwrap_err();
    assert!(error.message.ends_with("conflict with \"tester\" using v1: .data.y"), "{}", error.message);
}

/// A small world of fields: a map of four keys.
fn data() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[abcd]", "[12]", 0..4).prop_map(|map| json!({"data": map}))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn applying_twice_is_applying_once(first in data(), second in data()) {
        let mut fixture = Fixture::new();
        fixture.apply("configmaps/a", "other", first).unwrap();
        let once = fixture.force("configmaps/a", "me", second.clone()).object;
        fixture.seconds += 1;
        let twice = fixture.force("configmaps/a", "me", second).object;
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn managers_of_disjoint_fields_commute(mine in data(), theirs in data()) {
        let renamed: serde_json::Map<String, Value> =
            theirs["data"].as_object().unwrap().iter().map(|(key, value)| (format!("other-{key}"), value.clone())).collect();
        let theirs = json!({"data": renamed});
        let result = |order: [(&str, &Value); 2]| {
            let mut fixture = Fixture::new();
            for (manager, config) in order {
                fixture.apply("configmaps/a", manager, config.clone()).unwrap();
            }
            let object = fixture.get("configmaps/a").unwrap();
            (object["data"].clone(), owned(&object, "me"), owned(&object, "they"))
        };
        prop_assert_eq!(result([("me", &mine), ("they", &theirs)]), result([("they", &theirs), ("me", &mine)]));
    }

    #[test]
    fn what_the_only_owner_drops_is_removed_and_nothing_else(before in data(), after in data(), theirs in data()) {
        let mut fixture = Fixture::new();
        fixture.apply("configmaps/a", "me", before).unwrap();
        fixture.force("configmaps/a", "they", theirs.clone());
        let object = fixture.force("configmaps/a", "me", after.clone()).object;
        let mut wanted = theirs["data"].as_object().cloned().unwrap();
        wanted.extend(after["data"].as_object().cloned().unwrap());
        prop_assert_eq!(object["data"].as_object().cloned().unwrap_or_default(), wanted);
        prop_assert_eq!(object::name(&object), "a");
    }
}
