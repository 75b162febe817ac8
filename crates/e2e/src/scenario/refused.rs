//! Bad manifests are refused by the real API server, with a message that names the field, the value and the fix.

use serde_json::{Value, json};

use crate::failure::{Outcome, ensure};
use crate::world::World;

pub fn table(world: &World) -> Outcome {
    let namespace = world.namespace("refused")?;
    for (spec, words) in new_ones() {
        refused(
            &namespace.kubectl(["apply", "-f", "-"]).input(namespace.manifest("bad", &spec).to_string()).go(),
            &spec,
            words,
        )?;
    }
    // Nobody acts on it, but it is there: a cluster whose image does not exist.
    namespace
        .cluster("good", &json!({"image": "bellwether.test/none:1", "replicas": 1, "storage": {"size": "2Gi"}}))?;
    for (spec, words) in changes() {
        let change = json!({"spec": spec}).to_string();
        let patched = namespace.kubectl(["patch", "postgrescluster", "good", "--type=merge", "-p", &change]).go();
        refused(&patched, &spec, words)?;
    }
    Ok(())
}

fn refused(outcome: &Result<(), harness::Error>, spec: &Value, words: &[&str]) -> Outcome {
    let said = outcome.as_ref().err().map(ToString::to_string).unwrap_or_default();
    ensure(words.iter().all(|word| said.contains(word)), || format!("{spec}: wanted {words:?}, seen {said:?}"))
}

type Row = (Value, &'static [&'static str]);

fn new_ones() -> Vec<Row> {
    vec![
        (json!({"replicas": 0}), &["spec.replicas", "0", "greater than or equal to 1"]),
        (json!({"replicas": 11}), &["spec.replicas", "11", "less than or equal to 10"]),
        (json!({"replicas": "three"}), &["spec.replicas", "integer"]),
        (json!({"version": "13"}), &["spec.version", "13", "supported values"]),
        (json!({"version": "latest"}), &["spec.version", "latest", "supported values"]),
        (json!({"backup": {"schedule": "0 2 * *"}}), &["spec.backup.schedule", "\"0 2 * *\"", "five fields"]),
        (json!({"backup": {"schedule": "0 2 31 2 *"}}), &["spec.backup.schedule", "choose a day that the month has"]),
        (json!({"backup": {"schedule": "60 2 * * *"}}), &["spec.backup.schedule", "wrong minute", "0-59"]),
        (json!({"backup": {"retention": "7 days"}}), &["spec.backup.retention", "\"7 days\"", "such as 7d"]),
        (json!({"storage": {"size": "lots"}}), &["spec.storage.size", "\"lots\"", "such as 100Gi"]),
        (json!({"storage": {"size": "100"}}), &["spec.storage.size", "\"100\"", "such as 100Gi"]),
        (json!({"storage": {"wal": {"size": "0"}}}), &["spec.storage.wal.size", "\"0\"", "such as 100Gi"]),
        (json!({"parameters": {"listen_addresses": "*"}}), &["listen_addresses", "connect through the Services"]),
        (json!({"parameters": {"ssl": "off"}}), &["ssl", "spec.pgHba"]),
        (json!({"replicas": 1, "durability": {"mode": "quorum"}}), &["spec.durability.mode", "quorum"]),
        (json!({"storage": {"onDelete": "Shred"}}), &["spec.storage.onDelete", "Shred", "\"Retain\", \"Delete\""]),
        (json!({"replica": 3}), &["unknown field", "spec.replica"]),
    ]
}

fn changes() -> Vec<Row> {
    vec![
        (json!({"storage": {"size": "1Gi"}}), &["spec.storage.size", "1Gi", "2Gi"]),
        (json!({"bootstrap": {"initdb": {"database": "other"}}}), &["spec.bootstrap.initdb", "database"]),
        (json!({"version": "14"}), &["spec.version"]),
    ]
}
