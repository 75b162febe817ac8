//! Decides whether the operator is alive and whether it is ready, from when it was last seen to do something.
//!
//! Alive: every watch was begun or tried within the time in which it must be, and no pass takes for ever. Who is not is restarted by
//! the kubelet, so what a restart can't repair is no reason: an API server that is down makes watches fail and be tried again, which is
//! alive. Ready: every kind has been listed once; who waits for its turn to lead is ready to. Never: dead because of the API server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether_runtime::traffic::Traffic;
use bellwether_runtime::watch::{Key, Namespaces, WATCH_ENDS_AFTER};
use tokio::time::Instant;

use crate::caches::Caches;

/// A watch is begun anew when the API server ends it, and after the watcher's own limit for silence; then there may be a pause after
/// failures of up to half a minute. Twice as long as the API server needs is longer than all that.
pub const WATCH_SILENT_AFTER: Duration = Duration::from_secs(2 * WATCH_ENDS_AFTER as u64);

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
        let watches = self.paths.iter().map(|path| (path, self.traffic.last_look(path).unwrap_or(self.started)));
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

fn judge<'a>(
    watches: impl Iterator<Item = (&'a String, Instant)>,
    passes: impl Iterator<Item = (&'a Key, &'a Instant)>,
    now: Instant,
) -> Vec<Ailment> {
    let watches = watches
        .map(|(path, at)| Ailment::Watch { path: path.clone(), silent: now.saturating_duration_since(at) })
        .filter(|ailment| matches!(ailment, Ailment::Watch { silent, .. } if *silent > WATCH_SILENT_AFTER));
    let passes = passes
        .map(|(key, at)| Ailment::Pass { cluster: key.clone(), taken: now.saturating_duration_since(*at) })
        .filter(|ailment| matches!(ailment, Ailment::Pass { taken, .. } if *taken > PASS_STUCK_AFTER));
    watches.chain(passes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn one_watch_that_stalls_among_others_is_noticed_and_named() {
        let start = Instant::now();
        let (pods, leases) = ("/api/v1/pods".to_owned(), "/apis/coordination.k8s.io/v1/leases".to_owned());
        let looked = |at: Duration| [(&pods, start), (&leases, start + at)].into_iter();
        assert_eq!(judge(looked(seconds(290)), std::iter::empty(), start + seconds(300)), []);
        let ailments = judge(looked(seconds(580)), std::iter::empty(), start + seconds(600));
        assert_eq!(ailments, [Ailment::Watch { path: pods.clone(), silent: seconds(600) }]);
        assert!(ailments[0].to_string().contains("/api/v1/pods"), "{}", ailments[0]);
    }

    #[test]
    fn a_pass_that_never_ends_is_noticed_and_one_that_is_slow_is_not() {
        let (start, key) = (Instant::now(), Key { namespace: "shop".into(), name: "orders".into() });
        let at = |now| judge(std::iter::empty(), [(&key, &start)].into_iter(), now);
        assert_eq!(at(start + seconds(600)), []);
        assert_eq!(at(start + seconds(901)), [Ailment::Pass { cluster: key.clone(), taken: seconds(901) }]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_that_was_dropped_is_over() {
        let namespaces = Namespaces::All;
        let vitals = Vitals::new(&Caches::new(&namespaces), &namespaces, Arc::default());
        let key = Key { namespace: "shop".into(), name: "orders".into() };
        drop(vitals.begin(&key));
        let _second = vitals.begin(&key);
        tokio::time::advance(PASS_STUCK_AFTER - seconds(1)).await;
        assert!(vitals.ailments().iter().all(|ailment| matches!(ailment, Ailment::Watch { .. })));
        assert_eq!(vitals.unlisted().len(), 12, "nothing was listed yet");
    }
}
