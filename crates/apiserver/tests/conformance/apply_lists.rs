//! Server-side apply to lists of built-in kinds: maps by key, sets, and lists that have one owner.

use serde_json::{Value, json};

use crate::custom::Definition;
use crate::reply::owned;
use crate::runner::cases;
use crate::world::World;

cases![
    containers_merge_by_name,
    environment_variables_merge_by_name,
    service_ports_merge_by_port_and_protocol,
    a_dropped_element_is_removed,
    endpoints_have_one_owner,
    one_owner_may_write_the_slice_and_another_its_endpoints,
    finalizers_are_a_set,
    owner_references_merge_by_uid,
    a_plain_list_of_a_custom_resource_has_one_owner,
    a_set_of_a_custom_resource_has_an_owner_for_each_value,
    a_repeated_key_is_refused,
    pod_conditions_merge_by_type,
];

fn pod(spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["schedulerName"] = json!("nobody");
    spec["automountServiceAccountToken"] = json!(false);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec})
}

async fn containers_merge_by_name(w: World) {
    let main = json!({"name": "main", "image": "main:1"});
    w.apply(&w.core("pods/a"), "one", &pod(&json!({"containers": [main, {"name": "side", "image": "side:1"}]})))
        .await
        .code(201);
    let other = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "side", "image": "side:2"}]},
    });
    w.apply(&w.core("pods/a"), "two", &other)
        .await
        .refused(409, "Conflict")
        .saying("Apply failed with 1 conflict: conflict with \"one\": .spec.containers[name=\"side\"].image");
    let object = w.apply_by_force(&w.core("pods/a"), "two", &other).await.code(200).object();
    assert_eq!(object["spec"]["containers"][0]["image"], "main:1");
    assert_eq!(object["spec"]["containers"][1]["image"], "side:2");
}

async fn environment_variables_merge_by_name(w: World) {
    let env = json!([{"name": "ONE", "value": "1"}, {"name": "TWO", "value": "2"}]);
    let body = pod(&json!({"containers": [{"name": "main", "image": "main:1", "env": env}]}));
    let object = w.apply(&w.core("pods/a"), "one", &body).await.code(201).object();
    let fields = owned(&object, "one", "Apply");
    let container = &fields["f:spec"]["f:containers"][r#"k:{"name":"main"}"#];
    assert_eq!(container["f:env"][r#"k:{"name":"TWO"}"#], json!({".": {}, "f:name": {}, "f:value": {}}));
    assert!(container["f:env"].get(".").is_none(), "a list that is a map has no owner of its own: {fields}");
}

fn service(ports: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"clusterIP": "None", "ports": ports}})
}

async fn service_ports_merge_by_port_and_protocol(w: World) {
    let path = w.core("services/a");
    w.apply(&path, "one", &service(&json!([{"name": "x", "port": 1}]))).await.code(201);
    let object = w.apply(&path, "two", &service(&json!([{"name": "y", "port": 2}]))).await.code(200).object();
    let ports: Vec<_> = object["spec"]["ports"].as_array().unwrap().iter().map(|port| port["name"].clone()).collect();
    assert_eq!(ports, ["x", "y"]);
    let fields = owned(&object, "two", "Apply");
    assert!(fields["f:spec"]["f:ports"][r#"k:{"port":2,"protocol":"TCP"}"#].is_object(), "{fields}");
}

async fn a_dropped_element_is_removed(w: World) {
    let path = w.core("services/a");
    w.apply(&path, "one", &service(&json!([{"name": "x", "port": 1}, {"name": "y", "port": 2}]))).await.code(201);
    let object = w.apply(&path, "one", &service(&json!([{"name": "y", "port": 2}]))).await.code(200).object();
    assert_eq!(object["spec"]["ports"].as_array().map(Vec::len), Some(1), "{object}");
    assert_eq!(object["spec"]["ports"][0]["name"], "y");
}

fn slice(rest: &Value) -> Value {
    let mut slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "a"}, "addressType": "IPv4",
    });
    for (key, value) in rest.as_object().expect("an object") {
        slice[key] = value.clone();
    }
    slice
}

async fn endpoints_have_one_owner(w: World) {
    let path = w.group("discovery.k8s.io/v1", "endpointslices/a");
    w.apply(&path, "one", &slice(&json!({"endpoints": [{"addresses": ["10.1.0.1"]}]}))).await.code(201);
    let other = slice(&json!({"endpoints": [{"addresses": ["10.1.0.2"]}]}));
    w.apply(&path, "two", &other)
        .await
        .refused(409, "Conflict")
        .saying("Apply failed with 1 conflict: conflict with \"one\": .endpoints");
    let object = w.apply_by_force(&path, "two", &other).await.code(200).object();
    assert_eq!(object["endpoints"].as_array().map(Vec::len), Some(1), "the list is replaced as one: {object}");
    assert_eq!(object["endpoints"][0]["addresses"], json!(["10.1.0.2"]));
}

async fn one_owner_may_write_the_slice_and_another_its_endpoints(w: World) {
    let path = w.group("discovery.k8s.io/v1", "endpointslices/a");
    let mut frame = slice(&json!({"ports": [{"name": "postgres", "port": 5432, "protocol": "TCP"}]}));
    frame["metadata"]["labels"] = json!({"kubernetes.io/service-name": "a"});
    w.apply(&path, "operator", &frame).await.code(201);
    let endpoints = slice(&json!({"endpoints": [{"addresses": ["10.1.0.1"]}]}));
    w.apply(&path, "agent", &endpoints).await.code(200);
    let object = w.apply(&path, "operator", &frame).await.code(200).object();
    assert_eq!(object["endpoints"][0]["addresses"], json!(["10.1.0.1"]), "the other's list stays");
    assert_eq!(object["ports"][0]["port"], 5432);
}

async fn finalizers_are_a_set(w: World) {
    let path = w.core("configmaps/a");
    let body = |finalizer: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "finalizers": [finalizer]}});
    w.apply(&path, "one", &body("example.com/one")).await.code(201);
    let object = w.apply(&path, "two", &body("example.com/two")).await.code(200).object();
    assert_eq!(object["metadata"]["finalizers"], json!(["example.com/one", "example.com/two"]));
    let none = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let object = w.apply(&path, "one", &none).await.code(200).object();
    assert_eq!(object["metadata"]["finalizers"], json!(["example.com/two"]));
    let object = w.apply(&path, "two", &none).await.code(200).object();
    assert!(object["metadata"].get("finalizers").is_none(), "{object}");
}

async fn owner_references_merge_by_uid(w: World) {
    let path = w.core("configmaps/a");
    let body = |uid: &str| {
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "ownerReferences": [owner]}})
    };
    // Real owners: on a server with controllers, a reference to nothing has the dependent collected.
    let mut uids = vec![];
    for name in ["owner", "owner-two"] {
        uids.push(crate::reply::uid(&w.given_config_map(name, &json!({})).await));
    }
    let mut second = body(&uids[1]);
    second["metadata"]["ownerReferences"][0]["name"] = json!("owner-two");
    w.apply(&path, "one", &body(&uids[0])).await.code(201);
    let object = w.apply(&path, "two", &second).await.code(200).object();
    assert_eq!(object["metadata"]["ownerReferences"].as_array().map(Vec::len), Some(2), "{object}");
    let fields = owned(&object, "two", "Apply");
    assert!(
        fields["f:metadata"]["f:ownerReferences"][format!("k:{{\"uid\":\"{}\"}}", uids[1])].is_object(),
        "{fields}"
    );
}

async fn a_plain_list_of_a_custom_resource_has_one_owner(w: World) {
    let properties = json!({"tags": {"type": "array", "items": {"type": "string"}}});
    let widgets = w.install(Definition::with_properties(&w, &properties)).await;
    w.apply(&widgets.at("a"), "one", &widgets.object("a", &json!({"tags": ["x"]}))).await.code(201);
    w.apply(&widgets.at("a"), "two", &widgets.object("a", &json!({"tags": ["y"]})))
        .await
        .refused(409, "Conflict")
        .saying("Apply failed with 1 conflict: conflict with \"one\": .spec.tags");
}

async fn a_set_of_a_custom_resource_has_an_owner_for_each_value(w: World) {
    let properties = json!({"tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}});
    let widgets = w.install(Definition::with_properties(&w, &properties)).await;
    w.apply(&widgets.at("a"), "one", &widgets.object("a", &json!({"tags": ["x"]}))).await.code(201);
    let object =
        w.apply(&widgets.at("a"), "two", &widgets.object("a", &json!({"tags": ["y"]}))).await.code(200).object();
    assert_eq!(object["spec"]["tags"], json!(["x", "y"]));
    assert_eq!(owned(&object, "two", "Apply"), json!({"f:spec": {"f:tags": {"v:\"y\"": {}}}}));
    let object = w.apply(&widgets.at("a"), "one", &widgets.object("a", &json!({}))).await.code(200).object();
    assert_eq!(object["spec"]["tags"], json!(["y"]));
}

async fn a_repeated_key_is_refused(w: World) {
    let body = pod(&json!({"containers": [{"name": "main", "image": "x"}, {"name": "main", "image": "y"}]}));
    let refusal = w.apply(&w.core("pods/a"), "one", &body).await;
    assert!(refusal.code >= 400, "{}", refusal.describe());
    let message = refusal.body["message"].as_str().unwrap_or_default().to_lowercase();
    assert!(message.contains("duplicate"), "{}", refusal.describe());
}

async fn pod_conditions_merge_by_type(w: World) {
    w.given_pod(&w.pod("a")).await;
    let body = |kind: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
            "status": {"conditions": [{"type": kind, "status": "True"}]},
        })
    };
    w.apply(&w.core("pods/a/status"), "one", &body("example.com/One")).await.code(200);
    let object = w.apply(&w.core("pods/a/status"), "two", &body("example.com/Two")).await.code(200).object();
    let types: Vec<_> = object["status"]["conditions"].as_array().unwrap().iter().map(|c| c["type"].clone()).collect();
    assert!(types.contains(&json!("example.com/One")) && types.contains(&json!("example.com/Two")), "{types:?}");
}
