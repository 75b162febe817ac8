//! One cache for each kind that we look at. Secrets lose their contents before they are kept, and pods what nobody reads: the caches of
//! a thousand clusters are what an operator's memory is used for.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bellwether_api::labels;
use bellwether_core::object::Kind;
use bellwether_core::observed::Listing;
use bellwether_runtime::queue::Priority;
use bellwether_runtime::watch::{Cache, GroupBy, Key, Namespaces};
use serde_json::{Value, json};

use crate::port::Resource;
use crate::secrets;

/// Selects what we manage ([`labels::MANAGED_BY`]).
const OURS: &str = "app.kubernetes.io/managed-by=bellwether";

/// Everything that is watched.
#[derive(Clone, Debug)]
pub struct Caches {
    /// The clusters.
    pub clusters: Arc<Cache>,
    /// Their children, and their backups.
    pub children: BTreeMap<Kind, Arc<Cache>>,
}

impl Caches {
    /// Empty caches for these namespaces.
    pub fn new(namespaces: &Namespaces) -> Self {
        let children = Kind::ALL.into_iter().map(|kind| {
            let strip: Option<fn(&mut Arc<Value>)> = match kind {
                Kind::Secret => Some(hide_contents),
                Kind::Pod => Some(drop_spec),
                _ => None,
            };
            let group_by = match kind {
                // People write them, without a label.
                Kind::Backup => GroupBy::Field("/spec/cluster"),
                // Pods that verify backups are no instances, and don't have the label of those.
                Kind::Pod => GroupBy::Labels { selector: OURS, labels: &[labels::CLUSTER, labels::VERIFIES] },
                _ => GroupBy::Label(labels::CLUSTER),
            };
            (kind, Cache::new(Resource::Child(kind).api_resource(), group_by, namespaces, strip))
        });
        Self {
            clusters: Cache::new(Resource::Cluster.api_resource(), GroupBy::Itself, namespaces, None),
            children: children.collect(),
        }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Cache>> {
        std::iter::once(&self.clusters).chain(self.children.values())
    }

    /// What is known of a cluster's children of one kind.
    pub fn listing(&self, kind: Kind, key: &Key) -> Listing<Arc<Value>> {
        let Some(cache) = self.children.get(&kind) else { return Listing::default() };
        // Completeness first: what arrives in between may be missing from the group, but not be called absent.
        let complete = cache.complete();
        Listing { complete, items: cache.group(key) }
    }

    /// An object of this kind has a shape that nobody can read.
    pub fn count_unreadable(&self, kind: &str) {
        if let Some(cache) = self.all().find(|cache| cache.resource.kind == kind) {
            cache.count_unreadable();
        }
    }

    /// The answer to a write of ours.
    pub fn remember(&self, kind: Kind, object: Arc<Value>) {
        if let Some(cache) = self.children.get(&kind) {
            cache.remember(object);
        }
    }
}

/// How soon a change in this cache is looked at: somebody waits for a change of a spec or of an instance; the rest can wait a
/// moment.
pub fn priority(cache: &Cache) -> Priority {
    match cache.resource.plural.as_str() {
        "postgresclusters" | "pods" | "leases" | "backups" => Priority::Urgent,
        _ => Priority::Change,
    }
}

/// Which keys have a value is all that anybody asks of the cache. An address that was made with another password than the one beside it counts as
/// none.
fn hide_contents(secret: &mut Arc<Value>) {
    let Some(fields) = Arc::make_mut(secret).as_object_mut() else { return };
    fields.remove("stringData");
    let Some(data) = fields.get_mut("data").and_then(Value::as_object_mut) else { return };
    let outdated = secrets::outdated(|key| BASE64.decode(data.get(key)?.as_str()?).ok());
    for (key, value) in data {
        let set = value.as_str().is_some_and(|text| !text.is_empty()) && !outdated.contains(&key.as_str());
        *value = if set { "AA==" } else { "" }.into();
    }
}

/// A pod's spec can't change, and which one it was made with says an annotation; it is two thirds of the pod. Where the pod runs is all
/// that anybody asks of it.
fn drop_spec(pod: &mut Arc<Value>) {
    let Some(fields) = pod.as_object() else { return };
    let node = |spec: &Value| spec.get("nodeName").map(|node| json!({"nodeName": node})).unwrap_or_else(|| json!({}));
    let kept =
        |(field, value): (&String, &Value)| (field.clone(), if field == "spec" { node(value) } else { value.clone() });
    *pod = Arc::new(fields.iter().map(kept).collect());
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellwether_core::fact::Fact;
    use bellwether_core::observed;
    use serde_json::json as value;

    #[test]
    fn note_22_of_foreign_kinds_only_objects_with_our_label_are_asked_for() {
        let caches = Caches::new(&Namespaces::All);
        for cache in caches.all() {
            let wanted = match cache.resource.plural.as_str() {
                _ if cache.resource.group == bellwether_api::GROUP => None,
                "pods" => Some(format!("{}={}", labels::MANAGED_BY, labels::MANAGED_BY_VALUE)),
                _ => Some(labels::CLUSTER.to_owned()),
            };
            assert_eq!(cache.selector().map(str::to_owned), wanted, "{}", cache.resource.plural);
        }
    }

    #[test]
    fn a_backup_that_a_person_wrote_belongs_to_the_cluster_that_it_names() {
        let caches = Caches::new(&Namespaces::All);
        let metadata = value!({"name": "before-the-migration", "namespace": "shop", "resourceVersion": "5"});
        caches.remember(Kind::Backup, Arc::new(value!({"metadata": metadata, "spec": {"cluster": "orders"}})));
        let key = Key { namespace: "shop".into(), name: "orders".into() };
        assert!(caches.listing(Kind::Backup, &key).items.contains_key("before-the-migration"));
    }

    #[test]
    fn contents_of_secrets_are_not_kept() {
        let caches = Caches::new(&Namespaces::All);
        let secret = value!({
            "metadata": {
                "name": "s", "namespace": "shop", "labels": {labels::CLUSTER: "orders"}, "resourceVersion": "5",
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": "{\"stringData\": {\"password\": \"hunter2\"}}",
                },
            },
            "data": {"password": "aHVudGVyMg==", "empty": ""},
        });
        caches.remember(Kind::Secret, Arc::new(secret));
        let kept = caches.listing(Kind::Secret, &Key { namespace: "shop".into(), name: "orders".into() }).items;
        let text = kept["s"].to_string();
        assert!(!text.contains("aHVudGVyMg") && !text.contains("hunter2"), "{text}");
        assert_eq!(kept["s"]["data"], value!({"password": "AA==", "empty": ""}));
    }
    #[test]
    fn of_a_pod_s_spec_only_the_node_is_kept_and_that_is_all_that_is_read_of_it() {
        let caches = Caches::new(&Namespaces::All);
        let pod = value!({
            "metadata": {
                "name": "orders-1", "namespace": "shop", "labels": {labels::CLUSTER: "orders"}, "uid": "1", "resourceVersion": "5",
            },
            "spec": {"nodeName": "node-1", "containers": [{"name": "postgres", "image": "postgres:17"}]},
            "status": {"phase": "Running", "podIP": "10.0.0.7"},
        });
        caches.remember(Kind::Pod, Arc::new(pod.clone()));
        let key = Key { namespace: "shop".into(), name: "orders".into() };
        let kept = caches.listing(Kind::Pod, &key).items["orders-1"].clone();
        assert_eq!(kept["spec"], value!({"nodeName": "node-1"}));

        let seen = |pod: Value| {
            let items = [("orders-1".to_owned(), Arc::new(pod))].into();
            let children = [(Kind::Pod, Listing { complete: true, items })].into();
            let raw = observed::Raw {
                cluster: Fact::Unknown,
                children,
                owner_password: Fact::Unknown,
                source: observed::RawSource::default(),
            };
            observed::observe("shop", "orders", raw)
        };
        assert_eq!(format!("{:?}", seen(pod)), format!("{:?}", seen((*kept).clone())));
    }
}
