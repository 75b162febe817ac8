//! The stream of a watch: events as they happen, bookmarks in between, an end that is told.
//!
//! From: a cursor in the store and the wake-up call of its changes. A watch ends at its timeout, at the server's shutdown, or with an
//! ERROR event when history no longer reaches back to where it stands. Never: an event left out in silence.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::accept::{Accepted, Form};
use super::options::{Start, WatchOptions};
use super::shared::Shared;
use super::table::{IncludeObject, Table, partial_metadata};
use crate::error::ApiError;
use crate::registry::Resource;
use crate::request::{ListOptions, WatchEvent, WatchKind};
use crate::store::{Cursor, WatchFrom};

/// How often a quiet watch is told where it stands. A client that comes back then need not list everything again.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// The last bookmark comes this long before the timeout, so that the client has it when the stream ends.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// A watch under way.
pub(super) struct Feed {
    shared: Arc<Shared>,
    changes: watch::Receiver<u64>,
    shutdown: CancellationToken,
    cursor: Cursor,
    writer: Writer,
    deadline: Instant,
    next_bookmark: Option<Instant>,
    /// The bookmark that ends the initial state is still to be sent.
    initial_end_due: bool,
    ended: bool,
}

impl Feed {
    /// Begins a watch.
    pub(super) fn open(
        shared: &Arc<Shared>,
        shutdown: &CancellationToken,
        resource: &Arc<Resource>,
        namespace: Option<&str>,
        selection: &ListOptions,
        options: &WatchOptions,
        writer: Writer,
    ) -> Result<Feed, ApiError> {
        let changes = shared.changes();
        let from = match options.start {
            Start::State { .. } => WatchFrom::State,
            Start::After(revision) => WatchFrom::Revision(revision),
            Start::Now => WatchFrom::Now,
        };
        let cursor = shared.read(|store| store.watch(resource, namespace, selection, from))?;
        let now = Instant::now();
        let mut feed = Feed {
            shared: shared.clone(),
            changes,
            shutdown: shutdown.clone(),
            cursor,
            writer,
            deadline: now + options.timeout,
            next_bookmark: None,
            initial_end_due: options.start == Start::State { mark_end: true },
            ended: false,
        };
        if options.bookmarks {
            feed.schedule_bookmark(now);
        }
        Ok(feed)
    }

    /// The body of the answer.
    pub(super) fn into_body(self) -> Body {
        Body::from_stream(stream::unfold(self, |mut feed| async move {
            let chunk = feed.next().await?;
            Some((Ok::<_, std::convert::Infallible>(chunk), feed))
        }))
    }

    async fn next(&mut self) -> Option<Bytes> {
        while !self.ended {
            // Marked as seen before looking, so that a change in between wakes us again.
            self.changes.borrow_and_update();
            let events = self.shared.read(|store| store.poll(&mut self.cursor));
            let revision = self.cursor.revision();
            let mut chunk = Vec::new();
            match events {
                Ok(events) => events.iter().for_each(|event| self.writer.event(&mut chunk, event)),
                Err(error) => {
                    self.ended = true;
                    self.writer.error(&mut chunk, &error);
                }
            }
            if self.initial_end_due && !self.ended {
                self.initial_end_due = false;
                self.writer.bookmark(&mut chunk, revision, true);
            }
            let now = Instant::now();
            if self.next_bookmark.is_some_and(|at| at <= now) {
                self.writer.bookmark(&mut chunk, revision, false);
                self.schedule_bookmark(now);
            }
            if !chunk.is_empty() {
                return Some(chunk.into());
            }
            self.wait().await;
        }
        None
    }

    async fn wait(&mut self) {
        let wake = self.next_bookmark.unwrap_or(self.deadline).min(self.deadline);
        tokio::select! {
            changed = self.changes.changed() => self.ended = changed.is_err(),
            () = sleep_until(wake) => self.ended = Instant::now() >= self.deadline,
            () = self.shutdown.cancelled() => self.ended = true,
        }
    }

    fn schedule_bookmark(&mut self, now: Instant) {
        let last = self.deadline.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(self.deadline);
        self.next_bookmark = match now + BOOKMARK_EVERY {
            regular if regular < last => Some(regular),
            _ if now < last => Some(last),
            _ => None,
        };
    }
}

/// A watch that says one thing, that it cannot be, and ends.
pub(super) fn refused(writer: &mut Writer, error: &ApiError) -> Body {
    let mut chunk = Vec::new();
    writer.error(&mut chunk, error);
    Body::from(chunk)
}

/// Writes events in the form that was asked for.
pub(super) struct Writer {
    kind: String,
    api_version: String,
    form: Form,
    table: Option<(Table, IncludeObject)>,
    columns_sent: bool,
}

impl Writer {
    /// For a resource.
    pub(super) fn new(resource: &Resource, accepted: Accepted, include: IncludeObject) -> Writer {
        let table = match accepted.form {
            Form::Table(version) => Some((Table::of(resource, version), include)),
            _ => None,
        };
        Writer {
            kind: resource.kind.clone(),
            api_version: resource.api_version(),
            form: accepted.form,
            table,
            columns_sent: false,
        }
    }

    fn event(&mut self, out: &mut Vec<u8>, event: &WatchEvent) {
        let kind = match event.kind {
            WatchKind::Added => "ADDED",
            WatchKind::Modified => "MODIFIED",
            WatchKind::Deleted => "DELETED",
        };
        self.write(out, kind, &event.object);
    }

    fn bookmark(&mut self, out: &mut Vec<u8>, revision: u64, ends_initial: bool) {
        let mut object = json!({
            "kind": self.kind, "apiVersion": self.api_version,
            "metadata": {"resourceVersion": revision.to_string(), "creationTimestamp": null},
        });
        if ends_initial {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        self.write(out, "BOOKMARK", &object);
    }

    fn error(&mut self, out: &mut Vec<u8>, error: &ApiError) {
        line(out, "ERROR", &error.to_status());
    }

    fn write(&mut self, out: &mut Vec<u8>, kind: &str, object: &Value) {
        match (&self.table, self.form) {
            (Some((table, include)), _) => {
                let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                let objects = &[object];
                let now = Timestamp::now();
                let shown = match self.columns_sent {
                    false => table.render(objects, &metadata, *include, now),
                    true => table.render_without_columns(objects, &metadata, *include, now),
                };
                self.columns_sent = true;
                line(out, kind, &shown);
            }
            (None, Form::PartialMetadata(version)) => line(out, kind, &partial_metadata(object, version)),
            (None, _) => line(out, kind, object),
        }
    }
}

fn line(out: &mut Vec<u8>, kind: &str, object: &Value) {
    out.extend_from_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
    // Writing a `Value` to memory has nothing that could fail.
    let _ = serde_json::to_writer(&mut *out, object);
    out.extend_from_slice(b"}\n");
}

#[cfg(test)]
mod tests {
    use super::super::accept::MetaVersion;
    use super::*;

    fn resource() -> Resource {
        Resource {
            group: String::new(),
            version: "v1".into(),
            storage: true,
            plural: "configmaps".into(),
            singular: "configmap".into(),
            kind: "ConfigMap".into(),
            list_kind: "ConfigMapList".into(),
            short_names: vec![],
            categories: vec![],
            namespaced: true,
            has_status: false,
            scale: None,
            schema: json!({}).into(),
            columns: vec![],
            custom: false,
        }
    }
    fn lines(bytes: &[u8]) -> Vec<Value> {
        bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }
    fn event(name: &str) -> WatchEvent {
        WatchEvent {
            kind: WatchKind::Added,
            object: crate::store::Object::of_whole(json!({"metadata": {"name": name, "resourceVersion": "5"}})),
            revision: 5,
        }
    }

    #[test]
    fn only_the_first_table_of_a_watch_has_columns() {
        let accepted = Accepted { form: Form::Table(MetaVersion::V1), ..Accepted::default() };
        let mut writer = Writer::new(&resource(), accepted, IncludeObject::Metadata);
        let mut out = Vec::new();
        writer.event(&mut out, &event("a"));
        writer.event(&mut out, &event("b"));
        let lines = lines(&out);
        assert_eq!(lines[0]["object"]["columnDefinitions"].as_array().unwrap().len(), 3);
        assert_eq!(lines[1]["object"]["columnDefinitions"], json!([]));
        assert_eq!(lines[1]["object"]["rows"][0]["cells"][0], "b");
    }

    #[test]
    fn the_bookmark_at_the_end_of_the_initial_state_says_so() {
        let mut writer = Writer::new(&resource(), Accepted::default(), IncludeObject::Metadata);
        let mut out = Vec::new();
        writer.bookmark(&mut out, 9, true);
        let bookmark = &lines(&out)[0];
        assert_eq!((&bookmark["type"], &bookmark["object"]["kind"]), (&json!("BOOKMARK"), &json!("ConfigMap")));
        assert_eq!(bookmark["object"]["metadata"]["resourceVersion"], "9");
        assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    }

    #[test]
    fn an_expired_history_is_an_error_event() {
        let mut writer = Writer::new(&resource(), Accepted::default(), IncludeObject::Metadata);
        let mut out = Vec::new();
        writer.error(&mut out, &ApiError::expired("too old resource version: 1 (2)"));
        assert_eq!(lines(&out)[0]["object"]["code"], 410);
    }
}
