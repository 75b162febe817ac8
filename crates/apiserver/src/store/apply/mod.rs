//! Server-side apply, and who owns what after every kind of write.
//!
//! Every write leaves in `managedFields` which manager set which fields. An apply states the fields that its manager wants: it takes
//! them (a field that another owns with another value is a conflict, unless forced), and gives up those that it stated before and
//! no longer states; what then nobody owns is removed. Never: a field lost that someone else owns, or a conflict that is settled
//! silently.

mod fields;
mod managers;
mod merge;
mod shape;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

pub(super) use managers::{Managers, read as read_managers, write as written_managers};

use super::{Object, builtin, object};
use crate::error::ApiError;
use crate::registry::Resource;
use crate::request::{Subresource, Target, Write};
use fields::FieldSet;
use managers::{Manager, Owned, UNOWNED};
use shape::Shape;

/// How a manager came to own fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    /// By server-side apply.
    Apply,
    /// By create, update or any other patch.
    Update,
}

/// The owner of what an object had before the first apply, when nothing was recorded.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The creator is the owner of everything in a new object.
pub(super) fn own_created(resource: &Resource, object: &mut Value, write: &Write) -> Managers {
    object::meta_mut(object).remove("managedFields");
    updated(resource, &main_target(resource), Managers::new(), &blank(resource), object, write)
}

/// Who owns what after an update. `object` is what will be stored; what it says of ownership itself is taken out of it.
pub(super) fn own_updated(target: &Target, current: &Object, object: &mut Value, write: &Write) -> Managers {
    let resource = &target.resource;
    let given = object::meta_mut(object).remove("managedFields");
    let managers = match &given {
        // One empty entry is the documented way to forget all ownership; an empty list is a client that did not know better.
        Some(Value::Array(entries)) if entries.len() == 1 && entries[0] == json!({}) => {
            return Managers::new();
        }
        Some(Value::Array(entries)) if !entries.is_empty() && target.subresource == Subresource::Main => {
            managers::read(given.as_ref())
        }
        _ => current.managers().clone(),
    };
    // An object that nobody is recorded for stays so until someone applies.
    if managers.is_empty() && current.managers().is_empty() {
        return managers;
    }
    updated(resource, &manager_target(target), managers, current.plain(), object, write)
}

struct ManagerTarget {
    version: String,
    subresource: Subresource,
}

fn main_target(resource: &Resource) -> ManagerTarget {
    ManagerTarget { version: resource.api_version(), subresource: Subresource::Main }
}

fn manager_target(target: &Target) -> ManagerTarget {
    ManagerTarget { version: target.resource.api_version(), subresource: target.subresource }
}

fn updated(
    resource: &Resource,
    target: &ManagerTarget,
    mut managers: Managers,
    old: &Value,
    new: &Value,
    write: &Write,
) -> Managers {
    let shape = Shape::root(&resource.schema);
    // The record of ownership is compared along with the rest, and is nobody's.
    let changes = merge::compare(shape, old, new);
    let taken = changes.modified.union(&changes.added);
    for owned in managers.values_mut() {
        owned.fields = owned.fields.difference(&taken).difference(&changes.removed);
    }
    let mine = taken.difference(&UNOWNED);
    if !mine.is_empty() {
        let manager = Manager::new(Operation::Update, &write.manager, &target.version, target.subresource);
        let before = managers.remove(&manager).map(|owned| owned.fields).unwrap_or_default();
        let time = object::time(write.now);
        managers.insert(manager, Owned { fields: before.union(&mine), version: target.version.clone(), time });
    }
    managers.retain(|_, owned| !owned.fields.is_empty());
    managers
}

/// The object after an apply, and who owns what of it; the live object when nothing changes.
pub(super) fn apply(
    target: &Target,
    current: Option<&Object>,
    config: Value,
    write: &Write,
) -> Result<(Value, Managers), ApiError> {
    let resource = &target.resource;
    let shape = Shape::root(&resource.schema);
    let mut managers = match current {
        Some(current) => recorded(resource, target, current, write),
        None => Managers::new(),
    };
    let me = Manager::new(Operation::Apply, &write.manager, &resource.api_version(), target.subresource);
    let former = managers.get(&me).cloned();

    if let Some(element) = merge::repeated(shape, &config) {
        return Err(repeated(resource, &config, &element));
    }
    let mut config = merge::remove(shape, config, &not_of_endpoint(target)).unwrap_or_else(|| json!({}));
    let as_before = former.as_ref().filter(|former| merge::states(shape, &config, &former.fields, &UNOWNED));
    // Needed to give something up, which is only then, and to check that nothing is.
    let needed = as_before.is_none() || cfg!(debug_assertions);
    let everything = if needed { merge::fields_of(shape, &config) } else { FieldSet::default() };
    let stated = as_before.map_or_else(|| everything.difference(&UNOWNED), |former| former.fields.clone());
    debug_assert!(!needed || stated == everything.difference(&UNOWNED));
    let time = former.as_ref().map_or_else(|| object::time(write.now), |former| former.time.clone());
    managers.insert(me.clone(), Owned { fields: stated.clone(), version: resource.api_version(), time });

    forget_server_fields(&mut config);
    let blank = blank(resource);
    let live = current.map_or(&blank, |current| &**current.plain());
    let mut merged = live.clone();
    merge::merge(shape, &mut merged, config);
    if let Some(former) = &former {
        // Who states all that it stated before gives nothing up.
        if former.fields.within(&stated) {
            debug_assert_eq!(give_up(shape, &merged, &managers, &everything, &former.fields), merged);
        } else {
            merged = give_up(shape, &merged, &managers, &everything, &former.fields);
        }
    }
    take_over(shape, &mut managers, &me, live, &merged, write)?;
    let fields = |owned: &Owned| owned.fields.clone();
    let changed = *live != merged || managers.get(&me).map(fields) != former.as_ref().map(fields);
    if changed && let Some(mine) = managers.get_mut(&me) {
        mine.time = object::time(write.now);
    }
    managers.retain(|_, owned| !owned.fields.is_empty());
    Ok((merged, managers))
}

fn repeated(resource: &Resource, config: &Value, path: &str) -> ApiError {
    let version = if resource.group.is_empty() { format!("/{}", resource.version) } else { resource.api_version() };
    ApiError {
        code: 500,
        reason: "",
        message: format!(
            "failed to create typed patch object ({}/{}; {version}, Kind={}): {path}",
            object::namespace(config),
            object::name(config),
            resource.kind
        ),
        details: None,
    }
}

/// The recorded managers; of an object without any record, one that owns all there is.
fn recorded(resource: &Resource, target: &Target, current: &Object, write: &Write) -> Managers {
    if !current.managers().is_empty() {
        return current.managers().clone();
    }
    let everything = merge::compare(Shape::root(&resource.schema), &blank(resource), current.plain()).added;
    let fields = everything.difference(&UNOWNED).without_subtrees(&not_of_endpoint(target));
    let manager = Manager::new(Operation::Update, BEFORE_FIRST_APPLY, &resource.api_version(), Subresource::Main);
    Managers::from([(manager, Owned { fields, version: resource.api_version(), time: object::time(write.now) })])
}

/// Removes what the applier stated before, no longer states, and nobody else owns.
///
/// `stated` is all that the configuration states, the identity included: it keeps metadata alive whose last owned field goes.
fn give_up(shape: Shape<'_>, merged: &Value, managers: &Managers, stated: &FieldSet, former: &FieldSet) -> Value {
    let touched = part_with(merged, former);
    let former = former.with_named_fields(shape);
    let pruned = merge::remove(shape, touched.clone(), &former).unwrap_or_else(|| json!({}));
    let owned = managers.values().fold(stated.clone(), |all, owned| all.union(&owned.fields)).with_named_fields(shape);
    let touched_fields = merge::fields_of(shape, &touched).with_named_fields(shape);
    let pruned_fields = merge::fields_of(shape, &pruned).with_named_fields(shape);
    // First bring back what someone owns, then limit the removal to what the applier had stated.
    let gone = touched_fields.difference(&pruned_fields.union(&owned));
    let with_owned = merge::remove(shape, touched, &gone).unwrap_or_else(|| json!({}));
    let kept = merge::fields_of(shape, &with_owned).with_named_fields(shape);
    let gone = touched_fields.difference(&kept).intersection(&former);
    merge::remove(shape, merged.clone(), &gone).unwrap_or_else(|| json!({}))
}

/// The top-level fields that a set says something about: nothing outside of them can go because of it. Who applies a status says
/// nothing about a long spec.
fn part_with(object: &Value, set: &FieldSet) -> Value {
    let fields = object.as_object().into_iter().flatten();
    let touched = |field: &str| set.elements().any(|(element, ..)| element.strip_prefix("f:") == Some(field));
    fields.filter(|(field, _)| touched(field)).map(|(field, value)| (field.clone(), value.clone())).collect()
}

/// Takes the changed fields from their owners: by force, or it is a conflict.
fn take_over(
    shape: Shape<'_>,
    managers: &mut Managers,
    me: &Manager,
    live: &Value,
    merged: &Value,
    write: &Write,
) -> Result<(), ApiError> {
    let changes = merge::compare(shape, live, merged);
    let taken = changes.modified.union(&changes.added);
    let mut conflicts: Vec<(String, Vec<String>)> = Vec::new();
    for (manager, owned) in managers.iter_mut().filter(|(manager, _)| *manager != me) {
        let contested = owned.fields.intersection(&taken);
        if !contested.is_empty() {
            conflicts.push((manager.display(), contested.paths().iter().map(|path| fields::display(path)).collect()));
        }
        owned.fields = owned.fields.difference(&contested).difference(&changes.removed);
    }
    if !write.force && !conflicts.is_empty() {
        return Err(conflict(conflicts));
    }
    managers.retain(|_, owned| !owned.fields.is_empty());
    Ok(())
}

fn conflict(mut conflicts: Vec<(String, Vec<String>)>) -> ApiError {
    conflicts.sort();
    let count: usize = conflicts.iter().map(|(_, paths)| paths.len()).sum();
    let text = match conflicts.as_slice() {
        [(manager, paths)] if paths.len() == 1 => format!("conflict with {manager}: {}", paths[0]),
        all => all
            .iter()
            .map(|(manager, paths)| format!("conflicts with {manager}:\n- {}", paths.join("\n- ")))
            .collect::<Vec<_>>()
            .join("\n"),
    };
    let causes: Vec<Value> = conflicts
        .iter()
        .flat_map(|(manager, paths)| {
            paths.iter().map(move |path| {
                json!({"reason": "FieldManagerConflict", "message": format!("conflict with {manager}"), "field": path})
            })
        })
        .collect();
    let noun = if count == 1 { "conflict" } else { "conflicts" };
    ApiError {
        code: 409,
        reason: "Conflict",
        message: format!("Apply failed with {count} {noun}: {text}"),
        details: Some(json!({"causes": causes})),
    }
}

/// Fields that a write through this endpoint leaves alone, whatever its body says.
fn not_of_endpoint(target: &Target) -> FieldSet {
    let resource = &target.resource;
    match target.subresource {
        Subresource::Main if resource.has_status => FieldSet::from_json(&json!({"f:status": {}})),
        Subresource::Main => FieldSet::default(),
        Subresource::Status | Subresource::Scale => {
            let mut others = Map::new();
            for field in resource.schema["properties"].as_object().into_iter().flatten().map(|(field, _)| field) {
                if field != "status" && (resource.custom || field != "metadata") {
                    others.insert(format!("f:{field}"), json!({}));
                }
            }
            if resource.custom {
                others.insert("f:metadata".into(), json!({}));
            }
            FieldSet::from_json(&Value::Object(others))
        }
    }
}

/// Whether an object differs from the current one in nothing but since when who owns what: such a write is no write.
pub(super) fn same_but_for_times(current: &Object, object: &Value, managers: &Managers) -> bool {
    let same = |one: &Owned, other: &Owned| one.fields == other.fields && one.version == other.version;
    let ours = current.managers();
    ours.len() == managers.len()
        && ours.iter().zip(managers).all(|((one, owned), (other, others))| one == other && same(owned, others))
        && **current.plain() == *object
}

/// An object of the kind with nothing in it. A typed server's structs are there even when empty, so nobody comes to own them.
fn blank(resource: &Resource) -> Value {
    let mut blank = json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": {}});
    if !resource.custom {
        for part in builtin::struct_parts(resource) {
            blank[*part] = json!({});
        }
    }
    blank
}

/// What an apply configuration says about identity and history is checked elsewhere and never merged.
fn forget_server_fields(config: &mut Value) {
    let meta = object::meta_mut(config);
    for field in ["managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"] {
        meta.remove(field);
    }
}
