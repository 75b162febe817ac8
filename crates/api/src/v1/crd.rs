//! The finished CustomResourceDefinition: what the types say, and the table of fields on top.
//!
//! [`crd`] is the one to install. The derived one has no rules and would store anything.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use serde_json::{Map, Value, json};

use super::fields::{Field, backup_fields, fields};
use super::{Backup, PostgresCluster};

/// Every definition to install.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![crd(), backup_crd()]
}

/// The CustomResourceDefinition of [`Backup`].
///
/// # Panics
/// As [`crd`].
pub fn backup_crd() -> CustomResourceDefinition {
    let mut crd = serde_json::to_value(Backup::crd()).expect("a CRD is JSON");
    let schema = crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema").expect("the derive makes a schema");
    drop_nullable(schema);
    for field in backup_fields() {
        finish(schema, &field);
    }
    serde_json::from_value(crd).expect("bounds and rules keep the shape of a CRD")
}

/// The CustomResourceDefinition of [`PostgresCluster`], with every bound, rule and description.
///
/// # Panics
/// If the table of fields names a field that the types don't have. Tests call this function, so that never ships.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = serde_json::to_value(PostgresCluster::crd()).expect("a CRD is JSON");
    let schema = crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema").expect("the derive makes a schema");
    // Null means absent, as everywhere in Kubernetes: the API server drops nulls of fields that aren't nullable, and
    // `has()` in a rule means what it says.
    drop_nullable(schema);
    // Accepted but meaningless fields would be a promise: claims need a pod's resourceClaims, and a password that may be
    // absent is none.
    remove(schema, "spec.resources", "claims");
    remove(schema, "spec.backup.verification.resources", "claims");
    remove(schema, "spec.bootstrap.initdb.ownerPassword", "optional");
    schema["properties"]["metadata"] = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    for field in fields() {
        finish(schema, &field);
    }
    serde_json::from_value(crd).expect("bounds and rules keep the shape of a CRD")
}

/// The schema of [`crd`], for validating objects without an API server.
pub fn schema() -> Value {
    let crd = serde_json::to_value(crd()).expect("a CRD is JSON");
    crd.pointer("/spec/versions/0/schema/openAPIV3Schema").expect("it has a schema").clone()
}

/// The schema of [`backup_crd`].
pub fn backup_schema() -> Value {
    let crd = serde_json::to_value(backup_crd()).expect("a CRD is JSON");
    crd.pointer("/spec/versions/0/schema/openAPIV3Schema").expect("it has a schema").clone()
}

/// The part of a schema that describes the field at `path`, as [`Field::path`] writes it.
pub fn at<'a>(schema: &'a Value, path: &str) -> Option<&'a Value> {
    steps(path).iter().try_fold(schema, |node, step| match step {
        Step::Property(name) => node.get("properties")?.get(name),
        Step::Items => node.get("items"),
        Step::Values => node.get("additionalProperties"),
    })
}

fn at_mut<'a>(schema: &'a mut Value, path: &str) -> &'a mut Map<String, Value> {
    let node = steps(path).iter().try_fold(schema, |node, step| match step {
        Step::Property(name) => node.get_mut("properties")?.get_mut(name),
        Step::Items => node.get_mut("items"),
        Step::Values => node.get_mut("additionalProperties"),
    });
    node.and_then(Value::as_object_mut).unwrap_or_else(|| panic!("the table names {path}, which the types don't have"))
}

enum Step<'a> {
    Property(&'a str),
    Items,
    Values,
}

fn steps(path: &str) -> Vec<Step<'_>> {
    let mut steps = vec![];
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let name = part.split(['[', '{']).next().unwrap_or(part);
        steps.push(Step::Property(name));
        // Lists of lists have two.
        for bracket in part[name.len()..].chars() {
            match bracket {
                '[' => steps.push(Step::Items),
                '{' => steps.push(Step::Values),
                _ => {}
            }
        }
    }
    steps
}

fn finish(schema: &mut Value, field: &Field) {
    let node = at_mut(schema, field.path);
    let bounds = field.bounds.as_object().expect("bounds are an object");
    node.extend(bounds.clone());
    if let Some(Value::String(description)) = node.get_mut("description") {
        // Where our source breaks its lines is no concern of `kubectl explain`.
        let flowing = description.replace('\n', " ");
        *description = format!("{flowing} {}", field.on_change.sentence()).trim_end().to_owned();
    }
    if !field.rules.is_empty() {
        let rules: Vec<_> = field.rules.iter().map(super::rule::Rule::to_schema).collect();
        node.insert("x-kubernetes-validations".to_owned(), json!(rules));
    }
}

fn drop_nullable(node: &mut Value) {
    match node {
        Value::Object(map) => {
            // A field may itself be called "nullable"; only the keyword is a boolean.
            if map.get("nullable").is_some_and(Value::is_boolean) {
                map.remove("nullable");
            }
            map.values_mut().for_each(drop_nullable);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_nullable),
        _ => {}
    }
}

fn remove(schema: &mut Value, parent: &str, property: &str) {
    let properties = at_mut(schema, parent).get_mut("properties").and_then(Value::as_object_mut);
    let gone = properties.and_then(|properties| properties.remove(property));
    assert!(gone.is_some(), "{parent} has no {property} to remove");
}
