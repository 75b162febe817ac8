//! One stored object, seen in the API version of a request.
//!
//! Versions of a CRD with conversion `None` differ in `apiVersion` alone (and in the defaults of their schemas, which a reader of an
//! old object must see). Events are stored as the core group's and shown as `events.k8s.io`'s by renaming fields.

use std::sync::Arc;

use serde_json::Value;

use super::{Object, schema};
use crate::registry::Resource;

/// Fields of `v1` Events and their names in `events.k8s.io/v1`.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// A stored object as `resource` shows it.
pub(super) fn shown(resource: &Arc<Resource>, stored: &Object) -> Object {
    let version = resource.api_version();
    let same_version = stored.plain()["apiVersion"] == version.as_str();
    if !resource.custom && same_version {
        return stored.clone();
    }
    if same_version && stored.has_defaults_of(resource) {
        return stored.clone();
    }
    let mut object = Value::clone(stored.plain());
    object["apiVersion"] = version.into();
    if resource.group == "events.k8s.io" {
        rename(&mut object, EVENT_FIELDS.iter().copied());
    } else if resource.custom {
        schema::apply_defaults(resource.schema.structure(), &mut object);
    }
    Object::new(object, stored.managers().clone())
}

/// An object of a request as it is stored.
pub(super) fn stored(storage_version: &str, resource: &Resource, mut object: Value) -> Value {
    if resource.group == "events.k8s.io" {
        rename(&mut object, EVENT_FIELDS.iter().map(|(old, new)| (*new, *old)));
    }
    object["apiVersion"] = storage_version.into();
    object
}

fn rename<'a>(object: &mut Value, pairs: impl Iterator<Item = (&'a str, &'a str)>) {
    let Some(map) = object.as_object_mut() else { return };
    for (from, to) in pairs {
        if let Some(value) = map.remove(from) {
            map.insert(to.into(), value);
        }
    }
}
