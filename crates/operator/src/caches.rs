//! One cache for each kind that we look at. Secrets lose their contents before they are kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_api::labels;
use bellwether_core::object::Kind;
use bellwether_core::observed::Listing;
use bellwether_runtime::queue::Priority;
use bellwether_runtime::watch::{Cache, GroupBy, Key, Namespaces};
use serde_json::Value;

use crate::port::Resource;

/// Everything that is watched.
#[derive(Clone, Debug)]
pub struct Caches {
    /// The clusters.
    pub clusters: Arc<Cache>,
    /// Their children.
    pub children: BTreeMap<Kind, Arc<Cache>>,
}

impl Caches {
    /// Empty caches for these namespaces.
    pub fn new(namespaces: &Namespaces) -> Self {
        let children = Kind::ALL.into_iter().map(|kind| {
            let strip: Option<fn(&mut Value)> = (kind == Kind::Secret).then_some(hide_contents);
            (kind, Cache::new(Resource::Child(kind).api_resource(), GroupBy::Label(labels::CLUSTER), namespaces, strip))
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
        "postgresclusters" | "pods" | "leases" => Priority::Urgent,
        _ => Priority::Change,
    }
}

/// Which keys have a value is all that anybody asks of the cache.
fn hide_contents(secret: &mut Value) {
    if let Some(fields) = secret.as_object_mut() {
        fields.remove("stringData");
        for value in
            fields.get_mut("data").and_then(Value::as_object_mut).into_iter().flat_map(|data| data.values_mut())
        {
            let set = value.as_str().is_some_and(|text| !text.is_empty());
            *value = if set { "AA==" } else { "" }.into();
        }
    }
    let annotations = secret.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    if let Some(annotations) = annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json as value;

    #[test]
    fn contents_of_secrets_are_not_kept() {
        let mut secret = value!({
            "metadata": {"name": "s", "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{\"stringData\": {\"password\": \"hunter2\"}}",
            }},
            "data": {"password": "aHVudGVyMg==", "empty": ""},
        });
        hide_contents(&mut secret);
        let kept = secret.to_string();
        assert!(!kept.contains("aHVudGVyMg") && !kept.contains("hunter2"), "{kept}");
        assert_eq!(secret["data"], value!({"password": "AA==", "empty": ""}));
    }
}
