//! Runs the operator: watches fill caches and a queue, workers take clusters from it while this process leads.
//!
//! Never: a reconcile before every cache has been filled once (what has not been listed would be unknown at best); one that goes
//! on after the office is lost; one that outlives an orderly shutdown unfinished; or the office given back while anybody acts.

use std::sync::Arc;
use std::time::Duration;

use bellwether_runtime::leader::{self, Lost, Office};
use bellwether_runtime::queue::{Outcome, Queue};
use bellwether_runtime::watch::Key;
use futures::future::join_all;
use kube::Client;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
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
    /// Another operator leads. This one stopped at once; started again, it waits for its turn.
    #[error(transparent)]
    Lost(#[from] Lost),
}

/// Runs until `shutdown`. Work that was begun is finished first, then the office is given back.
pub async fn run(client: Client, settings: Settings, shutdown: CancellationToken) -> Result<(), RunError> {
    let released = CancellationToken::new();
    let (office, mut campaign) = stand(&client, &settings, &released);
    let mut parts = start(&client, settings, &office, &shutdown);
    let ended = tokio::select! {
        ended = parts.join_next() => ended_by_itself(ended.transpose()),
        ended = &mut campaign => lost(ended),
        () = shutdown.cancelled() => Ok(()),
    };
    let asked_to = shutdown.is_cancelled();
    shutdown.cancel();
    while parts.join_next().await.is_some() {}
    // From here on nobody acts. After a loss the campaign is over, and there is nothing to give back.
    released.cancel();
    match ended {
        Err(ended @ RunError::Part(_)) if !asked_to => Err(ended),
        Err(ended @ RunError::Lost(_)) => Err(ended),
        _ => lost(campaign.await),
    }
}

type Campaign = AbortOnDropHandle<Result<(), Lost>>;

/// Tries for the office, if there are others who do.
fn stand(client: &Client, settings: &Settings, released: &CancellationToken) -> (Office, Campaign) {
    let released = released.clone();
    match settings.election.clone() {
        Some(election) => {
            let (keeper, office) = Office::vacant();
            let campaign = leader::campaign(client.clone(), election, keeper, released);
            (office, AbortOnDropHandle::new(tokio::spawn(campaign)))
        }
        None => {
            let nobody_else = async move {
                released.cancelled().await;
                Ok(())
            };
            (Office::always(), AbortOnDropHandle::new(tokio::spawn(nobody_else)))
        }
    }
}

/// Watches and workers. The caches are filled before there is an office to hold: who takes over knows everything already.
fn start(client: &Client, settings: Settings, office: &Office, shutdown: &CancellationToken) -> JoinSet<()> {
    let caches = Caches::new(&settings.namespaces);
    let queue: Arc<Queue<Key>> = Arc::default();
    let mut parts = JoinSet::new();
    for cache in caches.all() {
        let (cache, queue) = (cache.clone(), queue.clone());
        let (client, namespaces, shutdown) = (client.clone(), settings.namespaces.clone(), shutdown.clone());
        parts.spawn(cache.run(client, namespaces, move |cache, key| queue.add(key, priority(cache)), shutdown));
    }
    let workers = settings.workers;
    let port = Kube::new(client.clone(), office.clone());
    let reconciler = Arc::new(Reconciler { port, caches, settings, events: Events::default() });
    for _ in 0..workers {
        parts.spawn(work(reconciler.clone(), queue.clone(), office.clone(), shutdown.clone()));
    }
    parts
}

async fn work(
    reconciler: Arc<Reconciler<Kube>>,
    queue: Arc<Queue<Key>>,
    mut office: Office,
    shutdown: CancellationToken,
) {
    let filled = join_all(reconciler.caches.all().map(|cache| cache.completed()));
    tokio::select! {
        _ = filled => {}
        () = shutdown.cancelled() => return,
    }
    loop {
        tokio::select! {
            () = office.taken() => {}
            () = shutdown.cancelled() => return,
        }
        let key = tokio::select! {
            key = queue.next() => key,
            () = office.lapsed() => continue,
            () = shutdown.cancelled() => return,
        };
        let span = tracing::info_span!("reconcile", cluster = %key, reconcile = %reconcile_id());
        let outcome = tokio::select! {
            biased;
            // Whoever leads next may begin soon: this pass ends where it is. What it left undone, the next one sees.
            () = office.lapsed() => Outcome::Done(Some(Duration::ZERO)),
            outcome = reconciler.reconcile(&key).instrument(span) => outcome,
        };
        queue.finish(&key, outcome);
    }
}

/// No part ends before it is told to.
fn ended_by_itself(ended: Result<Option<()>, JoinError>) -> Result<(), RunError> {
    Err(RunError::Part(ended.err().map_or("it returned".to_owned(), |error| error.to_string())))
}

fn lost(ended: Result<Result<(), Lost>, JoinError>) -> Result<(), RunError> {
    match ended {
        Ok(ended) => Ok(ended?),
        Err(error) => Err(RunError::Part(error.to_string())),
    }
}

/// Eight hexadecimal digits that tie log lines of one pass together.
fn reconcile_id() -> String {
    let mut bytes = [0u8; 4];
    // An id that repeats is a nuisance in a log and nothing else.
    let _ = getrandom::fill(&mut bytes);
    format!("{:08x}", u32::from_le_bytes(bytes))
}
