//! The CEL rules of a spec, field by field: what was found to keep the rules of its field is not asked again.
//!
//! A rule sees what is below the place where it stands, and nothing else. So the rules below one field of the spec need to be asked only of
//! what that field has not had before, whatever the rest of the spec says. It matters because a rule compiles its regular expressions
//! whenever it is asked. Never: a rule that is taken for kept by something else than what it was asked of.

use std::cell::RefCell;
use std::collections::VecDeque;

use kube_cel::{CompiledSchema, ValidationError, compile_schema};
use serde_json::{Value, json};

use super::cel::{has_rules, without_rules};

/// How many changes of a part are remembered: most are small, and so is what a few hundred of them take.
const REMEMBERED: usize = 256;

/// The rules of one part of the spec.
pub(super) struct SpecPart {
    /// The field that they stand below; none for those of the spec as a whole.
    field: Option<String>,
    rules: CompiledSchema,
    /// What kept them.
    passed: RefCell<VecDeque<Change>>,
}

/// All that the rules of a part can look at: the part, and that of the old object, if there is one.
#[derive(Debug, PartialEq)]
struct Change {
    new: Option<Value>,
    old: Option<Option<Value>>,
}

impl SpecPart {
    /// The parts of the spec of a schema that have rules.
    pub(super) fn of(schema: &Value) -> Vec<Self> {
        let Some(spec) = schema.get("properties").and_then(|fields| fields.get("spec")) else { return vec![] };
        let part = |field: Option<&String>, spec: Value| {
            let alone = json!({"type": "object", "properties": {"spec": spec}});
            Self { field: field.cloned(), rules: compile_schema(&alone), passed: RefCell::default() }
        };
        let mut whole = spec.clone();
        let mut parts = Vec::new();
        for (field, below) in spec.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if has_rules(below) {
                parts.push(part(Some(field), json!({"type": "object", "properties": {field.as_str(): below}})));
                whole["properties"][field] = without_rules(below);
            }
        }
        if has_rules(&whole) {
            parts.push(part(None, whole));
        }
        parts
    }

    /// Whether this part of an object, or of its change, keeps its rules.
    pub(super) fn holds(
        &self,
        object: &Value,
        old: Option<&Value>,
        ask: impl Fn(&CompiledSchema) -> Vec<ValidationError>,
    ) -> bool {
        let (new, before) = (self.within(object), old.map(|old| self.within(old)));
        let same = |change: &Change| change.new.as_ref() == new && change.old.as_ref().map(Option::as_ref) == before;
        if self.passed.borrow().iter().any(same) {
            return true;
        }
        let holds = ask(&self.rules).is_empty();
        if holds {
            let mut passed = self.passed.borrow_mut();
            if passed.len() >= REMEMBERED {
                passed.pop_front();
            }
            passed.push_back(Change { new: new.cloned(), old: before.map(Option::<&Value>::cloned) });
        }
        holds
    }

    fn within<'v>(&self, object: &'v Value) -> Option<&'v Value> {
        let spec = object.get("spec")?;
        self.field.as_ref().map_or(Some(spec), |field| spec.get(field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_cel::Validator;
    use std::cell::Cell;

    #[test]
    fn a_part_is_asked_again_only_when_it_or_what_it_was_differs() {
        let schema = json!({"type": "object", "properties": {"spec": {
            "type": "object",
            "x-kubernetes-validations": [{"rule": "self.n > 1 || self.s != 'alone'"}],
            "properties": {
                "n": {"type": "integer"},
                "s": {"type": "string", "x-kubernetes-validations": [{"rule": "self.matches('^[a-z]+$')"}, {"rule": "self >= oldSelf"}]},
            },
        }}});
        let parts = SpecPart::of(&schema);
        let asked = Cell::new(0);
        let keeps = |n: i64, s: &str, old: Option<&str>| {
            let (object, old) = (json!({"spec": {"n": n, "s": s}}), old.map(|s| json!({"spec": {"n": 1, "s": s}})));
            asked.set(0);
            parts.iter().all(|part| {
                part.holds(&object, old.as_ref(), |rules| {
                    asked.set(asked.get() + 1);
                    Validator::new()
                        .validate_compiled(rules, &object, old.as_ref())
                        .err()
                        .into_iter()
                        .flatten()
                        .collect()
                })
            })
        };
        assert!(keeps(2, "a", None) && asked.get() == 2);
        assert!(keeps(2, "a", None) && asked.get() == 0);
        assert!(keeps(3, "a", None) && asked.get() == 1, "the rules of the field know nothing of the other");
        assert!(keeps(2, "a", Some("a")) && asked.get() == 2);
        assert!(!keeps(2, "a", Some("b")) && !keeps(2, "A", None) && !keeps(1, "alone", None));
        assert!(!keeps(1, "alone", None), "what broke a rule is asked again");
    }
}
