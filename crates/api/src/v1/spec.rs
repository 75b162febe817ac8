//! What a user writes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, ResourceRequirements, SecretKeySelector, Toleration, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PostgresClusterStatus;
use crate::versions;

/// A replicated PostgreSQL: one primary, the rest standbys.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "bellwether.dev",
    version = "v1",
    kind = "PostgresCluster",
    plural = "postgresclusters",
    shortname = "pgc",
    category = "all",
    category = "bellwether",
    namespaced,
    status = "PostgresClusterStatus",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct PostgresClusterSpec {
    /// PostgreSQL's major version.
    #[serde(default = "default_version")]
    pub version: String,
    /// The image with PostgreSQL's binaries; the official `postgres:<version>` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Secrets with the credentials to pull the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// Total number of instances: one primary and `replicas - 1` standbys.
    #[serde(default = "default_replicas")]
    pub replicas: i32,
    /// The volumes.
    #[serde(default)]
    pub storage: Storage,
    /// CPU and memory of each instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Where instances run.
    #[serde(default)]
    pub scheduling: Scheduling,
    /// PostgreSQL settings (`postgresql.conf`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Extra lines for `pg_hba.conf`, after our own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pg_hba: Vec<String>,
    /// What an acknowledged commit is worth.
    #[serde(default)]
    pub durability: Durability,
    /// Backups.
    #[serde(default)]
    pub backup: BackupPolicy,
    /// Metrics.
    #[serde(default)]
    pub monitoring: Monitoring,
    /// Which risky actions Bellwether takes by itself.
    #[serde(default)]
    pub automation: Automation,
    /// How the database comes into being; immutable.
    #[serde(default)]
    pub bootstrap: Bootstrap,
}

/// The volumes of each instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Size of each instance's data volume.
    #[serde(default = "default_size")]
    pub size: Quantity,
    /// Storage class; the cluster's default class when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// A volume of its own for the write-ahead log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal: Option<WalStorage>,
    /// What happens to the volumes when the cluster is deleted.
    #[serde(default)]
    pub on_delete: OnDelete,
}

/// A volume for the write-ahead log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WalStorage {
    /// Size of the volume.
    pub size: Quantity,
    /// Storage class; that of the data volume when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
}

/// What happens to volumes when their cluster is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnDelete {
    /// They stay; a cluster created again under the same name adopts them.
    #[default]
    Retain,
    /// They are deleted, with the data.
    Delete,
}

/// Where instances run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scheduling {
    /// Whether instances must, or should, run on different nodes.
    #[serde(default)]
    pub anti_affinity: AntiAffinity,
    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that instances tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Further affinity rules, merged with the anti-affinity above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// How instances spread over zones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Priority class of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
}

/// Whether instances share nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AntiAffinity {
    /// Different nodes where possible; status warns when they share one.
    #[default]
    Preferred,
    /// Different nodes, or the pod waits.
    Required,
    /// No rule.
    Off,
}

/// What an acknowledged commit is worth.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Durability {
    /// `quorum`, `preferred` or `async`; chosen by the number of instances when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<DurabilityMode>,
}

/// How commits are acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DurabilityMode {
    /// Commits wait for a quorum of standbys, always.
    Quorum,
    /// Commits wait for standbys while there are any.
    Preferred,
    /// Commits wait for no standby.
    Async,
}

/// The backup policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupPolicy {
    /// When base backups are taken: five-field cron.
    #[serde(default = "default_schedule")]
    pub schedule: String,
    /// How long backups are kept: `7d`, `4w`, `12m`.
    #[serde(default = "default_retention")]
    pub retention: String,
}

/// Metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Monitoring {
    /// Whether the agents serve metrics.
    #[serde(default = "yes")]
    pub enabled: bool,
}

/// Which risky actions Bellwether takes by itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Automation {
    /// Updates that restart instances.
    #[serde(default)]
    pub updates: AutomationGate,
}

/// Who releases a risky action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AutomationGate {
    /// Bellwether does it.
    #[default]
    Auto,
    /// Bellwether waits for approval.
    Approve,
    /// Bellwether leaves it alone.
    Off,
}

/// How the database comes into being.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// A new, empty database.
    #[serde(default)]
    pub initdb: Initdb,
}

/// A new database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Initdb {
    /// The application's database.
    #[serde(default = "default_app")]
    pub database: String,
    /// The role that owns it.
    #[serde(default = "default_app")]
    pub owner: String,
    /// Who provides collation.
    #[serde(default)]
    pub locale_provider: LocaleProvider,
    /// The locale: `C.UTF-8`, or an ICU locale such as `de-DE` with `localeProvider: icu`.
    #[serde(default = "default_locale")]
    pub locale: String,
    /// Data checksums.
    #[serde(default = "yes")]
    pub data_checksums: bool,
    /// SQL run once as superuser in the application's database, after it was created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub post_init_sql: Vec<String>,
    /// A Secret's key with the owner's password; generated when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_password: Option<SecretKeySelector>,
}

/// Who provides collation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LocaleProvider {
    /// The C library.
    #[default]
    Libc,
    /// ICU.
    Icu,
}

fn default_version() -> String {
    versions::DEFAULT.to_owned()
}
fn default_replicas() -> i32 {
    1
}
fn default_size() -> Quantity {
    Quantity("10Gi".to_owned())
}
fn default_schedule() -> String {
    "0 2 * * *".to_owned()
}
fn default_retention() -> String {
    "30d".to_owned()
}
fn default_app() -> String {
    "app".to_owned()
}
fn default_locale() -> String {
    "C.UTF-8".to_owned()
}
fn yes() -> bool {
    true
}

impl Default for Storage {
    fn default() -> Self {
        Self { size: default_size(), storage_class: None, wal: None, on_delete: OnDelete::default() }
    }
}
impl Default for BackupPolicy {
    fn default() -> Self {
        Self { schedule: default_schedule(), retention: default_retention() }
    }
}
impl Default for Monitoring {
    fn default() -> Self {
        Self { enabled: true }
    }
}
impl Default for Initdb {
    fn default() -> Self {
        Self {
            database: default_app(),
            owner: default_app(),
            locale_provider: LocaleProvider::default(),
            locale: default_locale(),
            data_checksums: true,
            post_init_sql: vec![],
            owner_password: None,
        }
    }
}
