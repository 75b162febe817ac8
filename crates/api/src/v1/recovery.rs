//! From where a new cluster's database is restored, and how far: read once in the life of a cluster, as the rest of `spec.bootstrap`.
//!
//! Never: two sources or two targets; whoever asks for one moment must not get another.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::BackupStore;

/// A database that is restored. It is a database of its own from then on: it archives elsewhere, follows nobody, and the original goes on undisturbed.
/// Exactly one of `backup`, `cluster` and `store` says from where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Recovery {
    /// From this backup: a `Backup` in the same namespace, whose cluster is still there. The log is that of its cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SourceName")]
    pub backup: Option<SourceName>,
    /// From what another `PostgresCluster` in the same namespace has in its object store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SourceName")]
    pub cluster: Option<SourceName>,
    /// From this object store, whatever became of the cluster that wrote there. `archive` says what in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BackupStore")]
    pub store: Option<BackupStore>,
    /// Whose archive in the store: `namespace/cluster`, or where several clusters of that name have lived its directory, as `bellwether backups --from`
    /// shows it. Only with `store`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<String>,
    /// The backup to begin with, by its name in the store, such as `20261118T020000Z`. Left out, it is the newest from which the target can be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_id: Option<String>,
    /// How far. Left out, to the end of the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RecoveryTarget")]
    pub target: Option<RecoveryTarget>,
    /// Which way where the history forks: `latest`, `current` (that of the backup), or the number of a timeline.
    #[serde(default = "latest")]
    pub timeline: String,
}

/// An object in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceName {
    /// The name of an object in the same namespace.
    pub name: String,
}

/// How far. Exactly one of `time`, `lsn`, `name` and `transaction`; one that the log turns out not to have is an error, and never the end of it instead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecoveryTarget {
    /// What was committed up to this time, such as `2026-11-18T14:30:00Z`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Up to this position in the log, such as `16/B374D848`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lsn: Option<String>,
    /// Up to the restore point of this name (`pg_create_restore_point`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Up to the commit of this transaction, by its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transaction: Option<i64>,
    /// Whether to stop right before that time, position or transaction, and leave out what lies exactly there.
    #[serde(default)]
    pub exclusive: bool,
}

fn latest() -> String {
    "latest".to_owned()
}

/// Not derived: a timeline without a name is none.
impl Default for Recovery {
    fn default() -> Self {
        Self {
            backup: None,
            cluster: None,
            store: None,
            archive: None,
            backup_id: None,
            target: None,
            timeline: latest(),
        }
    }
}
