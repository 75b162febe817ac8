//! Who owns which fields: `metadata.managedFields`, read and written.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value, json};

use super::Operation;
use super::fields::FieldSet;
use crate::request::Subresource;

/// What makes two entries the same manager's. An applier is the same in every API version; one that updates is not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::store) struct Manager {
    pub(super) operation: Operation,
    pub(super) name: Arc<str>,
    pub(super) version: Arc<str>,
    pub(super) subresource: Arc<str>,
}

/// What a manager owns, since when, in which API version.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::store) struct Owned {
    pub(super) fields: FieldSet,
    pub(super) version: Arc<str>,
    pub(super) time: Option<Arc<str>>,
}

/// All managers of an object.
pub(in crate::store) type Managers = BTreeMap<Manager, Owned>;

impl Manager {
    pub(super) fn new(operation: Operation, name: &str, version: &str, subresource: Subresource) -> Self {
        let subresource = match subresource {
            Subresource::Main => "",
            Subresource::Status => "status",
            Subresource::Scale => "scale",
        };
        Self::from_parts(operation, name, version, subresource)
    }

    fn from_parts(operation: Operation, name: &str, version: &str, subresource: &str) -> Self {
        let version = match operation {
            Operation::Apply => "",
            Operation::Update => version,
        };
        Manager { operation, name: name.into(), version: version.into(), subresource: subresource.into() }
    }

    /// As conflicts name it.
    pub(super) fn display(&self) -> String {
        let mut text = Value::from(&*self.name).to_string();
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {}", Value::from(&*self.subresource)));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.version));
        }
        text
    }
}

/// Reads `managedFields`. An entry that is not in the form of FieldsV1 owns nothing.
pub(in crate::store) fn read(entries: Option<&Value>) -> Managers {
    let mut managers = Managers::new();
    for entry in entries.and_then(Value::as_array).into_iter().flatten() {
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        let operation = if entry["operation"] == "Apply" { Operation::Apply } else { Operation::Update };
        let manager = Manager::from_parts(operation, &text("manager"), &text("apiVersion"), &text("subresource"));
        let fields = FieldSet::from_json(&entry["fieldsV1"]);
        if fields.is_empty() {
            continue;
        }
        let time = entry["time"].as_str().map(Into::into);
        managers.insert(manager, Owned { fields, version: text("apiVersion").into(), time });
    }
    managers
}

/// Writes `managedFields`: appliers first, then by time and name. Who owns nothing is not mentioned.
pub(in crate::store) fn write(managers: &Managers) -> Option<Value> {
    let mut entries: Vec<(&Manager, &Owned)> = managers.iter().filter(|(_, owned)| !owned.fields.is_empty()).collect();
    entries.sort_by_key(|(manager, owned)| {
        (
            manager.operation,
            owned.time.as_deref().unwrap_or_default(),
            &manager.name,
            &owned.version,
            &manager.subresource,
        )
    });
    let entries: Vec<Value> = entries.into_iter().map(|(manager, owned)| entry(manager, owned)).collect();
    (!entries.is_empty()).then_some(Value::Array(entries))
}

fn entry(manager: &Manager, owned: &Owned) -> Value {
    let mut entry = Map::new();
    let operation = match manager.operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    entry.insert("manager".into(), manager.name.as_ref().into());
    entry.insert("operation".into(), operation.into());
    entry.insert("apiVersion".into(), owned.version.as_ref().into());
    entry.insert("time".into(), owned.time.as_deref().into());
    entry.insert("fieldsType".into(), "FieldsV1".into());
    entry.insert("fieldsV1".into(), owned.fields.to_json());
    if !manager.subresource.is_empty() {
        entry.insert("subresource".into(), manager.subresource.as_ref().into());
    }
    Value::Object(entry)
}

/// Fields that nobody owns: the object's identity and what only the server writes.
pub(super) static UNOWNED: LazyLock<FieldSet> = LazyLock::new(|| {
    FieldSet::from_json(&json!({
        "f:apiVersion": {}, "f:kind": {},
        "f:metadata": {
            ".": {}, "f:name": {}, "f:namespace": {}, "f:creationTimestamp": {}, "f:selfLink": {}, "f:uid": {}, "f:generation": {},
            "f:managedFields": {}, "f:resourceVersion": {}, "f:deletionTimestamp": {}, "f:deletionGracePeriodSeconds": {},
        },
    }))
});
