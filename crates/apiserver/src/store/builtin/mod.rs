//! What the built-in kinds demand beyond their schema: defaults, what the server fills in, what may change and what may not.
//!
//! Only what real clients rely on is here; where a kube-apiserver checks more, we accept more. The one place where we accept what it
//! refuses on purpose: loopback addresses in EndpointSlices, because a home on one machine has no others.

mod claim;
mod config;
mod crd;
mod endpoints;
mod event;
mod job;
mod lease;
mod meta;
mod namespace;
mod pod;
mod rbac;
mod service;

use serde_json::{Value, json};

use super::names::NameRule;
use super::object;
use super::touched::Touched;
use crate::error::FieldError;
use crate::registry::Resource;
use crate::request::{Subresource, Target};

pub(super) use claim::PROTECTION;
pub(super) use crd::CLEANUP;
pub(super) use meta::{validate as validate_meta, validate_update as validate_meta_update};
pub(super) use service::{set_cluster_ip, wants_cluster_ip};

/// The built-in kinds that have rules of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Namespace,
    Node,
    Pod,
    Claim,
    Service,
    Secret,
    ConfigMap,
    Event,
    EndpointSlice,
    Lease,
    Job,
    Budget,
    Rbac,
    Crd,
    Other,
}

fn kind(resource: &Resource) -> Kind {
    if resource.custom {
        return Kind::Other;
    }
    match resource.kind.as_str() {
        "Namespace" => Kind::Namespace,
        "Node" => Kind::Node,
        "Pod" => Kind::Pod,
        "PersistentVolumeClaim" => Kind::Claim,
        "Service" => Kind::Service,
        "Secret" => Kind::Secret,
        "ConfigMap" => Kind::ConfigMap,
        "Event" => Kind::Event,
        "EndpointSlice" => Kind::EndpointSlice,
        "Lease" => Kind::Lease,
        "Job" => Kind::Job,
        "PodDisruptionBudget" => Kind::Budget,
        "Role" | "RoleBinding" | "ClusterRole" | "ClusterRoleBinding" => Kind::Rbac,
        "CustomResourceDefinition" => Kind::Crd,
        _ => Kind::Other,
    }
}

/// How names of a kind are checked.
fn name_rule(resource: &Resource) -> NameRule {
    match kind(resource) {
        Kind::Namespace | Kind::Service => NameRule::Label,
        Kind::Rbac => NameRule::PathSegment,
        _ => NameRule::Subdomain,
    }
}

/// Where an object may differ once its kind's defaults and rules have been seen to. Some kinds fill in one field by another; custom
/// ones and pods don't, and those are the ones that are long.
pub(super) fn touched_by_rules(resource: &Resource, touched: Touched) -> Touched {
    if resource.custom || kind(resource) == Kind::Pod { touched } else { Touched::All }
}

/// Whether a change can concern the defaults and the rules of a kind. Those of a pod are about its spec alone.
pub(super) fn concerns_rules(resource: &Resource, touched: &Touched) -> bool {
    kind(resource) != Kind::Pod || touched.may("spec")
}

/// Fills in the defaults of a kind, on every write. What a client states wins, so a second apply of the same finds no change.
pub(super) fn apply_defaults(resource: &Resource, object: &mut Value) {
    match kind(resource) {
        Kind::Pod => pod::default_spec(&mut object["spec"]),
        Kind::Service => service::defaults(object),
        Kind::Secret => config::secret_defaults(object),
        Kind::Claim => claim::defaults(object),
        Kind::EndpointSlice => endpoints::defaults(object),
        Kind::Job => job::defaults(object),
        Kind::Rbac => rbac::defaults(object),
        Kind::Crd => crd::defaults(object),
        Kind::Namespace | Kind::Node | Kind::ConfigMap | Kind::Event | Kind::Lease | Kind::Budget | Kind::Other => {}
    }
}

/// What a client says about the status of a new object does not count.
pub(super) fn drop_status(resource: &Resource, object: &mut Value) {
    if resource.has_status
        && let Some(map) = object.as_object_mut()
    {
        map.remove("status");
    }
}

/// What the server puts into a new object; nobody owns it.
pub(super) fn prepare_create(resource: &Resource, object: &mut Value) {
    match kind(resource) {
        Kind::Namespace => namespace::prepare_create(object),
        Kind::Node => object["status"] = json!({}),
        Kind::Pod => pod::prepare_create(object),
        Kind::Claim => claim::prepare_create(object),
        Kind::Service => service::prepare_create(object),
        Kind::Job => job::prepare_create(object),
        Kind::Budget => {
            object["status"] =
                json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0});
        }
        Kind::Crd => crd::prepare(object, None),
        Kind::Secret | Kind::ConfigMap | Kind::Event | Kind::EndpointSlice | Kind::Lease | Kind::Rbac | Kind::Other => {
        }
    }
}

/// What the server keeps or fills in when an object changes.
pub(super) fn prepare_update(target: &Target, object: &mut Value, current: &Value) {
    if target.subresource != Subresource::Main {
        return;
    }
    match kind(&target.resource) {
        Kind::Service => service::prepare_update(object, current),
        Kind::Namespace => object["spec"] = current["spec"].clone(),
        Kind::Crd => crd::prepare(object, Some(current)),
        _ => {}
    }
}

/// What is wrong with a new object.
pub(super) fn validate_create(resource: &Resource, object: &Value) -> Vec<FieldError> {
    match kind(resource) {
        Kind::Pod => pod::validate(object),
        Kind::Service => service::validate(object),
        Kind::Secret => config::validate_secret(object),
        Kind::ConfigMap => config::validate_config_map(object),
        Kind::Claim => claim::validate(object),
        Kind::EndpointSlice => endpoints::validate(object),
        Kind::Lease => lease::validate(object),
        Kind::Job => job::validate(object),
        Kind::Budget => job::validate_budget(object),
        Kind::Rbac => rbac::validate(object),
        Kind::Event => event::validate(resource, object),
        Kind::Crd => crd::validate(object),
        Kind::Namespace | Kind::Node | Kind::Other => Vec::new(),
    }
}

/// What is wrong with a changed object, or with the change.
pub(super) fn validate_update(target: &Target, object: &Value, current: &Value) -> Vec<FieldError> {
    if target.subresource != Subresource::Main {
        return Vec::new();
    }
    let resource = &target.resource;
    let mut errors = match kind(resource) {
        // A new Event of the other group must be complete; an old one only counts up.
        Kind::Event => Vec::new(),
        _ => validate_create(resource, object),
    };
    errors.extend(match kind(resource) {
        Kind::Pod => pod::validate_update(object, current),
        Kind::Service => service::validate_update(object, current),
        Kind::Secret => config::validate_secret_update(object, current),
        Kind::ConfigMap => config::immutable_errors(object, current, &["data", "binaryData"]),
        Kind::Claim => claim::validate_update(object, current),
        Kind::EndpointSlice => endpoints::validate_update(object, current),
        Kind::Job => job::validate_update(object, current),
        Kind::Rbac => rbac::validate_update(object, current),
        Kind::Crd => crd::validate_update(object, current),
        Kind::Namespace | Kind::Node | Kind::Event | Kind::Lease | Kind::Budget | Kind::Other => Vec::new(),
    });
    errors
}

/// Whether `metadata.generation` counts the changes of what is wanted.
pub(super) fn counts_generations(resource: &Resource) -> bool {
    resource.custom || matches!(kind(resource), Kind::Pod | Kind::EndpointSlice | Kind::Job | Kind::Budget | Kind::Crd)
}

/// Whether two objects differ in what is wanted.
pub(super) fn wanted_differs(resource: &Resource, old: &Value, new: &Value) -> bool {
    if !resource.custom && kind(resource) != Kind::EndpointSlice {
        return old["spec"] != new["spec"];
    }
    let of_status = |field: &str| resource.has_status && field == "status";
    fn fields(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
        object.as_object().into_iter().flatten()
    }
    let wanted = |(field, _): &(&String, &Value)| *field != "metadata" && !of_status(field);
    // The labels of a slice say which Service it belongs to: they are part of what is wanted.
    let labels = |object| object::meta(object).get("labels");
    !fields(old).filter(wanted).eq(fields(new).filter(wanted)) || (!resource.custom && labels(old) != labels(new))
}

/// Whether an update may create.
pub(super) fn creates_on_update(resource: &Resource) -> bool {
    matches!(kind(resource), Kind::Lease | Kind::Event | Kind::Rbac)
}

/// Whether an update has to say which version it replaces.
pub(super) fn needs_version(resource: &Resource) -> bool {
    resource.custom || matches!(kind(resource), Kind::Lease | Kind::Budget | Kind::Crd)
}

/// How long an object may go on after its deletion.
pub(super) fn grace(resource: &Resource, object: &Value, wanted: Option<i64>) -> i64 {
    if kind(resource) == Kind::Pod { pod::grace(object, wanted) } else { 0 }
}

/// What deletion itself changes.
pub(super) fn mark_deleted(resource: &Resource, object: &mut Value) {
    match kind(resource) {
        Kind::Namespace => namespace::mark_deleted(object),
        Kind::Crd => crd::mark_deleted(object),
        _ => {}
    }
}

/// Whether nothing of the kind's own holds a deleted object.
pub(super) fn may_go(resource: &Resource, object: &Value) -> bool {
    kind(resource) != Kind::Namespace || object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty)
}

/// Parts that are there, in a typed server's mind, even when nothing is in them.
pub(super) fn struct_parts(resource: &Resource) -> &'static [&'static str] {
    match kind(resource) {
        Kind::Namespace
        | Kind::Node
        | Kind::Pod
        | Kind::Claim
        | Kind::Service
        | Kind::Job
        | Kind::Budget
        | Kind::Crd => &["spec", "status"],
        Kind::Lease => &["spec"],
        Kind::Event => &["involvedObject", "source"],
        Kind::Rbac => &["roleRef"],
        Kind::Secret | Kind::ConfigMap | Kind::EndpointSlice | Kind::Other => &[],
    }
}

/// Sets a field that is not there.
fn set_default(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Some(map) = object.as_object_mut()
        && !map.contains_key(field)
    {
        map.insert(field.into(), value.into());
    }
}

/// An error for a field that may not change.
fn immutable(field: &str, new: &Value) -> FieldError {
    FieldError::invalid(field, new, "field is immutable")
}

/// The elements of a list, mutable; none when it is no list.
fn each<'a>(object: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}
