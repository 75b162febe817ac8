//! Runs the operator: watches fill caches and a queue, workers take clusters from it while this process leads, a listener tells how
//! it goes.
//!
//! Never: a reconcile before every cache has been filled once (what has not been listed would be unknown at best); one that goes
//! on after the office is lost; one that is begun after the shutdown, or keeps it waiting for longer than a kubelet does; or the
//! office given back while anybody acts.

use std::sync::Arc;
use std::time::Duration;

use bellwether_runtime::client::REQUEST_TIMEOUT;
use bellwether_runtime::leader::{self, Lost, Office};
use bellwether_runtime::pace::{Pace, paced};
use bellwether_runtime::queue::{Outcome, Queue};
use bellwether_runtime::watch::Key;
use futures::future::join_all;
use kube::Client;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::caches::{Caches, priority};
use crate::events::Events;
use crate::familiar::Familiars;
use crate::listen::{self, ListenError, Listener, Pages};
use crate::metrics::{Corrections, Metrics, Sources};
use crate::port::Kube;
use crate::reconcile::Reconciler;
use crate::settings::Settings;
use crate::vitals::Vitals;

/// Passes that were begun have so long to get to their end once the operator is told to stop; after that they end at their next
/// request. Most take a fraction of a second, and whoever takes over waits for this.
const FINISH: Duration = Duration::from_secs(5);

/// Then the last requests are answered or given up within their own deadline, and a little more for whoever hangs on that. A kubelet
/// gives thirty seconds by default; what is left is for giving back the office.
const LAST_ANSWERS: Duration = Duration::from_secs(REQUEST_TIMEOUT.as_secs() + 1);

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
    let (released, closed) = (CancellationToken::new(), CancellationToken::new());
    let (office, mut campaign) = stand(&client, &settings, &released);
    let mut parts = start(&client, settings, listener, &office, Ends { shutdown: &shutdown, closed: &closed });
    let ended = tokio::select! {
        ended = parts.join_next() => ended_by_itself(ended.transpose()),
        ended = &mut campaign => lost(ended),
        () = shutdown.cancelled() => Ok(()),
    };
    let asked_to = shutdown.is_cancelled();
    shutdown.cancel();
    wind_up(&mut parts, &closed).await;
    // From here on nobody acts. After a loss the campaign is over, and there is nothing to give back.
    released.cancel();
    match ended {
        Err(ended @ RunError::Part(_)) if !asked_to => Err(ended),
        Err(ended @ RunError::Lost(_)) => Err(ended),
        _ => lost(campaign.await),
    }
}

/// Waits for what was begun: to its end first, then to its next request, and then not any more.
async fn wind_up(parts: &mut JoinSet<()>, closed: &CancellationToken) {
    if timeout(FINISH, all(parts)).await.is_ok() {
        return;
    }
    tracing::info!("still working: no more requests are begun");
    closed.cancel();
    if timeout(LAST_ANSWERS, all(parts)).await.is_err() {
        tracing::warn!(parts = parts.len(), "still not ended: given up");
        parts.shutdown().await;
    }
}

async fn all(parts: &mut JoinSet<()>) {
    while parts.join_next().await.is_some() {}
}

/// How the operator ends.
#[derive(Clone, Copy)]
struct Ends<'a> {
    /// Nothing new is begun.
    shutdown: &'a CancellationToken,
    /// No request is begun either.
    closed: &'a CancellationToken,
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
/// already. Everybody but the campaign for the office keeps to one pace.
fn start(
    client: &Client,
    settings: Settings,
    listener: Option<Listener>,
    office: &Office,
    Ends { shutdown, closed }: Ends<'_>,
) -> JoinSet<()> {
    let traffic = settings.listening.as_ref().map(|listening| listening.traffic.clone()).unwrap_or_default();
    let (caches, queue) = (Caches::new(&settings.namespaces), Arc::<Queue<Key>>::default());
    let vitals = Arc::new(Vitals::new(&caches, &settings.namespaces, traffic.clone()));
    let pace = Arc::<Pace>::default();
    let corrections = Corrections::default();
    let metrics = Arc::new(Metrics::new(Sources {
        queue: queue.clone(),
        caches: caches.clone(),
        traffic,
        pace: pace.clone(),
        office: office.clone(),
        corrections: corrections.clone(),
    }));
    let watching = paced(client, &pace, &Office::always());
    let mut parts = JoinSet::new();
    for cache in caches.all() {
        let (cache, queue) = (cache.clone(), queue.clone());
        let (client, namespaces, shutdown) = (watching.clone(), settings.namespaces.clone(), shutdown.clone());
        parts.spawn(cache.run(client, namespaces, move |cache, key| queue.add(key, priority(cache)), shutdown));
    }
    if let Some(listener) = listener {
        let pages = Arc::new(Pages { vitals: vitals.clone(), metrics: metrics.clone() });
        parts.spawn(listen::serve(listener, pages, shutdown.clone()));
    }
    let workers = settings.workers;
    let port = Kube::new(paced(client, &pace, office), office.clone(), closed.clone());
    let reconciler =
        Reconciler { port, caches, settings, events: Events::default(), familiars: Familiars::default(), corrections };
    let shop = Arc::new(Shop { reconciler, queue, pace, vitals, metrics });
    for _ in 0..workers {
        parts.spawn(shop.clone().work(office.clone(), shutdown.clone()));
    }
    parts
}

/// What workers share.
struct Shop {
    reconciler: Reconciler<Kube>,
    queue: Arc<Queue<Key>>,
    pace: Arc<Pace>,
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
        while let Some((key, waited)) = next(&self.queue, &self.pace, &mut office, &shutdown).await {
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

/// The next cluster to work on, and for how long it has been due; nothing after the shutdown, however much is due. While the API
/// server asks to be left alone nothing is taken: every cluster would fail, and wait for its retry long after that is over.
async fn next(
    queue: &Queue<Key>,
    pace: &Pace,
    office: &mut Office,
    shutdown: &CancellationToken,
) -> Option<(Key, Duration)> {
    loop {
        let take = async {
            pace.silence_over().await;
            queue.take().await
        };
        tokio::select! {
            () = shutdown.cancelled() => return None,
            () = office.taken() => {}
        }
        tokio::select! {
            // In this order: chance would begin with one cluster after the other.
            biased;
            () = shutdown.cancelled() => return None,
            () = office.lapsed() => {}
            taken = take => return Some(taken),
        }
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

#[cfg(test)]
mod tests {
    use bellwether_runtime::queue::Priority;

    use super::*;

    /// One part that ends when this does, and how long winding up took.
    async fn wound_up(part: impl Future<Output = ()> + Send + 'static, closed: &CancellationToken) -> Duration {
        let (start, mut parts) = (Instant::now(), JoinSet::new());
        parts.spawn(part);
        wind_up(&mut parts, closed).await;
        assert!(parts.is_empty(), "somebody still acts");
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_that_is_nearly_done_is_finished() {
        let (closed, pass) = (CancellationToken::new(), Duration::from_secs(4));
        assert_eq!(wound_up(tokio::time::sleep(pass), &closed).await, pass);
        assert!(!closed.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_pass_ends_at_its_next_request() {
        let closed = CancellationToken::new();
        let port = closed.clone();
        let pass = async move {
            while !port.is_cancelled() {
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        };
        assert_eq!(wound_up(pass, &closed).await, Duration::from_secs(6));
    }

    #[tokio::test(start_paused = true)]
    async fn what_never_ends_is_given_up_before_a_kubelet_would() {
        let took = wound_up(std::future::pending(), &CancellationToken::new()).await;
        assert_eq!(took, FINISH + LAST_ANSWERS);
        assert!(took < Duration::from_secs(25), "{took:?}");
    }

    #[tokio::test]
    async fn nothing_is_begun_after_the_shutdown_however_much_is_due() {
        let (queue, shutdown) = (Queue::default(), CancellationToken::new());
        for number in 0..64 {
            queue.add(Key { namespace: "shop".into(), name: format!("orders-{number}") }, Priority::Urgent);
        }
        let (pace, mut office) = (Pace::default(), Office::always());
        assert!(next(&queue, &pace, &mut office, &shutdown).await.is_some());
        shutdown.cancel();
        for _ in 0..64 {
            assert_eq!(next(&queue, &pace, &mut office, &shutdown).await, None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_begun_while_the_api_server_asks_to_be_left_alone() {
        let (queue, shutdown) = (Queue::default(), CancellationToken::new());
        let (pace, mut office) = (Pace::default(), Office::always());
        queue.add(Key { namespace: "shop".into(), name: "orders".into() }, Priority::Urgent);
        let pause = Duration::from_secs(30);
        pace.refused(Some(pause));
        let (_, waited) = next(&queue, &pace, &mut office, &shutdown).await.unwrap();
        assert_eq!(waited.as_secs(), pause.as_secs());
    }
}
