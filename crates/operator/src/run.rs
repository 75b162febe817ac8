//! Runs the operator: watches fill caches and a queue, workers take clusters from it while this process leads, a listener tells how
//! it goes.
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
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::caches::{Caches, priority};
use crate::events::Events;
use crate::familiar::Familiars;
use crate::listen::{self, ListenError, Listener, Pages};
use crate::metrics::{Metrics, Sources};
use crate::port::Kube;
use crate::reconcile::Reconciler;
use crate::settings::Settings;
use crate::vitals::Vitals;

/// Why the operator stopped although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A task ended or panicked: half an operator is worse than none, so all of it ends.
    #[error("a part of the operator ended unexpectedly: {0}")]
    Part(String),
    /// The listener could not be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Another operator leads. This one stopped at once; started again, it waits for its turn.
    #[error(transparent)]
    Lost(#[from] Lost),
}

/// Runs until `shutdown`. Work that was begun is finished first, then the office is given back.
pub async fn run(client: Client, settings: Settings, shutdown: CancellationToken) -> Result<(), RunError> {
    let listener = match &settings.listening {
        Some(listening) => Some(listen::bind(listening).await?),
        None => None,
    };
    let released = CancellationToken::new();
    let (office, mut campaign) = stand(&client, &settings, &released);
    let mut parts = start(&client, settings, listener, &office, &shutdown);
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

/// Watches, workers and the listener. The caches are filled before there is an office to hold: who takes over knows everything
/// already.
fn start(
    client: &Client,
    settings: Settings,
    listener: Option<Listener>,
    office: &Office,
    shutdown: &CancellationToken,
) -> JoinSet<()> {
    let traffic = settings.listening.as_ref().map(|listening| listening.traffic.clone()).unwrap_or_default();
    let (caches, queue) = (Caches::new(&settings.namespaces), Arc::<Queue<Key>>::default());
    let vitals = Arc::new(Vitals::new(&caches, &settings.namespaces, traffic.clone()));
    let sources = Sources { queue: queue.clone(), caches: caches.clone(), traffic, office: office.clone() };
    let metrics = Arc::new(Metrics::new(sources));
    let mut parts = JoinSet::new();
    for cache in caches.all() {
        let (cache, queue) = (cache.clone(), queue.clone());
        let (client, namespaces, shutdown) = (client.clone(), settings.namespaces.clone(), shutdown.clone());
        parts.spawn(cache.run(client, namespaces, move |cache, key| queue.add(key, priority(cache)), shutdown));
    }
    if let Some(listener) = listener {
        let pages = Arc::new(Pages { vitals: vitals.clone(), metrics: metrics.clone() });
        parts.spawn(listen::serve(listener, pages, shutdown.clone()));
    }
    let workers = settings.workers;
    let port = Kube::new(client.clone(), office.clone());
    let reconciler = Reconciler { port, caches, settings, events: Events::default(), familiars: Familiars::default() };
    let shop = Arc::new(Shop { reconciler, queue, vitals, metrics });
    for _ in 0..workers {
        parts.spawn(shop.clone().work(office.clone(), shutdown.clone()));
    }
    parts
}

/// What workers share.
struct Shop {
    reconciler: Reconciler<Kube>,
    queue: Arc<Queue<Key>>,
    vitals: Arc<Vitals>,
    metrics: Arc<Metrics>,
}

impl Shop {
    /// One worker, until the shutdown.
    async fn work(self: Arc<Self>, mut office: Office, shutdown: CancellationToken) {
        let filled = join_all(self.reconciler.caches.all().map(|cache| cache.completed()));
        tokio::select! {
            _ = filled => {}
            () = shutdown.cancelled() => return,
        }
        loop {
            tokio::select! {
                () = office.taken() => {}
                () = shutdown.cancelled() => return,
            }
            let (key, waited) = tokio::select! {
                taken = self.queue.take() => taken,
                () = office.lapsed() => continue,
                () = shutdown.cancelled() => return,
            };
            self.metrics.taken(waited);
            let span = tracing::info_span!("reconcile", cluster = %key, reconcile = %reconcile_id());
            let outcome = tokio::select! {
                biased;
                // Whoever leads next may begin soon: this pass ends where it is. What it left undone, the next one sees.
                () = office.lapsed() => Outcome::Done(Some(Duration::ZERO)),
                outcome = self.pass(&key).instrument(span) => outcome,
            };
            self.queue.finish(&key, outcome);
        }
    }

    async fn pass(&self, key: &Key) -> Outcome {
        let (_begun, start) = (self.vitals.begin(key), Instant::now());
        let ended = self.reconciler.pass(key).await;
        self.metrics.passed(start.elapsed(), ended.as_ref().map(drop));
        self.reconciler.outcome(&ended)
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
