//! CEL rules with `optionalOldSelf`: they run on create too, and see the old value as an optional.
//!
//! The library that evaluates the other rules gives these a null, which their functions (`hasValue`, `orValue`) do not take.

use std::sync::Arc;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::{Context, Program, Value as CelValue, to_value};
use serde_json::Value;

/// A rule that does not hold.
pub(super) struct Broken {
    pub(super) path: String,
    pub(super) rule: Value,
    pub(super) message: String,
}

/// Whether a rule is one of these.
pub(super) fn is_optional(rule: &Value) -> bool {
    rule["optionalOldSelf"] == true
}

/// The schema without these rules.
pub(super) fn without(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| match (key.as_str(), value) {
                ("x-kubernetes-validations", Value::Array(rules)) => {
                    (key.clone(), rules.iter().filter(|rule| !is_optional(rule)).cloned().collect())
                }
                _ => (key.clone(), without(value)),
            })
            .collect(),
        Value::Array(items) => items.iter().map(without).collect(),
        other => other.clone(),
    }
}

/// Runs these rules, all over an object.
pub(super) fn broken(schema: &Value, object: &Value, old: Option<&Value>) -> Vec<Broken> {
    let mut found = Vec::new();
    visit(schema, object, old, "", &mut found);
    found
}

fn visit(schema: &Value, value: &Value, old: Option<&Value>, path: &str, found: &mut Vec<Broken>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten().filter(|rule| is_optional(rule)) {
        found.extend(run(rule, value, old).map(|message| Broken {
            path: path.to_owned(),
            rule: rule.clone(),
            message,
        }));
    }
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let field = schema
                    .get("properties")
                    .and_then(|all| all.get(key))
                    .or_else(|| schema.get("additionalProperties"));
                if let Some(field) = field.filter(|field| field.is_object()) {
                    let at = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    visit(field, value, old.and_then(|old| old.get(key)), &at, found);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for (index, item) in items.iter().enumerate() {
                    visit(schema, item, old.and_then(|old| old.get(index)), &format!("{path}[{index}]"), found);
                }
            }
        }
        _ => {}
    }
}

/// The message when a rule does not hold. A rule that can't be evaluated does not hold either.
fn run(rule: &Value, value: &Value, old: Option<&Value>) -> Option<String> {
    let text = rule["rule"].as_str().unwrap_or_default();
    let mut context = Context::default().with_all();
    let optional = match old.and_then(|old| to_value(old).ok()) {
        Some(old) => OptionalValue::of(old),
        None => OptionalValue::none(),
    };
    context.add_variable_from_value("oldSelf", CelValue::Opaque(Arc::new(optional)));
    context.add_variable_from_value("self", to_value(value).unwrap_or(CelValue::Null));
    let evaluate = |source: &str| {
        Program::compile(source)
            .map_err(|error| error.to_string())?
            .execute(&context)
            .map_err(|error| error.to_string())
    };
    match evaluate(text) {
        Ok(CelValue::Bool(true)) => None,
        Ok(CelValue::Bool(false)) => Some(message(rule, text, |source| match evaluate(source) {
            Ok(CelValue::String(text)) => Some(text.to_string()),
            _ => None,
        })),
        Ok(_) => Some(format!("rule \"{text}\" did not evaluate to bool")),
        Err(error) => Some(format!("rule evaluation error: {error}")),
    }
}

fn message(rule: &Value, text: &str, evaluate: impl Fn(&str) -> Option<String>) -> String {
    rule["messageExpression"]
        .as_str()
        .and_then(evaluate)
        .or_else(|| rule["message"].as_str().map(ToOwned::to_owned))
        .unwrap_or_else(|| format!("failed rule: {text}"))
}
