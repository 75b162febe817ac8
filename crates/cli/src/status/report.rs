//! What `bellwether status` says, as data: what `-o json` and `-o yaml` print, and what the page is made from.
//!
//! A contract with scripts: [`VERSION`] is raised when a field changes its meaning or goes; fields are added without. docs/cli.md describes it.
//! Never: a field that says what an agent said when none was asked (`source` tells), or anything of a Secret.

use bellwether_api::v1::{DurabilityMode, InstanceRole, InstanceState, OperationKind, OperationStep, Phase};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

/// The version of all that is here.
pub const VERSION: u32 = 1;

/// One cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterReport {
    /// `ClusterStatus`.
    pub kind: &'static str,
    /// [`VERSION`].
    pub version: u32,
    /// When the question was put.
    pub at: Timestamp,
    /// The cluster's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whether it serves.
    pub ready: Readiness,
    /// Where it is in its life, by the operator's last word.
    pub phase: Option<Phase>,
    /// PostgreSQL's version: the full one where the primary said it, else that of the spec.
    pub postgres_version: String,
    /// The instance that leads: by its own word, else by the operator's last.
    pub primary: Option<String>,
    /// The term of its leadership.
    pub term: Option<u64>,
    /// How many instances there are to be, are, and are ready.
    pub replicas: Replicas,
    /// What a commit waits for.
    pub durability: Durability,
    /// Each instance.
    pub instances: Vec<InstanceReport>,
    /// What is under way.
    pub operation: Option<OperationReport>,
    /// What is true of it, by the operator's last word.
    pub conditions: Vec<ConditionReport>,
    /// Its backups.
    pub backups: BackupReport,
    /// How old the operator's word is.
    pub status: StatusAge,
    /// What could not be looked at, and why.
    pub unseen: Vec<String>,
}

/// Whether a cluster serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Readiness {
    /// It does, by the operator's word, and no agent says otherwise.
    pub ready: bool,
    /// The primary's agent said so itself, just now.
    pub confirmed: bool,
    /// Why it doesn't, or why nobody confirmed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The runbook for that: a file of this name in docs/runbooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runbook: Option<String>,
}

/// How many instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Replicas {
    /// `spec.replicas`.
    pub wanted: i32,
    /// Known instances.
    pub known: usize,
    /// Those that are ready: by their agent's word, or where it could not be asked by the operator's last.
    pub ready: usize,
    /// Those whose agent said so just now.
    pub confirmed: usize,
}

/// What a commit waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Durability {
    /// The mode in force.
    pub mode: Option<DurabilityMode>,
    /// How many standbys must have a commit before it is acknowledged; nothing where that can't be seen.
    pub needed: Option<usize>,
    /// Any of these.
    pub of: Vec<String>,
    /// Whom commits wait for is being changed.
    pub changing: bool,
    /// Commits are waiting now, by the primary's word.
    pub commits_wait: bool,
}

/// Where what is said of an instance comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// Its agent, just now.
    Agent,
    /// The operator's last word: its agent did not answer, or was not asked.
    Status,
}

/// One instance.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceReport {
    /// The pod's name.
    pub name: String,
    /// Where the rest comes from.
    pub source: Source,
    /// Why its agent's word is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unasked: Option<String>,
    /// Its role.
    pub role: Option<InstanceRole>,
    /// What it is doing.
    pub state: InstanceState,
    /// Whether it answers SQL, and leads or streams.
    pub ready: bool,
    /// PostgreSQL's timeline.
    pub timeline: Option<i64>,
    /// The write position of a primary, the replayed one of a standby.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lsn: Option<String>,
    /// Bytes that it has not replayed of what the primary has written; without the primary's word, of what it has received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_bytes: Option<u64>,
    /// Seconds since the last replayed commit, where something is left to replay; of a standby that streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<f64>,
    /// Seconds since PostgreSQL was asked for position and lag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position_age_seconds: Option<f64>,
    /// Whether commits may be waiting for it; nothing where that can't be seen, or it leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synchronous: Option<bool>,
    /// Its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Why it isn't further, in its own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What the operator's last word was, where its agent says something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_says: Option<InstanceState>,
}

/// Work in progress.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationReport {
    /// What it is.
    pub kind: OperationKind,
    /// The step it is at.
    pub step: OperationStep,
    /// Since when.
    pub since: Timestamp,
    /// What it waits on.
    pub waiting_on: String,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionReport {
    /// Which.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False`, `Unknown`.
    pub status: String,
    /// Why: the name of a runbook in docs/runbooks.
    pub reason: String,
    /// For people.
    pub message: String,
    /// Since when.
    pub since: Timestamp,
}

/// Backups, as far as status has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupReport {
    /// Whether a store is named.
    pub store: bool,
    /// When the last was completed.
    pub last: Option<Timestamp>,
    /// When the newest was completed that was restored and found good since.
    pub last_verified: Option<Timestamp>,
    /// The condition `Archiving`.
    pub archiving: Option<String>,
    /// Since when every moment can be restored.
    pub recoverable_from: Option<Timestamp>,
    /// Up to when, while the log does not get into the store; while it does, up to the last minutes.
    pub recoverable_to: Option<Timestamp>,
}

/// How old the operator's word is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusAge {
    /// When it was last written. It is written when something changes, and not otherwise.
    pub written: Option<Timestamp>,
    /// The generation of the spec that it speaks of.
    pub observed_generation: Option<i64>,
    /// The generation of the spec.
    pub generation: Option<i64>,
}

/// All clusters of a namespace, or of all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListReport {
    /// `ClusterStatusList`.
    pub kind: &'static str,
    /// [`VERSION`].
    pub version: u32,
    /// In order.
    pub items: Vec<ClusterReport>,
}
