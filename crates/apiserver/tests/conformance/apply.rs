//! Server-side apply: who owns which field, and who wins.

use http::Method;
use serde_json::{Value, json};

use crate::custom::Definition;
use crate::reply::{managers, owned, version};
use crate::runner::cases;
use crate::world::{Patch, World};

cases![
    applying_a_missing_object_creates_it,
    applied_fields_are_owned_by_the_applier,
    applying_the_same_again_writes_nothing,
    applying_yaml_is_understood,
    a_field_of_another_applier_conflicts_with_message_and_causes,
    several_conflicts_are_all_named,
    force_takes_the_field_away,
    agreeing_with_another_applier_shares_the_field,
    a_dropped_field_is_removed,
    a_dropped_field_that_another_owns_stays,
    an_applier_that_drops_everything_is_forgotten,
    a_field_written_by_an_update_is_owned_by_the_updater,
    an_update_of_an_applied_field_takes_it_over,
    a_field_of_an_updater_conflicts_and_names_the_operation,
    applying_without_a_manager_is_refused,
    applying_managed_fields_is_refused,
    applying_on_an_old_version_conflicts,
    applying_with_a_uid_to_a_missing_object_conflicts,
    force_is_for_apply_alone,
    managed_fields_can_be_reset,
    the_status_subresource_has_managers_of_its_own,
    an_applied_list_map_of_a_custom_resource_merges_by_its_key,
    an_apply_dry_run_stores_nothing,
    applying_an_invalid_object_is_refused,
];

fn config_map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

async fn applying_a_missing_object_creates_it(w: World) {
    let object = w.apply(&w.core("configmaps/a"), "one", &config_map(&json!({"k": "1"}))).await.code(201).object();
    assert_eq!(object["data"], json!({"k": "1"}));
    let keys: Vec<_> = object.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["apiVersion", "data", "kind", "metadata"], "and nothing that was not applied");
    w.apply(&w.core("configmaps/a"), "one", &config_map(&json!({"k": "2"}))).await.code(200);
}

async fn applied_fields_are_owned_by_the_applier(w: World) {
    let mut body = config_map(&json!({"k": "1"}));
    body["metadata"]["labels"] = json!({"l": "x"});
    let object = w.apply(&w.core("configmaps/a"), "one", &body).await.object();
    let entry = &object["metadata"]["managedFields"][0];
    assert_eq!(entry["manager"], "one");
    assert_eq!(entry["operation"], "Apply");
    assert_eq!(entry["apiVersion"], "v1");
    assert_eq!(entry["fieldsType"], "FieldsV1");
    assert!(entry["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{entry}");
    assert_eq!(entry["fieldsV1"], json!({"f:data": {"f:k": {}}, "f:metadata": {"f:labels": {"f:l": {}}}}));
}

async fn applying_the_same_again_writes_nothing(w: World) {
    let first = w.apply(&w.core("configmaps/a"), "one", &config_map(&json!({"k": "1"}))).await.object();
    let again = w.apply(&w.core("configmaps/a"), "one", &config_map(&json!({"k": "1"}))).await.code(200).object();
    assert_eq!(again, first);
}

async fn applying_yaml_is_understood(w: World) {
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: |\n    two\n    lines\n";
    let path = format!("{}?fieldManager=one", w.core("configmaps/a"));
    let headers = [("content-type", "application/apply-patch+yaml")];
    let object = w.call(Method::PATCH, &path, &headers, Some(yaml.to_owned())).await.code(201).object();
    assert_eq!(object["data"]["k"], "two\nlines\n");
}

async fn a_field_of_another_applier_conflicts_with_message_and_causes(w: World) {
    w.apply(&w.core("configmaps/a"), "one", &config_map(&json!({"k": "1"}))).await.code(201);
    let refusal = w
        .apply(&w.core("configmaps/a"), "two", &config_map(&json!({"k": "2"})))
        .await
        .refused(409, "Conflict")
        .saying("Apply failed with 1 conflict: conflict with \"one\": .data.k");
    let cause = json!([{"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".data.k"}]);
    assert_eq!(refusal.body["details"]["causes"], cause);
    assert_eq!(w.get(&w.core("configmaps/a")).await.object()["data"]["k"], "1");
}

async fn several_conflicts_are_all_named(w: World) {
    w.apply(&w.core("configmaps/a"), "one", &config_map(&json!({"j": "1", "k": "1"}))).await.code(201);
    w.apply(&w.core("configmaps/a"), "two", &config_map(&json!({"j": "2", "k": "2"})))
        .await
        .refused(409, "Conflict")
        .saying("Apply failed with 2 conflicts: conflicts with \"one\":\n- .data.j\n- .data.k");
}

async fn force_takes_the_field_away(w: World) {
    w.apply(&w.core("configmaps/a"), "one", &config_map(&json!({"k": "1", "mine": "1"}))).await.code(201);
    let object =
        w.apply_by_force(&w.core("configmaps/a"), "two", &config_map(&json!({"k": "2"}))).await.code(200).object();
    assert_eq!(object["data"], json!({"k": "2", "mine": "1"}));
    assert_eq!(owned(&object, "one", "Apply"), json!({"f:data": {"f:mine": {}}}));
    assert_eq!(owned(&object, "two", "Apply"), json!({"f:data": {"f:k": {}}}));
}

async fn agreeing_with_another_applier_shares_the_field(w: World) {
    let path = w.core("configmaps/a");
    w.apply(&path, "one", &config_map(&json!({"k": "1"}))).await.code(201);
    let object = w.apply(&path, "two", &config_map(&json!({"k": "1"}))).await.code(200).object();
    assert_eq!(owned(&object, "one", "Apply"), owned(&object, "two", "Apply"));
    w.apply(&path, "one", &config_map(&json!({"k": "2"})))
        .await
        .refused(409, "Conflict")
        .saying("Apply failed with 1 conflict: conflict with \"two\": .data.k");
}

async fn a_dropped_field_is_removed(w: World) {
    let path = w.core("configmaps/a");
    w.apply(&path, "one", &config_map(&json!({"stays": "1", "goes": "1"}))).await.code(201);
    let object = w.apply(&path, "one", &config_map(&json!({"stays": "1"}))).await.code(200).object();
    assert_eq!(object["data"], json!({"stays": "1"}));
}

async fn a_dropped_field_that_another_owns_stays(w: World) {
    let path = w.core("configmaps/a");
    w.apply(&path, "one", &config_map(&json!({"k": "1"}))).await.code(201);
    w.apply(&path, "two", &config_map(&json!({"k": "1", "l": "1"}))).await.code(200);
    let object = w.apply(&path, "two", &config_map(&json!({"l": "1"}))).await.code(200).object();
    assert_eq!(object["data"], json!({"k": "1", "l": "1"}));
    assert_eq!(owned(&object, "two", "Apply"), json!({"f:data": {"f:l": {}}}));
}

async fn an_applier_that_drops_everything_is_forgotten(w: World) {
    let path = w.core("configmaps/a");
    w.apply(&path, "one", &config_map(&json!({"k": "1"}))).await.code(201);
    w.apply(&path, "two", &config_map(&json!({"l": "1"}))).await.code(200);
    let nothing = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let object = w.apply(&path, "two", &nothing).await.code(200).object();
    assert_eq!(object["data"], json!({"k": "1"}));
    assert_eq!(managers(&object).len(), 1, "{object}");
}

async fn a_field_written_by_an_update_is_owned_by_the_updater(w: World) {
    let path = format!("{}?fieldManager=writer", w.core("configmaps"));
    let object = w.post(&path, &w.config_map("a", &json!({"k": "1"}))).await.code(201).object();
    assert_eq!(owned(&object, "writer", "Update"), json!({"f:data": {".": {}, "f:k": {}}}));
    let path = format!("{}?fieldManager=patcher", w.core("configmaps/a"));
    let object = w.patch(Patch::Merge, &path, &json!({"data": {"l": "1"}})).await.code(200).object();
    assert_eq!(owned(&object, "patcher", "Update"), json!({"f:data": {"f:l": {}}}));
    assert_eq!(owned(&object, "writer", "Update"), json!({"f:data": {".": {}, "f:k": {}}}));
}

async fn an_update_of_an_applied_field_takes_it_over(w: World) {
    let path = w.core("configmaps/a");
    w.apply(&path, "one", &config_map(&json!({"k": "1", "l": "1"}))).await.code(201);
    let patch = json!({"data": {"k": "2"}});
    let object = w.patch(Patch::Merge, &format!("{path}?fieldManager=patcher"), &patch).await.code(200).object();
    assert_eq!(owned(&object, "one", "Apply"), json!({"f:data": {"f:l": {}}}));
    assert_eq!(owned(&object, "patcher", "Update"), json!({"f:data": {"f:k": {}}}));
    let object = w.apply(&path, "one", &config_map(&json!({"l": "1"}))).await.code(200).object();
    assert_eq!(object["data"], json!({"k": "2", "l": "1"}), "what the updater took is not the applier's to remove");
}

async fn a_field_of_an_updater_conflicts_and_names_the_operation(w: World) {
    let path = format!("{}?fieldManager=writer", w.core("configmaps"));
    w.post(&path, &w.config_map("a", &json!({"k": "1"}))).await.code(201);
    w.apply(&w.core("configmaps/a"), "one", &config_map(&json!({"k": "2"})))
        .await
        .refused(409, "Conflict")
        .saying("Apply failed with 1 conflict: conflict with \"writer\" using v1: .data.k");
}

async fn applying_without_a_manager_is_refused(w: World) {
    let refusal = w.patch(Patch::Apply, &w.core("configmaps/a"), &config_map(&json!({}))).await.refused(422, "Invalid");
    refusal
        .saying("PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch");
}

async fn applying_managed_fields_is_refused(w: World) {
    let mut body = config_map(&json!({}));
    body["metadata"]["managedFields"] = json!([{"manager": "x", "operation": "Apply", "apiVersion": "v1"}]);
    w.apply(&w.core("configmaps/a"), "one", &body)
        .await
        .refused(400, "BadRequest")
        .saying("metadata.managedFields must be nil");
}

async fn applying_on_an_old_version_conflicts(w: World) {
    let path = w.core("configmaps/a");
    let first = w.apply(&path, "one", &config_map(&json!({"k": "1"}))).await.object();
    w.apply(&path, "one", &config_map(&json!({"k": "2"}))).await.code(200);
    let mut stale = config_map(&json!({"k": "3"}));
    stale["metadata"]["resourceVersion"] = json!(version(&first));
    w.apply(&path, "one", &stale).await.refused(409, "Conflict").saying(
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the \
         latest version and try again",
    );
}

async fn applying_with_a_uid_to_a_missing_object_conflicts(w: World) {
    let mut body = config_map(&json!({"k": "1"}));
    body["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    let refusal = w.apply(&w.core("configmaps/a"), "one", &body).await.refused(409, "Conflict");
    refusal.mentioning(&["uid mismatch: the provided object specified uid 00000000-0000-0000-0000-000000000000"]);
}

async fn force_is_for_apply_alone(w: World) {
    w.given_config_map("a", &json!({})).await;
    let path = format!("{}?force=true", w.core("configmaps/a"));
    let refusal = w.patch(Patch::Merge, &path, &json!({"data": {"k": "1"}})).await.refused(422, "Invalid");
    refusal
        .saying("PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch");
}

async fn managed_fields_can_be_reset(w: World) {
    let path = w.core("configmaps/a");
    w.apply(&path, "one", &config_map(&json!({"k": "1"}))).await.code(201);
    let reset = json!({"metadata": {"managedFields": [{}]}});
    let object = w.patch(Patch::Merge, &path, &reset).await.code(200).object();
    assert!(object["metadata"].get("managedFields").is_none(), "{object}");
    let object = w.apply(&path, "two", &config_map(&json!({"k": "2"}))).await.refused(409, "Conflict");
    object.mentioning(&["conflict with \"before-first-apply\" using v1: .data.k"]);
}

async fn the_status_subresource_has_managers_of_its_own(w: World) {
    let widgets = w.install(Definition::with_properties(&w, &json!({"size": {"type": "integer"}}))).await;
    w.apply(&widgets.at("a"), "one", &widgets.object("a", &json!({"size": 1}))).await.code(201);
    let mut status = widgets.object("a", &json!({"size": 9}));
    status["status"] = json!({"phase": "Ready"});
    let object = w.apply(&widgets.at("a/status"), "one", &status).await.code(200).object();
    assert_eq!(object["spec"]["size"], 1, "a status apply leaves the spec alone");
    assert_eq!(object["status"]["phase"], "Ready");
    let expected = [("one", "Apply", ""), ("one", "Apply", "status")];
    let expected: Vec<_> = expected.map(|(m, o, s)| (m.to_owned(), o.to_owned(), s.to_owned())).into();
    assert_eq!(managers(&object), expected);
    let object = w.apply(&widgets.at("a"), "one", &widgets.object("a", &json!({"size": 2}))).await.code(200).object();
    assert_eq!(object["status"]["phase"], "Ready", "an apply of the spec does not drop the status");
}

async fn an_applied_list_map_of_a_custom_resource_merges_by_its_key(w: World) {
    let item = json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "value": {"type": "string"}}});
    let properties = json!({
        "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": item},
    });
    let widgets = w.install(Definition::with_properties(&w, &properties)).await;
    let body = |name: &str, value: &str| widgets.object("a", &json!({"items": [{"name": name, "value": value}]}));
    w.apply(&widgets.at("a"), "one", &body("x", "1")).await.code(201);
    let object = w.apply(&widgets.at("a"), "two", &body("y", "2")).await.code(200).object();
    assert_eq!(object["spec"]["items"], json!([{"name": "x", "value": "1"}, {"name": "y", "value": "2"}]));
    let key = r#"k:{"name":"y"}"#;
    assert_eq!(
        owned(&object, "two", "Apply"),
        json!({"f:spec": {"f:items": {key: {".": {}, "f:name": {}, "f:value": {}}}}})
    );
    w.apply(&widgets.at("a"), "two", &body("x", "3"))
        .await
        .refused(409, "Conflict")
        .saying("Apply failed with 1 conflict: conflict with \"one\": .spec.items[name=\"x\"].value");
}

async fn an_apply_dry_run_stores_nothing(w: World) {
    let path = format!("{}?fieldManager=one&dryRun=All", w.core("configmaps/a"));
    let object = w.patch(Patch::Apply, &path, &config_map(&json!({"k": "1"}))).await.code(201).object();
    assert_eq!(object["data"]["k"], "1");
    w.get(&w.core("configmaps/a")).await.refused(404, "NotFound");
}

async fn applying_an_invalid_object_is_refused(w: World) {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"bad key": "1"}});
    w.apply(&w.core("configmaps/a"), "one", &body)
        .await
        .refused(422, "Invalid")
        .mentioning(&["data[bad key]: Invalid value: \"bad key\": a valid config key must consist of"]);
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": 1}});
    let refusal = w.apply(&w.core("configmaps/a"), "one", &body).await;
    assert!(refusal.code >= 400, "a number is no string: {}", refusal.describe());
}
