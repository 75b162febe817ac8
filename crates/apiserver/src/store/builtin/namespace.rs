//! Namespaces: named by a label, and gone only when everything in them is.

use serde_json::{Value, json};

use super::set_default;
use crate::store::object;

/// What the server puts into a new namespace.
pub(super) fn prepare_create(namespace: &mut Value) {
    let name = object::name(namespace).to_owned();
    set_default(&mut namespace["metadata"], "labels", json!({}));
    namespace["metadata"]["labels"]["kubernetes.io/metadata.name"] = name.into();
    namespace["spec"] = json!({"finalizers": ["kubernetes"]});
    namespace["status"] = json!({"phase": "Active"});
}

/// A deleted namespace terminates; its content is deleted by garbage collection.
pub(super) fn mark_deleted(namespace: &mut Value) {
    namespace["status"]["phase"] = "Terminating".into();
    object::meta_mut(namespace).remove("deletionGracePeriodSeconds");
}
