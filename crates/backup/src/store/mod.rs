//! An object store, as backups use it: objects are written once.
//!
//! Nothing is retried without end in here: each request has a deadline and a few attempts ([`Patience`]), and what still fails is said to whoever
//! asked. A put that nobody answered may have been carried out: it is looked at before it is called anything. A store that keeps failing is left
//! alone for a while: whoever asks is refused at once, and one request at a time, which is sent once, shows whether it is back ([`breaker`]).
//!
//! Never: an object overwritten; a put called done that the store did not acknowledge; an error of the store taken for "there is no such object"; nor a request
//! that was not sent.

mod answer;
mod breaker;
mod http;
mod location;
mod probe;
mod settings;

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt as _, PutMode, PutPayload};
use tokio::time::Instant;

use breaker::{Breaker, Turn, Verdict};

pub use bellwether_core::breaker::Limits;
pub use breaker::{Rest, Trouble};
pub use http::Patience;
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
    /// There is no such bucket or container, or what answers is no store: nothing can be said about what is in it.
    #[error("{store}: {what} {key}: there is no such bucket, container or directory: {message}")]
    NoStore {
        /// The store, for people.
        store: String,
        /// What was tried.
        what: &'static str,
        /// The key.
        key: String,
        /// What it said.
        message: String,
    },
    /// It was not asked: it has failed so often that it is left alone for a while.
    #[error("{store}: {rest}")]
    Resting {
        /// The store, for people.
        store: String,
        /// Since when, and why.
        rest: Box<Rest>,
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
        matches!(self, Self::Failed { .. } | Self::Resting { .. })
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

/// Attempts at a put whose fate was learned: it was not carried out.
const PUTS: usize = 3;
/// Between two of them. The store's own retries wait longer each time; these are for a connection that broke.
const BETWEEN_PUTS: Duration = Duration::from_millis(200);

/// What becomes of a request to a store that is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WhileResting {
    /// It is refused at once.
    Refused,
    /// It waits for as long as attempts at a request go on.
    Waits,
}

/// An object store, or the part of one below a prefix.
#[derive(Clone)]
pub struct Store {
    inner: Arc<dyn ObjectStore>,
    /// The same without further attempts: for a request that shows whether the store is back.
    once: Arc<dyn ObjectStore>,
    breaker: Arc<Breaker>,
    while_resting: WhileResting,
    root: Path,
    /// For messages; without secrets.
    name: Arc<str>,
    /// Of a store that is one: what must be there for "it is not there" to mean anything, and is synced when an object was there already.
    directory: Option<Arc<PathBuf>>,
    patience: Patience,
    /// Known to replace what is there: it gets nothing.
    replaces: Arc<AtomicBool>,
}

impl fmt::Debug for Store {
    /// The client's own would show credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.name).finish()
    }
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
        let (once, _) = location.clone().with_patience(Patience { retries: 0, ..location.patience() }).connect()?;
        let name: Arc<str> = location.url().into();
        Ok(Self {
            inner,
            once,
            breaker: Breaker::new(name.clone(), location.limits()),
            while_resting: WhileResting::Refused,
            root,
            name,
            directory: location.path().map(|path| Arc::new(path.to_owned())),
            patience: location.patience(),
            replaces: Arc::default(),
        })
    }

    /// The same store, below a prefix: what an archive knows as its root.
    pub fn below(&self, prefix: &str) -> Self {
        let name = format!("{}/{prefix}", self.name.trim_end_matches('/')).into();
        Self { root: self.path(prefix), name, ..self.clone() }
    }

    /// The same store, for work that took long and would be lost: while it is left alone a request waits, as long as further attempts at it would take.
    pub fn patient(&self) -> Self {
        Self { while_resting: WhileResting::Waits, ..self.clone() }
    }

    /// Why the store is left alone now, if it is.
    pub fn rest(&self) -> Option<Rest> {
        self.breaker.rest()
    }

    /// Whether nothing is known against the store: it is not left alone, and need not be tried.
    pub fn works(&self) -> bool {
        self.breaker.works()
    }

    /// Fails if the store is left alone: for whoever has work to do before he asks for anything.
    pub fn awake(&self) -> Result<(), StoreError> {
        match self.rest() {
            Some(rest) if self.while_resting == WhileResting::Refused => Err(self.resting(rest)),
            _ => Ok(()),
        }
    }

    /// Waits until the store is not left alone any longer, or somebody may try whether it is back.
    pub async fn rested(&self) {
        self.breaker.rested().await;
    }

    fn resting(&self, rest: Rest) -> StoreError {
        StoreError::Resting { store: self.to_string(), rest: Box::new(rest) }
    }

    /// That a request may be sent, when it may.
    async fn turn(&self) -> Result<Turn, StoreError> {
        let until = Instant::now() + self.patience.total;
        loop {
            let rest = match self.breaker.turn() {
                Ok(turn) => return Ok(turn),
                Err(rest) => rest,
            };
            let waits = self.while_resting == WhileResting::Waits;
            if !waits || tokio::time::timeout_at(until, self.breaker.rested()).await.is_err() {
                return Err(self.resting(rest));
            }
        }
    }

    /// Whom a request is sent by.
    fn client(&self, turn: &Turn) -> &dyn ObjectStore {
        if turn.is_trial() { &*self.once } else { &*self.inner }
    }

    /// What an answer means, to whoever asked and for what the store is worth.
    fn judged<T>(
        &self,
        turn: Turn,
        what: &'static str,
        key: &str,
        answer: object_store::Result<T>,
    ) -> Result<T, StoreError> {
        let error = match answer {
            Ok(answer) => {
                turn.ended(Verdict::Served);
                return Ok(answer);
            }
            Err(error) => error,
        };
        let said = self.failed(what, key, &error);
        turn.ended(match &said {
            StoreError::Failed { message, .. } | StoreError::NoStore { message, .. } => {
                Verdict::Trouble(Trouble::Down, message)
            }
            StoreError::Refused { message, .. } if answer::is_of_credentials(&error) => {
                Verdict::Trouble(Trouble::Credentials, message)
            }
            _ => Verdict::Served,
        });
        Err(said)
    }

    fn path(&self, key: &str) -> Path {
        key.split('/').filter(|part| !part.is_empty()).fold(self.root.clone(), |path, part| path.join(part))
    }

    /// Writes a new object. One that is there is never replaced: if it is the same nothing is wrong, else it is a conflict.
    pub async fn put_new(&self, key: &str, body: Bytes) -> Result<Put, StoreError> {
        let same = || async { Ok(self.get(key).await? == body) };
        self.put_unless(key, body.clone(), same).await
    }

    /// Writes a new object; `same` looks whether what is there already is as good as this.
    pub(crate) async fn put_unless<F, Fut>(&self, key: &str, body: Bytes, same: F) -> Result<Put, StoreError>
    where
        F: Fn() -> Fut + Send,
        Fut: Future<Output = Result<bool, StoreError>> + Send,
    {
        if self.replaces.load(Ordering::Relaxed) {
            return Err(self.no_condition(key));
        }
        let (began, path) = (Instant::now(), self.path(key));
        let mut put = 1;
        loop {
            let payload = PutPayload::from(body.clone());
            let turn = self.turn().await?;
            let error = match self.client(&turn).put_opts(&path, payload, PutMode::Create.into()).await {
                // It may have been our own attempt, whose answer was lost.
                Err(object_store::Error::AlreadyExists { source, .. }) => {
                    turn.ended(Verdict::Served);
                    self.undecided(key, &source.to_string())
                }
                answer => match self.judged(turn, "put", key, answer) {
                    Ok(_) => return Ok(Put::Created),
                    Err(error) => error,
                },
            };
            if !error.is_transient() {
                return Err(error);
            }
            // Nobody knows what came of it: it counts if it was carried out.
            match same().await {
                Ok(true) => return self.settled(key).await.map(|()| Put::WasThere),
                Ok(false) => return Err(self.conflict(key)),
                // It was not, and another attempt can't double it: each only creates.
                Err(StoreError::Missing { .. }) if put < PUTS && began.elapsed() < self.patience.total => {
                    put += 1;
                    tokio::time::sleep(BETWEEN_PUTS).await;
                }
                // The first error is the one to tell.
                Err(_) => return Err(error),
            }
        }
    }

    /// In a directory, what is there may not be on disk yet: whoever wrote it may have been stopped before that.
    async fn settled(&self, key: &str) -> Result<(), StoreError> {
        let Some(directory) = self.directory.clone() else { return Ok(()) };
        let parts: Vec<_> = self.path(key).parts().map(|part| part.as_ref().to_owned()).collect();
        let sync = move || {
            let mut path = directory.to_path_buf();
            for part in parts {
                std::fs::File::open(&path)?.sync_all()?;
                path.push(part);
            }
            std::fs::File::open(&path)?.sync_all()
        };
        let synced = tokio::task::spawn_blocking(sync).await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        synced.map_err(|error| self.broken("sync", key, error.to_string()))
    }

    /// What is said when something else is under a key.
    pub fn conflict(&self, key: &str) -> StoreError {
        StoreError::Conflict { store: self.to_string(), key: key.to_owned() }
    }

    /// A store says that an object is there, and then that it is not: S3 does while another create of it is under way.
    fn undecided(&self, key: &str, message: &str) -> StoreError {
        self.broken(
            "put",
            key,
            format!("it is there, says the store, but it can't be read: {}", answer::plain(message)),
        )
    }

    fn no_condition(&self, key: &str) -> StoreError {
        let message =
            "this store ignores If-None-Match: it would replace what is there, so that nothing is written to it"
                .to_owned();
        StoreError::Refused { store: self.to_string(), what: "put", key: key.to_owned(), message }
    }

    fn broken(&self, what: &'static str, key: &str, message: String) -> StoreError {
        StoreError::Failed { store: self.to_string(), what, key: key.to_owned(), message }
    }

    /// A whole object.
    pub async fn get(&self, key: &str) -> Result<Bytes, StoreError> {
        self.read("get", key, GetOptions::default()).await
    }

    /// A part of an object; less, where it ends before the range does.
    pub async fn range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        let options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
        self.read("get a part of", key, options).await
    }

    async fn read(&self, what: &'static str, key: &str, options: GetOptions) -> Result<Bytes, StoreError> {
        let turn = self.turn().await?;
        let answer = async {
            let got = self.client(&turn).get_opts(&self.path(key), options).await?;
            let expected = got.range.end - got.range.start;
            Ok((expected, got.bytes().await?))
        };
        let answer = answer.await;
        let (expected, body) = self.judged(turn, what, key, answer)?;
        if body.len() as u64 == expected { Ok(body) } else { Err(self.short(what, key, expected, body.len() as u64)) }
    }

    fn short(&self, what: &'static str, key: &str, expected: u64, got: u64) -> StoreError {
        self.broken(what, key, format!("{got} bytes came, of {expected}"))
    }

    /// A whole object, or nothing when there is none.
    pub async fn find(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        match self.get(key).await {
            Ok(body) => Ok(Some(body)),
            Err(StoreError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// An object, as it arrives. It ends with an error, or whole.
    pub async fn stream(&self, key: &str) -> Result<BoxStream<'static, Result<Bytes, StoreError>>, StoreError> {
        let turn = self.turn().await?;
        let answer = self.client(&turn).get_opts(&self.path(key), GetOptions::default()).await;
        let got = self.judged(turn, "get", key, answer)?;
        let (store, key, expected) = (self.clone(), key.to_owned(), got.range.end - got.range.start);
        let whole = futures::stream::try_unfold((got.into_stream(), 0), move |(mut body, got)| {
            let (store, key) = (store.clone(), key.clone());
            async move {
                match body.try_next().await.map_err(|error| store.failed("get", &key, &error))? {
                    Some(bytes) => {
                        let got = got + bytes.len() as u64;
                        Ok(Some((bytes, (body, got))))
                    }
                    None if got == expected => Ok(None),
                    None => Err(store.short("get", &key, expected, got)),
                }
            }
        });
        Ok(whole.boxed())
    }

    /// The size of an object, if it is there.
    pub async fn size(&self, key: &str) -> Result<Option<u64>, StoreError> {
        let turn = self.turn().await?;
        match self.client(&turn).head(&self.path(key)).await {
            // This answer has no body to say what it is that is missing: the object or the bucket.
            Err(object_store::Error::NotFound { .. }) => {
                turn.ended(Verdict::Served);
                Ok(self.find(key).await?.map(|body| body.len() as u64))
            }
            answer => Ok(Some(self.judged(turn, "look at", key, answer)?.size)),
        }
    }

    /// Every object whose key begins with these whole parts (`base/20261118T020000Z`), in the order of keys.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Entry>, StoreError> {
        self.present("list", prefix)?;
        let path = self.path(prefix);
        let turn = self.turn().await?;
        let found = self.client(&turn).list(Some(&path)).try_collect::<Vec<_>>().await;
        let found = self.judged(turn, "list", prefix, found)?;
        let mut entries: Vec<_> = found.into_iter().filter_map(|meta| self.entry(&meta)).collect();
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(entries)
    }

    /// The names directly below a prefix that have something below them.
    pub async fn directories(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.present("list", prefix)?;
        let path = self.path(prefix);
        let turn = self.turn().await?;
        let found = self.client(&turn).list_with_delimiter(Some(&path)).await;
        let found = self.judged(turn, "list", prefix, found)?;
        let mut names: Vec<_> =
            found.common_prefixes.iter().filter_map(|path| path.filename().map(str::to_owned)).collect();
        names.sort();
        Ok(names)
    }

    /// Removes an object. One that is gone is no error.
    pub async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let turn = self.turn().await?;
        let answer = self.client(&turn).delete(&self.path(key)).await;
        match self.judged(turn, "delete", key, answer) {
            Ok(()) | Err(StoreError::Missing { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn entry(&self, meta: &object_store::ObjectMeta) -> Option<Entry> {
        let key: Vec<_> = meta.location.prefix_match(&self.root)?.map(|part| part.as_ref().to_owned()).collect();
        let modified = Timestamp::from_second(meta.last_modified.timestamp()).ok()?;
        Some(Entry { key: key.join("/"), size: meta.size, modified })
    }

    /// Of a directory that is gone, as one is whose volume was not mounted, nothing follows about what is in it.
    fn present(&self, what: &'static str, key: &str) -> Result<(), StoreError> {
        match &self.directory {
            Some(directory) if !directory.is_dir() => Err(self.nowhere(what, key, "it is gone".to_owned())),
            _ => Ok(()),
        }
    }

    fn nowhere(&self, what: &'static str, key: &str, message: String) -> StoreError {
        StoreError::NoStore { store: self.to_string(), what, key: key.to_owned(), message }
    }

    fn failed(&self, what: &'static str, key: &str, error: &object_store::Error) -> StoreError {
        let (store, message) = (self.to_string(), answer::said(error));
        match error {
            object_store::Error::NotFound { .. } => {
                let object = self.directory.is_some() || answer::is_of_an_object(error);
                match self.present(what, key) {
                    Ok(()) if object => StoreError::Missing { store, key: key.to_owned() },
                    Ok(()) => self.nowhere(what, key, message),
                    Err(gone) => gone,
                }
            }
            object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. }
            | object_store::Error::NotSupported { .. }
            | object_store::Error::NotImplemented { .. } => {
                StoreError::Refused { store, what, key: key.to_owned(), message }
            }
            error if answer::is_of_nothing(error) => self.nowhere(what, key, message),
            error if answer::is_a_refusal(error) => StoreError::Refused { store, what, key: key.to_owned(), message },
            _ => self.broken(what, key, message),
        }
    }
}
