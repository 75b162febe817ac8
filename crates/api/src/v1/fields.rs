//! The table of fields: for each, its bounds, its rules, and what happens when it changes.
//!
//! The schema and `docs/reference` are made from it. Every string has a length and every list a number of entries, because
//! an API server refuses CEL rules whose cost it can't bound, and because a value without an end is a mistake.

use serde_json::{Value, json};

use super::rule::Rule;
use super::{recovery_rules, rules, schedule};
use crate::versions;

/// What happens when a field changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnChange {
    /// It is a group of fields: each has its own answer.
    Group,
    /// Bellwether acts on it; no instance restarts.
    NoRestart,
    /// PostgreSQL reads it again where it can; a setting that PostgreSQL reads at start only needs a restart.
    Reload,
    /// Each instance has to restart once.
    Restart,
    /// Volumes grow in place, where their class allows that.
    Grows,
    /// It can't change once the database was initialised.
    OnceInitialised,
    /// It can't change.
    Immutable,
}

impl OnChange {
    /// The sentence that ends the field's description; nothing for a group.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Group => "",
            Self::NoRestart => "Changing it restarts nothing.",
            Self::Reload => {
                "What PostgreSQL can reload takes effect at once; for the rest instances are restarted one by one, standbys first, with a \
                 switchover before the primary."
            }
            Self::Restart => {
                "A change restarts instances one by one, standbys first, with a switchover before the primary."
            }
            Self::Grows => "It may be raised, never lowered; volumes grow in place where their StorageClass allows it.",
            Self::OnceInitialised => "It can't be changed once the database exists.",
            Self::Immutable => "It can't be changed later.",
        }
    }
}

/// One field of the API.
#[derive(Clone, Debug)]
pub struct Field {
    /// Where it is: `spec.storage.size`; `[]` stands for the entries of a list, `{}` for the values of a map, nothing for
    /// the object as a whole.
    pub path: &'static str,
    /// Bounds of the schema, merged into what the type says.
    pub bounds: Value,
    /// What happens when it changes.
    pub on_change: OnChange,
    /// Its CEL rules.
    pub rules: Vec<Rule>,
}

/// Every field of `spec`, and what else carries a bound or a rule.
pub fn fields() -> Vec<Field> {
    use OnChange::{Group, Grows, Immutable, NoRestart, OnceInitialised, Reload, Restart};
    let majors: Vec<_> = versions::SUPPORTED.iter().map(|version| version.major).collect();
    let field = |path, bounds, on_change, rules| Field { path, bounds, on_change, rules };
    vec![
        field("", json!({}), Group, rules::cluster()),
        // Longer than allowed, so that it is the rule that refuses, in its own words; it only bounds the rule's cost.
        field("metadata.name", text(253), Group, vec![]),
        field("spec", json!({}), Group, rules::spec()),
        field("spec.version", json!({ "enum": majors }), OnceInitialised, vec![]),
        field("spec.image", text(512), Restart, rules::image()),
        field("spec.imagePullSecrets", json!({ "maxItems": 16 }), Restart, vec![]),
        field("spec.imagePullSecrets[].name", name(253), Group, vec![]),
        field("spec.replicas", json!({ "minimum": 1, "maximum": 10 }), NoRestart, vec![]),
        field("spec.storage", json!({}), Group, rules::storage()),
        field("spec.storage.size", text(32), Grows, rules::size("spec.storage.size")),
        field("spec.storage.storageClass", name(253), Immutable, vec![]),
        field("spec.storage.wal", json!({}), Immutable, rules::wal()),
        field("spec.storage.wal.size", text(32), Grows, rules::size("spec.storage.wal.size")),
        field("spec.storage.wal.storageClass", name(253), Immutable, vec![]),
        field("spec.storage.onDelete", json!({}), NoRestart, vec![]),
        field("spec.resources", json!({}), Restart, rules::resources("spec.resources")),
        field("spec.resources.limits", json!({ "maxProperties": 16 }), Restart, vec![]),
        field("spec.resources.limits{}", text(32), Group, vec![]),
        field("spec.resources.requests", json!({ "maxProperties": 16 }), Restart, vec![]),
        field("spec.resources.requests{}", text(32), Group, vec![]),
        field("spec.scheduling", json!({}), Group, vec![]),
        field("spec.scheduling.antiAffinity", json!({}), Restart, vec![]),
        field("spec.scheduling.nodeSelector", json!({ "maxProperties": 32 }), Restart, vec![]),
        field("spec.scheduling.nodeSelector{}", text(63), Group, vec![]),
        field("spec.scheduling.tolerations", json!({ "maxItems": 32 }), Restart, vec![]),
        field("spec.scheduling.affinity", json!({}), Restart, vec![]),
        field("spec.scheduling.topologySpreadConstraints", json!({ "maxItems": 16 }), Restart, vec![]),
        field("spec.scheduling.priorityClassName", name(253), Restart, vec![]),
        field("spec.parameters", json!({ "maxProperties": 128 }), Reload, rules::parameters()),
        field("spec.parameters{}", text(1024), Group, vec![]),
        field("spec.pgHba", json!({ "maxItems": 64 }), NoRestart, vec![]),
        field("spec.pgHba[]", text(512), Group, rules::pg_hba_line()),
        field("spec.durability", json!({}), Group, vec![]),
        field("spec.durability.mode", json!({}), NoRestart, vec![]),
        field("spec.backup", json!({}), Group, vec![]),
        field("spec.backup.schedule", text(128), NoRestart, schedule::rules()),
        field("spec.backup.timeZone", text(64), NoRestart, rules::time_zone()),
        field("spec.backup.compression", json!({}), Group, vec![]),
        field("spec.backup.compression.level", json!({ "minimum": 1, "maximum": 19 }), NoRestart, vec![]),
        field("spec.backup.compression.workers", json!({ "minimum": 1, "maximum": 64 }), NoRestart, vec![]),
        field("spec.backup.maxRate", text(32), NoRestart, rules::max_rate()),
        field("spec.backup.retention", text(32), NoRestart, rules::retention()),
        field("spec.backup.store", json!({}), Restart, vec![]),
        field("spec.backup.store.url", text(512), NoRestart, rules::store_url("spec.backup.store.url")),
        field("spec.backup.store.endpoint", text(512), NoRestart, rules::store_endpoint("spec.backup.store.endpoint")),
        field("spec.backup.store.region", name(64), NoRestart, vec![]),
        field("spec.backup.store.credentials", json!({}), NoRestart, vec![]),
        field("spec.backup.store.credentials.name", name(253), NoRestart, vec![]),
        field("spec.backup.verification", json!({}), Group, vec![]),
        field("spec.backup.verification.policy", json!({}), NoRestart, vec![]),
        field("spec.backup.verification.queries", json!({ "maxItems": 16 }), NoRestart, vec![]),
        field("spec.backup.verification.queries[].database", name(63), Group, vec![]),
        field("spec.backup.verification.queries[].sql", name(4096), Group, vec![]),
        field("spec.backup.verification.queries[].expected", json!({ "maxItems": 16 }), Group, vec![]),
        field("spec.backup.verification.queries[].expected[]", json!({ "maxItems": 16 }), Group, vec![]),
        field("spec.backup.verification.queries[].expected[][]", text(1024), Group, vec![]),
        field("spec.backup.verification.storageClass", name(253), NoRestart, vec![]),
        field(
            "spec.backup.verification.resources",
            json!({}),
            NoRestart,
            rules::resources("spec.backup.verification.resources"),
        ),
        field("spec.backup.verification.resources.limits", json!({ "maxProperties": 16 }), NoRestart, vec![]),
        field("spec.backup.verification.resources.limits{}", text(32), Group, vec![]),
        field("spec.backup.verification.resources.requests", json!({ "maxProperties": 16 }), NoRestart, vec![]),
        field("spec.backup.verification.resources.requests{}", text(32), Group, vec![]),
        field("spec.backup.verification.credentials", json!({}), NoRestart, vec![]),
        field("spec.backup.verification.credentials.name", name(253), NoRestart, vec![]),
        field("spec.monitoring", json!({}), Group, vec![]),
        field("spec.monitoring.enabled", json!({}), NoRestart, vec![]),
        field("spec.automation", json!({}), Group, vec![]),
        field("spec.automation.updates", json!({}), NoRestart, vec![]),
        field("spec.bootstrap", json!({}), Group, recovery_rules::bootstrap()),
        field("spec.bootstrap.initdb", json!({}), Group, rules::initdb()),
        field(
            "spec.bootstrap.initdb.database",
            text(63),
            Immutable,
            rules::identifier("spec.bootstrap.initdb.database", "orders"),
        ),
        field(
            "spec.bootstrap.initdb.owner",
            text(63),
            Immutable,
            rules::identifier("spec.bootstrap.initdb.owner", "orders_owner"),
        ),
        field(
            "spec.bootstrap.initdb.localeProvider",
            json!({}),
            Immutable,
            rules::read_once("spec.bootstrap.initdb.localeProvider"),
        ),
        field("spec.bootstrap.initdb.locale", text(64), Immutable, rules::read_once("spec.bootstrap.initdb.locale")),
        field("spec.bootstrap.initdb.dataChecksums", json!({}), Immutable, rules::checksums()),
        field("spec.bootstrap.initdb.postInitSql", json!({ "maxItems": 64 }), Immutable, vec![]),
        field("spec.bootstrap.initdb.postInitSql[]", text(4096), Group, vec![]),
        field("spec.bootstrap.initdb.ownerPassword", json!({}), Immutable, vec![]),
        field("spec.bootstrap.initdb.ownerPassword.name", name(253), Immutable, vec![]),
        field("spec.bootstrap.initdb.ownerPassword.key", name(253), Immutable, vec![]),
        field("spec.bootstrap.recovery", json!({}), Immutable, recovery_rules::recovery()),
        field("spec.bootstrap.recovery.backup", json!({}), Immutable, vec![]),
        field("spec.bootstrap.recovery.backup.name", text(253), Immutable, recovery_rules::backup()),
        field("spec.bootstrap.recovery.cluster", json!({}), Immutable, vec![]),
        field("spec.bootstrap.recovery.cluster.name", text(253), Immutable, recovery_rules::cluster()),
        field("spec.bootstrap.recovery.store", json!({}), Immutable, vec![]),
        field(
            "spec.bootstrap.recovery.store.url",
            text(512),
            Immutable,
            rules::store_url("spec.bootstrap.recovery.store.url"),
        ),
        field(
            "spec.bootstrap.recovery.store.endpoint",
            text(512),
            Immutable,
            rules::store_endpoint("spec.bootstrap.recovery.store.endpoint"),
        ),
        field("spec.bootstrap.recovery.store.region", name(64), Immutable, vec![]),
        field("spec.bootstrap.recovery.store.credentials", json!({}), Immutable, vec![]),
        field("spec.bootstrap.recovery.store.credentials.name", name(253), Immutable, vec![]),
        field("spec.bootstrap.recovery.archive", text(128), Immutable, recovery_rules::archive()),
        field("spec.bootstrap.recovery.backupId", text(32), Immutable, recovery_rules::backup_id()),
        field("spec.bootstrap.recovery.target", json!({}), Immutable, recovery_rules::target()),
        field("spec.bootstrap.recovery.target.time", text(64), Immutable, recovery_rules::time()),
        field("spec.bootstrap.recovery.target.lsn", text(32), Immutable, recovery_rules::lsn()),
        field("spec.bootstrap.recovery.target.name", text(63), Immutable, recovery_rules::name()),
        // Smaller numbers are PostgreSQL's own.
        field("spec.bootstrap.recovery.target.transaction", json!({ "minimum": 3 }), Immutable, vec![]),
        field("spec.bootstrap.recovery.target.exclusive", json!({}), Immutable, vec![]),
        field("spec.bootstrap.recovery.timeline", text(16), Immutable, recovery_rules::timeline()),
        field("status.conditions", keyed("type"), Group, vec![]),
        field("status.instances", keyed("name"), Group, vec![]),
    ]
}

/// Every field of a `Backup`'s spec, and what else carries a rule.
pub fn backup_fields() -> Vec<Field> {
    let field = |path, bounds, on_change, rules| Field { path, bounds, on_change, rules };
    vec![
        field("spec", json!({}), OnChange::Group, vec![]),
        // Longer than allowed, so that it is the rule that refuses, in its own words.
        field("spec.cluster", text(253), OnChange::Immutable, rules::backup_cluster()),
        field("spec.verify", json!({}), OnChange::NoRestart, vec![]),
    ]
}

fn text(longest: u32) -> Value {
    json!({ "maxLength": longest })
}
fn name(longest: u32) -> Value {
    json!({ "minLength": 1, "maxLength": longest })
}
/// A list that server-side apply merges by this key.
fn keyed(key: &str) -> Value {
    json!({ "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key] })
}
