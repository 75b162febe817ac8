//! What the API answers when it says no: the `Status` object of the Kubernetes API.

use serde_json::{Value, json};

/// A refusal, as a `Status` with code, reason, message and details.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason (`NotFound`, `Conflict`, `Invalid` …).
    pub reason: &'static str,
    /// For people, worded as a kube-apiserver words it.
    pub message: String,
    /// `details` of the Status: name, group, kind, causes, retryAfterSeconds.
    pub details: Option<Value>,
}

impl ApiError {
    /// The `Status` object.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}
