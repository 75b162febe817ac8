//! Our own kind: its definition is accepted by the server, good manifests are too, and bad ones are refused with a message
//! that names the field, the value and the fix.
//!
//! Each case installs the definition under a group of its own, so that a cluster that already runs Bellwether is not touched.

use serde_json::{Value, json};

use crate::runner::cases;
use crate::world::{Patch, World};

cases![
    our_definition_is_accepted_as_it_is,
    our_kind_is_discovered_by_its_short_name,
    the_smallest_manifest_is_accepted_and_gets_defaults,
    the_smallest_manifest_with_a_backup_is_accepted,
    the_manifest_of_our_first_users_is_accepted,
    the_full_example_is_accepted,
    no_replicas_are_refused,
    too_many_replicas_are_refused,
    replicas_in_words_are_refused,
    an_unsupported_version_is_refused,
    a_version_that_is_no_version_is_refused,
    a_schedule_of_four_fields_is_refused,
    a_schedule_that_never_fires_is_refused,
    a_retention_in_words_is_refused,
    shrinking_storage_is_refused,
    an_owned_parameter_is_refused,
    an_immutable_field_is_refused,
    our_columns_are_shown_to_people,
    our_scale_is_bounded_like_replicas,
];

/// The kind, installed under the case's own group.
struct Clusters {
    path: String,
    api_version: String,
}

impl Clusters {
    async fn install(w: &World) -> Self {
        let group = format!("{}.conformance.example.com", w.id);
        let mut body = definition();
        body["metadata"]["name"] = json!(format!("postgresclusters.{group}"));
        body["spec"]["group"] = json!(group);
        let path = w.group(&format!("{group}/v1"), "postgresclusters");
        let name = format!("{DEFINITIONS}/postgresclusters.{group}");
        w.post(DEFINITIONS, &body).await.code(201);
        w.discard(name);
        w.until("our kind to be served", async || (w.get(&path).await.code == 200).then_some(())).await;
        Self { path, api_version: format!("{group}/v1") }
    }

    fn manifest(&self, spec: &Value) -> Value {
        json!({"apiVersion": self.api_version, "kind": "PostgresCluster", "metadata": {"name": "orders"}, "spec": spec})
    }
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn definition() -> Value {
    let mut body = serde_json::to_value(bellwether_api::v1::crd()).expect("a definition is JSON");
    body["apiVersion"] = json!("apiextensions.k8s.io/v1");
    body["kind"] = json!("CustomResourceDefinition");
    body
}

/// Demands that a new cluster with this spec is refused, and that one message names all three.
async fn refuses(w: &World, spec: &Value, field: &str, value: &str, fix: &str) {
    let clusters = Clusters::install(w).await;
    let reply = w.post(&clusters.path, &clusters.manifest(spec)).await.refused(422, "Invalid");
    reply.mentioning(&[field, value, fix]);
}

/// Demands that this change of an existing cluster is refused, and that one message names all three.
async fn refuses_change(w: &World, before: &Value, change: &Value, field: &str, value: &str, fix: &str) {
    let clusters = Clusters::install(w).await;
    w.post(&clusters.path, &clusters.manifest(before)).await.code(201);
    let path = format!("{}/orders", clusters.path);
    let reply = w.patch(Patch::Merge, &path, &json!({"spec": change})).await.refused(422, "Invalid");
    reply.mentioning(&[field, value, fix]);
}

/// Demands that this spec is accepted, and yields it as it is stored.
async fn accepts(w: &World, spec: &Value) -> Value {
    let clusters = Clusters::install(w).await;
    let path = format!("{}?fieldValidation=Strict", clusters.path);
    w.post(&path, &clusters.manifest(spec)).await.code(201).object()["spec"].clone()
}

async fn our_definition_is_accepted_as_it_is(w: World) {
    // Dry, and by apply: whether or not the cluster already has it, it is validated in full and stays as it was.
    let path = format!("{DEFINITIONS}/postgresclusters.bellwether.dev?dryRun=All&force=true&fieldManager=conformance");
    let reply = w.patch(Patch::Apply, &path, &definition()).await;
    assert!(reply.code == 200 || reply.code == 201, "{}", reply.describe());
}

async fn our_kind_is_discovered_by_its_short_name(w: World) {
    let clusters = Clusters::install(&w).await;
    let resource = w
        .until("our kind to be discovered", async || {
            let list = w.get(&format!("/apis/{}", clusters.api_version)).await.body;
            list["resources"].as_array()?.iter().find(|resource| resource["name"] == "postgresclusters").cloned()
        })
        .await;
    assert_eq!(resource["shortNames"], json!(["pgc"]));
    assert_eq!(resource["kind"], "PostgresCluster");
    assert!(resource["categories"].as_array().is_some_and(|names| names.contains(&json!("all"))), "{resource}");
}

async fn the_smallest_manifest_is_accepted_and_gets_defaults(w: World) {
    let spec = accepts(&w, &json!({"replicas": 3})).await;
    assert_eq!(spec["version"], bellwether_api::versions::DEFAULT);
    assert_eq!(spec["replicas"], 3);
    assert_eq!(spec["storage"], json!({"size": "10Gi", "onDelete": "Retain"}));
    assert_eq!(spec["backup"]["retention"], "30d");
}

async fn the_smallest_manifest_with_a_backup_is_accepted(w: World) {
    let spec = accepts(&w, &json!({"replicas": 3, "backup": {"schedule": "0 4 * * *", "retention": "14d"}})).await;
    assert_eq!((&spec["backup"]["schedule"], &spec["backup"]["retention"]), (&json!("0 4 * * *"), &json!("14d")));
    assert_eq!(spec["backup"]["verification"], json!({"policy": "scheduled"}));
}

async fn the_manifest_of_our_first_users_is_accepted(w: World) {
    let spec = json!({
        "version": "16", "replicas": 3, "storage": {"size": "100Gi", "storageClass": "ssd"},
        "backup": {"schedule": "0 2 * * *", "retention": "7d"},
    });
    let stored = accepts(&w, &spec).await;
    assert_eq!(stored["version"], "16");
    assert_eq!(stored["storage"]["storageClass"], "ssd");
}

async fn the_full_example_is_accepted(w: World) {
    let file = std::path::Path::new(env!("BELLWETHER_ROOT")).join("deploy/examples/full.yaml");
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let example: Value = serde_saphyr::from_str(&text).expect("the example is YAML");
    let stored = accepts(&w, &example["spec"]).await;
    for (field, written) in example["spec"].as_object().expect("a spec") {
        assert!(!stored[field].is_null(), "{field}: {written} was dropped");
    }
}

async fn no_replicas_are_refused(w: World) {
    refuses(&w, &json!({"replicas": 0}), "spec.replicas", "0", "should be greater than or equal to 1").await;
}

async fn too_many_replicas_are_refused(w: World) {
    refuses(&w, &json!({"replicas": 11}), "spec.replicas", "11", "should be less than or equal to 10").await;
}

async fn replicas_in_words_are_refused(w: World) {
    refuses(&w, &json!({"replicas": "three"}), "spec.replicas", "string", "must be of type integer").await;
}

async fn an_unsupported_version_is_refused(w: World) {
    let fix = "supported values: \"15\", \"16\", \"17\", \"18\"";
    refuses(&w, &json!({"version": "13"}), "spec.version", "\"13\"", fix).await;
}

async fn a_version_that_is_no_version_is_refused(w: World) {
    refuses(&w, &json!({"version": "latest"}), "spec.version", "\"latest\"", "supported values: \"15\"").await;
}

async fn a_schedule_of_four_fields_is_refused(w: World) {
    let spec = json!({"backup": {"schedule": "0 2 * *"}});
    refuses(&w, &spec, "spec.backup.schedule", "\"0 2 * *\"", "doesn't have five fields").await;
}

async fn a_schedule_that_never_fires_is_refused(w: World) {
    let spec = json!({"backup": {"schedule": "0 2 31 2 *"}});
    refuses(&w, &spec, "spec.backup.schedule", "\"0 2 31 2 *\"", "choose a day that the month has").await;
}

async fn a_retention_in_words_is_refused(w: World) {
    let spec = json!({"backup": {"retention": "7 days"}});
    refuses(&w, &spec, "spec.backup.retention", "\"7 days\"", "such as 7d").await;
}

async fn shrinking_storage_is_refused(w: World) {
    let (before, change) = (json!({"storage": {"size": "100Gi"}}), json!({"storage": {"size": "50Gi"}}));
    refuses_change(&w, &before, &change, "spec.storage.size", "\"50Gi\" (was \"100Gi\")", "set it back or raise it")
        .await;
}

async fn an_owned_parameter_is_refused(w: World) {
    let spec = json!({"parameters": {"work_mem": "64MB", "port": "6543"}});
    refuses(&w, &spec, "spec.parameters.port", "\"6543\"", "connect through the Services").await;
}

async fn an_immutable_field_is_refused(w: World) {
    let before = json!({"storage": {"storageClass": "ssd"}});
    let change = json!({"storage": {"storageClass": "disk"}});
    refuses_change(&w, &before, &change, "spec.storage.storageClass", "\"disk\" (was \"ssd\")", "set it back").await;
}

async fn our_columns_are_shown_to_people(w: World) {
    let clusters = Clusters::install(&w).await;
    w.post(&clusters.path, &clusters.manifest(&json!({"replicas": 3}))).await.code(201);
    let table = w.get_as(&clusters.path, "application/json;as=Table;g=meta.k8s.io;v=v1").await.code(200).object();
    let definitions = table["columnDefinitions"].as_array().into_iter().flatten();
    let columns: Vec<_> = definitions.filter(|c| c["priority"] == 0).filter_map(|c| c["name"].as_str()).collect();
    assert_eq!(columns, ["Name", "Version", "Replicas", "Ready", "Primary", "Phase", "Last backup", "Age"]);
}

async fn our_scale_is_bounded_like_replicas(w: World) {
    let clusters = Clusters::install(&w).await;
    w.post(&clusters.path, &clusters.manifest(&json!({"replicas": 3}))).await.code(201);
    let path = format!("{}/orders/scale", clusters.path);
    assert_eq!(w.get(&path).await.code(200).object()["spec"]["replicas"], 3);
    let scaled = w.patch(Patch::Merge, &path, &json!({"spec": {"replicas": 5}})).await.code(200).object();
    assert_eq!(scaled["spec"]["replicas"], 5);
    w.patch(Patch::Merge, &path, &json!({"spec": {"replicas": 11}})).await.refused(422, "Invalid").mentioning(&[
        "spec.replicas",
        "11",
        "should be less than or equal to 10",
    ]);
}
