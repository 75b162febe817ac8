//! Reading and writing the parts that every Kubernetes object has.
//!
//! Objects are JSON values: the store serves kinds that it learns at run time, so there is no Rust type to hold them.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// A map to borrow where an object has none.
static NOTHING: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);

/// The metadata; empty when there is none.
pub(crate) fn meta(object: &Value) -> &Map<String, Value> {
    object.get("metadata").and_then(Value::as_object).unwrap_or(&NOTHING)
}

/// The metadata to write to; created when there is none or it is not an object. `object` must be a JSON object.
pub(crate) fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    let metadata = &mut object["metadata"];
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    match metadata {
        Value::Object(map) => map,
        _ => unreachable!("metadata was just made an object"),
    }
}

/// A string of the metadata, empty when absent.
pub(crate) fn meta_str<'a>(object: &'a Value, field: &str) -> &'a str {
    meta(object).get(field).and_then(Value::as_str).unwrap_or_default()
}

/// `metadata.name`
pub(crate) fn name(object: &Value) -> &str {
    meta_str(object, "name")
}

/// `metadata.namespace`, empty for cluster-scoped objects.
pub(crate) fn namespace(object: &Value) -> &str {
    meta_str(object, "namespace")
}

/// `metadata.uid`
pub(crate) fn uid(object: &Value) -> &str {
    meta_str(object, "uid")
}

/// `metadata.resourceVersion` as a number; 0 when absent.
pub(crate) fn revision(object: &Value) -> u64 {
    meta_str(object, "resourceVersion").parse().unwrap_or(0)
}

/// Whether it is being deleted.
pub(crate) fn deleting(object: &Value) -> bool {
    meta(object).contains_key("deletionTimestamp")
}

/// `metadata.finalizers`
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    meta(object)
        .get("finalizers")
        .and_then(Value::as_array)
        .map(|items| items.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

/// Sets or, with nothing in it, removes the finalizers.
pub(crate) fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    if finalizers.is_empty() {
        meta_mut(object).remove("finalizers");
    } else {
        meta_mut(object).insert("finalizers".into(), finalizers.into());
    }
}

/// A time as Kubernetes writes it: whole seconds, UTC.
pub(crate) fn time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// What is at a path.
pub(crate) fn at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, step| value.get(*step))
}
