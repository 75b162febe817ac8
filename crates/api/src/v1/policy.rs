//! How the cluster is run: durability, backups, metrics, automation.

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an acknowledged commit is worth.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Durability {
    /// `quorum`: a commit is acknowledged once a quorum of standbys has it, always; with no standby left, commits wait
    /// and reads go on. `preferred`: the same while there are standbys, and without them commits go on, and status says so.
    /// `async`: a commit waits for no standby, and a failover may lose the last ones. Left out, it follows the number of
    /// instances: 1 is `async`, 2 is `preferred`, 3 or more are `quorum`; `status.durability` shows what is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DurabilityMode")]
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
    /// When base backups are taken: a cron expression of five fields, minute, hour, day of month, month, day of week, by the clocks of `timeZone`.
    /// `0 2 * * *` is every night at two, `30 1 * * SUN` every Sunday at half past one. A date that never comes
    /// (`0 2 31 2 *`) is refused.
    #[serde(default = "default_schedule")]
    pub schedule: String,
    /// By whose clocks `schedule` is meant: a name of the IANA time zone database, such as `Europe/Berlin`. Where clocks are set forward over a time, the
    /// backup is taken right after it; where they are set back over one, it is taken once.
    #[serde(default = "default_time_zone")]
    pub time_zone: String,
    /// How long backups are kept, or how many. A length of time is a number and a unit, `h` hours, `d` days, `w` weeks, `m` months (30 days) or
    /// `y` years (365 days): `7d`, `4w`, `12m`; within that time the cluster can be restored to any moment. A number of backups is written
    /// `10 backups`: the newest so many are kept. Both are written `7d and 10 backups`: what either keeps is kept. What no kept backup needs is
    /// removed from the store, with its log; never the newest backup that was verified, whatever this says.
    #[serde(default = "default_retention")]
    pub retention: String,
    /// The object store that backups and the log go to. Left out, nothing is backed up in this release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BackupStore")]
    pub store: Option<BackupStore>,
    /// How base backups are compressed.
    #[serde(default)]
    pub compression: Compression,
    /// How many bytes a second PostgreSQL reads for a base backup at most, such as `100Mi`: for a disk that has others to serve. Left out, as many as it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Quantity")]
    pub max_rate: Option<Quantity>,
    /// How it is made sure that backups can be restored.
    #[serde(default)]
    pub verification: Verification,
}

/// How base backups are compressed. The log is always compressed in the same way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Compression {
    /// The level of zstd: 1 is the quickest, 19 the smallest and many times slower.
    #[serde(default = "default_level")]
    pub level: i32,
    /// How many processors compress at the same time. Left out, all that the container may use; PostgreSQL goes before them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<i32>,
}

/// How it is made sure that backups can be restored: a pod of its own restores one from the store alone, lets PostgreSQL recover, and checks every
/// file, table, index and page. It has a volume as large as the database's for as long as that takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// Which backups are verified. `scheduled`: those of the schedule, and others that ask for it (`spec.verify` of a `Backup`). `always`: every one.
    /// `never`: none by itself; then nobody knows whether a backup can be restored, and a condition says so.
    #[serde(default)]
    pub policy: VerificationPolicy,
    /// What must be so in the restored database besides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queries: Vec<VerificationQuery>,
    /// The storage class of the volume that it is restored to [default: that of `spec.storage`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// What its pod may use. Left out, it asks for a tenth of a core and 256Mi, and may use 1Gi of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ResourceRequirements")]
    pub resources: Option<ResourceRequirements>,
    /// A Secret like `spec.backup.store.credentials` for the verification alone, such as one that may only read [default: the same]. With one that may only
    /// read, the result is in the `Backup`, and not in the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SecretName")]
    pub credentials: Option<SecretName>,
}

/// Which backups are verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum VerificationPolicy {
    /// Those of the schedule, and those that ask for it.
    #[default]
    Scheduled,
    /// All.
    Always,
    /// Those that ask for it.
    Never,
}

/// A query, and what it has to answer in the restored database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerificationQuery {
    /// The database [default: the application's].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// The statement. It runs as superuser, on a copy that is thrown away.
    pub sql: String,
    /// The rows, each the text of its columns. `[["t"]]` is one row with one true column.
    pub expected: Vec<Vec<String>>,
}

/// An object store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupStore {
    /// Where it is: `s3://bucket/path`, `gs://bucket/path` or `az://container/path`. Several clusters may share it: each has a part of its own below.
    pub url: String,
    /// The address of a service that speaks the same protocol, such as `https://minio.storage.svc:9000`. Left out, it is the cloud's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The region of the bucket, of `s3://` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The Secret, in the cluster's namespace, with what it takes to get in. Its keys are those of the environment: `AWS_ACCESS_KEY_ID` and
    /// `AWS_SECRET_ACCESS_KEY`; `GOOGLE_SERVICE_ACCOUNT_KEY`; `AZURE_STORAGE_ACCOUNT_NAME` and `AZURE_STORAGE_ACCOUNT_KEY`. Left out, the pods' own identity is
    /// used. With a key `ca.crt` the store's certificate is checked against that authority, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SecretName")]
    pub credentials: Option<SecretName>,
}

/// A Secret by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretName {
    /// The name of a Secret in the same namespace.
    pub name: String,
}

/// Metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Monitoring {
    /// Whether the agents serve metrics for Prometheus. Leave it on unless a policy forbids another endpoint.
    #[serde(default = "yes")]
    pub enabled: bool,
}

/// Which risky actions Bellwether takes by itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Automation {
    /// Who releases a change that restarts instances. `auto`: Bellwether, as soon as it is needed. `approve`: Bellwether
    /// prepares it and waits for you. `off`: it is left undone, and a condition says so. Elections and repairs are never held
    /// back by this.
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

fn default_time_zone() -> String {
    crate::zone::UTC.to_owned()
}
fn default_level() -> i32 {
    3
}
fn default_schedule() -> String {
    "0 2 * * *".to_owned()
}
fn default_retention() -> String {
    "30d".to_owned()
}
fn yes() -> bool {
    true
}

impl Default for BackupPolicy {
    fn default() -> Self {
        Self {
            schedule: default_schedule(),
            time_zone: default_time_zone(),
            retention: default_retention(),
            store: None,
            compression: Compression::default(),
            max_rate: None,
            verification: Verification::default(),
        }
    }
}
impl Default for Compression {
    fn default() -> Self {
        Self { level: default_level(), workers: None }
    }
}
impl Default for Monitoring {
    fn default() -> Self {
        Self { enabled: true }
    }
}
