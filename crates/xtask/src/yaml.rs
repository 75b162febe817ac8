//! Writes an object as YAML that reads well in a diff: keys in alphabetical order, long text folded.
//!
//! Never: YAML that reads back as something else; a test holds every generated file to that.

use serde_json::{Map, Value};

/// What stands at the top of a generated file.
pub const HEADER: &str = "# Made by `make generate` from the types; changes here are lost.\n";

/// `object` as a YAML document.
pub fn document(object: &Value) -> Result<String, String> {
    Ok(format!("{HEADER}---\n{}", body(object)?))
}

/// Several of them as one file.
pub fn documents(objects: &[Value]) -> Result<String, String> {
    let bodies: Vec<_> =
        objects.iter().map(|object| Ok(format!("---\n{}", body(object)?))).collect::<Result<_, String>>()?;
    Ok(format!("{HEADER}{}", bodies.concat()))
}

/// `object` as YAML and nothing else.
pub fn body(object: &Value) -> Result<String, String> {
    let mut options = serde_saphyr::SerializerOptions::default();
    options.folded_wrap_chars = 110;
    let text =
        serde_saphyr::to_string_with_options(&sorted(object), options).map_err(|why| format!("as YAML: {why}"))?;
    Ok(format!("{}\n", text.trim_end()))
}

/// The same with keys in order. Whether `serde_json` keeps its maps sorted depends on features that any dependency may turn
/// on, and the generated files must not depend on that.
pub fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<_> = map.keys().collect();
            keys.sort();
            Value::Object(keys.into_iter().map(|key| (key.clone(), sorted(&map[key]))).collect::<Map<_, _>>())
        }
        Value::Array(list) => Value::Array(list.iter().map(sorted).collect()),
        Value::Number(number) => whole(number).map_or_else(|| value.clone(), Value::from),
        scalar => scalar.clone(),
    }
}

/// Bounds of a schema are floating-point numbers in Kubernetes' types, and `10.0` replicas read badly.
fn whole(number: &serde_json::Number) -> Option<i64> {
    let number = number.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 1e15)?;
    #[allow(clippy::cast_possible_truncation, reason = "it has no fraction and fits")]
    Some(number as i64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_in_order_and_whole_numbers_whole() {
        let text = document(&json!({ "b": 1.0, "a": { "d": "x", "c": [1.5] } })).expect("YAML");
        assert_eq!(text, format!("{HEADER}---\na:\n  c:\n  - 1.5\n  d: x\nb: 1\n"));
    }

    #[test]
    fn what_looks_like_another_type_stays_text() {
        let object = json!({ "a": "18", "b": "true", "c": "null", "d": "1e3", "e": "0 2 * * *", "f": "", "g": "a: 'b' \"c\" \\ #" });
        let read: Value = serde_saphyr::from_str(&document(&object).expect("YAML")).expect("it reads back");
        assert_eq!(read, object);
    }

    #[test]
    fn long_text_is_folded_and_reads_back() {
        let words = "word ".repeat(100).trim().to_owned();
        let text = document(&json!({ "description": words })).expect("YAML");
        assert!(text.lines().all(|line| line.len() < 130), "{text}");
        let read: Value = serde_saphyr::from_str(&text).expect("it reads back");
        assert_eq!(read, json!({ "description": words }));
    }
}
