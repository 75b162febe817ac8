//! The shape of the CRD: what `kubectl` shows, what the API server checks by itself, and that nothing is left undescribed.

use bellwether_api::v1::fields::{OnChange, backup_fields, fields};
use bellwether_api::{v1, versions};
use rstest::rstest;
use serde_json::{Value, json};

use super::{BACKUP_SCHEMA, SCHEMA};

#[test]
fn the_printer_columns_are_those_of_the_documentation() {
    let crd = v1::crd();
    let columns = crd.spec.versions[0].additional_printer_columns.clone().expect("there are columns");
    let shown: Vec<_> =
        columns.iter().filter(|column| column.priority.unwrap_or(0) == 0).map(|column| column.name.as_str()).collect();
    assert_eq!(shown, ["Version", "Replicas", "Ready", "Primary", "Phase", "Last backup", "Age"]);
}

#[test]
fn names_and_subresources() {
    let crd = v1::crd();
    assert_eq!(crd.spec.names.short_names, Some(vec!["pgc".to_owned()]));
    assert_eq!(crd.spec.names.categories, Some(vec!["all".to_owned(), "bellwether".to_owned()]));
    let subresources = crd.spec.versions[0].subresources.clone().expect("there are subresources");
    assert!(subresources.status.is_some());
    let scale = subresources.scale.expect("it scales");
    assert_eq!(scale.spec_replicas_path, ".spec.replicas");
    assert_eq!(scale.status_replicas_path, ".status.replicas");
    assert_eq!(scale.label_selector_path.as_deref(), Some(".status.selector"));
}

#[rstest]
#[case("spec.replicas", "type", json!("integer"))]
#[case("spec.replicas", "minimum", json!(1.0))]
#[case("spec.replicas", "maximum", json!(10.0))]
#[case("spec.version", "type", json!("string"))]
#[case("spec.version", "enum", json!(["15", "16", "17", "18"]))]
#[case("spec.version", "default", json!("18"))]
#[case("status.conditions", "x-kubernetes-list-type", json!("map"))]
#[case("status.conditions", "x-kubernetes-list-map-keys", json!(["type"]))]
#[case("status.instances", "x-kubernetes-list-map-keys", json!(["name"]))]
fn what_the_api_server_checks_by_itself(#[case] path: &str, #[case] keyword: &str, #[case] wanted: Value) {
    assert_eq!(v1::at(&SCHEMA, path).expect("the field exists")[keyword], wanted);
}

#[test]
fn the_default_version_is_the_newest_tested() {
    let newest =
        versions::SUPPORTED.iter().rfind(|version| version.tested != versions::Tested::Not).expect("one is tested");
    assert_eq!(versions::DEFAULT, newest.major);
}

#[test]
fn every_field_of_the_spec_is_in_the_table() {
    let table = fields();
    let missing: Vec<_> = own_fields(&SCHEMA["properties"]["spec"], "spec")
        .into_iter()
        .filter(|path| !table.iter().any(|field| field.path == path))
        .collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn every_field_says_what_it_does_and_what_changing_it_does() {
    for field in fields().iter().filter(|field| field.path.starts_with("spec.")) {
        let description = v1::at(&SCHEMA, field.path).and_then(|node| node["description"].as_str()).unwrap_or_default();
        if field.on_change != OnChange::Group {
            assert!(description.ends_with(field.on_change.sentence()), "{}: {description}", field.path);
            assert!(
                description.len() > field.on_change.sentence().len() + 10,
                "{} says nothing: {description}",
                field.path
            );
        }
    }
}

#[test]
fn of_a_backup_every_field_is_in_the_table_described_and_bounded() {
    let table = backup_fields();
    for path in own_fields(&BACKUP_SCHEMA["properties"]["spec"], "spec") {
        let field =
            table.iter().find(|field| field.path == path).unwrap_or_else(|| panic!("{path} is not in the table"));
        let node = v1::at(&BACKUP_SCHEMA, &path).expect("it was found there");
        assert!(node["description"].as_str().unwrap_or_default().ends_with(field.on_change.sentence()), "{node}");
        let bounded = node["type"] == "boolean" || node.get("maxLength").is_some();
        assert!(bounded, "{path} has no bound: {node}");
    }
}

#[test]
fn every_definition_is_installed() {
    let names: Vec<_> = v1::crds().into_iter().map(|crd| crd.metadata.name.expect("it has one")).collect();
    assert_eq!(names, ["postgresclusters.bellwether.dev", "backups.bellwether.dev"]);
    let backup = v1::backup_crd();
    assert!(backup.spec.versions[0].subresources.as_ref().is_some_and(|sub| sub.status.is_some()));
    let columns = backup.spec.versions[0].additional_printer_columns.clone().expect("there are columns");
    let shown: Vec<_> =
        columns.iter().filter(|column| column.priority.unwrap_or(0) == 0).map(|column| column.name.as_str()).collect();
    assert_eq!(shown, ["Cluster", "Phase", "Instance", "Size", "Stored", "Verified", "RTO", "Duration", "Age"]);
}

/// The derive puts the comment of an optional field's type in place of the field's own, unless it is told otherwise.
#[rstest]
#[case("spec.resources", "CPU and memory of each instance")]
#[case("spec.storage.wal", "Gives the write-ahead log a volume of its own")]
#[case("spec.scheduling.affinity", "Further affinity rules")]
#[case("spec.durability.mode", "`quorum`: a commit is acknowledged once")]
#[case("spec.bootstrap.initdb.ownerPassword", "The key of a Secret")]
#[case("status.phase", "Where the cluster is in its life")]
#[case("status.durability", "The durability in force")]
#[case("status.operation", "What is running now")]
#[case("status.lastBackup", "When the last base backup was completed")]
fn a_field_is_described_by_its_own_comment(#[case] path: &str, #[case] beginning: &str) {
    let description = v1::at(&SCHEMA, path).and_then(|node| node["description"].as_str()).unwrap_or_default();
    assert!(description.starts_with(beginning), "{path}: {description}");
}

#[test]
fn everything_that_a_rule_reads_has_a_bound() {
    for path in own_fields(&SCHEMA["properties"]["spec"], "spec") {
        let node = v1::at(&SCHEMA, &path).expect("it was found there");
        let bounded = match node["type"].as_str() {
            Some("string") => node.get("maxLength").is_some() || node.get("enum").is_some(),
            Some("array") => node.get("maxItems").is_some(),
            Some("object") => node.get("properties").is_some() || node.get("maxProperties").is_some(),
            _ => true,
        };
        assert!(bounded, "{path} has no bound: {node}");
    }
}

/// The fields of the spec that are ours to describe. What is Kubernetes' own stops at its first level.
fn own_fields(node: &Value, path: &str) -> Vec<String> {
    let kubernetes = ["affinity", "tolerations", "topologySpreadConstraints"];
    let mut found = vec![];
    if let Some(properties) = node["properties"].as_object() {
        for (name, child) in properties {
            let path = format!("{path}.{name}");
            if !kubernetes.contains(&name.as_str()) {
                found.extend(own_fields(child, &path));
            }
            found.push(path);
        }
    }
    if node["items"].is_object() {
        found.extend(own_fields(&node["items"], &format!("{path}[]")));
    }
    found
}
