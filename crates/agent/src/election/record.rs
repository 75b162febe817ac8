//! What the volume remembers, shared by the election and the instance's loop.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::memory::{MemoryError, VolumeMemory};

/// The record. Clones share it.
#[derive(Clone, Debug)]
pub struct Record(Arc<Mutex<VolumeMemory>>);

impl Record {
    /// Of the volume mounted at `data`.
    pub fn open(data: &Path, pod_uid: &str, claim_uid: Option<&str>) -> Result<Self, MemoryError> {
        VolumeMemory::open(data, pod_uid, claim_uid).map(|memory| Self(Arc::new(Mutex::new(memory))))
    }

    /// To read it or add to it. Never held across an await.
    pub fn lock(&self) -> MutexGuard<'_, VolumeMemory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
