//! Whether a value keeps its schema, told from what was read out of the schema once.
//!
//! Most of what is written is right, and most places say no more than a type. Here a value is only found to be right, or not to be so easily
//! told; what is wrong with it, and in which words, is [`super::validate`]'s. Never: a value that would be refused there.

use serde_json::{Map, Value};

use super::validate::has_format;
use crate::registry::{Kind, List, Structure};

/// Whether a value certainly keeps its schema. What has not changed is not judged.
pub(super) fn keeps(structure: &Structure, new: &Value, old: Option<&Value>) -> bool {
    if old == Some(new) {
        return true;
    }
    if !structure.plain || structure.allowed.as_ref().is_some_and(|allowed| !allowed.contains(new)) {
        return false;
    }
    if new.is_null() {
        return structure.nullable;
    }
    if !is_of_type(structure, new) {
        return false;
    }
    match new {
        Value::Object(map) => fields(structure, map, old),
        Value::Array(items) => {
            let elements = structure.items.as_deref();
            are_distinct(&structure.list, items)
                && elements.is_none_or(|structure| items.iter().all(|item| keeps(structure, item, None)))
        }
        Value::String(text) => has_format(&structure.format, text),
        Value::Number(number) => {
            structure.format != "int32" || number.as_i64().is_some_and(|number| i32::try_from(number).is_ok())
        }
        Value::Bool(_) | Value::Null => true,
    }
}

fn fields(structure: &Structure, map: &Map<String, Value>, old: Option<&Value>) -> bool {
    let kept = |(name, value): (&String, &Value)| {
        let field = structure.named(name).or(structure.unnamed());
        field.is_none_or(|field| keeps(field, value, old.and_then(|old| old.get(name))))
    };
    structure.required.iter().all(|name| map.contains_key(name)) && map.iter().all(kept)
}

fn is_of_type(structure: &Structure, value: &Value) -> bool {
    if structure.int_or_string {
        return value.is_string() || value.is_i64() || value.is_u64();
    }
    match structure.kind {
        None => true,
        Some(Kind::Object) => value.is_object(),
        Some(Kind::Array) => value.is_array(),
        Some(Kind::String) => value.is_string(),
        Some(Kind::Boolean) => value.is_boolean(),
        Some(Kind::Number) => value.is_number(),
        Some(Kind::Integer) => value.is_i64() || value.is_u64(),
        Some(Kind::Other) => false,
    }
}

/// Whether no element of a list is there twice.
fn are_distinct(list: &List, items: &[Value]) -> bool {
    let same = |one: &Value, other: &Value| match list {
        List::Atomic => false,
        List::Set => one == other,
        List::Map(keys) => keys.iter().all(|key| one[key.as_str()] == other[key.as_str()]),
    };
    items.iter().enumerate().all(|(index, item)| !items[..index].iter().any(|other| same(item, other)))
}

#[cfg(test)]
mod tests {
    use super::super::validate::structural_errors;
    use super::*;
    use crate::registry::Schema;
    use proptest::prelude::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({"type": "object", "required": ["a"], "properties": {
            "a": {"type": "string", "enum": ["x", "y"]},
            "b": {"type": "integer", "format": "int32", "nullable": true},
            "c": {"type": "integer", "minimum": 1},
            "d": {"x-kubernetes-int-or-string": true},
            "e": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {
                "type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "boolean"}},
            }},
            "f": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "g": {"type": "object", "additionalProperties": {"type": "string", "format": "date-time"}},
            "h": {"type": "string", "anyOf": [{"pattern": "^a"}, {"maxLength": 1}]},
        }})
    }

    fn values() -> impl Strategy<Value = Value> {
        let scalar = prop::sample::select(vec![
            json!(null),
            json!("x"),
            json!("ab"),
            json!(true),
            json!(0),
            json!(7),
            json!(1.5),
            json!(3_000_000_000_i64),
            json!("2026-01-01T00:00:00Z"),
            json!([]),
            json!({}),
        ]);
        let item = prop_oneof![
            scalar.clone(),
            prop::collection::btree_map("[kv]", scalar.clone(), 0..3).prop_map(|map| json!(map)),
        ];
        let field = prop_oneof![
            scalar.clone(),
            prop::collection::vec(item, 0..3).prop_map(|items| json!(items)),
            prop::collection::btree_map("[pq]", scalar, 0..3).prop_map(|map| json!(map)),
        ];
        prop::collection::btree_map("[a-h]", field, 0..8).prop_map(|mut map| {
            map.entry("a".to_owned()).or_insert_with(|| json!("x"));
            json!(map)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_found_to_keep_its_schema_does(value in values()) {
            let written = schema();
            let schema = Schema::from(written.clone());
            if keeps(schema.structure(), &value, None) {
                prop_assert!(structural_errors(&written, &value, "").is_empty());
            }
            // Each field apart as well: a single one that is not told easily hides the others.
            for (name, field) in value.as_object().into_iter().flatten() {
                let (place, written) = (schema.structure().named(name).unwrap(), &written["properties"][name]);
                if keeps(place, field, None) {
                    prop_assert!(structural_errors(written, field, name).is_empty(), "{name}: {field}");
                }
            }
        }
    }

    #[test]
    fn what_is_right_and_plain_is_told_at_once_and_what_has_a_bound_is_not() {
        let schema = Schema::from(schema());
        let told = |value: Value| keeps(schema.structure(), &value, None);
        assert!(told(
            json!({"a": "x", "b": null, "d": "5", "e": [{"k": "1"}, {"k": "2"}], "f": ["p", "q"], "unknown": 1})
        ));
        assert!(!told(json!({"a": "x", "c": 5})), "a bound is looked at elsewhere");
        assert!(!told(json!({"a": "z"})) && !told(json!({"b": 1})) && !told(json!({"a": "x", "f": ["p", "p"]})));
        assert!(keeps(schema.structure(), &json!({"a": "z"}), Some(&json!({"a": "z"}))), "it was so before");
    }
}
