//! CustomResourceDefinitions: how a kind comes, changes and goes, and what is stored of its objects.

use serde_json::{Value, json};

use crate::custom::Definition;
use crate::reply::{names, version};
use crate::runner::cases;
use crate::world::{Patch, World};

cases![
    a_definition_becomes_established,
    unknown_fields_are_pruned,
    unknown_fields_stay_where_the_schema_says_so,
    metadata_of_a_custom_resource_is_checked,
    defaults_are_filled_in_and_stored,
    nested_defaults_need_their_parent,
    an_explicit_null_takes_the_default,
    a_default_is_owned_by_nobody,
    two_versions_are_served_from_one_store,
    a_version_that_is_not_served_is_404,
    a_definition_without_a_schema_is_refused,
    a_definition_with_a_wrong_name_is_refused,
    a_schema_that_is_not_structural_is_refused,
    a_default_that_breaks_its_own_schema_is_refused,
    a_rule_that_does_not_compile_is_refused,
    a_definition_needs_exactly_one_stored_version,
    a_changed_schema_takes_effect,
    deleting_a_definition_deletes_its_objects,
    a_cluster_scoped_kind_has_no_namespace,
];

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn a_definition_becomes_established(w: World) {
    let widgets = w.install(Definition::with_properties(&w, &json!({}))).await;
    let definition = w.get(&widgets.definition).await.object();
    let condition = |kind: &str| {
        let conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().find(|condition| condition["type"] == kind).map(|condition| condition["status"].clone())
    };
    assert_eq!(condition("Established"), Some(json!("True")), "{definition}");
    assert_eq!(condition("NamesAccepted"), Some(json!("True")), "{definition}");
    assert_eq!(definition["status"]["acceptedNames"]["kind"], "Widget");
    assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(definition["spec"]["conversion"], json!({"strategy": "None"}));
}

async fn unknown_fields_are_pruned(w: World) {
    let properties = json!({"known": {"type": "object", "properties": {"inner": {"type": "string"}}}});
    let widgets = w.install(Definition::with_properties(&w, &properties)).await;
    let mut body = widgets.object("a", &json!({"known": {"inner": "x", "stray": 1}, "stray": {"a": 1}}));
    body["stray"] = json!("x");
    let object = w.post(&widgets.path, &body).await.code(201).object();
    assert_eq!(object["spec"], json!({"known": {"inner": "x"}}));
    assert!(object.get("stray").is_none(), "{object}");
}

async fn unknown_fields_stay_where_the_schema_says_so(w: World) {
    let free = json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"strict": {"type": "object", "properties": {"a": {"type": "integer"}}}},
    });
    let widgets = w.install(Definition::with_properties(&w, &json!({"free": free}))).await;
    let object = widgets.given(&w, "a", &json!({"free": {"any": [1, {"b": 2}], "strict": {"a": 1, "b": 2}}})).await;
    assert_eq!(object["spec"]["free"], json!({"any": [1, {"b": 2}], "strict": {"a": 1}}), "pruning resumes below");
}

async fn metadata_of_a_custom_resource_is_checked(w: World) {
    let widgets = w.install(Definition::with_properties(&w, &json!({}))).await;
    w.post(&widgets.path, &widgets.object("Bad_Name", &json!({})))
        .await
        .refused(422, "Invalid")
        .mentioning(&["metadata.name: Invalid value: \"Bad_Name\": a lowercase RFC 1123 subdomain must consist of"]);
    let mut body = widgets.object("a", &json!({}));
    body["metadata"]["labels"] = json!({"l": 7});
    let refusal = w.post(&widgets.path, &body).await;
    assert!(refusal.code >= 400, "a label is a string: {}", refusal.describe());
}

async fn defaults_are_filled_in_and_stored(w: World) {
    let properties = json!({
        "size": {"type": "string", "default": "10Gi"},
        "count": {"type": "integer", "default": 3},
        "on": {"type": "boolean", "default": true},
        "inner": {"type": "object", "default": {}, "properties": {"mode": {"type": "string", "default": "fast"}}},
    });
    let widgets = w.install(Definition::with_properties(&w, &properties)).await;
    let object = widgets.given(&w, "a", &json!({"count": 5})).await;
    assert_eq!(object["spec"], json!({"size": "10Gi", "count": 5, "on": true, "inner": {"mode": "fast"}}));
    assert_eq!(w.get(&widgets.at("a")).await.object()["spec"], object["spec"]);
}

async fn nested_defaults_need_their_parent(w: World) {
    let inner = json!({"type": "object", "properties": {"mode": {"type": "string", "default": "fast"}}});
    let widgets = w.install(Definition::with_properties(&w, &json!({"inner": inner}))).await;
    assert_eq!(widgets.given(&w, "a", &json!({})).await["spec"], json!({}));
    assert_eq!(widgets.given(&w, "b", &json!({"inner": {}})).await["spec"], json!({"inner": {"mode": "fast"}}));
}

async fn an_explicit_null_takes_the_default(w: World) {
    let widgets = w.install(Definition::with_properties(&w, &json!({"size": {"type": "integer", "default": 3}}))).await;
    assert_eq!(widgets.given(&w, "a", &json!({"size": null})).await["spec"], json!({"size": 3}));
}

async fn a_default_is_owned_by_nobody(w: World) {
    let properties = json!({"size": {"type": "integer", "default": 3}, "name": {"type": "string"}});
    let widgets = w.install(Definition::with_properties(&w, &properties)).await;
    let object = w.apply(&widgets.at("a"), "one", &widgets.object("a", &json!({"name": "x"}))).await.code(201).object();
    assert_eq!(object["spec"]["size"], 3);
    assert_eq!(crate::reply::owned(&object, "one", "Apply"), json!({"f:spec": {"f:name": {}}}));
    w.apply(&widgets.at("a"), "two", &widgets.object("a", &json!({"size": 4}))).await.code(200);
}

async fn two_versions_are_served_from_one_store(w: World) {
    let mut definition = Definition::with_properties(&w, &json!({"size": {"type": "integer"}}));
    let mut older = definition.version().clone();
    older["name"] = json!("v1beta1");
    older["storage"] = json!(false);
    older["deprecated"] = json!(true);
    definition.body["spec"]["versions"].as_array_mut().expect("versions").push(older);
    let widgets = w.install(definition).await;
    let created = widgets.given(&w, "a", &json!({"size": 1})).await;
    let old = format!("{}/v1beta1", widgets.group);
    let reply = w.get(&w.group(&old, "widgets/a")).await.code(200);
    assert_eq!(reply.warnings(), [format!("{old} Widget is deprecated; use {} Widget", widgets.api_version)]);
    let seen = reply.object();
    assert_eq!(seen["apiVersion"], old);
    assert_eq!((&seen["spec"], version(&seen)), (&created["spec"], version(&created)));
    w.patch(Patch::Merge, &w.group(&old, "widgets/a"), &json!({"spec": {"size": 2}})).await.code(200);
    assert_eq!(w.get(&widgets.at("a")).await.object()["spec"]["size"], 2);
}

async fn a_version_that_is_not_served_is_404(w: World) {
    let mut definition = Definition::with_properties(&w, &json!({}));
    let mut unserved = definition.version().clone();
    unserved["name"] = json!("v2");
    unserved["storage"] = json!(false);
    unserved["served"] = json!(false);
    definition.body["spec"]["versions"].as_array_mut().expect("versions").push(unserved);
    let widgets = w.install(definition).await;
    w.get(&w.group(&format!("{}/v2", widgets.group), "widgets")).await.code(404);
}

async fn refused_definition(w: &World, change: impl FnOnce(&mut Value)) -> crate::reply::Reply {
    let mut definition = Definition::with_properties(w, &json!({"size": {"type": "integer"}}));
    change(&mut definition.body);
    let reply = w.post(DEFINITIONS, &definition.body).await;
    if reply.code == 201 {
        w.discard(format!("{DEFINITIONS}/{}", crate::reply::name(&reply.body)));
    }
    reply.refused(422, "Invalid")
}

async fn a_definition_without_a_schema_is_refused(w: World) {
    let refusal = refused_definition(&w, |body| body["spec"]["versions"][0]["schema"] = Value::Null).await;
    refusal.mentioning(&["spec.versions[0].schema.openAPIV3Schema: Required value"]);
}

async fn a_definition_with_a_wrong_name_is_refused(w: World) {
    let refusal = refused_definition(&w, |body| body["metadata"]["name"] = json!("gadgets.example.com")).await;
    refusal.mentioning(&[
        "metadata.name: Invalid value: \"gadgets.example.com\": must be spec.names.plural+\".\"+spec.group",
    ]);
}

fn size(body: &mut Value) -> &mut Value {
    &mut body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["size"]
}

async fn a_schema_that_is_not_structural_is_refused(w: World) {
    let refusal = refused_definition(&w, |body| *size(body) = json!({"description": "no type"})).await;
    refusal.mentioning(&[
        "properties[spec].properties[size].type: Required value: must not be empty for specified object fields",
    ]);
}

async fn a_default_that_breaks_its_own_schema_is_refused(w: World) {
    let refusal =
        refused_definition(&w, |body| *size(body) = json!({"type": "integer", "minimum": 5, "default": 1})).await;
    refusal.mentioning(&["properties[size].default: Invalid value: 1", "should be greater than or equal to 5"]);
}

async fn a_rule_that_does_not_compile_is_refused(w: World) {
    let rules = json!([{"rule": "self.nothing > 1"}]);
    let refusal =
        refused_definition(&w, |body| *size(body) = json!({"type": "integer", "x-kubernetes-validations": rules}))
            .await;
    refusal.mentioning(&["properties[size].x-kubernetes-validations[0].rule: Invalid value:", "compilation failed"]);
}

async fn a_definition_needs_exactly_one_stored_version(w: World) {
    let refusal = refused_definition(&w, |body| body["spec"]["versions"][0]["storage"] = json!(false)).await;
    refusal.mentioning(&["spec.versions: Invalid value", "must have exactly one version marked as storage version"]);
}

async fn a_changed_schema_takes_effect(w: World) {
    let widgets = w.install(Definition::with_properties(&w, &json!({"size": {"type": "integer"}}))).await;
    let patch = json!([{
        "op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/colour",
        "value": {"type": "string", "default": "red"},
    }]);
    w.patch(Patch::Json, &widgets.definition, &patch).await.code(200);
    let dry = format!("{}?dryRun=All", widgets.path);
    w.until("the new default", async || {
        let object = w.post(&dry, &widgets.object("a", &json!({}))).await.object();
        (object["spec"]["colour"] == "red").then_some(())
    })
    .await;
}

async fn deleting_a_definition_deletes_its_objects(w: World) {
    let definition = Definition::with_properties(&w, &json!({}));
    let widgets = w.install(definition.clone()).await;
    widgets.given(&w, "a", &json!({})).await;
    w.delete(&widgets.definition).await.code(200);
    w.until("the definition to go", async || (w.get(&widgets.definition).await.code == 404).then_some(())).await;
    w.until("the kind to go", async || (w.get(&widgets.path).await.code == 404).then_some(())).await;
    let widgets = w.install(definition).await;
    assert!(names(&w.get(&widgets.path).await.object()).is_empty());
}

async fn a_cluster_scoped_kind_has_no_namespace(w: World) {
    let mut definition = Definition::with_properties(&w, &json!({}));
    definition.body["spec"]["scope"] = json!("Cluster");
    w.post(DEFINITIONS, &definition.body).await.code(201);
    let name = crate::reply::name(&definition.body);
    w.discard(format!("{DEFINITIONS}/{name}"));
    let group = definition.body["spec"]["group"].as_str().unwrap_or_default();
    let path = format!("/apis/{group}/v1/widgets");
    w.until("the kind to be served", async || (w.get(&path).await.code == 200).then_some(())).await;
    let body = json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": "a"}});
    let object = w.post(&path, &body).await.code(201).object();
    assert!(object["metadata"].get("namespace").is_none(), "{object}");
    w.get(&w.group(&format!("{group}/v1"), "widgets/a")).await.code(404);
}
