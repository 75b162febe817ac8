//! Looks at one cluster once, with the rights of whoever asks, and says what the operator would do: the caches, the observation, the plan and
//! its check are those of a pass ([`crate::Reconciler::pass`]).
//!
//! From: one list of each kind that is asked for, and a read of the cluster. Never: writes (there is no way here to send anything but a read); or takes
//! a kind that could not be listed for one of which there is nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bellwether_api::labels;
use bellwether_api::names::Names;
use bellwether_core::build::{self, AddressType};
use bellwether_core::check::{Violation, check};
use bellwether_core::fact::Fact;
use bellwether_core::object::Kind;
use bellwether_core::observed::{self, Observed, Raw, RawSource};
use bellwether_core::plan::{Plan, plan};
use bellwether_runtime::client::within;
use bellwether_runtime::watch::{Cache, Key, Namespaces};
use futures::future::join_all;
use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use kube::runtime::watcher::Event;
use serde_json::Value;

use crate::caches::Caches;
use crate::observe::{owner_password, source};
use crate::port::{Answer, CallError, Port, Request, Verb};

/// What was seen.
#[derive(Clone, Debug)]
pub struct Look {
    /// When.
    pub at: Timestamp,
    /// The world around the cluster.
    pub observed: Observed,
    /// The kinds that could not be listed, each with why.
    pub unseen: BTreeMap<Kind, String>,
    caches: Caches,
    key: Key,
}

/// What the operator would do about it.
#[derive(Clone, Debug)]
pub struct Outlook {
    /// The plan.
    pub plan: Plan,
    /// What of it breaks an invariant: the operator would carry out nothing of it.
    pub violations: Vec<Violation>,
}

/// Looks at the cluster and its children of these kinds. An error says that the cluster itself can't be read.
pub async fn look(client: &Client, key: &Key, kinds: &[Kind]) -> Result<Look, CallError> {
    let caches = Caches::new(&Namespaces::Only(BTreeSet::from([key.namespace.clone()])));
    let reader = Reader { client: client.clone() };
    let cluster = crate::observe::live(&reader, crate::port::Resource::Cluster, &key.namespace, &key.name).await?;
    let lists = kinds.iter().filter_map(|kind| Some((*kind, caches.children.get(kind)?)));
    let listed = join_all(lists.map(async |(kind, cache)| (kind, cache, list(client, cache, key).await))).await;
    let mut unseen = BTreeMap::new();
    for (kind, cache, answer) in listed {
        match answer {
            Ok(objects) => fill(cache, &key.namespace, objects.into_iter()),
            Err(error) => drop(unseen.insert(kind, error.to_string())),
        }
    }
    let children = Kind::ALL.into_iter().map(|kind| (kind, caches.listing(kind, key))).collect::<BTreeMap<_, _>>();
    let password = match (&cluster, children.get(&Kind::Secret)) {
        // Without the Secrets nobody can say what the plan makes of it.
        (Some(cluster), Some(secrets)) if secrets.complete => {
            owner_password(&reader, key, cluster, secrets).await.unwrap_or(Fact::Unknown)
        }
        _ => Fact::Unknown,
    };
    let source = match &cluster {
        Some(cluster) => {
            let unseen = RawSource { backup: Fact::Unknown, cluster: Fact::Unknown };
            source(&reader, key, cluster).await.unwrap_or(unseen)
        }
        None => RawSource::default(),
    };
    let raw = Raw { cluster: Fact::looked_up(cluster), children, owner_password: password, source };
    let observed = observed::observe(&key.namespace, &key.name, raw);
    Ok(Look { at: Timestamp::now(), observed, unseen, caches, key: key.clone() })
}

impl Look {
    /// An object as the API server has it; Secrets without contents.
    pub fn object(&self, kind: Kind, name: &str) -> Option<Arc<Value>> {
        self.caches.listing(kind, &self.key).items.remove(name)
    }

    /// What the operator would do now.
    pub fn outlook(&self) -> Outlook {
        let plan = plan(&self.observed, self.at, &self.settings());
        let violations = check(&plan, &self.observed).err().unwrap_or_default();
        Outlook { plan, violations }
    }

    /// What the operator was told at its start, as far as a plan depends on it: the family of the Services' addresses, which is that of the slices.
    fn settings(&self) -> build::Settings {
        let slice = self.observed.object(Kind::EndpointSlice, &Names::of(&self.key.name).rw());
        let is_ipv6 = slice.known().is_some_and(|slice| slice["addressType"] == AddressType::IPv6.as_str());
        let addresses = if is_ipv6 { AddressType::IPv6 } else { AddressType::IPv4 };
        build::Settings { addresses, ..build::Settings::default() }
    }
}

async fn list(client: &Client, cache: &Cache, key: &Key) -> Result<Vec<Arc<Value>>, CallError> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &key.namespace, &cache.resource);
    let mut found = vec![];
    for selector in selectors(cache, &key.name) {
        let params = ListParams { label_selector: selector, ..ListParams::default() };
        let listed = within(api.list(&params)).await;
        let listed = listed.map_err(|late| CallError::Unanswered { cause: late.to_string() })??;
        found.extend(listed.items.into_iter().map(|object| Arc::new(serde_json::to_value(object).unwrap_or_default())));
    }
    Ok(found)
}

/// Those of one cluster, of all that the operator watches: a namespace may have a thousand.
fn selectors(cache: &Cache, cluster: &str) -> Vec<Option<String>> {
    let of = |label: &str| Some(format!("{label}={cluster}"));
    match cache.selector() {
        None => vec![None],
        Some(labels::CLUSTER) => vec![of(labels::CLUSTER)],
        // Pods that verify backups are no instances, and have another label.
        Some(_) => vec![of(labels::CLUSTER), of(labels::VERIFIES)],
    }
}

/// As a watch would that has listed all there is.
fn fill(cache: &Cache, namespace: &str, objects: impl Iterator<Item = Arc<Value>>) {
    cache.take(namespace, Event::Init);
    for object in objects {
        cache.take(namespace, Event::InitApply(object));
    }
    cache.take(namespace, Event::InitDone);
}

/// A port that reads and nothing else.
struct Reader {
    client: Client,
}

impl Port for Reader {
    async fn send(&self, request: Request) -> Answer {
        let resource = request.resource.api_resource();
        let api: Api<DynamicObject> = match request.resource.place(&request.namespace) {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        match request.verb {
            Verb::Get => {
                let found = within(api.get_opt(&request.name)).await;
                let found = found.map_err(|late| CallError::Unanswered { cause: late.to_string() })??;
                Ok(found.map(|object| Arc::new(serde_json::to_value(object).unwrap_or_default())))
            }
            verb => Err(CallError::Unanswered {
                cause: format!("not sent: who only looks does not {} anything", verb.name()),
            }),
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn fraction(&self) -> f64 {
        0.0
    }

    fn mint(&self) -> &dyn crate::mint::Mint {
        &crate::mint::Genuine
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use http_body_util::Full;
    use hyper::body::Bytes;
    use hyper::{Method, Request as HttpRequest, Response};
    use serde_json::json;

    use super::*;

    type Asked = Arc<Mutex<Vec<(Method, String)>>>;

    /// An API server with one cluster and one Secret, that lets nobody see pods; and what it was asked.
    fn api() -> (Client, Asked) {
        let asked = Asked::default();
        let seen = asked.clone();
        let service = move |request: HttpRequest<kube::client::Body>| {
            let path = request.uri().path().to_owned();
            seen.lock().unwrap().push((request.method().clone(), path.clone()));
            let metadata = |name: &str| json!({"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1"});
            let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("orders-superuser")});
            secret["metadata"]["labels"] = json!({labels::CLUSTER: "orders"});
            secret["data"] = json!({"username": "cG9zdGdyZXM=", "password": "aHVudGVyMg=="});
            let (code, body) = match path.rsplit('/').next().unwrap_or_default() {
                "orders" => {
                    let cluster = json!({"apiVersion": "bellwether.dev/v1", "kind": "PostgresCluster",
                                         "metadata": metadata("orders"), "spec": {}});
                    (200, cluster)
                }
                "pods" => (
                    403,
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden",
                                       "message": "pods is forbidden: User \"jo\" cannot list resource \"pods\""}),
                ),
                "secrets" => {
                    (200, json!({"kind": "SecretList", "apiVersion": "v1", "metadata": {}, "items": [secret]}))
                }
                _ => (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []})),
            };
            let body = Full::new(Bytes::from(body.to_string()));
            std::future::ready(Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap()))
        };
        (Client::new(tower::service_fn(service), "default"), asked)
    }

    fn key() -> Key {
        Key { namespace: "shop".into(), name: "orders".into() }
    }

    #[tokio::test]
    async fn looking_and_planning_send_nothing_but_reads() {
        let (client, asked) = api();
        let look = look(&client, &key(), &Kind::ALL).await.unwrap();
        look.outlook();
        let asked = asked.lock().unwrap().clone();
        assert!(asked.len() > Kind::ALL.len(), "{asked:?}");
        assert!(asked.iter().all(|(method, _)| method == Method::GET), "{asked:?}");
        let verb = Verb::Merge(json!({}));
        let request =
            Request { resource: crate::port::Resource::Cluster, namespace: "shop".into(), name: "orders".into(), verb };
        let error = Reader { client }.send(request).await.unwrap_err();
        assert!(error.to_string().contains("does not merge"), "{error}");
    }

    #[tokio::test]
    async fn a_kind_that_may_not_be_seen_is_unknown_and_not_empty() {
        let (client, _) = api();
        let look = look(&client, &key(), &Kind::ALL).await.unwrap();
        assert!(!look.observed.pods.complete && look.observed.volumes.complete);
        assert!(look.unseen[&Kind::Pod].contains("cannot list resource"), "{:?}", look.unseen);
        let planned = look.outlook().plan;
        assert!(planned.actions.iter().all(|action| action.effect.target().0 != Kind::Pod), "{:?}", planned.actions);
    }

    #[tokio::test]
    async fn contents_of_secrets_are_dropped_as_they_arrive() {
        let (client, _) = api();
        let look = look(&client, &key(), &[Kind::Secret]).await.unwrap();
        let kept = look.object(Kind::Secret, "orders-superuser").unwrap().to_string();
        assert!(
            !kept.contains("aHVudGVyMg") && look.observed.secrets.items["orders-superuser"].keys.len() == 2,
            "{kept}"
        );
    }

    #[tokio::test]
    async fn kinds_that_nobody_asked_for_are_unknown() {
        let (client, _) = api();
        let look = look(&client, &key(), &[Kind::Lease]).await.unwrap();
        assert!(look.unseen.is_empty() && !look.observed.secrets.complete && look.observed.lease.is_absent());
    }
}
