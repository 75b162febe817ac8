//! What should be, kept while it stays: an object is built again only when what it is made from has changed.
//!
//! A pass looks at some twenty objects of a cluster and rarely finds a reason to change one of them; to build them took most of it.
//! Never: an object that differs from what would be built now. Whatever goes into one is compared, the spec as a whole.

use std::any::Any;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bellwether_api::v1::PostgresClusterSpec;
use serde_json::Value;

use super::{Parent, Settings};
use crate::object::{Desired, Kind};

/// The objects of one cluster, as they were last built.
#[derive(Debug, Default)]
pub struct Kept(Mutex<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    of: Option<Origin>,
    built: BTreeMap<(Kind, String), (Box<dyn Any + Send>, Desired)>,
    /// What was found to be as it should be: as it should be, and as it was.
    held: BTreeMap<(Kind, String), (Arc<Value>, Arc<Value>)>,
    /// Of the pod that an instance would have.
    pod_hash: Option<String>,
    /// What of the spec can't be acted on, once it was looked at.
    invalid: Option<Vec<String>>,
}

/// What every object of a cluster may be made from.
#[derive(Debug, PartialEq)]
struct Origin {
    spec: PostgresClusterSpec,
    cluster: String,
    namespace: String,
    uid: String,
    settings: Settings,
}

impl Kept {
    /// Forgets everything, unless it was built for this very cluster as it is now.
    pub(super) fn open(&self, parent: &Parent<'_>) {
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = shelf.of.as_ref().is_some_and(|of| {
            of.spec == parent.cluster.spec
                && of.cluster == parent.names.cluster()
                && of.namespace == parent.namespace
                && of.uid == parent.uid
                && of.settings == *parent.settings
        });
        if !same {
            *shelf = Shelf::default();
            shelf.of = Some(Origin {
                spec: parent.cluster.spec.clone(),
                cluster: parent.names.cluster().to_owned(),
                namespace: parent.namespace.clone(),
                uid: parent.uid.clone(),
                settings: parent.settings.clone(),
            });
        }
    }

    /// What of the spec can't be acted on, worked out from it alone, if it was not already.
    pub(super) fn invalid(&self, look: impl FnOnce() -> Vec<String>) -> Vec<String> {
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.invalid.get_or_insert_with(look).clone()
    }

    /// The hash of a pod, worked out from the spec alone, if it was not already.
    pub(super) fn pod_hash(&self, hash: impl FnOnce() -> String) -> String {
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.pod_hash.get_or_insert_with(hash).clone()
    }

    /// Whether an object is as it should be, looked at only if either is another than the last time. Both are held here, so no other
    /// can have their address.
    pub(super) fn holds_in(&self, desired: &Desired, observed: &Arc<Value>) -> bool {
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (desired.kind, desired.name.clone());
        let same =
            |(want, have): &(Arc<Value>, Arc<Value>)| Arc::ptr_eq(want, &desired.value) && Arc::ptr_eq(have, observed);
        if shelf.held.get(&key).is_some_and(same) {
            return true;
        }
        let holds = desired.holds_in(observed);
        if holds {
            shelf.held.insert(key, (desired.value.clone(), observed.clone()));
        }
        holds
    }

    /// The object, built from the cluster and from `from`, if it was not already.
    pub(super) fn or_built<F: PartialEq + ToOwned<Owned: Send + 'static> + ?Sized>(
        &self,
        kind: Kind,
        name: &str,
        from: &F,
        build: impl FnOnce() -> Desired,
    ) -> Desired {
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (kind, name.to_owned());
        if let Some((last, built)) = shelf.built.get(&key)
            && last.downcast_ref::<F::Owned>().is_some_and(|last| Borrow::<F>::borrow(last) == from)
        {
            return built.clone();
        }
        let desired = build();
        shelf.built.insert(key, (Box::new(from.to_owned()), desired.clone()));
        desired
    }
}
