//! The Kubernetes objects of a cluster, each from the spec alone and without side effects: one file a kind.
//!
//! What they share is here: names, labels, the owner. Never: an owner reference on a volume (the garbage collector would
//! delete the data with the cluster, whatever `onDelete` says).

pub mod config;
pub mod disruption_budget;
mod kept;
pub mod lease;
pub mod pod;
pub mod rbac;
mod scheduling;
pub mod secret;
pub mod service;
pub mod slices;
#[cfg(test)]
mod tests;
pub mod verifier;
pub mod volume;

use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_api::labels;
use bellwether_api::names::Names;
use bellwether_api::v1::PostgresCluster;
use bellwether_api::validate;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use serde_json::Value;

pub use kept::Kept;

use crate::object::{Desired, Kind};

/// What the operator was told at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The operator's own image, from which the init container copies the agent.
    pub image: String,
    /// The address family of the cluster's Services.
    pub addresses: AddressType,
    /// The user and group that PostgreSQL runs as. 999 is `postgres` in the official Debian images, our default; CloudNativePG's
    /// images use 26, Alpine's 70. It is a number because `runAsNonRoot` can only be checked against one.
    pub postgres_uid: i64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            image: format!("bellwether:{}", env!("CARGO_PKG_VERSION")),
            addresses: AddressType::default(),
            postgres_uid: 999,
        }
    }
}

/// The address family of EndpointSlices; immutable in each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressType {
    /// `IPv4`
    #[default]
    IPv4,
    /// `IPv6`
    IPv6,
}

impl AddressType {
    /// As Kubernetes spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::IPv4 => "IPv4",
            Self::IPv6 => "IPv6",
        }
    }

    /// The family of an address.
    pub fn of(address: &str) -> Self {
        if address.contains(':') { Self::IPv6 } else { Self::IPv4 }
    }
}

/// The cluster that objects are built for.
#[derive(Clone, Debug)]
pub struct Parent<'a> {
    /// The cluster.
    pub cluster: &'a PostgresCluster,
    /// What its children are called.
    pub names: Names,
    /// Its namespace.
    pub namespace: String,
    /// Its UID.
    pub uid: String,
    /// What the operator was told.
    pub settings: &'a Settings,
    /// Where its objects are kept, if they are.
    kept: Option<&'a Kept>,
}

impl<'a> Parent<'a> {
    /// Of a cluster as the API server has it; `None` for one that was never stored.
    pub fn of(cluster: &'a PostgresCluster, settings: &'a Settings) -> Option<Self> {
        Some(Self {
            names: Names::of(cluster.name_any()),
            namespace: cluster.namespace()?,
            uid: cluster.uid()?,
            cluster,
            settings,
            kept: None,
        })
    }

    /// With objects that were built before, as far as they were built from the same.
    pub fn keeping(mut self, kept: &'a Kept) -> Self {
        kept.open(&self);
        self.kept = Some(kept);
        self
    }

    /// Everything in the spec that can't be acted on; empty when all is fine.
    pub fn invalid(&self) -> Vec<String> {
        let look = || validate::validate(self.cluster).iter().map(ToString::to_string).collect();
        match self.kept {
            Some(kept) => kept.invalid(look),
            None => look(),
        }
    }

    /// An object of the cluster, made from it and from `from` alone.
    fn built<F: PartialEq + ToOwned<Owned: Send + 'static> + ?Sized>(
        &self,
        kind: Kind,
        name: &str,
        from: &F,
        build: impl FnOnce() -> Desired,
    ) -> Desired {
        match self.kept {
            Some(kept) => kept.or_built(kind, name, from, build),
            None => build(),
        }
    }

    /// Whether an object already is what we want.
    pub fn holds_in(&self, desired: &Desired, observed: &Arc<Value>) -> bool {
        match self.kept {
            Some(kept) => kept.holds_in(desired, observed),
            None => desired.holds_in(observed),
        }
    }

    /// The labels of everything.
    pub fn labels(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            (labels::CLUSTER.to_owned(), self.names.cluster().to_owned()),
            (labels::MANAGED_BY.to_owned(), labels::MANAGED_BY_VALUE.to_owned()),
            (labels::APP_NAME.to_owned(), labels::APP_NAME_VALUE.to_owned()),
        ])
    }

    /// Labels by which the cluster's pods are found: those that never change.
    pub fn selector(&self) -> BTreeMap<String, String> {
        BTreeMap::from([(labels::CLUSTER.to_owned(), self.names.cluster().to_owned())])
    }

    /// Metadata of a child that goes with the cluster.
    pub fn owned(&self, name: &str) -> ObjectMeta {
        ObjectMeta { owner_references: Some(vec![self.owner()]), ..self.unowned(name) }
    }

    /// Metadata of a child that outlives the cluster.
    pub fn unowned(&self, name: &str) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(self.namespace.clone()),
            labels: Some(self.labels()),
            ..ObjectMeta::default()
        }
    }

    /// `blockOwnerDeletion` is left out: it needs permission on the owner's finalizers, and would hold up a deletion.
    fn owner(&self) -> OwnerReference {
        OwnerReference {
            api_version: PostgresCluster::api_version(&()).into_owned(),
            kind: PostgresCluster::kind(&()).into_owned(),
            name: self.names.cluster().to_owned(),
            uid: self.uid.clone(),
            controller: Some(true),
            block_owner_deletion: None,
        }
    }
}
