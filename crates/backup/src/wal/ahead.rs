//! Work on files that will be asked for next: begun before that, a bounded number at a time, and each result given out once.
//!
//! Never: more under way and waiting to be asked for than the bound; a result of work that nobody wants any longer kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::task::AbortOnDropHandle;

use crate::layout::WalFile;

/// Work under way and done, by file.
pub(super) struct Ahead<T> {
    work: Mutex<BTreeMap<WalFile, AbortOnDropHandle<Option<T>>>>,
    bound: usize,
}

impl<T: Send + 'static> Ahead<T> {
    pub fn new(bound: usize) -> Self {
        Self { work: Mutex::default(), bound }
    }

    pub fn bound(&self) -> usize {
        self.bound
    }

    /// Begins with those that are wanted and not begun yet, and gives up all others.
    pub fn want<F: Future<Output = Option<T>> + Send + 'static>(
        &self,
        wanted: &[WalFile],
        begin: impl Fn(WalFile) -> F,
    ) {
        let mut work = self.work();
        let wanted: BTreeSet<_> = wanted.iter().copied().take(self.bound).collect();
        work.retain(|file, _| wanted.contains(file));
        for file in wanted {
            work.entry(file).or_insert_with(|| AbortOnDropHandle::new(tokio::spawn(begin(file))));
        }
    }

    /// What came of a file, once; it is waited for. Nothing when it was not begun, or came to nothing.
    pub async fn take(&self, file: WalFile) -> Option<T> {
        let handle = self.work().remove(&file)?;
        handle.await.ok().flatten()
    }

    /// Those that are under way, or wait to be asked for.
    pub fn files(&self) -> BTreeSet<WalFile> {
        self.work().keys().copied().collect()
    }

    fn work(&self) -> MutexGuard<'_, BTreeMap<WalFile, AbortOnDropHandle<Option<T>>>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn file(number: u64) -> WalFile {
        format!("00000001{:016X}", number).parse().unwrap()
    }

    #[tokio::test]
    async fn work_is_begun_once_and_its_result_given_out_once() {
        let (ahead, begun) = (Ahead::new(3), Arc::new(AtomicUsize::new(0)));
        let begin = |file: WalFile| {
            let begun = begun.clone();
            async move {
                begun.fetch_add(1, Ordering::Relaxed);
                Some(file.to_string())
            }
        };
        for _ in 0..2 {
            ahead.want(&[file(1), file(2)], begin);
        }
        assert_eq!(ahead.take(file(1)).await, Some(file(1).to_string()));
        assert_eq!(ahead.take(file(1)).await, None);
        assert_eq!(ahead.take(file(2)).await, Some(file(2).to_string()));
        assert_eq!(begun.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn there_is_never_more_of_it_than_the_bound_and_what_is_not_wanted_any_longer_ends() {
        let (ahead, alive) = (Ahead::<()>::new(3), Arc::new(()));
        let begin = |_| {
            let alive = alive.clone();
            async move {
                std::future::pending::<()>().await;
                drop(alive);
                None
            }
        };
        ahead.want(&(1..10).map(file).collect::<Vec<_>>(), begin);
        assert_eq!(ahead.files(), (1..4).map(file).collect());
        ahead.want(&[file(3), file(4)], begin);
        assert_eq!(ahead.files(), [file(3), file(4)].into());
        drop(ahead);
        while Arc::strong_count(&alive) > 1 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_came_to_nothing_is_nothing() {
        let ahead = Ahead::<()>::new(3);
        ahead.want(&[file(1)], |_| async { None });
        assert_eq!(ahead.take(file(1)).await, None);
        ahead.want(&[file(2)], |_| async { panic!("a bug") });
        assert_eq!(ahead.take(file(2)).await, None);
    }
}
