//! The rules about metadata that all kinds share.

use serde_json::Value;

use super::name_rule;
use crate::error::{FieldError, Problem};
use crate::registry::Resource;
use crate::store::{names, object};

/// What is wrong with an object's metadata. What is as in the object that it replaces was judged with that.
pub(crate) fn validate(resource: &Resource, object: &Value, before: Option<&Value>) -> Vec<FieldError> {
    let meta = object::meta(object);
    let before = before.map(object::meta);
    let new =
        |field: &str| meta.get(field).filter(|value| before.is_none_or(|before| before.get(field) != Some(value)));
    let name = object::name(object);
    let mut errors = Vec::new();
    if before.is_none() || new("name").is_some() {
        let problems = names::name_problems(name_rule(resource), name);
        let shown = Value::from(name);
        errors.extend(problems.iter().map(|problem| FieldError::invalid("metadata.name", &shown, problem)));
    }
    for (key, value) in new("labels").and_then(Value::as_object).into_iter().flatten() {
        if let Some(problem) = names::qualified_name_problem(key) {
            errors.push(FieldError::invalid("metadata.labels", &key.as_str().into(), problem));
        }
        if let Some(problem) = names::label_value_problem(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid("metadata.labels", value, problem));
        }
    }
    errors.extend(annotation_errors(new("annotations")));
    errors.extend(owner_errors(new("ownerReferences")));
    if new("finalizers").is_some() {
        let finalizers = object::finalizers(object);
        errors.extend(finalizers.iter().enumerate().filter_map(|(index, finalizer)| finalizer_error(index, finalizer)));
    }
    errors
}

/// All annotations together may have this many bytes.
const ANNOTATIONS_AT_MOST: usize = 256 * 1024;

fn annotation_errors(annotations: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in annotations.and_then(Value::as_object).into_iter().flatten() {
        // Upper case is fine in the key of an annotation.
        if let Some(problem) = names::qualified_name_problem(&key.to_lowercase()) {
            errors.push(FieldError::invalid("metadata.annotations", &key.as_str().into(), problem));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_AT_MOST {
        let detail = format!("may not be more than {ANNOTATIONS_AT_MOST} bytes");
        errors.push(FieldError { field: "metadata.annotations".into(), problem: Problem::TooLong, detail });
    }
    errors
}

fn owner_errors(owners: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut controllers: Vec<&Value> = Vec::new();
    for owner in owners.and_then(Value::as_array).into_iter().flatten() {
        let empty = |field: &str| owner[field].as_str().is_none_or(str::is_empty);
        if empty("apiVersion") {
            errors.push(FieldError::invalid(
                "metadata.ownerReferences.apiVersion",
                &"".into(),
                "version must not be empty",
            ));
        }
        for field in ["kind", "name", "uid"].into_iter().filter(|field| empty(field)) {
            errors.push(FieldError::invalid(
                format!("metadata.ownerReferences.{field}"),
                &"".into(),
                "must not be empty",
            ));
        }
        if owner["controller"] == true {
            controllers.push(owner);
        }
    }
    if let [first, second, ..] = controllers.as_slice() {
        let name = |owner: &Value| {
            format!("{}/{}", owner["kind"].as_str().unwrap_or_default(), owner["name"].as_str().unwrap_or_default())
        };
        let rule = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
            name(first),
            name(second)
        );
        errors.push(FieldError::invalid(
            "metadata.ownerReferences",
            &Value::Array(controllers.into_iter().cloned().collect()),
            rule,
        ));
    }
    errors
}

fn finalizer_error(index: usize, finalizer: &str) -> Option<FieldError> {
    let field = format!("metadata.finalizers[{index}]");
    let shown = Value::from(finalizer);
    if let Some(problem) = names::qualified_name_problem(finalizer) {
        return Some(FieldError::invalid(field, &shown, problem));
    }
    let standard = ["orphan", "foregroundDeletion", "kubernetes"].contains(&finalizer);
    (!finalizer.contains('/') && !standard && !finalizer.contains('.')).then(|| {
        FieldError::invalid(field, &shown, "name is neither a standard finalizer name nor is it fully qualified")
    })
}

/// What of a change of metadata is not allowed.
pub(crate) fn validate_update(object: &Value, current: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(wanted) = object::meta(object).get("deletionTimestamp")
        && object::meta(current).get("deletionTimestamp") != Some(wanted)
    {
        errors.push(super::immutable("metadata.deletionTimestamp", wanted));
    }
    if object::deleting(current) {
        let before = object::finalizers(current);
        let new: Vec<String> = object::finalizers(object)
            .into_iter()
            .filter(|one| !before.contains(one))
            .map(|one| format!("{one:?}"))
            .collect();
        if !new.is_empty() {
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                new.join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", detail));
        }
    }
    errors
}
