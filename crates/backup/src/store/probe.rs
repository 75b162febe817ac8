//! What a store can do, found out by doing it: with a small object of its own, which is removed again.
//!
//! Never: a store called fit for an archive that replaces what is there when it is told not to. Two primaries, one of which does not know yet that it is none, would
//! overwrite each other's log there.

use std::fmt;

use bytes::Bytes;
use object_store::{PutMode, PutPayload};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};

use super::breaker::Verdict;
use super::{Ordering, Store, StoreError};

/// What a store can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Capabilities {
    /// It refuses to create what is there (`If-None-Match: *`). Without this it is not fit for an archive.
    pub conditional_put: bool,
    /// It gives parts of objects.
    pub ranges: bool,
    /// It lists what was just written.
    pub list: bool,
    /// It lets go of an object.
    pub delete: bool,
}

impl Capabilities {
    /// Why an archive must not be kept there; nothing when it may.
    pub fn unfit(&self) -> Option<&'static str> {
        match self {
            Self { conditional_put: false, .. } => Some(
                "it replaces objects that it is told to create only (it ignores If-None-Match): a log could be overwritten. Use a store that keeps to it, \
                 such as a newer version of this one",
            ),
            Self { ranges: false, .. } => {
                Some("it does not give parts of objects (it ignores Range), which restores read")
            }
            Self { list: false, .. } => Some("it does not list what was just written: backups could not be found"),
            _ => None,
        }
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { conditional_put, ranges, list, delete } = *self;
        let all = [("conditional put", conditional_put), ("ranges", ranges), ("list", list), ("delete", delete)];
        for (position, (name, can)) in all.into_iter().enumerate() {
            let comma = if position == 0 { "" } else { ", " };
            write!(f, "{comma}{}{name}", if can { "" } else { "no " })?;
        }
        Ok(())
    }
}

const FIRST: &[u8] = b"bellwether looks what this store can do; this object may be removed\n";
const SECOND: &[u8] = b"this must never be here\n";

impl Store {
    /// Finds out what the store can do. Only what it can't do at all is an error: it can't be reached, or does not let us write.
    ///
    /// A store that has shown that it replaces objects gets none from then on.
    pub async fn probe(&self) -> Result<Capabilities, StoreError> {
        let key = format!("probe/{}", self.random()?);
        self.put_new(&key, Bytes::from_static(FIRST)).await?;
        let seen = self.look(&key).await;
        // Also after a failure, for nobody else removes it.
        let delete = match self.delete(&key).await {
            Ok(()) => matches!(self.find(&key).await, Ok(None)),
            Err(_) => false,
        };
        seen.map(|seen| Capabilities { delete, ..seen })
    }

    async fn look(&self, key: &str) -> Result<Capabilities, StoreError> {
        let conditional_put = self.keeps(key).await?;
        if !conditional_put {
            self.replaces.store(true, Ordering::Relaxed);
        }
        let ranges = match self.range(key, 3..9).await {
            Ok(part) => conditional_put && part == FIRST[3..9] || part == SECOND[3..9],
            Err(error) if self.get(key).await.is_ok() => {
                tracing::debug!(%error, "a part of an object can't be read");
                false
            }
            Err(error) => return Err(error),
        };
        let list = self.list("probe").await?.iter().any(|entry| entry.key == key);
        Ok(Capabilities { conditional_put, ranges, list, delete: false })
    }

    /// Whether an object stays as it is when another is created in its place.
    async fn keeps(&self, key: &str) -> Result<bool, StoreError> {
        let turn = self.turn().await?;
        let (path, second) = (self.path(key), PutPayload::from_static(SECOND));
        let again = match self.client(&turn).put_opts(&path, second, PutMode::Create.into()).await {
            Err(
                error @ (object_store::Error::AlreadyExists { .. }
                | object_store::Error::NotImplemented { .. }
                | object_store::Error::NotSupported { .. }),
            ) => {
                turn.ended(Verdict::Served);
                Err(error)
            }
            answer => Ok(self.judged(turn, "put", key, answer)),
        };
        let there = self.get(key).await?;
        match again {
            Err(object_store::Error::AlreadyExists { .. }) => Ok(there == FIRST),
            Err(_) => Ok(false),
            Ok(put) => put.map(|_| false),
        }
    }

    fn random(&self) -> Result<String, StoreError> {
        let mut bytes = [0; 8];
        let filled = SystemRandom::new().fill(&mut bytes);
        filled.map_err(|_| self.broken("probe", "probe", "this system has no random numbers".to_owned()))?;
        Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_store_can_do_is_said_in_words() {
        let all = Capabilities { conditional_put: true, ranges: true, list: true, delete: true };
        assert_eq!((all.to_string().as_str(), all.unfit()), ("conditional put, ranges, list, delete", None));
        let none = Capabilities { conditional_put: false, ..all };
        assert_eq!(none.to_string(), "no conditional put, ranges, list, delete");
        assert!(none.unfit().unwrap().contains("If-None-Match"));
        let kept = Capabilities { delete: false, ..all };
        assert_eq!(kept.unfit(), None, "a bucket that keeps everything is fit; its retention is its own");
    }
}
