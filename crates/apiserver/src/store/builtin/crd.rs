//! CustomResourceDefinitions: names, versions, and schemas that can be relied on.
//!
//! A schema that is not structural, a default that breaks its own schema, a pattern or a rule that does not compile is refused here,
//! so that writes of objects never meet one.

use serde_json::{Map, Value, json};

use super::set_default;
use crate::error::FieldError;
use crate::registry::Schema;
use crate::store::{object, schema};

/// Holds a deleted CRD until its objects are gone; garbage collection removes it.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The defaults of a CRD.
pub(super) fn defaults(crd: &mut Value) {
    let spec = &mut crd["spec"];
    if !spec.is_object() {
        return;
    }
    let kind = spec["names"]["kind"].as_str().unwrap_or_default().to_owned();
    set_default(&mut spec["names"], "singular", kind.to_lowercase());
    set_default(&mut spec["names"], "listKind", format!("{kind}List"));
    set_default(spec, "conversion", json!({"strategy": "None"}));
}

/// The status: names accepted, established, and every version that was ever stored.
pub(super) fn prepare(crd: &mut Value, current: Option<&Value>) {
    let storage = storage_version(crd).unwrap_or_default().to_owned();
    let mut stored: Vec<String> = current
        .and_then(|current| current["status"]["storedVersions"].as_array())
        .into_iter()
        .flatten()
        .filter_map(|one| one.as_str().map(ToOwned::to_owned))
        .collect();
    if !storage.is_empty() && !stored.contains(&storage) {
        stored.push(storage);
    }
    let since = current.map_or_else(
        || object::meta(crd).get("creationTimestamp").cloned(),
        |current| object::meta(current).get("creationTimestamp").cloned(),
    );
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": since});
    let mut conditions = vec![
        condition("NamesAccepted", "NoConflicts", "no conflicts found"),
        condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ];
    let terminating = current.and_then(|current| current["status"]["conditions"].as_array()).into_iter().flatten();
    conditions.extend(terminating.filter(|one| one["type"] == "Terminating").cloned());
    crd["status"] = json!({"conditions": conditions, "acceptedNames": crd["spec"]["names"], "storedVersions": stored});
}

/// A deleted CRD terminates; its objects are deleted by garbage collection.
pub(super) fn mark_deleted(crd: &mut Value) {
    let mut finalizers: Vec<String> = object::finalizers(crd).into_iter().map(ToOwned::to_owned).collect();
    let terminating =
        |conditions: &Value| conditions.as_array().into_iter().flatten().any(|one| one["type"] == "Terminating");
    if terminating(&crd["status"]["conditions"]) {
        return;
    }
    finalizers.push(CLEANUP.into());
    object::set_finalizers(crd, &finalizers);
    let since = object::meta(crd).get("deletionTimestamp").cloned();
    if let Some(conditions) = crd["status"]["conditions"].as_array_mut() {
        conditions.push(json!({
            "type": "Terminating", "status": "True", "reason": "InstanceDeletionInProgress",
            "message": "CustomResource deletion is in progress", "lastTransitionTime": since,
        }));
    }
}

fn storage_version(crd: &Value) -> Option<&str> {
    versions(crd).iter().find(|version| version["storage"] == true).and_then(|version| version["name"].as_str())
}

fn versions(crd: &Value) -> &[Value] {
    crd["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// What is wrong with a CRD.
pub(super) fn validate(crd: &Value) -> Vec<FieldError> {
    let spec = &crd["spec"];
    let mut errors = Vec::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for (field, value) in [
        ("spec.group", &spec["group"]),
        ("spec.names.plural", &spec["names"]["plural"]),
        ("spec.names.kind", &spec["names"]["kind"]),
    ] {
        if text(value).is_empty() {
            errors.push(FieldError::required(field, ""));
        }
    }
    let wanted = format!("{}.{}", text(&spec["names"]["plural"]), text(&spec["group"]));
    if object::name(crd) != wanted {
        let rule = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", &object::name(crd).into(), rule));
    }
    if spec["scope"] != "Namespaced" && spec["scope"] != "Cluster" {
        errors.push(FieldError::not_supported("spec.scope", &spec["scope"], &["Cluster".into(), "Namespaced".into()]));
    }
    if versions(crd).iter().filter(|version| version["storage"] == true).count() != 1 {
        let rule = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", &spec["versions"], rule));
    }
    let strategy = &spec["conversion"]["strategy"];
    if *strategy != "None" {
        errors.push(FieldError::not_supported("spec.conversion.strategy", strategy, &["None".into()]));
    }
    for (index, version) in versions(crd).iter().enumerate() {
        errors.extend(version_errors(crd, index, version));
    }
    errors
}

fn version_errors(crd: &Value, index: usize, version: &Value) -> Vec<FieldError> {
    let own = format!("spec.versions[{index}].schema.openAPIV3Schema");
    let Some(root) = version["schema"].get("openAPIV3Schema") else { return vec![FieldError::required(own, "")] };
    // A kube-apiserver speaks of the one schema of a one-version CRD by its old name.
    let path = if versions(crd).len() == 1 { "spec.validation.openAPIV3Schema".to_owned() } else { own };
    let mut errors = Vec::new();
    if root["type"] != "object" {
        errors.push(FieldError::required(format!("{path}.type"), "must not be empty at the root"));
    }
    structure(root, &path, Typed::Needed, &mut errors);
    errors
}

/// Whether a schema has to state a type: those inside of a logical junctor must not.
#[derive(Clone, Copy, PartialEq)]
enum Typed {
    Needed,
    Free,
}

fn structure(node: &Value, path: &str, typed: Typed, errors: &mut Vec<FieldError>) {
    let open = node["x-kubernetes-int-or-string"] == true || node["x-kubernetes-preserve-unknown-fields"] == true;
    if typed == Typed::Needed && !open && node["type"].as_str().is_none_or(str::is_empty) {
        errors.push(FieldError::required(format!("{path}.type"), "must not be empty for specified object fields"));
    }
    if let Some(pattern) = node["pattern"].as_str()
        && let Err(error) = regex::Regex::new(pattern)
    {
        let rule = format!(
            "must be a valid regular expression, but isn't: {}",
            error.to_string().lines().last().unwrap_or_default()
        );
        errors.push(FieldError::invalid(format!("{path}.pattern"), &pattern.into(), rule));
    }
    if let Some(default) = node.get("default") {
        errors.extend(default_errors(node, default, path));
    }
    list_errors(node, path, errors);
    errors.extend(schema::rule_errors(node, path));
    for (name, property) in node["properties"].as_object().into_iter().flatten() {
        structure(property, &format!("{path}.properties[{name}]"), typed, errors);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner_schema) = node.get(inner).filter(|schema| schema.is_object()) {
            structure(inner_schema, &format!("{path}.{inner}"), typed, errors);
        }
    }
    for junctor in ["allOf", "anyOf", "oneOf"] {
        for (index, branch) in node[junctor].as_array().into_iter().flatten().enumerate() {
            structure(branch, &format!("{path}.{junctor}[{index}]"), Typed::Free, errors);
        }
    }
}

/// A default must be what its own schema allows, once it is completed by the defaults inside of it.
fn default_errors(node: &Value, default: &Value, path: &str) -> Vec<FieldError> {
    let mut complete = default.clone();
    schema::apply_defaults(Schema::from(node.clone()).structure(), &mut complete);
    let errors = schema::structural_errors(node, &complete, "");
    errors
        .into_iter()
        .map(|error| {
            let at = if error.field.is_empty() {
                format!("{path}.default")
            } else {
                format!("{path}.default.{}", error.field)
            };
            FieldError { field: at, ..error }
        })
        .collect()
}

fn list_errors(node: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if node["x-kubernetes-list-type"] != "map" {
        return;
    }
    let keys = node["x-kubernetes-list-map-keys"].as_array().map(Vec::as_slice).unwrap_or_default();
    if keys.is_empty() {
        errors.push(FieldError::required(
            format!("{path}.x-kubernetes-list-map-keys"),
            "must not be empty if x-kubernetes-list-type is map",
        ));
    }
    let empty = Map::new();
    let properties = node["items"]["properties"].as_object().unwrap_or(&empty);
    for (index, key) in keys.iter().enumerate() {
        if key.as_str().is_none_or(|key| !properties.contains_key(key)) {
            let field = format!("{path}.x-kubernetes-list-map-keys[{index}]");
            errors.push(FieldError::invalid(field, key, "entries must all be names of item properties"));
        }
    }
}

/// What never changes in a CRD.
pub(super) fn validate_update(crd: &Value, current: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["group", "scope"] {
        if crd["spec"][field] != current["spec"][field] {
            errors.push(super::immutable(&format!("spec.{field}"), &crd["spec"][field]));
        }
    }
    for stored in current["status"]["storedVersions"].as_array().into_iter().flatten() {
        if !versions(crd).iter().any(|version| version["name"] == *stored) {
            let rule = "must appear in spec.versions";
            errors.push(FieldError::invalid("status.storedVersions[0]", stored, rule));
        }
    }
    errors
}
