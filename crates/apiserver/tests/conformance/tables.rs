//! Other shapes of the same objects: tables for people, metadata for caches.

use serde_json::{Value, json};

use crate::custom::Definition;
use crate::runner::cases;
use crate::world::{Patch, World};

cases![
    a_table_of_pods_has_the_columns_people_know,
    a_table_of_a_custom_resource_has_its_printer_columns,
    a_custom_resource_without_columns_shows_name_and_age,
    a_printer_column_may_look_into_a_list,
    rows_carry_metadata_by_default_and_the_object_when_asked,
    a_single_object_is_a_table_of_one_row,
    a_table_is_refused_in_an_unknown_version,
    metadata_alone_is_answered_when_asked,
    a_list_of_metadata_is_answered_when_asked,
    the_first_acceptable_format_wins,
];

const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

fn columns(table: &Value) -> Vec<&str> {
    table["columnDefinitions"].as_array().into_iter().flatten().filter_map(|column| column["name"].as_str()).collect()
}

async fn a_table_of_pods_has_the_columns_people_know(w: World) {
    w.given_pod(&w.pod("a")).await;
    let table = w.get_as(&w.core("pods"), &format!("{TABLE},application/json")).await.code(200).object();
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["apiVersion"], "meta.k8s.io/v1");
    assert_eq!(columns(&table)[..5], ["Name", "Ready", "Status", "Restarts", "Age"]);
    let cells = &table["rows"][0]["cells"];
    assert_eq!((&cells[0], &cells[1], &cells[2]), (&json!("a"), &json!("0/1"), &json!("Pending")), "{cells}");
}

fn columned(w: &World) -> Definition {
    let properties = json!({"version": {"type": "string"}, "replicas": {"type": "integer"}});
    let mut definition = Definition::with_properties(w, &properties);
    definition.version()["additionalPrinterColumns"] = json!([
        {"name": "Version", "type": "string", "jsonPath": ".spec.version", "description": "Its version."},
        {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase", "priority": 1},
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]);
    definition
}

async fn a_table_of_a_custom_resource_has_its_printer_columns(w: World) {
    let widgets = w.install(columned(&w)).await;
    widgets.given(&w, "a", &json!({"version": "17", "replicas": 3})).await;
    let table = w.get_as(&widgets.path, TABLE).await.code(200).object();
    assert_eq!(columns(&table), ["Name", "Version", "Replicas", "Phase", "Ready", "Age"]);
    assert_eq!(table["columnDefinitions"][1]["description"], "Its version.");
    assert_eq!(table["columnDefinitions"][3]["priority"], 1);
    let cells = &table["rows"][0]["cells"];
    assert_eq!(cells[0], "a");
    assert_eq!(cells[1], "17");
    assert_eq!(cells[2], 3);
    assert_eq!(cells[3], Value::Null, "there is no status yet");
    assert!(cells[5].as_str().is_some_and(|age| age.ends_with('s')), "{cells}");
}

async fn a_custom_resource_without_columns_shows_name_and_age(w: World) {
    let widgets = w.install(Definition::with_properties(&w, &json!({}))).await;
    widgets.given(&w, "a", &json!({})).await;
    let table = w.get_as(&widgets.path, TABLE).await.code(200).object();
    assert_eq!(columns(&table), ["Name", "Age"]);
}

async fn a_printer_column_may_look_into_a_list(w: World) {
    let widgets = w.install(columned(&w)).await;
    widgets.given(&w, "a", &json!({})).await;
    let conditions = json!([{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]);
    w.patch(Patch::Merge, &widgets.at("a/status"), &json!({"status": {"conditions": conditions}})).await.code(200);
    let table = w.get_as(&widgets.path, TABLE).await.code(200).object();
    assert_eq!(table["rows"][0]["cells"][4], "True");
}

async fn rows_carry_metadata_by_default_and_the_object_when_asked(w: World) {
    let widgets = w.install(columned(&w)).await;
    widgets.given(&w, "a", &json!({"version": "17"})).await;
    let table = w.get_as(&widgets.path, TABLE).await.object();
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(table["rows"][0]["object"]["metadata"]["name"], "a");
    let table = w.get_as(&format!("{}?includeObject=Object", widgets.path), TABLE).await.object();
    assert_eq!(table["rows"][0]["object"]["spec"]["version"], "17");
    let table = w.get_as(&format!("{}?includeObject=None", widgets.path), TABLE).await.object();
    assert!(table["rows"][0]["object"].is_null(), "{table}");
}

async fn a_single_object_is_a_table_of_one_row(w: World) {
    w.given_config_map("a", &json!({"one": "1", "two": "2"})).await;
    let table = w.get_as(&w.core("configmaps/a"), TABLE).await.code(200).object();
    assert_eq!(columns(&table), ["Name", "Data", "Age"]);
    assert_eq!(table["rows"].as_array().map(Vec::len), Some(1));
    assert_eq!(table["rows"][0]["cells"][1], 2);
}

async fn a_table_is_refused_in_an_unknown_version(w: World) {
    w.get_as(&w.core("configmaps"), "application/json;as=Table;g=meta.k8s.io;v=v9").await.refused(406, "NotAcceptable");
}

async fn metadata_alone_is_answered_when_asked(w: World) {
    let object = w.given_config_map("a", &json!({"k": "v"})).await;
    let partial = w.get_as(&w.core("configmaps/a"), METADATA).await.code(200).object();
    assert_eq!(partial["kind"], "PartialObjectMetadata");
    assert_eq!(partial["apiVersion"], "meta.k8s.io/v1");
    assert_eq!(partial["metadata"], object["metadata"]);
    assert!(partial.get("data").is_none(), "{partial}");
}

async fn a_list_of_metadata_is_answered_when_asked(w: World) {
    w.given_config_map("a", &json!({"k": "v"})).await;
    let list = w.get_as(&w.core("configmaps"), METADATA_LIST).await.code(200).object();
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["metadata"]["name"], "a");
    assert!(list["items"][0].get("data").is_none(), "{list}");
    assert!(list["metadata"]["resourceVersion"].is_string(), "{list}");
}

async fn the_first_acceptable_format_wins(w: World) {
    w.given_config_map("a", &json!({})).await;
    let list = w.get_as(&w.core("configmaps"), "text/csv,application/json").await.code(200).object();
    assert_eq!(list["kind"], "ConfigMapList");
    let list = w.get_as(&w.core("configmaps"), "*/*").await.code(200).object();
    assert_eq!(list["kind"], "ConfigMapList");
}
