//! What a schema says about how a value is owned: as a whole, field by field, or element by element.

use std::sync::Arc;

use serde_json::Value;

use crate::registry::{Additional, List, NOTHING, Schema, Structure};
use crate::store::schema::METADATA;

/// A schema at some place of an object. The root is special: its metadata is every kind's metadata.
#[derive(Clone, Copy)]
pub(super) struct Shape<'a> {
    structure: &'a Structure,
    root: bool,
}

/// How a value at a place is owned.
#[derive(PartialEq)]
pub(super) enum Form<'a> {
    /// As a whole.
    Leaf,
    /// Field by field.
    Map,
    /// Each element by its keys.
    Keyed(&'a [String]),
    /// Each element by its value.
    Set,
}

impl<'a> Shape<'a> {
    /// The shape of whole objects of a kind.
    pub(super) fn root(schema: &'a Schema) -> Self {
        Shape { structure: schema.structure(), root: true }
    }

    /// How a value here is owned. Where the schema says nothing, the value decides: maps field by field, the rest as a whole.
    pub(super) fn form(&self, value: &Value) -> Form<'a> {
        match (value, &self.structure.list) {
            (Value::Object(_), _) if self.structure.atomic => Form::Leaf,
            (Value::Object(_), _) => Form::Map,
            (Value::Array(_), List::Map(keys)) => Form::Keyed(keys),
            (Value::Array(_), List::Set) => Form::Set,
            _ => Form::Leaf,
        }
    }

    /// The shape of a field.
    pub(super) fn field(&self, name: &str) -> Shape<'a> {
        self.named_field(name).1
    }

    /// The path element of a field, and its shape.
    pub(super) fn element_of(&self, name: &str) -> (Arc<str>, Shape<'a>) {
        let (element, shape) = self.named_field(name);
        (element.cloned().unwrap_or_else(|| format!("f:{name}").into()), shape)
    }

    fn named_field(&self, name: &str) -> (Option<&'a Arc<str>>, Shape<'a>) {
        let named = self.structure.fields.get(name);
        let element = named.map(|field| &field.element);
        if self.root && name == "metadata" {
            return (element, Shape { structure: &METADATA, root: false });
        }
        let structure = named.map(|field| &field.structure).unwrap_or(match &self.structure.additional {
            Additional::Of(structure) => structure,
            Additional::Unsaid | Additional::No | Additional::Any => &NOTHING,
        });
        (element, Shape { structure, root: false })
    }

    /// The shape of a list's elements.
    pub(super) fn element(&self) -> Shape<'a> {
        Shape { structure: self.structure.items.as_deref().unwrap_or(&NOTHING), root: false }
    }

    /// Whether a field is one of the struct's own, rather than a key of a map.
    pub(super) fn names(&self, field: &str) -> bool {
        (self.root && matches!(field, "apiVersion" | "kind" | "metadata")) || self.structure.fields.contains_key(field)
    }

    /// The path element of a list's element: its keys (with the defaults of those that it leaves out), or its value.
    pub(super) fn element_name(&self, keys: Option<&[String]>, item: &Value) -> String {
        let Some(keys) = keys else { return format!("v:{item}") };
        let element = self.element();
        let mut name = b"k:{".to_vec();
        for key in keys {
            let default = || element.structure.named(key)?.default.as_ref();
            if let Some(value) = item.get(key).or_else(default) {
                if name.len() > 3 {
                    name.push(b',');
                }
                write_json(&mut name, key);
                name.push(b':');
                write_json(&mut name, value);
            }
        }
        name.push(b'}');
        String::from_utf8(name).expect("JSON is text")
    }
}

fn write_json(to: &mut Vec<u8>, value: &impl serde::Serialize) {
    serde_json::to_writer(to, value).expect("text and JSON values can be written to memory");
}
