//! Drops what a structural schema does not specify.

use serde_json::{Map, Value};

use super::at::At;
use crate::registry::{Additional, NOTHING, Structure};

/// Drops unspecified fields and returns their paths. The root's `apiVersion`, `kind` and `metadata` always stay. With what a merge
/// patch touched, only there: the rest is as it was stored.
pub(super) fn prune(structure: &Structure, object: &mut Value, touched: Option<&Value>) -> Vec<String> {
    let mut unknown = Vec::new();
    if let Value::Object(map) = object {
        fields(structure, map, touched, At::Start(""), Resource::Whole, &mut unknown);
    }
    unknown.sort();
    unknown
}

/// Whether a schema's object is a Kubernetes object itself.
#[derive(Clone, Copy, PartialEq)]
enum Resource {
    Whole,
    No,
}

fn fields(
    structure: &Structure,
    map: &mut Map<String, Value>,
    touched: Option<&Value>,
    path: At<'_>,
    resource: Resource,
    unknown: &mut Vec<String>,
) {
    let additional = match &structure.additional {
        Additional::Unsaid | Additional::No => None,
        Additional::Any => Some(&NOTHING),
        Additional::Of(structure) => Some(&**structure),
    };
    let touched = touched.and_then(Value::as_object);
    map.retain(|key, value| {
        if touched.is_some_and(|touched| !touched.contains_key(key)) {
            return true;
        }
        let of_resource = resource == Resource::Whole && matches!(key.as_str(), "apiVersion" | "kind" | "metadata");
        let at = At::Field(&path, key);
        let Some(field) = structure.named(key).or(additional) else {
            let kept = structure.open || of_resource;
            unknown.extend((!kept).then(|| at.to_string()));
            return kept;
        };
        if of_resource {
            return true;
        }
        // A null that the schema does not allow is nothing; the default may take its place.
        if value.is_null() && !field.nullable && !is_open(field) {
            return false;
        }
        inside(field, value, touched.and_then(|touched| touched.get(key)), at, unknown);
        true
    });
}

fn is_open(structure: &Structure) -> bool {
    structure.open && structure.kind.is_none()
}

fn inside(structure: &Structure, value: &mut Value, touched: Option<&Value>, path: At<'_>, unknown: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            let whole = if structure.embedded { Resource::Whole } else { Resource::No };
            fields(structure, map, touched, path, whole, unknown);
        }
        Value::Array(items) => {
            if let Some(structure) = &structure.items {
                for (index, item) in items.iter_mut().enumerate() {
                    inside(structure, item, None, At::Item(&path, index), unknown);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Schema;
    use serde_json::json;

    fn pruned(schema: Value, mut object: Value) -> (Value, Vec<String>) {
        let unknown = prune(Schema::from(schema).structure(), &mut object, None);
        (object, unknown)
    }

    #[test]
    fn unspecified_fields_go_and_the_rest_stays() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "string"}, "list": {"type": "array", "items": {"type": "object", "properties": {"x": {}}}},
        }}}});
        let (object, unknown) = pruned(
            schema,
            json!({"kind": "T", "metadata": {"name": "n"}, "spec": {"a": "1", "b": 2, "list": [{"x": 1, "y": 2}]}, "z": 1}),
        );
        assert_eq!(object, json!({"kind": "T", "metadata": {"name": "n"}, "spec": {"a": "1", "list": [{"x": 1}]}}));
        assert_eq!(unknown, ["spec.b", "spec.list[0].y", "z"]);
    }

    #[test]
    fn an_open_object_keeps_everything_but_prunes_what_it_specifies() {
        let schema = json!({"properties": {"spec": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"strict": {"type": "object", "properties": {"a": {}}}},
        }}});
        let (object, unknown) = pruned(schema, json!({"spec": {"free": {"q": [1, null]}, "strict": {"a": 1, "b": 2}}}));
        assert_eq!(object, json!({"spec": {"free": {"q": [1, null]}, "strict": {"a": 1}}}));
        assert_eq!(unknown, ["spec.strict.b"]);
    }

    #[test]
    fn an_embedded_object_keeps_its_metadata() {
        let schema = json!({"properties": {"pod": {
            "type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}},
        }}});
        let (object, _) = pruned(
            schema,
            json!({"pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}}, "q": 1}}),
        );
        assert_eq!(object, json!({"pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}}}}));
    }

    #[test]
    fn a_null_that_is_not_allowed_is_nothing() {
        let schema = json!({"properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "string"}, "b": {"type": "string", "nullable": true},
        }}}});
        let (object, _) = pruned(schema, json!({"spec": {"a": null, "b": null}}));
        assert_eq!(object, json!({"spec": {"b": null}}));
    }
}
