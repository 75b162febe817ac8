//! ConfigMaps and Secrets: their keys, what text becomes, and what immutable means.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::{immutable, set_default};
use crate::error::FieldError;
use crate::store::names;

/// `stringData` is a way to write `data`; what is stored is `data`.
pub(super) fn secret_defaults(secret: &mut Value) {
    let Some(map) = secret.as_object_mut() else { return };
    if let Some(Value::Object(texts)) = map.remove("stringData") {
        let data = map.entry("data").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(data) = data {
            for (key, text) in texts {
                data.insert(key, STANDARD.encode(text.as_str().unwrap_or_default()).into());
            }
        }
    }
    set_default(secret, "type", "Opaque");
}

/// What is wrong with a Secret.
pub(super) fn validate_secret(secret: &Value) -> Vec<FieldError> {
    let mut errors = key_errors(secret, "data");
    let needed: &[&str] = match secret["type"].as_str() {
        Some("kubernetes.io/tls") => &["tls.crt", "tls.key"],
        Some("kubernetes.io/dockerconfigjson") => &[".dockerconfigjson"],
        _ => &[],
    };
    for key in needed.iter().filter(|key| secret["data"].get(**key).is_none()) {
        errors.push(FieldError::required(format!("data[{key}]"), ""));
    }
    errors
}

/// What is wrong with a ConfigMap.
pub(super) fn validate_config_map(map: &Value) -> Vec<FieldError> {
    let mut errors = key_errors(map, "data");
    errors.extend(key_errors(map, "binaryData"));
    errors
}

fn key_errors(object: &Value, field: &str) -> Vec<FieldError> {
    let keys = object[field].as_object().into_iter().flatten().map(|(key, _)| key);
    keys.filter_map(|key| {
        let problem = names::config_key_problem(key)?;
        Some(FieldError::invalid(format!("{field}[{key}]"), &key.as_str().into(), problem))
    })
    .collect()
}

/// A Secret's type never changes, and nothing in an immutable one.
pub(super) fn validate_secret_update(secret: &Value, current: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if secret["type"] != current["type"] {
        errors.push(immutable("type", &secret["type"]));
    }
    errors.extend(immutable_errors(secret, current, &["data"]));
    errors
}

/// Once immutable, always so.
pub(super) fn immutable_errors(object: &Value, current: &Value, fields: &[&str]) -> Vec<FieldError> {
    if current["immutable"] != true {
        return Vec::new();
    }
    let why = "field is immutable when `immutable` is set";
    let mut errors = Vec::new();
    if object["immutable"] != true {
        errors.push(FieldError::forbidden("immutable", why));
    }
    for field in fields.iter().filter(|field| object[**field] != current[**field]) {
        errors.push(FieldError::forbidden(*field, why));
    }
    errors
}
