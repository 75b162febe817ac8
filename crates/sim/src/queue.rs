//! What happens next: events by virtual time, and in the order of their making where the time is the same.
//!
//! Nearly all that is to come is due within a second, at one of a thousand milliseconds: so what is due soon waits in a ring with a place
//! for each of them, and only what is due later in a heap.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Milliseconds since the run began. The world's own time; no machine's clock shows it.
pub type Time = u64;

/// How many milliseconds ahead the ring reaches.
const AHEAD: Time = 1_024;
/// As many bits make as many places.
const WORDS: usize = AHEAD as usize / 64;

/// Events to come. Those are large, and a heap moves what is in it about: so it holds their times and places only.
pub struct Queue<T> {
    /// What is due before [`AHEAD`] from now, in the order of its making, by its time within the ring.
    ring: Vec<VecDeque<T>>,
    /// Which places of the ring have something, one bit each.
    taken: [u64; WORDS],
    /// Up to when everything has happened.
    now: Time,
    /// When, which of those made, and where it is.
    later: BinaryHeap<Reverse<(Time, u64, usize)>>,
    events: Vec<Option<T>>,
    free: Vec<usize>,
    number: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        let ring = (0..AHEAD).map(|_| VecDeque::new()).collect();
        Self {
            ring,
            taken: [0; WORDS],
            now: 0,
            later: BinaryHeap::new(),
            events: Vec::new(),
            free: Vec::new(),
            number: 0,
        }
    }
}

impl<T> Queue<T> {
    /// `what` happens at `at`, or now where that has passed.
    pub fn push(&mut self, at: Time, what: T) {
        self.number += 1;
        let at = at.max(self.now);
        if at < self.now + AHEAD {
            return self.put(at, what);
        }
        let place = self.free.pop().unwrap_or(self.events.len());
        match self.events.get_mut(place) {
            Some(event) => *event = Some(what),
            None => self.events.push(Some(what)),
        }
        self.later.push(Reverse((at, self.number, place)));
    }

    /// What happens next, and when.
    pub fn pop(&mut self) -> Option<(Time, T)> {
        // What is in the heap is due after everything in the ring.
        self.now = match self.soonest() {
            Some(at) => at,
            None => self.later.peek()?.0.0,
        };
        self.draw_near();
        let place = (self.now % AHEAD) as usize;
        let what = self.ring[place].pop_front();
        if self.ring[place].is_empty() {
            self.taken[place / 64] &= !(1 << (place % 64));
        }
        what.map(|what| (self.now, what))
    }

    /// How many events there have been.
    pub fn count(&self) -> u64 {
        self.number
    }

    fn put(&mut self, at: Time, what: T) {
        let place = (at % AHEAD) as usize;
        self.taken[place / 64] |= 1 << (place % 64);
        self.ring[place].push_back(what);
    }

    /// When the next of those in the ring is due: the first place that has something, from now on and once around.
    fn soonest(&self) -> Option<Time> {
        let from = (self.now % AHEAD) as usize;
        let (word, bit) = (from / 64, from % 64);
        (0..=WORDS).find_map(|step| {
            let at = (word + step) % WORDS;
            let ahead = match step {
                0 => self.taken[at] & (u64::MAX << bit),
                WORDS => self.taken[at] & !(u64::MAX << bit),
                _ => self.taken[at],
            };
            let place = at * 64 + ahead.trailing_zeros() as usize;
            (ahead != 0).then(|| self.now + (place + AHEAD as usize - from) as Time % AHEAD)
        })
    }

    /// What is due soon by now goes into the ring: before anything that is made for the same time from now on.
    fn draw_near(&mut self) {
        while let Some(Reverse((at, _, place))) = self.later.peek().copied()
            && at < self.now + AHEAD
        {
            self.later.pop();
            self.free.push(place);
            if let Some(what) = self.events[place].take() {
                self.put(at, what);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_of_their_making() {
        let mut queue = Queue::default();
        for (at, what) in [(5, 'c'), (1, 'a'), (5, 'd'), (3, 'b')] {
            queue.push(at, what);
        }
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, what)| what).collect();
        assert_eq!(order, "abcd");
    }

    #[test]
    fn what_is_made_between_two_events_comes_in_its_place_and_all_are_counted() {
        let mut queue = Queue::default();
        queue.push(2, 'b');
        queue.push(1, 'a');
        assert_eq!(queue.pop(), Some((1, 'a')));
        queue.push(3, 'c');
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some((2, 'b')), Some((3, 'c')), None));
        assert_eq!(queue.count(), 3);
    }

    #[test]
    fn what_was_made_long_before_comes_before_what_is_made_for_the_same_time_later() {
        let mut queue = Queue::default();
        queue.push(AHEAD + 7, 'c');
        queue.push(8, 'a');
        queue.push(9, 'b');
        assert_eq!(queue.pop(), Some((8, 'a')));
        queue.push(AHEAD + 7, 'd');
        queue.push(5 * AHEAD, 'e');
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [(9, 'b'), (AHEAD + 7, 'c'), (AHEAD + 7, 'd'), (5 * AHEAD, 'e')]);
    }

    #[test]
    fn it_comes_in_the_order_of_a_sort_whatever_is_made_when() {
        let mut chance = crate::rng::Rng::new(7);
        let (mut queue, mut waiting, mut now) = (Queue::default(), Vec::new(), 0);
        for number in 0..5_000_u64 {
            let reach = if chance.chance(100) { 5 * AHEAD } else { 60 };
            let at = now + chance.below(reach);
            queue.push(at, number);
            waiting.push((at, number));
            if chance.chance(500) {
                waiting.sort_unstable();
                let next = waiting.remove(0);
                assert_eq!(queue.pop(), Some(next));
                now = next.0;
            }
        }
        waiting.sort_unstable();
        assert_eq!(std::iter::from_fn(|| queue.pop()).collect::<Vec<_>>(), waiting);
    }
}
