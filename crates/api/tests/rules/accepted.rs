//! What users have is accepted as it stands, and gets the defaults that the documentation promises.

use std::path::Path;

use bellwether_api::v1::{PostgresCluster, PostgresClusterSpec};
use bellwether_api::validate::validate;
use rstest::rstest;
use serde_json::{Value, json};

use bellwether_api::testing::refused::backup_manifest;

use super::{SCHEMA, manifest, refusals, stored};

#[rstest]
#[case::nothing(json!({}), json!({ "version": "18", "replicas": 1, "size": "10Gi", "schedule": "0 2 * * *", "retention": "30d" }))]
#[case::the_smallest(
    json!({ "replicas": 3 }),
    json!({ "version": "18", "replicas": 3, "size": "10Gi", "schedule": "0 2 * * *", "retention": "30d" }))]
#[case::the_smallest_with_backup(
    json!({ "replicas": 3, "backup": { "schedule": "0 4 * * *", "retention": "14d" } }),
    json!({ "version": "18", "replicas": 3, "size": "10Gi", "schedule": "0 4 * * *", "retention": "14d" }))]
#[case::half_a_backup(
    json!({ "backup": { "schedule": "0 4 * * *" } }),
    json!({ "version": "18", "replicas": 1, "size": "10Gi", "schedule": "0 4 * * *", "retention": "30d" }))]
#[case::the_first_users(
    json!({ "version": "16", "replicas": 3, "storage": { "size": "100Gi", "storageClass": "ssd" },
            "backup": { "schedule": "0 2 * * *", "retention": "7d" } }),
    json!({ "version": "16", "replicas": 3, "size": "100Gi", "schedule": "0 2 * * *", "retention": "7d" }))]
fn a_small_manifest_gets_safe_defaults(#[case] spec: Value, #[case] wanted: Value) {
    let object = manifest(&spec);
    assert_eq!(refusals(&object, None), [""; 0]);
    let spec = &stored(&object)["spec"];
    let got = json!({
        "version": spec["version"], "replicas": spec["replicas"], "size": spec["storage"]["size"],
        "schedule": spec["backup"]["schedule"], "retention": spec["backup"]["retention"],
    });
    assert_eq!(got, wanted);
    assert_eq!(spec["storage"]["onDelete"], "Retain", "data is never deleted by default");
    assert_eq!(spec["monitoring"]["enabled"], true);
    assert_eq!(spec["scheduling"]["antiAffinity"], "preferred");
    assert_eq!(spec["bootstrap"]["initdb"]["dataChecksums"], true);
}

#[rstest]
#[case("1h")]
#[case("9999y")]
#[case("1 backup")]
#[case("9999 backups")]
#[case("7d and 10 backups")]
fn a_retention_is_a_time_a_number_of_backups_or_both(#[case] retention: &str) {
    let object = manifest(&json!({ "backup": { "retention": retention } }));
    assert_eq!(refusals(&object, None), [""; 0]);
}

#[test]
fn the_types_and_the_schema_have_the_same_defaults() {
    let by_schema = stored(&manifest(&json!({})));
    let by_types = serde_json::to_value(PostgresClusterSpec::default()).expect("a spec is JSON");
    assert_eq!(by_schema["spec"], by_types);
}

#[rstest]
#[case("*/15 1-5/2 1,15 JAN-MAR MON-FRI")]
#[case("0 2 29 2 *")]
#[case("0 2 31 1,2 *")]
#[case("0 2 31 2 SUN")]
#[case("00 02 01 01 0")]
#[case("0  2  *  *  *")]
#[case("0 2 * * sat,sun")]
fn a_schedule_that_fires(#[case] schedule: &str) {
    assert_eq!(refusals(&manifest(&json!({ "backup": { "schedule": schedule } })), None), [""; 0]);
}

#[rstest]
#[case(json!({ "url": "s3://acme" }))]
#[case(json!({ "url": "s3://acme.backups-1/production/pg_17/eu=1/" }))]
#[case(json!({ "url": "gs://acme-backups/pg", "credentials": { "name": "gcs" } }))]
#[case(json!({ "url": "az://backups/pg", "region": "westeurope" }))]
#[case(json!({ "url": "s3://acme/pg", "endpoint": "http://10.0.0.7:9000" }))]
#[case(json!({ "url": "s3://acme/pg", "endpoint": "https://minio.storage.svc/" }))]
#[case(json!({ "url": "az://backups/pg", "endpoint": "https://azurite.storage.svc:10000/devstoreaccount1" }))]
fn a_store_that_can_be_reached(#[case] store: Value) {
    let object = manifest(&json!({ "backup": { "store": store } }));
    assert_eq!(refusals(&object, None), [""; 0]);
    let cluster: PostgresCluster = serde_json::from_value(stored(&object)).expect("it is a PostgresCluster");
    assert_eq!(validate(&cluster), []);
}

/// A Secret is renamed, a store moves: the operator and the agents follow.
#[rstest]
#[case(json!({}), json!({ "url": "s3://acme/pg" }))]
#[case(json!({ "url": "s3://acme/pg" }), json!({ "url": "s3://acme/elsewhere", "credentials": { "name": "s3" } }))]
fn a_store_may_be_named_and_changed_at_any_time(#[case] before: Value, #[case] after: Value) {
    let with = |store: &Value| match store.as_object().is_some_and(serde_json::Map::is_empty) {
        true => manifest(&json!({})),
        false => manifest(&json!({ "backup": { "store": store } })),
    };
    assert_eq!(refusals(&with(&after), Some(&with(&before))), [""; 0]);
    assert_eq!(refusals(&with(&before), Some(&with(&after))), [""; 0]);
}

#[rstest]
#[case::of_a_backup(json!({ "backup": { "name": "orders-20261118-0200" } }))]
#[case::of_a_cluster(json!({ "cluster": { "name": "orders" }, "backupId": "20261118T020000Z", "timeline": "2" }))]
#[case::of_a_store(json!({ "store": { "url": "s3://acme/pg", "credentials": { "name": "s3" } }, "archive": "shop/orders" }))]
#[case::of_a_directory(json!({ "store": { "url": "s3://acme" }, "archive": "7709706039016675119-1b4e28ba-2fa1-11d2-883f-0016d3cca427" }))]
#[case::to_a_time(json!({ "cluster": { "name": "orders" }, "target": { "time": "2026-11-18T14:30:00.25+02:00", "exclusive": true } }))]
#[case::to_a_position(json!({ "cluster": { "name": "orders" }, "target": { "lsn": "16/B374D848" }, "timeline": "current" }))]
#[case::to_a_name(json!({ "cluster": { "name": "orders" }, "target": { "name": "before the drop" } }))]
#[case::to_a_transaction(json!({ "cluster": { "name": "orders" }, "target": { "transaction": 751 } }))]
fn a_recovery_from_one_source_to_one_target(#[case] recovery: Value) {
    let object = manifest(&json!({ "bootstrap": { "initdb": { "database": "shop" }, "recovery": recovery } }));
    assert_eq!(refusals(&object, None), [""; 0]);
    assert_eq!(refusals(&object, Some(&object)), [""; 0], "it may be written again");
    let cluster: PostgresCluster = serde_json::from_value(stored(&object)).expect("it is a PostgresCluster");
    assert_eq!(validate(&cluster), []);
}

#[test]
fn a_backup_of_a_cluster_is_accepted_and_may_be_written_again() {
    let object = backup_manifest(&json!({ "cluster": "orders" }));
    assert_eq!(refusals(&object, None), [""; 0]);
    assert_eq!(refusals(&object, Some(&object)), [""; 0]);
}

#[rstest]
#[case::growing(json!({ "storage": { "size": "10Gi" } }), json!({ "storage": { "size": "20Gi" } }))]
#[case::the_same_in_another_unit(json!({ "storage": { "size": "1Gi" } }), json!({ "storage": { "size": "1024Mi" } }))]
#[case::growing_wal(
    json!({ "storage": { "wal": { "size": "1Gi" } } }), json!({ "storage": { "wal": { "size": "2Gi" } } }))]
#[case::scaling(json!({ "replicas": 3 }), json!({ "replicas": 5 }))]
#[case::deciding_to_delete(json!({}), json!({ "storage": { "onDelete": "Delete" } }))]
#[case::writing_a_default_out(json!({}), json!({ "bootstrap": { "initdb": { "database": "app" } } }))]
fn a_change_that_can_be_made(#[case] before: Value, #[case] after: Value) {
    assert_eq!(refusals(&manifest(&after), Some(&manifest(&before))), [""; 0]);
}

#[rstest]
#[case("minimal")]
#[case("first-users")]
#[case("full")]
#[case("restored")]
fn an_example_is_accepted_and_can_be_acted_on(#[case] name: &str) {
    let object = example(name);
    assert_eq!(refusals(&object, None), [""; 0]);
    let cluster: PostgresCluster = serde_json::from_value(stored(&object)).expect("it is a PostgresCluster");
    assert_eq!(validate(&cluster), []);
}

#[test]
fn the_full_example_shows_every_field() {
    let object = example("full");
    let missing: Vec<_> = bellwether_api::v1::fields::fields()
        .iter()
        .map(|field| field.path)
        .filter(|path| {
            path.starts_with("spec.") && !path.ends_with(']') && !path.ends_with('}') && !path.contains("[]")
        })
        // What makes a new database and what restores one exclude each other: there is another example of that.
        .filter(|path| !path.starts_with("spec.bootstrap.recovery"))
        .filter(|path| object.pointer(&format!("/{}", path.replace('.', "/"))).is_none())
        .collect();
    assert_eq!(missing, [""; 0]);
}

/// An example has no field that the schema doesn't know: the API server would drop it without a word.
#[test]
fn examples_have_no_unknown_fields() {
    for name in ["minimal", "first-users", "full", "restored"] {
        assert_eq!(unknown(&SCHEMA["properties"]["spec"], &example(name)["spec"], "spec"), [""; 0], "{name}");
    }
}

fn unknown(schema: &Value, value: &Value, path: &str) -> Vec<String> {
    match value {
        Value::Object(map) => map
            .iter()
            .flat_map(|(key, value)| {
                let path = format!("{path}.{key}");
                match schema.pointer(&format!("/properties/{key}")).or_else(|| schema.get("additionalProperties")) {
                    Some(schema) => unknown(schema, value, &path),
                    None => vec![path],
                }
            })
            .collect(),
        Value::Array(list) => list.iter().flat_map(|value| unknown(&schema["items"], value, path)).collect(),
        _ => vec![],
    }
}

fn example(name: &str) -> Value {
    let file = Path::new(env!("BELLWETHER_ROOT")).join(format!("deploy/examples/{name}.yaml"));
    let text = std::fs::read_to_string(&file).expect("the example is there");
    serde_saphyr::from_str(&text).expect("the example is YAML")
}
