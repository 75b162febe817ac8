//! Changing parts of objects: JSON patch, merge patch, strategic merge patch.

use http::Method;
use serde_json::{Value, json};

use crate::custom::Definition;
use crate::reply::version;
use crate::runner::cases;
use crate::world::{Patch, World};

cases![
    a_json_patch_adds_replaces_and_removes,
    a_json_patch_whose_test_fails_changes_nothing,
    a_json_patch_of_a_missing_path_is_refused,
    a_merge_patch_merges_maps_and_removes_nulls,
    a_merge_patch_replaces_lists,
    a_patch_that_changes_nothing_keeps_the_version,
    a_patch_on_an_old_version_conflicts,
    a_patch_of_a_missing_object_is_404,
    a_patch_cant_rename,
    a_patch_of_an_unknown_format_is_415,
    a_malformed_patch_is_400,
    a_strategic_patch_merges_containers_by_name,
    a_strategic_patch_merges_ports_by_port,
    a_strategic_patch_deletes_an_element_by_key,
    a_strategic_patch_replaces_a_list_when_told,
    a_strategic_patch_replaces_a_map_when_told,
    a_strategic_patch_keeps_only_the_keys_it_is_told_to,
    a_strategic_patch_merges_lists_of_plain_values,
    a_strategic_patch_of_a_custom_resource_is_415,
    a_patch_is_validated_like_any_write,
];

async fn service(w: &World) -> Value {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
        "spec": {"clusterIP": "None", "ports": [{"name": "one", "port": 1}, {"name": "two", "port": 2}]},
    });
    w.post(&w.core("services"), &service).await.object()
}

fn ports(service: &Value) -> Vec<(&str, i64)> {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    ports.map(|port| (port["name"].as_str().unwrap_or_default(), port["port"].as_i64().unwrap_or_default())).collect()
}

async fn a_json_patch_adds_replaces_and_removes(w: World) {
    w.given_config_map("a", &json!({"old": "1", "gone": "1"})).await;
    let patch = json!([
        {"op": "test", "path": "/data/old", "value": "1"},
        {"op": "replace", "path": "/data/old", "value": "2"},
        {"op": "remove", "path": "/data/gone"},
        {"op": "add", "path": "/data/with~1slash", "value": "3"},
        {"op": "copy", "from": "/data/old", "path": "/data/copied"},
        {"op": "move", "from": "/data/copied", "path": "/data/moved"},
    ]);
    let object = w.patch(Patch::Json, &w.core("configmaps/a"), &patch).await;
    // The slash is no legal key of a ConfigMap: the whole patch is refused as one.
    object.refused(422, "Invalid").mentioning(&["data[with/slash]: Invalid value: \"with/slash\""]);
    let mut patch = patch;
    patch[3]["path"] = json!("/data/added");
    let object = w.patch(Patch::Json, &w.core("configmaps/a"), &patch).await.code(200).object();
    assert_eq!(object["data"], json!({"old": "2", "added": "3", "moved": "2"}));
}

async fn a_json_patch_whose_test_fails_changes_nothing(w: World) {
    let before = w.given_config_map("a", &json!({"k": "1"})).await;
    let patch = json!([
        {"op": "replace", "path": "/data/k", "value": "2"},
        {"op": "test", "path": "/data/k", "value": "9"},
    ]);
    let refusal = w.patch(Patch::Json, &w.core("configmaps/a"), &patch).await.refused(422, "Invalid");
    refusal.saying("the server rejected our request due to an error in our request");
    assert_eq!(w.get(&w.core("configmaps/a")).await.object(), before);
}

async fn a_json_patch_of_a_missing_path_is_refused(w: World) {
    w.given_config_map("a", &json!({"k": "1"})).await;
    let patch = json!([{"op": "remove", "path": "/data/missing"}]);
    w.patch(Patch::Json, &w.core("configmaps/a"), &patch).await.refused(422, "Invalid");
}

async fn a_merge_patch_merges_maps_and_removes_nulls(w: World) {
    w.given_config_map("a", &json!({"stays": "1", "goes": "1"})).await;
    let patch = json!({"data": {"goes": null, "comes": "2"}, "metadata": {"labels": {"l": "x"}}});
    let object = w.patch(Patch::Merge, &w.core("configmaps/a"), &patch).await.code(200).object();
    assert_eq!(object["data"], json!({"stays": "1", "comes": "2"}));
    assert_eq!(object["metadata"]["labels"], json!({"l": "x"}));
}

async fn a_merge_patch_replaces_lists(w: World) {
    service(&w).await;
    let patch = json!({"spec": {"ports": [{"name": "three", "port": 3}]}});
    let object = w.patch(Patch::Merge, &w.core("services/a"), &patch).await.code(200).object();
    assert_eq!(ports(&object), [("three", 3)]);
}

async fn a_patch_that_changes_nothing_keeps_the_version(w: World) {
    let before = w.given_config_map("a", &json!({"k": "1"})).await;
    for kind in [Patch::Merge, Patch::Strategic] {
        let after = w.patch(kind, &w.core("configmaps/a"), &json!({"data": {"k": "1"}})).await.code(200).object();
        assert_eq!(version(&after), version(&before), "{kind:?}");
    }
    let after = w.patch(Patch::Json, &w.core("configmaps/a"), &json!([])).await.code(200).object();
    assert_eq!(version(&after), version(&before));
}

async fn a_patch_on_an_old_version_conflicts(w: World) {
    let before = w.given_config_map("a", &json!({"k": "1"})).await;
    w.patch(Patch::Merge, &w.core("configmaps/a"), &json!({"data": {"k": "2"}})).await.code(200);
    let stale = json!({"metadata": {"resourceVersion": version(&before)}, "data": {"k": "3"}});
    w.patch(Patch::Merge, &w.core("configmaps/a"), &stale).await.refused(409, "Conflict").saying(
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the \
         latest version and try again",
    );
}

async fn a_patch_of_a_missing_object_is_404(w: World) {
    let refusal = w.patch(Patch::Merge, &w.core("configmaps/a"), &json!({"data": {"k": "2"}})).await;
    refusal.refused(404, "NotFound").saying("configmaps \"a\" not found");
}

async fn a_patch_cant_rename(w: World) {
    w.given_config_map("a", &json!({})).await;
    w.patch(Patch::Merge, &w.core("configmaps/a"), &json!({"metadata": {"name": "b"}}))
        .await
        .refused(400, "BadRequest")
        .mentioning(&["the name of the object (b) does not match the name on the URL (a)"]);
}

async fn a_patch_of_an_unknown_format_is_415(w: World) {
    w.given_config_map("a", &json!({})).await;
    let headers = [("content-type", "application/json")];
    w.call(Method::PATCH, &w.core("configmaps/a"), &headers, Some("{}".to_owned()))
        .await
        .refused(415, "UnsupportedMediaType");
}

async fn a_malformed_patch_is_400(w: World) {
    w.given_config_map("a", &json!({})).await;
    w.patch(Patch::Json, &w.core("configmaps/a"), &json!({"not": "a list"})).await.refused(400, "BadRequest");
    w.patch(Patch::Merge, &w.core("configmaps/a"), &json!(["not", "a map"])).await.refused(400, "BadRequest");
}

async fn a_strategic_patch_merges_containers_by_name(w: World) {
    let mut pod = w.pod("a");
    pod["spec"]["containers"] = json!([{"name": "main", "image": "main:1"}, {"name": "side", "image": "side:1"}]);
    w.given_pod(&pod).await;
    let patch = json!({"spec": {"containers": [{"name": "side", "image": "side:2"}]}});
    let patched = w.patch(Patch::Strategic, &w.core("pods/a"), &patch).await.code(200).object();
    let images: Vec<_> = patched["spec"]["containers"].as_array().unwrap().iter().map(|c| c["image"].clone()).collect();
    assert_eq!(images, ["main:1", "side:2"]);
}

async fn a_strategic_patch_merges_ports_by_port(w: World) {
    service(&w).await;
    let patch = json!({"spec": {"ports": [{"port": 2, "name": "second"}, {"port": 3, "name": "three"}]}});
    let patched = w.patch(Patch::Strategic, &w.core("services/a"), &patch).await.code(200).object();
    let mut found = ports(&patched);
    found.sort_by_key(|(_, port)| *port);
    assert_eq!(found, [("one", 1), ("second", 2), ("three", 3)]);
}

async fn a_strategic_patch_deletes_an_element_by_key(w: World) {
    service(&w).await;
    let patch = json!({"spec": {"ports": [{"$patch": "delete", "port": 1}]}});
    let patched = w.patch(Patch::Strategic, &w.core("services/a"), &patch).await.code(200).object();
    assert_eq!(ports(&patched), [("two", 2)]);
}

async fn a_strategic_patch_replaces_a_list_when_told(w: World) {
    service(&w).await;
    let patch = json!({"spec": {"ports": [{"port": 9, "name": "nine"}, {"$patch": "replace"}]}});
    let patched = w.patch(Patch::Strategic, &w.core("services/a"), &patch).await.code(200).object();
    assert_eq!(ports(&patched), [("nine", 9)]);
}

async fn a_strategic_patch_replaces_a_map_when_told(w: World) {
    w.given_config_map("a", &json!({"old": "1"})).await;
    let patch = json!({"data": {"$patch": "replace", "new": "2"}});
    let patched = w.patch(Patch::Strategic, &w.core("configmaps/a"), &patch).await.code(200).object();
    assert_eq!(patched["data"], json!({"new": "2"}));
}

async fn a_strategic_patch_keeps_only_the_keys_it_is_told_to(w: World) {
    w.given_config_map("a", &json!({"stays": "1", "goes": "1"})).await;
    let patch = json!({"data": {"$retainKeys": ["stays", "comes"], "comes": "2"}});
    let patched = w.patch(Patch::Strategic, &w.core("configmaps/a"), &patch).await.code(200).object();
    assert_eq!(patched["data"], json!({"stays": "1", "comes": "2"}));
}

async fn a_strategic_patch_merges_lists_of_plain_values(w: World) {
    let mut body = w.config_map("a", &json!({}));
    body["metadata"]["finalizers"] = json!(["example.com/one"]);
    w.post(&w.core("configmaps"), &body).await.code(201);
    let path = w.core("configmaps/a");
    let patch = json!({"metadata": {"finalizers": ["example.com/two"]}});
    let patched = w.patch(Patch::Strategic, &path, &patch).await.code(200).object();
    let mut finalizers: Vec<_> = patched["metadata"]["finalizers"].as_array().into_iter().flatten().cloned().collect();
    finalizers.sort_by_key(Value::to_string);
    assert_eq!(finalizers, ["example.com/one", "example.com/two"]);
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/one", "example.com/two"]}});
    let patched = w.patch(Patch::Strategic, &path, &patch).await.code(200).object();
    assert!(patched["metadata"].get("finalizers").is_none(), "{patched}");
}

async fn a_strategic_patch_of_a_custom_resource_is_415(w: World) {
    let widgets = w.install(Definition::with_properties(&w, &json!({"size": {"type": "integer"}}))).await;
    widgets.given(&w, "a", &json!({"size": 1})).await;
    w.patch(Patch::Strategic, &widgets.at("a"), &json!({"spec": {"size": 2}}))
        .await
        .refused(415, "UnsupportedMediaType")
        .saying(
            "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, \
             application/merge-patch+json, application/apply-patch+yaml",
        );
}

async fn a_patch_is_validated_like_any_write(w: World) {
    let size = json!({"type": "integer", "maximum": 3});
    let widgets = w.install(Definition::with_properties(&w, &json!({"size": size}))).await;
    widgets.given(&w, "a", &json!({"size": 1})).await;
    w.patch(Patch::Merge, &widgets.at("a"), &json!({"spec": {"size": 4}}))
        .await
        .refused(422, "Invalid")
        .saying(&format!(
            "Widget.{} \"a\" is invalid: spec.size: Invalid value: 4: spec.size in body should be less than or equal to 3",
            widgets.group
        ))
        .cause("spec.size", "FieldValueInvalid");
}
