//! Runs the operator: watches fill caches and a queue, workers take clusters from it.
//!
//! Never: a reconcile before every cache has been filled once (what has not been listed would be unknown at best), or one that
//! outlives the shutdown unfinished.

use std::sync::Arc;

use bellwether_runtime::queue::Queue;
use bellwether_runtime::watch::Key;
use futures::future::join_all;
use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::caches::{Caches, priority};
use crate::events::Events;
use crate::port::Kube;
use crate::reconcile::Reconciler;
use crate::settings::Settings;

/// Why the operator stopped although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A task ended or panicked: half an operator is worse than none, so all of it ends.
    #[error("a part of the operator ended unexpectedly: {0}")]
    Part(String),
}

/// Runs until `shutdown`. Work that was begun is finished first.
pub async fn run(client: Client, settings: Settings, shutdown: CancellationToken) -> Result<(), RunError> {
    let caches = Caches::new(&settings.namespaces);
    let queue: Arc<Queue<Key>> = Arc::default();
    let mut parts = JoinSet::new();
    for cache in caches.all() {
        let (cache, queue) = (cache.clone(), queue.clone());
        let (client, namespaces, shutdown) = (client.clone(), settings.namespaces.clone(), shutdown.clone());
        parts.spawn(cache.run(client, namespaces, move |cache, key| queue.add(key, priority(cache)), shutdown));
    }
    let workers = settings.workers;
    let port = Kube::new(client);
    let reconciler = Arc::new(Reconciler { port, caches, settings, events: Events::default() });
    for _ in 0..workers {
        parts.spawn(work(reconciler.clone(), queue.clone(), shutdown.clone()));
    }
    let ended = tokio::select! {
        ended = parts.join_next() => ended,
        () = shutdown.cancelled() => None,
    };
    let asked_to = shutdown.is_cancelled();
    shutdown.cancel();
    while parts.join_next().await.is_some() {}
    match ended {
        Some(ended) if !asked_to => {
            Err(RunError::Part(ended.err().map_or("it returned".to_owned(), |error| error.to_string())))
        }
        _ => Ok(()),
    }
}

async fn work(reconciler: Arc<Reconciler<Kube>>, queue: Arc<Queue<Key>>, shutdown: CancellationToken) {
    let filled = join_all(reconciler.caches.all().map(|cache| cache.completed()));
    tokio::select! {
        _ = filled => {}
        () = shutdown.cancelled() => return,
    }
    loop {
        let key = tokio::select! {
            key = queue.next() => key,
            () = shutdown.cancelled() => return,
        };
        let span = tracing::info_span!("reconcile", cluster = %key, reconcile = %reconcile_id());
        let outcome = reconciler.reconcile(&key).instrument(span).await;
        queue.finish(&key, outcome);
    }
}

/// Eight hexadecimal digits that tie log lines of one pass together.
fn reconcile_id() -> String {
    let mut bytes = [0u8; 4];
    // An id that repeats is a nuisance in a log and nothing else.
    let _ = getrandom::fill(&mut bytes);
    format!("{:08x}", u32::from_le_bytes(bytes))
}
