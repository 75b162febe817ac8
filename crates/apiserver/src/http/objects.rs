//! Reads and writes of objects and collections: from a call to the store, and from what the store says to an answer.
//!
//! Never: a role or binding stored before its author was found to hold what it grants, or an object created by an apply of somebody
//! who may only patch.

use serde_json::{Value, json};

use super::access;
use super::feed::{self, Feed, Writer};
use super::rbac::Ask;
use super::respond;
use super::serve::{App, Call, Outcome};
use super::{body, options};
use crate::error::ApiError;
use crate::request::{FieldValidation, PatchKind, Subresource, Target, Write, Written};
use crate::store::{Deleted, Object, Store};

/// Kinds whose delete answers with the object instead of a Status.
const ANSWERED_WITH_OBJECT: [&str; 4] = ["pods", "services", "serviceaccounts", "persistentvolumeclaims"];

pub(super) fn get(app: &App, call: &Call, target: &Target) -> Result<Outcome, ApiError> {
    let object = app.shared.read(|store| store.get(target))?;
    Ok(respond::object(200, call.accepted, &call.query, &target.resource, &object, call.now).into())
}

pub(super) fn list(app: &App, call: &Call, target: &Target) -> Result<Outcome, ApiError> {
    let options = options::list(&call.query)?;
    let page = app.shared.read(|store| store.list(&target.resource, target.namespace.as_deref(), &options))?;
    Ok(respond::list(call.accepted, &call.query, &target.resource, &page, call.now).into())
}

pub(super) fn watch(app: &App, call: &Call, target: &Target) -> Result<Outcome, ApiError> {
    let mut selection = options::selection(&call.query)?;
    if !target.name.is_empty() {
        let one = format!("metadata.name={}", target.name);
        selection.field_selector = Some(selection.field_selector.map_or(one.clone(), |other| format!("{other},{one}")));
    }
    let options = options::watch(&call.query)?;
    let namespace = target.namespace.as_deref();
    let writer = || Writer::new(&target.resource, call.accepted, options::include_object(&call.query));
    let body = match Feed::open(&app.shared, &app.shutdown, &target.resource, namespace, &selection, &options, writer())
    {
        Ok(feed) => feed.into_body(),
        // A kube-apiserver tells it in the stream: by then it has already answered 200.
        Err(error) if error.code == 410 => feed::refused(&mut writer(), &error),
        Err(error) => return Err(error),
    };
    Ok(respond::bytes(200, "application/json", body).into())
}

pub(super) async fn create(app: &App, call: &Call, mut target: Target) -> Result<Outcome, ApiError> {
    let write = options::write(&call.query, &call.agent, None, "CreateOptions", call.now)?;
    let (object, warnings) = written_object(call, &target, &write)?;
    target.name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let target = &target;
    store_write(app, call, target, &write, warnings, |store, write| store.create(target, object.clone(), write)).await
}

pub(super) async fn update(app: &App, call: &Call, target: &Target) -> Result<Outcome, ApiError> {
    let write = options::write(&call.query, &call.agent, None, "UpdateOptions", call.now)?;
    let (object, warnings) = written_object(call, target, &write)?;
    store_write(app, call, target, &write, warnings, |store, write| store.update(target, object.clone(), write)).await
}

pub(super) async fn patch(app: &App, call: &Call, target: &Target) -> Result<Outcome, ApiError> {
    let (kind, parsed) = body::patch(&call.headers, &call.body)?;
    let write = options::write(&call.query, &call.agent, Some(kind), "PatchOptions", call.now)?;
    let warnings =
        duplicate_warnings(&target.resource.kind, &target.resource.version, &parsed.duplicates, write.validation)?;
    store_write(app, call, target, &write, warnings, |store, write| {
        if kind == PatchKind::Apply && target.subresource == Subresource::Main {
            may_create_by_apply(app, call, store, target)?;
        }
        store.patch(target, kind, &parsed.object, write)
    })
    .await
}

/// An apply of an object that is not there creates it, and needs the permission to.
fn may_create_by_apply(app: &App, call: &Call, store: &Store, target: &Target) -> Result<(), ApiError> {
    if call.user.is_master() || store.get(target).is_ok() {
        return Ok(());
    }
    let ask = Ask::Resource {
        verb: "create".into(),
        group: target.resource.group.clone(),
        resource: target.resource.plural.clone(),
        subresource: None,
        namespace: target.namespace.clone(),
        name: Some(target.name.clone()),
    };
    access::require(&*app.access.policy(store)?, &call.user, &ask)
}

/// The object of a create or update, with warnings about fields that came twice.
fn written_object(call: &Call, target: &Target, write: &Write) -> Result<(Value, Vec<String>), ApiError> {
    let kind = if target.subresource == Subresource::Scale { "Scale" } else { &target.resource.kind };
    let parsed = body::object(&call.headers, &call.body, kind)?;
    let warnings = duplicate_warnings(kind, &target.resource.version, &parsed.duplicates, write.validation)?;
    Ok((parsed.object, warnings))
}

fn duplicate_warnings(
    kind: &str,
    version: &str,
    duplicates: &[String],
    validation: FieldValidation,
) -> Result<Vec<String>, ApiError> {
    let texts: Vec<String> = duplicates.iter().map(|field| format!("duplicate field {field:?}")).collect();
    match validation {
        FieldValidation::Ignore => Ok(vec![]),
        FieldValidation::Warn => Ok(texts),
        FieldValidation::Strict if texts.is_empty() => Ok(texts),
        FieldValidation::Strict => Err(ApiError::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {}",
            texts.join(", ")
        ))),
    }
}

/// Writes under the store's lock, with the check of grants before it, and answers with the object.
async fn store_write(
    app: &App,
    call: &Call,
    target: &Target,
    write: &Write,
    mut warnings: Vec<String>,
    mut change: impl FnMut(&mut Store, &Write) -> Result<Written, ApiError>,
) -> Result<Outcome, ApiError> {
    let (written, changed) = app
        .shared
        .write(|store| {
            if access::grants(&target.resource) && !call.user.is_master() {
                let before = store.get(target).ok();
                let rehearsed = change(store, &Write { dry_run: true, ..write.clone() })?;
                let policy = app.access.policy(store)?;
                access::may_grant(&policy, &call.user, &target.resource, before.as_deref(), &rehearsed.object)?;
            }
            let before = store.revision();
            change(store, write).map(|written| (written, store.revision() != before))
        })
        .await?;
    warnings.splice(0..0, written.warnings.iter().cloned());
    let code = if written.created { 201 } else { 200 };
    let answer = match target.subresource {
        Subresource::Scale => respond::document(code, call.accepted.encoding, &*written.object),
        _ => respond::object(code, call.accepted, &call.query, &target.resource, &written.object, call.now),
    };
    let name = written.object.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned);
    Ok(Outcome { answer: respond::warn(answer, &warnings), changed, dry_run: write.dry_run, name })
}

pub(super) async fn delete(app: &App, call: &Call, target: &Target) -> Result<Outcome, ApiError> {
    let (options, dry_run) = options::delete(&call.query, body::delete_options(&call.headers, &call.body)?)?;
    let write = Write { dry_run, ..options::write(&call.query, &call.agent, None, "DeleteOptions", call.now)? };
    let (deleted, changed) = app
        .shared
        .write(|store| {
            let before = store.revision();
            store.delete(target, &options, &write).map(|deleted| (deleted, store.revision() != before))
        })
        .await?;
    let resource = &target.resource;
    let answer = match deleted {
        Deleted::Gone(object)
            if !(resource.group.is_empty() && ANSWERED_WITH_OBJECT.contains(&resource.plural.as_str())) =>
        {
            let mut details = json!({"name": target.name, "kind": resource.plural, "uid": object["metadata"]["uid"]});
            if !resource.group.is_empty() {
                details["group"] = resource.group.as_str().into();
            }
            respond::success(200, Some(details))
        }
        Deleted::Gone(object) | Deleted::Pending(object) => {
            respond::object(200, call.accepted, &call.query, resource, &object, call.now)
        }
    };
    Ok(Outcome { answer, changed, dry_run, name: None })
}

pub(super) async fn delete_collection(app: &App, call: &Call, target: &Target) -> Result<Outcome, ApiError> {
    if target.resource.namespaced && target.namespace.is_none() || target.resource.is("", "namespaces") {
        return Err(super::refusal::method_not_allowed());
    }
    let selection = options::list(&call.query)?;
    let (options, dry_run) = options::delete(&call.query, body::delete_options(&call.headers, &call.body)?)?;
    let write = Write { dry_run, ..options::write(&call.query, &call.agent, None, "DeleteOptions", call.now)? };
    let (deleted, revision, changed) = app
        .shared
        .write(|store| {
            let before = store.revision();
            let namespace = target.namespace.as_deref();
            let deleted = store.delete_collection(&target.resource, namespace, &selection, &options, &write)?;
            Ok::<_, ApiError>((deleted, store.revision(), store.revision() != before))
        })
        .await?;
    let page =
        crate::request::Page { items: deleted, resource_version: revision, continue_token: None, remaining: None };
    let answer = respond::list(call.accepted, &call.query, &target.resource, &page, call.now);
    Ok(Outcome { answer, changed, dry_run, name: None })
}

/// A merge patch by the server itself, for subresources that are verbs more than objects.
pub(super) async fn merge(app: &App, call: &Call, target: &Target, patch: &Value) -> Result<Object, ApiError> {
    let write = options::write(&call.query, &call.agent, None, "PatchOptions", call.now)?;
    app.shared.write(|store| store.patch(target, PatchKind::Merge, patch, &write)).await.map(|written| written.object)
}
