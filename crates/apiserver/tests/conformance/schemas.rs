//! Validation of custom resources by their schema: each refusal names the field, the value and the rule.

use serde_json::{Value, json};

use crate::custom::Definition;
use crate::reply::Reply;
use crate::runner::cases;
use crate::world::{Patch, World};

cases![
    a_value_of_another_type_is_refused,
    a_fraction_is_no_integer,
    a_number_below_the_minimum_is_refused,
    a_number_above_the_maximum_is_refused,
    an_exclusive_bound_excludes_itself,
    a_number_that_is_no_multiple_is_refused,
    a_text_that_does_not_match_is_refused,
    a_text_of_the_wrong_length_is_refused,
    a_value_outside_the_enumeration_is_refused,
    a_missing_required_field_is_refused,
    a_list_of_the_wrong_length_is_refused,
    a_repeated_element_of_a_set_is_refused,
    a_repeated_key_of_a_list_map_is_refused,
    a_map_is_checked_value_by_value,
    an_int_or_string_is_either,
    a_date_time_is_checked,
    a_null_is_dropped_unless_nullable,
    all_faults_are_named_at_once,
    an_unchanged_invalid_value_is_tolerated_on_update,
];

/// What the API says to a value of `spec.field` under this schema.
async fn answer(w: &World, schema: &Value, value: &Value) -> (String, Reply) {
    let widgets = w.install(Definition::with_properties(w, &json!({"field": schema}))).await;
    (widgets.group.clone(), w.post(&widgets.path, &widgets.object("a", &json!({"field": value}))).await)
}

/// Demands a refusal of one value with one fault, worded in full.
async fn refuses(w: &World, schema: &Value, value: &Value, reason: &str, fault: &str) {
    let (group, reply) = answer(w, schema, value).await;
    let reply = reply.refused(422, "Invalid").saying(&format!("Widget.{group} \"a\" is invalid: spec.field: {fault}"));
    assert_eq!(reply.cause("spec.field", reason), fault);
    assert_eq!(reply.body["details"]["group"], group.as_str());
    assert_eq!(reply.body["details"]["kind"], "Widget");
}

async fn a_value_of_another_type_is_refused(w: World) {
    let fault = "Invalid value: \"string\": spec.field in body must be of type integer: \"string\"";
    refuses(&w, &json!({"type": "integer"}), &json!("three"), "FieldValueTypeInvalid", fault).await;
}

async fn a_fraction_is_no_integer(w: World) {
    let (_, reply) = answer(&w, &json!({"type": "integer"}), &json!(1.5)).await;
    let fault = reply.refused(422, "Invalid").cause("spec.field", "FieldValueTypeInvalid");
    assert_eq!(fault, "Invalid value: \"number\": spec.field in body must be of type integer: \"number\"");
}

async fn a_number_below_the_minimum_is_refused(w: World) {
    let fault = "Invalid value: 0: spec.field in body should be greater than or equal to 1";
    refuses(&w, &json!({"type": "integer", "minimum": 1}), &json!(0), "FieldValueInvalid", fault).await;
}

async fn a_number_above_the_maximum_is_refused(w: World) {
    let fault = "Invalid value: 11: spec.field in body should be less than or equal to 10";
    refuses(&w, &json!({"type": "integer", "maximum": 10}), &json!(11), "FieldValueInvalid", fault).await;
}

async fn an_exclusive_bound_excludes_itself(w: World) {
    let fault = "Invalid value: 10: spec.field in body should be less than 10";
    let schema = json!({"type": "integer", "maximum": 10, "exclusiveMaximum": true});
    refuses(&w, &schema, &json!(10), "FieldValueInvalid", fault).await;
}

async fn a_number_that_is_no_multiple_is_refused(w: World) {
    let fault = "Invalid value: 7: spec.field in body should be a multiple of 2";
    refuses(&w, &json!({"type": "integer", "multipleOf": 2}), &json!(7), "FieldValueInvalid", fault).await;
}

async fn a_text_that_does_not_match_is_refused(w: World) {
    let fault = "Invalid value: \"7 days\": spec.field in body should match '^[0-9]+[dwm]$'";
    let schema = json!({"type": "string", "pattern": "^[0-9]+[dwm]$"});
    refuses(&w, &schema, &json!("7 days"), "FieldValueInvalid", fault).await;
}

async fn a_text_of_the_wrong_length_is_refused(w: World) {
    let fault = "Invalid value: \"\": spec.field in body should be at least 1 chars long";
    refuses(&w, &json!({"type": "string", "minLength": 1}), &json!(""), "FieldValueInvalid", fault).await;
}

async fn a_value_outside_the_enumeration_is_refused(w: World) {
    let fault = "Unsupported value: \"blue\": supported values: \"red\", \"green\"";
    refuses(&w, &json!({"type": "string", "enum": ["red", "green"]}), &json!("blue"), "FieldValueNotSupported", fault)
        .await;
}

async fn a_missing_required_field_is_refused(w: World) {
    let schema = json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}});
    let (_, reply) = answer(&w, &schema, &json!({})).await;
    let reply = reply.refused(422, "Invalid");
    assert_eq!(reply.cause("spec.field.name", "FieldValueRequired"), "Required value");
}

async fn a_list_of_the_wrong_length_is_refused(w: World) {
    let schema = json!({"type": "array", "maxItems": 2, "items": {"type": "integer"}});
    refuses(&w, &schema, &json!([1, 2, 3]), "FieldValueTooMany", "Too many: 3: must have at most 2 items").await;
}

async fn a_repeated_element_of_a_set_is_refused(w: World) {
    let schema = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    let (_, reply) = answer(&w, &schema, &json!(["a", "b", "a"])).await;
    assert_eq!(reply.refused(422, "Invalid").cause("spec.field[2]", "FieldValueDuplicate"), "Duplicate value: \"a\"");
}

async fn a_repeated_key_of_a_list_map_is_refused(w: World) {
    let item = json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}});
    let schema = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": item});
    let (_, reply) = answer(&w, &schema, &json!([{"name": "a"}, {"name": "a"}])).await;
    let message = reply.refused(422, "Invalid").cause("spec.field[1]", "FieldValueDuplicate");
    assert!(message.starts_with("Duplicate value: {\"name\":\"a\"}"), "{message}");
}

async fn a_map_is_checked_value_by_value(w: World) {
    let schema = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let (_, reply) = answer(&w, &schema, &json!({"good": "1", "bad": 2})).await;
    let message = reply.refused(422, "Invalid").cause("spec.field.bad", "FieldValueTypeInvalid");
    assert_eq!(message, "Invalid value: \"integer\": spec.field.bad in body must be of type string: \"integer\"");
}

async fn an_int_or_string_is_either(w: World) {
    let widgets =
        w.install(Definition::with_properties(&w, &json!({"field": {"x-kubernetes-int-or-string": true}}))).await;
    widgets.given(&w, "a", &json!({"field": 5})).await;
    widgets.given(&w, "b", &json!({"field": "50%"})).await;
    let refusal = w.post(&widgets.path, &widgets.object("c", &json!({"field": true}))).await.refused(422, "Invalid");
    refusal.mentioning(&["spec.field"]);
}

async fn a_date_time_is_checked(w: World) {
    let fault = "Invalid value: \"yesterday\": spec.field in body must be of type date-time: \"yesterday\"";
    refuses(&w, &json!({"type": "string", "format": "date-time"}), &json!("yesterday"), "FieldValueTypeInvalid", fault)
        .await;
}

async fn a_null_is_dropped_unless_nullable(w: World) {
    let properties = json!({"plain": {"type": "string"}, "open": {"type": "string", "nullable": true}});
    let widgets = w.install(Definition::with_properties(&w, &properties)).await;
    let object = widgets.given(&w, "a", &json!({"open": null, "plain": null})).await;
    assert_eq!(object["spec"], json!({"open": null}));
}

async fn all_faults_are_named_at_once(w: World) {
    let properties = json!({"one": {"type": "integer", "minimum": 1}, "two": {"type": "string", "enum": ["x"]}});
    let widgets = w.install(Definition::with_properties(&w, &properties)).await;
    let refusal =
        w.post(&widgets.path, &widgets.object("a", &json!({"one": 0, "two": "y"}))).await.refused(422, "Invalid");
    refusal.cause("spec.one", "FieldValueInvalid");
    refusal.cause("spec.two", "FieldValueNotSupported");
    refusal.mentioning(&[" is invalid: [spec."]);
}

async fn an_unchanged_invalid_value_is_tolerated_on_update(w: World) {
    let properties = json!({"size": {"type": "integer"}, "other": {"type": "string"}});
    let widgets = w.install(Definition::with_properties(&w, &properties)).await;
    widgets.given(&w, "a", &json!({"size": 1})).await;
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/minimum";
    w.patch(Patch::Json, &widgets.definition, &json!([{"op": "add", "path": path, "value": 5}])).await.code(200);
    let dry = format!("{}?dryRun=All", widgets.path);
    w.until("the new minimum", async || {
        (w.post(&dry, &widgets.object("b", &json!({"size": 1}))).await.code == 422).then_some(())
    })
    .await;
    w.patch(Patch::Merge, &widgets.at("a"), &json!({"spec": {"other": "x"}})).await.code(200);
    w.patch(Patch::Merge, &widgets.at("a"), &json!({"spec": {"size": 2}}))
        .await
        .refused(422, "Invalid")
        .mentioning(&["spec.size: Invalid value: 2: spec.size in body should be greater than or equal to 5"]);
}
