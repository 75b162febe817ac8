//! The rules of the schema, evaluated here as an API server evaluates them.

mod accepted;
mod properties;
mod refused;
mod shape;

use std::sync::LazyLock;

use bellwether_api::testing::refused::manifest;
use bellwether_api::v1;
use kube_cel::{CompiledSchema, Validator, compile_schema};
use serde_json::Value;

static SCHEMA: LazyLock<Value> = LazyLock::new(v1::schema);
static BACKUP_SCHEMA: LazyLock<Value> = LazyLock::new(v1::backup_schema);
/// Compiled once: it takes longer than all the rest.
static COMPILED: LazyLock<CompiledSchema> = LazyLock::new(|| compile_schema(&SCHEMA));
static BACKUP_COMPILED: LazyLock<CompiledSchema> = LazyLock::new(|| compile_schema(&BACKUP_SCHEMA));

/// The messages with which `object` is refused; none when it is accepted. `old` is what was stored before.
fn refusals(object: &Value, old: Option<&Value>) -> Vec<String> {
    let compiled = if object["kind"] == "Backup" { &BACKUP_COMPILED } else { &COMPILED };
    match Validator::new().validate_compiled(compiled, object, old) {
        Ok(()) => vec![],
        Err(errors) => errors.iter().map(|error| error.message.clone()).collect(),
    }
}

/// `object` as it is stored: with every default.
fn stored(object: &Value) -> Value {
    kube_cel::apply_defaults(&SCHEMA, object)
}
