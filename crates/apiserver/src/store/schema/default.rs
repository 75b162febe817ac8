//! The defaults of a structural schema, on write and on the read of objects that were stored before a default existed.

use serde_json::Value;

/// Fills in what is missing.
pub(crate) fn apply(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
                for (name, field) in properties {
                    if let Some(default) = field.get("default")
                        && is_missing(map.get(name), field)
                    {
                        map.insert(name.clone(), default.clone());
                    }
                    if let Some(value) = map.get_mut(name) {
                        apply(field, value);
                    }
                }
            }
            if let Some(additional) = schema.get("additionalProperties").filter(|schema| schema.is_object()) {
                map.values_mut().for_each(|value| apply(additional, value));
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                items.iter_mut().for_each(|item| apply(schema, item));
            }
        }
        _ => {}
    }
}

/// Whether [`apply`] would change anything; spares a reader the copy.
pub(crate) fn lacking(schema: &Value, value: &Value) -> bool {
    match value {
        Value::Object(map) => {
            let properties = schema.get("properties").and_then(Value::as_object);
            let fields = properties.into_iter().flatten().any(|(name, field)| {
                (field.get("default").is_some() && is_missing(map.get(name), field))
                    || map.get(name).is_some_and(|value| lacking(field, value))
            });
            let additional = schema.get("additionalProperties").filter(|schema| schema.is_object());
            fields || additional.is_some_and(|schema| map.values().any(|value| lacking(schema, value)))
        }
        Value::Array(items) => schema.get("items").is_some_and(|schema| items.iter().any(|item| lacking(schema, item))),
        _ => false,
    }
}

fn is_missing(value: Option<&Value>, schema: &Value) -> bool {
    match value {
        None => true,
        Some(Value::Null) => schema["nullable"] != true,
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nested_defaults_appear_only_under_a_parent_that_exists() {
        let schema = json!({"properties": {
            "with": {"type": "object", "default": {}, "properties": {"a": {"type": "string", "default": "A"}}},
            "without": {"type": "object", "properties": {"a": {"type": "string", "default": "A"}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"n": {"default": 1}}}},
        }});
        let mut object = json!({"list": [{}, {"n": 2}]});
        assert!(lacking(&schema, &object));
        apply(&schema, &mut object);
        assert_eq!(object, json!({"with": {"a": "A"}, "list": [{"n": 1}, {"n": 2}]}));
        assert!(!lacking(&schema, &object));
    }

    #[test]
    fn a_default_takes_the_place_of_a_null_that_is_not_allowed() {
        let schema = json!({"properties": {"a": {"default": 1}, "b": {"default": 1, "nullable": true}}});
        let mut object = json!({"a": null, "b": null});
        apply(&schema, &mut object);
        assert_eq!(object, json!({"a": 1, "b": null}));
    }
}
