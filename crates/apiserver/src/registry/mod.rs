//! Which resources there are: the built-in kinds that we use, and those that CustomResourceDefinitions add.

mod builtin;
mod crd;
mod facts;
mod schema;

use serde_json::Value;

pub use builtin::builtin;
pub use crd::resources_of;
pub use schema::Schema;
pub(crate) use schema::{Additional, Kind, List, NOTHING, Structure};

/// One resource in one API version.
#[derive(Clone, Debug)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: String,
    /// API version, such as `v1`.
    pub version: String,
    /// Whether this version is the stored one.
    pub storage: bool,
    /// `postgresclusters`
    pub plural: String,
    /// `postgrescluster`
    pub singular: String,
    /// `PostgresCluster`
    pub kind: String,
    /// `PostgresClusterList`
    pub list_kind: String,
    /// `pgc`
    pub short_names: Vec<String>,
    /// `all`
    pub categories: Vec<String>,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Whether `/status` exists.
    pub has_status: bool,
    /// Paths of the scale subresource, if there is one.
    pub scale: Option<ScalePaths>,
    /// The OpenAPI v3 schema (structural for CRDs; for built-in kinds with `x-kubernetes-list-type`, `-list-map-keys`,
    /// `-map-type`, `-patch-strategy`, `-patch-merge-key` filled in).
    pub schema: Schema,
    /// Printer columns as in a CRD (`name`, `type`, `jsonPath`, `priority`, `format`, `description`).
    pub columns: Vec<Value>,
    /// Whether it comes from a CRD: pruned, defaulted and validated by its schema, CEL included.
    pub custom: bool,
}

/// Where a CRD keeps what the scale subresource shows: JSON paths such as `.spec.replicas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// `.spec.replicas`
    pub spec: String,
    /// `.status.replicas`
    pub status: String,
    /// `.status.selector`
    pub selector: Option<String>,
}

impl Resource {
    /// `apps/v1`, or `v1` in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `deployments.apps`, or `pods` in the core group.
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Where its objects are kept. All versions of a resource share it, and so do the two views of an Event.
    pub fn bucket(&self) -> String {
        if self.is("", "events") || self.is("events.k8s.io", "events") {
            "events".into()
        } else {
            self.group_resource()
        }
    }

    /// Whether its objects are kept there.
    pub fn is_in(&self, bucket: &str) -> bool {
        match bucket.strip_prefix(self.plural.as_str()) {
            Some("") => self.group.is_empty() || self.is("events.k8s.io", "events"),
            Some(rest) => rest.strip_prefix('.') == Some(&self.group) && !self.is("events.k8s.io", "events"),
            None => false,
        }
    }

    /// Whether it is this resource, in any version.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }
}
