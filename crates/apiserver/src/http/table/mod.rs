//! Makes the tables that `kubectl get` prints.
//!
//! From: objects and the columns of their kind: a CRD's printer columns, or those that a kube-apiserver has for a built-in kind.
//! Kinds without columns of their own show name and age.

mod age;
mod builtin;
mod json_path;
mod pod;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::accept::MetaVersion;
use crate::registry::Resource;
use json_path::JsonPath;

pub(super) use age::human_duration;

/// Which object each row carries (`includeObject`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// None.
    None,
    /// Type and metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

/// The columns of one kind, and how to fill them.
pub struct Table {
    version: MetaVersion,
    columns: Vec<Value>,
    cells: Cells,
}

enum Cells {
    Builtin(builtin::CellsOf),
    Custom(Vec<CustomColumn>),
}

struct CustomColumn {
    path: Option<JsonPath>,
    kind: String,
}

impl Table {
    /// The table of a resource.
    pub fn of(resource: &Resource, version: MetaVersion) -> Table {
        if !resource.custom
            && let Some((columns, cells)) = builtin::columns_of(&resource.kind)
        {
            let columns = columns.iter().map(|(name, kind, priority)| column(name, kind, *priority, "")).collect();
            return Table { version, columns, cells: Cells::Builtin(cells) };
        }
        let age = [json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})];
        let custom = if resource.columns.is_empty() { &age[..] } else { &resource.columns[..] };
        let text = |column: &Value, key: &str| column[key].as_str().unwrap_or_default().to_owned();
        let mut columns = vec![column("Name", "string", 0, "")];
        columns.extend(custom.iter().map(|from| {
            let priority = from["priority"].as_i64().unwrap_or_default();
            let mut made = column(&text(from, "name"), &text(from, "type"), priority, &text(from, "description"));
            made["format"] = text(from, "format").into();
            made
        }));
        let cells = custom.iter().map(|from| CustomColumn {
            path: JsonPath::parse(from["jsonPath"].as_str().unwrap_or_default()),
            kind: text(from, "type"),
        });
        Table { version, columns, cells: Cells::Custom(cells.collect()) }
    }

    /// A `Table` of these objects. `metadata` is the list's, or of a single object its resourceVersion.
    pub fn render(&self, objects: &[&Value], metadata: &Value, include: IncludeObject, now: Timestamp) -> Value {
        let rows: Vec<Value> = objects.iter().map(|object| self.row(object, include, now)).collect();
        json!({
            "kind": "Table", "apiVersion": self.version.api_version(), "metadata": metadata,
            "columnDefinitions": self.columns, "rows": rows,
        })
    }

    /// The same without column definitions: what the later events of a watch carry.
    pub fn render_without_columns(
        &self,
        objects: &[&Value],
        metadata: &Value,
        include: IncludeObject,
        now: Timestamp,
    ) -> Value {
        let mut table = self.render(objects, metadata, include, now);
        table["columnDefinitions"] = json!([]);
        table
    }

    fn row(&self, object: &Value, include: IncludeObject, now: Timestamp) -> Value {
        let cells = match &self.cells {
            Cells::Builtin(cells) => cells(object, now),
            Cells::Custom(columns) => {
                let name = object.pointer("/metadata/name").cloned().unwrap_or_default();
                std::iter::once(name).chain(columns.iter().map(|column| column.cell(object, now))).collect()
            }
        };
        let mut row = json!({"cells": cells});
        match include {
            IncludeObject::None => row["object"] = Value::Null,
            IncludeObject::Metadata => row["object"] = partial_metadata(object, self.version),
            IncludeObject::Object => row["object"] = object.clone(),
        }
        row
    }
}

impl CustomColumn {
    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let Some(value) = self.path.as_ref().and_then(|path| path.first(object)) else { return Value::Null };
        match (self.kind.as_str(), value) {
            ("integer", Value::Number(number)) => number.as_i64().or_else(|| number.as_f64().map(|f| f as i64)).into(),
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
            ("date", Value::String(time)) => age::age_of(time, now).into(),
            ("string", Value::String(_)) => value.clone(),
            ("string", other) => other.to_string().into(),
            _ => Value::Null,
        }
    }
}

/// Type and metadata of an object.
pub fn partial_metadata(object: &Value, version: MetaVersion) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": object["metadata"]})
}

/// The first column is the object's name; clients rely on the `name` format to know it.
fn column(name: &str, kind: &str, priority: i64, description: &str) -> Value {
    let format = if name == "Name" { "name" } else { "" };
    json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(custom: bool, kind: &str, columns: Vec<Value>) -> Resource {
        Resource {
            group: String::new(),
            version: "v1".into(),
            storage: true,
            plural: String::new(),
            singular: String::new(),
            kind: kind.into(),
            list_kind: String::new(),
            short_names: vec![],
            categories: vec![],
            namespaced: true,
            has_status: false,
            scale: None,
            schema: json!({}).into(),
            columns,
            custom,
        }
    }
    fn cells(resource: &Resource, object: &Value) -> Value {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let table = Table::of(resource, MetaVersion::V1).render(&[object], &json!({}), IncludeObject::None, now);
        table["rows"][0]["cells"].clone()
    }

    #[test]
    fn a_custom_resource_shows_its_printer_columns() {
        let columns = vec![
            json!({"name": "Ready", "type": "string", "jsonPath": r#".status.conditions[?(@.type=="Ready")].status"#}),
            json!({"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"}),
            json!({"name": "Primary", "type": "string", "jsonPath": ".status.primary"}),
            json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}),
        ];
        let object = json!({"metadata": {"name": "orders", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"replicas": 3},
            "status": {"conditions": [{"type": "Other", "status": "x"}, {"type": "Ready", "status": "True"}]}});
        assert_eq!(
            cells(&resource(true, "PostgresCluster", columns), &object),
            json!(["orders", "True", 3, null, "60m"])
        );
    }

    #[test]
    fn a_kind_without_columns_shows_name_and_age() {
        let object = json!({"metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:59:00Z"}});
        assert_eq!(cells(&resource(true, "Thing", vec![]), &object), json!(["x", "60s"]));
    }

    #[test]
    fn a_row_carries_the_metadata_by_default() {
        let table = Table::of(&resource(false, "ConfigMap", vec![]), MetaVersion::V1);
        let object = json!({"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}});
        let rendered = table.render(&[&object], &json!({}), IncludeObject::Metadata, Timestamp::UNIX_EPOCH);
        assert_eq!(
            rendered["rows"][0]["object"],
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "c"}})
        );
    }
}
