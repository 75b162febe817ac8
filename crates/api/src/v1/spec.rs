//! What a user writes: the root of the spec. The parts have a file each.
//!
//! The comments on fields become the descriptions in the CRD and in `docs/reference`: they speak to users. What a value
//! may be, and what happens when it changes, is not said here but in [`super::fields`], which appends it, so that words
//! and rules can't part. Optional fields of a type of their own carry `schemars(with)`: without it the derive shows users the
//! type's comment in place of the field's. Never: a field without a line in that table (a test compares the two).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{LocalObjectReference, ResourceRequirements};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Automation, BackupPolicy, Bootstrap, Durability, Monitoring, PostgresClusterStatus, Scheduling, Storage};
use crate::versions;

/// What the cluster should be. Everything left out has a safe default; `spec: {replicas: 3}` is a whole manifest.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    derive = "PartialEq",
    doc = "A replicated PostgreSQL: one primary that accepts writes, the rest standbys that follow it. You write `spec`; \
           only Bellwether writes `status`.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".spec.version",
        description = "PostgreSQL's major version."
    ),
    printcolumn(
        name = "Replicas",
        type_ = "integer",
        json_path = ".spec.replicas",
        description = "Instances asked for, the primary included."
    ),
    printcolumn(
        name = "Ready",
        type_ = "integer",
        json_path = ".status.readyReplicas",
        description = "Instances that answer SQL."
    ),
    printcolumn(
        name = "Primary",
        type_ = "string",
        json_path = ".status.primary",
        description = "The instance that accepts writes."
    ),
    printcolumn(
        name = "Phase",
        type_ = "string",
        json_path = ".status.phase",
        description = "Where the cluster is in its life; the conditions say why."
    ),
    printcolumn(
        name = "Last backup",
        type_ = "date",
        json_path = ".status.lastBackup",
        description = "How long ago the last base backup was completed."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Durability",
        type_ = "string",
        json_path = ".status.durability",
        description = "What an acknowledged commit is worth right now.",
        priority = 1
    ),
    printcolumn(
        name = "Waiting on",
        type_ = "string",
        json_path = ".status.operation.waitingOn",
        description = "What the operation in progress is waiting on.",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::duplicated_attributes, reason = "several columns have the same type")]
pub struct PostgresClusterSpec {
    /// PostgreSQL's major version, as a string: `"17"`. Left out, the newest version that Bellwether is tested on is
    /// taken and stored here, so a later release of Bellwether never moves a running cluster. Name it in manifests that
    /// you keep in version control.
    #[serde(default = "default_version")]
    pub version: String,
    /// The image that PostgreSQL's binaries come from. Left out, it is the official `postgres:<version>`. Any image with
    /// PostgreSQL's binaries of that major version works: Bellwether brings its own agent along. Set it for a private
    /// registry, for extensions, or to pin a minor version (`postgres:17.6`) or a digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Secrets of type `kubernetes.io/dockerconfigjson`, in the cluster's namespace, with the credentials to pull the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// How many instances there are in total: one primary and `replicas - 1` standbys. 1 is for development; 2 survives a
    /// failure but may lose the last commits; 3 or more survive one without losing any. `kubectl scale` works. Raising it
    /// adds standbys, lowering it removes standbys, never the primary.
    #[serde(default = "default_replicas")]
    pub replicas: i32,
    /// The volumes of each instance.
    #[serde(default)]
    pub storage: Storage,
    /// CPU and memory of each instance, as for any container. Left out, instances run without requests or limits: fine for
    /// trying things out, but in production set at least the memory request, and make limit and request of memory equal,
    /// so that the node never kills PostgreSQL to help others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ResourceRequirements")]
    pub resources: Option<ResourceRequirements>,
    /// Where instances run.
    #[serde(default)]
    pub scheduling: Scheduling,
    /// PostgreSQL settings as in `postgresql.conf`, name to value, always strings: `{work_mem: "64MB", max_connections: "300"}`.
    /// Settings that Bellwether itself depends on are refused, with what to use instead; docs/reference/parameters.md
    /// lists them. What isn't set has PostgreSQL's own default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Extra lines of `pg_hba.conf`, tried after Bellwether's own (which let in replication and the agents by certificate,
    /// and the superuser by password) and before its last one (every user to every database, by password, over TLS only).
    /// One line an entry: `hostssl all reporting 10.0.0.0/8 scram-sha-256`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pg_hba: Vec<String>,
    /// What an acknowledged commit is worth.
    #[serde(default)]
    pub durability: Durability,
    /// When base backups are taken and how long they are kept. Backups are on by default.
    #[serde(default)]
    pub backup: BackupPolicy,
    /// Metrics.
    #[serde(default)]
    pub monitoring: Monitoring,
    /// Which risky actions Bellwether takes by itself.
    #[serde(default)]
    pub automation: Automation,
    /// How the database comes into being.
    #[serde(default)]
    pub bootstrap: Bootstrap,
}

/// Not derived: an empty version and no replicas would be a spec that our own schema refuses.
impl Default for PostgresClusterSpec {
    fn default() -> Self {
        Self {
            version: default_version(),
            image: None,
            image_pull_secrets: vec![],
            replicas: default_replicas(),
            storage: Storage::default(),
            resources: None,
            scheduling: Scheduling::default(),
            parameters: BTreeMap::new(),
            pg_hba: vec![],
            durability: Durability::default(),
            backup: BackupPolicy::default(),
            monitoring: Monitoring::default(),
            automation: Automation::default(),
            bootstrap: Bootstrap::default(),
        }
    }
}

fn default_version() -> String {
    versions::DEFAULT.to_owned()
}

/// One: whoever writes `spec: {}` is trying things out, and one instance always fits.
fn default_replicas() -> i32 {
    1
}
