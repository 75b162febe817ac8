//! Why a condition is what it is. Each reason is the file name of a runbook in `docs/runbooks/`.

use serde::{Deserialize, Serialize};

/// The reason of a condition: an enum, because code, alerts and runbooks depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Reason {
    /// Everything asked for is there and works.
    AsSpecified,
    /// Objects that the cluster needs are being created.
    Provisioning,
    /// The first instance is initialising its database.
    Bootstrapping,
    /// Instances are copying their data or catching up.
    Joining,
    /// An instance is restarting.
    Restarting,
    /// No instance accepts writes.
    NoPrimary,
    /// An instance is down or doesn't stream.
    ReplicaUnhealthy,
    /// A pod's image can't be had.
    ImageUnavailable,
    /// A pod can't be placed on a node.
    Unschedulable,
    /// A pod's container keeps failing.
    InstanceCrashing,
    /// The spec has a value that we can't act on; the message names the field and the fix.
    InvalidSpec,
    /// Volumes under this name hold another database.
    SystemIdentifierMismatch,
    /// Volumes under this name are there, but which of them led can't be told.
    AdoptionAmbiguous,
    /// Volumes of a deleted cluster of this name are still being removed.
    WaitingForVolumes,
    /// A field was accepted but isn't acted on by this release.
    NotYetActedOn,
    /// The API server refused a write; the message says which and why.
    ApiRefused,
    /// All instances are on one node.
    SharedFailureDomain,
    /// The cluster is being deleted.
    Deleting,
}

impl Reason {
    /// Every reason, for tests and documentation.
    pub const ALL: [Self; 18] = [
        Self::AsSpecified,
        Self::Provisioning,
        Self::Bootstrapping,
        Self::Joining,
        Self::Restarting,
        Self::NoPrimary,
        Self::ReplicaUnhealthy,
        Self::ImageUnavailable,
        Self::Unschedulable,
        Self::InstanceCrashing,
        Self::InvalidSpec,
        Self::SystemIdentifierMismatch,
        Self::AdoptionAmbiguous,
        Self::WaitingForVolumes,
        Self::NotYetActedOn,
        Self::ApiRefused,
        Self::SharedFailureDomain,
        Self::Deleting,
    ];
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}
