//! Decides which key is worked on next, and when a failed one is tried again.
//!
//! From: what was added, what is being worked on, how often each key has failed, and the time. Never: the same key twice at
//! once (two reconciles of one cluster would act on each other's half-made world), a key lost that was added while it was
//! being worked on, a failed key retried in a tight loop, or so many failed keys retried at once that they are the next failure.
//!
//! Retries of all keys share a budget. Who is due and finds it empty is held, and those go first who have been due the longest:
//! whoever comes back after them falls due later, so nobody is held for ever. Work that something asked for is never held.
//!
//! [`Rules`] is pure: time and jitter are arguments. [`Queue`] puts a lock and a wake-up around it.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::bucket::Bucket;

/// The first retry: long enough that a conflict or a restarting API server is over, short enough that nobody notices.
pub const FIRST_RETRY: Duration = Duration::from_secs(5);
/// The longest wait between retries: a person who repaired something should not wait longer than this for us to see it.
pub const LAST_RETRY: Duration = Duration::from_secs(300);
/// Retries of all keys together, one each so often. A thousand keys that fail for good come back four times a second between
/// them: the budget holds back the beginning of a storm and keeps up with what is left of it.
pub const RETRY_EVERY: Duration = Duration::from_millis(200);
/// So many retries may come at once: a node that is lost fails some tens of clusters, none of which should wait for another.
pub const RETRY_BURST: u32 = 50;

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
    /// They could be tried again now, but for the budget of retries.
    pub held: usize,
    /// Their time will come.
    pub later: usize,
    /// They are worked on.
    pub working: usize,
    /// So many retries may begin now.
    pub budget: u32,
}

/// Why a key is worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    /// Nothing but an earlier failure.
    Failure,
    /// Something asks for it.
    Fresh,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    due: Instant,
    priority: Priority,
    cause: Cause,
    /// Insertion order: first come, first served within a priority.
    order: u64,
}

/// The rules of the queue, without waiting.
#[derive(Debug)]
pub struct Rules<K> {
    waiting: BTreeMap<K, Entry>,
    working: BTreeMap<K, Option<Entry>>,
    failures: BTreeMap<K, Failures>,
    budget: Bucket,
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
        Self {
            waiting: BTreeMap::new(),
            working: BTreeMap::new(),
            failures: BTreeMap::new(),
            budget: Bucket::new(RETRY_BURST, RETRY_EVERY),
            order: 0,
        }
    }
}

impl<K: Ord + Clone> Rules<K> {
    /// Adds `key`, to be worked on from `due`. One that waits already is not added twice: it gets the earlier time and the
    /// higher priority. One that is being worked on waits until that is over.
    pub fn add(&mut self, key: K, due: Instant, priority: Priority) {
        self.insert(key, due, priority, Cause::Fresh);
    }

    fn insert(&mut self, key: K, due: Instant, priority: Priority, cause: Cause) {
        self.order += 1;
        let new = Entry { due, priority, cause, order: self.order };
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
        let (key, entry) = self.first(now).map(|(key, entry)| (key.clone(), *entry))?;
        if entry.cause == Cause::Failure && !self.budget.take(now) {
            return None;
        }
        self.waiting.remove(&key);
        self.working.insert(key.clone(), None);
        Some((key, now.saturating_duration_since(entry.due)))
    }

    /// Who goes first of those that are due and not held. Of the retries it is the one that has been due the longest, whatever its
    /// priority: while the budget is short, urgent ones would come back again and again before the others.
    fn first(&self, now: Instant) -> Option<(&K, &Entry)> {
        let due = |cause| self.waiting.iter().filter(move |(_, entry)| entry.cause == cause && entry.due <= now);
        let turn = |entry: &Entry| (std::cmp::Reverse(entry.priority), entry.order);
        let fresh = due(Cause::Fresh).min_by_key(|(_, entry)| turn(entry));
        let may_retry = self.budget.left(now) > 0;
        let retry = due(Cause::Failure).filter(|_| may_retry).min_by_key(|(_, entry)| (entry.due, entry.order));
        fresh.into_iter().chain(retry).min_by_key(|(_, entry)| turn(entry))
    }

    /// How many keys are where.
    pub fn load(&self, now: Instant) -> Load {
        let (budget, due) = (self.budget.left(now), self.waiting.values().filter(|entry| entry.due <= now));
        let (retries, fresh): (Vec<&Entry>, Vec<&Entry>) = due.partition(|entry| entry.cause == Cause::Failure);
        let allowed = retries.len().min(usize::try_from(budget).unwrap_or(usize::MAX));
        Load {
            due: fresh.len() + allowed,
            held: retries.len() - allowed,
            later: self.waiting.len() - fresh.len() - retries.len(),
            working: self.working.len(),
            budget,
        }
    }

    /// When the next key may be taken.
    pub fn next_due(&self, now: Instant) -> Option<Instant> {
        let budget = self.budget.ready_at(now);
        let at = |entry: &Entry| match entry.cause {
            Cause::Fresh => entry.due,
            Cause::Failure => entry.due.max(budget),
        };
        self.waiting.values().map(at).min()
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
                self.insert(key.clone(), failures.until, priority, Cause::Failure);
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
    Entry {
        due: old.due.min(new.due),
        priority: old.priority.max(new.priority),
        cause: old.cause.max(new.cause),
        order: old.order.min(new.order),
    }
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
                rules.next_due(Instant::now())
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
