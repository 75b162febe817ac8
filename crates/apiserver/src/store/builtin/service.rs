//! Services: defaults and addresses. The address itself comes from the home's allocator.

use serde_json::{Value, json};

use super::{each, set_default};
use crate::error::FieldError;
use crate::registry::Resource;

/// The defaults of a Service.
pub(super) fn defaults(service: &mut Value) {
    let spec = &mut service["spec"];
    if !spec.is_object() {
        *spec = json!({});
    }
    set_default(spec, "type", "ClusterIP");
    set_default(spec, "sessionAffinity", "None");
    set_default(spec, "internalTrafficPolicy", "Cluster");
    let external = ["NodePort", "LoadBalancer"].iter().any(|one| spec["type"] == *one);
    if external {
        set_default(spec, "externalTrafficPolicy", "Cluster");
    }
    for port in each(spec, "ports") {
        set_default(port, "protocol", "TCP");
        let number = port["port"].clone();
        set_default(port, "targetPort", number);
    }
}

/// What the server puts into a new Service.
pub(super) fn prepare_create(service: &mut Value) {
    service["status"] = json!({"loadBalancer": {}});
    let spec = &mut service["spec"];
    if spec["type"] == "ExternalName" {
        return;
    }
    if let Some(address) = spec["clusterIP"].as_str().filter(|address| !address.is_empty()).map(ToOwned::to_owned) {
        set_default(spec, "clusterIPs", json!([address]));
    }
    set_default(spec, "ipFamilies", json!(["IPv4"]));
    set_default(spec, "ipFamilyPolicy", "SingleStack");
}

/// Whether a new Service wants an address that the home has to choose.
pub(crate) fn wants_cluster_ip(resource: &Resource, service: &Value) -> bool {
    resource.is("", "services")
        && service["spec"]["type"] != "ExternalName"
        && service["spec"]["clusterIP"].as_str().is_none_or(str::is_empty)
}

/// Gives a Service its address.
pub(crate) fn set_cluster_ip(service: &mut Value, address: &str) {
    service["spec"]["clusterIP"] = address.into();
    service["spec"]["clusterIPs"] = json!([address]);
}

/// An update that leaves the address out keeps it.
pub(super) fn prepare_update(service: &mut Value, current: &Value) {
    if service["spec"]["type"] == "ExternalName" {
        return;
    }
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if let Some(value) = current["spec"].get(field) {
            set_default(&mut service["spec"], field, value.clone());
        }
    }
}

/// What is wrong with a Service.
pub(super) fn validate(service: &Value) -> Vec<FieldError> {
    let spec = &service["spec"];
    let mut errors = Vec::new();
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    if ports.is_empty() && spec["clusterIP"] != "None" && spec["type"] != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    for (index, port) in ports.iter().enumerate() {
        if ports.len() > 1 && port["name"].as_str().is_none_or(str::is_empty) {
            errors.push(FieldError::required(format!("spec.ports[{index}].name"), ""));
        }
        if port["port"].as_i64().is_none_or(|number| !(1..=65535).contains(&number)) {
            let rule = "must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(format!("spec.ports[{index}].port"), &port["port"], rule));
        }
    }
    let types = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if !types.iter().any(|one| spec["type"] == *one) {
        errors.push(FieldError::not_supported("spec.type", &spec["type"], &types.map(String::from)));
    }
    errors
}

/// A Service keeps its address.
pub(super) fn validate_update(service: &Value, current: &Value) -> Vec<FieldError> {
    let (new, old) = (&service["spec"]["clusterIP"], &current["spec"]["clusterIP"]);
    let set = |address: &Value| address.as_str().is_some_and(|text| !text.is_empty());
    if set(old) && new != old && service["spec"]["type"] != "ExternalName" {
        return vec![FieldError::invalid("spec.clusterIPs[0]", &json!([new]), "may not change once set")];
    }
    Vec::new()
}
