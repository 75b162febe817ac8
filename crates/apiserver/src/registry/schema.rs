//! A schema as it was written, and as it is walked.
//!
//! Every write walks the schema of its kind along with the object, several times. As JSON, each keyword of each field is looked up by
//! its name each time; so what is asked on every write is read out once, when the resource is made.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use serde_json::Value;

/// The OpenAPI v3 schema of a kind. As a value it is what was written; [`Schema::structure`] is what is walked. Copies share both.
#[derive(Clone, Debug)]
pub struct Schema(Arc<(Value, Structure)>);

/// What a schema says of one place of an object.
#[derive(Clone, Debug)]
pub(crate) struct Structure {
    /// `type`
    pub(crate) kind: Option<Kind>,
    /// `format`; empty when there is none.
    pub(crate) format: String,
    /// `x-kubernetes-int-or-string`
    pub(crate) int_or_string: bool,
    /// `x-kubernetes-preserve-unknown-fields`
    pub(crate) open: bool,
    /// `x-kubernetes-embedded-resource`
    pub(crate) embedded: bool,
    /// `nullable`
    pub(crate) nullable: bool,
    /// `default`
    pub(crate) default: Option<Value>,
    /// `enum`
    pub(crate) allowed: Option<Vec<Value>>,
    /// Nothing else that it says bounds the value.
    pub(crate) plain: bool,
    /// `required`
    pub(crate) required: Vec<String>,
    /// `x-kubernetes-map-type: atomic`
    pub(crate) atomic: bool,
    /// `x-kubernetes-list-type`
    pub(crate) list: List,
    /// Whether it has `properties`, if only none.
    pub(crate) is_struct: bool,
    /// `properties`
    pub(crate) fields: BTreeMap<String, Field>,
    /// `additionalProperties`
    pub(crate) additional: Additional,
    /// `items`
    pub(crate) items: Option<Box<Structure>>,
}

/// A field of a struct.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    /// As a path element of FieldsV1: `f:name`.
    pub(crate) element: Arc<str>,
    pub(crate) structure: Structure,
}

/// A JSON type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Object,
    Array,
    String,
    Boolean,
    Integer,
    Number,
    /// None that JSON has.
    Other,
}

/// How the elements of a list are told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum List {
    /// Not at all: the list is one value.
    #[default]
    Atomic,
    /// By their value.
    Set,
    /// By these fields, in the order of their names.
    Map(Vec<String>),
}

/// What a schema says of fields that it does not name.
#[derive(Clone, Debug, Default)]
pub(crate) enum Additional {
    /// Nothing.
    #[default]
    Unsaid,
    /// `false`
    No,
    /// `true`
    Any,
    /// Each is such a value.
    Of(Box<Structure>),
}

impl Schema {
    /// What is walked.
    pub(crate) fn structure(&self) -> &Structure {
        &self.0.1
    }
}

impl From<Value> for Schema {
    fn from(schema: Value) -> Self {
        let structure = Structure::of(&schema);
        Self(Arc::new((schema, structure)))
    }
}

impl Deref for Schema {
    type Target = Value;
    fn deref(&self) -> &Value {
        &self.0.0
    }
}

/// A place of which nothing is said.
pub(crate) static NOTHING: Structure = Structure {
    kind: None,
    format: String::new(),
    int_or_string: false,
    open: false,
    embedded: false,
    nullable: false,
    default: None,
    allowed: None,
    plain: true,
    required: Vec::new(),
    atomic: false,
    list: List::Atomic,
    is_struct: false,
    fields: BTreeMap::new(),
    additional: Additional::Unsaid,
    items: None,
};

/// What bounds a value beside its type, and is not read out.
const BOUNDS: [&str; 14] = [
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "maxProperties",
    "minProperties",
    "maxItems",
    "minItems",
    "maxLength",
    "minLength",
    "pattern",
    "maximum",
    "minimum",
    "multipleOf",
];

impl Structure {
    fn of(schema: &Value) -> Self {
        let says = |keyword: &str| schema[keyword] == true;
        let fields = schema.get("properties").and_then(Value::as_object);
        let field = |(name, schema): (&String, &Value)| {
            (name.clone(), Field { element: format!("f:{name}").into(), structure: Structure::of(schema) })
        };
        Self {
            kind: schema["type"].as_str().map(Kind::named),
            format: schema["format"].as_str().unwrap_or_default().to_owned(),
            int_or_string: says("x-kubernetes-int-or-string"),
            open: says("x-kubernetes-preserve-unknown-fields"),
            embedded: says("x-kubernetes-embedded-resource"),
            nullable: says("nullable"),
            default: schema.get("default").cloned(),
            allowed: schema["enum"].as_array().cloned(),
            plain: BOUNDS.iter().all(|keyword| schema.get(keyword).is_none()),
            required: texts(&schema["required"]),
            atomic: schema["x-kubernetes-map-type"] == "atomic",
            list: List::of(schema),
            is_struct: fields.is_some(),
            fields: fields.into_iter().flatten().map(field).collect(),
            additional: Additional::of(schema.get("additionalProperties")),
            items: schema.get("items").map(|items| Box::new(Structure::of(items))),
        }
    }

    /// The place of a field that it names.
    pub(crate) fn named(&self, name: &str) -> Option<&Structure> {
        self.fields.get(name).map(|field| &field.structure)
    }

    /// The place of each field that it does not name, where that is said.
    pub(crate) fn unnamed(&self) -> Option<&Structure> {
        match &self.additional {
            Additional::Of(structure) => Some(structure),
            Additional::Unsaid | Additional::No | Additional::Any => None,
        }
    }
}

impl Kind {
    fn named(name: &str) -> Self {
        match name {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "boolean" => Self::Boolean,
            "integer" => Self::Integer,
            "number" => Self::Number,
            _ => Self::Other,
        }
    }
}

impl List {
    fn of(schema: &Value) -> Self {
        match schema["x-kubernetes-list-type"].as_str() {
            Some("set") => Self::Set,
            Some("map") => {
                let mut keys = texts(&schema["x-kubernetes-list-map-keys"]);
                keys.sort();
                keys.dedup();
                Self::Map(keys)
            }
            _ => Self::Atomic,
        }
    }
}

impl Additional {
    fn of(schema: Option<&Value>) -> Self {
        match schema {
            None => Self::Unsaid,
            Some(Value::Bool(false)) => Self::No,
            Some(schema @ Value::Object(_)) => Self::Of(Box::new(Structure::of(schema))),
            Some(_) => Self::Any,
        }
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
}
