//! What the API says of itself.

use serde_json::{Value, json};

use crate::custom::Definition;
use crate::runner::cases;
use crate::world::World;

cases![
    the_version_endpoint_names_the_release,
    the_server_says_that_it_is_alive_and_ready,
    the_core_group_lists_its_versions,
    the_group_list_names_each_group_with_its_preferred_version,
    a_group_document_lists_its_versions,
    a_resource_list_names_verbs_short_names_and_scope,
    a_resource_list_names_subresources,
    aggregated_discovery_is_chosen_by_the_accept_header,
    a_custom_resource_is_discovered_with_short_names_categories_and_subresources,
    a_custom_resource_appears_in_aggregated_discovery,
    the_openapi_index_points_to_each_group_version,
    the_openapi_document_of_a_custom_resource_carries_its_schema,
    an_unknown_resource_is_404,
    an_unknown_group_is_404,
];

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn entry<'a>(list: &'a Value, key: &str, field: &str, value: &str) -> &'a Value {
    let found = list[key].as_array().and_then(|entries| entries.iter().find(|entry| entry[field] == value));
    found.unwrap_or_else(|| panic!("no {field} {value} among {key} of {list}"))
}

fn sorted(list: &Value) -> Vec<&str> {
    let mut texts: Vec<_> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    texts.sort_unstable();
    texts
}

const ALL_VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

async fn the_version_endpoint_names_the_release(w: World) {
    let version = w.get("/version").await.object();
    assert_eq!(version["major"], "1");
    assert!(version["gitVersion"].as_str().is_some_and(|text| text.starts_with("v1.")), "{version}");
    assert!(version["minor"].as_str().is_some_and(|text| !text.is_empty()), "{version}");
    assert!(version["platform"].as_str().is_some_and(|text| text.contains('/')), "{version}");
}

async fn the_server_says_that_it_is_alive_and_ready(w: World) {
    for path in ["/livez", "/readyz", "/healthz"] {
        let reply = w.get(path).await.code(200);
        assert_eq!(reply.text, "ok", "{path}");
    }
}

async fn the_core_group_lists_its_versions(w: World) {
    let versions = w.get("/api").await.object();
    assert_eq!(versions["kind"], "APIVersions");
    assert_eq!(versions["versions"], json!(["v1"]));
}

async fn the_group_list_names_each_group_with_its_preferred_version(w: World) {
    let groups = w.get("/apis").await.object();
    assert_eq!(groups["kind"], "APIGroupList");
    for (group, version) in [
        ("apiextensions.k8s.io", "v1"),
        ("batch", "v1"),
        ("coordination.k8s.io", "v1"),
        ("discovery.k8s.io", "v1"),
        ("events.k8s.io", "v1"),
        ("policy", "v1"),
        ("rbac.authorization.k8s.io", "v1"),
    ] {
        let preferred = &entry(&groups, "groups", "name", group)["preferredVersion"];
        assert_eq!(*preferred, json!({"groupVersion": format!("{group}/{version}"), "version": version}));
    }
}

async fn a_group_document_lists_its_versions(w: World) {
    let group = w.get("/apis/coordination.k8s.io").await.object();
    assert_eq!(group["kind"], "APIGroup");
    assert_eq!(group["name"], "coordination.k8s.io");
    entry(&group, "versions", "groupVersion", "coordination.k8s.io/v1");
}

async fn a_resource_list_names_verbs_short_names_and_scope(w: World) {
    let core = w.get("/api/v1").await.object();
    assert_eq!(core["kind"], "APIResourceList");
    assert_eq!(core["groupVersion"], "v1");
    let config_maps = entry(&core, "resources", "name", "configmaps");
    assert_eq!(config_maps["kind"], "ConfigMap");
    assert_eq!(config_maps["singularName"], "configmap");
    assert_eq!(config_maps["namespaced"], true);
    assert_eq!(config_maps["shortNames"], json!(["cm"]));
    assert_eq!(sorted(&config_maps["verbs"]), ALL_VERBS);
    let pods = entry(&core, "resources", "name", "pods");
    assert_eq!(pods["shortNames"], json!(["po"]));
    assert_eq!(pods["categories"], json!(["all"]));
    let namespaces = entry(&core, "resources", "name", "namespaces");
    assert_eq!(namespaces["namespaced"], false);
    assert!(!sorted(&namespaces["verbs"]).contains(&"deletecollection"), "{namespaces}");
}

async fn a_resource_list_names_subresources(w: World) {
    let core = w.get("/api/v1").await.object();
    let status = entry(&core, "resources", "name", "pods/status");
    assert_eq!(status["kind"], "Pod");
    assert_eq!(sorted(&status["verbs"]), ["get", "patch", "update"]);
}

async fn aggregated_discovery_is_chosen_by_the_accept_header(w: World) {
    let accept = format!("{AGGREGATED},application/json");
    let reply = w.get_as("/api", &accept).await.code(200);
    let content_type = reply.headers["content-type"].to_str().unwrap_or_default().to_owned();
    assert!(content_type.contains("as=APIGroupDiscoveryList"), "{content_type}");
    let core = reply.object();
    assert_eq!(core["kind"], "APIGroupDiscoveryList");
    assert_eq!(core["apiVersion"], "apidiscovery.k8s.io/v2");
    let version = entry(&core["items"][0], "versions", "version", "v1");
    let pods = entry(version, "resources", "resource", "pods");
    assert_eq!(pods["responseKind"]["kind"], "Pod");
    assert_eq!(pods["scope"], "Namespaced");
    entry(pods, "subresources", "subresource", "status");
    let groups = w.get_as("/apis", &accept).await.object();
    let found =
        groups["items"].as_array().is_some_and(|items| items.iter().any(|item| item["metadata"]["name"] == "batch"));
    assert!(found, "{groups}");
}

async fn a_custom_resource_is_discovered_with_short_names_categories_and_subresources(w: World) {
    let mut definition = Definition::with_properties(&w, &json!({"replicas": {"type": "integer"}})).scaled();
    definition.body["spec"]["names"]["shortNames"] = json!(["wdg"]);
    definition.body["spec"]["names"]["categories"] = json!(["all"]);
    let widgets = w.install(definition).await;
    let list = w
        .until("the resource list to name widgets", async || {
            let reply = w.get(&format!("/apis/{}", widgets.api_version)).await;
            (reply.code == 200 && reply.body["resources"].as_array().is_some_and(|r| r.len() == 3))
                .then_some(reply.body)
        })
        .await;
    let main = entry(&list, "resources", "name", "widgets");
    assert_eq!(main["kind"], "Widget");
    assert_eq!(main["singularName"], "widget");
    assert_eq!(main["shortNames"], json!(["wdg"]));
    assert_eq!(main["categories"], json!(["all"]));
    assert_eq!(sorted(&main["verbs"]), ALL_VERBS);
    assert_eq!(entry(&list, "resources", "name", "widgets/status")["kind"], "Widget");
    let scale = entry(&list, "resources", "name", "widgets/scale");
    assert_eq!(
        (&scale["kind"], &scale["group"], &scale["version"]),
        (&json!("Scale"), &json!("autoscaling"), &json!("v1"))
    );
}

async fn a_custom_resource_appears_in_aggregated_discovery(w: World) {
    let widgets = w.install(Definition::with_properties(&w, &json!({}))).await;
    let group = w
        .until("aggregated discovery to name the group", async || {
            let groups = w.get_as("/apis", AGGREGATED).await.object();
            groups["items"].as_array()?.iter().find(|item| item["metadata"]["name"] == widgets.group.as_str()).cloned()
        })
        .await;
    let resource = entry(&group["versions"][0], "resources", "resource", "widgets");
    assert_eq!(resource["responseKind"], json!({"group": widgets.group, "version": "v1", "kind": "Widget"}));
    entry(resource, "subresources", "subresource", "status");
}

async fn the_openapi_index_points_to_each_group_version(w: World) {
    let index = w.get("/openapi/v3").await.object();
    for path in ["api/v1", "apis/batch/v1", "apis/coordination.k8s.io/v1", "apis/policy/v1"] {
        let url = index["paths"][path]["serverRelativeURL"].as_str().unwrap_or_default();
        assert!(url.starts_with(&format!("/openapi/v3/{path}")), "{path}: {url:?}");
    }
    let url = index["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap_or_default();
    let core = w.get(url).await.object();
    assert!(core["components"]["schemas"]["io.k8s.api.core.v1.ConfigMap"]["properties"]["data"].is_object());
}

async fn the_openapi_document_of_a_custom_resource_carries_its_schema(w: World) {
    let size = json!({"type": "integer", "format": "int32", "description": "How large it is.", "minimum": 1});
    let widgets = w.install(Definition::with_properties(&w, &json!({"size": size}))).await;
    let path = format!("/openapi/v3/apis/{}", widgets.api_version);
    let document = w
        .until("the OpenAPI document", async || {
            let reply = w.get(&path).await;
            (reply.code == 200 && reply.body["components"]["schemas"].is_object()).then_some(reply.body)
        })
        .await;
    let schemas = document["components"]["schemas"].as_object().expect("schemas");
    let of_widgets = json!([{"group": widgets.group, "version": "v1", "kind": "Widget"}]);
    let widget = schemas.values().find(|schema| schema["x-kubernetes-group-version-kind"] == of_widgets);
    let widget = widget.unwrap_or_else(|| panic!("no Widget in {:?}", schemas.keys()));
    assert_eq!(widget["properties"]["spec"]["properties"]["size"], size);
    assert!(widget["properties"]["metadata"].is_object(), "{widget}");
    assert!(document["paths"][format!("/apis/{}/namespaces/{{namespace}}/widgets", widgets.api_version)].is_object());
}

async fn an_unknown_resource_is_404(w: World) {
    w.get(&w.core("gadgets")).await.refused(404, "NotFound").saying("the server could not find the requested resource");
}

async fn an_unknown_group_is_404(w: World) {
    w.get("/apis/nowhere.example.com/v1").await.code(404);
    w.get("/apis/nowhere.example.com/v1/namespaces/default/gadgets").await.code(404);
}
