//! Decides whether the operator is alive and whether it is ready, from when it was last seen to do something.
//!
//! Alive: every watch was begun or tried within the time in which it must be, is heard of when it is begun again because it was
//! silent, and no pass takes for ever. Who is not is restarted by the kubelet, so what a restart can't repair is no reason: an API server that is down makes watches fail and be tried again, which is
//! alive. Ready: every kind has been listed once; who waits for its turn to lead is ready to. Never: dead because of the API server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether_runtime::traffic::Traffic;
use bellwether_runtime::watch::{Key, Namespaces, WATCH_ENDS_AFTER};
use tokio::time::Instant;

use crate::caches::Caches;

/// A watch is begun anew when the API server ends it, and when it was silent for longer; then there may be a pause after failures of
/// up to half a minute, and one of a minute if the API server asked for it. Twice as long as the API server needs is longer than all
/// that.
pub const WATCH_UNTRIED_AFTER: Duration = Duration::from_secs(2 * WATCH_ENDS_AFTER as u64);

/// So many watches in a row that were accepted and then silent, each for two minutes. Twice is an API server that is being replaced
/// behind a load balancer; three times is something that beginning again does not help, and a new process may.
pub const SILENCES: u32 = 3;

/// A pass makes at most some sixty requests, one after the other, each answered or given up within fifteen seconds.
pub const PASS_STUCK_AFTER: Duration = Duration::from_secs(15 * 60);

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ailment {
    /// A watch neither runs nor is tried.
    #[error("the watch of {path} has not been begun anew for {} s", .silent.as_secs())]
    Watch {
        /// What it watches.
        path: String,
        /// For how long nothing was heard of it.
        silent: Duration,
    },
    /// A watch is begun again and again, and nothing is heard of it.
    #[error("the watch of {path} was begun {times} times in a row and nothing was heard")]
    Silence {
        /// What it watches.
        path: String,
        /// How often.
        times: u32,
    },
    /// A pass does not end.
    #[error("the pass over {cluster} has taken {} s", .taken.as_secs())]
    Pass {
        /// The cluster.
        cluster: Key,
        /// For how long.
        taken: Duration,
    },
}

/// Where the parts of the operator leave their signs of life.
#[derive(Debug)]
pub struct Vitals {
    started: Instant,
    traffic: Arc<Traffic>,
    paths: Vec<String>,
    caches: Caches,
    passes: Mutex<BTreeMap<Key, Instant>>,
}

impl Vitals {
    /// Of an operator that starts now.
    pub fn new(caches: &Caches, namespaces: &Namespaces, traffic: Arc<Traffic>) -> Self {
        let paths = caches.all().flat_map(|cache| cache.paths(namespaces)).collect();
        Self { started: Instant::now(), traffic, paths, caches: caches.clone(), passes: Mutex::default() }
    }

    /// A pass begins. It is over when what is returned is dropped, however it ends.
    pub fn begin(&self, cluster: &Key) -> Begun<'_> {
        self.passes().insert(cluster.clone(), Instant::now());
        Begun { vitals: self, cluster: cluster.clone() }
    }

    /// Whatever a restart would repair.
    pub fn ailments(&self) -> Vec<Ailment> {
        let watches = self.paths.iter().map(|path| Watched {
            path,
            tried: self.traffic.last_look(path).unwrap_or(self.started),
            silences: self.traffic.silences(path),
        });
        judge(watches, self.passes().iter(), Instant::now())
    }

    /// The kinds that have not been listed yet.
    pub fn unlisted(&self) -> Vec<String> {
        let missing = self.caches.all().filter(|cache| !cache.complete());
        missing.map(|cache| cache.resource.plural.clone()).collect()
    }

    fn passes(&self) -> MutexGuard<'_, BTreeMap<Key, Instant>> {
        self.passes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pass that has begun.
#[derive(Debug)]
pub struct Begun<'a> {
    vitals: &'a Vitals,
    cluster: Key,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.vitals.passes().remove(&self.cluster);
    }
}

/// What is known of a watch.
#[derive(Clone, Copy, Debug)]
struct Watched<'a> {
    path: &'a String,
    /// When it was last begun, or tried to.
    tried: Instant,
    /// How often in a row it was silent for too long.
    silences: u32,
}

impl Watched<'_> {
    fn ailment(self, now: Instant) -> Option<Ailment> {
        let (path, silent) = (self.path.clone(), now.saturating_duration_since(self.tried));
        if silent > WATCH_UNTRIED_AFTER {
            return Some(Ailment::Watch { path, silent });
        }
        (self.silences >= SILENCES).then_some(Ailment::Silence { path, times: self.silences })
    }
}

fn judge<'a>(
    watches: impl Iterator<Item = Watched<'a>>,
    passes: impl Iterator<Item = (&'a Key, &'a Instant)>,
    now: Instant,
) -> Vec<Ailment> {
    let watches = watches.filter_map(|watch| watch.ailment(now));
    let passes = passes
        .map(|(key, at)| Ailment::Pass { cluster: key.clone(), taken: now.saturating_duration_since(*at) })
        .filter(|ailment| matches!(ailment, Ailment::Pass { taken, .. } if *taken > PASS_STUCK_AFTER));
    watches.chain(passes).collect()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bellwether_runtime::traffic::Observed;
    use http_body_util::combinators::UnsyncBoxBody;
    use http_body_util::{BodyExt, Full, StreamBody};
    use hyper::body::{Bytes, Frame};
    use hyper::{Request, Response};
    use kube::Client;
    use kube::client::{Body, ClientBuilder};
    use tokio::task::JoinSet;
    use tokio_util::sync::CancellationToken;

    use super::*;

    fn seconds(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn note_10_one_watch_that_stalls_among_others_is_noticed_and_named() {
        let start = Instant::now();
        let (pods, leases) = ("/api/v1/pods".to_owned(), "/apis/coordination.k8s.io/v1/leases".to_owned());
        let tried = |path, tried| Watched { path, tried, silences: 0 };
        let looked = |at: Duration| [tried(&pods, start), tried(&leases, start + at)].into_iter();
        assert_eq!(judge(looked(seconds(120)), std::iter::empty(), start + seconds(215)), []);
        let ailments = judge(looked(seconds(240)), std::iter::empty(), start + seconds(241));
        assert_eq!(ailments, [Ailment::Watch { path: pods.clone(), silent: seconds(241) }]);
        assert!(ailments[0].to_string().contains("/api/v1/pods"), "{}", ailments[0]);
    }

    #[test]
    fn note_10_a_watch_that_is_begun_again_and_again_and_never_heard_of_is_noticed() {
        let (now, pods) = (Instant::now(), "/api/v1/pods".to_owned());
        let silent =
            |silences| judge([Watched { path: &pods, tried: now, silences }].into_iter(), std::iter::empty(), now);
        assert_eq!(silent(SILENCES - 1), []);
        assert_eq!(silent(SILENCES), [Ailment::Silence { path: pods.clone(), times: SILENCES }]);
    }

    #[test]
    fn a_pass_that_never_ends_is_noticed_and_one_that_is_slow_is_not() {
        let (start, key) = (Instant::now(), Key { namespace: "shop".into(), name: "orders".into() });
        let at = |now| judge(std::iter::empty(), [(&key, &start)].into_iter(), now);
        assert_eq!(at(start + seconds(600)), []);
        assert_eq!(at(start + seconds(901)), [Ailment::Pass { cluster: key.clone(), taken: seconds(901) }]);
    }

    /// A client whose server lists nothing, accepts every watch, and then says nothing.
    fn stalling(traffic: &Arc<Traffic>) -> Client {
        let answer = tower::service_fn(|request: Request<Body>| async move {
            let body: UnsyncBoxBody<Bytes, Infallible> = if request.uri().to_string().contains("watch=true") {
                StreamBody::new(futures::stream::pending::<Result<Frame<Bytes>, _>>()).boxed_unsync()
            } else {
                let list = r#"{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[]}"#;
                Full::new(Bytes::from(list)).boxed_unsync()
            };
            Ok::<_, Infallible>(Response::new(body))
        });
        ClientBuilder::new(answer, "default").with_layer(&Observed(traffic.clone())).build()
    }

    #[tokio::test(start_paused = true)]
    async fn note_10_watches_that_stall_are_begun_again_and_in_the_end_the_process_is() {
        let (namespaces, traffic) = (Namespaces::All, Arc::<Traffic>::default());
        let (caches, client) = (Caches::new(&namespaces), stalling(&traffic));
        let vitals = Vitals::new(&caches, &namespaces, traffic);
        let mut watches = JoinSet::new();
        for cache in caches.all() {
            let run = cache.clone().run(client.clone(), namespaces.clone(), |_, _| {}, CancellationToken::new());
            watches.spawn(run);
        }
        tokio::time::sleep(seconds(300)).await;
        assert_eq!(vitals.ailments(), [], "it was begun again twice, which may help");
        tokio::time::sleep(seconds(300)).await;
        let silent = vitals.ailments().into_iter().filter(|ailment| matches!(ailment, Ailment::Silence { .. })).count();
        assert_eq!(silent, caches.all().count(), "{:?}", vitals.ailments());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_that_was_dropped_is_over() {
        let namespaces = Namespaces::All;
        let caches = Caches::new(&namespaces);
        let vitals = Vitals::new(&caches, &namespaces, Arc::default());
        let key = Key { namespace: "shop".into(), name: "orders".into() };
        drop(vitals.begin(&key));
        let _second = vitals.begin(&key);
        tokio::time::advance(PASS_STUCK_AFTER - seconds(1)).await;
        assert!(vitals.ailments().iter().all(|ailment| matches!(ailment, Ailment::Watch { .. })));
        assert_eq!(vitals.unlisted().len(), caches.all().count(), "nothing was listed yet");
    }
}
