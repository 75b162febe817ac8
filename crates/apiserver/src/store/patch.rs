//! Patch: JSON patch, merge patch, strategic merge patch, server-side apply.
//!
//! A patch is worked out on the current object and then goes the way of an update. Only apply creates what does not exist.

mod strategic;

use serde_json::{Value, json};

use super::apply;
use super::create::{check_name, check_namespace};
use super::touched::Touched;
use super::update::Change;
use super::{Object, Store, object, read, schema, update, view};
use crate::error::ApiError;
use crate::request::{PatchKind, Subresource, Target, Write, Written};

impl Store {
    /// Patches an object, its status, or the number in its scale.
    pub fn patch(
        &mut self,
        target: &Target,
        kind: PatchKind,
        body: &Value,
        write: &Write,
    ) -> Result<Written, ApiError> {
        update::check_subresource(target)?;
        let stored = self.stored(&target.resource.bucket(), &read::key(target)).cloned();
        let current = stored.map(|stored| view::shown(&target.resource, &stored));
        if kind == PatchKind::Apply {
            return self.apply(target, current.as_ref(), body, write);
        }
        let Some(current) = current else { return Err(ApiError::not_found(&target.resource, &target.name)) };
        if target.subresource == Subresource::Scale {
            let scale = update::scale_of(&target.resource, current.plain())?;
            let patched = patched(target, &scale, kind, body)?;
            return self.set_scale(target, &current, &patched, write);
        }
        let patched = patched(target, base(&current, kind, body), kind, body)?;
        let decoded = schema::decode_patched(&target.resource, patched, kind, body, write.validation)?;
        let mut object = decoded.object;
        check_unchanged_identity(target, current.plain(), &mut object)?;
        let touched = if kind == PatchKind::Merge { Touched::by_merge(body) } else { Touched::All };
        let change = Change { object, touched, managers: None, warnings: decoded.warnings };
        self.replace(target, &current, change, write)
    }

    fn apply(
        &mut self,
        target: &Target,
        current: Option<&Object>,
        config: &Value,
        write: &Write,
    ) -> Result<Written, ApiError> {
        if target.subresource == Subresource::Scale {
            let Some(current) = current else { return Err(ApiError::not_found(&target.resource, &target.name)) };
            return self.set_scale(target, current, config, write);
        }
        let mut config = schema::decode_applied(&target.resource, config.clone())?;
        check_name(target, &mut config)?;
        check_namespace(target, &mut config)?;
        let version = object::meta_str(&config, "resourceVersion").to_owned();
        let uid = object::uid(&config).to_owned();
        let applied = apply::apply(target, current, config, write)?;
        let Some(current) = current else {
            if target.subresource != Subresource::Main {
                return Err(ApiError::not_found(&target.resource, &target.name));
            }
            if !uid.is_empty() {
                let why =
                    format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
                return Err(ApiError::conflict(&target.resource, &target.name, &why));
            }
            let created = schema::complete(&target.resource, applied.object, &applied.touched);
            return self.insert(target, created, write, Vec::new(), Some(applied.managers));
        };
        if !version.is_empty() && version != object::meta_str(current.plain(), "resourceVersion") {
            return Err(ApiError::modified(&target.resource, &target.name));
        }
        if !uid.is_empty() && uid != object::uid(current.plain()) {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                object::uid(current.plain())
            );
            return Err(ApiError::conflict(&target.resource, &target.name, &why));
        }
        let object = schema::complete(&target.resource, applied.object, &applied.touched);
        let change =
            Change { object, touched: applied.touched, managers: Some(applied.managers), warnings: Vec::new() };
        self.replace(target, current, change, write)
    }
}

/// What a patch is worked out on. Only a patch that may speak of who owns what needs to see it.
fn base<'a>(current: &'a Object, kind: PatchKind, body: &Value) -> &'a Value {
    let plain = kind == PatchKind::Merge && body.get("metadata").is_none_or(|meta| meta.get("managedFields").is_none());
    if plain { current.plain() } else { current.whole() }
}

fn patched(target: &Target, current: &Value, kind: PatchKind, body: &Value) -> Result<Value, ApiError> {
    match kind {
        PatchKind::Json => json_patched(current, body),
        PatchKind::Merge => {
            if !body.is_object() {
                return Err(ApiError::bad_request("error decoding patch: a merge patch must be a JSON object"));
            }
            let mut object = current.clone();
            json_patch::merge(&mut object, body);
            Ok(object)
        }
        PatchKind::Strategic if target.resource.custom => Err(ApiError::unsupported_media_type(&[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/apply-patch+yaml",
        ])),
        PatchKind::Strategic => strategic::merge(&target.resource.schema, current, body),
        PatchKind::Apply => unreachable!("apply does not work on the current object alone"),
    }
}

fn json_patched(current: &Value, body: &Value) -> Result<Value, ApiError> {
    let operations: json_patch::Patch = serde_json::from_value(body.clone())
        .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
    let mut object = current.clone();
    // A kube-apiserver does not say which operation failed, nor why.
    json_patch::patch(&mut object, &operations).map_err(|_| ApiError {
        code: 422,
        reason: "Invalid",
        message: "the server rejected our request due to an error in our request".into(),
        details: Some(json!({})),
    })?;
    Ok(object)
}

/// A patch may state a resource version, which then has to be the current one; the rest of the identity it may not change.
fn check_unchanged_identity(target: &Target, current: &Value, object: &mut Value) -> Result<(), ApiError> {
    check_name(target, object)?;
    check_namespace(target, object)?;
    let version = object::meta_str(object, "resourceVersion");
    if version != object::meta_str(current, "resourceVersion") && !version.is_empty() {
        return Err(ApiError::modified(&target.resource, &target.name));
    }
    let uid = object::uid(object);
    if !uid.is_empty() && uid != object::uid(current) {
        let why =
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", object::uid(current));
        return Err(ApiError::conflict(&target.resource, &target.name, &why));
    }
    Ok(())
}
