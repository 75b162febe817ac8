//! What is known of a pod that verifies a backup: whether it still does, and its last words.

use bellwether_api::labels;
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;

use super::pod::{Given, PodPhase, Trouble, trouble};
use crate::contract::{CONTAINER, VerifyResult};

/// A pod that verifies a backup.
#[derive(Clone, Debug, PartialEq)]
pub struct Verifier {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
    /// The UID of its controller.
    pub owner: Option<String>,
    /// The name of the `Backup`.
    pub backup: String,
    /// Its UID.
    pub backup_uid: String,
    /// It is being deleted.
    pub terminating: bool,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// `status.phase`.
    pub phase: PodPhase,
    /// What keeps it from running.
    pub trouble: Option<Trouble>,
    /// How it ended, once it has.
    pub ended: Option<Ended>,
}

/// How a verification ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// When; nothing when nobody says.
    pub at: Option<Timestamp>,
    /// What it said, or why it said nothing that can be understood.
    pub said: Result<VerifyResult, String>,
}

impl Verifier {
    /// Reads a pod; nothing of one that verifies nothing.
    pub(super) fn read(pod: &Given) -> Option<Self> {
        let metadata = pod.metadata();
        metadata.labels.as_ref()?.get(labels::VERIFIES)?;
        let annotation = |key: &str| metadata.annotations.as_ref()?.get(key).cloned();
        let status = pod.status();
        let phase = PodPhase::of(status);
        Some(Self {
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
            resource_version: metadata.resource_version.clone()?,
            owner: super::read::controller(metadata),
            backup: annotation(labels::BACKUP)?,
            backup_uid: annotation(labels::BACKUP_UID)?,
            terminating: metadata.deletion_timestamp.is_some(),
            created: metadata.creation_timestamp.as_ref().map(|at| at.0),
            phase,
            trouble: status.and_then(trouble),
            ended: (phase == PodPhase::Ended).then(|| ended(status)),
        })
    }
}

fn ended(status: Option<&core::PodStatus>) -> Ended {
    let containers = status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let ours = containers.filter(|container| container.name == CONTAINER);
    let terminated = ours.filter_map(|container| container.state.as_ref()?.terminated.as_ref()).next();
    let at = terminated.and_then(|terminated| terminated.finished_at.as_ref()).map(|at| at.0);
    let words = terminated.and_then(|terminated| terminated.message.as_deref()).unwrap_or_default();
    let said = serde_json::from_str(words).map_err(|_| {
        // Evicted, its node shut down, or killed: the pod, or else the container, says why.
        let of_pod = status.and_then(|status| status.message.clone().or_else(|| status.reason.clone()));
        let of_container = || {
            let terminated = terminated?;
            let reason = terminated.reason.as_deref().unwrap_or("no reason");
            Some(format!("exit code {}, {reason}", terminated.exit_code))
        };
        let why = of_pod.or_else(of_container).unwrap_or_else(|| "nobody says why".to_owned());
        format!("its pod ended without a result: {why}")
    });
    Ended { at, said }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::VerifyOutcome;
    use serde_json::{Value, json};

    fn verifier(status: &Value) -> Verifier {
        let metadata = json!({
            "name": "b.verify-1", "uid": "u", "resourceVersion": "1", "labels": {labels::VERIFIES: "orders"},
            "annotations": {labels::BACKUP: "b", labels::BACKUP_UID: "uid-b"},
        });
        let given: Given = serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap();
        Verifier::read(&given).unwrap()
    }

    fn terminated(message: &str) -> Value {
        let state = json!({"terminated": {
            "exitCode": 1, "reason": "Error", "message": message, "finishedAt": "2026-01-01T00:05:00Z",
        }});
        let container = json!({
            "name": CONTAINER, "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state,
        });
        json!({"phase": "Failed", "containerStatuses": [container]})
    }

    #[test]
    fn its_last_words_are_its_result() {
        let words = json!({"outcome": "Bad", "finding": "base/x/pack-00000.tar.zst is damaged"}).to_string();
        let ended = verifier(&terminated(&words)).ended.unwrap();
        let said = ended.said.unwrap();
        assert_eq!((said.outcome, said.finding.is_some(), ended.at.is_some()), (VerifyOutcome::Bad, true, true));
    }

    #[test]
    fn one_that_says_nothing_says_nothing_of_the_backup() {
        for words in ["", "{\"outcome\": \"Go", "killed"] {
            let said = verifier(&terminated(words)).ended.unwrap().said;
            assert_eq!(said.unwrap_err(), "its pod ended without a result: exit code 1, Error");
        }
        let evicted =
            json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."});
        let said = verifier(&evicted).ended.unwrap().said.unwrap_err();
        assert!(said.ends_with("The node was low on resource: memory."), "{said}");
    }

    #[test]
    fn one_that_runs_has_not_ended() {
        assert_eq!(verifier(&json!({"phase": "Running"})).ended, None);
        assert_eq!(verifier(&Value::Null).phase, PodPhase::Pending);
    }

    #[test]
    fn an_instance_is_none() {
        let metadata =
            json!({"name": "orders-1", "uid": "u", "resourceVersion": "1", "labels": {labels::CLUSTER: "orders"}});
        let given: Given = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        assert_eq!(Verifier::read(&given), None);
    }
}
