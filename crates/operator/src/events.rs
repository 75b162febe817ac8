//! Kubernetes Events: what people may want to know, once. The same news again raises a count instead of adding an object.

use std::collections::HashMap;
use std::sync::Mutex;

use bellwether_api::labels;
use bellwether_api::v1::PostgresCluster;
use bellwether_core::object;
use bellwether_core::plan::Note;
use bellwether_runtime::watch::Key;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource as _;
use serde_json::json;

use crate::port::{Port, Request, Resource, Verb};

/// The API server keeps events for an hour by default; after that the object to count on is gone.
const REMEMBERED: SignedDuration = SignedDuration::from_mins(50);
/// How many are remembered. A thousand clusters with some news each; beyond that the oldest news counts as new.
const CAPACITY: usize = 4096;

/// Tells people.
#[derive(Debug, Default)]
pub struct Events {
    told: Mutex<HashMap<String, Told>>,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    count: i32,
    first: Timestamp,
    last: Timestamp,
}

impl Events {
    /// Publishes `note` about `cluster`. That it fails is logged and nothing more: no work may depend on being talked about.
    pub async fn publish(&self, port: &impl Port, key: &Key, cluster: &PostgresCluster, note: &Note, now: Timestamp) {
        let uid = cluster.metadata.uid.clone().unwrap_or_default();
        let name = format!("{}.{}", key.name, object::hash(&json!([uid, note.reason, note.message])));
        let told = self.count(&name, now);
        let verb = if told.count == 1 {
            // Built by our own types: it always serialises.
            Verb::Create(serde_json::to_value(event(key, cluster, note, &name, now)).unwrap_or_default())
        } else {
            Verb::Merge(json!({"count": told.count, "lastTimestamp": Time(now)}))
        };
        let request = Request { resource: Resource::Event, namespace: key.namespace.clone(), name, verb };
        if let Err(error) = port.send(request).await {
            tracing::debug!(%error, reason = note.reason, "event not published");
        }
    }

    fn count(&self, name: &str, now: Timestamp) -> Told {
        let mut told = self.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if told.len() >= CAPACITY {
            told.retain(|_, told| now.duration_since(told.last) < REMEMBERED);
        }
        if told.len() >= CAPACITY {
            told.clear();
        }
        let entry = told.entry(name.to_owned()).or_insert(Told { count: 0, first: now, last: now });
        // Counted from the first: repeating does not keep the API server's copy alive.
        if now.duration_since(entry.first) >= REMEMBERED {
            *entry = Told { count: 0, first: now, last: now };
        }
        entry.count += 1;
        entry.last = now;
        *entry
    }
}

fn event(key: &Key, cluster: &PostgresCluster, note: &Note, name: &str, now: Timestamp) -> Event {
    Event {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(key.namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: cluster.object_ref(&()),
        type_: Some(if note.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(note.reason.clone()),
        message: Some(note.message.clone()),
        count: Some(1),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        source: Some(EventSource { component: Some(labels::OPERATOR_MANAGER.to_owned()), host: None }),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_news_raises_a_count_until_the_event_has_expired() {
        let (events, now) = (Events::default(), Timestamp::UNIX_EPOCH);
        assert_eq!(events.count("a", now).count, 1);
        assert_eq!(events.count("a", now).count, 2);
        assert_eq!(events.count("b", now).count, 1);
        assert_eq!(events.count("a", now + REMEMBERED).count, 1);
    }
}
