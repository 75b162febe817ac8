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

use super::touched::Touched;
use super::{Object, builtin, object};
use crate::error::ApiError;
use crate::registry::Resource;
use crate::request::{Subresource, Target, Write};
use fields::FieldSet;
use managers::{Manager, Owned, UNOWNED};
use merge::Comparison;
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
    let changes = merge::compare(Shape::root(&resource.schema), &blank(resource), object, &Touched::All);
    updated(&main_target(resource), Managers::new(), &changes, write)
}

/// Who owns what after an update. `object` is what will be stored; what it says of ownership itself is taken out of it.
pub(super) fn own_updated(
    target: &Target,
    current: &Object,
    object: &mut Value,
    touched: &Touched,
    write: &Write,
) -> Managers {
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
    let changes = merge::compare(Shape::root(&target.resource.schema), current.plain(), object, touched);
    updated(&manager_target(target), managers, &changes, write)
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

fn updated(target: &ManagerTarget, mut managers: Managers, changes: &Comparison, write: &Write) -> Managers {
    let taken = changes.modified.union(&changes.added);
    for owned in managers.values_mut() {
        owned.fields = owned.fields.difference(&taken).difference(&changes.removed);
    }
    let mine = taken.difference(&UNOWNED);
    if !mine.is_empty() {
        let manager = Manager::new(Operation::Update, &write.manager, &target.version, target.subresource);
        let before = managers.remove(&manager).map(|owned| owned.fields).unwrap_or_default();
        let (version, time) = (target.version.as_str().into(), Some(object::time(write.now).into()));
        managers.insert(manager, Owned { fields: before.union(&mine), version, time });
    }
    managers.retain(|_, owned| !owned.fields.is_empty());
    managers
}

/// What an apply makes of an object.
pub(super) struct Applied {
    /// The object; the live one when nothing changes.
    pub(super) object: Value,
    /// Who owns what of it.
    pub(super) managers: Managers,
    /// Where it may differ from the live one.
    pub(super) touched: Touched,
}

/// The object after an apply.
pub(super) fn apply(
    target: &Target,
    current: Option<&Object>,
    mut config: Value,
    write: &Write,
) -> Result<Applied, ApiError> {
    let resource = &target.resource;
    let shape = Shape::root(&resource.schema);
    let mut managers = match current {
        Some(current) => recorded(resource, target, current, write),
        None => Managers::new(),
    };
    let me = Manager::new(Operation::Apply, &write.manager, &resource.api_version(), target.subresource);
    let former = managers.get(&me).cloned();

    let others = of_other_endpoints(target, &mut config);
    let as_before = former.as_ref().filter(|former| merge::states(shape, &config, &former.fields, &UNOWNED));
    // Who states what it stated before repeats nothing.
    let repeats = |config| merge::repeated(shape, config).is_some();
    if repeats(&others) || (as_before.is_none() && repeats(&config)) {
        if let (Some(fields), Value::Object(others)) = (config.as_object_mut(), others) {
            fields.extend(others);
        }
        let element = merge::repeated(shape, &config).unwrap_or_default();
        return Err(repeated(resource, &config, &element));
    }
    // Needed to give something up, which is only then, and to check that nothing is.
    let needed = as_before.is_none() || cfg!(debug_assertions);
    let everything = if needed { merge::fields_of(shape, &config) } else { FieldSet::default() };
    let stated = as_before.map_or_else(|| everything.difference(&UNOWNED), |former| former.fields.clone());
    debug_assert!(!needed || stated == everything.difference(&UNOWNED));
    let time = former.as_ref().map_or_else(|| Some(object::time(write.now).into()), |former| former.time.clone());
    managers.insert(me.clone(), Owned { fields: stated.clone(), version: resource.api_version().into(), time });

    forget_server_fields(&mut config);
    let blank = current.is_none().then(|| blank(resource));
    let live = current.map(|current| &**current.plain()).or(blank.as_ref()).unwrap_or(&Value::Null);
    let touched = match current {
        Some(_) => touched(&config, former.as_ref()),
        None => Touched::All,
    };
    let mut merged = live.clone();
    merge::merge(shape, &mut merged, config);
    if let Some(former) = &former {
        // Who states all that it stated before gives nothing up.
        if former.fields.within(&stated) {
            debug_assert_eq!(give_up(shape, merged.clone(), &managers, &everything, &former.fields), merged);
        } else {
            merged = give_up(shape, merged, &managers, &everything, &former.fields);
        }
    }
    take_over(&mut managers, &me, &merge::compare(shape, live, &merged, &touched), write)?;
    let fields = |owned: &Owned| owned.fields.clone();
    let changed = touched.differ(live, &merged) || managers.get(&me).map(fields) != former.as_ref().map(fields);
    if changed && let Some(mine) = managers.get_mut(&me) {
        mine.time = Some(object::time(write.now).into());
    }
    managers.retain(|_, owned| !owned.fields.is_empty());
    Ok(Applied { object: merged, managers, touched })
}

/// Only what a configuration states is merged, and only what it stated before can be given up.
fn touched(config: &Value, former: Option<&Owned>) -> Touched {
    let stated = config.as_object().into_iter().flat_map(Map::keys).map(String::as_str);
    let before = former.into_iter().flat_map(|former| former.fields.elements());
    let before = before.filter_map(|(element, ..)| element.strip_prefix("f:"));
    let mut fields: Vec<String> = stated.chain(before).map(ToOwned::to_owned).collect();
    fields.sort();
    fields.dedup();
    Touched::Only(fields)
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
    let shape = Shape::root(&resource.schema);
    let everything = merge::compare(shape, &blank(resource), current.plain(), &Touched::All).added;
    let others =
        current.plain().as_object().into_iter().flat_map(Map::keys).filter(|field| !of_endpoint(target, field));
    let mut not_theirs = FieldSet::default();
    others.for_each(|field| not_theirs.put(format!("f:{field}"), true, FieldSet::default()));
    let fields = everything.difference(&UNOWNED).without_subtrees(&not_theirs);
    let manager = Manager::new(Operation::Update, BEFORE_FIRST_APPLY, &resource.api_version(), Subresource::Main);
    let (version, time) = (resource.api_version().into(), Some(object::time(write.now).into()));
    Managers::from([(manager, Owned { fields, version, time })])
}

/// Removes what the applier stated before, no longer states, and nobody else owns.
///
/// `stated` is all that the configuration states, the identity included: it keeps metadata alive whose last owned field goes.
fn give_up(shape: Shape<'_>, merged: Value, managers: &Managers, stated: &FieldSet, former: &FieldSet) -> Value {
    let part = Part::of(&merged, stated, former);
    debug_assert_eq!(
        give_up_of(shape, Part::of(&merged, &FieldSet::default(), former), merged.clone(), managers, stated, former),
        give_up_of(shape, Part::of(&merged, stated, former), merged.clone(), managers, stated, former),
        "where nothing is stated less, nothing goes"
    );
    give_up_of(shape, part, merged, managers, stated, former)
}

fn give_up_of(
    shape: Shape<'_>,
    part: Part,
    merged: Value,
    managers: &Managers,
    stated: &FieldSet,
    former: &FieldSet,
) -> Value {
    let former = part.fields(former).with_named_fields(shape);
    let owned = managers.values().fold(part.fields(stated), |all, owned| all.union(&part.fields(&owned.fields)));
    let owned = owned.with_named_fields(shape);
    let touched = Value::Object(part.object);
    let pruned = merge::remove(shape, touched.clone(), &former).unwrap_or_else(|| json!({}));
    let touched_fields = merge::fields_and_structs_of(shape, &touched);
    let pruned_fields = merge::fields_and_structs_of(shape, &pruned);
    // First bring back what someone owns, then limit the removal to what the applier had stated.
    let gone = touched_fields.difference(&pruned_fields.union(&owned));
    let with_owned = merge::remove(shape, touched, &gone).unwrap_or_else(|| json!({}));
    let kept = merge::fields_and_structs_of(shape, &with_owned);
    let gone = touched_fields.difference(&kept).intersection(&former);
    merge::remove(shape, merged, &gone).unwrap_or_else(|| json!({}))
}

/// The part of an object from which something can go when an applier no longer states what it stated: the fields at the top that it
/// stated something of (who applies a status says nothing about a long spec), and in them those where it now states less. Beside these
/// stays one that it still states as before: what has more in it than goes does not go itself.
struct Part {
    object: Map<String, Value>,
    /// The fields at the top that are not whole.
    narrowed: Vec<String>,
}

impl Part {
    fn of(object: &Value, stated: &FieldSet, former: &FieldSet) -> Self {
        let mut part = Part { object: Map::new(), narrowed: Vec::new() };
        for (field, value) in object.as_object().into_iter().flatten() {
            let element = format!("f:{field}");
            let Some((_, former)) = former.element(&element) else { continue };
            let narrowed = match (value, stated.element(&element)) {
                (Value::Object(fields), Some((_, stated))) => narrowed(fields, stated, former),
                _ => None,
            };
            part.narrowed.extend(narrowed.is_some().then(|| field.clone()));
            part.object.insert(field.clone(), narrowed.map_or_else(|| value.clone(), Value::Object));
        }
        part
    }

    /// What a set says of it.
    fn fields(&self, set: &FieldSet) -> FieldSet {
        set.of_fields(|field, below| match self.object.get(field)? {
            Value::Object(there) if self.narrowed.iter().any(|one| one == field) => {
                Some(below.of_fields(|field, below| there.contains_key(field).then(|| below.clone())))
            }
            _ => Some(below.clone()),
        })
    }
}

fn narrowed(fields: &Map<String, Value>, stated: &FieldSet, former: &FieldSet) -> Option<Map<String, Value>> {
    let mut stays = None;
    let mut part = Map::new();
    for (field, value) in fields {
        let element = format!("f:{field}");
        let (before, now) = (former.element(&element), stated.element(&element));
        let less = before
            .is_some_and(|(member, fields)| now.is_none_or(|(still, now)| (member && !still) || !fields.within(now)));
        if less {
            part.insert(field.clone(), value.clone());
        } else if now.is_some() {
            stays = stays.or(Some((field, value)));
        }
    }
    let (field, value) = stays?;
    part.insert(field.clone(), value.clone());
    Some(part)
}

/// Takes the changed fields from their owners: by force, or it is a conflict.
fn take_over(managers: &mut Managers, me: &Manager, changes: &Comparison, write: &Write) -> Result<(), ApiError> {
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

/// Takes the fields out of a configuration that a write through this endpoint does not change.
fn of_other_endpoints(target: &Target, config: &mut Value) -> Value {
    let mut others = Map::new();
    if let Some(fields) = config.as_object_mut() {
        let names: Vec<String> = fields.keys().filter(|field| !of_endpoint(target, field)).cloned().collect();
        others.extend(names.into_iter().filter_map(|name| fields.remove_entry(&name)));
    }
    Value::Object(others)
}

/// Whether a write through this endpoint changes a field at the top; what its body says of others does not count.
fn of_endpoint(target: &Target, field: &str) -> bool {
    let resource = &target.resource;
    match target.subresource {
        Subresource::Main => !resource.has_status || field != "status",
        Subresource::Status | Subresource::Scale if field == "metadata" => !resource.custom,
        Subresource::Status | Subresource::Scale => {
            field == "status" || resource.schema.structure().named(field).is_none()
        }
    }
}

/// Whether an object differs from the current one in nothing but since when who owns what: such a write is no write.
pub(super) fn same_but_for_times(current: &Object, object: &Value, touched: &Touched, managers: &Managers) -> bool {
    let same = |one: &Owned, other: &Owned| one.fields == other.fields && one.version == other.version;
    let ours = current.managers();
    ours.len() == managers.len()
        && ours.iter().zip(managers).all(|((one, owned), (other, others))| one == other && same(owned, others))
        && !touched.differ(current.plain(), object)
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
