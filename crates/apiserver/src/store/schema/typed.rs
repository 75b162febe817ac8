//! Decodes a built-in kind's body as a server with typed structs does.
//!
//! Unknown fields and nulls drop, empty lists and maps are nothing, quantities and times take their canonical form; a value of the
//! wrong type is refused. So two clients that mean the same write the same object, and a second apply finds nothing to change.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::at::At;
use super::{cannot_handle, quantity};
use crate::error::ApiError;
use crate::registry::{Additional, Kind, NOTHING, Resource, Structure};

/// Brings an object into its typed form and returns the paths of the fields that its kind does not have.
pub(super) fn decode(
    resource: &Resource,
    object: &mut Value,
    touched: Option<&Value>,
) -> Result<Vec<String>, ApiError> {
    decode_part(resource, resource.schema.structure(), object, touched, "")
}

/// The same for a part at `path`, such as the metadata of a custom object. With what a merge patch touched, only that: the rest is as
/// it was stored, which is in its typed form.
pub(super) fn decode_part(
    resource: &Resource,
    structure: &Structure,
    part: &mut Value,
    touched: Option<&Value>,
    path: &str,
) -> Result<Vec<String>, ApiError> {
    let mut decoder = Decoder { resource, unknown: Vec::new() };
    decoder.value(structure, part, touched, At::Start(path))?;
    // A typed server reads metadata first.
    decoder.unknown.sort_by_key(|path| (!path.starts_with("metadata."), path.clone()));
    Ok(decoder.unknown)
}

struct Decoder<'a> {
    resource: &'a Resource,
    unknown: Vec<String>,
}

impl Decoder<'_> {
    fn value(
        &mut self,
        structure: &Structure,
        value: &mut Value,
        touched: Option<&Value>,
        path: At<'_>,
    ) -> Result<(), ApiError> {
        if structure.int_or_string {
            return self.int_or_string(structure, value, path);
        }
        match (structure.kind, &mut *value) {
            (Some(Kind::Object), Value::Object(map)) => {
                self.object(structure, map, touched.and_then(Value::as_object), path)
            }
            (Some(Kind::Array), Value::Array(items)) => {
                let structure = structure.items.as_deref().unwrap_or(&NOTHING);
                for (index, item) in items.iter_mut().enumerate() {
                    self.value(structure, item, None, At::Item(&path, index))?;
                }
                Ok(())
            }
            (Some(Kind::String), Value::String(text)) => {
                let text = std::mem::take(text);
                *value = self.text(structure, text)?.into();
                Ok(())
            }
            (Some(Kind::Boolean), Value::Bool(_)) | (Some(Kind::Number), Value::Number(_)) => Ok(()),
            (Some(Kind::Integer), Value::Number(number)) if number.is_i64() || number.is_u64() => Ok(()),
            (None, _) => Ok(()),
            (Some(_), _) => Err(self.wrong_type(structure, value, path)),
        }
    }

    fn object(
        &mut self,
        structure: &Structure,
        map: &mut Map<String, Value>,
        touched: Option<&Map<String, Value>>,
        path: At<'_>,
    ) -> Result<(), ApiError> {
        let additional = structure.unnamed();
        if !structure.is_struct && additional.is_none() {
            map.retain(|_, value| !value.is_null());
            return Ok(());
        }
        let mut refused = Ok(());
        map.retain(|key, value| {
            if value.is_null() {
                return false;
            }
            if refused.is_err() || touched.is_some_and(|touched| !touched.contains_key(key)) {
                return true;
            }
            let of_struct = structure.named(key);
            let Some(field) = of_struct.or(additional) else {
                if !structure.open {
                    self.unknown.push(At::Field(&path, key).to_string());
                }
                return structure.open;
            };
            refused = self.value(field, value, touched.and_then(|touched| touched.get(key)), At::Field(&path, key));
            let empty = match &*value {
                Value::Object(map) => map.is_empty() && !matches!(field.additional, Additional::Unsaid),
                Value::Array(items) => items.is_empty(),
                Value::String(text) => text.is_empty() && path.is_metadata(),
                _ => false,
            };
            !(empty && of_struct.is_some()) || structure.required.contains(key)
        });
        refused
    }

    fn int_or_string(&mut self, structure: &Structure, value: &mut Value, path: At<'_>) -> Result<(), ApiError> {
        let is_quantity = structure.format == "quantity";
        match value {
            Value::Number(number) if is_quantity => {
                let text = number.to_string();
                *value = quantity::canonical(&text).unwrap_or(text).into();
                Ok(())
            }
            Value::String(text) if is_quantity => match quantity::canonical(text) {
                Some(canonical) => {
                    *value = canonical.into();
                    Ok(())
                }
                None => Err(cannot_handle(
                    self.resource,
                    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
                )),
            },
            Value::String(_) => Ok(()),
            Value::Number(number) if number.is_i64() => Ok(()),
            _ => Err(self.wrong_type(structure, value, path)),
        }
    }

    fn text(&self, structure: &Structure, text: String) -> Result<String, ApiError> {
        let pattern = match structure.format.as_str() {
            "date-time" => "%Y-%m-%dT%H:%M:%SZ",
            "micro-date-time" => "%Y-%m-%dT%H:%M:%S%.6fZ",
            "byte" => return self.bytes(&text),
            _ => return Ok(text),
        };
        let time: Timestamp = text.parse().map_err(|_| {
            let shown = Value::from(text.as_str()).to_string();
            cannot_handle(
                self.resource,
                &format!("parsing time {shown} as \"2006-01-02T15:04:05Z07:00\": cannot parse {shown} as \"2006\""),
            )
        })?;
        Ok(time.strftime(pattern).to_string())
    }

    fn bytes(&self, text: &str) -> Result<String, ApiError> {
        use base64::Engine as _;
        use base64::engine::general_purpose::STANDARD;
        let packed: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
        match STANDARD.decode(&packed) {
            Ok(_) => Ok(packed),
            Err(_) => Err(cannot_handle(self.resource, "illegal base64 data at input byte 0")),
        }
    }

    fn wrong_type(&self, structure: &Structure, value: &Value, path: At<'_>) -> ApiError {
        let path = path.to_string();
        let owner = if path == "metadata" || path.starts_with("metadata.") {
            "ObjectMeta"
        } else {
            self.resource.kind.as_str()
        };
        // A typed server names the field of the struct, not the element inside of it.
        let field: String = path.split('[').next().unwrap_or(&path).into();
        let field = match (field.strip_prefix("metadata."), self.resource.custom) {
            (Some(rest), true) => rest.split('.').next().unwrap_or(rest).to_owned(),
            (Some(rest), false) => format!("metadata.{}", rest.split('.').next().unwrap_or(rest)),
            (None, _) => self.without_map_key(&field),
        };
        cannot_handle(
            self.resource,
            &format!(
                "json: cannot unmarshal {} into Go struct field {owner}.{field} of type {}",
                json_type(value),
                go_type(structure)
            ),
        )
    }

    /// `data.key` is the field `data` of the struct: keys of maps are no fields.
    fn without_map_key(&self, path: &str) -> String {
        let mut structure = self.resource.schema.structure();
        let mut kept = Vec::new();
        for step in path.split('.') {
            let Some(next) = structure.named(step) else { break };
            kept.push(step);
            structure = next;
        }
        kept.join(".")
    }
}

/// What Go's decoder calls a JSON value.
pub(super) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn go_type(structure: &Structure) -> String {
    match (structure.kind, structure.format.as_str(), structure.unnamed()) {
        (Some(Kind::String), "byte", _) => "[]uint8".into(),
        (Some(Kind::String), ..) => "string".into(),
        (Some(Kind::Boolean), ..) => "bool".into(),
        (Some(Kind::Integer), "", _) => "int64".into(),
        (Some(Kind::Integer), format, _) => format.into(),
        (Some(Kind::Number), ..) => "float64".into(),
        (Some(Kind::Array), ..) => format!("[]{}", go_type(structure.items.as_deref().unwrap_or(&NOTHING))),
        (Some(Kind::Object), _, Some(unnamed)) => format!("map[string]{}", go_type(unnamed)),
        _ => "struct".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resource(plural: &str) -> std::sync::Arc<Resource> {
        crate::registry::builtin().iter().find(|one| one.plural == plural).unwrap().clone()
    }

    #[test]
    fn unknown_fields_drop_and_are_named() {
        let mut object = json!({"metadata": {"name": "a", "foo": 1}, "bar": {"x": 1}, "data": {"k": "v"}});
        assert_eq!(decode(&resource("configmaps"), &mut object, None).unwrap(), ["metadata.foo", "bar"]);
        assert_eq!(object, json!({"metadata": {"name": "a"}, "data": {"k": "v"}}));
    }

    #[test]
    fn a_wrong_type_is_refused_as_go_words_it() {
        let mut object = json!({"metadata": {"name": "a"}, "data": {"a": 1}});
        let error = decode(&resource("configmaps"), &mut object, None).unwrap_err();
        assert_eq!(
            error.message,
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
        );
        let mut object = json!({"metadata": {"name": "a", "labels": "x"}});
        assert!(decode(&resource("configmaps"), &mut object, None).unwrap_err().message.ends_with(
            "json: cannot unmarshal string into Go struct field ObjectMeta.metadata.labels of type map[string]string"
        ));
    }

    #[test]
    fn nothing_is_the_same_as_empty() {
        let mut object = json!({
            "metadata": {"name": "a", "creationTimestamp": null, "labels": {}, "namespace": ""},
            "spec": {"containers": [{"name": "c", "resources": {}, "args": []}], "volumes": [{"name": "v", "emptyDir": {}}]},
        });
        decode(&resource("pods"), &mut object, None).unwrap();
        assert_eq!(
            object,
            json!({"metadata": {"name": "a"}, "spec": {
                "containers": [{"name": "c", "resources": {}}], "volumes": [{"name": "v", "emptyDir": {}}],
            }})
        );
    }

    #[test]
    fn quantities_and_times_become_canonical() {
        let mut object = json!({"spec": {"resources": {"requests": {"storage": "1024Mi", "cpu": 1}}}});
        decode(&resource("persistentvolumeclaims"), &mut object, None).unwrap();
        assert_eq!(object["spec"]["resources"]["requests"], json!({"storage": "1Gi", "cpu": "1"}));
        let mut lease = json!({"spec": {"renewTime": "2026-01-01T02:00:00.5+01:00"}});
        decode(&resource("leases"), &mut lease, None).unwrap();
        assert_eq!(lease["spec"]["renewTime"], "2026-01-01T01:00:00.500000Z");
    }
}
