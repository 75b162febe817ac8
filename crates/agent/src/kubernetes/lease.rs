//! The cluster's Lease: read, watched, and replaced.
//!
//! Never: written other than by a PUT with the uid and resourceVersion that the decision was made on, sent once (E1). What came of it is
//! told in three ways, and "no answer" is one of them.

use std::time::Duration;

use bellwether_api::labels;
use bellwether_core::contract::Leader;
use bellwether_core::fact::Fact;
use bellwether_core::instance::start::LeaseView;
use bellwether_core::wal::{SystemIdentifier, Term};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams, WatchEvent, WatchParams};
use serde_json::Value;
use tokio::sync::mpsc;

use super::{ApiError, call};

/// How long one watch may last before it is opened anew: a connection that died silently is noticed by then.
const WATCH_SECONDS: u32 = 240;
/// How long to wait before looking again when the API can't be reached.
const RETRY: Duration = Duration::from_secs(1);
/// How long a read or write in an election may take: two fit into the time that a renewal has.
const ELECTION_DEADLINE: Duration = Duration::from_millis(1_500);

/// What came of a write.
#[derive(Clone, Debug, PartialEq)]
pub enum Put {
    /// It is committed; this is the Lease after it.
    Committed(Value),
    /// It is not, and never will be.
    Refused,
    /// No answer, or one that doesn't tell: it may be committed, and may be later.
    Ambiguous,
}

/// The Lease of one cluster.
#[derive(Clone, Debug)]
pub struct Leases {
    api: Api<Lease>,
    name: String,
}

impl Leases {
    /// The Lease called `name`.
    pub fn new(client: kube::Client, namespace: &str, name: String) -> Self {
        Self { api: Api::namespaced(client, namespace), name }
    }

    /// Reads it, from the API itself. Not being able to is `Unknown`, which nobody acts on; the log says why.
    pub async fn read(&self) -> Fact<Value> {
        match tokio::time::timeout(ELECTION_DEADLINE, call("read the Lease", self.api.get_opt(&self.name))).await {
            Ok(Ok(None)) => Fact::Absent,
            Ok(Ok(Some(lease))) => Fact::Known(json(&lease)),
            Ok(Err(error)) => {
                tracing::warn!(%error, "the Lease can't be read");
                Fact::Unknown
            }
            Err(_) => {
                tracing::warn!("the Lease can't be read: no answer from the API");
                Fact::Unknown
            }
        }
    }

    /// Replaces it by `object`, which names uid and resourceVersion. Sent once.
    pub async fn put(&self, object: Value) -> Put {
        let Ok(lease) = serde_json::from_value::<Lease>(object) else { return Put::Refused };
        let params = PostParams::default();
        let written = self.api.replace(&self.name, &params, &lease);
        match tokio::time::timeout(ELECTION_DEADLINE, written).await {
            Ok(Ok(lease)) => Put::Committed(json(&lease)),
            Ok(Err(error)) => {
                let outcome = judged(&error);
                tracing::warn!(%error, ?outcome, "the Lease was not written");
                outcome
            }
            Err(_) => {
                tracing::warn!("no answer to a write of the Lease");
                Put::Ambiguous
            }
        }
    }

    /// Sends each state of the Lease, for ever. A watch that ends, for whatever reason, begins again with a read.
    pub async fn follow(self, publish: mpsc::UnboundedSender<Fact<Value>>) {
        loop {
            match self.read().await {
                Fact::Known(object) => {
                    let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
                    if publish.send(Fact::Known(object)).is_err() {
                        return;
                    }
                    if let Err(error) = self.watch(&version, &publish).await {
                        tracing::debug!(%error, "the watch on the Lease ended");
                        tokio::time::sleep(RETRY).await;
                    }
                }
                Fact::Absent => {
                    let _ = publish.send(Fact::Absent);
                    tokio::time::sleep(RETRY).await;
                }
                // What was known stays: an API that is away has not changed the Lease.
                Fact::Unknown => tokio::time::sleep(RETRY).await,
            }
        }
    }

    async fn watch(&self, version: &str, publish: &mpsc::UnboundedSender<Fact<Value>>) -> kube::Result<()> {
        let params = WatchParams::default().fields(&format!("metadata.name={}", self.name)).timeout(WATCH_SECONDS);
        let mut events = self.api.watch(&params, version).await?.boxed();
        while let Some(event) = events.try_next().await? {
            let sight = match event {
                WatchEvent::Added(lease) | WatchEvent::Modified(lease) => Fact::Known(json(&lease)),
                WatchEvent::Deleted(_) => Fact::Absent,
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            };
            let _ = publish.send(sight);
        }
        Ok(())
    }
}

/// A 4xx is an answer: the write was looked at and not carried out. Anything else may have been.
fn judged(error: &kube::Error) -> Put {
    match error {
        kube::Error::Api(status) if (400..500).contains(&status.code) => Put::Refused,
        _ => Put::Ambiguous,
    }
}

fn json(lease: &Lease) -> Value {
    serde_json::to_value(lease).unwrap_or_default()
}

/// Where the leader is and whose database it serves, beside the election's own record. What can't be read is an error and not an absence:
/// taking a damaged annotation for none would let a second database be initialised.
pub fn view(object: &Value) -> Result<LeaseView, ApiError> {
    let malformed = |why: String| ApiError::Malformed { what: "the Lease", why };
    let annotation = |key: &str| object["metadata"]["annotations"][key].as_str();
    let leader = annotation(labels::LEADER)
        .map(|text| {
            serde_json::from_str::<Leader>(text).map_err(|error| malformed(format!("{}: {error}", labels::LEADER)))
        })
        .transpose()?;
    let system = annotation(labels::SYSTEM_IDENTIFIER)
        .map(|text| text.parse::<SystemIdentifier>().map_err(|error| malformed(error.to_string())))
        .transpose()?;
    let spec = &object["spec"];
    let holder = spec["holderIdentity"].as_str().filter(|holder| !holder.is_empty()).map(str::to_owned);
    Ok(LeaseView { leader, system, term: spec["leaseTransitions"].as_u64().map(Term), holder })
}

/// Adds to a write of the election's record who leads, where, and with which database.
pub fn announce(object: &mut Value, leader: &Leader, system: SystemIdentifier) {
    let leader = serde_json::json!({ "instance": leader.instance, "address": leader.address });
    object["metadata"]["annotations"][labels::LEADER] = leader.to_string().into();
    object["metadata"]["annotations"][labels::SYSTEM_IDENTIFIER] = system.to_string().into();
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SYSTEM: SystemIdentifier = SystemIdentifier(7_312_345_678_901_234_567);

    #[test]
    fn an_empty_lease_names_nobody() {
        assert_eq!(view(&json!({"metadata": {}, "spec": {}})).unwrap(), LeaseView::default());
    }

    #[test]
    fn what_was_announced_reads_back() {
        let leader = Leader { instance: "orders-1".into(), address: "10.0.0.1".into() };
        let mut lease = json!({"metadata": {}, "spec": {"holderIdentity": "uid-1", "leaseTransitions": 3}});
        announce(&mut lease, &leader, SYSTEM);
        let view = view(&lease).unwrap();
        assert_eq!((view.leader, view.system, view.term), (Some(leader), Some(SYSTEM), Some(Term(3))));
        assert_eq!(view.holder.as_deref(), Some("uid-1"));
    }

    #[test]
    fn a_damaged_annotation_is_not_taken_for_none() {
        for (key, text) in [(labels::LEADER, "{"), (labels::SYSTEM_IDENTIFIER, "0"), (labels::SYSTEM_IDENTIFIER, "x")] {
            let lease = json!({"metadata": {"annotations": {key: text}}});
            assert!(view(&lease).is_err(), "{key}={text}");
        }
    }

    #[test]
    fn only_a_refusal_is_certain_not_to_be_committed() {
        let api = |code| kube::Error::Api(Box::new(kube::core::Status { code, ..Default::default() }));
        assert_eq!(judged(&api(409)), Put::Refused);
        assert_eq!(judged(&api(404)), Put::Refused);
        assert_eq!(judged(&api(500)), Put::Ambiguous);
        assert_eq!(judged(&api(504)), Put::Ambiguous);
    }
}
