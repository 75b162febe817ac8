//! What happens next: events by virtual time, and in the order of their making where the time is the same.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Milliseconds since the run began. The world's own time; no machine's clock shows it.
pub type Time = u64;

struct Entry<T> {
    at: Time,
    number: u64,
    what: T,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl<T> Eq for Entry<T> {}
impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Entry<T> {
    /// The earliest is the greatest: a heap gives the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// Events to come.
pub struct Queue<T> {
    heap: BinaryHeap<Entry<T>>,
    number: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), number: 0 }
    }
}

impl<T> Queue<T> {
    /// `what` happens at `at`.
    pub fn push(&mut self, at: Time, what: T) {
        self.number += 1;
        self.heap.push(Entry { at, number: self.number, what });
    }

    /// What happens next, and when.
    pub fn pop(&mut self) -> Option<(Time, T)> {
        self.heap.pop().map(|entry| (entry.at, entry.what))
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
}
