//! How lists and maps of the built-in kinds merge.
//!
//! Rust's types of the built-in kinds know their fields but not how lists merge, and server-side apply and strategic merge patches
//! need that. This table holds the facts that a kube-apiserver publishes in its OpenAPI, for the kinds that we serve. A list that
//! isn't here is atomic.

use serde_json::{Value, json};

/// How one list field merges.
struct ListFact {
    owner: &'static str,
    field: &'static str,
    list_type: &'static str,
    keys: &'static [&'static str],
    patch: Option<(&'static str, Option<&'static str>)>,
}

const fn map(
    owner: &'static str,
    field: &'static str,
    keys: &'static [&'static str],
    patch: Option<&'static str>,
) -> ListFact {
    ListFact {
        owner,
        field,
        list_type: "map",
        keys,
        patch: match patch {
            Some(strategy) => Some((strategy, Some(keys[0]))),
            None => None,
        },
    }
}

const fn set(owner: &'static str, field: &'static str) -> ListFact {
    ListFact { owner, field, list_type: "set", keys: &[], patch: None }
}

const MERGE: Option<&str> = Some("merge");
const RETAIN: Option<&str> = Some("merge,retainKeys");

const LISTS: &[ListFact] = &[
    map("Container", "env", &["name"], MERGE),
    map("Container", "ports", &["containerPort", "protocol"], MERGE),
    map("Container", "volumeDevices", &["devicePath"], MERGE),
    map("Container", "volumeMounts", &["mountPath"], MERGE),
    set("ContainerRestartRuleOnExitCodes", "values"),
    map("ContainerStatus", "allocatedResourcesStatus", &["name"], MERGE),
    map("ContainerStatus", "volumeMounts", &["mountPath"], MERGE),
    map("CustomResourceDefinitionStatus", "conditions", &["type"], None),
    set("Endpoint", "addresses"),
    map("EphemeralContainer", "env", &["name"], MERGE),
    map("EphemeralContainer", "ports", &["containerPort", "protocol"], MERGE),
    map("EphemeralContainer", "volumeDevices", &["devicePath"], MERGE),
    map("EphemeralContainer", "volumeMounts", &["mountPath"], MERGE),
    ListFact {
        owner: "JobStatus",
        field: "conditions",
        list_type: "atomic",
        keys: &[],
        patch: Some(("merge", Some("type"))),
    },
    map("NamespaceStatus", "conditions", &["type"], MERGE),
    ListFact { owner: "NodeSpec", field: "podCIDRs", list_type: "set", keys: &[], patch: Some(("merge", None)) },
    map("NodeStatus", "addresses", &["type"], MERGE),
    map("NodeStatus", "conditions", &["type"], MERGE),
    ListFact { owner: "ObjectMeta", field: "finalizers", list_type: "set", keys: &[], patch: Some(("merge", None)) },
    map("ObjectMeta", "ownerReferences", &["uid"], MERGE),
    map("PersistentVolumeClaimStatus", "conditions", &["type"], MERGE),
    map("PodDisruptionBudgetStatus", "conditions", &["type"], MERGE),
    set("PodFailurePolicyOnExitCodesRequirement", "values"),
    map("PodSpec", "containers", &["name"], MERGE),
    map("PodSpec", "ephemeralContainers", &["name"], MERGE),
    map("PodSpec", "hostAliases", &["ip"], MERGE),
    map("PodSpec", "imagePullSecrets", &["name"], MERGE),
    map("PodSpec", "initContainers", &["name"], MERGE),
    map("PodSpec", "resourceClaims", &["name"], RETAIN),
    map("PodSpec", "schedulingGates", &["name"], MERGE),
    map("PodSpec", "topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"], MERGE),
    map("PodSpec", "volumes", &["name"], RETAIN),
    map("PodStatus", "conditions", &["type"], MERGE),
    ListFact {
        owner: "PodStatus",
        field: "hostIPs",
        list_type: "atomic",
        keys: &[],
        patch: Some(("merge", Some("ip"))),
    },
    map("PodStatus", "podIPs", &["ip"], MERGE),
    map("PodStatus", "resourceClaimStatuses", &["name"], RETAIN),
    map("ResourceRequirements", "claims", &["name"], None),
    map("ResourceStatus", "resources", &["resourceID"], None),
    map("ServiceAccount", "secrets", &["name"], MERGE),
    map("ServiceSpec", "ports", &["port", "protocol"], MERGE),
    map("ServiceStatus", "conditions", &["type"], MERGE),
    set("UncountedTerminatedPods", "failed"),
    set("UncountedTerminatedPods", "succeeded"),
];

/// Structs that change as a whole.
const ATOMIC_TYPES: &[&str] = &[
    "ConfigMapKeySelector",
    "EndpointPort",
    "FileKeySelector",
    "LabelSelector",
    "LocalObjectReference",
    "NodeSelector",
    "NodeSelectorTerm",
    "ObjectFieldSelector",
    "ObjectReference",
    "OwnerReference",
    "ResourceFieldSelector",
    "RoleRef",
    "SecretKeySelector",
    "Subject",
    "TypedLocalObjectReference",
];

/// Map fields that change as a whole.
const ATOMIC_FIELDS: &[(&str, &str)] = &[("PodSpec", "nodeSelector"), ("ServiceSpec", "selector")];

/// Defaults of list keys: an element that leaves one out is still the same element.
const KEY_DEFAULTS: &[(&str, &str, &str)] = &[("ContainerPort", "protocol", "TCP"), ("ServicePort", "protocol", "TCP")];

/// Writes the facts about a type (its Kubernetes name without the package) into its schema.
pub(super) fn annotate(type_name: &str, schema: &mut Value) {
    // Both are written as "integer or string"; only these are brought into a canonical form.
    match type_name {
        "Quantity" => schema["format"] = "quantity".into(),
        "MicroTime" => schema["format"] = "micro-date-time".into(),
        _ => {}
    }
    if ATOMIC_TYPES.contains(&type_name) {
        schema["x-kubernetes-map-type"] = "atomic".into();
    }
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for fact in LISTS.iter().filter(|fact| fact.owner == type_name) {
        let Some(property) = properties.get_mut(fact.field) else { continue };
        property["x-kubernetes-list-type"] = fact.list_type.into();
        if !fact.keys.is_empty() {
            property["x-kubernetes-list-map-keys"] = json!(fact.keys);
        }
        if let Some((strategy, key)) = fact.patch {
            property["x-kubernetes-patch-strategy"] = strategy.into();
            if let Some(key) = key {
                property["x-kubernetes-patch-merge-key"] = key.into();
            }
        }
    }
    for (_, field) in ATOMIC_FIELDS.iter().filter(|(owner, _)| *owner == type_name) {
        if let Some(property) = properties.get_mut(*field) {
            property["x-kubernetes-map-type"] = "atomic".into();
        }
    }
    for (_, field, default) in KEY_DEFAULTS.iter().filter(|(owner, ..)| *owner == type_name) {
        if let Some(property) = properties.get_mut(*field) {
            property["default"] = (*default).into();
        }
    }
}
