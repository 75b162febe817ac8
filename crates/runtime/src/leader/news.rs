//! Tells of changes of the Lease as soon as the API server does. A hint: who hears nothing looks by itself.

use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{Api, WatchEvent, WatchParams};
use tokio::time::Instant;

/// A watch that broke is not opened again for so long: looking goes on meanwhile.
const PAUSE: Duration = Duration::from_secs(10);

type Changes = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<Lease>>> + Send>>;

/// The watch, opened when it is first needed.
#[derive(Default)]
pub struct News {
    changes: Option<Changes>,
    not_before: Option<Instant>,
}

impl News {
    /// The Lease after a change that is newer than `known`; nothing if it was deleted. Safe to drop while waiting.
    pub async fn next(&mut self, api: &Api<Lease>, name: &str, known: Option<String>) -> Option<Lease> {
        // Without a version to start from there is nothing to be told that a look would not tell.
        let Some(known) = known else { return std::future::pending().await };
        loop {
            if self.changes.is_none() {
                self.open(api, name, &known).await;
            }
            let Some(changes) = &mut self.changes else { continue };
            match changes.next().await {
                Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) if newer(&lease, &known) => {
                    return Some(lease);
                }
                Some(Ok(WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Bookmark(_))) => {}
                Some(Ok(WatchEvent::Deleted(lease))) if newer(&lease, &known) => return None,
                Some(Ok(WatchEvent::Deleted(_))) => {}
                Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => {
                    self.changes = None;
                    self.not_before = Some(Instant::now() + PAUSE);
                }
            }
        }
    }

    async fn open(&mut self, api: &Api<Lease>, name: &str, version: &str) {
        if let Some(at) = self.not_before {
            tokio::time::sleep_until(at).await;
        }
        let params = WatchParams::default().fields(&format!("metadata.name={name}"));
        match api.watch(&params, version).await {
            Ok(changes) => self.changes = Some(changes.boxed()),
            Err(error) => {
                tracing::debug!(%error, "the leader's Lease can't be watched");
                self.not_before = Some(Instant::now() + PAUSE);
            }
        }
    }
}

/// Versions are etcd revisions: the larger is the newer.
fn newer(lease: &Lease, known: &str) -> bool {
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    number(&lease.resource_version().unwrap_or_default()) > number(known)
}
