//! An object as it is kept: what it says, and who owns which of its fields.
//!
//! The record of ownership (`managedFields`) is the longest part of many objects, changes with every write, and few who read an object
//! ask for it. So it is kept in the form that writes work with, and becomes a part of the object when somebody looks at the whole.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::apply::{Managers, read_managers, written_managers};
use super::object;

/// An object of the store. Copies share everything. As a value it is whole; [`Object::plain`] is cheaper.
#[derive(Clone, Debug)]
pub struct Object(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    plain: Arc<Value>,
    managers: Managers,
    whole: OnceLock<Arc<Value>>,
}

impl Object {
    /// An object without `managedFields`, and what they would say.
    pub(super) fn new(plain: Value, managers: Managers) -> Self {
        Self(Arc::new(Parts { plain: Arc::new(plain), managers, whole: OnceLock::new() }))
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
