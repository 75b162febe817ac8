//! What controllers do on a real cluster and nobody else would do here: owners take their dependents with them, namespaces and CRDs
//! their content, and a claim that no pod uses any more may go.
//!
//! One call does all that can be done at once, and says whether it did anything; the home calls it after changes until it says no.
//! Never: a dependent deleted while one of its owners lives, or because an owner could not be looked up (an owner of a kind that is
//! not served is unknown, not absent).

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::delete::{FOREGROUND, ORPHAN};
use super::{Bucket, CRDS, Key, NAMESPACES, Object, Store, builtin, object};
use crate::error::ApiError;
use crate::registry::Resource;
use crate::request::{DeleteOptions, FieldValidation, Propagation, Subresource, Target, Write};

/// The manager that changes of garbage collection are recorded for.
const MANAGER: &str = "garbage-collector";

/// One object, wherever it is.
#[derive(Clone)]
struct Place {
    bucket: String,
    key: Key,
    object: Object,
}

impl Store {
    /// Does what garbage collection can do now; returns whether anything changed. A failure to store is noted and tried again by
    /// the next call.
    pub fn collect_garbage(&mut self, now: Timestamp) -> bool {
        let before = self.revision;
        let write =
            Write { now, manager: MANAGER.into(), dry_run: false, force: false, validation: FieldValidation::Ignore };
        if let Err(error) = self.collect(&write) {
            tracing::warn!(%error, "garbage collection could not store a change");
        }
        self.revision != before
    }

    fn collect(&mut self, write: &Write) -> Result<(), ApiError> {
        self.collect_dependents(write)?;
        self.finish_owners()?;
        self.finish_namespaces(write)?;
        self.finish_crds(write)?;
        self.release_claims()
    }

    /// Everything that is `wanted`, by its bucket, key and object.
    fn places(&self, wanted: impl Fn(&str, &Key, &Object) -> bool) -> Vec<Place> {
        let mut places = Vec::new();
        for (bucket, objects) in &self.buckets {
            for (key, object) in objects.iter().filter(|(key, object)| wanted(bucket, key, object)) {
                places.push(Place { bucket: bucket.clone(), key: key.clone(), object: object.clone() });
            }
        }
        places
    }

    /// Deletes objects whose owners are all gone, and those whose remaining owners wait for their dependents to go first.
    fn collect_dependents(&mut self, write: &Write) -> Result<(), ApiError> {
        let all = || self.buckets.values().flat_map(Bucket::values).map(|object| &**object.plain());
        let alive: HashSet<String> = all().map(|object| object::uid(object).to_owned()).collect();
        let waiting = all().filter(|object| waits_for_dependents(object));
        let waiting: HashSet<String> = waiting.map(|object| object::uid(object).to_owned()).collect();
        // Whoever has an owner that lives and waits for nobody stays.
        let settled = |object: &Value| {
            let mut owners =
                object::meta(object).get("ownerReferences").and_then(Value::as_array).into_iter().flatten();
            owners.any(|owner| {
                let uid = owner["uid"].as_str().unwrap_or_default();
                alive.contains(uid) && !waiting.contains(uid)
            })
        };
        let unsettled = self.places(|_, _, object| {
            let object = object.plain();
            object::meta(object).contains_key("ownerReferences") && !object::deleting(object) && !settled(object)
        });
        for place in &unsettled {
            let owners = owners(place.object.plain());
            if owners.is_empty() {
                continue;
            }
            let known: Vec<bool> =
                owners.iter().map(|owner| alive.contains(owner.uid) || !self.serves(owner)).collect();
            let solid =
                owners.iter().zip(&known).filter(|(owner, known)| **known && !waiting.contains(owner.uid)).count();
            let in_front = owners.iter().any(|owner| waiting.contains(owner.uid));
            if solid == 0 {
                let policy = if in_front { Propagation::Foreground } else { Propagation::Background };
                self.delete_place(place, policy, write)?;
            }
        }
        Ok(())
    }

    /// An owner of a kind that is not served can't be said to be gone.
    fn serves(&self, owner: &Owner<'_>) -> bool {
        let (group, _) = owner.api_version.split_once('/').unwrap_or(("", owner.api_version));
        self.resources.iter().any(|resource| resource.group == group && resource.kind == owner.kind)
    }

    /// Orphans the dependents of those deleted with that policy, and lets those go whose blocking dependents are gone.
    fn finish_owners(&mut self) -> Result<(), ApiError> {
        for place in &self.places(|_, _, object| object::deleting(object.plain())) {
            let finalizers = object::finalizers(place.object.plain());
            let uid = object::uid(place.object.plain());
            if finalizers.contains(&ORPHAN) {
                self.orphan_dependents(uid)?;
                self.drop_finalizer(place, ORPHAN)?;
            } else if finalizers.contains(&FOREGROUND) && !self.is_blocked(uid) {
                self.drop_finalizer(place, FOREGROUND)?;
            }
        }
        Ok(())
    }

    fn is_blocked(&self, uid: &str) -> bool {
        self.buckets.values().flat_map(|bucket| bucket.values()).any(|object| {
            let references = object::meta(object.plain()).get("ownerReferences").and_then(Value::as_array);
            references.into_iter().flatten().any(|owner| owner["uid"] == uid && owner["blockOwnerDeletion"] == true)
        })
    }

    fn orphan_dependents(&mut self, uid: &str) -> Result<(), ApiError> {
        for place in self.places(|_, _, object| object::meta(object.plain()).contains_key("ownerReferences")) {
            let references = object::meta(place.object.plain()).get("ownerReferences").and_then(Value::as_array);
            let Some(references) = references.filter(|all| all.iter().any(|owner| owner["uid"] == uid)) else {
                continue;
            };
            let kept: Vec<Value> = references.iter().filter(|owner| owner["uid"] != uid).cloned().collect();
            let mut orphan = Value::clone(place.object.plain());
            if kept.is_empty() {
                object::meta_mut(&mut orphan).remove("ownerReferences");
            } else {
                object::meta_mut(&mut orphan).insert("ownerReferences".into(), kept.into());
            }
            let managers = place.object.managers().clone();
            self.commit(&place.bucket, place.key, Some((orphan, managers)))?;
        }
        Ok(())
    }

    fn drop_finalizer(&mut self, place: &Place, finalizer: &str) -> Result<(), ApiError> {
        // An earlier step of this round may have changed it.
        let Some(object) = self.stored(&place.bucket, &place.key).cloned() else { return Ok(()) };
        let kept: Vec<String> = object::finalizers(object.plain())
            .into_iter()
            .filter(|one| *one != finalizer)
            .map(ToOwned::to_owned)
            .collect();
        let mut changed = Value::clone(object.plain());
        object::set_finalizers(&mut changed, &kept);
        let Some(resource) = self.resource_of_bucket(&place.bucket) else { return Ok(()) };
        let after = (!super::delete::finished(&resource, &changed)).then_some((changed, object.managers().clone()));
        self.commit(&place.bucket, place.key.clone(), after).map(drop)
    }

    /// Empties namespaces that are being deleted, and lets the empty ones go.
    fn finish_namespaces(&mut self, write: &Write) -> Result<(), ApiError> {
        let terminating = self.places(|bucket, _, object| bucket == NAMESPACES && object::deleting(object.plain()));
        for namespace in terminating {
            let content = self.places(|bucket, key, _| key.0 == namespace.key.1 && bucket != NAMESPACES);
            for place in content.iter().filter(|place| !object::deleting(place.object.plain())) {
                self.delete_place(place, Propagation::Background, write)?;
            }
            let empty = !self.buckets.values().any(|bucket| bucket.keys().any(|(of, _)| *of == namespace.key.1));
            if empty && object::finalizers(namespace.object.plain()).is_empty() {
                self.commit(NAMESPACES, namespace.key, None)?;
            }
        }
        Ok(())
    }

    /// Deletes the objects of CRDs that are being deleted, then the CRDs.
    fn finish_crds(&mut self, write: &Write) -> Result<(), ApiError> {
        let terminating = self.places(|bucket, _, object| bucket == CRDS && object::deleting(object.plain()));
        for crd in terminating {
            // A CRD's name is the name of its bucket.
            let bucket = &crd.key.1;
            for place in self.places(|of, _, object| of == bucket && !object::deleting(object.plain())) {
                self.delete_place(&place, Propagation::Background, write)?;
            }
            if self.buckets.get(bucket).is_none_or(|objects| objects.is_empty())
                && object::finalizers(crd.object.plain()).contains(&builtin::CLEANUP)
            {
                self.drop_finalizer(&crd, builtin::CLEANUP)?;
            }
        }
        Ok(())
    }

    /// Lets deleted claims go that no pod uses.
    fn release_claims(&mut self) -> Result<(), ApiError> {
        let claims = self.places(|bucket, _, object| {
            let protected = |object| object::finalizers(object).contains(&builtin::PROTECTION);
            bucket == "persistentvolumeclaims" && object::deleting(object.plain()) && protected(object.plain())
        });
        for claim in claims {
            if !self.is_mounted(&claim.key) {
                self.drop_finalizer(&claim, builtin::PROTECTION)?;
            }
        }
        Ok(())
    }

    fn is_mounted(&self, (namespace, name): &Key) -> bool {
        let pods = self.buckets.get("pods").into_iter().flatten();
        pods.filter(|((of, _), _)| of == namespace).any(|(_, pod)| {
            let pod = pod.plain();
            let ended = ["Succeeded", "Failed"].iter().any(|phase| pod["status"]["phase"] == *phase);
            let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
            !ended && volumes.into_iter().any(|volume| volume["persistentVolumeClaim"]["claimName"] == name.as_str())
        })
    }

    fn delete_place(&mut self, place: &Place, propagation: Propagation, write: &Write) -> Result<(), ApiError> {
        let Some(resource) = self.resource_of_bucket(&place.bucket) else { return Ok(()) };
        let target = Target {
            namespace: Some(place.key.0.clone()).filter(|namespace| !namespace.is_empty()),
            name: place.key.1.clone(),
            subresource: Subresource::Main,
            resource: Arc::<Resource>::clone(&resource),
        };
        let options = DeleteOptions {
            uid: Some(object::uid(place.object.plain()).to_owned()),
            propagation: Some(propagation),
            ..DeleteOptions::default()
        };
        match self.delete(&target, &options, write) {
            // Gone or replaced meanwhile, by an earlier step of this very round.
            Err(error) if error.code != 404 && error.code != 409 => Err(error),
            _ => Ok(()),
        }
    }
}

struct Owner<'a> {
    uid: &'a str,
    api_version: &'a str,
    kind: &'a str,
}

fn owners(object: &Value) -> Vec<Owner<'_>> {
    let references = object::meta(object).get("ownerReferences").and_then(Value::as_array);
    references
        .into_iter()
        .flatten()
        .map(|owner| Owner {
            uid: owner["uid"].as_str().unwrap_or_default(),
            api_version: owner["apiVersion"].as_str().unwrap_or_default(),
            kind: owner["kind"].as_str().unwrap_or_default(),
        })
        .collect()
}

fn waits_for_dependents(object: &Value) -> bool {
    object::deleting(object) && object::finalizers(object).contains(&FOREGROUND)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, config_map, owner};
    use super::*;
    use serde_json::json;

    fn owned_by(name: &str, owners: &[&Value]) -> Value {
        json!({"metadata": {"name": name, "ownerReferences": owners.iter().map(|one| owner(one)).collect::<Vec<_>>()}})
    }

    #[test]
    fn dependents_follow_their_last_owner() {
        let mut fixture = Fixture::new();
        let first = fixture.given("configmaps", config_map("first", json!({})));
        let second = fixture.given("configmaps", config_map("second", json!({})));
        fixture.given("secrets", owned_by("both", &[&first, &second]));
        let child = fixture.given("secrets", owned_by("one", &[&first]));
        fixture.given("secrets", owned_by("grandchild", &[&child]));
        fixture.delete_with("configmaps/first", Propagation::Background);
        fixture.settle();
        assert_eq!(fixture.names("secrets"), ["both"]);
    }

    #[test]
    fn in_the_foreground_dependents_go_first() {
        let mut fixture = Fixture::new();
        let parent = fixture.given("configmaps", config_map("parent", json!({})));
        let mut child = owned_by("child", &[&parent]);
        child["metadata"]["finalizers"] = json!(["test.dev/hold"]);
        fixture.given("secrets", child);
        fixture.delete_with("configmaps/parent", Propagation::Foreground);
        fixture.settle();
        assert!(object::deleting(&fixture.get("secrets/child").unwrap()));
        assert!(fixture.get("configmaps/parent").is_some(), "its dependent is still there");
        fixture.merge("secrets/child", json!({"metadata": {"finalizers": null}})).unwrap();
        fixture.settle();
        assert!(fixture.get("secrets/child").is_none() && fixture.get("configmaps/parent").is_none());
    }

    #[test]
    fn orphans_lose_their_owner_and_stay() {
        let mut fixture = Fixture::new();
        let parent = fixture.given("configmaps", config_map("parent", json!({})));
        fixture.given("secrets", owned_by("child", &[&parent]));
        fixture.delete_with("configmaps/parent", Propagation::Orphan);
        fixture.settle();
        assert!(fixture.get("configmaps/parent").is_none());
        assert!(fixture.get("secrets/child").unwrap()["metadata"].get("ownerReferences").is_none());
    }

    #[test]
    fn an_owner_of_a_kind_that_is_not_served_is_unknown_and_not_absent() {
        let mut fixture = Fixture::new();
        let mut foreign =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "uid": "elsewhere"}});
        fixture.given("secrets", owned_by("child", &[&foreign]));
        foreign["apiVersion"] = "v1".into();
        foreign["kind"] = "ConfigMap".into();
        fixture.given("secrets", owned_by("orphan", &[&foreign]));
        fixture.settle();
        assert_eq!(fixture.names("secrets"), ["child"]);
    }

    #[test]
    fn a_namespace_goes_when_its_content_is_gone() {
        let mut fixture = Fixture::new();
        fixture.given("namespaces", json!({"metadata": {"name": "gone"}}));
        let write = fixture.write("tester");
        let target = Target { namespace: Some("gone".into()), ..fixture.target("configmaps") };
        let held = json!({"metadata": {"name": "held", "finalizers": ["test.dev/hold"]}});
        fixture.store.create(&target, held, &write).unwrap();
        fixture.delete("namespaces/gone", &DeleteOptions::default()).unwrap();
        fixture.settle();
        assert_eq!(fixture.get("namespaces/gone").unwrap()["status"]["phase"], "Terminating");
        let error = fixture.store.create(&target, config_map("late", json!({})), &write).unwrap_err();
        assert_eq!(
            error.message,
            "configmaps \"late\" is forbidden: unable to create new content in namespace gone because it is being terminated"
        );
        let held = Target { name: "held".into(), ..target };
        let release = json!({"metadata": {"finalizers": null}});
        fixture.store.patch(&held, crate::request::PatchKind::Merge, &release, &write).unwrap();
        fixture.settle();
        assert!(fixture.get("namespaces/gone").is_none());
    }

    #[test]
    fn a_claim_stays_as_long_as_a_pod_uses_it() {
        let mut fixture = Fixture::new();
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        fixture.given("persistentvolumeclaims", json!({"metadata": {"name": "data"}, "spec": spec}));
        fixture.given(
            "pods",
            json!({"metadata": {"name": "p"}, "spec": {
                "containers": [{"name": "c", "image": "x"}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
            }}),
        );
        fixture.delete("persistentvolumeclaims/data", &DeleteOptions::default()).unwrap();
        fixture.settle();
        assert!(fixture.get("persistentvolumeclaims/data").is_some());
        fixture.delete("pods/p", &DeleteOptions::default()).unwrap();
        fixture.settle();
        assert!(fixture.get("persistentvolumeclaims/data").is_none());
    }

    #[test]
    fn a_crd_takes_its_objects_with_it() {
        let mut fixture = Fixture::new();
        fixture.widgets(json!({"a": {"type": "string"}}));
        let before = fixture.store.registry_generation();
        fixture.given("widgets", json!({"metadata": {"name": "w"}}));
        fixture.delete("customresourcedefinitions/widgets.test.dev", &DeleteOptions::default()).unwrap();
        fixture.settle();
        assert!(fixture.names("customresourcedefinitions").is_empty());
        assert!(fixture.store.resource("test.dev", "v1", "widgets").is_none());
        assert_ne!(fixture.store.registry_generation(), before);
        fixture.widgets(json!({"a": {"type": "string"}}));
        assert!(fixture.names("widgets").is_empty(), "objects of the old definition don't come back");
    }
}
