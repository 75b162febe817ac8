//! Decides which key is worked on next, and when a failed one is tried again.
//!
//! From: what was added, what is being worked on, how often each key has failed, and the time. Never: the same key twice at
//! once (two reconciles of one cluster would act on each other's half-made world), a key lost that was added while it was
//! being worked on, or a failed key retried in a tight loop.
//!
//! [`Rules`] is pure: time and jitter are arguments. [`Queue`] puts a lock and a wake-up around it.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The first retry: long enough that a conflict or a restarting API server is over, short enough that nobody notices.
pub const FIRST_RETRY: Duration = Duration::from_secs(5);
/// The longest wait between retries: a person who repaired something should not wait longer than this for us to see it.
pub const LAST_RETRY: Duration = Duration::from_secs(300);

/// Who goes first. An entry keeps the highest priority it was added with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// The periodic look for drift.
    Resync,
    /// Something changed.
    #[default]
    Change,
    /// A user changed a spec, or an instance's state changed: somebody waits for it.
    Urgent,
}

/// How working on a key ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// Nothing is left to do until something changes, or until the given time has passed.
    Done(Option<Duration>),
    /// It failed and is worth trying again. The jitter, between 0 and 1, spreads retries of many keys that failed together.
    Retry {
        /// How far into the spread this retry falls.
        jitter: f64,
    },
}

/// How many keys are where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// They could be worked on now.
    pub due: usize,
    /// Their time will come.
    pub later: usize,
    /// They are worked on.
    pub working: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    due: Instant,
    priority: Priority,
    /// Insertion order: first come, first served within a priority.
    order: u64,
}

/// The rules of the queue, without waiting.
#[derive(Debug)]
pub struct Rules<K> {
    waiting: BTreeMap<K, Entry>,
    working: BTreeMap<K, Option<Entry>>,
    failures: BTreeMap<K, Failures>,
    order: u64,
}

/// How often a key has failed in a row, and until when it is to be left alone because of that.
#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    until: Instant,
}

impl<K> Default for Rules<K> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), working: BTreeMap::new(), failures: BTreeMap::new(), order: 0 }
    }
}

impl<K: Ord + Clone> Rules<K> {
    /// Adds `key`, to be worked on from `due`. One that waits already is not added twice: it gets the earlier time and the
    /// higher priority. One that is being worked on waits until that is over.
    pub fn add(&mut self, key: K, due: Instant, priority: Priority) {
        self.order += 1;
        let new = Entry { due, priority, order: self.order };
        match self.working.get_mut(&key) {
            Some(again) => *again = Some(again.map_or(new, |old| merged(old, new))),
            None => {
                self.waiting.entry(key).and_modify(|old| *old = merged(*old, new)).or_insert(new);
            }
        }
    }

    /// The key to work on now, if any is due.
    pub fn next(&mut self, now: Instant) -> Option<K> {
        self.take(now).map(|(key, _)| key)
    }

    /// As [`Rules::next`], and for how long the key has been due.
    pub fn take(&mut self, now: Instant) -> Option<(K, Duration)> {
        let (key, due) = self
            .waiting
            .iter()
            .filter(|(_, entry)| entry.due <= now)
            .min_by_key(|(_, entry)| (std::cmp::Reverse(entry.priority), entry.order))
            .map(|(key, entry)| (key.clone(), entry.due))?;
        self.waiting.remove(&key);
        self.working.insert(key.clone(), None);
        Some((key, now.saturating_duration_since(due)))
    }

    /// How many keys are where.
    pub fn load(&self, now: Instant) -> Load {
        let due = self.waiting.values().filter(|entry| entry.due <= now).count();
        Load { due, later: self.waiting.len() - due, working: self.working.len() }
    }

    /// When the next key falls due.
    pub fn next_due(&self) -> Option<Instant> {
        self.waiting.values().map(|entry| entry.due).min()
    }

    /// Working on `key` is over.
    pub fn finish(&mut self, key: &K, outcome: Outcome, now: Instant) {
        let changed_meanwhile = self.working.remove(key).flatten();
        match outcome {
            Outcome::Done(again) => {
                self.failures.remove(key);
                if let Some(entry) = changed_meanwhile {
                    self.waiting.insert(key.clone(), entry);
                }
                if let Some(after) = again {
                    self.add(key.clone(), now + after, Priority::Resync);
                }
            }
            // A change that came meanwhile doesn't shorten the wait: a reconcile that fails after its first write would
            // otherwise wake itself by that write, for ever and without pause.
            Outcome::Retry { jitter } => {
                let failures = match self.failures.get(key) {
                    // A change brought this try forward. It says nothing of how long to wait: a cluster that comes up makes ten
                    // changes in a second, and would be left alone for minutes after the last of them.
                    Some(early) if now < early.until => *early,
                    last => {
                        let count = last.map_or(0, |last| last.count);
                        Failures { count: count.saturating_add(1), until: now + retry_after(count, jitter) }
                    }
                };
                self.failures.insert(key.clone(), failures);
                let priority = changed_meanwhile.map_or(Priority::Change, |entry| entry.priority);
                self.add(key.clone(), failures.until, priority);
            }
        }
    }

    /// How many keys wait or are worked on.
    pub fn depth(&self) -> usize {
        self.waiting.len() + self.working.len()
    }

    /// How often `key` has failed in a row.
    pub fn failures(&self, key: &K) -> u32 {
        self.failures.get(key).map_or(0, |failures| failures.count)
    }
}

fn merged(old: Entry, new: Entry) -> Entry {
    Entry { due: old.due.min(new.due), priority: old.priority.max(new.priority), order: old.order.min(new.order) }
}

/// Doubles from [`FIRST_RETRY`] to [`LAST_RETRY`]; jitter takes up to a fifth off, so that the bounds hold.
pub fn retry_after(failures: u32, jitter: f64) -> Duration {
    let full = FIRST_RETRY.saturating_mul(1 << failures.min(16)).min(LAST_RETRY);
    full.mul_f64(1.0 - 0.2 * jitter.clamp(0.0, 1.0))
}

/// The queue that workers wait on.
#[derive(Debug)]
pub struct Queue<K> {
    rules: Mutex<Rules<K>>,
    changed: Notify,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self { rules: Mutex::new(Rules::default()), changed: Notify::new() }
    }
}

impl<K: Ord + Clone> Queue<K> {
    /// Adds `key`, to be worked on at once.
    pub fn add(&self, key: K, priority: Priority) {
        self.add_after(key, Duration::ZERO, priority);
    }

    /// Adds `key`, to be worked on after a while.
    pub fn add_after(&self, key: K, after: Duration, priority: Priority) {
        self.locked().add(key, Instant::now() + after, priority);
        self.changed.notify_one();
    }

    /// Waits for a key that is due. Its worker must call [`Queue::finish`]. Safe to drop while waiting.
    pub async fn next(&self) -> K {
        self.take().await.0
    }

    /// As [`Queue::next`], and for how long the key had been due.
    pub async fn take(&self) -> (K, Duration) {
        loop {
            let due = {
                let mut rules = self.locked();
                if let Some(taken) = rules.take(Instant::now()) {
                    // A permit wakes one waiter; the next due key may belong to another.
                    self.changed.notify_one();
                    return taken;
                }
                rules.next_due()
            };
            match due {
                Some(at) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(at) => {}
                        () = self.changed.notified() => {}
                    }
                }
                None => self.changed.notified().await,
            }
        }
    }

    /// Working on `key` is over.
    pub fn finish(&self, key: &K, outcome: Outcome) {
        self.locked().finish(key, outcome, Instant::now());
        self.changed.notify_one();
    }

    /// How many keys wait or are worked on.
    pub fn depth(&self) -> usize {
        self.locked().depth()
    }

    /// How many keys are where.
    pub fn load(&self) -> Load {
        self.locked().load(Instant::now())
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Rules<K>> {
        // The rules are consistent after each call; a worker that panicked while it held the lock left nothing half done.
        self.rules.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seconds(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn a_key_added_twice_is_worked_on_once() {
        let (mut rules, now) = (Rules::default(), Instant::now());
        rules.add("a", now, Priority::Change);
        rules.add("a", now, Priority::Change);
        assert_eq!(rules.next(now), Some("a"));
        rules.finish(&"a", Outcome::Done(None), now);
        assert_eq!(rules.next(now), None);
    }

    #[test]
    fn a_key_is_never_worked_on_twice_at_once_and_no_change_is_lost() {
        let (mut rules, now) = (Rules::default(), Instant::now());
        rules.add("a", now, Priority::Change);
        assert_eq!(rules.next(now), Some("a"));
        rules.add("a", now, Priority::Change);
        assert_eq!(rules.next(now), None);
        rules.finish(&"a", Outcome::Done(None), now);
        assert_eq!(rules.next(now), Some("a"));
    }

    #[test]
    fn urgent_goes_first_and_equals_in_the_order_they_came() {
        let (mut rules, now) = (Rules::default(), Instant::now());
        for (key, priority) in
            [("z", Priority::Resync), ("c", Priority::Change), ("b", Priority::Change), ("u", Priority::Urgent)]
        {
            rules.add(key, now, priority);
        }
        let order: Vec<_> = std::iter::from_fn(|| rules.next(now)).collect();
        assert_eq!(order, ["u", "c", "b", "z"]);
    }

    #[test]
    fn the_load_tells_who_could_be_worked_on_and_for_how_long() {
        let (mut rules, now) = (Rules::default(), Instant::now());
        for (key, due) in [("a", 0), ("b", 5), ("c", 60)] {
            rules.add(key, now + seconds(due), Priority::Change);
        }
        assert_eq!(rules.take(now + seconds(7)), Some(("a", seconds(7))));
        assert_eq!(rules.load(now + seconds(7)), Load { due: 1, later: 1, working: 1 });
    }

    #[test]
    fn failures_back_off_and_success_forgets_them() {
        let (mut rules, mut now) = (Rules::default(), Instant::now());
        rules.add("a", now, Priority::Change);
        for wait in [5, 10, 20, 40, 80, 160, 300, 300] {
            assert_eq!(rules.next(now), Some("a"));
            rules.finish(&"a", Outcome::Retry { jitter: 0.0 }, now);
            assert_eq!(rules.next(now + seconds(wait) - Duration::from_millis(1)), None);
            now += seconds(wait);
        }
        assert_eq!(rules.next(now), Some("a"));
        rules.finish(&"a", Outcome::Done(None), now);
        assert_eq!(rules.failures(&"a"), 0);
    }

    #[test]
    fn a_change_during_a_failing_reconcile_does_not_defeat_the_backoff() {
        let (mut rules, now) = (Rules::default(), Instant::now());
        rules.add("a", now, Priority::Change);
        rules.next(now);
        rules.add("a", now, Priority::Change);
        rules.finish(&"a", Outcome::Retry { jitter: 0.0 }, now);
        assert_eq!(rules.next(now + seconds(4)), None);
        assert_eq!(rules.next(now + seconds(5)), Some("a"));
    }

    #[test]
    fn tries_that_changes_bring_forward_do_not_lengthen_the_wait() {
        let (mut rules, now) = (Rules::default(), Instant::now());
        for second in 0..4 {
            rules.add("a", now + seconds(second), Priority::Urgent);
            assert_eq!(rules.next(now + seconds(second)), Some("a"));
            rules.finish(&"a", Outcome::Retry { jitter: 0.0 }, now + seconds(second));
        }
        assert_eq!(rules.next(now + seconds(4)), None);
        assert_eq!(rules.next(now + seconds(5)), Some("a"), "five seconds from the first failure");
        rules.finish(&"a", Outcome::Retry { jitter: 0.0 }, now + seconds(5));
        assert_eq!(rules.next(now + seconds(14)), None);
        assert_eq!(rules.next(now + seconds(15)), Some("a"), "and ten from the one that waited");
    }

    proptest! {
        #[test]
        fn retries_stay_between_the_bounds(failures in 0u32..200, jitter in -1.0f64..2.0) {
            let wait = retry_after(failures, jitter);
            prop_assert!(wait >= FIRST_RETRY.mul_f64(0.8) && wait <= LAST_RETRY);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_waits_is_woken_by_a_key_that_falls_due() {
        let queue = Queue::default();
        queue.add_after("later", seconds(30), Priority::Change);
        let started = Instant::now();
        assert_eq!(queue.next().await, "later");
        assert_eq!(started.elapsed(), seconds(30));
    }
}
