//! Judges a value by a structural schema, in the words of a kube-apiserver.
//!
//! With the old value, a part that has not changed is not judged again (ratcheting): elements of lists with keys are compared with
//! the element of the same key, others only as a whole.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use jiff::Timestamp;
use regex::Regex;
use serde_json::{Map, Value};

use super::plain;
use crate::error::{FieldError, Problem};
use crate::registry::{Schema, Structure};

/// What is wrong with an object.
pub(super) fn errors(schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old != Some(object) {
        changed(schema, Some(schema.structure()), object, old, "", &mut errors);
    }
    errors
}

/// What is wrong with a value of a schema, such as a default inside of a CRD.
pub(crate) fn structural_errors(schema: &Value, part: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    changed(schema, None, part, None, path, &mut errors);
    errors
}

/// After such an error the CEL rules are not run: they could not rely on the types.
pub(super) fn blocks_rules(error: &FieldError) -> bool {
    matches!(
        error.problem,
        Problem::Required | Problem::Type | Problem::NotSupported | Problem::TooLong | Problem::TooMany
    )
}

/// Judges a value that is another than the old one. With what was read out of the schema, only what can't be told from that is looked at.
fn changed(
    schema: &Value,
    structure: Option<&Structure>,
    new: &Value,
    old: Option<&Value>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if new.is_null() && schema["nullable"] == true {
        return;
    }
    let fits = fits_type(schema, new, path, errors);
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.contains(new)
    {
        let supported: Vec<String> = allowed.iter().map(plain).collect();
        errors.push(FieldError::not_supported(path, new, &supported));
    }
    if fits {
        match new {
            Value::Object(map) => object(schema, structure, map, old, path, errors),
            Value::Array(items) => list(schema, structure, items, old, path, errors),
            Value::String(text) => string(schema, text, path, errors),
            Value::Number(_) => number(schema, new, path, errors),
            Value::Bool(_) | Value::Null => {}
        }
    }
    combined(schema, new, path, errors);
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

fn body(path: &str) -> String {
    if path.is_empty() { "in body".into() } else { format!("{path} in body") }
}

fn fits_type(schema: &Value, value: &Value, path: &str, errors: &mut Vec<FieldError>) -> bool {
    let (wanted, fits) = if schema["x-kubernetes-int-or-string"] == true {
        ("integer,string", value.is_string() || value.is_i64() || value.is_u64())
    } else {
        match schema["type"].as_str() {
            None => return true,
            Some(wanted) => (wanted, fits(wanted, value)),
        }
    };
    if !fits {
        let found = type_name(value);
        let shown = Value::from(found);
        errors.push(FieldError::wrong_type(path, &shown, format!("{} must be of type {wanted}: {shown}", body(path))));
    }
    fits
}

fn fits(wanted: &str, value: &Value) -> bool {
    match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        // 3.0 is an integer to JSON schema.
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => true,
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn object(
    schema: &Value,
    structure: Option<&Structure>,
    map: &Map<String, Value>,
    old: Option<&Value>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let join = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    if let Some(most) = schema["maxProperties"].as_u64()
        && map.len() as u64 > most
    {
        errors.push(too_many(path, map.len(), most));
    }
    if let Some(least) = schema["minProperties"].as_u64()
        && (map.len() as u64) < least
    {
        let rule = format!("{} should have at least {least} properties", body(path));
        errors.push(FieldError::invalid(path, &map.len().into(), rule));
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let additional = schema.get("additionalProperties").filter(|schema| schema.is_object());
    for (key, new) in map {
        // Metadata of the object itself is judged by its own rules, not by the kind's schema.
        if path.is_empty() && matches!(key.as_str(), "metadata" | "apiVersion" | "kind") {
            continue;
        }
        let before = old.and_then(|old| old.get(key));
        let place = structure.and_then(|structure| structure.named(key).or(structure.unnamed()));
        if before == Some(new) || place.is_some_and(|place| plain::keeps(place, new, before)) {
            continue;
        }
        if let Some(field) = properties.and_then(|all| all.get(key)).or(additional) {
            changed(field, place, new, before, &join(key), errors);
        }
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !map.contains_key(name) {
            errors.push(FieldError::required(join(name), ""));
        }
    }
}

fn list(
    schema: &Value,
    structure: Option<&Structure>,
    items: &[Value],
    old: Option<&Value>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if let Some(most) = schema["maxItems"].as_u64()
        && items.len() as u64 > most
    {
        errors.push(too_many(path, items.len(), most));
    }
    if let Some(least) = schema["minItems"].as_u64()
        && (items.len() as u64) < least
    {
        let rule = format!("{} should have at least {least} items", body(path));
        errors.push(FieldError::invalid(path, &items.len().into(), rule));
    }
    let keys: Vec<&str> =
        schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let identity = |item: &Value| -> Option<Value> {
        match schema["x-kubernetes-list-type"].as_str() {
            Some("set") => Some(item.clone()),
            Some("map") => Some(
                keys.iter()
                    .map(|key| ((*key).to_owned(), item.get(*key).cloned().unwrap_or_default()))
                    .collect::<Map<_, _>>()
                    .into(),
            ),
            _ => None,
        }
    };
    let before = old.and_then(Value::as_array);
    let before: Vec<(Option<Value>, &Value)> =
        before.into_iter().flatten().map(|item| (identity(item), item)).filter(|(id, _)| id.is_some()).collect();
    let mut seen: Vec<Value> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let id = identity(item);
        let old_item = before.iter().find(|(one, _)| *one == id).map(|(_, item)| *item);
        let at = || format!("{path}[{index}]");
        if let Some(schema) = schema.get("items")
            && old_item != Some(item)
        {
            let place = structure.and_then(|structure| structure.items.as_deref());
            changed(schema, place, item, old_item, &at(), errors);
        }
        if let Some(id) = id {
            if seen.contains(&id) {
                errors.push(FieldError::duplicate(at(), &id));
            } else {
                seen.push(id);
            }
        }
    }
}

fn too_many(path: &str, count: usize, most: u64) -> FieldError {
    let noun = if most == 1 { "item" } else { "items" };
    FieldError {
        field: path.into(),
        problem: Problem::TooMany,
        detail: format!("{count}: must have at most {most} {noun}"),
    }
}

fn string(schema: &Value, text: &str, path: &str, errors: &mut Vec<FieldError>) {
    let shown = Value::from(text);
    let length = text.chars().count() as u64;
    if let Some(most) = schema["maxLength"].as_u64()
        && length > most
    {
        errors.push(FieldError {
            field: path.into(),
            problem: Problem::TooLong,
            detail: format!("may not be more than {most} bytes"),
        });
    } else if let Some(least) = schema["minLength"].as_u64()
        && length < least
    {
        errors.push(FieldError::invalid(path, &shown, format!("{} should be at least {least} chars long", body(path))));
    } else if let Some(pattern) = schema["pattern"].as_str()
        && !matches(pattern, text)
    {
        errors.push(FieldError::invalid(path, &shown, format!("{} should match '{pattern}'", body(path))));
    }
    if let Some(format) = schema["format"].as_str()
        && !has_format(format, text)
    {
        errors.push(FieldError::wrong_type(path, &shown, format!("{} must be of type {format}: {shown}", body(path))));
    }
}

/// Patterns are compiled once: every write of an object runs all of them. One that does not compile matches nothing, but a CRD
/// with such a pattern is refused before it is stored.
fn matches(pattern: &str, text: &str) -> bool {
    static COMPILED: LazyLock<Mutex<HashMap<String, Option<Regex>>>> = LazyLock::new(Mutex::default);
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if !compiled.contains_key(pattern) {
        compiled.insert(pattern.to_owned(), Regex::new(pattern).ok());
    }
    let regex = compiled.get(pattern).and_then(Option::as_ref);
    regex.is_some_and(|regex| regex.is_match(text))
}

pub(super) fn has_format(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => text.parse::<Timestamp>().is_ok(),
        "date" => text.parse::<jiff::civil::Date>().is_ok(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "cidr" => text.split_once('/').is_some_and(|(address, bits)| {
            let most = match address.parse::<std::net::IpAddr>() {
                Ok(address) => {
                    if address.is_ipv4() {
                        32
                    } else {
                        128
                    }
                }
                Err(_) => return false,
            };
            bits.parse::<u8>().is_ok_and(|bits| bits <= most)
        }),
        "uuid" => text.len() == 36 && text.split('-').all(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit())),
        "byte" => {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.decode(text).is_ok()
        }
        // Others constrain nothing here; a kube-apiserver ignores those that it does not know.
        _ => true,
    }
}

fn number(schema: &Value, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(given) = value.as_f64() else { return };
    let limits = match schema["format"].as_str() {
        Some("int32") => Some((f64::from(i32::MIN), f64::from(i32::MAX))),
        _ => None,
    };
    if limits.is_some_and(|(least, most)| given < least || given > most) {
        let rule = format!("Checked value must be of type integer with format int32 in {path}");
        errors.push(FieldError::invalid("<nil>", &"".into(), rule));
    }
    if let Some(factor) = schema["multipleOf"].as_f64()
        && (given / factor).fract() != 0.0
    {
        let rule = format!("{} should be a multiple of {}", body(path), schema["multipleOf"]);
        errors.push(FieldError::invalid(path, value, rule));
    }
    if let Some(most) = schema["maximum"].as_f64() {
        let exclusive = schema["exclusiveMaximum"] == true;
        if given > most || (exclusive && given >= most) {
            let than = if exclusive { "less than" } else { "less than or equal to" };
            errors.push(FieldError::invalid(
                path,
                value,
                format!("{} should be {than} {}", body(path), whole(&schema["maximum"])),
            ));
        }
    }
    if let Some(least) = schema["minimum"].as_f64() {
        let exclusive = schema["exclusiveMinimum"] == true;
        if given < least || (exclusive && given <= least) {
            let than = if exclusive { "greater than" } else { "greater than or equal to" };
            errors.push(FieldError::invalid(
                path,
                value,
                format!("{} should be {than} {}", body(path), whole(&schema["minimum"])),
            ));
        }
    }
}

/// Rust's schemas write `1.0` where Go's write `1`.
fn whole(limit: &Value) -> String {
    match limit.as_f64() {
        Some(number) if number.fract() == 0.0 && number.abs() < 1e15 => format!("{number:.0}"),
        _ => limit.to_string(),
    }
}

fn combined(schema: &Value, new: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let judged = |branch: &Value| {
        let mut errors = Vec::new();
        changed(branch, None, new, None, path, &mut errors);
        errors
    };
    let nil = |rule: String| FieldError::invalid("<nil>", &"".into(), rule);
    let named = Value::from(path);
    for branch in schema["allOf"].as_array().into_iter().flatten() {
        errors.extend(judged(branch));
    }
    if let Some(branches) = schema["anyOf"].as_array() {
        let results: Vec<Vec<FieldError>> = branches.iter().map(judged).collect();
        if !results.iter().any(Vec::is_empty) {
            errors.push(nil(format!("{named} must validate at least one schema (anyOf)")));
            errors.extend(results.into_iter().next().unwrap_or_default());
        }
    }
    if let Some(branches) = schema["oneOf"].as_array() {
        let mut results: Vec<Vec<FieldError>> = branches.iter().map(judged).collect();
        let valid = results.iter().filter(|errors| errors.is_empty()).count();
        if valid == 0 {
            errors.push(nil(format!("{named} must validate one and only one schema (oneOf). Found none valid")));
            errors.extend(results.drain(..).next().unwrap_or_default());
        } else if valid > 1 {
            errors.push(nil(format!(
                "{named} must validate one and only one schema (oneOf). Found {valid} valid alternatives"
            )));
        }
    }
    if let Some(branch) = schema.get("not")
        && judged(branch).is_empty()
    {
        errors.push(nil(format!("{named} must not validate the schema (not)")));
    }
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "literals read best by value")]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(schema: Value, spec: Value) -> String {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": schema}}}});
        let errors = errors(&schema.into(), &json!({"spec": {"x": spec}}), None);
        errors.iter().map(|error| format!("{}: {}", error.field, error.body())).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn messages_are_those_of_a_kube_apiserver() {
        for (schema, value, wanted) in [
            (
                json!({"type": "integer", "maximum": 10.0}),
                json!(11),
                "spec.x: Invalid value: 11: spec.x in body should be less than or equal to 10",
            ),
            (
                json!({"type": "integer", "minimum": 1}),
                json!(0),
                "spec.x: Invalid value: 0: spec.x in body should be greater than or equal to 1",
            ),
            (
                json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true}),
                json!(1),
                "spec.x: Invalid value: 1: spec.x in body should be greater than 1",
            ),
            (
                json!({"type": "integer"}),
                json!("three"),
                "spec.x: Invalid value: \"string\": spec.x in body must be of type integer: \"string\"",
            ),
            (
                json!({"type": "string", "enum": ["15", "16"]}),
                json!("13"),
                "spec.x: Unsupported value: \"13\": supported values: \"15\", \"16\"",
            ),
            (
                json!({"type": "string", "pattern": "^a+$"}),
                json!("b"),
                "spec.x: Invalid value: \"b\": spec.x in body should match '^a+$'",
            ),
            (
                json!({"type": "string", "minLength": 2, "pattern": "^a+$"}),
                json!("b"),
                "spec.x: Invalid value: \"b\": spec.x in body should be at least 2 chars long",
            ),
            (json!({"type": "string", "maxLength": 1}), json!("bb"), "spec.x: Too long: may not be more than 1 bytes"),
            (
                json!({"type": "array", "maxItems": 2}),
                json!([1, 2, 3]),
                "spec.x: Too many: 3: must have at most 2 items",
            ),
            (
                json!({"type": "array", "minItems": 1}),
                json!([]),
                "spec.x: Invalid value: 0: spec.x in body should have at least 1 items",
            ),
            (
                json!({"type": "array", "items": {"type": "string"}}),
                json!([1]),
                "spec.x[0]: Invalid value: \"integer\": spec.x[0] in body must be of type string: \"integer\"",
            ),
            (
                json!({"type": "object", "maxProperties": 1}),
                json!({"a": 1, "b": 2}),
                "spec.x: Too many: 2: must have at most 1 item",
            ),
            (
                json!({"x-kubernetes-int-or-string": true}),
                json!(true),
                "spec.x: Invalid value: \"boolean\": spec.x in body must be of type integer,string: \"boolean\"",
            ),
            (
                json!({"type": "number", "multipleOf": 2}),
                json!(3),
                "spec.x: Invalid value: 3: spec.x in body should be a multiple of 2",
            ),
            (
                json!({"type": "string", "format": "date-time"}),
                json!("nope"),
                "spec.x: Invalid value: \"nope\": spec.x in body must be of type date-time: \"nope\"",
            ),
            (json!({"type": "object", "required": ["name"]}), json!({}), "spec.x.name: Required value"),
            (
                json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
                json!(["a", "a"]),
                "spec.x[1]: Duplicate value: \"a\"",
            ),
            (
                json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}),
                json!([{"name": "a"}, {"name": "a"}]),
                "spec.x[1]: Duplicate value: {\"name\":\"a\"}",
            ),
            (
                json!({"type": "integer", "oneOf": [{"minimum": 5}, {"maximum": 2}]}),
                json!(3),
                "<nil>: Invalid value: \"\": \"spec.x\" must validate one and only one schema (oneOf). Found none valid; spec.x: Invalid value: 3: spec.x in body should be greater than or equal to 5",
            ),
        ] {
            assert_eq!(said(schema, value), wanted);
        }
    }

    #[test]
    fn what_has_not_changed_is_not_judged_again() {
        let fields = json!({"a": {"type": "integer", "maximum": 1}, "b": {"type": "integer", "maximum": 1}});
        let schema = json!({"type": "object", "properties": fields}).into();
        let old = json!({"a": 5, "b": 1});
        assert!(errors(&schema, &json!({"a": 5, "b": 0}), Some(&old)).is_empty());
        assert_eq!(errors(&schema, &json!({"a": 5, "b": 2}), Some(&old)).len(), 1);
    }
}
