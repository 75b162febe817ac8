//! What Bellwether answers. Written by the operator alone.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DurabilityMode;

/// The state of the cluster as last observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PostgresClusterStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Where the cluster is in its life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Phase")]
    pub phase: Option<Phase>,
    /// What is true of it, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The instance that accepts writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<String>,
    /// The term of its leadership; grows with every change of primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<i64>,
    /// PostgreSQL's system identifier: the same on every instance, for the life of the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_identifier: Option<String>,
    /// Instances that exist.
    #[serde(default)]
    pub replicas: i32,
    /// Instances that answer SQL.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Label selector of the instances' pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Each instance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<InstanceStatus>,
    /// The durability in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DurabilityMode")]
    pub durability: Option<DurabilityMode>,
    /// What is running now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Operation")]
    pub operation: Option<Operation>,
    /// When the last base backup was completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub last_backup: Option<Time>,
    /// When the newest backup was completed that was restored and found good since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub last_verified_backup: Option<Time>,
    /// Since when every moment can be restored, by what is in the store: looked at after each backup, and once a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub recoverable_from: Option<Time>,
    /// Up to when, while the log does not get into the store (`Archiving` says why). While it does, it is up to the last minutes, five at most, and this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub recoverable_to: Option<Time>,
    /// The time of the schedule for which a backup was created last. It is not created again, whatever becomes of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub last_scheduled_backup: Option<Time>,
}

/// Where the cluster is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Its objects are being created.
    Provisioning,
    /// The first instance initialises the database, or restores it.
    Bootstrapping,
    /// Instances join.
    Joining,
    /// As specified.
    Ready,
    /// It serves, but not as specified; the conditions say why.
    Degraded,
    /// It does not serve.
    Unavailable,
    /// The spec can't be acted on; the conditions name the field.
    Invalid,
    /// It is being deleted.
    Deleting,
}

/// One instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStatus {
    /// The pod's name.
    pub name: String,
    /// `primary`, `standby`, or nothing while it is neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "InstanceRole")]
    pub role: Option<InstanceRole>,
    /// What it is doing.
    pub state: InstanceState,
    /// Whether it answers SQL.
    #[serde(default)]
    pub ready: bool,
    /// The timeline it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<i64>,
    /// The node it runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Whether it was added and has not been readable through `-ro` yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joining: bool,
    /// Why it isn't streaming, or isn't ready; for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The role of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InstanceRole {
    /// Accepts writes.
    Primary,
    /// Follows the primary.
    Standby,
}

/// What an instance is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InstanceState {
    /// Its pod isn't running yet, or nothing is known of it.
    #[default]
    Pending,
    /// It runs `initdb`, or restores the database.
    Bootstrapping,
    /// It copies its data.
    Joining,
    /// PostgreSQL is starting or recovering.
    Starting,
    /// A standby that reads WAL but has not caught up: it is a second or more behind.
    CatchingUp,
    /// A standby that streams, and had all that its primary had within a second when it was first said.
    Streaming,
    /// A standby that runs but doesn't stream; the message says why.
    NotStreaming,
    /// The primary, and it accepts writes.
    Leading,
    /// PostgreSQL is down.
    Down,
    /// PostgreSQL is stopped because a person wants it so.
    Fenced,
}

/// Work in progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// What it is.
    pub kind: OperationKind,
    /// The step it is at.
    pub step: OperationStep,
    /// Since when it is at this step. Since when anything is under way is `lastTransitionTime` of the condition `Progressing`.
    pub since: Time,
    /// What it is waiting on, for people.
    pub waiting_on: String,
}

/// Kinds of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OperationKind {
    /// The cluster comes into being.
    Create,
    /// Instances are added.
    ScaleUp,
    /// Instances are removed.
    ScaleDown,
    /// An instance is brought back.
    Repair,
    /// Instances are restarted one by one, because what changed takes a restart.
    Rollout,
}

/// Steps of work. Which kind goes through which:
///
/// - `Create`: `Provisioning`, `Bootstrapping` or `Restoring`, `Joining`.
/// - `ScaleUp`: `ScalingUp`, `Syncing`, `UpdatingEndpoints`; the least advanced of all that join.
/// - `ScaleDown`: `Leaving`, `Removing`; one instance after another.
/// - `Repair`: `Degraded`, `Unavailable`.
/// - `Rollout`: `Lowering`, `Standbys`, `Switchover`, `Primary`, `Returning`; `Paused`, `Stalled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OperationStep {
    /// The cluster's objects are being created.
    Provisioning,
    /// The first instance initialises the database.
    Bootstrapping,
    /// The first instance restores the database from an object store.
    Restoring,
    /// The other instances of a new cluster join.
    Joining,
    /// Volumes and pods of new instances are made.
    ScalingUp,
    /// New instances copy the data, or replay, until they are less than a second behind.
    Syncing,
    /// New instances are being made readable through `-ro`.
    UpdatingEndpoints,
    /// An instance gets no new readers, leaves the members of the election, and its replication slot is dropped.
    Leaving,
    /// Its pod stops; its volume is kept or deleted by `storage.onDelete`.
    Removing,
    /// It serves, and instances are brought back.
    Degraded,
    /// It does not serve, and a primary is brought back.
    Unavailable,
    /// The primary restarts in place with lower values.
    Lowering,
    /// Standbys are restarted, one at a time.
    Standbys,
    /// The primary is to hand over.
    Switchover,
    /// The only instance is restarted.
    Primary,
    /// All were restarted, and the last comes back.
    Returning,
    /// A person wants no new step.
    Paused,
    /// It stopped; the condition `Synced` says why.
    Stalled,
}
