//! Strategic merge patch: a merge patch that knows which lists merge by key.
//!
//! From: the schema's `x-kubernetes-patch-strategy` and `-patch-merge-key`. Directives: `$patch` (replace, delete, merge),
//! `$retainKeys`, `$setElementOrder/<field>`, `$deleteFromPrimitiveList/<field>`.

use serde_json::{Map, Value};

use crate::error::ApiError;

const ORDER: &str = "$setElementOrder/";
const DELETE_PRIMITIVE: &str = "$deleteFromPrimitiveList/";

/// The current object with a patch merged into it.
pub(super) fn merge(schema: &Value, current: &Value, patch: &Value) -> Result<Value, ApiError> {
    let Value::Object(patch) = patch else {
        return Err(ApiError::bad_request("error decoding patch: a strategic merge patch must be a JSON object"));
    };
    let mut object = current.clone();
    merge_map(schema, &mut object, patch)?;
    Ok(object)
}

fn merge_map(schema: &Value, current: &mut Value, patch: &Map<String, Value>) -> Result<(), ApiError> {
    match patch.get("$patch").and_then(Value::as_str) {
        None | Some("merge") => {}
        Some("replace") => {
            *current = without_directives(&Value::Object(patch.clone()));
            return Ok(());
        }
        Some("delete") => {
            *current = Value::Object(Map::new());
            return Ok(());
        }
        Some(other) => return Err(ApiError::bad_request(format!("Unknown patch type found: {other}"))),
    }
    if !current.is_object() {
        *current = Value::Object(Map::new());
    }
    let Value::Object(map) = current else { unreachable!("it was just made an object") };
    if let Some(Value::Array(keys)) = patch.get("$retainKeys") {
        map.retain(|key, _| keys.iter().any(|kept| kept == key));
    }
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix(DELETE_PRIMITIVE) {
            delete_primitives(map, field, value);
        }
    }
    for (key, value) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
        merge_field(field_schema(schema, key), map, key, value)?;
    }
    for (key, value) in patch {
        if let (Some(field), Value::Array(order)) = (key.strip_prefix(ORDER), value) {
            set_order(field_schema(schema, field), map, field, order);
        }
    }
    Ok(())
}

fn merge_field(schema: &Value, map: &mut Map<String, Value>, key: &str, patch: &Value) -> Result<(), ApiError> {
    match patch {
        Value::Null => {
            map.remove(key);
        }
        Value::Object(patch) if strategy(schema, "replace") && !patch.contains_key("$patch") => {
            map.insert(key.into(), without_directives(&Value::Object(patch.clone())));
        }
        Value::Object(patch) => {
            if patch.get("$patch").is_some_and(|directive| directive == "delete") {
                map.remove(key);
                return Ok(());
            }
            let place = map.entry(key.to_owned()).or_insert_with(|| Value::Object(Map::new()));
            merge_map(schema, place, patch)?;
        }
        Value::Array(items) if strategy(schema, "merge") => {
            let place = map.entry(key.to_owned()).or_insert_with(|| Value::Array(Vec::new()));
            if !place.is_array() {
                *place = Value::Array(Vec::new());
            }
            let Value::Array(current) = place else { unreachable!("it was just made a list") };
            match schema.get("x-kubernetes-patch-merge-key").and_then(Value::as_str) {
                Some(merge_key) => merge_list(schema, merge_key, current, items)?,
                None => merge_primitives(current, items),
            }
        }
        other => {
            map.insert(key.into(), without_directives(other));
        }
    }
    Ok(())
}

fn merge_list(schema: &Value, key: &str, current: &mut Vec<Value>, patch: &[Value]) -> Result<(), ApiError> {
    if patch.iter().any(|item| item.get("$patch").is_some_and(|directive| directive == "replace")) {
        *current = patch.iter().filter(|item| item.get("$patch").is_none()).map(without_directives).collect();
        return Ok(());
    }
    let item_schema = schema.get("items").unwrap_or(&Value::Null);
    for item in patch {
        let Value::Object(fields) = item else {
            return Err(ApiError::bad_request(
                "error decoding patch: an element of a list that merges by key must be an object",
            ));
        };
        let Some(id) = fields.get(key) else {
            return Err(ApiError::bad_request(format!("map: {item} does not contain declared merge key: {key}")));
        };
        if fields.get("$patch").is_some_and(|directive| directive == "delete") {
            current.retain(|one| one.get(key) != Some(id));
        } else if let Some(place) = current.iter_mut().find(|one| one.get(key) == Some(id)) {
            merge_map(item_schema, place, fields)?;
        } else {
            current.push(without_directives(item));
        }
    }
    Ok(())
}

fn merge_primitives(current: &mut Vec<Value>, patch: &[Value]) {
    for item in patch {
        if !current.contains(item) {
            current.push(item.clone());
        }
    }
}

fn delete_primitives(map: &mut Map<String, Value>, field: &str, gone: &Value) {
    if let (Some(Value::Array(items)), Value::Array(gone)) = (map.get_mut(field), gone) {
        items.retain(|item| !gone.contains(item));
    }
}

/// Orders a merged list as the patch says; elements that it doesn't name stay behind the one they followed.
fn set_order(schema: &Value, map: &mut Map<String, Value>, field: &str, order: &[Value]) {
    let key = schema.get("x-kubernetes-patch-merge-key").and_then(Value::as_str);
    let Some(Value::Array(items)) = map.get_mut(field) else { return };
    let place = |item: &Value| match key {
        Some(key) => order.iter().position(|one| one.get(key).is_some() && one.get(key) == item.get(key)),
        None => order.iter().position(|one| one == item),
    };
    let mut last = 0;
    let mut ranked: Vec<(usize, Value)> = Vec::new();
    for item in items.drain(..) {
        last = place(&item).unwrap_or(last);
        ranked.push((last, item));
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    items.extend(ranked.into_iter().map(|(_, item)| item));
}

fn strategy(schema: &Value, wanted: &str) -> bool {
    schema
        .get("x-kubernetes-patch-strategy")
        .and_then(Value::as_str)
        .is_some_and(|strategies| strategies.split(',').any(|one| one == wanted))
}

fn field_schema<'a>(schema: &'a Value, field: &str) -> &'a Value {
    schema
        .get("properties")
        .and_then(|properties| properties.get(field))
        .or_else(|| schema.get("additionalProperties"))
        .unwrap_or(&Value::Null)
}

fn without_directives(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.iter()
                .filter(|(key, value)| !key.starts_with('$') && !value.is_null())
                .map(|(key, value)| (key.clone(), without_directives(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(without_directives).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "literals read best by value")]
mod tests {
    use super::*;
    use serde_json::json;

    fn patched(current: Value, patch: Value) -> Value {
        let pods = crate::registry::builtin().iter().find(|one| one.plural == "pods").unwrap();
        merge(&pods.schema, &current, &patch).unwrap()
    }

    #[test]
    fn containers_merge_by_name() {
        let current = json!({"spec": {"containers": [{"name": "a", "image": "1", "args": ["x", "y"]}, {"name": "b", "image": "1"}]}});
        let result = patched(current, json!({"spec": {"containers": [{"name": "a", "image": "2", "args": ["z"]}]}}));
        assert_eq!(
            result,
            json!({"spec": {"containers": [{"name": "a", "image": "2", "args": ["z"]}, {"name": "b", "image": "1"}]}})
        );
    }

    #[test]
    fn an_element_is_deleted_by_directive() {
        let current = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        let result = patched(current, json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}));
        assert_eq!(result, json!({"spec": {"containers": [{"name": "b"}]}}));
    }

    #[test]
    fn finalizers_are_added_and_deleted_one_by_one() {
        let current = json!({"metadata": {"finalizers": ["a/x", "b/y"]}});
        let result = patched(
            current,
            json!({"metadata": {"finalizers": ["c/z"], "$deleteFromPrimitiveList/finalizers": ["a/x"], "$setElementOrder/finalizers": ["c/z", "b/y"]}}),
        );
        assert_eq!(result, json!({"metadata": {"finalizers": ["c/z", "b/y"]}}));
    }

    #[test]
    fn retained_keys_drop_the_other_source_of_a_volume() {
        let current = json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}});
        let patch = json!({"spec": {"volumes": [{"name": "v", "secret": {"secretName": "s"}, "$retainKeys": ["name", "secret"]}]}});
        assert_eq!(
            patched(current, patch),
            json!({"spec": {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}})
        );
    }

    #[test]
    fn null_removes_and_a_map_is_replaced_on_request() {
        let current = json!({"metadata": {"labels": {"a": "1", "b": "2"}, "annotations": {"x": "y"}}});
        let patch = json!({"metadata": {"labels": {"$patch": "replace", "c": "3"}, "annotations": {"x": null}}});
        assert_eq!(patched(current, patch), json!({"metadata": {"labels": {"c": "3"}, "annotations": {}}}));
    }
}
