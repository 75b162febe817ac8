//! What a body means to its kind: decoded, pruned, completed by defaults, and judged by the schema.
//!
//! Built-in kinds are decoded as a typed server decodes them (unknown fields dropped, wrong types refused with 400). Custom kinds are
//! pruned, defaulted and validated by their structural schema (wrong types refused with 422). What a client is told about unknown
//! fields is its own choice.

mod at;
mod cel;
mod default;
mod optional;
mod parts;
mod plain;
mod prune;
mod quantity;
mod rules;
mod typed;
mod validate;

use std::sync::{Arc, LazyLock};

use serde_json::Value;

use super::object;
use super::touched::Touched;
use crate::error::{ApiError, FieldError};
use crate::registry::{self, Resource, Structure};
use crate::request::{FieldValidation, PatchKind};

pub(super) use default::{apply as apply_defaults, lacking as lacks_defaults};

pub(super) use rules::rule_errors;
pub(super) use validate::structural_errors;

/// A body that its kind understands.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) object: Value,
    pub(super) warnings: Vec<String>,
}

/// The metadata of every kind, custom ones included.
pub(super) static METADATA: LazyLock<&'static Structure> = LazyLock::new(|| {
    let config_map = registry::builtin().iter().find(|one| one.plural == "configmaps").expect("a built-in kind");
    config_map.schema.structure().named("metadata").expect("every kind has metadata")
});

/// Decodes the body of a create or an update.
pub(super) fn decode(resource: &Resource, mut object: Value, validation: FieldValidation) -> Result<Decoded, ApiError> {
    check_type(resource, &mut object)?;
    let unknown = known_fields(resource, &mut object, None)?;
    let warnings = match validation {
        FieldValidation::Strict if !unknown.is_empty() => {
            return Err(cannot_handle(resource, &format!("strict decoding error: {}", list(&unknown))));
        }
        FieldValidation::Warn => unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect(),
        FieldValidation::Strict | FieldValidation::Ignore => Vec::new(),
    };
    Ok(Decoded { object, warnings })
}

/// Decodes the result of a patch. What was unknown before the patch (there is none in our store) is no concern of the patch; and what
/// a merge patch does not mention is as it was stored.
pub(super) fn decode_patched(
    resource: &Resource,
    mut object: Value,
    kind: PatchKind,
    body: &Value,
    validation: FieldValidation,
) -> Result<Decoded, ApiError> {
    check_type(resource, &mut object)?;
    let touched = (kind == PatchKind::Merge).then_some(body);
    let unknown = known_fields(resource, &mut object, touched)?;
    if validation == FieldValidation::Strict && !unknown.is_empty() {
        let shown = Value::from(body.to_string());
        let error = FieldError::invalid("patch", &shown, format!("strict decoding error: {}", list(&unknown)));
        let nameless = Resource { group: String::new(), kind: String::new(), ..resource.clone() };
        return Err(ApiError::invalid(&nameless, "", &[error]));
    }
    let warn = validation == FieldValidation::Warn;
    let warnings = unknown.iter().filter(|_| warn).map(|path| format!("unknown field \"{path}\"")).collect();
    Ok(Decoded { object, warnings })
}

/// Decodes an apply configuration: no defaults, because a default that nobody stated has no owner. An unknown field can have no
/// owner either, so it is refused whatever the client's choice.
pub(super) fn decode_applied(resource: &Resource, mut object: Value) -> Result<Value, ApiError> {
    if !object.is_object()
        || object["apiVersion"].as_str().is_none_or(str::is_empty)
        || object["kind"].as_str().is_none_or(str::is_empty)
    {
        let (group, version) = split(object["apiVersion"].as_str().unwrap_or_default());
        let kind = object["kind"].as_str().unwrap_or_default();
        return Err(ApiError::bad_request(format!("invalid object type: {group}/{version}, Kind={kind}")));
    }
    check_type(resource, &mut object)?;
    if object::meta(&object).get("managedFields").is_some_and(|value| !value.is_null()) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let mut unknown = if resource.custom {
        let mut unknown = typed_metadata(resource, &mut object, None)?;
        unknown.extend(prune::prune(resource.schema.structure(), &mut object, None));
        unknown
    } else {
        typed::decode(resource, &mut object, None)?
    };
    if unknown.is_empty() {
        return Ok(object);
    }
    unknown.sort();
    let undeclared: Vec<String> = unknown.iter().map(|path| format!(".{path}: field not declared in schema")).collect();
    Err(ApiError {
        code: 500,
        reason: "",
        message: format!(
            "failed to create typed patch object ({}/{}; {}, Kind={}): {}",
            object::namespace(&object),
            object::name(&object),
            if resource.group.is_empty() { format!("/{}", resource.version) } else { resource.api_version() },
            resource.kind,
            undeclared.join(", ")
        ),
        details: None,
    })
}

/// Completes what an apply merged: the defaults of a custom kind's schema. What was not touched has them.
pub(super) fn complete(resource: &Resource, mut object: Value, touched: &Touched) -> Value {
    if resource.custom {
        default::apply_where(|field| touched.may(field), resource.schema.structure(), &mut object);
    }
    object
}

/// What is wrong with an object of a custom kind. With the old object, what has not changed is not judged again: a rule that became
/// stricter must not lock its objects.
pub(super) fn validate(resource: &Arc<Resource>, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = validate::errors(&resource.schema, object, old);
    if !cel::rules_exist(resource) {
        return errors;
    }
    if errors.iter().any(validate::blocks_rules) {
        errors.push(FieldError::invalid(
            "<nil>",
            &Value::Null,
            "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
        ));
    } else {
        errors.extend(cel::errors(resource, object, old));
    }
    errors
}

/// Drops what the kind does not know and returns its paths; completes a custom object by its defaults.
fn known_fields(resource: &Resource, object: &mut Value, touched: Option<&Value>) -> Result<Vec<String>, ApiError> {
    if !resource.custom {
        return typed::decode(resource, object, touched);
    }
    let mut unknown = typed_metadata(resource, object, touched)?;
    unknown.extend(prune::prune(resource.schema.structure(), object, touched));
    default::apply(resource.schema.structure(), object);
    Ok(unknown)
}

fn typed_metadata(resource: &Resource, object: &mut Value, touched: Option<&Value>) -> Result<Vec<String>, ApiError> {
    let Some(metadata) = object.get_mut("metadata") else { return Ok(Vec::new()) };
    let touched = match touched.map(|touched| touched.get("metadata")) {
        None => None,
        Some(None) => return Ok(Vec::new()),
        Some(touched) => touched,
    };
    typed::decode_part(resource, &METADATA, metadata, touched, "metadata")
}

fn list(unknown: &[String]) -> String {
    unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect::<Vec<_>>().join(", ")
}

fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// The body's type is that of the endpoint, or left out.
fn check_type(resource: &Resource, object: &mut Value) -> Result<(), ApiError> {
    if !object.is_object() {
        return Err(cannot_handle(
            resource,
            &format!("json: cannot unmarshal {} into Go value of type v1.{}", typed::json_type(object), resource.kind),
        ));
    }
    let wanted = resource.api_version();
    let given = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    if resource.custom {
        if !given.is_empty() && given != wanted {
            return Err(ApiError::bad_request(format!(
                "the API version in the data ({given}) does not match the expected API version ({wanted})"
            )));
        }
        if !kind.is_empty() && kind != resource.kind {
            let error = FieldError::invalid("kind", &kind.as_str().into(), format!("must be {}", resource.kind));
            let as_sent = Resource { kind, ..resource.clone() };
            return Err(ApiError::invalid(&as_sent, object::name(object), &[error]));
        }
    } else {
        let (_, version) = split(&given);
        if !given.is_empty() && given != wanted {
            return Err(ApiError::bad_request(format!(
                "{} in version {} cannot be handled as a {}: no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
                resource.kind,
                Value::from(version),
                resource.kind,
                Value::from(resource.kind.as_str()),
                Value::from(given.as_str()),
            )));
        }
        if !kind.is_empty() && kind != resource.kind {
            return Err(ApiError::bad_request(format!(
                "{kind} in version \"v1\" cannot be handled as a {0}: converting (v1.{kind}) to (core.{0}): unknown conversion",
                resource.kind
            )));
        }
    }
    object["apiVersion"] = wanted.into();
    object["kind"] = resource.kind.as_str().into();
    Ok(())
}

fn cannot_handle(resource: &Resource, why: &str) -> ApiError {
    let version = Value::from(resource.version.as_str());
    ApiError::bad_request(format!("{0} in version {version} cannot be handled as a {0}: {why}", resource.kind))
}
