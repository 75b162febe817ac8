//! PersistentVolumeClaims: a claim in use is not deleted, and a claim only grows.

use serde_json::{Value, json};

use super::set_default;
use crate::error::FieldError;
use crate::store::object;

/// Holds a deleted claim as long as a pod uses it; garbage collection removes it.
pub(crate) const PROTECTION: &str = "kubernetes.io/pvc-protection";

/// The defaults of a claim.
pub(super) fn defaults(claim: &mut Value) {
    set_default(&mut claim["spec"], "volumeMode", "Filesystem");
}

/// What the server puts into a new claim.
pub(super) fn prepare_create(claim: &mut Value) {
    claim["status"] = json!({"phase": "Pending"});
    let mut finalizers: Vec<String> = object::finalizers(claim).into_iter().map(ToOwned::to_owned).collect();
    if !finalizers.iter().any(|one| one == PROTECTION) {
        finalizers.push(PROTECTION.into());
    }
    object::set_finalizers(claim, &finalizers);
}

/// What is wrong with a claim.
pub(super) fn validate(claim: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if claim["spec"]["accessModes"].as_array().is_none_or(Vec::is_empty) {
        errors.push(FieldError::required("spec.accessModes", "at least 1 access mode is required"));
    }
    if claim["spec"]["resources"]["requests"].get("storage").is_none() {
        errors.push(FieldError::required("spec.resources[storage]", ""));
    }
    errors
}

/// Only the requested size of a bound claim may change, and it may not shrink.
pub(super) fn validate_update(claim: &Value, current: &Value) -> Vec<FieldError> {
    let bound = current["status"]["phase"] == "Bound";
    let frozen = |claim: &Value| {
        let mut spec = claim["spec"].clone();
        if bound && let Some(resources) = spec["resources"].as_object_mut() {
            resources.remove("requests");
        }
        if let Some(map) = spec.as_object_mut() {
            map.remove("volumeAttributesClassName");
            // The volume and the class are filled in once, by whoever binds the claim.
            if current["spec"].get("volumeName").is_none() {
                map.remove("volumeName");
            }
            if current["spec"].get("storageClassName").is_none() {
                map.remove("storageClassName");
            }
        }
        spec
    };
    if frozen(claim) != frozen(current) {
        let detail =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        return vec![FieldError::forbidden("spec", detail)];
    }
    let size = |claim: &Value| bytes(claim["spec"]["resources"]["requests"]["storage"].as_str().unwrap_or_default());
    if size(claim) < size(current) {
        return vec![FieldError::forbidden(
            "spec.resources.requests.storage",
            "field can not be less than status.capacity",
        )];
    }
    Vec::new()
}

/// A canonical quantity as a number that orders as the quantity does.
fn bytes(quantity: &str) -> f64 {
    let split = quantity.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(quantity.len());
    let (number, suffix) = quantity.split_at(split);
    let factor = match suffix {
        "Ki" => 1024f64,
        "Mi" => 1024f64.powi(2),
        "Gi" => 1024f64.powi(3),
        "Ti" => 1024f64.powi(4),
        "Pi" => 1024f64.powi(5),
        "Ei" => 1024f64.powi(6),
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        _ => 1.0,
    };
    number.parse::<f64>().unwrap_or(0.0) * factor
}
