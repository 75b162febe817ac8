//! What the API answers when it says no: the `Status` object of the Kubernetes API.
//!
//! Codes, reasons and wording are those of a kube-apiserver, because clients match on them: kube turns `reason` into types,
//! kubectl prints `message`, and our own operator shows `causes` to users.

use serde_json::{Value, json};

use crate::registry::Resource;

/// A refusal, as a `Status` with code, reason, message and details.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason (`NotFound`, `Conflict`, `Invalid` …); empty where a kube-apiserver gives none.
    pub reason: &'static str,
    /// For people, worded as a kube-apiserver words it.
    pub message: String,
    /// `details` of the Status: name, group, kind, causes, retryAfterSeconds.
    pub details: Option<Value>,
}

/// One wrong field of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Its path, such as `spec.replicas`.
    pub field: String,
    /// What is wrong with it.
    pub problem: Problem,
    /// The part of the message after the problem's name, value included.
    pub detail: String,
}

/// What can be wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It has to be there.
    Required,
    /// Its value breaks a rule.
    Invalid,
    /// Its value is of the wrong type.
    Type,
    /// Its value is not one of those supported.
    NotSupported,
    /// It may not be set, or not be changed.
    Forbidden,
    /// Another element has the same value.
    Duplicate,
    /// It is longer than allowed.
    TooLong,
    /// There are more elements than allowed.
    TooMany,
    /// What it refers to does not exist.
    NotFound,
}

impl Problem {
    fn reason(self) -> &'static str {
        match self {
            Problem::Required => "FieldValueRequired",
            Problem::Invalid => "FieldValueInvalid",
            Problem::Type => "FieldValueTypeInvalid",
            Problem::NotSupported => "FieldValueNotSupported",
            Problem::Forbidden => "FieldValueForbidden",
            Problem::Duplicate => "FieldValueDuplicate",
            Problem::TooLong => "FieldValueTooLong",
            Problem::TooMany => "FieldValueTooMany",
            Problem::NotFound => "FieldValueNotFound",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Problem::Required => "Required value",
            Problem::Invalid | Problem::Type => "Invalid value",
            Problem::NotSupported => "Unsupported value",
            Problem::Forbidden => "Forbidden",
            Problem::Duplicate => "Duplicate value",
            Problem::TooLong => "Too long",
            Problem::TooMany => "Too many",
            Problem::NotFound => "Not found",
        }
    }
}

impl FieldError {
    /// A field that must be there. An empty detail leaves the message at `Required value`.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        FieldError { field: field.into(), problem: Problem::Required, detail: detail.into() }
    }

    /// A field whose value breaks a rule.
    pub fn invalid(field: impl Into<String>, value: &Value, rule: impl AsRef<str>) -> Self {
        Self::with_value(field, Problem::Invalid, value, rule.as_ref())
    }

    /// A field whose value has the wrong type.
    pub fn wrong_type(field: impl Into<String>, shown: &Value, rule: impl AsRef<str>) -> Self {
        Self::with_value(field, Problem::Type, shown, rule.as_ref())
    }

    /// A field that must not be set or changed.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        FieldError { field: field.into(), problem: Problem::Forbidden, detail: detail.into() }
    }

    /// An element that repeats another.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        FieldError { field: field.into(), problem: Problem::Duplicate, detail: value.to_string() }
    }

    /// A value outside of an enumeration; the supported values are shown as JSON.
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[String]) -> Self {
        let list: Vec<String> = supported.iter().map(|one| Value::from(one.as_str()).to_string()).collect();
        FieldError {
            field: field.into(),
            problem: Problem::NotSupported,
            detail: format!("{value}: supported values: {}", list.join(", ")),
        }
    }

    /// A problem whose detail is the value and a rule.
    pub fn with_value(field: impl Into<String>, problem: Problem, value: &Value, rule: &str) -> Self {
        let detail = if rule.is_empty() { value.to_string() } else { format!("{value}: {rule}") };
        FieldError { field: field.into(), problem, detail }
    }

    /// The message without the field.
    pub fn body(&self) -> String {
        if self.detail.is_empty() {
            self.problem.title().to_owned()
        } else {
            format!("{}: {}", self.problem.title(), self.detail)
        }
    }

    fn cause(&self) -> Value {
        json!({"reason": self.problem.reason(), "message": self.body(), "field": self.field})
    }
}

impl ApiError {
    /// The `Status` object.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }

    /// 404: no such object.
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        ApiError {
            code: 404,
            reason: "NotFound",
            message: format!("{} {} not found", resource.group_resource(), quoted(name)),
            details: Some(object_details(resource, name)),
        }
    }

    /// 409: the name is taken.
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        ApiError {
            code: 409,
            reason: "AlreadyExists",
            message: format!("{} {} already exists", resource.group_resource(), quoted(name)),
            details: Some(object_details(resource, name)),
        }
    }

    /// 409: the object is not as the caller assumed.
    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        ApiError {
            code: 409,
            reason: "Conflict",
            message: format!("Operation cannot be fulfilled on {} {}: {why}", resource.group_resource(), quoted(name)),
            details: Some(object_details(resource, name)),
        }
    }

    /// 409: the resource version is not the current one.
    pub fn modified(resource: &Resource, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    /// 422: the object breaks rules of its kind. `errors` is not empty.
    pub fn invalid(resource: &Resource, name: &str, errors: &[FieldError]) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for error in errors {
            let text = format!("{}: {}", error.field, error.body());
            // A kube-apiserver aggregates errors and names equal ones once.
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let all = if texts.len() == 1 { texts.remove(0) } else { format!("[{}]", texts.join(", ")) };
        let kind = if resource.group.is_empty() {
            resource.kind.clone()
        } else {
            format!("{}.{}", resource.kind, resource.group)
        };
        let mut details =
            json!({"kind": resource.kind, "causes": errors.iter().map(FieldError::cause).collect::<Vec<_>>()});
        if !name.is_empty() {
            details["name"] = name.into();
        }
        if !resource.group.is_empty() {
            details["group"] = resource.group.as_str().into();
        }
        ApiError {
            code: 422,
            reason: "Invalid",
            message: format!("{kind} {} is invalid: {all}", quoted(name)),
            details: Some(details),
        }
    }

    /// 400: the request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        ApiError { code: 400, reason: "BadRequest", message: message.into(), details: None }
    }

    /// 403: the caller may, but the state of the cluster does not allow it.
    pub fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        ApiError {
            code: 403,
            reason: "Forbidden",
            message: format!("{} {} is forbidden: {why}", resource.group_resource(), quoted(name)),
            details: Some(object_details(resource, name)),
        }
    }

    /// 405: the resource does not do that.
    pub fn method_not_allowed() -> Self {
        ApiError {
            code: 405,
            reason: "MethodNotAllowed",
            message: "the server does not allow this method on the requested resource".into(),
            details: None,
        }
    }

    /// 410: a revision that history no longer reaches.
    pub fn expired(message: impl Into<String>) -> Self {
        ApiError { code: 410, reason: "Expired", message: message.into(), details: None }
    }

    /// 415: a patch of a kind that the resource does not take.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        ApiError {
            code: 415,
            reason: "UnsupportedMediaType",
            message: format!(
                "the body of the request was in an unknown format - accepted media types include: {}",
                accepted.join(", ")
            ),
            details: None,
        }
    }

    /// 500: our fault.
    pub fn internal(message: impl Into<String>) -> Self {
        let message = message.into();
        ApiError {
            code: 500,
            reason: "InternalError",
            details: Some(json!({"causes": [{"message": message}]})),
            message: format!("Internal error occurred: {message}"),
        }
    }
}

fn object_details(resource: &Resource, name: &str) -> Value {
    let mut details = json!({"kind": resource.plural});
    if !name.is_empty() {
        details["name"] = name.into();
    }
    if !resource.group.is_empty() {
        details["group"] = resource.group.as_str().into();
    }
    details
}

/// Names are quoted as Go's `%q` quotes them; for what can be in a name, JSON's quoting is the same.
fn quoted(name: &str) -> String {
    Value::from(name).to_string()
}
