//! The cluster's Lease: who leads, since which term, and whose database it is.
//!
//! Never: written other than by a PUT with the resourceVersion that the decision was made on, sent once. A conflict or a
//! missing answer is not retried here: whoever wanted to write reads again and decides again.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwether_api::labels;
use bellwether_core::contract::Leader;
use bellwether_core::fact::Fact;
use bellwether_core::instance::start::LeaseView;
use bellwether_core::wal::{SystemIdentifier, Term};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, PostParams, WatchEvent, WatchParams};
use tokio::sync::watch;

use super::{ApiError, call};

/// How long one watch may last before it is opened anew: a connection that died silently is noticed by then.
const WATCH_SECONDS: u32 = 240;
/// How long to wait before looking again when the API can't be reached.
const RETRY: Duration = Duration::from_secs(2);

/// The Lease as read, with what a write needs.
#[derive(Clone, Debug)]
pub struct Read {
    /// What it says.
    pub view: LeaseView,
    object: Lease,
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

    /// Reads it. Not being able to is `Unknown`, which nobody acts on; the log says why.
    pub async fn read(&self) -> Fact<Read> {
        match call("read the Lease", self.api.get_opt(&self.name)).await {
            Ok(None) => Fact::Absent,
            Ok(Some(object)) => match view(&object) {
                Ok(view) => Fact::Known(Read { view, object }),
                Err(error) => {
                    tracing::error!(%error, "the Lease can't be understood");
                    Fact::Unknown
                }
            },
            Err(error) => {
                tracing::warn!(%error, "the Lease can't be read");
                Fact::Unknown
            }
        }
    }

    /// Writes that `leader`, whose pod has the UID `holder`, leads with the database `system`. Every start of a leader writes,
    /// even when the content is the same: a process that has not written has no right to lead. The term grows when another pod leads.
    pub async fn take(
        &self,
        read: Read,
        leader: &Leader,
        holder: &str,
        system: SystemIdentifier,
        now: MicroTime,
    ) -> Result<Read, ApiError> {
        let object = taken(read.object, leader, holder, system, now);
        let written = call("take the Lease", self.api.replace(&self.name, &PostParams::default(), &object)).await?;
        Ok(Read { view: view(&written)?, object: written })
    }

    /// Publishes each state of the Lease, for ever. A watch that ends, for whatever reason, begins again with a read.
    pub async fn follow(self, publish: watch::Sender<Option<LeaseView>>) {
        loop {
            match self.read().await {
                Fact::Known(read) => {
                    let version = read.object.metadata.resource_version.clone().unwrap_or_default();
                    offer(&publish, Some(read.view));
                    if let Err(error) = self.watch(&version, &publish).await {
                        tracing::debug!(%error, "the watch on the Lease ended");
                        tokio::time::sleep(RETRY).await;
                    }
                }
                Fact::Absent => {
                    offer(&publish, None);
                    tokio::time::sleep(RETRY).await;
                }
                // What was known stays: an API that is away has not changed the Lease.
                Fact::Unknown => tokio::time::sleep(RETRY).await,
            }
        }
    }

    async fn watch(&self, version: &str, publish: &watch::Sender<Option<LeaseView>>) -> kube::Result<()> {
        let params = WatchParams::default().fields(&format!("metadata.name={}", self.name)).timeout(WATCH_SECONDS);
        let mut events = self.api.watch(&params, version).await?.boxed();
        while let Some(event) = events.try_next().await? {
            match event {
                WatchEvent::Added(lease) | WatchEvent::Modified(lease) => match view(&lease) {
                    Ok(view) => offer(publish, Some(view)),
                    Err(error) => tracing::error!(%error, "the Lease can't be understood"),
                },
                WatchEvent::Deleted(_) => offer(publish, None),
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            }
        }
        Ok(())
    }
}

fn offer(publish: &watch::Sender<Option<LeaseView>>, view: Option<LeaseView>) {
    publish.send_if_modified(|current| {
        let changed = *current != view;
        *current = view;
        changed
    });
}

/// What a Lease says. What can't be read is an error and not an absence: taking a damaged annotation for none would let a
/// second database be initialised.
fn view(lease: &Lease) -> Result<LeaseView, ApiError> {
    let malformed = |why: String| ApiError::Malformed { what: "the Lease", why };
    let annotation = |key: &str| lease.metadata.annotations.as_ref().and_then(|all| all.get(key));
    let leader = annotation(labels::LEADER)
        .map(|text| {
            serde_json::from_str::<Leader>(text).map_err(|error| malformed(format!("{}: {error}", labels::LEADER)))
        })
        .transpose()?;
    let system = annotation(labels::SYSTEM_IDENTIFIER)
        .map(|text| text.parse::<SystemIdentifier>().map_err(|error| malformed(error.to_string())))
        .transpose()?;
    let spec = lease.spec.clone().unwrap_or_default();
    let term = spec.lease_transitions.and_then(|term| u64::try_from(term).ok()).map(Term);
    let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
    Ok(LeaseView { leader, system, term, holder })
}

fn taken(mut lease: Lease, leader: &Leader, holder: &str, system: SystemIdentifier, now: MicroTime) -> Lease {
    let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
    if spec.holder_identity.as_deref() != Some(holder) {
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
        spec.acquire_time = Some(now.clone());
    }
    spec.holder_identity = Some(holder.to_owned());
    spec.renew_time = Some(now);
    let annotations = lease.metadata.annotations.get_or_insert_with(BTreeMap::new);
    let leader = serde_json::json!({ "instance": leader.instance, "address": leader.address });
    annotations.insert(labels::LEADER.to_owned(), leader.to_string());
    annotations.insert(labels::SYSTEM_IDENTIFIER.to_owned(), system.to_string());
    // Whoever manages the fields is told by our write, not repeated in it.
    lease.metadata.managed_fields = None;
    lease
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYSTEM: SystemIdentifier = SystemIdentifier(7_312_345_678_901_234_567);

    fn leader(address: &str) -> Leader {
        Leader { instance: "orders-1".into(), address: address.into() }
    }
    fn now() -> MicroTime {
        MicroTime(k8s_openapi::jiff::Timestamp::UNIX_EPOCH)
    }
    fn empty() -> Lease {
        let mut lease = Lease::default();
        lease.metadata.resource_version = Some("7".into());
        lease
    }

    #[test]
    fn an_empty_lease_names_nobody() {
        assert_eq!(view(&empty()).unwrap(), LeaseView::default());
    }

    #[test]
    fn the_first_to_take_it_has_term_one() {
        let view = view(&taken(empty(), &leader("10.0.0.1"), "uid-1", SYSTEM, now())).unwrap();
        assert_eq!(view.term, Some(Term(1)));
        assert_eq!(view.leader, Some(leader("10.0.0.1")));
        assert_eq!(view.system, Some(SYSTEM));
        assert_eq!(view.holder.as_deref(), Some("uid-1"));
    }

    #[test]
    fn the_same_pod_keeps_its_term_and_another_begins_a_new_one() {
        let first = taken(empty(), &leader("10.0.0.1"), "uid-1", SYSTEM, now());
        let again = taken(first, &leader("10.0.0.1"), "uid-1", SYSTEM, now());
        assert_eq!(view(&again).unwrap().term, Some(Term(1)));
        let other = taken(again, &leader("10.0.0.9"), "uid-2", SYSTEM, now());
        assert_eq!(view(&other).unwrap().term, Some(Term(2)));
        assert_eq!(view(&other).unwrap().leader, Some(leader("10.0.0.9")));
    }

    #[test]
    fn a_write_is_bound_to_the_version_that_was_read() {
        let lease = taken(empty(), &leader("10.0.0.1"), "uid-1", SYSTEM, now());
        assert_eq!(lease.metadata.resource_version.as_deref(), Some("7"));
    }

    #[test]
    fn a_damaged_annotation_is_not_taken_for_none() {
        for (key, text) in [(labels::LEADER, "{"), (labels::SYSTEM_IDENTIFIER, "0"), (labels::SYSTEM_IDENTIFIER, "x")] {
            let mut lease = empty();
            lease.metadata.annotations = Some([(key.to_owned(), text.to_owned())].into());
            assert!(view(&lease).is_err(), "{key}={text}");
        }
    }
}
