//! Caches of what the API server holds, fed by watches.
//!
//! Of foreign kinds only objects with a label of ours are asked for, and they are stored without what nobody reads (managed fields, kubectl's copy
//! of what was applied): ten thousand foreign Secrets cost nothing here. Owners that nobody looked at lately are kept as text, which
//! takes less memory. Never: an object called absent before the first list was complete; an object put back to an older
//! version (our own write is remembered at once, while the watch may still be delivering what was before it).

mod item;
mod kept;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, ApiResource};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_api};
use kube::{Client, Resource};
use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::traffic::Silent;
use item::Item;
use kept::Kept;

/// After so long the API server ends a watch, and it is begun again: no watch is ever silent for longer, even if nothing happens and
/// there are no bookmarks. In seconds. A watch that is silent for longer is stalled and begun again too, so this is how old our view
/// of the world may become without anybody noticing. A dozen watches that are begun every two minutes are no burden.
pub const WATCH_ENDS_AFTER: u32 = 120;

/// So many objects are asked for at once in a list. They are all in memory at the same time, unpacked: a hundred pods are some four
/// megabytes.
const PAGE: u32 = 100;

/// So many owners' objects are open; those of the others are packed. One that changes is looked at again within moments, and not many
/// do so at once.
const OPEN: usize = 16;

/// What nobody reads, of any kind: where it is, and its name. Both are often larger than all the rest, and the second repeats the
/// contents of a Secret.
const NOT_KEPT: [(&[&str], &str); 2] = [
    (&["metadata"], "managedFields"),
    (&["metadata", "annotations"], "kubectl.kubernetes.io/last-applied-configuration"),
];

/// Namespace and name of the owner that objects are grouped by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Which owner an object belongs to: itself, or the value of a label or a field.
#[derive(Clone, Debug)]
pub enum GroupBy {
    /// Each object is its own group.
    Itself,
    /// The label's value names the owner; objects without it are not asked for.
    Label(&'static str),
    /// The value of the first of these labels that it has names the owner; what the selector leaves out is not asked for.
    Labels {
        /// What is asked for.
        selector: &'static str,
        /// Where the owner's name is.
        labels: &'static [&'static str],
    },
    /// The field at this JSON pointer names the owner. For kinds of ours that people write, and that have no label then: all of them are asked for.
    Field(&'static str),
}

impl GroupBy {
    fn key(&self, object: &Value) -> Option<Key> {
        let metadata = &object["metadata"];
        let owner = match self {
            Self::Itself => &metadata["name"],
            Self::Label(label) => &metadata["labels"][label],
            Self::Labels { labels, .. } => {
                labels.iter().map(|label| &metadata["labels"][label]).find(|owner| owner.is_string())?
            }
            Self::Field(pointer) => object.pointer(pointer)?,
        };
        Some(Key { namespace: metadata["namespace"].as_str()?.to_owned(), name: owner.as_str()?.to_owned() })
    }
}

/// Open objects are shared: every pass reads all of a cluster's, and few of them have changed since the last one.
type Group = BTreeMap<String, Kept>;

#[derive(Debug, Default)]
struct State {
    groups: BTreeMap<Key, Group>,
    /// The owners whose objects may be open, the one that was touched last at the end.
    open: VecDeque<Key>,
    /// Scopes (namespaces) whose first list is still to come.
    unlisted: BTreeSet<String>,
    /// The version of the last deletion that was seen.
    newest_deletion: u64,
    /// Objects of a list in progress, by scope.
    listing: BTreeMap<String, Vec<Listed>>,
}

#[derive(Debug)]
struct Listed {
    owner: Key,
    name: String,
    object: Kept,
}

impl State {
    /// This owner is looked at, or changes. It pushes out the one for which that was longest ago.
    fn touch(&mut self, key: &Key) {
        if self.open.back() == Some(key) {
            return;
        }
        let known = self.open.iter().position(|other| other == key).and_then(|at| self.open.remove(at));
        self.open.push_back(known.unwrap_or_else(|| key.clone()));
        if self.open.len() > OPEN
            && let Some(cold) = self.open.pop_front()
            && let Some(group) = self.groups.get_mut(&cold)
        {
            group.values_mut().for_each(Kept::pack);
        }
    }
}

/// A cache of one resource.
#[derive(Debug)]
pub struct Cache {
    /// What is cached.
    pub resource: ApiResource,
    group_by: GroupBy,
    /// Takes out what nobody may keep in memory (contents of Secrets), beside what is never kept.
    strip: Option<fn(&mut Arc<Value>)>,
    state: Mutex<State>,
    listed: Notify,
    /// How often a watch broke.
    breaks: AtomicU64,
    /// How often it was silent for too long.
    silences: AtomicU64,
    /// How often an object could not be read.
    unreadable: AtomicU64,
}

/// The namespaces that are watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Namespaces {
    /// All of them.
    #[default]
    All,
    /// These.
    Only(BTreeSet<String>),
}

impl Namespaces {
    /// One watch a scope; the empty name is "all".
    pub fn scopes(&self) -> Vec<String> {
        match self {
            Self::All => vec![String::new()],
            Self::Only(names) => names.iter().cloned().collect(),
        }
    }
}

impl Cache {
    /// An empty cache; nothing is known until [`Cache::run`] has listed.
    pub fn new(
        resource: ApiResource,
        group_by: GroupBy,
        namespaces: &Namespaces,
        strip: Option<fn(&mut Arc<Value>)>,
    ) -> Arc<Self> {
        let state = State { unlisted: namespaces.scopes().into_iter().collect(), ..State::default() };
        Arc::new(Self {
            resource,
            group_by,
            strip,
            state: Mutex::new(state),
            listed: Notify::new(),
            breaks: AtomicU64::new(0),
            silences: AtomicU64::new(0),
            unreadable: AtomicU64::new(0),
        })
    }

    /// Whether the first list is complete, so that what is not here does not exist.
    pub fn complete(&self) -> bool {
        self.locked().unlisted.is_empty()
    }

    /// The label selector of what is asked for.
    pub fn selector(&self) -> Option<&'static str> {
        match self.group_by {
            GroupBy::Itself | GroupBy::Field(_) => None,
            GroupBy::Label(label) | GroupBy::Labels { selector: label, .. } => Some(label),
        }
    }

    /// How often a watch broke and had to be begun again.
    pub fn breaks(&self) -> u64 {
        self.breaks.load(Ordering::Relaxed)
    }

    /// How often a watch was silent for too long and had to be begun again.
    pub fn silences(&self) -> u64 {
        self.silences.load(Ordering::Relaxed)
    }

    /// How often an object could not be read, here or by whoever looked at it here.
    pub fn unreadable(&self) -> u64 {
        self.unreadable.load(Ordering::Relaxed)
    }

    /// Somebody could not read an object of this cache.
    pub fn count_unreadable(&self) {
        self.unreadable.fetch_add(1, Ordering::Relaxed);
    }

    /// The paths that are listed and watched.
    pub fn paths(&self, namespaces: &Namespaces) -> Vec<String> {
        let path =
            |scope: String| Item::url_path(&self.resource, Some(scope.as_str()).filter(|scope| !scope.is_empty()));
        namespaces.scopes().into_iter().map(path).collect()
    }

    /// Waits until [`Cache::complete`].
    pub async fn completed(&self) {
        loop {
            let listed = self.listed.notified();
            if self.complete() {
                return;
            }
            listed.await;
        }
    }

    /// The objects of one owner, by name.
    pub fn group(&self, key: &Key) -> BTreeMap<String, Arc<Value>> {
        let mut state = self.locked();
        state.touch(key);
        let Some(group) = state.groups.get_mut(key) else { return BTreeMap::new() };
        group.iter_mut().map(|(name, kept)| (name.clone(), kept.open())).collect()
    }

    /// Every owner that has objects here.
    pub fn keys(&self) -> Vec<Key> {
        self.locked().groups.keys().cloned().collect()
    }

    /// Remembers the answer to a write of ours, so that the next look sees it even if the watch is late. An answer from before a
    /// deletion that the watch has told of is left to the watch: it might bring back what is gone.
    pub fn remember(&self, mut object: Arc<Value>) {
        self.strip(&mut object);
        if version(&object) > self.locked().newest_deletion {
            self.put(object);
        }
    }

    /// Watches until `shutdown`; `changed` hears the owner of everything that changes. Errors are retried with backoff, and
    /// said once each time the watch breaks.
    pub async fn run(
        self: Arc<Self>,
        client: Client,
        namespaces: Namespaces,
        changed: impl Fn(&Cache, Key) + Send + Sync,
        shutdown: CancellationToken,
    ) {
        let watches = namespaces.scopes().into_iter().map(|scope| self.watch(client.clone(), scope, &changed));
        tokio::select! {
            _ = futures::future::join_all(watches) => {}
            () = shutdown.cancelled() => {}
        }
    }

    async fn watch(&self, client: Client, scope: String, changed: &(impl Fn(&Cache, Key) + Send + Sync)) {
        let api: Api<Item> = match scope.as_str() {
            "" => Api::all_with(client, &self.resource),
            namespace => Api::namespaced_with(client, namespace, &self.resource),
        };
        let mut config = watcher::Config::default().timeout(WATCH_ENDS_AFTER).page_size(PAGE);
        if let Some(label) = self.selector() {
            config = config.labels(label);
        }
        let mut events = watch_api(api, config).default_backoff().into_stream().boxed();
        let mut broken = false;
        loop {
            match events.try_next().await {
                Ok(Some(event)) => {
                    // A list that begins may fail yet.
                    if !matches!(event, Event::Init) && std::mem::take(&mut broken) {
                        tracing::info!(resource = %self.resource.plural, %scope, "watch restored");
                    }
                    for key in self.take(&scope, as_json(event)) {
                        changed(self, key);
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    if is_silence(&error) {
                        self.silences.fetch_add(1, Ordering::Relaxed);
                    }
                    if !std::mem::replace(&mut broken, true) {
                        self.breaks.fetch_add(1, Ordering::Relaxed);
                        tracing::warn!(resource = %self.resource.plural, %scope, %error, "watch broken, retrying");
                    }
                }
            }
        }
    }

    /// Takes an event in and says whose objects changed. Synchronous and without a clock: a simulator feeds caches by it too.
    /// The scope is the namespace that is watched, empty for all.
    pub fn take(&self, scope: &str, event: Event<Arc<Value>>) -> Vec<Key> {
        match event.modify(|object| self.strip(object)) {
            Event::Init => {
                self.locked().listing.insert(scope.to_owned(), vec![]);
                vec![]
            }
            Event::InitApply(object) => {
                self.list(scope, object);
                vec![]
            }
            Event::InitDone => self.listed(scope),
            Event::Apply(object) => self.put(object).into_iter().collect(),
            Event::Delete(object) => self.drop_deleted(&object).into_iter().collect(),
        }
    }

    /// One object of a list that is not complete yet. It may be one of thousands, so it is packed at once, unless its owner is being
    /// looked at, or there is room for more of those: they will be, as soon as the list is complete.
    fn list(&self, scope: &str, object: Arc<Value>) {
        let Some(owner) = self.owner(&object) else { return };
        let name = name(&object).to_owned();
        let mut object = Kept::new(object);
        let mut state = self.locked();
        if state.open.len() < OPEN {
            state.touch(&owner);
        }
        if !state.open.contains(&owner) {
            object.pack();
        }
        state.listing.entry(scope.to_owned()).or_default().push(Listed { owner, name, object });
    }

    /// A list is complete: it replaces everything of its scope. Every owner before and after hears of it, because what a
    /// broken watch missed includes deletions.
    fn listed(&self, scope: &str) -> Vec<Key> {
        let mut state = self.locked();
        let items = state.listing.remove(scope).unwrap_or_default();
        let mut touched: BTreeSet<Key> =
            state.groups.keys().filter(|key| scope.is_empty() || key.namespace == scope).cloned().collect();
        let mut old: BTreeMap<Key, Group> =
            touched.iter().filter_map(|key| Some((key.clone(), state.groups.remove(key)?))).collect();
        for Listed { owner, name, object } in items {
            let kept = old.get_mut(&owner).and_then(|group| group.remove(&name));
            let newer = kept.filter(|kept| kept.version() > object.version());
            state.groups.entry(owner.clone()).or_default().insert(name, newer.unwrap_or(object));
            touched.insert(owner);
        }
        state.unlisted.remove(scope);
        self.listed.notify_waiters();
        touched.into_iter().collect()
    }

    /// Whose an object is. One that doesn't say is named and left out, and the others go on.
    fn owner(&self, object: &Value) -> Option<Key> {
        let key = self.group_by.key(object);
        if key.is_none() {
            self.count_unreadable();
            let (metadata, resource) = (&object["metadata"], &self.resource.plural);
            let (namespace, uid) = (&metadata["namespace"], &metadata["uid"]);
            tracing::warn!(%resource, %namespace, name = name(object), %uid, "object can't be read: it does not say whose it is");
        }
        key
    }

    fn put(&self, object: Arc<Value>) -> Option<Key> {
        let key = self.owner(&object)?;
        let (name, object) = (name(&object).to_owned(), Kept::new(object));
        let mut state = self.locked();
        let group = state.groups.entry(key.clone()).or_default();
        // The version that we wrote ourselves is news too: the answer to our write brought along whatever others had written just
        // before, and their own events, which are older, tell nobody any more.
        let stale = group.get(&name).is_some_and(|kept| kept.version() > object.version());
        if stale {
            return None;
        }
        group.insert(name, object);
        state.touch(&key);
        Some(key)
    }

    /// Another object of that name may have come meanwhile; it stays.
    fn drop_deleted(&self, object: &Value) -> Option<Key> {
        let key = self.owner(object)?;
        let mut state = self.locked();
        state.newest_deletion = state.newest_deletion.max(version(object));
        if let Some(group) = state.groups.get_mut(&key) {
            let uid = |object: &Value| object["metadata"]["uid"].as_str().map(str::to_owned);
            group.retain(|kept_name, kept| kept_name != name(object) || uid(&kept.read()) != uid(object));
            if group.is_empty() {
                state.groups.remove(&key);
            }
        }
        Some(key)
    }

    /// What is shared stays so, unless something has to go.
    fn strip(&self, object: &mut Arc<Value>) {
        for (parent, field) in NOT_KEPT {
            let there = parent.iter().try_fold(&**object, |place, step| place.get(step));
            if there.is_some_and(|parent| parent.get(field).is_some()) {
                let place = parent.iter().try_fold(Arc::make_mut(object), |place, step| place.get_mut(step));
                place.and_then(Value::as_object_mut).and_then(|parent| parent.remove(field));
            }
        }
        if let Some(strip) = self.strip {
            strip(object);
        }
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Resource versions are etcd revisions: of two versions of one object, the larger is the newer.
fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Whether it is for its silence that a watch was given up. A list that was silent is a break and nothing more.
fn is_silence(error: &watcher::Error) -> bool {
    if !matches!(error, watcher::Error::WatchFailed(_)) {
        return false;
    }
    let first: &(dyn std::error::Error + 'static) = error;
    std::iter::successors(Some(first), |error| error.source()).any(|error| error.is::<Silent>())
}

fn as_json(event: Event<Item>) -> Event<Arc<Value>> {
    match event {
        Event::Apply(item) => Event::Apply(Arc::new(item.json)),
        Event::Delete(item) => Event::Delete(Arc::new(item.json)),
        Event::InitApply(item) => Event::InitApply(Arc::new(item.json)),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    }
}

#[cfg(test)]
mod rules {
    use super::*;
    use kube::core::GroupVersionKind;
    use serde_json::json;

    fn cache() -> Arc<Cache> {
        let pods = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Pod"), "pods");
        Cache::new(pods, GroupBy::Label("owner"), &Namespaces::All, None)
    }
    fn pod(name: &str, uid: &str, version: u64) -> Arc<Value> {
        Arc::new(json!({"metadata": {
            "name": name, "namespace": "ns", "uid": uid, "resourceVersion": version.to_string(), "labels": {"owner": "o"},
            "managedFields": [{"manager": "m"}],
        }}))
    }
    fn owner() -> Key {
        Key { namespace: "ns".into(), name: "o".into() }
    }
    fn versions(cache: &Cache) -> Vec<(String, u64)> {
        cache.group(&owner()).into_iter().map(|(name, object)| (name, version(&object))).collect()
    }

    #[test]
    fn nothing_is_known_before_the_first_list_is_complete() {
        let cache = cache();
        cache.take("", Event::Init);
        cache.take("", Event::InitApply(pod("a", "1", 5)));
        assert!(!cache.complete() && cache.group(&owner()).is_empty());
        assert_eq!(cache.take("", Event::InitDone), [owner()]);
        assert!(cache.complete());
        assert_eq!(versions(&cache), [("a".to_owned(), 5)]);
    }

    #[test]
    fn what_a_new_list_no_longer_has_is_gone_and_its_owner_hears_of_it() {
        let cache = cache();
        cache.take("", Event::Apply(pod("a", "1", 5)));
        cache.take("", Event::Init);
        assert_eq!(cache.take("", Event::InitDone), [owner()]);
        assert!(cache.group(&owner()).is_empty());
    }

    #[test]
    fn an_older_version_never_replaces_what_our_own_write_returned() {
        let cache = cache();
        cache.remember(pod("a", "1", 9));
        assert!(cache.take("", Event::Apply(pod("a", "1", 5))).is_empty());
        assert_eq!(versions(&cache), [("a".to_owned(), 9)]);
    }

    #[test]
    fn what_came_along_with_the_answer_to_our_own_write_is_looked_at() {
        let cache = cache();
        cache.take("", Event::Apply(pod("a", "1", 5)));
        // Somebody else's write made version 6, ours 7, and the answer to ours has both.
        cache.remember(pod("a", "1", 7));
        assert!(cache.take("", Event::Apply(pod("a", "1", 6))).is_empty());
        assert_eq!(cache.take("", Event::Apply(pod("a", "1", 7))), [owner()]);
    }

    #[test]
    fn the_deletion_of_an_earlier_life_does_not_hide_the_present_one() {
        let cache = cache();
        cache.remember(pod("a", "2", 9));
        cache.take("", Event::Delete(pod("a", "1", 8)));
        assert_eq!(versions(&cache), [("a".to_owned(), 9)]);
    }

    #[test]
    fn an_answer_that_comes_after_the_deletion_does_not_bring_the_object_back() {
        let cache = cache();
        cache.take("", Event::Apply(pod("a", "1", 5)));
        cache.take("", Event::Delete(pod("a", "1", 7)));
        cache.remember(pod("a", "1", 6));
        assert!(cache.group(&owner()).is_empty());
    }

    fn of(owner: usize, version: u64) -> Arc<Value> {
        let mut object = (*pod("a", "1", version)).clone();
        object["metadata"]["labels"]["owner"] = owner.to_string().into();
        Arc::new(object)
    }
    fn key_of(owner: usize) -> Key {
        Key { namespace: "ns".into(), name: owner.to_string() }
    }
    fn is_packed(cache: &Cache, owner: usize) -> bool {
        cache.locked().groups[&key_of(owner)].values().all(Kept::is_packed)
    }

    #[test]
    fn an_owner_that_nobody_looked_at_lately_is_packed_and_says_the_same_when_it_is_looked_at_again() {
        let cache = cache();
        cache.take("", Event::Apply(of(0, 5)));
        let before = cache.group(&key_of(0));
        (1..OPEN).for_each(|other| drop(cache.take("", Event::Apply(of(other, 5)))));
        assert!(!is_packed(&cache, 0), "as many are open as may be");
        cache.group(&key_of(OPEN));
        assert!(is_packed(&cache, 0) && !is_packed(&cache, 1));

        let again = cache.group(&key_of(0));
        assert_eq!(again, before);
        assert!(Arc::ptr_eq(&again["a"], &cache.group(&key_of(0))["a"]), "the next look sees that nothing changed");
        assert!(is_packed(&cache, 1), "the next in line went for it");
    }

    #[test]
    fn a_list_of_thousands_is_packed_as_it_comes() {
        let cache = cache();
        cache.group(&key_of(OPEN));
        cache.take("", Event::Init);
        (0..=OPEN).for_each(|owner| drop(cache.take("", Event::InitApply(of(owner, 5)))));
        cache.take("", Event::InitDone);
        let packed: Vec<_> = (0..=OPEN).filter(|owner| is_packed(&cache, *owner)).collect();
        assert_eq!(packed, [OPEN - 1], "the last one is being looked at, and there is room for those that came first");
    }

    #[test]
    fn what_is_packed_is_replaced_and_deleted_by_version_and_uid_as_anything_else() {
        let cache = cache();
        (1..=OPEN).for_each(|other| drop(cache.group(&key_of(other))));
        cache.take("", Event::Init);
        cache.take("", Event::InitApply(of(0, 5)));
        cache.take("", Event::InitDone);
        assert!(cache.take("", Event::Apply(of(0, 4))).is_empty() && is_packed(&cache, 0), "older");
        let mut another = (*of(0, 6)).clone();
        another["metadata"]["uid"] = "2".into();
        cache.take("", Event::Delete(Arc::new(another)));
        assert!(is_packed(&cache, 0), "another life's deletion");
        cache.take("", Event::Delete(of(0, 7)));
        assert!(cache.keys().is_empty());
    }

    #[test]
    fn an_object_that_names_its_owner_in_a_field_is_found_there_whatever_its_labels_are() {
        let backups = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("g", "v1", "Backup"), "backups");
        let cache = Cache::new(backups, GroupBy::Field("/spec/cluster"), &Namespaces::All, None);
        assert_eq!(cache.selector(), None);
        let backup = |name: &str, spec: Value| {
            let metadata =
                json!({"name": name, "namespace": "ns", "resourceVersion": "5", "labels": {"cluster": "another"}});
            Arc::new(json!({"metadata": metadata, "spec": spec}))
        };
        assert_eq!(cache.take("", Event::Apply(backup("a", json!({"cluster": "o"})))), [owner()]);
        assert_eq!(cache.take("", Event::Apply(backup("b", json!({})))), []);
        assert_eq!(cache.take("", Event::Apply(backup("c", json!({"cluster": 7})))), []);
        assert_eq!((versions(&cache), cache.unreadable()), (vec![("a".to_owned(), 5)], 2));
    }

    #[test]
    fn what_nobody_reads_is_not_kept_from_a_list_a_watch_or_an_answer() {
        let cache = cache();
        let pod = |name: &str| {
            let mut pod = (*pod(name, "1", 5)).clone();
            pod["metadata"]["annotations"] =
                json!({"kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "yes"});
            Arc::new(pod)
        };
        cache.take("", Event::Init);
        cache.take("", Event::InitApply(pod("listed")));
        cache.take("", Event::InitDone);
        cache.take("", Event::Apply(pod("watched")));
        cache.remember(pod("answered"));
        let kept = cache.group(&owner());
        assert_eq!(kept.len(), 3);
        for pod in kept.values() {
            assert_eq!(pod["metadata"].get("managedFields"), None);
            assert_eq!(pod["metadata"]["annotations"], json!({"kept": "yes"}));
        }
    }
}
