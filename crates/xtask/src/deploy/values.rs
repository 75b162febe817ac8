//! The values of the chart: what a user may set, with which type. `values.schema.json` is made from these types, so that Helm
//! refuses a typo; `values.yaml`, written by hand with its comments, must read as them.
#![expect(
    dead_code,
    reason = "most are read by Helm alone; here they are the schema, and what `values.yaml` is held to"
)]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, ResourceRequirements, Toleration, TopologySpreadConstraint,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// Values of the chart.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Values {
    /// How many operators run. One leads, the others take over within seconds.
    #[schemars(range(min = 1, max = 9))]
    pub replicas: i32,
    /// The operator's image. Database pods copy the agent from it, so nodes of databases must be able to pull it too.
    pub image: Image,
    /// The namespaces whose clusters are looked after. Empty: all, which takes ClusterRoles. Otherwise Roles in each of these.
    #[schemars(inner(regex(pattern = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")))]
    #[schemars(extend("uniqueItems" = true))]
    pub watch_namespaces: Vec<String>,
    /// The user and group that PostgreSQL runs as.
    #[schemars(range(min = 1))]
    pub postgres_uid: i64,
    /// A filter of what is logged; empty is `info` for the operator and `warn` for libraries.
    pub log: String,
    /// A Secret of the operator's namespace with the certificate (`tls.crt`, `tls.key`) that it shows; empty: one that it makes at its
    /// start.
    pub tls_secret: String,
    /// The custom resource definitions.
    pub crds: Crds,
    /// The operator's service account.
    pub service_account: ServiceAccount,
    /// What the operator's container asks for and may use.
    pub resources: ResourceRequirements,
    /// Labels that a node must have for an operator to run there.
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes that operators tolerate.
    pub tolerations: Vec<Toleration>,
    /// Affinity rules of the operator's pods.
    #[schemars(with = "Affinity")]
    pub affinity: Value,
    /// How operators spread, in place of the default: over nodes and zones where there are several.
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// The PriorityClass of the operator's pods.
    pub priority_class_name: String,
    /// Further labels of the operator's pods.
    pub pod_labels: BTreeMap<String, String>,
    /// Annotations of the operator's pods.
    pub pod_annotations: BTreeMap<String, String>,
    /// The operator's NetworkPolicy.
    pub network_policy: NetworkPolicy,
    /// The Prometheus operator's ServiceMonitor.
    pub service_monitor: ServiceMonitor,
    /// Values that a parent chart gives to all its parts; none is used here.
    #[serde(default)]
    pub global: BTreeMap<String, Value>,
}

/// An image.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Image {
    /// Registry and path.
    #[schemars(length(min = 1))]
    pub repository: String,
    /// The tag; empty is the chart's `appVersion`.
    pub tag: String,
    /// The digest, `sha256:…`. Where set, the tag isn't used.
    #[schemars(regex(pattern = r"^(sha256:[0-9a-f]{64})?$"))]
    pub digest: String,
    /// When nodes pull it.
    pub pull_policy: PullPolicy,
    /// Secrets of the operator's namespace with the registry's credentials. Database pods take theirs from
    /// `spec.imagePullSecrets` of their cluster.
    pub pull_secrets: Vec<LocalObjectReference>,
}

/// When nodes pull an image.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// At each start.
    Always,
    /// When it isn't there.
    IfNotPresent,
    /// Never.
    Never,
}

/// The custom resource definitions.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Crds {
    /// Whether the chart installs and upgrades them. They stay when the release is uninstalled.
    pub install: bool,
}

/// The operator's service account.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceAccount {
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
}

/// The operator's NetworkPolicy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkPolicy {
    /// Whether there is one.
    pub enabled: bool,
    /// Ports of the API server. A policy sees the port behind the Service, which depends on the distribution.
    #[schemars(inner(range(min = 1, max = 65535)), length(min = 1))]
    pub api_server_ports: Vec<i32>,
}

/// The Prometheus operator's ServiceMonitor.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceMonitor {
    /// Whether there is one; its kind must be installed.
    pub enabled: bool,
    /// How often metrics are collected.
    #[schemars(regex(pattern = r"^[0-9]+(ms|s|m|h)$"))]
    pub interval: String,
    /// Labels by which a Prometheus finds it.
    pub labels: BTreeMap<String, String>,
    /// How Prometheus checks the operator's certificate.
    pub tls_config: BTreeMap<String, Value>,
}
