//! What a schema says about how a value is owned: as a whole, field by field, or element by element.

use serde_json::{Map, Value};

use crate::store::schema::METADATA;

/// A schema at some place of an object. The root is special: its metadata is every kind's metadata.
#[derive(Clone, Copy)]
pub(super) struct Shape<'a> {
    schema: &'a Value,
    root: bool,
}

/// How a value at a place is owned.
pub(super) enum Form<'a> {
    /// As a whole.
    Leaf,
    /// Field by field.
    Map,
    /// Each element by its keys.
    Keyed(Vec<&'a str>),
    /// Each element by its value.
    Set,
}

impl<'a> Shape<'a> {
    /// The shape of whole objects of a kind.
    pub(super) fn root(schema: &'a Value) -> Self {
        Shape { schema, root: true }
    }

    /// How a value here is owned. Where the schema says nothing, the value decides: maps field by field, the rest as a whole.
    pub(super) fn form(&self, value: &Value) -> Form<'a> {
        match value {
            Value::Object(_) if self.schema["x-kubernetes-map-type"] == "atomic" => Form::Leaf,
            Value::Object(_) => Form::Map,
            Value::Array(_) => match self.schema["x-kubernetes-list-type"].as_str() {
                Some("map") => Form::Keyed(
                    self.schema["x-kubernetes-list-map-keys"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter_map(Value::as_str)
                        .collect(),
                ),
                Some("set") => Form::Set,
                _ => Form::Leaf,
            },
            _ => Form::Leaf,
        }
    }

    /// The shape of a field.
    pub(super) fn field(&self, name: &str) -> Shape<'a> {
        if self.root && name == "metadata" {
            return Shape { schema: &METADATA, root: false };
        }
        let schema = self
            .schema
            .get("properties")
            .and_then(|all| all.get(name))
            .or_else(|| self.schema.get("additionalProperties"))
            .unwrap_or(&Value::Null);
        Shape { schema, root: false }
    }

    /// The shape of a list's elements.
    pub(super) fn element(&self) -> Shape<'a> {
        Shape { schema: self.schema.get("items").unwrap_or(&Value::Null), root: false }
    }

    /// Whether a field is one of the struct's own, rather than a key of a map.
    pub(super) fn names(&self, field: &str) -> bool {
        (self.root && matches!(field, "apiVersion" | "kind" | "metadata"))
            || self.schema.get("properties").is_some_and(|all| all.get(field).is_some())
    }

    /// The path element of a list's element: its keys (with the defaults of those that it leaves out), or its value.
    pub(super) fn element_name(&self, keys: Option<&[&str]>, item: &Value) -> String {
        let Some(keys) = keys else { return format!("v:{item}") };
        let element = self.element();
        let mut id = Map::new();
        for key in keys {
            let default = || element.schema.get("properties").and_then(|all| all.get(*key)?.get("default"));
            if let Some(value) = item.get(*key).or_else(default) {
                id.insert((*key).to_owned(), value.clone());
            }
        }
        format!("k:{}", Value::Object(id))
    }
}
