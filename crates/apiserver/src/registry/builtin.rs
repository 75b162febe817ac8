//! The built-in kinds: those that Bellwether, its agents and kubectl use, and no others.
//!
//! Their schemas come from the same Rust types that our clients use, so that a field which the client can send exists here too.

use std::sync::{Arc, LazyLock};

use k8s_openapi::api::{batch, coordination, core, discovery, events, policy, rbac};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Value, json};

use super::{Resource, facts};

/// The built-in resources. Built once in a process: the schemas of Pods and Jobs are large.
pub fn builtin() -> &'static [Arc<Resource>] {
    static RESOURCES: LazyLock<Vec<Arc<Resource>>> = LazyLock::new(|| table().into_iter().map(Arc::new).collect());
    &RESOURCES
}

#[derive(Clone, Copy, PartialEq)]
enum Scope {
    Namespaced,
    Cluster,
}

#[derive(Clone, Copy, PartialEq)]
enum Status {
    Subresource,
    None,
}

fn table() -> Vec<Resource> {
    use Scope::{Cluster, Namespaced};
    use Status::{None as Plain, Subresource as WithStatus};
    const RBAC: &str = "rbac.authorization.k8s.io";
    const ALL: &[&str] = &["all"];
    vec![
        kind::<core::v1::Namespace>("", "Namespace", "namespaces", &["ns"], &[], Cluster, WithStatus),
        kind::<core::v1::Node>("", "Node", "nodes", &["no"], &[], Cluster, WithStatus),
        kind::<core::v1::Pod>("", "Pod", "pods", &["po"], ALL, Namespaced, WithStatus),
        kind::<core::v1::PersistentVolumeClaim>(
            "",
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            &["pvc"],
            &[],
            Namespaced,
            WithStatus,
        ),
        kind::<core::v1::Service>("", "Service", "services", &["svc"], ALL, Namespaced, WithStatus),
        kind::<core::v1::Secret>("", "Secret", "secrets", &[], &[], Namespaced, Plain),
        kind::<core::v1::ConfigMap>("", "ConfigMap", "configmaps", &["cm"], &[], Namespaced, Plain),
        kind::<core::v1::Event>("", "Event", "events", &["ev"], &[], Namespaced, Plain),
        kind::<core::v1::ServiceAccount>("", "ServiceAccount", "serviceaccounts", &["sa"], &[], Namespaced, Plain),
        kind::<discovery::v1::EndpointSlice>(
            "discovery.k8s.io",
            "EndpointSlice",
            "endpointslices",
            &[],
            &[],
            Namespaced,
            Plain,
        ),
        kind::<coordination::v1::Lease>("coordination.k8s.io", "Lease", "leases", &[], &[], Namespaced, Plain),
        kind::<batch::v1::Job>("batch", "Job", "jobs", &[], ALL, Namespaced, WithStatus),
        kind::<policy::v1::PodDisruptionBudget>(
            "policy",
            "PodDisruptionBudget",
            "poddisruptionbudgets",
            &["pdb"],
            &[],
            Namespaced,
            WithStatus,
        ),
        kind::<rbac::v1::Role>(RBAC, "Role", "roles", &[], &[], Namespaced, Plain),
        kind::<rbac::v1::RoleBinding>(RBAC, "RoleBinding", "rolebindings", &[], &[], Namespaced, Plain),
        kind::<rbac::v1::ClusterRole>(RBAC, "ClusterRole", "clusterroles", &[], &[], Cluster, Plain),
        kind::<rbac::v1::ClusterRoleBinding>(
            RBAC,
            "ClusterRoleBinding",
            "clusterrolebindings",
            &[],
            &[],
            Cluster,
            Plain,
        ),
        kind::<events::v1::Event>("events.k8s.io", "Event", "events", &["ev"], &[], Namespaced, Plain),
        kind::<apiextensions::v1::CustomResourceDefinition>(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            &["crd", "crds"],
            &["api-extensions"],
            Cluster,
            WithStatus,
        ),
    ]
}

fn kind<T: JsonSchema>(
    group: &str,
    kind: &str,
    plural: &str,
    short: &[&str],
    categories: &[&str],
    scope: Scope,
    status: Status,
) -> Resource {
    Resource {
        group: group.into(),
        version: "v1".into(),
        // Events are stored as the core group's.
        storage: group != "events.k8s.io",
        plural: plural.into(),
        singular: kind.to_lowercase(),
        kind: kind.into(),
        list_kind: format!("{kind}List"),
        short_names: short.iter().map(ToString::to_string).collect(),
        categories: categories.iter().map(ToString::to_string).collect(),
        namespaced: scope == Scope::Namespaced,
        has_status: status == Status::Subresource,
        scale: None,
        schema: schema_of::<T>().into(),
        columns: Vec::new(),
        custom: false,
    }
}

/// The schema of a built-in type with every reference resolved and the merge facts filled in.
fn schema_of<T: JsonSchema>() -> Value {
    let mut generator = SchemaGenerator::new(SchemaSettings::default());
    let mut root = Value::from(generator.root_schema_for::<T>());
    let mut definitions = root.as_object_mut().and_then(|root| root.remove("$defs")).unwrap_or_else(|| json!({}));
    if let Some(definitions) = definitions.as_object_mut() {
        for (name, schema) in definitions.iter_mut() {
            facts::annotate(short_name(name), schema);
        }
    }
    facts::annotate(short_name(&T::schema_name()), &mut root);
    let mut resolved = resolve(&root, &definitions, &mut Vec::new());
    if let Some(object) = resolved.as_object_mut() {
        object.remove("$schema");
        object.remove("title");
    }
    resolved
}

fn short_name(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Replaces references by what they refer to. A type that contains itself (a schema inside a CustomResourceDefinition) ends in a
/// schema that keeps everything.
fn resolve(schema: &Value, definitions: &Value, inside: &mut Vec<String>) -> Value {
    match schema {
        Value::Object(map) => {
            let mut out = serde_json::Map::new();
            if let Some(name) = map.get("$ref").and_then(Value::as_str).and_then(|at| at.strip_prefix("#/$defs/")) {
                if inside.iter().any(|seen| seen == name) {
                    out.insert("x-kubernetes-preserve-unknown-fields".into(), true.into());
                } else if let Some(target) = definitions.get(name) {
                    inside.push(name.to_owned());
                    if let Value::Object(target) = resolve(target, definitions, inside) {
                        out = target;
                    }
                    inside.pop();
                }
            }
            for (key, value) in map.iter().filter(|(key, _)| *key != "$ref") {
                out.insert(key.clone(), resolve(value, definitions, inside));
            }
            Value::Object(out)
        }
        Value::Array(items) => Value::Array(items.iter().map(|item| resolve(item, definitions, inside)).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(plural: &str) -> &'static Value {
        &builtin().iter().find(|resource| resource.plural == plural).unwrap().schema
    }

    #[test]
    fn no_reference_is_left_unresolved() {
        for resource in builtin() {
            assert!(!resource.schema.to_string().contains("$ref\":\"#"), "{}", resource.kind);
        }
    }

    #[test]
    fn merge_facts_reach_nested_types() {
        let ports = schema("pods").pointer("/properties/spec/properties/containers/items/properties/ports").unwrap();
        assert_eq!(ports["x-kubernetes-list-map-keys"], json!(["containerPort", "protocol"]));
        assert_eq!(ports["items"]["properties"]["protocol"]["default"], "TCP");
        let finalizers = schema("secrets").pointer("/properties/metadata/properties/finalizers").unwrap();
        assert_eq!(finalizers["x-kubernetes-list-type"], "set");
    }

    #[test]
    fn a_schema_inside_a_crd_keeps_everything() {
        let inner = "/properties/spec/properties/versions/items/properties/schema/properties/openAPIV3Schema";
        assert!(schema("customresourcedefinitions").pointer(inner).is_some());
    }
}
