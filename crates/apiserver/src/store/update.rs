//! Update: an object is replaced, through itself, its status or its scale.
//!
//! A write that changes nothing makes no revision and no event. Never: a write on top of one that the caller has not seen (when it
//! says which version it saw), status changed through the object, or the object changed through its status.

use serde_json::{Map, Value, json};

use super::apply::{self, Managers};
use super::create::{check_name, check_namespace};
use super::touched::Touched;
use super::{Object, Store, builtin, object, read, schema, view};
use crate::error::{ApiError, FieldError};
use crate::registry::Resource;
use crate::request::{Subresource, Target, Write, Written};

/// What an existing object is to become.
pub(super) struct Change {
    /// The object, decoded, defaulted, and meant for the very one that it replaces.
    pub(super) object: Value,
    /// Where the two may differ.
    pub(super) touched: Touched,
    /// Who owns what of it; known if it was applied.
    pub(super) managers: Option<Managers>,
    /// What the caller is told.
    pub(super) warnings: Vec<String>,
}

impl Store {
    /// Replaces an object, its status, or the number in its scale.
    pub fn update(&mut self, target: &Target, object: Value, write: &Write) -> Result<Written, ApiError> {
        check_subresource(target)?;
        if target.subresource == Subresource::Scale {
            return self.update_scale(target, &object, write);
        }
        let decoded = schema::decode(&target.resource, object, write.validation)?;
        let mut object = decoded.object;
        check_name(target, &mut object)?;
        check_namespace(target, &mut object)?;
        let Some(current) = self.stored(&target.resource.bucket(), &read::key(target)).cloned() else {
            let uid = object::uid(&object);
            if builtin::creates_on_update(&target.resource) && uid.is_empty() {
                object::meta_mut(&mut object).remove("resourceVersion");
                return self.insert(target, object, write, decoded.warnings, None);
            }
            return Err(ApiError::not_found(&target.resource, &target.name));
        };
        let current = view::shown(&target.resource, &current);
        self.check_version(target, current.plain(), &object)?;
        let change = Change { object, touched: Touched::All, managers: None, warnings: decoded.warnings };
        self.replace(target, &current, change, write)
    }

    fn check_version(&self, target: &Target, current: &Value, object: &Value) -> Result<(), ApiError> {
        let resource = &target.resource;
        let uid = object::uid(object);
        if !uid.is_empty() && uid != object::uid(current) {
            let key = format!("/registry/{}/{}/{}", resource.plural, object::namespace(current), target.name);
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                object::uid(current)
            );
            return Err(ApiError::conflict(resource, &target.name, &why));
        }
        match object::meta_str(object, "resourceVersion") {
            "" if builtin::needs_version(resource) => {
                let error =
                    FieldError::invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
                // A kube-apiserver names the resource, not the kind, in this one refusal.
                let named = Resource { kind: resource.plural.clone(), ..Resource::clone(resource) };
                Err(ApiError::invalid(&named, &target.name, &[error]))
            }
            "" => Ok(()),
            version if version == object::meta_str(current, "resourceVersion") => Ok(()),
            _ => Err(ApiError::modified(resource, &target.name)),
        }
    }

    /// The part that every change of an existing object shares.
    pub(super) fn replace(
        &mut self,
        target: &Target,
        current: &Object,
        change: Change,
        write: &Write,
    ) -> Result<Written, ApiError> {
        let Change { mut object, touched, managers, warnings } = change;
        let resource = &target.resource;
        let before = &**current.plain();
        let touched = builtin::touched_by_rules(resource, touched);
        // What is stored has its defaults and keeps the rules.
        let rules = builtin::concerns_rules(resource, &touched);
        let mut errors = builtin::validate_meta_update(&object, before);
        if rules {
            builtin::apply_defaults(resource, &mut object);
        }
        keep_what_is_not_theirs(target, before, &mut object, &touched);
        builtin::prepare_update(target, &mut object, before);
        let managers = managers.unwrap_or_else(|| apply::own_updated(target, current, &mut object, &touched, write));
        if rules {
            count_generation(target, before, &mut object);
        }
        errors.extend(builtin::validate_meta(resource, &object, Some(before)));
        if rules {
            errors.extend(validate_updated(target, &object, before));
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid(resource, &target.name, &errors));
        }
        if apply::same_but_for_times(current, &object, &touched, &managers) {
            return Ok(Written { object: current.clone(), created: false, warnings });
        }
        if write.dry_run {
            return Ok(Written { object: Object::new(object, managers), created: false, warnings });
        }
        let done = super::delete::finished(resource, &object);
        let key = read::key(target);
        let stored = view::stored(&self.storage_version(resource), resource, object);
        let bucket = resource.bucket();
        let committed = if done {
            // Its last finalizer went, and the object goes with this very write.
            self.commit(&bucket, key, None)?;
            Object::new(stored, managers)
        } else {
            self.commit(&bucket, key, Some((stored, managers)))?
        };
        committed.got_defaults_of(resource);
        Ok(Written { object: view::shown(resource, &committed), created: false, warnings })
    }

    fn update_scale(&mut self, target: &Target, scale: &Value, write: &Write) -> Result<Written, ApiError> {
        let current = self
            .stored(&target.resource.bucket(), &read::key(target))
            .cloned()
            .ok_or_else(|| ApiError::not_found(&target.resource, &target.name))?;
        let current = view::shown(&target.resource, &current);
        let version = object::meta_str(scale, "resourceVersion");
        if !version.is_empty() && version != object::meta_str(current.plain(), "resourceVersion") {
            return Err(ApiError::modified(&target.resource, &target.name));
        }
        self.set_scale(target, &current, scale, write)
    }

    /// Writes the number of a Scale into the object.
    pub(super) fn set_scale(
        &mut self,
        target: &Target,
        current: &Object,
        scale: &Value,
        write: &Write,
    ) -> Result<Written, ApiError> {
        let resource = &target.resource;
        let Some(paths) = &resource.scale else { return Err(ApiError::not_found(resource, &target.name)) };
        let replicas = scale.get("spec").and_then(|spec| spec.get("replicas")).cloned().unwrap_or_else(|| 0.into());
        if replicas.as_i64().is_none_or(|count| count < 0) {
            let error = FieldError::invalid("spec.replicas", &replicas, "should be a non-negative integer");
            let scale = Resource { group: "autoscaling".into(), kind: "Scale".into(), ..Resource::clone(resource) };
            return Err(ApiError::invalid(&scale, &target.name, &[error]));
        }
        let mut object = Value::clone(current.plain());
        set_path(&mut object, &paths.spec, replicas);
        let touched = Touched::All;
        let mut object = schema::complete(resource, object, &touched);
        let main = Target { subresource: Subresource::Main, ..target.clone() };
        let scaled = Target { subresource: Subresource::Scale, ..target.clone() };
        let managers = Some(apply::own_updated(&scaled, current, &mut object, &touched, write));
        let change = Change { object, touched, managers, warnings: Vec::new() };
        let mut written = self.replace(&main, current, change, write)?;
        written.object = Object::of_whole(scale_of(resource, written.object.plain())?);
        Ok(written)
    }
}

fn validate_updated(target: &Target, object: &Value, current: &Value) -> Vec<FieldError> {
    let resource = &target.resource;
    if resource.custom {
        schema::validate(resource, object, Some(current))
    } else {
        builtin::validate_update(target, object, current)
    }
}

/// 404 where a resource has no such subresource.
pub(super) fn check_subresource(target: &Target) -> Result<(), ApiError> {
    let exists = match target.subresource {
        Subresource::Main => true,
        Subresource::Status => target.resource.has_status,
        Subresource::Scale => target.resource.scale.is_some(),
    };
    if exists {
        return Ok(());
    }
    Err(ApiError {
        code: 404,
        reason: "NotFound",
        message: "the server could not find the requested resource".into(),
        details: Some(json!({})),
    })
}

/// The `autoscaling/v1` Scale of an object.
pub(super) fn scale_of(resource: &Resource, object: &Value) -> Result<Value, ApiError> {
    let Some(paths) = &resource.scale else { return Err(ApiError::not_found(resource, object::name(object))) };
    let mut meta = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object::meta(object).get(field) {
            meta.insert(field.into(), value.clone());
        }
    }
    let number = |path: &str| get_path(object, path).and_then(Value::as_i64).unwrap_or(0);
    let mut scale = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": meta,
        "spec": {"replicas": number(&paths.spec)}, "status": {"replicas": number(&paths.status)},
    });
    if let Some(selector) = paths.selector.as_deref().and_then(|path| get_path(object, path)) {
        scale["status"]["selector"] = selector.clone();
    }
    Ok(scale)
}

fn get_path<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').filter(|step| !step.is_empty()).try_fold(object, |value, step| value.get(step))
}

fn set_path(object: &mut Value, path: &str, new: Value) {
    let mut place = object;
    for step in path.split('.').filter(|step| !step.is_empty()) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[step];
    }
    *place = new;
}

/// Metadata that only the server writes, and the half of the object that this endpoint does not write, stay as they are.
fn keep_what_is_not_theirs(target: &Target, current: &Value, object: &mut Value, touched: &Touched) {
    let resource = &target.resource;
    if target.subresource == Subresource::Status {
        return keep_all_but_status(resource, current, object, touched);
    }
    if resource.has_status && touched.may("status") {
        set_or_remove(object, "status", current.get("status").cloned());
    }
    if !touched.may("metadata") {
        return;
    }
    let kept = object::meta(current);
    let meta = object::meta_mut(object);
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
        "selfLink",
    ] {
        keep_field(meta, field, kept.get(field));
    }
    if !meta.contains_key("generateName")
        && let Some(base) = kept.get("generateName")
    {
        meta.insert("generateName".into(), base.clone());
    }
}

fn keep_all_but_status(resource: &Resource, current: &Value, object: &mut Value, touched: &Touched) {
    if touched.may("metadata") {
        let kept = object::meta(current);
        let meta = object::meta_mut(object);
        let theirs = |field: &str| {
            field == "managedFields" || (!resource.custom && matches!(field, "labels" | "annotations" | "finalizers"))
        };
        meta.retain(|field, _| theirs(field) || kept.contains_key(field));
        for (field, value) in kept.iter().filter(|(field, _)| !theirs(field)) {
            keep_field(meta, field, Some(value));
        }
    }
    let Some(fields) = object.as_object_mut() else { return };
    let kept = |field: &str| !matches!(field, "status" | "metadata") && touched.may(field);
    fields.retain(|field, _| !kept(field) || current.get(field).is_some());
    for (field, value) in current.as_object().into_iter().flatten().filter(|(field, _)| kept(field)) {
        keep_field(fields, field, Some(value));
    }
}

/// Compared rather than copied: little differs, and a spec is long.
fn keep_field(fields: &mut Map<String, Value>, field: &str, kept: Option<&Value>) {
    match kept {
        Some(value) if fields.get(field) == Some(value) => {}
        Some(value) => drop(fields.insert(field.to_owned(), value.clone())),
        None => drop(fields.remove(field)),
    }
}

fn set_or_remove(object: &mut Value, field: &str, value: Option<Value>) {
    let Some(map) = object.as_object_mut() else { return };
    match value {
        Some(value) => map.insert(field.into(), value),
        None => map.remove(field),
    };
}

/// The generation counts changes of what is wanted: anything but metadata and, where it has an endpoint of its own, status.
fn count_generation(target: &Target, current: &Value, object: &mut Value) {
    if !builtin::counts_generations(&target.resource) || target.subresource == Subresource::Status {
        return;
    }
    if builtin::wanted_differs(&target.resource, current, object) {
        let generation = object::meta(current).get("generation").and_then(Value::as_i64).unwrap_or(0);
        object::meta_mut(object).insert("generation".into(), (generation + 1).into());
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, config_map};
    use super::*;

    #[test]
    fn a_write_that_changes_nothing_is_no_write() {
        let mut fixture = Fixture::new();
        let before = fixture.given("configmaps", config_map("a", json!({"k": "1"})));
        fixture.seconds += 1;
        let after = fixture.put("configmaps/a", config_map("a", json!({"k": "1"}))).unwrap();
        assert_eq!(before, after);
        assert_eq!(fixture.store.revision(), object::revision(&before));
    }

    #[test]
    fn a_write_on_top_of_an_unseen_one_is_refused() {
        let mut fixture = Fixture::new();
        let seen = fixture.given("configmaps", config_map("a", json!({"k": "1"})));
        fixture.merge("configmaps/a", json!({"data": {"k": "2"}})).unwrap();
        let error = fixture.put("configmaps/a", Value::clone(&seen)).unwrap_err();
        assert_eq!((error.code, error.reason), (409, "Conflict"));
    }

    #[test]
    fn status_and_object_are_written_apart_and_only_what_is_wanted_counts() {
        let mut fixture = Fixture::new();
        fixture.widgets(json!({"replicas": {"type": "integer", "default": 1}}));
        fixture.given("widgets", json!({"metadata": {"name": "w"}, "spec": {}, "status": {"phase": "No"}}));
        let written = fixture.merge("widgets/w", json!({"spec": {"replicas": 2}, "status": {"phase": "No"}})).unwrap();
        assert_eq!((&written["metadata"]["generation"], written.get("status")), (&json!(2), None));
        let written =
            fixture.merge_status("widgets/w", json!({"spec": {"replicas": 9}, "status": {"phase": "Yes"}})).unwrap();
        assert_eq!((&written["spec"]["replicas"], &written["status"]["phase"]), (&json!(2), &json!("Yes")));
        assert_eq!(written["metadata"]["generation"], 2);
        let written = fixture.merge("widgets/w", json!({"metadata": {"labels": {"a": "b"}}})).unwrap();
        assert_eq!(written["metadata"]["generation"], 2);
    }

    #[test]
    fn identity_can_not_be_changed() {
        let mut fixture = Fixture::new();
        let before = fixture.given("configmaps", config_map("a", json!({})));
        let mut forged = config_map("a", json!({"k": "1"}));
        forged["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
        forged["metadata"]["generation"] = json!(7);
        let after = fixture.put("configmaps/a", forged).unwrap();
        for field in ["uid", "creationTimestamp", "generation"] {
            assert_eq!(before["metadata"].get(field), after["metadata"].get(field), "{field}");
        }
        let mut other = config_map("a", json!({}));
        other["metadata"]["uid"] = json!("another");
        assert_eq!(fixture.put("configmaps/a", other).unwrap_err().code, 409);
    }

    #[test]
    fn the_scale_of_an_object_is_its_number_of_replicas() {
        let mut fixture = Fixture::new();
        fixture.widgets(json!({"replicas": {"type": "integer", "maximum": 9}}));
        fixture.given("widgets", json!({"metadata": {"name": "w"}, "spec": {"replicas": 1}}));
        let scale = Target { subresource: Subresource::Scale, ..fixture.target("widgets/w") };
        let write = fixture.write("scaler");
        let body = |count: i64| json!({"metadata": {"name": "w"}, "spec": {"replicas": count}});
        let written = fixture.store.update(&scale, body(3), &write).unwrap();
        assert_eq!(written.object["kind"], "Scale");
        assert_eq!(fixture.get("widgets/w").unwrap()["spec"]["replicas"], 3);
        assert!(
            fixture.store.update(&scale, body(10), &write).unwrap_err().message.contains("less than or equal to 9")
        );
    }
}
