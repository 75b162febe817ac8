//! Leases.

use serde_json::Value;

use crate::error::FieldError;

/// What is wrong with a Lease.
pub(super) fn validate(lease: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &lease["spec"];
    if spec["leaseDurationSeconds"].as_i64().is_some_and(|seconds| seconds <= 0) {
        errors.push(FieldError::invalid(
            "spec.leaseDurationSeconds",
            &spec["leaseDurationSeconds"],
            "must be greater than 0",
        ));
    }
    if spec["leaseTransitions"].as_i64().is_some_and(|count| count < 0) {
        errors.push(FieldError::invalid(
            "spec.leaseTransitions",
            &spec["leaseTransitions"],
            "must be greater than or equal to 0",
        ));
    }
    errors
}
