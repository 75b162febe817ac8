//! Where instances run.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, Toleration, TopologySpreadConstraint};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where instances run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scheduling {
    /// Whether instances share nodes. `preferred`: different nodes where there are enough of them; a condition warns when all
    /// share one. `required`: an instance that finds no node of its own stays pending. `off`: no rule.
    #[serde(default)]
    pub anti_affinity: AntiAffinity,
    /// Labels that a node must have for an instance to run there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes that instances tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Further affinity rules, as in a pod. They are added to `antiAffinity` and can't take it back; set that to `off` to
    /// write your own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Affinity")]
    pub affinity: Option<Affinity>,
    /// How instances spread over zones or other domains, as in a pod. A constraint without a `labelSelector` counts the
    /// cluster's own instances.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// The PriorityClass of the pods. Give databases one above the rest, so that a full node evicts others first.
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
