//! What is known of a volume: whose it is, which database is on it, and what its owner wanted to happen to it.

use bellwether_api::labels;
use bellwether_api::v1::OnDelete;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::wal::SystemIdentifier;

/// What a volume holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VolumeRole {
    /// The data directory.
    Data,
    /// The write-ahead log.
    Wal,
}

impl VolumeRole {
    /// The value of the label [`labels::VOLUME`].
    pub fn label(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Wal => "wal",
        }
    }
}

/// A PersistentVolumeClaim of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
    /// The instance it belongs to.
    pub instance: String,
    /// What it holds; nothing when its label is gone, and then nobody touches it.
    pub role: Option<VolumeRole>,
    /// The UID of the cluster that uses it.
    pub cluster_uid: Option<String>,
    /// The database on it.
    pub system_identifier: Option<SystemIdentifier>,
    /// Whether the instance on it led last.
    pub was_primary: Option<bool>,
    /// What happens to it with its cluster; `None` when nobody said, which is "retain".
    pub on_delete: Option<OnDelete>,
    /// The size that was asked for.
    pub size: Option<String>,
    /// Whether several nodes may write to it at once.
    pub shared: bool,
    /// It is being deleted.
    pub terminating: bool,
}

impl Volume {
    /// Reads a claim; `None` when it isn't one of an instance.
    pub fn read(claim: &PersistentVolumeClaim) -> Option<Self> {
        let metadata = &claim.metadata;
        let label = |key: &str| metadata.labels.as_ref()?.get(key).cloned();
        let annotation = |key: &str| metadata.annotations.as_ref()?.get(key).cloned();
        Some(Self {
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
            resource_version: metadata.resource_version.clone()?,
            instance: label(labels::INSTANCE)?,
            role: match label(labels::VOLUME).as_deref() {
                Some("data") => Some(VolumeRole::Data),
                Some("wal") => Some(VolumeRole::Wal),
                _ => None,
            },
            cluster_uid: annotation(labels::CLUSTER_UID),
            system_identifier: annotation(labels::SYSTEM_IDENTIFIER).and_then(|text| text.parse().ok()),
            was_primary: annotation(labels::LAST_ROLE).map(|role| role == "primary"),
            on_delete: match annotation(labels::ON_DELETE).as_deref() {
                Some("Delete") => Some(OnDelete::Delete),
                Some("Retain") => Some(OnDelete::Retain),
                _ => None,
            },
            size: claim
                .spec
                .as_ref()
                .and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get("storage"))
                .map(|size| size.0.clone()),
            shared: claim
                .spec
                .as_ref()
                .and_then(|spec| spec.access_modes.as_ref())
                .is_some_and(|modes| modes.iter().any(|mode| mode == "ReadWriteMany")),
            terminating: metadata.deletion_timestamp.is_some(),
        })
    }
}
