//! Status and scale: each writes its own half of an object.

use serde_json::{Value, json};

use crate::custom::{Definition, Resource};
use crate::reply::version;
use crate::runner::cases;
use crate::world::{Patch, World};

cases![
    a_status_in_a_new_object_is_dropped,
    a_status_update_leaves_the_spec_alone,
    an_update_leaves_the_status_alone,
    a_status_write_keeps_the_generation,
    a_status_update_on_an_old_version_conflicts,
    a_status_update_keeps_labels_as_they_are,
    without_the_subresource_status_is_a_field_like_any_other,
    a_pod_status_is_written_through_its_subresource,
    scale_shows_replicas_and_selector,
    scale_is_replaced_with_its_version_checked,
    scale_is_patched,
    scale_is_validated_by_the_schema,
    scale_of_a_kind_without_it_is_404,
    an_unknown_subresource_is_404,
];

async fn widgets(w: &World) -> Resource {
    let replicas = json!({"type": "integer", "format": "int32", "minimum": 1, "maximum": 9});
    w.install(Definition::with_properties(w, &json!({"replicas": replicas})).scaled()).await
}

async fn a_status_in_a_new_object_is_dropped(w: World) {
    let widgets = widgets(&w).await;
    let mut body = widgets.object("a", &json!({"replicas": 1}));
    body["status"] = json!({"phase": "Ready"});
    let object = w.post(&widgets.path, &body).await.code(201).object();
    assert!(object.get("status").is_none(), "{object}");
}

async fn a_status_update_leaves_the_spec_alone(w: World) {
    let widgets = widgets(&w).await;
    let mut object = widgets.given(&w, "a", &json!({"replicas": 1})).await;
    object["spec"]["replicas"] = json!(5);
    object["status"] = json!({"phase": "Ready"});
    let object = w.put(&widgets.at("a/status"), &object).await.code(200).object();
    assert_eq!(object["spec"]["replicas"], 1);
    assert_eq!(object["status"], json!({"phase": "Ready"}));
}

async fn an_update_leaves_the_status_alone(w: World) {
    let widgets = widgets(&w).await;
    widgets.given(&w, "a", &json!({"replicas": 1})).await;
    let patch = json!({"status": {"phase": "Ready"}});
    let mut object = w.patch(Patch::Merge, &widgets.at("a/status"), &patch).await.code(200).object();
    object["spec"]["replicas"] = json!(2);
    object["status"] = json!({"phase": "Broken"});
    let object = w.put(&widgets.at("a"), &object).await.code(200).object();
    assert_eq!(object["spec"]["replicas"], 2);
    assert_eq!(object["status"], json!({"phase": "Ready"}));
}

async fn a_status_write_keeps_the_generation(w: World) {
    let widgets = widgets(&w).await;
    let before = widgets.given(&w, "a", &json!({"replicas": 1})).await;
    let patch = json!({"status": {"phase": "Ready"}, "spec": {"replicas": 3}});
    let after = w.patch(Patch::Merge, &widgets.at("a/status"), &patch).await.code(200).object();
    assert_eq!(after["metadata"]["generation"], 1);
    assert_ne!(version(&after), version(&before));
    assert_eq!(after["spec"]["replicas"], 1);
}

async fn a_status_update_on_an_old_version_conflicts(w: World) {
    let widgets = widgets(&w).await;
    let mut object = widgets.given(&w, "a", &json!({"replicas": 1})).await;
    object["status"] = json!({"phase": "Ready"});
    w.put(&widgets.at("a/status"), &object).await.code(200);
    w.put(&widgets.at("a/status"), &object).await.refused(409, "Conflict");
}

async fn a_status_update_keeps_labels_as_they_are(w: World) {
    let widgets = widgets(&w).await;
    let mut object = widgets.given(&w, "a", &json!({"replicas": 1})).await;
    object["metadata"]["labels"] = json!({"l": "x"});
    object["status"] = json!({"phase": "Ready"});
    let object = w.put(&widgets.at("a/status"), &object).await.code(200).object();
    assert!(object["metadata"].get("labels").is_none(), "{object}");
}

async fn without_the_subresource_status_is_a_field_like_any_other(w: World) {
    let mut definition = Definition::with_properties(&w, &json!({}));
    definition.version()["subresources"] = Value::Null;
    let widgets = w.install(definition).await;
    let mut body = widgets.object("a", &json!({}));
    body["status"] = json!({"phase": "Ready"});
    let object = w.post(&widgets.path, &body).await.code(201).object();
    assert_eq!(object["status"], json!({"phase": "Ready"}));
    w.get(&widgets.at("a/status")).await.code(404);
}

async fn a_pod_status_is_written_through_its_subresource(w: World) {
    let pod = w.given_pod(&w.pod("a")).await;
    assert_eq!(pod["status"]["phase"], "Pending");
    let patch = json!({"status": {"phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]}});
    let unchanged = w.patch(Patch::Merge, &w.core("pods/a"), &patch).await.code(200).object();
    assert_eq!(unchanged["status"]["phase"], "Pending");
    let changed = w.patch(Patch::Merge, &w.core("pods/a/status"), &patch).await.code(200).object();
    assert_eq!(changed["status"]["phase"], "Running");
    assert_eq!(changed["status"]["podIP"], "10.1.2.3");
}

async fn scale_shows_replicas_and_selector(w: World) {
    let widgets = widgets(&w).await;
    let object = widgets.given(&w, "a", &json!({"replicas": 3})).await;
    let status = json!({"status": {"replicas": 2, "selector": "app=a"}});
    w.patch(Patch::Merge, &widgets.at("a/status"), &status).await.code(200);
    let scale = w.get(&widgets.at("a/scale")).await.code(200).object();
    assert_eq!(scale["kind"], "Scale");
    assert_eq!(scale["apiVersion"], "autoscaling/v1");
    assert_eq!(scale["metadata"]["name"], "a");
    assert_eq!(scale["metadata"]["uid"], object["metadata"]["uid"]);
    assert_eq!(scale["spec"], json!({"replicas": 3}));
    assert_eq!(scale["status"], json!({"replicas": 2, "selector": "app=a"}));
}

async fn scale_is_replaced_with_its_version_checked(w: World) {
    let widgets = widgets(&w).await;
    widgets.given(&w, "a", &json!({"replicas": 1})).await;
    let mut scale = w.get(&widgets.at("a/scale")).await.object();
    scale["spec"]["replicas"] = json!(4);
    let scaled = w.put(&widgets.at("a/scale"), &scale).await.code(200).object();
    assert_eq!(scaled["spec"]["replicas"], 4);
    scale["spec"]["replicas"] = json!(5);
    w.put(&widgets.at("a/scale"), &scale).await.refused(409, "Conflict").mentioning(&["the object has been modified"]);
    let object = w.get(&widgets.at("a")).await.object();
    assert_eq!(object["spec"]["replicas"], 4);
    assert_eq!(object["metadata"]["generation"], 2, "scaling is a change of the spec");
}

async fn scale_is_patched(w: World) {
    let widgets = widgets(&w).await;
    widgets.given(&w, "a", &json!({"replicas": 1})).await;
    let patch = json!({"spec": {"replicas": 2}});
    let scale = w.patch(Patch::Merge, &widgets.at("a/scale"), &patch).await.code(200).object();
    assert_eq!(scale["kind"], "Scale");
    assert_eq!(w.get(&widgets.at("a")).await.object()["spec"]["replicas"], 2);
}

async fn scale_is_validated_by_the_schema(w: World) {
    let widgets = widgets(&w).await;
    widgets.given(&w, "a", &json!({"replicas": 1})).await;
    w.patch(Patch::Merge, &widgets.at("a/scale"), &json!({"spec": {"replicas": 10}}))
        .await
        .refused(422, "Invalid")
        .mentioning(&["spec.replicas", "10", "should be less than or equal to 9"]);
    w.patch(Patch::Merge, &widgets.at("a/scale"), &json!({"spec": {"replicas": -1}}))
        .await
        .refused(422, "Invalid")
        .mentioning(&["spec.replicas: Invalid value: -1: should be a non-negative integer"]);
}

async fn scale_of_a_kind_without_it_is_404(w: World) {
    w.given_config_map("a", &json!({})).await;
    w.get(&w.core("configmaps/a/scale")).await.refused(404, "NotFound");
}

async fn an_unknown_subresource_is_404(w: World) {
    w.given_config_map("a", &json!({})).await;
    w.get(&w.core("configmaps/a/nonsense")).await.refused(404, "NotFound");
}
