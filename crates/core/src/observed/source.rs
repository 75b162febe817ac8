//! What is known of other objects that a new cluster is to be restored from.
//!
//! They are looked up only while they are needed: before the cluster has a database.

use std::sync::Arc;

use bellwether_api::v1::{Backup, PostgresCluster};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::fact::Fact;

/// The same as JSON, as the API server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawSource {
    /// The `Backup` that the spec names.
    pub backup: Fact<Arc<Value>>,
    /// The `PostgresCluster` that the spec names, or that the backup is of.
    pub cluster: Fact<Arc<Value>>,
}

impl Default for RawSource {
    /// None is named.
    fn default() -> Self {
        Self { backup: Fact::Absent, cluster: Fact::Absent }
    }
}

/// What the spec names to restore from. Absent where it names none.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The `Backup`.
    pub backup: Fact<Backup>,
    /// The `PostgresCluster`, or that of the backup.
    pub cluster: Fact<PostgresCluster>,
}

impl Source {
    pub(super) fn read(raw: &RawSource, unreadable: &mut Vec<String>) -> Self {
        Self {
            backup: read("Backup", &raw.backup, unreadable),
            cluster: read("PostgresCluster", &raw.cluster, unreadable),
        }
    }
}

/// What can't be read is unknown, and said: another release may have written it.
fn read<T: DeserializeOwned>(kind: &str, raw: &Fact<Arc<Value>>, unreadable: &mut Vec<String>) -> Fact<T> {
    match raw {
        Fact::Known(value) => match T::deserialize(&**value) {
            Ok(object) => Fact::Known(object),
            Err(why) => {
                let name = value["metadata"]["name"].as_str().unwrap_or_default();
                unreadable.push(format!("{kind} {name}, which is to be restored from: {why}"));
                Fact::Unknown
            }
        },
        Fact::Absent => Fact::Absent,
        Fact::Unknown => Fact::Unknown,
    }
}
