//! What the tests of the store share: a store with predictable identifiers, and short words for requests.

#![expect(clippy::needless_pass_by_value, reason = "literals read best by value")]

use std::path::Path;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Deleted, Ids, Object, Store};
use crate::error::ApiError;
use crate::request::{
    DeleteOptions, FieldValidation, ListOptions, PatchKind, Propagation, Subresource, Target, Write, Written,
};

/// Counts up.
#[derive(Default)]
pub(super) struct Counter(u64);

impl Ids for Counter {
    fn uid(&mut self) -> String {
        self.0 += 1;
        format!("uid-{}", self.0)
    }

    fn suffix(&mut self) -> String {
        self.0 += 1;
        format!("{:05}", self.0)
    }
}

/// A store and the time of its next request.
pub(super) struct Fixture {
    pub(super) store: Store,
    pub(super) seconds: i64,
}

impl Fixture {
    pub(super) fn new() -> Self {
        Fixture { store: Store::in_memory(Box::new(Counter::default())), seconds: 1_000_000 }
    }

    pub(super) fn open(dir: &Path) -> Self {
        Fixture { store: Store::open(dir, Box::new(Counter::default())).expect("a readable state"), seconds: 1_000_000 }
    }

    pub(super) fn write(&self, manager: &str) -> Write {
        Write {
            now: Timestamp::from_second(self.seconds).expect("a time"),
            manager: manager.into(),
            dry_run: false,
            force: false,
            validation: FieldValidation::Strict,
        }
    }

    /// `pods/a` in the namespace `default`, or `namespaces/x` in none.
    pub(super) fn target(&self, path: &str) -> Target {
        let (plural, name) = path.split_once('/').unwrap_or((path, ""));
        let resource = self.store.resources().into_iter().find(|one| one.plural == plural).expect("a served resource");
        let namespace = resource.namespaced.then(|| "default".to_owned());
        Target { resource, namespace, name: name.into(), subresource: Subresource::Main }
    }

    pub(super) fn create(&mut self, plural: &str, object: Value) -> Result<Object, ApiError> {
        let write = self.write("tester");
        self.store.create(&self.target(plural), object, &write).map(|written| written.object)
    }

    /// Creates what must be right.
    pub(super) fn given(&mut self, plural: &str, object: Value) -> Object {
        self.create(plural, object).expect("a good object")
    }

    pub(super) fn apply(&mut self, path: &str, manager: &str, object: Value) -> Result<Written, ApiError> {
        self.apply_with(path, manager, object, false)
    }

    pub(super) fn force(&mut self, path: &str, manager: &str, object: Value) -> Written {
        self.apply_with(path, manager, object, true).expect("force settles conflicts")
    }

    fn apply_with(&mut self, path: &str, manager: &str, mut object: Value, force: bool) -> Result<Written, ApiError> {
        let target = self.target(path);
        object["apiVersion"] = target.resource.api_version().into();
        object["kind"] = target.resource.kind.as_str().into();
        object["metadata"]["name"] = target.name.as_str().into();
        let write = Write { force, ..self.write(manager) };
        self.store.patch(&target, PatchKind::Apply, &object, &write)
    }

    pub(super) fn merge(&mut self, path: &str, body: Value) -> Result<Object, ApiError> {
        let write = self.write("tester");
        self.store.patch(&self.target(path), PatchKind::Merge, &body, &write).map(|written| written.object)
    }

    pub(super) fn merge_status(&mut self, path: &str, body: Value) -> Result<Object, ApiError> {
        let write = self.write("tester");
        let target = Target { subresource: Subresource::Status, ..self.target(path) };
        self.store.patch(&target, PatchKind::Merge, &body, &write).map(|written| written.object)
    }

    pub(super) fn put(&mut self, path: &str, object: Value) -> Result<Object, ApiError> {
        let write = self.write("tester");
        self.store.update(&self.target(path), object, &write).map(|written| written.object)
    }

    pub(super) fn get(&self, path: &str) -> Option<Object> {
        self.store.get(&self.target(path)).ok()
    }

    pub(super) fn delete(&mut self, path: &str, options: &DeleteOptions) -> Result<Deleted, ApiError> {
        let write = self.write("tester");
        self.store.delete(&self.target(path), options, &write)
    }

    pub(super) fn delete_with(&mut self, path: &str, propagation: Propagation) {
        self.delete(path, &DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() })
            .expect("it exists");
    }

    /// Collects garbage until nothing changes.
    pub(super) fn settle(&mut self) {
        let now = self.write("").now;
        while self.store.collect_garbage(now) {}
    }

    pub(super) fn names(&self, plural: &str) -> Vec<String> {
        let page = self.store.list(&self.target(plural).resource, None, &ListOptions::default()).expect("a list");
        page.items.iter().map(|one| super::object::name(one.plain()).to_owned()).collect()
    }

    /// Installs a CRD for `widgets` with these properties of `spec`.
    pub(super) fn widgets(&mut self, properties: Value) {
        self.given(
            "customresourcedefinitions",
            json!({
                "metadata": {"name": "widgets.test.dev"},
                "spec": {
                    "group": "test.dev", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                    "versions": [{
                        "name": "v1", "served": true, "storage": true,
                        "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                            "spec": {"type": "object", "properties": properties},
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        }}},
                    }],
                },
            }),
        );
    }
}

/// A ConfigMap.
pub(super) fn config_map(name: &str, data: Value) -> Value {
    json!({"metadata": {"name": name}, "data": data})
}

/// An owner reference to an object.
pub(super) fn owner(object: &Value) -> Value {
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "name": object["metadata"]["name"],
        "uid": object["metadata"]["uid"], "blockOwnerDeletion": true,
    })
}
