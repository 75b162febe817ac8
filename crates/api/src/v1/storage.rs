//! The volumes of each instance.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The volumes of each instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Size of each instance's data volume: `100Gi`. It has to hold the data, the write-ahead log (unless `wal` gives that a
    /// volume of its own) and room for PostgreSQL to sort and vacuum: start with twice the data.
    #[serde(default = "default_size")]
    pub size: Quantity,
    /// The StorageClass of the volumes. Left out, it is the Kubernetes cluster's default class. Replication already keeps
    /// copies: fast local disks are a better choice than storage that replicates a second time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// Gives the write-ahead log a volume of its own. Worth it when the data volume is slow or when a flood of WAL must
    /// never take the room of the data; otherwise leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "WalStorage")]
    pub wal: Option<WalStorage>,
    /// What happens to the volumes when the PostgresCluster is deleted. `Retain`: they stay, and a cluster created again
    /// under the same name takes them up with all data. `Delete`: they go, and the data with them; for clusters that
    /// are thrown away on purpose. It is read at the moment of deletion.
    #[serde(default)]
    pub on_delete: OnDelete,
}

/// A volume for the write-ahead log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WalStorage {
    /// Size of each instance's WAL volume. Room for the WAL of as long as a standby may be away: `max_wal_size` at least,
    /// some hours of your write load at best.
    pub size: Quantity,
    /// The StorageClass of the WAL volumes. Left out, it is that of the data volumes.
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

fn default_size() -> Quantity {
    Quantity("10Gi".to_owned())
}

impl Default for Storage {
    fn default() -> Self {
        Self { size: default_size(), storage_class: None, wal: None, on_delete: OnDelete::default() }
    }
}
