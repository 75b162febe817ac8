//! An object as it is kept: what it says, and who owns which of its fields.
//!
//! The record of ownership (`managedFields`) is the longest part of many objects, changes with every write, and few who read an object
//! ask for it. So it is kept in the form that writes work with, and becomes a part of the object when somebody looks at the whole.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::apply::{Managers, read_managers, written_managers};
use super::{object, schema};
use crate::registry::Resource;

/// An object of the store. Copies share everything. As a value it is whole; [`Object::plain`] is cheaper.
#[derive(Clone, Debug)]
pub struct Object(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    plain: Arc<Value>,
    managers: Managers,
    whole: OnceLock<Arc<Value>>,
    /// A resource all of whose defaults it is known to have.
    complete: OnceLock<Arc<Resource>>,
}

impl Object {
    /// An object without `managedFields`, and what they would say.
    pub(super) fn new(plain: Value, managers: Managers) -> Self {
        let plain = Arc::new(plain);
        Self(Arc::new(Parts { plain, managers, whole: OnceLock::new(), complete: OnceLock::new() }))
    }

    /// An object as clients have it.
    pub(crate) fn of_whole(mut whole: Value) -> Self {
        let entries = if whole.is_object() { object::meta_mut(&mut whole).remove("managedFields") } else { None };
        Self::new(whole, read_managers(entries.as_ref()))
    }

    /// What it says, without the record of who owns what.
    pub fn plain(&self) -> &Arc<Value> {
        &self.0.plain
    }

    /// All of it.
    pub fn whole(&self) -> &Arc<Value> {
        if self.0.managers.is_empty() {
            return &self.0.plain;
        }
        self.0.whole.get_or_init(|| {
            let mut whole = Value::clone(&self.0.plain);
            if let Some(entries) = written_managers(&self.0.managers) {
                object::meta_mut(&mut whole).insert("managedFields".into(), entries);
            }
            Arc::new(whole)
        })
    }

    /// Whether it has every default of a resource. Every read asks, and the answer stays as long as neither of them changes.
    pub(super) fn has_defaults_of(&self, resource: &Arc<Resource>) -> bool {
        if self.0.complete.get().is_some_and(|known| Arc::ptr_eq(known, resource)) {
            return true;
        }
        let complete = !schema::lacks_defaults(resource.schema.structure(), &self.0.plain);
        if complete {
            self.0.complete.get_or_init(|| resource.clone());
        }
        complete
    }

    /// It has: whoever made it filled them in.
    pub(super) fn got_defaults_of(&self, resource: &Arc<Resource>) {
        self.0.complete.get_or_init(|| resource.clone());
    }

    /// Who owns what.
    pub(super) fn managers(&self) -> &Managers {
        &self.0.managers
    }
}

impl Deref for Object {
    type Target = Value;
    fn deref(&self) -> &Value {
        self.whole()
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.0.plain == other.0.plain && self.0.managers == other.0.managers)
    }
}
