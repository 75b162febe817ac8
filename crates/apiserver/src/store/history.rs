//! The recent past: what watches read, and what a list's next page is rolled back with.

use std::collections::VecDeque;

use super::{Key, Object};

/// How many changes are kept. A watch that falls further behind starts over with a list; ours are never minutes behind, and ten
/// thousand changes of objects of a few kilobytes are tens of megabytes at worst.
const WINDOW: usize = 10_000;

/// One change of one object.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) revision: u64,
    pub(super) bucket: String,
    pub(super) key: Key,
    pub(super) before: Option<Object>,
    pub(super) after: Option<Object>,
}

/// The changes after `forgotten`, in order.
#[derive(Debug)]
pub(super) struct History {
    changes: VecDeque<Change>,
    forgotten: u64,
    window: usize,
}

impl Default for History {
    fn default() -> Self {
        Self { changes: VecDeque::new(), forgotten: 0, window: WINDOW }
    }
}

impl History {
    pub(super) fn push(&mut self, change: Change) {
        self.changes.push_back(change);
        self.shrink();
    }

    /// Keeps this many changes from now on.
    pub(super) fn keep(&mut self, window: usize) {
        self.window = window;
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.changes.len() > self.window
            && let Some(oldest) = self.changes.pop_front()
        {
            self.forgotten = oldest.revision;
        }
    }

    pub(super) fn forget(&mut self, up_to: u64) {
        while self.changes.front().is_some_and(|oldest| oldest.revision <= up_to) {
            self.changes.pop_front();
        }
        self.forgotten = self.forgotten.max(up_to);
    }

    /// The changes after a revision, or none when some of them are forgotten.
    pub(super) fn since(&self, revision: u64) -> Option<impl DoubleEndedIterator<Item = &Change>> {
        if revision < self.forgotten {
            return None;
        }
        let start = self.changes.partition_point(|change| change.revision <= revision);
        Some(self.changes.range(start..))
    }

    /// The oldest revision that [`History::since`] answers for.
    pub(super) fn oldest(&self) -> u64 {
        self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(revision: u64) -> Change {
        Change { revision, bucket: "pods".into(), key: (String::new(), "a".into()), before: None, after: None }
    }

    #[test]
    fn a_forgotten_revision_is_not_answered_with_a_gap() {
        let mut history = History::default();
        (1..=5).for_each(|revision| history.push(change(revision)));
        history.forget(3);
        assert!(history.since(2).is_none());
        assert_eq!(history.since(3).unwrap().map(|change| change.revision).collect::<Vec<_>>(), [4, 5]);
    }

    #[test]
    fn the_window_is_bounded() {
        let mut history = History::default();
        (1..=WINDOW as u64 + 2).for_each(|revision| history.push(change(revision)));
        assert!(history.since(1).is_none());
        assert_eq!(history.since(2).unwrap().count(), WINDOW);
    }
}
