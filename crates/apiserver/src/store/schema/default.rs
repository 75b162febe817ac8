//! The defaults of a structural schema, on write and on the read of objects that were stored before a default existed.

use serde_json::Value;

use crate::registry::Structure;

/// Fills in what is missing.
pub(crate) fn apply(structure: &Structure, value: &mut Value) {
    apply_where(|_| true, structure, value);
}

/// The same, but of some of the fields that the schema names; below these, of all.
pub(crate) fn apply_where(wanted: impl Fn(&str) -> bool, structure: &Structure, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, field) in structure.fields.iter().filter(|(name, _)| wanted(name)) {
                if let Some(default) = &field.structure.default
                    && is_missing(map.get(name), &field.structure)
                {
                    map.insert(name.clone(), default.clone());
                }
                if let Some(value) = map.get_mut(name) {
                    apply(&field.structure, value);
                }
            }
            if let Some(unnamed) = structure.unnamed() {
                map.values_mut().for_each(|value| apply(unnamed, value));
            }
        }
        Value::Array(items) => {
            if let Some(structure) = &structure.items {
                items.iter_mut().for_each(|item| apply(structure, item));
            }
        }
        _ => {}
    }
}

/// Whether [`apply`] would change anything; spares a reader the copy.
pub(crate) fn lacking(structure: &Structure, value: &Value) -> bool {
    match value {
        Value::Object(map) => {
            let fields = structure.fields.iter().any(|(name, field)| {
                let value = map.get(name);
                (field.structure.default.is_some() && is_missing(value, &field.structure))
                    || value.is_some_and(|value| lacking(&field.structure, value))
            });
            fields || structure.unnamed().is_some_and(|unnamed| map.values().any(|value| lacking(unnamed, value)))
        }
        Value::Array(items) => {
            structure.items.as_ref().is_some_and(|structure| items.iter().any(|item| lacking(structure, item)))
        }
        _ => false,
    }
}

fn is_missing(value: Option<&Value>, structure: &Structure) -> bool {
    match value {
        None => true,
        Some(Value::Null) => !structure.nullable,
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Schema;
    use serde_json::json;

    #[test]
    fn nested_defaults_appear_only_under_a_parent_that_exists() {
        let schema = json!({"properties": {
            "with": {"type": "object", "default": {}, "properties": {"a": {"type": "string", "default": "A"}}},
            "without": {"type": "object", "properties": {"a": {"type": "string", "default": "A"}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"n": {"default": 1}}}},
        }});
        let schema = Schema::from(schema);
        let mut object = json!({"list": [{}, {"n": 2}]});
        assert!(lacking(schema.structure(), &object));
        apply(schema.structure(), &mut object);
        assert_eq!(object, json!({"with": {"a": "A"}, "list": [{"n": 1}, {"n": 2}]}));
        assert!(!lacking(schema.structure(), &object));
    }

    #[test]
    fn a_default_takes_the_place_of_a_null_that_is_not_allowed() {
        let schema = json!({"properties": {"a": {"default": 1}, "b": {"default": 1, "nullable": true}}});
        let mut object = json!({"a": null, "b": null});
        apply(Schema::from(schema).structure(), &mut object);
        assert_eq!(object, json!({"a": 1, "b": null}));
    }
}
