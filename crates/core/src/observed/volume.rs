//! What is known of a volume: whose it is, which database is on it, and what its owner wanted to happen to it.

use bellwether_api::labels;
use bellwether_api::v1::OnDelete;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimStatus};

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
    /// The size that it has; nothing as long as its storage doesn't say.
    pub capacity: Option<String>,
    /// Whether there is storage behind it.
    pub bound: bool,
    /// Whether there was, and it is gone.
    pub lost: bool,
    /// What its storage says about making it larger.
    pub growth: Option<Growth>,
    /// Whether several nodes may write to it at once.
    pub shared: bool,
    /// It is being deleted.
    pub terminating: bool,
}

/// What storage says of a volume that is to be larger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Growth {
    /// The volume is larger, the file system on it not yet.
    FileSystemPending,
    /// It can't be, in the storage's words.
    Refused(String),
}

impl Growth {
    fn read(status: &PersistentVolumeClaimStatus) -> Option<Self> {
        let condition = |type_: &str| {
            let found = status.conditions.iter().flatten().find(|found| found.type_ == type_ && found.status == "True");
            found.map(|found| found.message.clone().unwrap_or_default())
        };
        let resources = status.allocated_resource_statuses.as_ref();
        let resizing = resources.and_then(|resources| resources.get("storage")).map(String::as_str);
        let words = ["ControllerResizeError", "NodeResizeError"].into_iter().find_map(condition);
        match (resizing, words) {
            (_, Some(words)) => Some(Self::Refused(words)),
            (Some(infeasible @ ("ControllerResizeInfeasible" | "NodeResizeInfeasible")), None) => {
                Some(Self::Refused(infeasible.to_owned()))
            }
            _ => condition("FileSystemResizePending").map(|_| Self::FileSystemPending),
        }
    }
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
            capacity: claim
                .status
                .as_ref()
                .and_then(|status| status.capacity.as_ref()?.get("storage"))
                .map(|size| size.0.clone()),
            lost: claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost"),
            bound: claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound"),
            growth: claim.status.as_ref().and_then(Growth::read),
            shared: claim
                .spec
                .as_ref()
                .and_then(|spec| spec.access_modes.as_ref())
                .is_some_and(|modes| modes.iter().any(|mode| mode == "ReadWriteMany")),
            terminating: metadata.deletion_timestamp.is_some(),
        })
    }
}
