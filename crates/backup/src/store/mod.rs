//! An object store, as backups use it: objects are written once.
//!
//! Nothing is retried without end in here: each request has a deadline and a few attempts ([`location`]), and what still fails is said to whoever
//! asked. A put that nobody answered may have been carried out: it is looked at before it is called anything.
//!
//! Never: an object overwritten; a put called done that the store did not acknowledge; an error of the store taken for "there is no such object".

mod http;
mod location;
mod probe;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, PutMode, PutPayload};

pub use location::{Location, LocationError};
pub use probe::Capabilities;

/// Why the store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is an object of that name already, and it is another. It stays.
    #[error("{store}: {key} is there already with other contents; nothing was overwritten")]
    Conflict {
        /// The store, for people.
        store: String,
        /// The key.
        key: String,
    },
    /// There is no such object.
    #[error("{store}: {key} is not there")]
    Missing {
        /// The store, for people.
        store: String,
        /// The key.
        key: String,
    },
    /// The store does not let us.
    #[error("{store}: {what} {key}: not permitted: {message}")]
    Refused {
        /// The store, for people.
        store: String,
        /// What was tried.
        what: &'static str,
        /// The key.
        key: String,
        /// What it said.
        message: String,
    },
    /// Anything else: it can't be reached, it failed, it took too long. It may work later.
    #[error("{store}: {what} {key}: {message}")]
    Failed {
        /// The store, for people.
        store: String,
        /// What was tried.
        what: &'static str,
        /// The key.
        key: String,
        /// What is wrong.
        message: String,
    },
}

impl StoreError {
    /// Whether the same may succeed later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }
}

/// What a put found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is new.
    Created,
    /// It was there, byte for byte: an earlier attempt had been carried out.
    WasThere,
}

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its key below this store's root.
    pub key: String,
    /// Its size.
    pub size: u64,
    /// When it was written, by the store's clock.
    pub modified: Timestamp,
}

/// An object store, or the part of one below a prefix.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<dyn ObjectStore>,
    root: Path,
    /// For messages; without secrets.
    name: Arc<str>,
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Store {
    /// The store at a location. Nothing is asked of it yet.
    pub fn open(location: &Location) -> Result<Self, LocationError> {
        let (inner, root) = location.connect()?;
        Ok(Self { inner, root, name: location.url().into() })
    }

    /// The same store, below a prefix: what an archive knows as its root.
    pub fn below(&self, prefix: &str) -> Self {
        let root = prefix.split('/').fold(self.root.clone(), |root, part| root.join(part));
        Self { inner: self.inner.clone(), root, name: format!("{}/{prefix}", self.name.trim_end_matches('/')).into() }
    }

    fn path(&self, key: &str) -> Path {
        key.split('/').filter(|part| !part.is_empty()).fold(self.root.clone(), |path, part| path.join(part))
    }

    /// Writes a new object. One that is there is never replaced: if it is the same nothing is wrong, else it is a conflict.
    pub async fn put_new(&self, key: &str, body: Bytes) -> Result<Put, StoreError> {
        let put = self.inner.put_opts(&self.path(key), PutPayload::from(body.clone()), PutMode::Create.into()).await;
        match put {
            Ok(_) => Ok(Put::Created),
            // It may have been our own attempt, whose answer was lost.
            Err(object_store::Error::AlreadyExists { .. }) => self.same(key, &body).await,
            Err(error) => {
                // Nobody knows what came of it. If it was carried out it counts; else the first error is the one to tell.
                let error = self.failed("put", key, &error);
                match self.same(key, &body).await {
                    Ok(put) if error.is_transient() => Ok(put),
                    Err(conflict @ StoreError::Conflict { .. }) => Err(conflict),
                    _ => Err(error),
                }
            }
        }
    }

    async fn same(&self, key: &str, body: &Bytes) -> Result<Put, StoreError> {
        if self.get(key).await? == body { Ok(Put::WasThere) } else { Err(self.conflict(key)) }
    }

    /// What is said when something else is under a key.
    pub fn conflict(&self, key: &str) -> StoreError {
        StoreError::Conflict { store: self.to_string(), key: key.to_owned() }
    }

    /// A whole object.
    pub async fn get(&self, key: &str) -> Result<Bytes, StoreError> {
        let got = self.inner.get(&self.path(key)).await.map_err(|error| self.failed("get", key, &error))?;
        got.bytes().await.map_err(|error| self.failed("get", key, &error))
    }

    /// A whole object, or nothing when there is none.
    pub async fn find(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        match self.get(key).await {
            Ok(body) => Ok(Some(body)),
            Err(StoreError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// An object, as it arrives.
    pub async fn stream(&self, key: &str) -> Result<BoxStream<'static, Result<Bytes, StoreError>>, StoreError> {
        let got = self.inner.get(&self.path(key)).await.map_err(|error| self.failed("get", key, &error))?;
        let (store, key) = (self.clone(), key.to_owned());
        Ok(got.into_stream().map_err(move |error| store.failed("get", &key, &error)).boxed())
    }

    /// The size of an object, if it is there.
    pub async fn size(&self, key: &str) -> Result<Option<u64>, StoreError> {
        match self.inner.head(&self.path(key)).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed("look at", key, &error)),
        }
    }

    /// Every object whose key begins with these whole parts (`base/20261118T020000Z`), in the order of keys.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Entry>, StoreError> {
        let path = self.path(prefix);
        let found = self.inner.list(Some(&path)).try_collect::<Vec<_>>().await;
        let found = found.map_err(|error| self.failed("list", prefix, &error))?;
        let mut entries: Vec<_> = found.into_iter().filter_map(|meta| self.entry(&meta)).collect();
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(entries)
    }

    /// The names directly below a prefix that have something below them.
    pub async fn directories(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let path = self.path(prefix);
        let found = self.inner.list_with_delimiter(Some(&path)).await;
        let found = found.map_err(|error| self.failed("list", prefix, &error))?;
        let mut names: Vec<_> =
            found.common_prefixes.iter().filter_map(|path| path.filename().map(str::to_owned)).collect();
        names.sort();
        Ok(names)
    }

    /// Removes an object. One that is gone is no error.
    pub async fn delete(&self, key: &str) -> Result<(), StoreError> {
        match self.inner.delete(&self.path(key)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed("delete", key, &error)),
        }
    }

    fn entry(&self, meta: &object_store::ObjectMeta) -> Option<Entry> {
        let key: Vec<_> = meta.location.prefix_match(&self.root)?.map(|part| part.as_ref().to_owned()).collect();
        let modified = Timestamp::from_second(meta.last_modified.timestamp()).ok()?;
        Some(Entry { key: key.join("/"), size: meta.size, modified })
    }

    fn failed(&self, what: &'static str, key: &str, error: &object_store::Error) -> StoreError {
        let (store, key) = (self.to_string(), key.to_owned());
        match error {
            object_store::Error::NotFound { .. } => StoreError::Missing { store, key },
            object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. }
            | object_store::Error::NotSupported { .. }
            | object_store::Error::NotImplemented { .. } => {
                StoreError::Refused { store, what, key, message: describe(error) }
            }
            _ => StoreError::Failed { store, what, key, message: describe(error) },
        }
    }
}

/// What an error says with its causes, each once.
fn describe(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.contains(&said) {
            text.push_str(&format!(": {said}"));
        }
        cause = inner.source();
    }
    text
}
