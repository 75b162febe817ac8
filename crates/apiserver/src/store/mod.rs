//! The state of the API: objects, their history, and every rule about how they change.
//!
//! Synchronous, without a clock and without randomness: time comes with each write, identifiers from [`Ids`], so that a simulator
//! can own both. Never: a write that was answered and is not in the log; two writes with one revision; a revision that goes back.

mod apply;
mod builtin;
mod cluster_ip;
mod commit;
mod create;
mod delete;
#[cfg(test)]
mod fixture;
mod garbage;
mod history;
mod kept;
mod names;
mod object;
mod patch;
mod persist;
mod read;
mod schema;
mod selector;
mod touched;
mod update;
mod view;
mod watch;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

pub use cluster_ip::{ClusterIps, FirstFree};
pub use delete::Deleted;
pub use kept::Object;
pub use persist::{OpenError, Unsynced};
pub use watch::{Cursor, WatchFrom};

use crate::registry::{self, Resource};
use apply::Managers;
use history::History;
use persist::Log;

/// Where uids and the suffixes of generated names come from.
pub trait Ids: Send {
    /// A new uid, never given before.
    fn uid(&mut self) -> String;
    /// Five characters for `generateName`.
    fn suffix(&mut self) -> String;
}

/// Namespace (empty for cluster-scoped objects) and name: the order of lists.
type Key = (String, String);

/// The objects of one resource, in their storage version.
type Bucket = BTreeMap<Key, Object>;

const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const NAMESPACES: &str = "namespaces";

/// The in-memory Kubernetes API without its HTTP face.
pub struct Store {
    resources: Vec<Arc<Resource>>,
    registry_generation: u64,
    buckets: BTreeMap<String, Bucket>,
    revision: u64,
    history: History,
    ids: Box<dyn Ids>,
    cluster_ips: Box<dyn ClusterIps>,
    log: Option<Log>,
}

impl Store {
    /// A store that forgets everything when it is dropped. The namespaces `default` and `kube-system` exist.
    pub fn in_memory(ids: Box<dyn Ids>) -> Store {
        let mut store = Store::empty(ids);
        store.create_first_namespaces().expect("a store without a log has nothing that can fail");
        store
    }

    /// A store of its own that begins with what is in this one, and forgets everything when it is dropped. Objects are shared until
    /// they change, so that a simulator can begin thousands of runs from one that was prepared. It remembers no history.
    pub fn fork(&self, ids: Box<dyn Ids>) -> Store {
        let mut fork = Store::empty(ids);
        fork.resources.clone_from(&self.resources);
        fork.registry_generation = self.registry_generation;
        fork.buckets.clone_from(&self.buckets);
        fork.revision = self.revision;
        fork.history.forget(self.revision);
        fork
    }

    /// A store that keeps its state in a directory, as it was after the last answered write.
    pub fn open(dir: &Path, ids: Box<dyn Ids>) -> Result<Store, OpenError> {
        let mut store = Store::empty(ids);
        let log = persist::open(dir, |record| store.replay(record))?;
        store.history.forget(store.revision);
        store.log = Some(log);
        store.create_first_namespaces().map_err(|error| OpenError::Seed { message: error.message })?;
        Ok(store)
    }

    fn empty(ids: Box<dyn Ids>) -> Store {
        Store {
            resources: registry::builtin().to_vec(),
            registry_generation: 0,
            buckets: BTreeMap::new(),
            revision: 1,
            history: History::default(),
            ids,
            cluster_ips: Box::new(FirstFree::new([10, 96, 0, 0].into(), 16)),
            log: None,
        }
    }

    fn create_first_namespaces(&mut self) -> Result<(), crate::error::ApiError> {
        let resource = self.resource("", "v1", "namespaces").expect("a built-in kind");
        for name in ["default", "kube-system"] {
            let key = (String::new(), name.to_owned());
            if self.buckets.get(NAMESPACES).is_some_and(|bucket| bucket.contains_key(&key)) {
                continue;
            }
            let namespace = json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {
                    "name": name, "uid": self.ids.uid(), "labels": {"kubernetes.io/metadata.name": name},
                    "creationTimestamp": object::time(Timestamp::UNIX_EPOCH),
                },
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            });
            self.commit(&resource.bucket(), key, Some((namespace, Managers::new())))?;
        }
        Ok(())
    }

    /// Keeps this many changes for watches and later pages; who is further behind starts over.
    pub fn set_history_window(&mut self, changes: usize) {
        self.history.keep(changes);
    }

    /// Lets Services get their addresses from `allocator`. Without one they come from 10.96.0.0/16, where nothing answers.
    pub fn set_cluster_ips(&mut self, allocator: Box<dyn ClusterIps>) {
        self.cluster_ips = allocator;
    }

    /// A resource in one version, if it is served.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.resources.iter().find(|one| one.is(group, plural) && one.version == version).cloned()
    }

    /// All served resources, those of CRDs included, built-in ones first.
    pub fn resources(&self) -> Vec<Arc<Resource>> {
        self.resources.clone()
    }

    /// Changes when a CRD changes what is served.
    pub fn registry_generation(&self) -> u64 {
        self.registry_generation
    }

    /// The revision of the last change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Forgets the history up to and including a revision: watches and list pages from there get 410.
    pub fn compact(&mut self, before: u64) {
        self.history.forget(before.min(self.revision));
    }

    /// What has been answered but could still be lost in a power failure. `None` when all is on disk, or nothing is kept.
    pub fn unsynced(&self) -> Option<Unsynced> {
        self.log.as_ref().and_then(Log::unsynced)
    }

    /// The stored object.
    fn stored(&self, bucket: &str, key: &Key) -> Option<&Object> {
        self.buckets.get(bucket)?.get(key)
    }

    /// Any version of the resource that owns a bucket: what garbage collection addresses objects by.
    fn resource_of_bucket(&self, bucket: &str) -> Option<Arc<Resource>> {
        self.resources
            .iter()
            .find(|one| one.storage && one.is_in(bucket))
            .or_else(|| self.resources.iter().find(|one| one.is_in(bucket)))
            .cloned()
    }

    /// What is served is the built-in kinds and what the established CRDs add.
    fn rebuild_registry(&mut self) {
        let mut resources = registry::builtin().to_vec();
        for crd in self.buckets.get(CRDS).into_iter().flat_map(BTreeMap::values) {
            resources.extend(registry::resources_of(crd.plain()).into_iter().map(Arc::new));
        }
        self.resources = resources;
        self.registry_generation += 1;
    }
}
