//! The algebra of server-side apply: which fields a value has, what changed between two, one merged into another, fields removed.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::fields::{FieldSet, display};
use super::shape::{Form, Shape};

/// The difference of two values.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

/// The fields that a configuration states.
pub(super) fn fields_of(shape: Shape<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    collect(shape, value, &mut Vec::new(), &mut set);
    set
}

fn collect(shape: Shape<'_>, value: &Value, path: &mut Vec<String>, set: &mut FieldSet) {
    match (shape.form(value), value) {
        (Form::Map, Value::Object(map)) => {
            for (key, value) in map {
                path.push(format!("f:{key}"));
                collect(shape.field(key), value, path, set);
                // A key of a map is owned itself; a field of a struct only through what is in it, unless nothing is.
                if !shape.names(key) || value.as_object().is_some_and(Map::is_empty) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        (form @ (Form::Keyed(_) | Form::Set), Value::Array(items)) => {
            let keys = keys(&form);
            for item in items {
                path.push(shape.element_name(keys, item));
                collect(shape.element(), item, path, set);
                set.insert(path);
                path.pop();
            }
        }
        _ => set.insert(path),
    }
}

fn keys<'a>(form: &'a Form<'a>) -> Option<&'a [&'a str]> {
    match form {
        Form::Keyed(keys) => Some(keys),
        _ => None,
    }
}

/// The first element that a list states twice, in the words of the refusal.
pub(super) fn repeated(shape: Shape<'_>, value: &Value) -> Option<String> {
    repeated_at(shape, value, &mut Vec::new())
}

fn repeated_at(shape: Shape<'_>, value: &Value, path: &mut Vec<String>) -> Option<String> {
    let mut below = |shape: Shape<'_>, element: String, value: &Value| {
        path.push(element);
        let found = repeated_at(shape, value, path);
        path.pop();
        found
    };
    match (shape.form(value), value) {
        (Form::Map, Value::Object(map)) => {
            map.iter().find_map(|(key, value)| below(shape.field(key), format!("f:{key}"), value))
        }
        (form @ (Form::Keyed(_) | Form::Set), Value::Array(items)) => {
            let keys = keys(&form);
            let names: Vec<String> = items.iter().map(|item| shape.element_name(keys, item)).collect();
            if let Some(index) = (1..names.len()).find(|index| names[..*index].contains(&names[*index])) {
                let element = display(std::slice::from_ref(&names[index]));
                return Some(format!("{}: duplicate entries for key {element}", display(path)));
            }
            items.iter().zip(names).find_map(|(item, name)| below(shape.element(), name, item))
        }
        _ => None,
    }
}

/// What a change from `old` to `new` added, modified and removed.
pub(super) fn compare(shape: Shape<'_>, old: &Value, new: &Value) -> Comparison {
    let mut comparison = Comparison::default();
    differ(shape, Some(old), Some(new), &mut Vec::new(), &mut comparison);
    comparison
}

fn differ(shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>, path: &mut Vec<String>, out: &mut Comparison) {
    if old == new {
        return;
    }
    match (old, new) {
        (Some(old), Some(new)) if !same_form(shape, old, new) => {
            out.modified.insert(path);
            inside(shape, Some(old), None, path, out);
            inside(shape, None, Some(new), path, out);
        }
        _ => {
            inside(shape, old, new, path, out);
            match (old, new) {
                (None, Some(_)) => out.added.insert(path),
                (Some(_), None) => out.removed.insert(path),
                (Some(old), Some(_)) if matches!(shape.form(old), Form::Leaf) => out.modified.insert(path),
                _ => {}
            }
        }
    }
}

fn same_form(shape: Shape<'_>, old: &Value, new: &Value) -> bool {
    std::mem::discriminant(&shape.form(old)) == std::mem::discriminant(&shape.form(new))
        && (old.is_array() == new.is_array())
}

fn inside(shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>, path: &mut Vec<String>, out: &mut Comparison) {
    let Some(either) = new.or(old) else { return };
    match shape.form(either) {
        Form::Leaf => {}
        Form::Map => {
            let (old, new) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            let names = old.into_iter().chain(new).flat_map(Map::keys);
            let mut seen: Vec<&String> = names.collect();
            seen.sort();
            seen.dedup();
            for name in seen {
                path.push(format!("f:{name}"));
                differ(
                    shape.field(name),
                    old.and_then(|map| map.get(name)),
                    new.and_then(|map| map.get(name)),
                    path,
                    out,
                );
                path.pop();
            }
        }
        form @ (Form::Keyed(_) | Form::Set) => {
            let keys = keys(&form);
            let (old, new) = (elements(shape, keys, old), elements(shape, keys, new));
            let mut names: Vec<&String> = old.iter().chain(&new).map(|(name, _)| name).collect();
            names.sort();
            names.dedup();
            for name in names {
                path.push(name.clone());
                differ(shape.element(), find(&old, name), find(&new, name), path, out);
                path.pop();
            }
        }
    }
}

fn elements<'v>(shape: Shape<'_>, keys: Option<&[&str]>, list: Option<&'v Value>) -> Vec<(String, &'v Value)> {
    list.and_then(Value::as_array).into_iter().flatten().map(|item| (shape.element_name(keys, item), item)).collect()
}

fn find<'v>(elements: &[(String, &'v Value)], name: &str) -> Option<&'v Value> {
    elements.iter().find(|(one, _)| one == name).map(|(_, item)| *item)
}

/// The live value with a configuration merged into it.
pub(super) fn merge(shape: Shape<'_>, live: &Value, config: &Value) -> Value {
    if !same_form(shape, live, config) {
        return config.clone();
    }
    match (shape.form(config), live, config) {
        (Form::Map, Value::Object(live), Value::Object(config)) => {
            let mut merged = live.clone();
            for (key, value) in config {
                let value = match live.get(key) {
                    Some(live) => merge(shape.field(key), live, value),
                    None => value.clone(),
                };
                merged.insert(key.clone(), value);
            }
            Value::Object(merged)
        }
        (form @ (Form::Keyed(_) | Form::Set), Value::Array(_), Value::Array(_)) => {
            merge_lists(shape, keys(&form), live, config)
        }
        _ => config.clone(),
    }
}

/// Elements that the configuration names come in its order; the others keep their place among those of the live list.
fn merge_lists(shape: Shape<'_>, keys: Option<&[&str]>, live: &Value, config: &Value) -> Value {
    let live = elements(shape, keys, Some(live));
    let config = elements(shape, keys, Some(config));
    let by_name: HashMap<&str, &Value> = live.iter().map(|(name, item)| (name.as_str(), *item)).collect();
    let mut merged = Vec::new();
    let mut theirs = config.iter();
    let mut take = |merged: &mut Vec<Value>| -> Option<&String> {
        let (name, item) = theirs.next()?;
        merged.push(match by_name.get(name.as_str()) {
            Some(live) => merge(shape.element(), live, item),
            None => (*item).clone(),
        });
        Some(name)
    };
    let mut taken: Vec<&String> = Vec::new();
    for (name, item) in &live {
        if find(&config, name).is_none() {
            merged.push((*item).clone());
        } else {
            // Everything that the configuration wants before this element and this element itself, unless already there.
            while !taken.contains(&name) {
                match take(&mut merged) {
                    Some(next) => taken.push(next),
                    None => break,
                }
            }
        }
    }
    while take(&mut merged).is_some() {}
    Value::Array(merged)
}

/// The value without the members of a set. A map or list that loses everything goes too.
pub(super) fn remove(shape: Shape<'_>, value: &Value, gone: &FieldSet) -> Option<Value> {
    match (shape.form(value), value) {
        (Form::Map, Value::Object(map)) => {
            let mut kept = Map::new();
            for (key, value) in map {
                let element = format!("f:{key}");
                if gone.has(&element) {
                    continue;
                }
                match gone.below(&element) {
                    Some(below) => {
                        kept.extend(remove(shape.field(key), value, below).map(|value| (key.clone(), value)));
                    }
                    None => drop(kept.insert(key.clone(), value.clone())),
                }
            }
            (!kept.is_empty() || map.is_empty()).then_some(Value::Object(kept))
        }
        (form @ (Form::Keyed(_) | Form::Set), Value::Array(items)) => {
            let keys = keys(&form);
            let mut kept = Vec::new();
            for item in items {
                let element = shape.element_name(keys, item);
                if gone.has(&element) {
                    continue;
                }
                match gone.below(&element) {
                    Some(below) => kept.extend(remove(shape.element(), item, below)),
                    None => kept.push(item.clone()),
                }
            }
            (!kept.is_empty() || items.is_empty()).then_some(Value::Array(kept))
        }
        _ => Some(value.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                "items": {"type": "object", "properties": {"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "name": {"type": "string"}}}},
            "set": {"type": "array", "x-kubernetes-list-type": "set"},
            "args": {"type": "array"},
            "m": {"type": "object", "additionalProperties": {"type": "string"}},
            "atom": {"type": "object", "x-kubernetes-map-type": "atomic"},
        }}}})
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
    fn a_change_is_told_by_what_it_added_modified_and_removed() {
        let schema = schema();
        let old = json!({"spec": {"m": {"a": "1", "b": "2"}, "args": [1]}});
        let new = json!({"spec": {"m": {"a": "9", "c": "3"}, "set": ["x"], "args": [2]}});
        let comparison = compare(Shape::root(&schema), &old, &new);
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
        let merged = merge(Shape::root(&schema), &live, &json!({"spec": {"set": ["b", "new", "a"]}}));
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
        assert_eq!(remove(Shape::root(&schema), &value, &gone), Some(json!({"spec": {"m": {"a": "1"}}})));
    }
}
