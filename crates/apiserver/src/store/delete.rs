//! Delete: at once, or marked and finished later by those who hold finalizers, by a kubelet, or by garbage collection.
//!
//! Never: an object gone while a finalizer holds it, or deleted when the caller's precondition names another one.

use std::sync::Arc;

use serde_json::Value;

use super::{NAMESPACES, Object, Store, builtin, object, read, view};
use crate::error::ApiError;
use crate::registry::Resource;
use crate::request::{DeleteOptions, ListOptions, Propagation, Subresource, Target, Write};

/// What a delete did.
#[derive(Clone, Debug)]
pub enum Deleted {
    /// It is gone; as it was last.
    Gone(Object),
    /// It is marked, and goes when finalizers, grace or dependents allow it; as it is now.
    Pending(Object),
}

/// The finalizers that deletion itself adds.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
pub(super) const ORPHAN: &str = "orphan";

impl Store {
    /// Deletes an object.
    pub fn delete(&mut self, target: &Target, options: &DeleteOptions, write: &Write) -> Result<Deleted, ApiError> {
        if target.subresource != Subresource::Main {
            return Err(ApiError::method_not_allowed());
        }
        let resource = &target.resource;
        let stored = self
            .stored(&resource.bucket(), &read::key(target))
            .cloned()
            .ok_or_else(|| ApiError::not_found(resource, &target.name))?;
        check_preconditions(resource, stored.plain(), options)?;
        if resource.bucket() == NAMESPACES && matches!(target.name.as_str(), "default" | "kube-system") {
            return Err(ApiError::forbidden(resource, &target.name, "this namespace may not be deleted"));
        }
        let marked = marked(resource, stored.plain(), options, write);
        let done = finished(resource, &marked);
        if write.dry_run {
            let object = view::shown(resource, &stored);
            return Ok(if done { Deleted::Gone(object) } else { Deleted::Pending(object) });
        }
        let bucket = resource.bucket();
        if done {
            let gone = self.commit(&bucket, read::key(target), None)?;
            return Ok(Deleted::Gone(view::shown(resource, &gone)));
        }
        if marked == **stored.plain() {
            return Ok(Deleted::Pending(view::shown(resource, &stored)));
        }
        let pending = self.commit(&bucket, read::key(target), Some((marked, stored.managers().clone())))?;
        Ok(Deleted::Pending(view::shown(resource, &pending)))
    }

    /// Deletes what a list would show, and returns it as it was.
    pub fn delete_collection(
        &mut self,
        resource: &Arc<Resource>,
        namespace: Option<&str>,
        list: &ListOptions,
        options: &DeleteOptions,
        write: &Write,
    ) -> Result<Vec<Object>, ApiError> {
        let objects = self.list(resource, namespace, list)?.items;
        for one in &objects {
            let target = Target {
                resource: resource.clone(),
                namespace: Some(object::namespace(one.plain()).to_owned()).filter(|namespace| !namespace.is_empty()),
                name: object::name(one.plain()).to_owned(),
                subresource: Subresource::Main,
            };
            match self.delete(&target, options, write) {
                Err(error) if error.code != 404 => return Err(error),
                _ => {}
            }
        }
        Ok(objects)
    }
}

fn check_preconditions(resource: &Resource, stored: &Value, options: &DeleteOptions) -> Result<(), ApiError> {
    // A kube-apiserver names the kind, not the resource, in this one conflict.
    let named = || Resource { plural: resource.kind.clone(), ..resource.clone() };
    let name = object::name(stored);
    if let Some(uid) = &options.uid
        && uid != object::uid(stored)
    {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            object::uid(stored)
        );
        return Err(ApiError::conflict(&named(), name, &why));
    }
    if let Some(version) = &options.resource_version
        && version != object::meta_str(stored, "resourceVersion")
    {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
            object::meta_str(stored, "resourceVersion")
        );
        return Err(ApiError::conflict(&named(), name, &why));
    }
    Ok(())
}

/// The object with the marks of this delete: timestamp, grace, and the finalizers that the propagation policy asks for.
fn marked(resource: &Resource, stored: &Value, options: &DeleteOptions, write: &Write) -> Value {
    let mut marked = stored.clone();
    let grace = builtin::grace(resource, stored, options.grace_period_seconds);
    let already = object::deleting(stored);
    let before = object::meta(stored).get("deletionGracePeriodSeconds").and_then(Value::as_i64);
    // A second delete may only shorten the grace.
    if !already || before.is_some_and(|before| grace < before) {
        let meta = object::meta_mut(&mut marked);
        let end = write.now + jiff::SignedDuration::from_secs(grace);
        meta.insert("deletionTimestamp".into(), object::time(end).into());
        meta.insert("deletionGracePeriodSeconds".into(), grace.into());
    }
    if !already && builtin::counts_generations(resource) {
        let generation = object::meta(stored).get("generation").and_then(Value::as_i64).unwrap_or(0);
        object::meta_mut(&mut marked).insert("generation".into(), (generation + 1).into());
    }
    let mut finalizers: Vec<String> = object::finalizers(&marked).into_iter().map(ToOwned::to_owned).collect();
    let wanted = match options.propagation {
        Some(Propagation::Foreground) => Some(FOREGROUND),
        Some(Propagation::Orphan) => Some(ORPHAN),
        Some(Propagation::Background) => None,
        // Without a policy, an earlier one stays.
        None => finalizers
            .iter()
            .map(String::as_str)
            .find(|one| [FOREGROUND, ORPHAN].contains(one))
            .map(|one| if one == ORPHAN { ORPHAN } else { FOREGROUND }),
    };
    finalizers.retain(|one| one != FOREGROUND && one != ORPHAN);
    finalizers.extend(wanted.map(ToOwned::to_owned));
    object::set_finalizers(&mut marked, &finalizers);
    builtin::mark_deleted(resource, &mut marked);
    marked
}

/// Whether a marked object has nothing left to wait for.
pub(super) fn finished(resource: &Resource, object: &Value) -> bool {
    object::deleting(object)
        && object::finalizers(object).is_empty()
        && object::meta(object).get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0) == 0
        && builtin::may_go(resource, object)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, config_map};
    use super::*;
    use serde_json::json;

    fn running_pod(fixture: &mut Fixture) {
        let spec =
            json!({"nodeName": "n", "containers": [{"name": "c", "image": "x"}], "terminationGracePeriodSeconds": 120});
        fixture.given("pods", json!({"metadata": {"name": "p"}, "spec": spec}));
    }

    fn within(seconds: i64) -> DeleteOptions {
        DeleteOptions { grace_period_seconds: Some(seconds), ..DeleteOptions::default() }
    }

    fn grace(fixture: &Fixture) -> Value {
        fixture.get("pods/p").unwrap()["metadata"]["deletionGracePeriodSeconds"].clone()
    }

    #[test]
    fn a_running_pod_waits_for_its_kubelet_and_grace_only_shrinks() {
        let mut fixture = Fixture::new();
        running_pod(&mut fixture);
        assert!(matches!(fixture.delete("pods/p", &DeleteOptions::default()), Ok(Deleted::Pending(_))));
        assert_eq!(grace(&fixture), 120);
        fixture.delete("pods/p", &within(5)).unwrap();
        assert_eq!(grace(&fixture), 5);
        fixture.delete("pods/p", &within(60)).unwrap();
        assert_eq!(grace(&fixture), 5, "a later delete can't give it more time");
        assert!(matches!(fixture.delete("pods/p", &within(0)), Ok(Deleted::Gone(_))));
    }

    #[test]
    fn a_pod_that_no_kubelet_runs_goes_at_once() {
        let mut fixture = Fixture::new();
        fixture
            .given("pods", json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}));
        assert!(matches!(fixture.delete("pods/p", &DeleteOptions::default()), Ok(Deleted::Gone(_))));
    }

    #[test]
    fn preconditions_protect_another_object_of_the_same_name() {
        let mut fixture = Fixture::new();
        fixture.given("configmaps", config_map("a", json!({})));
        let other = DeleteOptions { uid: Some("other".into()), ..DeleteOptions::default() };
        let error = fixture.delete("configmaps/a", &other).unwrap_err();
        assert_eq!((error.code, error.reason), (409, "Conflict"));
        let stale = DeleteOptions { resource_version: Some("1".into()), ..DeleteOptions::default() };
        assert_eq!(fixture.delete("configmaps/a", &stale).unwrap_err().code, 409);
        assert!(fixture.get("configmaps/a").is_some());
    }

    #[test]
    fn the_last_finalizer_takes_the_object_with_it_and_none_can_be_added() {
        let mut fixture = Fixture::new();
        fixture.given("configmaps", json!({"metadata": {"name": "a", "finalizers": ["test.dev/x"]}}));
        fixture.delete("configmaps/a", &DeleteOptions::default()).unwrap();
        let more = json!({"metadata": {"finalizers": ["test.dev/x", "test.dev/y"]}});
        assert!(fixture.merge("configmaps/a", more).unwrap_err().message.contains("no new finalizers can be added"));
        fixture.merge("configmaps/a", json!({"metadata": {"finalizers": null}})).unwrap();
        assert!(fixture.get("configmaps/a").is_none());
    }

    #[test]
    fn a_dry_run_deletes_nothing() {
        let mut fixture = Fixture::new();
        fixture.given("configmaps", config_map("a", json!({})));
        let write = Write { dry_run: true, ..fixture.write("tester") };
        let target = fixture.target("configmaps/a");
        assert!(matches!(fixture.store.delete(&target, &DeleteOptions::default(), &write), Ok(Deleted::Gone(_))));
        assert!(fixture.get("configmaps/a").is_some());
    }
}
