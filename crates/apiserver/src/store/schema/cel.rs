//! The CEL rules of a custom kind, transition rules included.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use kube_cel::{CompiledSchema, ErrorKind, RootContext, ValidationError, Validator, compile_schema};
use serde_json::Value;

use super::optional;
use super::parts::SpecPart;
use crate::error::{FieldError, Problem};
use crate::registry::Resource;

/// How many compiled schemas a thread keeps. A home has a handful of CRDs.
const KEPT: usize = 32;
/// How many sights that a rule of the whole object passed are remembered: with and without a status, and what that says early on.
const SIGHTS: usize = 16;

struct Compiled {
    rules: CompiledSchema,
    any: bool,
    /// The rules of the object as a whole, where every other rule is the spec's: as long as the spec stays as it is, only these are
    /// asked again.
    of_whole: Option<Vec<WholeRule>>,
    /// The rules of the spec.
    of_spec: Vec<SpecPart>,
    /// Whether any rule takes the old object as an optional.
    any_optional: bool,
}

/// A rule of the object as a whole.
struct WholeRule {
    rule: CompiledSchema,
    /// All that it looks at, where that can be told from its text.
    looks_at: Option<Vec<Mention>>,
    /// What it saw there when it passed: it is asked again when it would see something else.
    passed: RefCell<VecDeque<Vec<Seen>>>,
}

/// A part of the object that a rule looks at.
#[derive(Debug, PartialEq)]
struct Mention {
    /// Of the old object.
    of_old: bool,
    path: Vec<String>,
    /// Only whether it is there.
    presence: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Nothing,
    Something,
    Value(Value),
}

thread_local! {
    static VALIDATOR: Validator = Validator::new();
    static COMPILED: RefCell<Vec<(Arc<Resource>, Rc<Compiled>)>> = RefCell::default();
}

/// Whether a kind has any rule.
pub(super) fn rules_exist(resource: &Arc<Resource>) -> bool {
    compiled(resource).any
}

pub(super) fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => {
            map.get("x-kubernetes-validations").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty())
                || map
                    .iter()
                    .any(|(key, value)| !matches!(key.as_str(), "default" | "enum" | "description") && has_rules(value))
        }
        Value::Array(items) => items.iter().any(has_rules),
        _ => false,
    }
}

/// The rules that do not hold. With the old object transition rules run too, and a rule about a part that has not changed is not
/// asked again.
pub(super) fn errors(resource: &Arc<Resource>, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let compiled = compiled(resource);
    let context = RootContext {
        api_version: resource.api_version(),
        api_group: resource.group.clone(),
        kind: resource.kind.clone(),
    };
    let ask = |rules: &CompiledSchema| -> Vec<ValidationError> {
        let asked =
            VALIDATOR.with(|validator| validator.validate_compiled_with_context(rules, object, old, Some(&context)));
        asked.err().into_iter().flatten().collect()
    };
    let same_spec = old.is_some_and(|old| old.get("spec") == object.get("spec"));
    let failed = match &compiled.of_whole {
        Some(rules) if same_spec => rules.iter().flat_map(|rule| rule.broken(object, old, ask)).collect(),
        Some(rules)
            if compiled.of_spec.iter().all(|part| part.holds(object, old, ask))
                && rules.iter().all(|rule| rule.holds(object, old, ask)) =>
        {
            vec![]
        }
        _ => ask(&compiled.rules),
    };
    let mut errors = if compiled.any_optional { optional_errors(resource, object, old) } else { vec![] };
    let others = failed
        .into_iter()
        .map(|error| (owner(&resource.schema, &error.field_path, &error.rule), error))
        .filter(|(owner, _)| !unchanged(owner, object, old))
        .map(|(owner, error)| {
            // With a fieldPath the rule is its parent's, and so is the value that it judged.
            let shown = part(object, &owner);
            let reason = if error.kind == ErrorKind::ValidationFailure { error.reason.as_deref() } else { None };
            field_error(error.field_path.clone(), shown, reason, error.message)
        });
    errors.extend(others);
    errors
}

impl WholeRule {
    fn holds(
        &self,
        object: &Value,
        old: Option<&Value>,
        ask: impl Fn(&CompiledSchema) -> Vec<ValidationError>,
    ) -> bool {
        self.broken(object, old, ask).is_empty()
    }

    fn broken(
        &self,
        object: &Value,
        old: Option<&Value>,
        ask: impl Fn(&CompiledSchema) -> Vec<ValidationError>,
    ) -> Vec<ValidationError> {
        // Without an old object a rule about it is not asked at all, which says nothing of an old object that lacks the field.
        let about_nothing = |mentions: &&Vec<Mention>| old.is_none() && mentions.iter().any(|mention| mention.of_old);
        let Some(mentions) = self.looks_at.as_ref().filter(|mentions| !about_nothing(mentions)) else {
            return ask(&self.rule);
        };
        let sees = |mention: &Mention| mention.in_either(object, old);
        let same = |(mention, seen): (&Mention, &Seen)| match (sees(mention), seen) {
            (None, Seen::Nothing) => true,
            (Some(_), Seen::Something) => true,
            (Some(value), Seen::Value(seen)) => value == seen,
            _ => false,
        };
        if self.passed.borrow().iter().any(|passed| mentions.iter().zip(passed).all(same)) {
            return vec![];
        }
        let broken = ask(&self.rule);
        if broken.is_empty() {
            let seen = mentions.iter().map(|mention| match sees(mention) {
                None => Seen::Nothing,
                Some(_) if mention.presence => Seen::Something,
                Some(value) => Seen::Value(value.clone()),
            });
            let mut passed = self.passed.borrow_mut();
            if passed.len() >= SIGHTS {
                passed.pop_front();
            }
            passed.push_back(seen.collect());
        }
        broken
    }
}

impl Mention {
    fn in_either<'v>(&self, object: &'v Value, old: Option<&'v Value>) -> Option<&'v Value> {
        let root = if self.of_old { old? } else { object };
        self.path.iter().try_fold(root, |value, step| value.get(step))
    }
}

/// All that a rule looks at, when every mention of the object in its text is a plain path such as `self.spec.version`. A call at the
/// end of a path is one of its value; in doubt nothing is told.
fn mentions(rule: &str) -> Option<Vec<Mention>> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = rule;
    let mut before = String::new();
    while let Some(at) = rest.find(word) {
        before.push_str(&rest[..at]);
        let end = rest[at..].find(|c| !word(c)).map_or(rest.len(), |length| at + length);
        let name = &rest[at..end];
        let mut tail = &rest[end..];
        if matches!(name, "self" | "oldSelf") && !before.ends_with('.') {
            let mut path: Vec<String> = Vec::new();
            while let Some(step) = tail.strip_prefix('.') {
                let end = step.find(|c| !word(c)).unwrap_or(step.len());
                path.push(step[..end].to_owned());
                tail = &step[end..];
            }
            let called = tail.starts_with('(');
            if called {
                path.pop();
            }
            // `self.?spec`, `self[k]`
            if path.is_empty() || path.iter().any(String::is_empty) || tail.starts_with('[') {
                return None;
            }
            let presence = before.ends_with("has(") && tail.starts_with(')');
            found.push(Mention { of_old: name == "oldSelf", path, presence });
        }
        before.push_str(&rest[at..rest.len() - tail.len()]);
        rest = tail;
    }
    (!found.is_empty()).then_some(found)
}

fn optional_errors(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    optional::broken(&resource.schema, object, old)
        .into_iter()
        .map(|broken| {
            let below = broken.rule["fieldPath"].as_str().unwrap_or_default();
            let shown = part(object, &broken.path);
            field_error(format!("{}{below}", broken.path), shown, broken.rule["reason"].as_str(), broken.message)
        })
        .collect()
}

fn field_error(field: String, shown: Option<&Value>, reason: Option<&str>, message: String) -> FieldError {
    let problem = match reason {
        Some("FieldValueForbidden") => Problem::Forbidden,
        Some("FieldValueRequired") => Problem::Required,
        Some("FieldValueDuplicate") => Problem::Duplicate,
        _ => Problem::Invalid,
    };
    let detail = match (problem, shown) {
        (Problem::Forbidden | Problem::Required, _) => message,
        // Objects and lists can be long; the rule's message has to say enough.
        (_, Some(Value::Object(_) | Value::Array(_)) | None) => message,
        (_, Some(value)) => format!("{value}: {message}"),
    };
    FieldError { field, problem, detail }
}

/// Where the rule that failed stands: at the reported path, or above it when the rule has a `fieldPath`.
fn owner(schema: &Value, path: &str, rule: &str) -> String {
    let mut candidate = path;
    loop {
        let stands_here = schema_at(schema, candidate).is_some_and(|schema| {
            schema["x-kubernetes-validations"].as_array().into_iter().flatten().any(|one| one["rule"] == rule)
        });
        if stands_here || candidate.is_empty() {
            return candidate.to_owned();
        }
        candidate = &candidate[..candidate.rfind(['.', '[']).unwrap_or(0)];
    }
}

fn schema_at<'a>(schema: &'a Value, path: &str) -> Option<&'a Value> {
    let mut schema = schema;
    for step in path.split('.').filter(|step| !step.is_empty()) {
        let (name, indexes) = step.split_at(step.find('[').unwrap_or(step.len()));
        if !name.is_empty() {
            schema = schema
                .get("properties")
                .and_then(|all| all.get(name))
                .or_else(|| schema.get("additionalProperties"))?;
        }
        for _ in indexes.matches('[') {
            schema = schema.get("items").or_else(|| schema.get("additionalProperties"))?;
        }
    }
    Some(schema)
}

/// The compiled rules of a resource. Kept together with the resource itself: as long as it is kept, no other can have its address.
fn compiled(resource: &Arc<Resource>) -> Rc<Compiled> {
    COMPILED.with_borrow_mut(|cache| {
        if let Some((_, compiled)) = cache.iter().find(|(one, _)| Arc::ptr_eq(one, resource)) {
            return compiled.clone();
        }
        if cache.len() >= KEPT {
            cache.remove(0);
        }
        let rules = optional::without(&resource.schema);
        let compiled = Rc::new(Compiled {
            any: has_rules(&resource.schema),
            any_optional: rules != *resource.schema,
            of_whole: rules_of_whole(&rules),
            of_spec: SpecPart::of(&rules),
            rules: compile_schema(&rules),
        });
        cache.push((resource.clone(), compiled.clone()));
        compiled
    })
}

/// One schema for each rule of the whole object, or nothing where a field other than the spec has rules.
fn rules_of_whole(schema: &Value) -> Option<Vec<WholeRule>> {
    let fields = schema.get("properties").and_then(Value::as_object);
    if fields.into_iter().flatten().any(|(field, schema)| field != "spec" && has_rules(schema)) {
        return None;
    }
    let mut bare = without_rules(schema);
    let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
    let compiled = rules.map(|rule| {
        bare["x-kubernetes-validations"] = [rule.clone()].into_iter().collect();
        let looks_at = mentions(rule["rule"].as_str().unwrap_or_default());
        WholeRule { rule: compile_schema(&bare), looks_at, passed: RefCell::default() }
    });
    Some(compiled.collect())
}

pub(super) fn without_rules(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, _)| *key != "x-kubernetes-validations");
            kept.map(|(key, value)| (key.clone(), without_rules(value))).collect()
        }
        Value::Array(items) => items.iter().map(without_rules).collect(),
        other => other.clone(),
    }
}

fn unchanged(path: &str, object: &Value, old: Option<&Value>) -> bool {
    let Some(old) = old else { return false };
    !path.is_empty() && part(object, path).is_some_and(|new| part(old, path) == Some(new))
}

/// What is at a path such as `spec.list[0].name`.
fn part<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut value = object;
    for step in path.split('.').filter(|step| !step.is_empty()) {
        let (name, indexes) = step.split_at(step.find('[').unwrap_or(step.len()));
        if !name.is_empty() {
            value = value.get(name)?;
        }
        for index in indexes.split(['[', ']']).filter(|text| !text.is_empty()) {
            value = match index.parse::<usize>() {
                Ok(index) => value.get(index)?,
                Err(_) => value.get(index.trim_matches('\''))?,
            };
        }
    }
    Some(value)
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "literals read best by value")]
mod tests {
    use super::*;
    use serde_json::json;

    fn resource(spec: Value) -> Arc<Resource> {
        let crd = json!({"spec": {"group": "t.dev", "scope": "Namespaced", "names": {"plural": "ts", "kind": "T"}, "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}},
        ]}});
        Arc::new(crate::registry::resources_of(&crd).remove(0))
    }

    fn said(resource: &Arc<Resource>, spec: Value, old: Option<Value>) -> Vec<String> {
        let old = old.map(|spec| json!({"spec": spec}));
        errors(resource, &json!({"spec": spec}), old.as_ref())
            .iter()
            .map(|error| format!("{}: {}", error.field, error.body()))
            .collect()
    }

    #[test]
    fn a_broken_rule_is_told_as_a_kube_apiserver_tells_it() {
        let resource = resource(json!({
            "type": "object",
            "x-kubernetes-validations": [
                {"rule": "self.n < 9", "message": "too many"},
                {"rule": "self.s != 'me'", "messageExpression": "'s is ' + self.s"},
            ],
            "properties": {"n": {"type": "integer"}, "s": {"type": "string", "x-kubernetes-validations": [{"rule": "self != 'bad'"}]}},
        }));
        assert_eq!(said(&resource, json!({"n": 9, "s": "ok"}), None), ["spec: Invalid value: too many"]);
        assert_eq!(said(&resource, json!({"n": 1, "s": "me"}), None), ["spec: Invalid value: s is me"]);
        assert_eq!(
            said(&resource, json!({"n": 1, "s": "bad"}), None),
            ["spec.s: Invalid value: \"bad\": failed rule: self != 'bad'"]
        );
    }

    #[test]
    fn a_transition_rule_runs_only_with_something_to_compare() {
        let resource = resource(json!({
            "type": "object",
            "x-kubernetes-validations": [{"rule": "self.s == oldSelf.s", "message": "s is immutable", "fieldPath": ".s"}],
            "properties": {"s": {"type": "string"}},
        }));
        assert!(said(&resource, json!({"s": "a"}), None).is_empty());
        assert!(said(&resource, json!({"s": "a"}), Some(json!({"s": "a"}))).is_empty());
        assert_eq!(said(&resource, json!({"s": "b"}), Some(json!({"s": "a"}))).len(), 1);
    }

    #[test]
    fn a_rule_of_the_whole_object_is_asked_again_when_only_its_status_changes() {
        let crd = json!({"spec": {"group": "t.dev", "scope": "Namespaced", "names": {"plural": "ts", "kind": "T"}, "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "x-kubernetes-validations": [
                    {"rule": "self.metadata.name.matches('^[a-z]+$')", "message": "letters"},
                    {"rule": "self.status.n <= self.spec.n", "message": "more than wanted"},
                ],
                "properties": {
                    "spec": {"type": "object", "properties": {"n": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 5"}]}}},
                    "status": {"type": "object", "properties": {"n": {"type": "integer"}}},
                },
            }}},
        ]}});
        let resource = Arc::new(crate::registry::resources_of(&crd).remove(0));
        let object = |name: &str, spec: i64, status: i64| json!({"metadata": {"name": name}, "spec": {"n": spec}, "status": {"n": status}});
        let said = |new: Value, old: Value| {
            errors(&resource, &new, Some(&old)).iter().map(FieldError::body).collect::<Vec<_>>()
        };
        for _ in 0..2 {
            assert_eq!(said(object("a", 3, 2), object("a", 3, 1)), [""; 0]);
            assert_eq!(said(object("a", 3, 4), object("a", 3, 1)), ["Invalid value: more than wanted"]);
            assert_eq!(said(object("a1", 3, 2), object("a1", 3, 1)), ["Invalid value: letters"]);
            assert_eq!(said(object("a", 6, 2), object("a", 6, 1)), [""; 0], "an old breach");
            assert_eq!(said(object("a", 6, 2), object("a", 3, 1)).len(), 1);
        }
    }

    #[test]
    fn a_change_that_passed_before_is_judged_by_the_rest_of_its_object() {
        let crd = json!({"spec": {"group": "t.dev", "scope": "Namespaced", "names": {"plural": "ts", "kind": "T"}, "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "x-kubernetes-validations": [
                    {"rule": "self.metadata.name.matches('^[a-z]+$')", "message": "letters"},
                    {"rule": "self.spec.n >= oldSelf.spec.n", "message": "fewer"},
                ],
                "properties": {"spec": {"type": "object", "properties": {
                    "n": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 5", "message": "many"}]},
                }}},
            }}},
        ]}});
        let resource = Arc::new(crate::registry::resources_of(&crd).remove(0));
        let object = |name: &str, n: i64| json!({"metadata": {"name": name}, "spec": {"n": n}});
        let said = |new: &Value, old: Option<&Value>| {
            errors(&resource, new, old).iter().map(FieldError::body).collect::<Vec<_>>().join(", ")
        };
        for _ in 0..3 {
            assert_eq!(said(&object("a", 3), None), "");
            assert!(said(&object("a1", 3), None).contains("letters"));
            assert_eq!(said(&object("a", 4), Some(&object("a", 3))), "");
            assert!(said(&object("a1", 4), Some(&object("a1", 3))).contains("letters"));
            assert!(said(&object("a", 3), Some(&object("a", 4))).contains("fewer"));
            assert!(said(&object("a", 5), Some(&object("a", 3))).contains("many"));
            // A rule that can't be worked out does not hold.
            assert_ne!(said(&object("a", 3), Some(&json!({"metadata": {"name": "a"}, "spec": {}}))), "");
        }
    }

    #[test]
    fn what_a_rule_looks_at_is_told_from_plain_paths_only() {
        let told = |rule: &str| {
            let mentions = mentions(rule)?;
            let text = |mention: &Mention| {
                let of = if mention.of_old { "old." } else { "" };
                format!("{of}{}{}", mention.path.join("."), if mention.presence { "?" } else { "" })
            };
            Some(mentions.iter().map(text).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(told("self.metadata.name.matches('^a$')").as_deref(), Some("metadata.name"));
        assert_eq!(
            told("!has(oldSelf.status) || !has(oldSelf.status.id) || self.spec.v == oldSelf.spec.v").as_deref(),
            Some("old.status? old.status.id? spec.v old.spec.v")
        );
        assert_eq!(told("size(self.spec.list) > 1 && self.spec.a").as_deref(), Some("spec.list spec.a"));
        for rule in [
            "self == oldSelf",
            "self.spec['a'] == 1",
            "f(self)",
            "self.?spec.orValue(1)",
            "true",
            "[self].exists(x, x.spec.n > 1)",
            "self[k]",
        ] {
            assert_eq!(told(rule), None, "{rule}");
        }
    }

    #[test]
    fn an_old_breach_does_not_lock_its_object() {
        let resource = resource(json!({
            "type": "object",
            "properties": {"s": {"type": "string", "x-kubernetes-validations": [{"rule": "self != 'bad'"}]}, "n": {"type": "integer"}},
        }));
        assert!(said(&resource, json!({"s": "bad", "n": 2}), Some(json!({"s": "bad", "n": 1}))).is_empty());
    }
}
