//! Decodes a built-in kind's body as a server with typed structs does.
//!
//! Unknown fields and nulls drop, empty lists and maps are nothing, quantities and times take their canonical form; a value of the
//! wrong type is refused. So two clients that mean the same write the same object, and a second apply finds nothing to change.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::at::At;
use super::{cannot_handle, quantity};
use crate::error::ApiError;
use crate::registry::Resource;

/// Brings an object into its typed form and returns the paths of the fields that its kind does not have.
pub(super) fn decode(
    resource: &Resource,
    object: &mut Value,
    touched: Option<&Value>,
) -> Result<Vec<String>, ApiError> {
    decode_part(resource, &resource.schema, object, touched, "")
}

/// The same for a part at `path`, such as the metadata of a custom object. With what a merge patch touched, only that: the rest is as
/// it was stored, which is in its typed form.
pub(super) fn decode_part(
    resource: &Resource,
    schema: &Value,
    part: &mut Value,
    touched: Option<&Value>,
    path: &str,
) -> Result<Vec<String>, ApiError> {
    let mut decoder = Decoder { resource, unknown: Vec::new() };
    decoder.value(schema, part, touched, At::Start(path))?;
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
        schema: &Value,
        value: &mut Value,
        touched: Option<&Value>,
        path: At<'_>,
    ) -> Result<(), ApiError> {
        if schema["x-kubernetes-int-or-string"] == true {
            return self.int_or_string(schema, value, path);
        }
        match (schema["type"].as_str(), &mut *value) {
            (Some("object"), Value::Object(map)) => self.object(schema, map, touched.and_then(Value::as_object), path),
            (Some("array"), Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.value(&schema["items"], item, None, At::Item(&path, index))?;
                }
                Ok(())
            }
            (Some("string"), Value::String(text)) => {
                let text = std::mem::take(text);
                *value = self.text(schema, text)?.into();
                Ok(())
            }
            (Some("boolean"), Value::Bool(_)) | (Some("number"), Value::Number(_)) => Ok(()),
            (Some("integer"), Value::Number(number)) if number.is_i64() || number.is_u64() => Ok(()),
            (None, _) => Ok(()),
            (Some(_), _) => Err(self.wrong_type(schema, value, path)),
        }
    }

    fn object(
        &mut self,
        schema: &Value,
        map: &mut Map<String, Value>,
        touched: Option<&Map<String, Value>>,
        path: At<'_>,
    ) -> Result<(), ApiError> {
        let properties = schema.get("properties").and_then(Value::as_object);
        let additional = schema.get("additionalProperties").filter(|schema| schema.is_object());
        if properties.is_none() && additional.is_none() {
            map.retain(|_, value| !value.is_null());
            return Ok(());
        }
        let open = schema["x-kubernetes-preserve-unknown-fields"] == true;
        let required = schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut refused = Ok(());
        map.retain(|key, value| {
            if value.is_null() {
                return false;
            }
            if refused.is_err() || touched.is_some_and(|touched| !touched.contains_key(key)) {
                return true;
            }
            let of_struct = properties.and_then(|all| all.get(key));
            let Some(field) = of_struct.or(additional) else {
                if !open {
                    self.unknown.push(At::Field(&path, key).to_string());
                }
                return open;
            };
            refused = self.value(field, value, touched.and_then(|touched| touched.get(key)), At::Field(&path, key));
            let empty = match &*value {
                Value::Object(map) => map.is_empty() && field.get("additionalProperties").is_some(),
                Value::Array(items) => items.is_empty(),
                Value::String(text) => text.is_empty() && path.is_metadata(),
                _ => false,
            };
            !(empty && of_struct.is_some()) || required.iter().any(|one| *one == **key)
        });
        refused
    }

    fn int_or_string(&mut self, schema: &Value, value: &mut Value, path: At<'_>) -> Result<(), ApiError> {
        let is_quantity = schema["format"] == "quantity";
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
            _ => Err(self.wrong_type(schema, value, path)),
        }
    }

    fn text(&self, schema: &Value, text: String) -> Result<String, ApiError> {
        let pattern = match schema["format"].as_str() {
            Some("date-time") => "%Y-%m-%dT%H:%M:%SZ",
            Some("micro-date-time") => "%Y-%m-%dT%H:%M:%S%.6fZ",
            Some("byte") => return self.bytes(&text),
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

    fn wrong_type(&self, schema: &Value, value: &Value, path: At<'_>) -> ApiError {
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
                go_type(schema)
            ),
        )
    }

    /// `data.key` is the field `data` of the struct: keys of maps are no fields.
    fn without_map_key(&self, path: &str) -> String {
        let mut schema = &self.resource.schema;
        let mut kept = Vec::new();
        for step in path.split('.') {
            let Some(next) = schema.get("properties").and_then(|all| all.get(step)) else { break };
            kept.push(step);
            schema = next;
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

fn go_type(schema: &Value) -> String {
    match (schema["type"].as_str().unwrap_or_default(), schema["format"].as_str().unwrap_or_default()) {
        ("string", "byte") => "[]uint8".into(),
        ("string", _) => "string".into(),
        ("boolean", _) => "bool".into(),
        ("integer", "") => "int64".into(),
        ("integer", format) => format.into(),
        ("number", _) => "float64".into(),
        ("array", _) => format!("[]{}", go_type(&schema["items"])),
        ("object", _) if schema["additionalProperties"].is_object() => {
            format!("map[string]{}", go_type(&schema["additionalProperties"]))
        }
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
