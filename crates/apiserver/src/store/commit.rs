//! The one place where state changes: the log first, then memory.
//!
//! Never: memory that is ahead of the log. When the log can't be written, the caller gets an error and nothing has changed.

use std::sync::Arc;

use serde_json::Value;

use super::history::Change;
use super::persist::Record;
use super::{CRDS, Key, Managers, Object, Store, object};
use crate::error::ApiError;

impl Store {
    /// Stores an object under the next revision, or removes it (`None`), and returns it as watches see it.
    pub(super) fn commit(
        &mut self,
        bucket: &str,
        key: Key,
        after: Option<(Value, Managers)>,
    ) -> Result<Object, ApiError> {
        let revision = self.revision + 1;
        let after = after.map(|(mut object, managers)| {
            object::meta_mut(&mut object).insert("resourceVersion".into(), revision.to_string().into());
            Object::new(object, managers)
        });
        if let Some(log) = &mut self.log {
            let record = Record {
                revision,
                bucket: bucket.into(),
                namespace: key.0.clone(),
                name: key.1.clone(),
                object: after.as_ref().map(|object| object.whole().clone()),
            };
            log.append(&record).map_err(|error| ApiError::internal(format!("the change can't be kept: {error}")))?;
        }
        let before = self.put(bucket, &key, after.clone());
        self.revision = revision;
        let shown = match (&after, &before) {
            (Some(after), _) => after.clone(),
            (None, Some(before)) => with_revision(before, revision),
            (None, None) => Object::new(Value::Null, Managers::new()),
        };
        self.history.push(Change { revision, bucket: bucket.into(), key, before, after });
        if bucket == CRDS {
            self.rebuild_registry();
        }
        self.shorten_log();
        Ok(shown)
    }

    /// A record of the log or of a snapshot, at start.
    pub(super) fn replay(&mut self, record: Record) {
        // A crash between a snapshot and the new log leaves records that the snapshot already holds.
        if record.revision < self.revision {
            return;
        }
        self.revision = record.revision;
        let crd = record.bucket == CRDS;
        if !record.bucket.is_empty() {
            let object = record.object.map(|whole| Object::of_whole(Arc::unwrap_or_clone(whole)));
            self.put(&record.bucket, &(record.namespace, record.name), object);
        }
        if crd {
            self.rebuild_registry();
        }
    }

    fn put(&mut self, bucket: &str, key: &Key, object: Option<Object>) -> Option<Object> {
        match object {
            Some(object) => self.buckets.entry(bucket.into()).or_default().insert(key.clone(), object),
            None => self.buckets.get_mut(bucket)?.remove(key),
        }
    }

    /// When the log has grown well past the state that it describes, a snapshot takes its place. A failure to do so loses
    /// nothing, the log is still whole, so it is only noted and tried again with a later write.
    fn shorten_log(&mut self) {
        let Some(log) = &mut self.log else { return };
        if !log.wants_snapshot() {
            return;
        }
        let records = self.buckets.iter().flat_map(|(bucket, objects)| {
            objects.iter().map(|((namespace, name), object)| Record {
                revision: 0,
                bucket: bucket.clone(),
                namespace: namespace.clone(),
                name: name.clone(),
                object: Some(object.whole().clone()),
            })
        });
        if let Err(error) = log.snapshot(self.revision, records) {
            tracing::warn!(%error, "the log could not be shortened by a snapshot; it goes on growing");
        }
    }
}

/// The object with another resource version: a deleted object shows the revision of its deletion.
pub(super) fn with_revision(object: &Object, revision: u64) -> Object {
    let mut plain = Value::clone(object.plain());
    object::meta_mut(&mut plain).insert("resourceVersion".into(), revision.to_string().into());
    Object::new(plain, object.managers().clone())
}
