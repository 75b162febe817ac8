//! Watches: cursors over the history.
//!
//! A cursor is cheap and owned by its watcher; polling reads what happened since, filtered by its selectors. An object that begins
//! to match is Added, one that ceases to match is Deleted. Never: an event skipped or shown twice; a cursor that fell behind the
//! history gets 410 and starts over with a list.

use std::sync::Arc;

use super::history::Change;
use super::selector::Selector;
use super::{Object, Store, commit, read, view};
use crate::error::ApiError;
use crate::registry::Resource;
use crate::request::{ListOptions, WatchEvent, WatchKind};

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFrom {
    /// The present; only what happens from now on.
    Now,
    /// After this revision.
    Revision(u64),
    /// The present state as Added events first (resource version empty or "0").
    State,
}

/// A watcher's place in the history.
#[derive(Debug)]
pub struct Cursor {
    resource: Arc<Resource>,
    bucket: String,
    namespace: Option<String>,
    selector: Selector,
    seen: u64,
    initial: Vec<WatchEvent>,
}

impl Cursor {
    /// Everything up to this revision has been polled: what a bookmark says.
    pub fn revision(&self) -> u64 {
        self.seen
    }

    /// The resource that is watched.
    pub fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }
}

impl Store {
    /// Begins a watch.
    pub fn watch(
        &self,
        resource: &Arc<Resource>,
        namespace: Option<&str>,
        options: &ListOptions,
        from: WatchFrom,
    ) -> Result<Cursor, ApiError> {
        let selector = Selector::parse(resource, options.label_selector.as_deref(), options.field_selector.as_deref())?;
        let (seen, initial) = match from {
            WatchFrom::Now => (self.revision, Vec::new()),
            WatchFrom::Revision(revision) if revision > self.revision => {
                return Err(read::too_large(revision, self.revision));
            }
            WatchFrom::Revision(revision) => (revision, Vec::new()),
            WatchFrom::State => {
                let list = ListOptions {
                    label_selector: options.label_selector.clone(),
                    field_selector: options.field_selector.clone(),
                    ..ListOptions::default()
                };
                let page = self.list(resource, namespace, &list)?;
                let added = |object: Object| WatchEvent {
                    kind: WatchKind::Added,
                    revision: super::object::revision(object.plain()),
                    object,
                };
                (self.revision, page.items.into_iter().map(added).collect())
            }
        };
        let cursor = Cursor {
            resource: resource.clone(),
            bucket: resource.bucket(),
            namespace: namespace.map(Into::into),
            selector,
            seen,
            initial,
        };
        self.check_reach(&cursor)?;
        Ok(cursor)
    }

    /// What happened since the last poll.
    pub fn poll(&self, cursor: &mut Cursor) -> Result<Vec<WatchEvent>, ApiError> {
        if cursor.initial.is_empty() && cursor.seen == self.revision {
            return Ok(Vec::new());
        }
        self.check_reach(cursor)?;
        let mut events = std::mem::take(&mut cursor.initial);
        events.extend(self.history.since(cursor.seen).into_iter().flatten().filter_map(|change| event(cursor, change)));
        cursor.seen = self.revision;
        Ok(events)
    }

    fn check_reach(&self, cursor: &Cursor) -> Result<(), ApiError> {
        match self.history.since(cursor.seen) {
            Some(_) => Ok(()),
            None => {
                Err(ApiError::expired(format!("too old resource version: {} ({})", cursor.seen, self.history.oldest())))
            }
        }
    }
}

fn event(cursor: &Cursor, change: &Change) -> Option<WatchEvent> {
    if change.bucket != cursor.bucket || cursor.namespace.as_ref().is_some_and(|namespace| *namespace != change.key.0) {
        return None;
    }
    let shown = |stored: &Option<Object>| {
        stored
            .as_ref()
            .map(|stored| view::shown(&cursor.resource, stored))
            .filter(|object| cursor.selector.matches(object.plain()))
    };
    let (kind, object) = match (shown(&change.before), shown(&change.after)) {
        (None, None) => return None,
        (None, Some(after)) => (WatchKind::Added, after),
        (Some(_), Some(after)) => (WatchKind::Modified, after),
        (Some(before), None) => (WatchKind::Deleted, commit::with_revision(&before, change.revision)),
    };
    Some(WatchEvent { kind, object, revision: change.revision })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, config_map};
    use super::*;
    use WatchKind::{Added, Deleted, Modified};
    use serde_json::json;

    fn seen(fixture: &Fixture, cursor: &mut Cursor) -> Vec<WatchKind> {
        fixture.store.poll(cursor).unwrap().iter().map(|event| event.kind).collect()
    }

    fn labelled(selector: &str) -> ListOptions {
        ListOptions { label_selector: Some(selector.into()), ..ListOptions::default() }
    }

    #[test]
    fn a_watch_sees_each_change_once_and_no_change_for_a_write_that_changes_nothing() {
        let mut fixture = Fixture::new();
        let resource = fixture.target("configmaps").resource;
        let mut cursor = fixture.store.watch(&resource, None, &ListOptions::default(), WatchFrom::Now).unwrap();
        fixture.given("configmaps", config_map("a", json!({"k": "1"})));
        fixture.merge("configmaps/a", json!({"data": {"k": "2"}})).unwrap();
        fixture.merge("configmaps/a", json!({"data": {"k": "2"}})).unwrap();
        fixture.given("secrets", json!({"metadata": {"name": "other"}}));
        assert_eq!(seen(&fixture, &mut cursor), [Added, Modified]);
        fixture.delete("configmaps/a", &Default::default()).unwrap();
        let events = fixture.store.poll(&mut cursor).unwrap();
        assert_eq!(events[0].kind, Deleted);
        assert_eq!(events[0].object["metadata"]["resourceVersion"], events[0].revision.to_string());
        assert_eq!(seen(&fixture, &mut cursor), []);
    }

    #[test]
    fn objects_that_enter_or_leave_a_selection_are_added_or_deleted() {
        let mut fixture = Fixture::new();
        let resource = fixture.target("configmaps").resource;
        let mut cursor = fixture.store.watch(&resource, Some("default"), &labelled("in=yes"), WatchFrom::Now).unwrap();
        fixture.given("configmaps", config_map("a", json!({})));
        fixture.merge("configmaps/a", json!({"metadata": {"labels": {"in": "yes"}}})).unwrap();
        fixture.merge("configmaps/a", json!({"data": {"k": "1"}})).unwrap();
        fixture.merge("configmaps/a", json!({"metadata": {"labels": {"in": "no"}}})).unwrap();
        assert_eq!(seen(&fixture, &mut cursor), [Added, Modified, Deleted]);
    }

    #[test]
    fn a_watch_of_the_state_begins_with_what_there_is() {
        let mut fixture = Fixture::new();
        fixture.given("configmaps", config_map("a", json!({})));
        let resource = fixture.target("configmaps").resource;
        let mut cursor = fixture.store.watch(&resource, None, &ListOptions::default(), WatchFrom::State).unwrap();
        fixture.given("configmaps", config_map("b", json!({})));
        assert_eq!(seen(&fixture, &mut cursor), [Added, Added]);
    }

    #[test]
    fn a_forgotten_past_is_410_to_new_and_to_slow_watches() {
        let mut fixture = Fixture::new();
        let resource = fixture.target("configmaps").resource;
        let start = fixture.store.revision();
        let all = ListOptions::default();
        let mut slow = fixture.store.watch(&resource, None, &all, WatchFrom::Revision(start)).unwrap();
        fixture.given("configmaps", config_map("a", json!({})));
        fixture.store.compact(fixture.store.revision());
        assert_eq!(fixture.store.poll(&mut slow).unwrap_err().reason, "Expired");
        assert_eq!(fixture.store.watch(&resource, None, &all, WatchFrom::Revision(start)).unwrap_err().code, 410);
    }

    #[test]
    fn the_two_views_of_an_event_are_one_object() {
        let mut fixture = Fixture::new();
        let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "message": "m", "reason": "R"});
        fixture.given("events", event);
        let newer = fixture.store.resource("events.k8s.io", "v1", "events").unwrap();
        let page = fixture.store.list(&newer, None, &ListOptions::default()).unwrap();
        assert_eq!(page.items[0]["note"], "m");
        assert_eq!(page.items[0]["regarding"]["name"], "p");
        assert_eq!(page.items[0]["apiVersion"], "events.k8s.io/v1");
    }
}
