//! Label and field selectors: which objects a list or a watch is about.

use serde_json::Value;

use super::object;
use crate::error::ApiError;
use crate::registry::Resource;

/// Both selectors of a request, parsed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldRequirement>,
}

#[derive(Clone, Debug, PartialEq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Exists,
    Missing,
    In(Vec<String>),
    NotIn(Vec<String>),
}

#[derive(Clone, Debug, PartialEq)]
struct FieldRequirement {
    path: String,
    value: String,
    equal: bool,
}

impl Selector {
    /// Parses both selectors; refuses a field that the resource cannot be selected by.
    pub(crate) fn parse(resource: &Resource, labels: Option<&str>, fields: Option<&str>) -> Result<Self, ApiError> {
        Ok(Selector {
            labels: parse_labels(labels.unwrap_or_default())?,
            fields: parse_fields(resource, fields.unwrap_or_default())?,
        })
    }

    /// Whether it selects every object.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether an object is selected.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = object::meta(object).get("labels").and_then(Value::as_object);
        self.labels.iter().all(|requirement| {
            let value = labels.and_then(|labels| labels.get(&requirement.key)).and_then(Value::as_str);
            match (&requirement.test, value) {
                (Test::Exists, value) => value.is_some(),
                (Test::Missing, value) => value.is_none(),
                (Test::In(values), Some(value)) => values.iter().any(|one| one == value),
                (Test::In(_), None) => false,
                (Test::NotIn(values), Some(value)) => values.iter().all(|one| one != value),
                (Test::NotIn(_), None) => true,
            }
        }) && self.fields.iter().all(|requirement| {
            let path: Vec<&str> = requirement.path.split('.').collect();
            let value = object::at(object, &path).map(field_text).unwrap_or_default();
            (value == requirement.value) == requirement.equal
        })
    }
}

fn field_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// The fields that a kind can be selected by, beside name and namespace.
fn selectable(resource: &Resource) -> &'static [&'static str] {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ("", "secrets") => &["type"],
        ("", "namespaces") => &["status.phase"],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("batch", "jobs") => &["status.successful"],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "events") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        _ => &[],
    }
}

fn parse_fields(resource: &Resource, text: &str) -> Result<Vec<FieldRequirement>, ApiError> {
    let mut requirements = Vec::new();
    for term in text.split(',').filter(|term| !term.is_empty()) {
        let (path, value, equal) = if let Some((path, value)) = term.split_once("!=") {
            (path, value, false)
        } else if let Some((path, value)) = term.split_once("==") {
            (path, value, true)
        } else if let Some((path, value)) = term.split_once('=') {
            (path, value, true)
        } else {
            return Err(ApiError::bad_request(format!("invalid selector: '{text}'; can't understand '{term}'")));
        };
        let known = matches!(path, "metadata.name" | "metadata.namespace") || selectable(resource).contains(&path);
        if !known {
            let message = if resource.custom || resource.group == "apiextensions.k8s.io" {
                format!("field label not supported: {path}")
            } else if selectable(resource).is_empty() {
                format!(
                    "{} is not a known field selector: only {}",
                    quote(path),
                    "\"metadata.name\", \"metadata.namespace\""
                )
            } else {
                format!("field label not supported: {path}")
            };
            return Err(ApiError::bad_request(message));
        }
        requirements.push(FieldRequirement { path: path.into(), value: value.into(), equal });
    }
    Ok(requirements)
}

fn quote(text: &str) -> String {
    Value::from(text).to_string()
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, ApiError> {
    let mut parser = Parser { rest: text.trim(), whole: text };
    let mut requirements = Vec::new();
    while !parser.rest.is_empty() {
        requirements.push(parser.requirement()?);
        parser.skip();
        if parser.rest.is_empty() {
            break;
        }
        if !parser.take(",") {
            return Err(parser.error(&format!("found '{}', expected: ',' or 'end of string'", parser.word())));
        }
        parser.skip();
        if parser.rest.is_empty() {
            return Err(parser.error("found '', expected: identifier after ','"));
        }
    }
    Ok(requirements)
}

struct Parser<'a> {
    rest: &'a str,
    whole: &'a str,
}

impl<'a> Parser<'a> {
    fn error(&self, what: &str) -> ApiError {
        ApiError::bad_request(format!("unable to parse requirement: {what}"))
    }

    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, token: &str) -> bool {
        self.skip();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn word(&self) -> &'a str {
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| c.is_whitespace() || "=!,()<>".contains(c)).unwrap_or(rest.len());
        &rest[..end]
    }

    fn take_word(&mut self) -> &'a str {
        self.skip();
        let word = self.word();
        self.rest = &self.rest[word.len()..];
        word
    }

    fn requirement(&mut self) -> Result<Requirement, ApiError> {
        let missing = self.take("!");
        let key = self.take_word().to_owned();
        if key.is_empty() {
            let found = self.rest.chars().next().map(String::from).unwrap_or_default();
            return Err(self.error(&format!("found '{found}', expected: !, identifier, or 'end of string'")));
        }
        check_key(&key)?;
        if missing {
            return Ok(Requirement { key, test: Test::Missing });
        }
        self.skip();
        let test = if self.rest.is_empty() || self.rest.starts_with(',') {
            Test::Exists
        } else if self.take("!=") {
            Test::NotIn(vec![self.value()?])
        } else if self.take("==") || self.take("=") {
            Test::In(vec![self.value()?])
        } else {
            match self.take_word() {
                "in" => Test::In(self.values()?),
                "notin" => Test::NotIn(self.values()?),
                other => {
                    let found = if other.is_empty() {
                        self.rest.chars().next().map(String::from).unwrap_or_default()
                    } else {
                        other.to_owned()
                    };
                    return Err(self.error(&format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt")));
                }
            }
        };
        Ok(Requirement { key, test })
    }

    fn value(&mut self) -> Result<String, ApiError> {
        let value = self.take_word().to_owned();
        check_value(&value)?;
        Ok(value)
    }

    fn values(&mut self) -> Result<Vec<String>, ApiError> {
        if !self.take("(") {
            return Err(self.error(&format!("found '{}', expected: '('", self.word())));
        }
        let mut values = Vec::new();
        loop {
            values.push(self.value()?);
            if self.take(")") {
                return Ok(values);
            }
            if !self.take(",") {
                return Err(self.error(&format!("found '{}', expected: ',' or ')' in {}", self.word(), self.whole)));
            }
        }
    }
}

fn check_key(key: &str) -> Result<(), ApiError> {
    match super::names::qualified_name_problem(key) {
        None => Ok(()),
        Some(problem) => Err(ApiError::bad_request(format!(
            "unable to parse requirement: <nil>: Invalid value: {}: {problem}",
            quote(key)
        ))),
    }
}

fn check_value(value: &str) -> Result<(), ApiError> {
    match super::names::label_value_problem(value) {
        None => Ok(()),
        Some(problem) => Err(ApiError::bad_request(format!(
            "unable to parse requirement: values[0][{value}]: Invalid value: {}: {problem}",
            quote(value)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pods() -> std::sync::Arc<Resource> {
        crate::registry::builtin().iter().find(|one| one.plural == "pods").unwrap().clone()
    }

    fn selects(labels: &str, object: &Value) -> bool {
        Selector::parse(&pods(), Some(labels), None).unwrap().matches(object)
    }

    #[test]
    fn every_operator_selects_as_documented() {
        let object = json!({"metadata": {"labels": {"app": "db", "tier": "a"}}});
        for (selector, wanted) in [
            ("app=db", true),
            ("app==db", true),
            ("app!=db", false),
            ("other!=db", true),
            ("app in (db, web)", true),
            ("app notin (db,web)", false),
            ("other notin (db)", true),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("app=db,tier=b", false),
            ("app=db, tier in (a)", true),
            ("", true),
        ] {
            assert_eq!(selects(selector, &object), wanted, "{selector}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in ["app=", "=x", "app in db", "a b", "app in (a", ",", "app,"] {
            let result = Selector::parse(&pods(), Some(bad), None);
            if bad == "app=" {
                assert!(result.is_ok(), "an empty value is a value");
            } else {
                assert_eq!(result.unwrap_err().code, 400, "{bad}");
            }
        }
    }

    #[test]
    fn fields_are_compared_and_unknown_ones_refused() {
        let object = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n1"}});
        let parse = |text| Selector::parse(&pods(), None, Some(text));
        assert!(parse("metadata.name=a,spec.nodeName=n1").unwrap().matches(&object));
        assert!(!parse("spec.nodeName!=n1").unwrap().matches(&object));
        assert!(parse("status.phase=").unwrap().matches(&object));
        assert_eq!(parse("spec.image=x").unwrap_err().message, "field label not supported: spec.image");
    }
}
