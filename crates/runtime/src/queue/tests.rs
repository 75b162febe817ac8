//! Queues in virtual time: by hand, with a thousand keys that fail, and with whatever may happen.

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
    assert_eq!(rules.load(now + seconds(7)), Load { due: 1, held: 0, later: 1, working: 1, budget: RETRY_BURST });
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

/// Keys that have all failed at `now`, and come back at the same moment.
fn failing<K: Ord + Copy + std::fmt::Debug>(keys: std::ops::Range<K>, now: Instant) -> Rules<K>
where
    std::ops::Range<K>: Iterator<Item = K>,
{
    let mut rules = Rules::default();
    for key in keys {
        rules.add(key, now, Priority::Change);
        assert_eq!(rules.next(now), Some(key));
        rules.finish(&key, Outcome::Retry { jitter: 0.0 }, now);
    }
    rules
}

#[test]
fn a_thousand_failing_keys_share_one_budget() {
    let start = Instant::now();
    let (mut rules, mut now, mut tries) = (failing(0..1000, start), start, 0);
    while now < start + seconds(60) {
        now = rules.next_due(now).unwrap().max(now);
        let key = rules.next(now).unwrap();
        rules.finish(&key, Outcome::Retry { jitter: 0.0 }, now);
        tries += 1;
    }
    assert_eq!(tries, u128::from(RETRY_BURST) + seconds(55).as_millis() / RETRY_EVERY.as_millis());
}

#[test]
fn who_is_held_is_counted_and_tried_when_the_budget_allows() {
    let start = Instant::now();
    let (mut rules, now) = (failing(0..RETRY_BURST + 2, start), start + FIRST_RETRY);
    let burst = usize::try_from(RETRY_BURST).unwrap();
    assert_eq!(rules.load(now), Load { due: burst, held: 2, later: 0, working: 0, budget: RETRY_BURST });
    while rules.next(now).is_some() {}
    assert_eq!(rules.load(now), Load { due: 0, held: 2, later: 0, working: burst, budget: 0 });
    assert_eq!(rules.next_due(now), Some(now + RETRY_EVERY));
    assert_eq!(rules.next(now + RETRY_EVERY), Some(RETRY_BURST));
    assert_eq!(rules.next(now + RETRY_EVERY), None);
}

#[test]
fn what_something_asks_for_is_never_held() {
    let start = Instant::now();
    let (mut rules, now) = (failing(0..1000, start), start + FIRST_RETRY);
    while rules.next(now).is_some() {}
    rules.add(5000, now, Priority::Resync);
    rules.add(999, now, Priority::Change);
    assert_eq!(rules.next_due(now), Some(now), "a worker that waits must not wait for the budget");
    assert_eq!(rules.next(now), Some(999), "something happened to it since it failed");
    assert_eq!(rules.next(now), Some(5000));
    assert_eq!(rules.next(now), None);
}

#[test]
fn nobody_is_held_for_ever_by_others_that_are_more_urgent() {
    let start = Instant::now();
    let (mut rules, mut now, mut seen) = (failing(0..3000, start), start, false);
    // All but one wake themselves while they are worked on, and fail again.
    while now < start + seconds(3600) {
        now = rules.next_due(now).unwrap().max(now);
        let key = rules.next(now).unwrap();
        if key == 2999 {
            seen = true;
            break;
        }
        rules.add(key, now, Priority::Urgent);
        rules.finish(&key, Outcome::Retry { jitter: 0.0 }, now);
    }
    assert!(seen, "its first retry never came");
}

proptest! {
    #[test]
    fn retries_stay_between_the_bounds(failures in 0u32..200, jitter in -1.0f64..2.0) {
        let wait = retry_after(failures, jitter);
        prop_assert!(wait >= FIRST_RETRY.mul_f64(0.8) && wait <= LAST_RETRY);
    }
}

/// What happens to a queue.
#[derive(Clone, Copy, Debug)]
enum Happens {
    Added(u8, Priority),
    Finished(u8, bool),
    Waited(u16),
}

fn happens() -> impl Strategy<Value = Happens> {
    let priority = prop::sample::select(vec![Priority::Resync, Priority::Change, Priority::Urgent]);
    prop_oneof![
        2 => (0u8..120, priority).prop_map(|(key, priority)| Happens::Added(key, priority)),
        6 => (any::<u8>(), any::<bool>()).prop_map(|(worker, failed)| Happens::Finished(worker, failed)),
        1 => (0u16..400).prop_map(Happens::Waited),
    ]
}

/// A queue with four workers, and what it owes: the keys that were added since they were last taken.
struct Simulated {
    rules: Rules<u8>,
    now: Instant,
    working: Vec<u8>,
    owed: std::collections::BTreeSet<u8>,
    /// When retries were taken that nothing else asked for.
    retried: Vec<Instant>,
}

impl Simulated {
    fn take(&mut self) {
        while self.working.len() < 4 {
            let Some(key) = self.rules.next(self.now) else { break };
            assert!(!self.working.contains(&key), "{key} is worked on twice");
            if !self.owed.remove(&key) {
                self.retried.push(self.now);
            }
            self.working.push(key);
        }
    }

    fn finish(&mut self, worker: usize, outcome: Outcome) {
        if !self.working.is_empty() {
            let key = self.working.swap_remove(worker % self.working.len());
            self.rules.finish(&key, outcome, self.now);
        }
    }

    fn step(&mut self, happens: Happens) {
        match happens {
            Happens::Added(key, priority) => {
                self.rules.add(key, self.now, priority);
                self.owed.insert(key);
            }
            Happens::Finished(worker, true) => self.finish(worker.into(), Outcome::Retry { jitter: 0.5 }),
            Happens::Finished(worker, false) => self.finish(worker.into(), Outcome::Done(None)),
            Happens::Waited(milliseconds) => self.now += Duration::from_millis(milliseconds.into()),
        }
        self.take();
    }
}

proptest! {
    #[test]
    fn whatever_happens_no_change_is_lost_and_retries_stay_in_their_budget(
        story in prop::collection::vec(happens(), 1..600),
    ) {
        let failed = Instant::now();
        let (rules, start) = (failing(0..120, failed), failed + FIRST_RETRY);
        let (working, owed, retried) = Default::default();
        let mut world = Simulated { rules, now: start, working, owed, retried };
        for happens in story {
            world.step(happens);
        }
        for (number, at) in world.retried.iter().enumerate() {
            let allowed = u128::from(RETRY_BURST) + (*at - start).as_nanos() / RETRY_EVERY.as_nanos();
            prop_assert!((number as u128) < allowed, "retry {number} came after {:?}", *at - start);
        }
        // Nothing fails any more: everything that is owed is worked on, without anything new happening.
        while world.rules.depth() > 0 {
            while !world.working.is_empty() {
                world.finish(0, Outcome::Done(None));
                world.take();
            }
            world.now = world.rules.next_due(world.now).map_or(world.now, |due| due.max(world.now));
            world.take();
        }
        prop_assert!(world.owed.is_empty(), "{:?} were never worked on", world.owed);
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
