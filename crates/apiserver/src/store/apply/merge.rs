//! The algebra of server-side apply: which fields a value has, what changed between two, one merged into another, fields removed.

use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value};

use super::fields::{FieldSet, display};
use super::shape::{Form, Shape};
use crate::store::touched::Touched;

/// The difference of two values.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

/// The fields that a configuration states.
pub(super) fn fields_of(shape: Shape<'_>, value: &Value) -> FieldSet {
    fields_with(false, shape, value)
}

/// The same, and every struct on the way to one of them: [`FieldSet::with_named_fields`] of them, without the way there.
pub(super) fn fields_and_structs_of(shape: Shape<'_>, value: &Value) -> FieldSet {
    fields_with(true, shape, value)
}

fn fields_with(structs: bool, shape: Shape<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    match (shape.form(value), value) {
        (Form::Map, Value::Object(map)) => {
            for (key, value) in map {
                let (element, below) = shape.element_of(key);
                let inside = fields_with(structs, below, value);
                let is_struct = structs && !inside.is_empty() && shape.names(key);
                set.put(element, is_struct || is_member(shape, key, below, value), inside);
            }
        }
        (form @ (Form::Keyed(_) | Form::Set), Value::Array(items)) => {
            let keys = keys(&form);
            for item in items {
                set.put(shape.element_name(keys, item), true, fields_with(structs, shape.element(), item));
            }
        }
        _ => {}
    }
    set
}

/// Whether a configuration states exactly these fields, apart from `unowned` ones, and each once. Who applies states mostly what it stated the last
/// time, and to see that takes less than to make the set again.
pub(super) fn states(shape: Shape<'_>, value: &Value, fields: &FieldSet, unowned: &FieldSet) -> bool {
    match (shape.form(value), value) {
        (Form::Map, Value::Object(map)) => {
            // Both come in the order of their names.
            let mut expected = fields.elements().peekable();
            for (key, value) in map {
                let below = shape.field(key);
                let (freed, freed_below) = element_of_field(unowned, key).unwrap_or((false, &NONE));
                let member = is_member(shape, key, below, value) && !freed;
                let as_expected = match expected.next_if(|(element, ..)| element.strip_prefix("f:") == Some(key)) {
                    Some((_, owned, fields)) => member == owned && states(below, value, fields, freed_below),
                    None => !member && fields_of(below, value).difference(freed_below).is_empty(),
                };
                if !as_expected {
                    return false;
                }
            }
            expected.next().is_none()
        }
        (form @ (Form::Keyed(_) | Form::Set), Value::Array(items)) => {
            if fields.len() != items.len() {
                return false;
            }
            let keys = keys(&form);
            let names: Vec<String> = items.iter().map(|item| shape.element_name(keys, item)).collect();
            items.iter().zip(&names).enumerate().all(|(index, (item, name))| {
                let expected = fields.element(name).filter(|_| !names[..index].contains(name));
                expected.is_some_and(|(member, fields)| member && states(shape.element(), item, fields, &NONE))
            })
        }
        _ => fields.is_empty(),
    }
}

static NONE: LazyLock<FieldSet> = LazyLock::new(FieldSet::default);

fn element_of_field<'s>(set: &'s FieldSet, field: &str) -> Option<(bool, &'s FieldSet)> {
    let mut all = set.elements();
    all.find(|(element, ..)| element.strip_prefix("f:") == Some(field)).map(|(_, member, below)| (member, below))
}

/// A key of a map is owned itself; a field of a struct only through what is in it, unless nothing is.
fn is_member(shape: Shape<'_>, key: &str, below: Shape<'_>, value: &Value) -> bool {
    let whole = matches!(below.form(value), Form::Leaf);
    whole || !shape.names(key) || value.as_object().is_some_and(Map::is_empty)
}

fn keys<'a>(form: &Form<'a>) -> Option<&'a [String]> {
    match form {
        Form::Keyed(keys) => Some(keys),
        _ => None,
    }
}

/// The first element that a list states twice, in the words of the refusal.
pub(super) fn repeated(shape: Shape<'_>, value: &Value) -> Option<String> {
    let Repeated { element, mut way } = repeated_in(shape, value)?;
    way.reverse();
    Some(format!("{}: duplicate entries for key {}", display(&way), display(&[element])))
}

/// An element that is there twice, and the way to its list, from there.
struct Repeated {
    element: String,
    way: Vec<String>,
}

fn repeated_in(shape: Shape<'_>, value: &Value) -> Option<Repeated> {
    let after = |mut found: Repeated, step: String| {
        found.way.push(step);
        found
    };
    match (shape.form(value), value) {
        (Form::Map, Value::Object(map)) => map.iter().find_map(|(key, value)| {
            repeated_in(shape.field(key), value).map(|found| after(found, format!("f:{key}")))
        }),
        (form @ (Form::Keyed(_) | Form::Set), Value::Array(items)) => {
            let keys = keys(&form);
            let mut names: Vec<String> = items.iter().map(|item| shape.element_name(keys, item)).collect();
            if let Some(index) = (1..names.len()).find(|index| names[..*index].contains(&names[*index])) {
                return Some(Repeated { element: names.swap_remove(index), way: Vec::new() });
            }
            let inside = |(item, name)| repeated_in(shape.element(), item).map(|found| after(found, name));
            items.iter().zip(names).find_map(inside)
        }
        _ => None,
    }
}

/// What a change from `old` to `new` added, modified and removed.
pub(super) fn compare(shape: Shape<'_>, old: &Value, new: &Value, touched: &Touched) -> Comparison {
    let mut changes = Comparison::default();
    let Touched::Only(fields) = touched else {
        return if old == new { changes } else { differ(shape, Some(old), Some(new)).below };
    };
    for field in fields {
        let (old, new) = (old.get(field), new.get(field));
        if old != new {
            let (element, below) = shape.element_of(field);
            changes.put(&element, differ(below, old, new));
        }
    }
    changes
}

/// What became of one value, and of what is in it.
#[derive(Default)]
struct Change {
    added: bool,
    modified: bool,
    removed: bool,
    below: Comparison,
}

impl Comparison {
    fn put(&mut self, element: &Arc<str>, change: Change) {
        self.added.put(element.clone(), change.added, change.below.added);
        self.modified.put(element.clone(), change.modified, change.below.modified);
        self.removed.put(element.clone(), change.removed, change.below.removed);
    }
}

/// For two that are not equal.
fn differ(shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>) -> Change {
    match (old, new) {
        (Some(before), Some(after)) if !same_form(shape, before, after) => {
            let (gone, come) = (inside(shape, old, None), inside(shape, None, new));
            let below = Comparison { added: come.added, removed: gone.removed, modified: FieldSet::default() };
            Change { modified: true, below, ..Change::default() }
        }
        _ => Change {
            added: old.is_none(),
            modified: matches!((old, new), (Some(old), Some(_)) if shape.form(old) == Form::Leaf),
            removed: new.is_none(),
            below: inside(shape, old, new),
        },
    }
}

fn same_form(shape: Shape<'_>, old: &Value, new: &Value) -> bool {
    std::mem::discriminant(&shape.form(old)) == std::mem::discriminant(&shape.form(new))
        && (old.is_array() == new.is_array())
}

fn inside(shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>) -> Comparison {
    let mut changes = Comparison::default();
    let Some(either) = new.or(old) else { return changes };
    match shape.form(either) {
        Form::Leaf => {}
        Form::Map => {
            let (old, new) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            let mut field = |name: &String, old: Option<&Value>, new: Option<&Value>| {
                if old != new {
                    let (element, below) = shape.element_of(name);
                    changes.put(&element, differ(below, old, new));
                }
            };
            for (name, value) in new.into_iter().flatten() {
                field(name, old.and_then(|old| old.get(name)), Some(value));
            }
            for (name, value) in old.into_iter().flatten() {
                if new.is_none_or(|new| !new.contains_key(name)) {
                    field(name, Some(value), None);
                }
            }
        }
        form @ (Form::Keyed(_) | Form::Set) => {
            let keys = keys(&form);
            let (old, new) = (elements(shape, keys, old), elements(shape, keys, new));
            let mut names: Vec<&String> = old.iter().chain(&new).map(|(name, _)| name).collect();
            names.sort();
            names.dedup();
            for name in names {
                let (old, new) = (find(&old, name), find(&new, name));
                if old != new {
                    changes.put(&name.as_str().into(), differ(shape.element(), old, new));
                }
            }
        }
    }
    changes
}

fn elements<'v>(shape: Shape<'_>, keys: Option<&[String]>, list: Option<&'v Value>) -> Vec<(String, &'v Value)> {
    list.and_then(Value::as_array).into_iter().flatten().map(|item| (shape.element_name(keys, item), item)).collect()
}

fn find<'v>(elements: &[(String, &'v Value)], name: &str) -> Option<&'v Value> {
    elements.iter().find(|(one, _)| one == name).map(|(_, item)| *item)
}

/// Merges a configuration into the live value.
pub(super) fn merge(shape: Shape<'_>, live: &mut Value, config: Value) {
    if !same_form(shape, live, &config) {
        *live = config;
        return;
    }
    match (shape.form(&config), live, config) {
        (Form::Map, Value::Object(live), Value::Object(config)) => {
            for (key, value) in config {
                match live.get_mut(&key) {
                    Some(live) => merge(shape.field(&key), live, value),
                    None => drop(live.insert(key, value)),
                }
            }
        }
        (form @ (Form::Keyed(_) | Form::Set), Value::Array(live), Value::Array(config)) => {
            if *live != config {
                *live = merge_lists(shape, keys(&form), std::mem::take(live), config);
            }
        }
        (_, live, config) => *live = config,
    }
}

/// Elements that the configuration names come in its order; the others keep their place among those of the live list.
fn merge_lists(shape: Shape<'_>, keys: Option<&[String]>, live: Vec<Value>, config: Vec<Value>) -> Vec<Value> {
    let names = |items: &[Value]| items.iter().map(|item| shape.element_name(keys, item)).collect::<Vec<String>>();
    let (names, wanted) = (names(&live), names(&config));
    let mut live: Vec<Option<Value>> = live.into_iter().map(Some).collect();
    let mut config = config.into_iter();
    let mut merged = Vec::with_capacity(live.len().max(wanted.len()));
    let mut taken = 0;
    for (index, name) in names.iter().enumerate() {
        if !wanted.contains(name) {
            merged.extend(live[index].take());
            continue;
        }
        // Everything that the configuration wants before this element and this element itself, unless already there.
        while !wanted[..taken].contains(name)
            && let Some(item) = config.next()
        {
            let there = names.iter().rposition(|name| *name == wanted[taken]).and_then(|at| live[at].take());
            merged.push(merged_element(shape, there, item));
            taken += 1;
        }
    }
    // What is left is not in the live list.
    merged.extend(config);
    merged
}

fn merged_element(shape: Shape<'_>, live: Option<Value>, config: Value) -> Value {
    let Some(mut element) = live else { return config };
    merge(shape.element(), &mut element, config);
    element
}

/// The value without the members of a set. A map or list that loses everything goes too.
pub(super) fn remove(shape: Shape<'_>, mut value: Value, gone: &FieldSet) -> Option<Value> {
    match (shape.form(&value), &mut value) {
        (Form::Map, Value::Object(map)) => {
            let was_empty = map.is_empty();
            for (element, member, below) in gone.elements() {
                let Some(key) = element.strip_prefix("f:") else { continue };
                if member {
                    map.remove(key);
                } else if let Some(inner) = map.remove(key) {
                    map.extend(remove(shape.field(key), inner, below).map(|kept| (key.to_owned(), kept)));
                }
            }
            (!map.is_empty() || was_empty).then_some(value)
        }
        (form @ (Form::Keyed(_) | Form::Set), Value::Array(items)) => {
            let keys = keys(&form);
            let was_empty = items.is_empty();
            let kept: Vec<Value> = std::mem::take(items)
                .into_iter()
                .filter_map(|item| {
                    let element = shape.element_name(keys, &item);
                    if gone.has(&element) {
                        return None;
                    }
                    match gone.below(&element) {
                        Some(below) => remove(shape.element(), item, below),
                        None => Some(item),
                    }
                })
                .collect();
            (!kept.is_empty() || was_empty).then_some(Value::Array(kept))
        }
        _ => Some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Schema;
    use serde_json::json;

    fn schema() -> Schema {
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                "items": {"type": "object", "properties": {"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "name": {"type": "string"}}}},
            "set": {"type": "array", "x-kubernetes-list-type": "set"},
            "args": {"type": "array"},
            "m": {"type": "object", "additionalProperties": {"type": "string"}},
            "atom": {"type": "object", "x-kubernetes-map-type": "atomic"},
        }}}}).into()
    }

    #[test]
    fn a_configuration_owns_what_it_states() {
        let schema = schema();
        let config = json!({"spec": {"ports": [{"port": 1, "name": "a"}], "set": ["q"], "args": [1], "m": {"k": "v"}, "atom": {"x": 1}}});
        assert_eq!(
            fields_of(Shape::root(&schema), &config).to_json(),
            json!({"f:spec": {
                "f:ports": {"k:{\"port\":1,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:name": {}}},
                "f:set": {"v:\"q\"": {}}, "f:args": {}, "f:m": {"f:k": {}}, "f:atom": {},
            }})
        );
    }

    #[test]
    fn structs_on_the_way_to_a_field_are_told_along_with_it() {
        let schema = schema();
        let shape = Shape::root(&schema);
        let object = json!({"kind": "T", "metadata": {"labels": {"a": "b"}}, "spec": {
            "ports": [{"port": 1, "name": "a"}], "set": ["q"], "args": [1], "m": {"k": "v"}, "atom": {"x": 1}, "other": {"y": {"z": 1}},
        }});
        assert_eq!(fields_and_structs_of(shape, &object), fields_of(shape, &object).with_named_fields(shape));
        assert_ne!(fields_and_structs_of(shape, &object), fields_of(shape, &object));
    }

    #[test]
    fn who_states_the_same_is_told_from_who_does_not() {
        let schema = schema();
        let shape = Shape::root(&schema);
        let unowned = FieldSet::from_json(&json!({"f:kind": {}, "f:metadata": {".": {}, "f:name": {}}}));
        let config = json!({"kind": "T", "metadata": {"name": "n", "labels": {"a": "b"}}, "spec": {
            "ports": [{"port": 2}, {"port": 1, "name": "a"}], "set": ["q", "p"], "args": [1], "m": {}, "atom": {"x": 1},
        }});
        let stated = fields_of(shape, &config).difference(&unowned);
        let with = |pointer: &str, value: Value| {
            let mut other = config.clone();
            *other.pointer_mut(pointer).unwrap() = value;
            other
        };
        let same = [
            config.clone(),
            with("/metadata/name", json!("other")),
            with("/spec/args", json!([])),
            with("/spec/set", json!(["p", "q"])),
            with("/spec/atom", json!({})),
        ];
        let other = [
            with("/spec/set", json!(["q"])),
            with("/spec/set", json!(["q", "r"])),
            with("/spec/ports/1", json!({"port": 1})),
            with("/spec/m", json!({"k": "v"})),
            with("/metadata/labels", json!({})),
            with("/metadata", json!({"name": "n"})),
            with("/spec", json!({})),
        ];
        for (configs, expected) in [(&same[..], true), (&other[..], false)] {
            for config in configs {
                assert_eq!(states(shape, config, &stated, &unowned), expected, "{config}");
                assert_eq!(fields_of(shape, config).difference(&unowned) == stated, expected, "{config}");
            }
        }
    }

    #[test]
    fn a_change_is_told_by_what_it_added_modified_and_removed() {
        let schema = schema();
        let old = json!({"spec": {"m": {"a": "1", "b": "2"}, "args": [1]}});
        let new = json!({"spec": {"m": {"a": "9", "c": "3"}, "set": ["x"], "args": [2]}});
        let comparison = compare(Shape::root(&schema), &old, &new, &Touched::All);
        assert_eq!(
            comparison.added.to_json(),
            json!({"f:spec": {"f:m": {"f:c": {}}, "f:set": {".": {}, "v:\"x\"": {}}}})
        );
        assert_eq!(comparison.modified.to_json(), json!({"f:spec": {"f:m": {"f:a": {}}, "f:args": {}}}));
        assert_eq!(comparison.removed.to_json(), json!({"f:spec": {"f:m": {"f:b": {}}}}));
    }

    #[test]
    fn lists_keep_the_order_that_the_configuration_wants() {
        let schema = schema();
        let live = json!({"spec": {"set": ["a", "x", "b", "y"]}});
        let mut merged = live;
        merge(Shape::root(&schema), &mut merged, json!({"spec": {"set": ["b", "new", "a"]}}));
        let set: Vec<&str> = merged["spec"]["set"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let place = |name| set.iter().position(|one| *one == name).unwrap();
        assert!(place("b") < place("new") && place("new") < place("a"));
        assert_eq!(set.len(), 5);
    }

    #[test]
    fn what_loses_everything_goes() {
        let schema = schema();
        let value = json!({"spec": {"ports": [{"port": 1}], "m": {"a": "1"}}});
        let gone = fields_of(Shape::root(&schema), &json!({"spec": {"ports": [{"port": 1}]}}));
        assert_eq!(remove(Shape::root(&schema), value, &gone), Some(json!({"spec": {"m": {"a": "1"}}})));
    }
}
