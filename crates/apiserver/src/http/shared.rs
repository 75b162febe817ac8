//! The store, shared between the HTTP face and the parts that run in the same process.
//!
//! The store itself is synchronous; here it gets its lock, its clockwork (who waits for changes is woken) and its durability. Never: an
//! answer to a write before its record is on disk. Writers that wait for the disk at the same time wait for one flush together, outside
//! of the lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::error::ApiError;
use crate::store::Store;

/// The store with its lock and its wake-up call.
pub struct Shared {
    store: Mutex<Store>,
    revision: watch::Sender<u64>,
}

impl Shared {
    /// Shares a store.
    pub fn new(store: Store) -> Shared {
        let revision = watch::Sender::new(store.revision());
        Shared { store: Mutex::new(store), revision }
    }

    /// Looks something up. Nothing in `look` may block: every request waits for the same lock.
    pub fn read<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        look(&self.lock())
    }

    /// Changes something; returns when the change is on disk. A change that cannot be brought there is an error, although it is made.
    pub async fn write<T>(&self, change: impl FnOnce(&mut Store) -> Result<T, ApiError>) -> Result<T, ApiError> {
        let (result, unsynced) = {
            let mut store = self.lock();
            let result = change(&mut store);
            (result, store.unsynced())
        };
        let synced = match unsynced {
            Some(unsynced) => {
                tokio::task::spawn_blocking(move || unsynced.sync()).await.map_err(std::io::Error::other).flatten()
            }
            None => Ok(()),
        };
        self.publish();
        synced.map_err(|error| {
            ApiError::internal(format!("the change may be lost in a power failure: {error}; check the disk"))
        })?;
        result
    }

    /// Tells the revision of the last change; wakes who waits for the next.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    fn publish(&self) {
        let current = self.lock().revision();
        self.revision.send_if_modified(|known| {
            let newer = current > *known;
            *known = current.max(*known);
            newer
        });
    }

    /// A panic while the lock is held is a bug in one request's handling; it must not take every later request with it.
    fn lock(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
