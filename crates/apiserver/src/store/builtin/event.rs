//! Events: about an object in the event's own namespace, and complete when they come through the newer API.

use serde_json::Value;

use crate::error::FieldError;
use crate::registry::Resource;
use crate::store::object;

/// What is wrong with an Event, in the view of the group that it came through.
pub(super) fn validate(resource: &Resource, event: &Value) -> Vec<FieldError> {
    let newer = resource.group == "events.k8s.io";
    let about = if newer { "regarding" } else { "involvedObject" };
    let mut errors = Vec::new();
    let namespace = event[about]["namespace"].as_str().unwrap_or_default();
    // An event about a cluster-scoped object lives in `default`.
    let expected = if namespace.is_empty() { "default" } else { namespace };
    if !namespace.is_empty() && object::namespace(event) != expected {
        let value = Value::from(namespace);
        errors.push(FieldError::invalid("involvedObject.namespace", &value, "does not match event.namespace"));
    }
    if newer {
        errors.extend(newer_errors(event));
    }
    errors
}

fn newer_errors(event: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if event.get("eventTime").is_none() {
        errors.push(FieldError::required("eventTime", ""));
        return errors;
    }
    for field in ["reportingController", "reportingInstance", "action", "reason"] {
        if event[field].as_str().is_none_or(str::is_empty) {
            errors.push(FieldError::required(field, ""));
        }
    }
    if !["Normal", "Warning"].iter().any(|one| event["type"] == *one) {
        let shown = Value::from(event["type"].as_str().unwrap_or_default());
        errors.push(FieldError::invalid(
            "type",
            &shown,
            format!("has invalid value: {}", event["type"].as_str().unwrap_or_default()),
        ));
    }
    errors
}
