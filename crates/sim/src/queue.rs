//! What happens next: events by virtual time, and in the order of their making where the time is the same.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Milliseconds since the run began. The world's own time; no machine's clock shows it.
pub type Time = u64;

/// Events to come. Those are large, and a heap moves what is in it about: so it holds their times and places only.
pub struct Queue<T> {
    /// When, which of those made, and where it is.
    heap: BinaryHeap<Reverse<(Time, u64, usize)>>,
    events: Vec<Option<T>>,
    free: Vec<usize>,
    number: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), events: Vec::new(), free: Vec::new(), number: 0 }
    }
}

impl<T> Queue<T> {
    /// `what` happens at `at`.
    pub fn push(&mut self, at: Time, what: T) {
        self.number += 1;
        let place = self.free.pop().unwrap_or(self.events.len());
        match self.events.get_mut(place) {
            Some(event) => *event = Some(what),
            None => self.events.push(Some(what)),
        }
        self.heap.push(Reverse((at, self.number, place)));
    }

    /// What happens next, and when.
    pub fn pop(&mut self) -> Option<(Time, T)> {
        let Reverse((at, _, place)) = self.heap.pop()?;
        self.free.push(place);
        self.events[place].take().map(|what| (at, what))
    }

    /// How many events there have been.
    pub fn count(&self) -> u64 {
        self.number
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
    fn a_place_is_used_again_and_nothing_is_lost() {
        let mut queue = Queue::default();
        queue.push(2, 'b');
        queue.push(1, 'a');
        assert_eq!(queue.pop(), Some((1, 'a')));
        queue.push(3, 'c');
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some((2, 'b')), Some((3, 'c')), None));
        assert_eq!(queue.count(), 3);
    }
}
