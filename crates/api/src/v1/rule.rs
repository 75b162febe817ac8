//! A rule of the schema that CEL checks, and the message it refuses with.
//!
//! Never: a refusal that doesn't name the field, the value and the fix. The API server prints no values for failed CEL rules
//! (`Invalid value: "string"`), so the message carries all three, and there is one way to build it.

use serde_json::{Value, json};

/// A CEL rule and its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// CEL: true when the value is fine.
    pub rule: String,
    /// The field in full, as users write it: `spec.backup.retention`.
    pub field: String,
    /// What is wrong with a value that breaks the rule, then what to write instead.
    pub complaint: String,
    /// CEL: which entry of the map at `field` it is.
    key: Option<String>,
    /// CEL: the offending value as text. `string(…)` of what is text already has no bound that the API server knows, and it
    /// refuses rules without one: name the text itself.
    value: String,
    /// CEL: what it was before, as text, for rules about changes.
    was: Option<String>,
    /// Where below the node that carries the rule the field is.
    below: Option<String>,
}

impl Rule {
    /// A rule about the text at `field`.
    pub fn on(field: &str, rule: impl Into<String>, complaint: impl Into<String>) -> Self {
        Self {
            rule: rule.into(),
            field: field.to_owned(),
            complaint: complaint.into(),
            key: None,
            value: "self".to_owned(),
            was: None,
            below: None,
        }
    }

    /// A rule that refuses any change of the scalar at `field`.
    pub fn immutable(field: &str, complaint: &str) -> Self {
        Self::on(field, "self == oldSelf", complaint).was("oldSelf")
    }

    /// Finds the offending entry of a map with this CEL expression.
    pub fn key(self, cel: impl Into<String>) -> Self {
        Self { key: Some(cel.into()), ..self }
    }
    /// Reads the offending value with this CEL expression.
    pub fn value(self, cel: impl Into<String>) -> Self {
        Self { value: cel.into(), ..self }
    }
    /// Reads the value before the change with this CEL expression.
    pub fn was(self, cel: impl Into<String>) -> Self {
        Self { was: Some(cel.into()), ..self }
    }
    /// Points the API server's error at this field below the node that carries the rule: `.storageClass`.
    pub fn below(self, path: &str) -> Self {
        Self { below: Some(path.to_owned()), ..self }
    }

    /// The message without values: what is shown when the value itself can't be (it has a line break), and in the docs.
    pub fn message(&self) -> String {
        format!("{} {}", self.field, self.complaint)
    }

    /// CEL: the message with field, value and fix.
    fn message_expression(&self) -> String {
        let mut parts = match &self.key {
            None => vec![literal(&format!("{}: \"", self.field))],
            Some(key) => vec![literal(&format!("{}.", self.field)), key.clone(), literal(": \"")],
        };
        parts.push(self.value.clone());
        if let Some(was) = &self.was {
            parts.extend([literal("\" (was \""), was.clone(), literal(&format!("\") {}", self.complaint))]);
        } else {
            parts.push(literal(&format!("\" {}", self.complaint)));
        }
        parts.join(" + ")
    }

    /// The rule as an entry of `x-kubernetes-validations`.
    pub fn to_schema(&self) -> Value {
        let mut entry = json!({
            "rule": self.rule,
            "message": self.message(),
            "messageExpression": self.message_expression(),
        });
        if let Some(path) = &self.below {
            entry["fieldPath"] = json!(path);
        }
        entry
    }
}

/// `text` as a CEL string.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// `texts` as a CEL list of strings.
pub fn literals(texts: &[&str]) -> String {
    let quoted: Vec<_> = texts.iter().map(|text| literal(text)).collect();
    format!("[{}]", quoted.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_carries_field_value_and_fix() {
        let entry = Rule::on("spec.x", "self != ''", "is empty: write one").to_schema();
        assert_eq!(entry["messageExpression"], r#"'spec.x: "' + self + '" is empty: write one'"#);
        assert_eq!(entry["message"], "spec.x is empty: write one");
    }

    #[test]
    fn quotes_and_backslashes_stay_inside_the_literal() {
        assert_eq!(literal(r"it's a \"), r"'it\'s a \\'");
    }
}
