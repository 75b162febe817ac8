//! A local copy of all objects of one kind, kept by a watch, and a tick for every change.
//!
//! Readers see the copy as it was at some moment not long ago; what must not act on an old copy (removing a volume) asks the
//! API again. Never: an empty copy taken for "there is nothing" before the first list has arrived.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, RwLock};

use futures::StreamExt;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_objects};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

type Key = (String, String);
type Objects<K> = BTreeMap<Key, Arc<K>>;

/// The copy.
#[derive(Debug)]
pub struct Mirror<K> {
    objects: Arc<RwLock<Objects<K>>>,
    ticks: watch::Receiver<u64>,
}

impl<K> Clone for Mirror<K> {
    fn clone(&self) -> Self {
        Self { objects: self.objects.clone(), ticks: self.ticks.clone() }
    }
}

impl<K> Mirror<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    /// Begins to copy, and returns once everything that exists has been seen. It goes on until the runtime ends or every
    /// clone is dropped.
    pub async fn start(api: Api<K>) -> Self {
        let objects = Arc::new(RwLock::new(Objects::new()));
        let (sender, mut ticks) = watch::channel(0);
        tokio::spawn(follow(api, objects.clone(), sender));
        // The sender lives as long as a receiver does, so this ends with the first complete list.
        let _first = ticks.changed().await;
        Self { objects, ticks }
    }

    /// All objects, by namespace and name.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.read().values().cloned().collect()
    }

    /// One object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.read().get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// A receiver that is marked as changed by every change after this call.
    pub fn ticks(&self) -> watch::Receiver<u64> {
        let mut ticks = self.ticks.clone();
        ticks.mark_unchanged();
        ticks
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Objects<K>> {
        self.objects.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

async fn follow<K>(api: Api<K>, objects: Arc<RwLock<Objects<K>>>, ticks: watch::Sender<u64>)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let mut events = Box::pin(watch_objects(api, watcher::Config::default()).default_backoff());
    let mut listed = Objects::new();
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = ticks.closed() => return,
        };
        match event {
            None => return,
            Some(Err(error)) => {
                tracing::debug!(%error, "watch interrupted");
                continue;
            }
            Some(Ok(event)) => {
                let mut current = objects.write().unwrap_or_else(std::sync::PoisonError::into_inner);
                match event {
                    Event::Init => {
                        listed.clear();
                        continue;
                    }
                    Event::InitApply(object) => {
                        listed.insert(key(&object), Arc::new(object));
                        continue;
                    }
                    Event::InitDone => *current = std::mem::take(&mut listed),
                    Event::Apply(object) => {
                        current.insert(key(&object), Arc::new(object));
                    }
                    Event::Delete(object) => {
                        current.remove(&key(&object));
                    }
                }
            }
        }
        ticks.send_modify(|tick| *tick += 1);
    }
}

fn key<K: Resource>(object: &K) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}
