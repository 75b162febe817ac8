//! Create: a new object gets its identity, its defaults and its first owner, or is refused.

use std::sync::Arc;

use serde_json::Value;

use super::apply::{self, Managers};
use super::{NAMESPACES, Object, Store, builtin, object, read, schema, view};
use crate::error::{ApiError, FieldError};
use crate::registry::Resource;
use crate::request::{Subresource, Target, Write, Written};

/// How often a generated name is tried before the caller is told to.
const NAME_ATTEMPTS: usize = 8;

impl Store {
    /// Creates an object. With an empty name in the target, the object's own name or `generateName` decides.
    pub fn create(&mut self, target: &Target, object: Value, write: &Write) -> Result<Written, ApiError> {
        if target.subresource != Subresource::Main {
            return Err(ApiError::method_not_allowed());
        }
        let decoded = schema::decode(&target.resource, object, write.validation)?;
        let mut object = decoded.object;
        check_namespace(target, &mut object)?;
        if !target.name.is_empty() {
            check_name(target, &mut object)?;
        }
        if !object::meta_str(&object, "resourceVersion").is_empty() {
            return Err(ApiError {
                code: 500,
                reason: "",
                message: "resourceVersion should not be set on objects to be created".into(),
                details: None,
            });
        }
        self.insert(target, object, write, decoded.warnings, None)
    }

    /// The part that create and create-on-apply share: the object is decoded and defaulted, and if it was applied, who owns it is known.
    pub(super) fn insert(
        &mut self,
        target: &Target,
        mut object: Value,
        write: &Write,
        warnings: Vec<String>,
        applied: Option<Managers>,
    ) -> Result<Written, ApiError> {
        let resource = &target.resource;
        self.check_namespace_open(target, object::name(&object))?;
        self.give_identity(target, &mut object, write)?;
        builtin::apply_defaults(resource, &mut object);
        builtin::drop_status(resource, &mut object);
        let managers = applied.unwrap_or_else(|| apply::own_created(resource, &mut object, write));
        builtin::prepare_create(resource, &mut object);
        self.give_cluster_ip(resource, &mut object);
        let name = object::name(&object).to_owned();
        let mut errors = builtin::validate_meta(resource, &object, None);
        errors.extend(validate_created(resource, &object));
        if !errors.is_empty() {
            return Err(ApiError::invalid(resource, &name, &errors));
        }
        let key = (object::namespace(&object).to_owned(), name);
        if self.stored(&resource.bucket(), &key).is_some() {
            return Err(ApiError::already_exists(resource, &key.1));
        }
        if write.dry_run {
            return Ok(Written { object: Object::new(object, managers), created: true, warnings });
        }
        let stored = view::stored(&self.storage_version(resource), resource, object);
        let stored = self.commit(&resource.bucket(), key, Some((stored, managers)))?;
        Ok(Written { object: view::shown(resource, &stored), created: true, warnings })
    }

    fn give_identity(&mut self, target: &Target, object: &mut Value, write: &Write) -> Result<(), ApiError> {
        let resource = &target.resource;
        let uid = self.ids.uid();
        let base = object::meta_str(object, "generateName").to_owned();
        if object::name(object).is_empty() && !base.is_empty() {
            let name = self.generate_name(target, &base)?;
            object::meta_mut(object).insert("name".into(), name.into());
        }
        if object::name(object).is_empty() {
            let error = FieldError::required("metadata.name", "name or generateName is required");
            return Err(ApiError::invalid(resource, "", &[error]));
        }
        let namespace = target.namespace.clone();
        let meta = object::meta_mut(object);
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation", "resourceVersion"] {
            meta.remove(field);
        }
        meta.insert("uid".into(), uid.into());
        meta.insert("creationTimestamp".into(), object::time(write.now).into());
        if resource.namespaced {
            meta.insert("namespace".into(), namespace.unwrap_or_default().into());
        } else {
            meta.remove("namespace");
        }
        if builtin::counts_generations(resource) {
            meta.insert("generation".into(), 1.into());
        }
        Ok(())
    }

    fn generate_name(&mut self, target: &Target, base: &str) -> Result<String, ApiError> {
        // 63 characters are the most that every kind takes; the suffix is five of them.
        let base: String = base.chars().take(58).collect();
        for _ in 0..NAME_ATTEMPTS {
            let name = format!("{base}{}", self.ids.suffix());
            let mut taken = target.clone();
            taken.name.clone_from(&name);
            if self.stored(&target.resource.bucket(), &read::key(&taken)).is_none() {
                return Ok(name);
            }
        }
        Err(ApiError::already_exists(&target.resource, &base))
    }

    /// Nothing is created in a namespace that does not exist or is going away.
    fn check_namespace_open(&self, target: &Target, name: &str) -> Result<(), ApiError> {
        let Some(namespace) = target.namespace.as_deref().filter(|_| target.resource.namespaced) else { return Ok(()) };
        let stored = self.stored(NAMESPACES, &(String::new(), namespace.to_owned()));
        let Some(stored) = stored else {
            let namespaces = self.resource("", "v1", "namespaces").expect("a built-in kind");
            return Err(ApiError::not_found(&namespaces, namespace));
        };
        if !object::deleting(stored.plain()) {
            return Ok(());
        }
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut error = ApiError::forbidden(&target.resource, name, &why);
        if let Some(details) = &mut error.details {
            details["causes"] = serde_json::json!([{
                "reason": "NamespaceTerminating", "message": format!("namespace {namespace} is being terminated"),
                "field": "metadata.namespace",
            }]);
        }
        Err(error)
    }

    fn give_cluster_ip(&mut self, resource: &Resource, object: &mut Value) {
        if !builtin::wants_cluster_ip(resource, object) {
            return;
        }
        let services = self.buckets.get("services");
        let taken = |address: &str| {
            services.is_some_and(|services| services.values().any(|one| one.plain()["spec"]["clusterIP"] == address))
        };
        if let Some(address) = self.cluster_ips.allocate(&taken) {
            builtin::set_cluster_ip(object, &address);
        }
    }

    /// The API version that objects of a resource are stored in.
    pub(super) fn storage_version(&self, resource: &Resource) -> String {
        let bucket = resource.bucket();
        self.resource_of_bucket(&bucket).map_or_else(|| resource.api_version(), |storage| storage.api_version())
    }
}

/// The namespace in the body is that of the request, or left out.
pub(super) fn check_namespace(target: &Target, object: &mut Value) -> Result<(), ApiError> {
    let given = object::namespace(object);
    let wanted = if target.resource.namespaced { target.namespace.as_deref().unwrap_or_default() } else { "" };
    if given.is_empty() {
        if !wanted.is_empty() {
            object::meta_mut(object).insert("namespace".into(), wanted.into());
        }
        return Ok(());
    }
    if given != wanted {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::bad_request(message));
    }
    Ok(())
}

/// The name in the body is that of the request, or left out.
pub(super) fn check_name(target: &Target, object: &mut Value) -> Result<(), ApiError> {
    let given = object::name(object).to_owned();
    if given.is_empty() {
        object::meta_mut(object).insert("name".into(), target.name.as_str().into());
    } else if given != target.name {
        let message = format!("the name of the object ({given}) does not match the name on the URL ({})", target.name);
        return Err(ApiError::bad_request(message));
    }
    Ok(())
}

fn validate_created(resource: &Arc<Resource>, object: &Value) -> Vec<FieldError> {
    if resource.custom { schema::validate(resource, object, None) } else { builtin::validate_create(resource, object) }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, config_map};
    use super::*;
    use crate::request::FieldValidation;
    use serde_json::json;

    #[test]
    fn a_new_object_gets_its_identity_from_the_server() {
        let mut fixture = Fixture::new();
        let mut body = config_map("a", json!({}));
        body["metadata"]["uid"] = json!("mine");
        let object = fixture.given("configmaps", body);
        assert_ne!(object::uid(&object), "mine");
        assert_eq!(object["metadata"]["creationTimestamp"], "1970-01-12T13:46:40Z");
        assert_eq!(object::revision(&object), fixture.store.revision());
        assert_eq!(fixture.create("configmaps", config_map("a", json!({}))).unwrap_err().reason, "AlreadyExists");
    }

    #[test]
    fn names_are_generated_or_required() {
        let mut fixture = Fixture::new();
        let object = fixture.given("configmaps", json!({"metadata": {"generateName": "x-"}}));
        assert!(object::name(&object).starts_with("x-") && object::name(&object).len() == 7);
        let error = fixture.create("configmaps", json!({"metadata": {}})).unwrap_err();
        assert!(error.message.contains("name or generateName is required"));
        assert_eq!(fixture.create("configmaps", config_map("A_b", json!({}))).unwrap_err().code, 422);
    }

    #[test]
    fn what_is_unknown_is_refused_warned_of_or_dropped() {
        let mut fixture = Fixture::new();
        let body = json!({"metadata": {"name": "a"}, "nonsense": 1});
        assert_eq!(fixture.create("configmaps", body.clone()).unwrap_err().code, 400);
        let target = fixture.target("configmaps");
        let write = Write { validation: FieldValidation::Warn, dry_run: true, ..fixture.write("tester") };
        let written = fixture.store.create(&target, body.clone(), &write).unwrap();
        assert_eq!(written.warnings, ["unknown field \"nonsense\""]);
        let write = Write { validation: FieldValidation::Ignore, ..write };
        let written = fixture.store.create(&target, body, &write).unwrap();
        assert!(written.warnings.is_empty() && written.object.get("nonsense").is_none());
        assert!(fixture.get("configmaps/a").is_none(), "a dry run stores nothing");
    }

    #[test]
    fn services_get_distinct_addresses_and_headless_ones_none() {
        let mut fixture = Fixture::new();
        let service = |name: &str| json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 5432}]}});
        let (a, b) = (fixture.given("services", service("a")), fixture.given("services", service("b")));
        assert_ne!(a["spec"]["clusterIP"], b["spec"]["clusterIP"]);
        let mut headless = service("c");
        headless["spec"]["clusterIP"] = json!("None");
        assert_eq!(fixture.given("services", headless)["spec"]["clusterIP"], "None");
    }
}
