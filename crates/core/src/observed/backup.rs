//! What is known of a `Backup`: what was asked for, and what was said of it.

use bellwether_api::labels;
use bellwether_api::v1::{BackupPhase, BackupStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use crate::fact::Fact;

/// A `Backup` of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Backup {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// It is being deleted.
    pub terminating: bool,
    /// The time of the schedule that it was created for; nothing when a person created it.
    pub scheduled: Option<Timestamp>,
    /// Whether whoever created it wants it to be verified; nothing when the cluster's policy decides.
    pub verify: Option<bool>,
    /// What was said of it; absent when nothing was yet, unknown when it can't be read: a later release may have said it.
    pub status: Fact<BackupStatus>,
}

/// A backup as far as it is looked at. A status that can't be read makes no object unreadable: the cluster's own status would not be
/// written any more.
#[derive(Deserialize)]
pub(crate) struct Given {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: GivenSpec,
    #[serde(default)]
    status: Option<Value>,
}

#[derive(Default, Deserialize)]
struct GivenSpec {
    #[serde(default)]
    verify: Option<bool>,
}

impl Backup {
    /// Reads a backup.
    pub(crate) fn read(backup: Given) -> Option<Self> {
        let metadata = &backup.metadata;
        let annotation = |key: &str| metadata.annotations.as_ref()?.get(key).cloned();
        Some(Self {
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
            resource_version: metadata.resource_version.clone()?,
            created: metadata.creation_timestamp.as_ref().map(|at| at.0),
            terminating: metadata.deletion_timestamp.is_some(),
            scheduled: annotation(labels::SCHEDULED).and_then(|text| text.parse().ok()),
            verify: backup.spec.verify,
            status: match backup.status {
                None => Fact::Absent,
                Some(status) => serde_json::from_value(status).map_or(Fact::Unknown, Fact::Known),
            },
        })
    }

    /// Where it is in its life; nothing when nobody has looked at it yet, or when that can't be read.
    pub fn phase(&self) -> Option<BackupPhase> {
        self.status.known()?.phase
    }

    /// It waits or is being taken. What a later release is doing with it is not known, so it is left alone.
    pub fn is_open(&self) -> bool {
        !self.terminating && !self.status.is_unknown() && !self.phase().is_some_and(BackupPhase::is_taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn backup(status: &Value) -> Backup {
        let metadata =
            json!({"name": "b", "uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"});
        let given = json!({"metadata": metadata, "spec": {"cluster": "orders"}, "status": status});
        Backup::read(serde_json::from_value(given).unwrap()).unwrap()
    }

    #[test]
    fn one_that_nobody_has_looked_at_is_open_and_one_that_is_over_is_not() {
        assert!(backup(&Value::Null).is_open() && backup(&json!({})).is_open());
        assert!(backup(&json!({"phase": "Running"})).is_open());
        assert!(!backup(&json!({"phase": "Failed"})).is_open() && !backup(&json!({"phase": "Completed"})).is_open());
    }

    #[test]
    fn what_a_later_release_says_of_one_is_unknown_and_left_alone() {
        let later = backup(&json!({"phase": "Rehearsing"}));
        assert!(later.status.is_unknown() && !later.is_open());
    }
}
