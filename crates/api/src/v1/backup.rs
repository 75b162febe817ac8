//! One base backup: what a user asks for, and what became of it.
//!
//! The object is a view of what is in the store. Removing it removes nothing there; a cluster's retention does that.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A base backup of a cluster. Creating one takes it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "bellwether.dev",
    version = "v1",
    kind = "Backup",
    plural = "backups",
    category = "bellwether",
    namespaced,
    status = "BackupStatus",
    derive = "PartialEq",
    doc = "One base backup of a `PostgresCluster`: creating one takes it, and the schedule of a cluster creates them. What it is made of is in the \
           object store; deleting this object deletes nothing there.",
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".spec.cluster",
        description = "The cluster that is backed up."
    ),
    printcolumn(
        name = "Phase",
        type_ = "string",
        json_path = ".status.phase",
        description = "Where the backup is in its life."
    ),
    printcolumn(
        name = "Instance",
        type_ = "string",
        json_path = ".status.instance",
        description = "The instance that it is taken from."
    ),
    printcolumn(
        name = "Size",
        type_ = "string",
        json_path = ".status.size",
        description = "What the database's files amount to."
    ),
    printcolumn(
        name = "Stored",
        type_ = "string",
        json_path = ".status.stored",
        description = "What it takes in the store, the log apart."
    ),
    printcolumn(
        name = "Verified",
        type_ = "date",
        json_path = ".status.verification.verifiedAt",
        description = "How long ago it was restored and found good."
    ),
    printcolumn(
        name = "RTO",
        type_ = "string",
        json_path = ".status.verification.restoreTime",
        description = "How long it took then from the store to a database that accepts writes."
    ),
    printcolumn(
        name = "Duration",
        type_ = "string",
        json_path = ".status.duration",
        description = "From its beginning until all that it needs was read back from the store."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.message",
        description = "What it is doing, or why it failed.",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::duplicated_attributes, reason = "several columns have the same type")]
pub struct BackupSpec {
    /// The cluster to back up: a `PostgresCluster` in the same namespace, with `spec.backup.store`.
    pub cluster: String,
    /// Whether it is verified once it is complete: restored from the store apart from everything, recovered, and checked. Left out,
    /// `spec.backup.verification.policy` of the cluster decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub verify: Option<bool>,
}

/// What became of a backup. Written by the operator alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupStatus {
    /// Where it is in its life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BackupPhase")]
    pub phase: Option<BackupPhase>,
    /// What it is doing, or why it failed; for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The instance that it is taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// How often it was begun. One whose instance went away is begun again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: i32,
    /// Its name in the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The archive in the store that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<String>,
    /// When its instance began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub started_at: Option<Time>,
    /// When all that it needs had been read back from the store, or it had failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub completed_at: Option<Time>,
    /// How long that took, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// What the database's files amount to, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// The same in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// What it takes in the store, the log apart, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<String>,
    /// The same in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<i64>,
    /// The timeline that it was taken on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<i64>,
    /// Where recovery begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_lsn: Option<String>,
    /// What recovery must reach at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_lsn: Option<String>,
    /// What became of its verification, once that was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "VerificationStatus")]
    pub verification: Option<VerificationStatus>,
}

/// What became of a backup's verification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerificationStatus {
    /// How often it was begun. One that could not be finished says nothing about the backup, and is begun again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: i32,
    /// When the backup was found good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub verified_at: Option<Time>,
    /// How long it took from the store to a database that accepts writes, for people: what a restore of this backup takes at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_time: Option<String>,
    /// The same in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_seconds: Option<i64>,
    /// How long each phase took.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<VerificationPhase>,
    /// Where recovery ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached_lsn: Option<String>,
    /// On which timeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<i64>,
    /// How old the restored data was when the verification ended, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_age_seconds: Option<i64>,
    /// What could not be looked at, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_looked_at: Vec<String>,
    /// How many of the queries in `spec.backup.verification.queries` answered as expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queries: Option<i64>,
}

/// A phase of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerificationPhase {
    /// `unpack`, `log`, `manifest`, `recovery`, `structure`, `queries` or `pages`.
    pub name: String,
    /// How long it took.
    pub milliseconds: i64,
}

/// Where a backup is in its life. `Completed` is not success yet: nobody has restored it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BackupPhase {
    /// It is waited for: another backup, an instance to take it from, or a store.
    Pending,
    /// An instance takes it.
    Running,
    /// It is in the store, and so is every segment of the log that it needs: each was read back.
    Completed,
    /// It is being restored apart from everything, and checked.
    Verifying,
    /// It was restored and recovered, and nothing is wrong with it.
    Verified,
    /// It could not be taken, or it is not one: the message says why.
    Failed,
}

impl BackupPhase {
    /// Whether it is no longer being taken.
    pub fn is_taken(self) -> bool {
        !matches!(self, Self::Pending | Self::Running)
    }

    /// Whether all of it is in the store.
    pub fn is_complete(self) -> bool {
        matches!(self, Self::Completed | Self::Verifying | Self::Verified)
    }
}

fn is_zero(count: &i32) -> bool {
    *count == 0
}
