//! Writes objects of a backup while they are made: blocks of them are compressed side by side, and whole ones uploaded beside that.
//!
//! An object is cut into blocks of [`BLOCK`] bytes, and each becomes a zstd frame of its own. So all workers are busy within one object, and
//! none has to be held raw: what is in memory is a block for each worker and [`SPARE`] more, the object that is being put together, and those that are on
//! their way. Whoever writes waits when that is full.
//!
//! Measured (`examples/base.rs`, defaults, two processors, peak resident memory): 57 MB for 2.5 GB of pgbench; 232 MB, which is the worst, with files
//! that can't be compressed.
//!
//! Never: frames out of their order; an object listed that the store did not acknowledge.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ring::digest::{SHA256, digest};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use zstd::bulk::Compressor;
use zstd::zstd_safe::CParameter;

use super::{BaseError, Progress};
use crate::record::Object;
use crate::store::{Put, Store, StoreError};

/// What is compressed at once: as much as the window of zstd's level 3. With twice as much, pgbench's tables became no smaller.
const BLOCK: usize = 2 << 20;
/// Blocks beside those that are being compressed: the one that is being filled, and enough that the workers have something to do while whoever fills
/// them waits for a processor.
const SPARE: usize = 6;
/// How long uploads that nobody needs any more may take to end, so that what they wrote can be removed.
const FAREWELL: Duration = Duration::from_secs(30);

/// How objects are compressed and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Of zstd.
    pub level: i32,
    /// How many blocks are compressed at the same time.
    pub workers: usize,
    /// How many objects are uploaded at the same time. Each is in memory meanwhile.
    pub uploads: usize,
}

impl Default for Effort {
    /// Level 3 on all processors; two uploads, so that one is under way while the other is being answered.
    fn default() -> Self {
        Self { level: 3, workers: std::thread::available_parallelism().map_or(1, usize::from), uploads: 2 }
    }
}

/// A block and what it becomes. Used again and again, so that memory stays what it is.
#[derive(Default)]
struct Buffers {
    raw: Vec<u8>,
    frame: Vec<u8>,
}

struct Job {
    buffers: Buffers,
    reply: oneshot::Sender<io::Result<Buffers>>,
}

/// A block that is being compressed.
struct Pending {
    reply: oneshot::Receiver<io::Result<Buffers>>,
    /// Whether its object ends with it.
    last: Option<End>,
}

/// What is known of an object when its last byte is written.
struct End {
    key: String,
    bytes: u64,
}

type Upload = (usize, Result<(Object, Put), BaseError>);

/// Writes objects, one after the other.
pub struct Objects<'a> {
    store: &'a Store,
    effort: Effort,
    progress: &'a watch::Sender<Progress>,
    jobs: Sender<Job>,
    filling: Option<Buffers>,
    free: Vec<Buffers>,
    made: usize,
    pending: VecDeque<Pending>,
    body: Vec<u8>,
    begun: usize,
    uploads: JoinSet<Upload>,
    done: Vec<(usize, Object)>,
    /// What the store has because of us, as long as there is no use for it.
    created: Vec<String>,
}

impl<'a> Objects<'a> {
    /// Nothing yet. The workers are threads, and end with this.
    pub fn new(store: &'a Store, effort: Effort, progress: &'a watch::Sender<Progress>) -> Self {
        let effort = Effort { workers: effort.workers.max(1), uploads: effort.uploads.max(1), ..effort };
        let (jobs, queue) = mpsc::channel();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..effort.workers {
            let queue = Arc::clone(&queue);
            // Detached: it ends when nobody can send it anything any more.
            drop(tokio::task::spawn_blocking(move || compress_all(&queue, effort.level)));
        }
        Self {
            store,
            effort,
            progress,
            jobs,
            filling: None,
            free: vec![],
            made: 0,
            pending: VecDeque::new(),
            body: vec![],
            begun: 0,
            uploads: JoinSet::new(),
            done: vec![],
            created: vec![],
        }
    }

    /// Adds to the object that is being written.
    pub async fn write(&mut self, mut data: &[u8]) -> Result<(), BaseError> {
        while !data.is_empty() {
            let mut buffers = self.buffers().await?;
            let (piece, rest) = data.split_at(data.len().min(BLOCK - buffers.raw.len()));
            buffers.raw.extend_from_slice(piece);
            data = rest;
            if buffers.raw.len() < BLOCK {
                self.filling = Some(buffers);
            } else {
                self.submit(buffers, None);
            }
        }
        Ok(())
    }

    /// Ends the object: what was written since the last one is under `key`, and holds `bytes` bytes of files.
    pub async fn end(&mut self, key: String, bytes: u64) -> Result<(), BaseError> {
        let buffers = self.buffers().await?;
        self.submit(buffers, Some(End { key, bytes }));
        Ok(())
    }

    /// Waits until everything is in the store; the objects, in the order in which they were written.
    pub async fn finish(&mut self) -> Result<Vec<Object>, BaseError> {
        while !self.pending.is_empty() {
            self.advance().await?;
        }
        while !self.uploads.is_empty() {
            self.uploaded().await?;
        }
        let mut done = std::mem::take(&mut self.done);
        done.sort_by_key(|(number, _)| *number);
        Ok(done.into_iter().map(|(_, object)| object).collect())
    }

    /// They are of use: what was written stays.
    pub fn keep(&mut self) {
        self.created.clear();
    }

    /// Room for a block, or the block that has room.
    async fn buffers(&mut self) -> Result<Buffers, BaseError> {
        loop {
            if let Some(buffers) = self.filling.take().or_else(|| self.free.pop()) {
                return Ok(buffers);
            }
            if self.made < self.effort.workers + SPARE {
                self.made += 1;
                return Ok(Buffers {
                    raw: Vec::with_capacity(BLOCK),
                    frame: Vec::with_capacity(zstd::compress_bound(BLOCK)),
                });
            }
            self.advance().await?;
        }
    }

    fn submit(&mut self, buffers: Buffers, last: Option<End>) {
        let (sender, reply) = oneshot::channel();
        // If no worker is left, nobody answers, and `advance` says so.
        drop(self.jobs.send(Job { buffers, reply: sender }));
        self.pending.push_back(Pending { reply, last });
    }

    /// Takes the next frame, in order, when it is ready.
    async fn advance(&mut self) -> Result<(), BaseError> {
        let Some(Pending { reply, last }) = self.pending.pop_front() else { return Ok(()) };
        let compressed = reply.await.unwrap_or_else(|_| Err(io::Error::other("the thread ended")));
        let mut buffers = compressed.map_err(BaseError::Compress)?;
        self.body.extend_from_slice(&buffers.frame);
        buffers.raw.clear();
        buffers.frame.clear();
        self.free.push(buffers);
        if let Some(End { key, bytes }) = last {
            while self.uploads.len() >= self.effort.uploads {
                self.uploaded().await?;
            }
            let (number, body, store) = (self.begun, std::mem::take(&mut self.body), self.store.clone());
            self.begun += 1;
            self.uploads.spawn(async move { (number, upload(&store, key, body, bytes).await) });
        }
        while let Some(ended) = self.uploads.try_join_next() {
            self.note(ended)?;
        }
        Ok(())
    }

    /// Waits for an upload.
    async fn uploaded(&mut self) -> Result<(), BaseError> {
        match self.uploads.join_next().await {
            Some(ended) => self.note(ended),
            None => Ok(()),
        }
    }

    fn note(&mut self, ended: Result<Upload, tokio::task::JoinError>) -> Result<(), BaseError> {
        let (number, uploaded) = ended.map_err(|error| BaseError::Compress(io::Error::other(error)))?;
        let (object, put) = uploaded?;
        if put == Put::Created {
            self.created.push(object.key.clone());
        }
        self.progress.send_modify(|progress| {
            progress.objects += 1;
            progress.stored += object.size;
        });
        self.done.push((number, object));
        Ok(())
    }
}

impl Drop for Objects<'_> {
    /// Removes what is of no use, as well as that can be done; whoever reads the catalog sees the rest as a backup that was never finished.
    fn drop(&mut self) {
        let (mut uploads, mut created) = (std::mem::take(&mut self.uploads), std::mem::take(&mut self.created));
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if uploads.is_empty() && created.is_empty() {
            return;
        }
        let store = self.store.clone();
        runtime.spawn(async move {
            // One that is broken off may be carried out all the same, after it was removed.
            let ended = async {
                while let Some(ended) = uploads.join_next().await {
                    if let Ok((_, Ok((object, Put::Created)))) = ended {
                        created.push(object.key);
                    }
                }
            };
            if tokio::time::timeout(FAREWELL, ended).await.is_err() {
                tracing::warn!(%store, "uploads of a backup that failed did not end; the store may keep some of it");
            }
            remove(&store, &created).await;
        });
    }
}

/// Removes objects of a backup that is none. What can't be removed is said, and left.
pub(super) async fn remove(store: &Store, keys: &[String]) {
    for key in keys {
        if let Err(error) = store.delete(key).await {
            tracing::warn!(%error, "an object of a backup that failed stays in the store");
        }
    }
}

async fn upload(store: &Store, key: String, body: Vec<u8>, bytes: u64) -> Result<(Object, Put), BaseError> {
    let hash = move || (hex(digest(&SHA256, &body).as_ref()), Bytes::from(body));
    let hashed = tokio::task::spawn_blocking(hash).await;
    let (sha256, body) = hashed.map_err(|error| BaseError::Compress(io::Error::other(error)))?;
    let size = body.len() as u64;
    let put = store.put_new(&key, body).await?;
    // The same bytes under our own name: an earlier attempt of ours, whose answer was lost, would be the reason. Another backup's would be others.
    Ok((Object { key, size, sha256, bytes }, put))
}

/// Hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn compress_all(queue: &Mutex<Receiver<Job>>, level: i32) {
    let mut compressor = compressor(level);
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { mut buffers, reply }) = next else { return };
        let compressed = match &mut compressor {
            Ok(compressor) => compressor.compress_to_buffer(&buffers.raw, &mut buffers.frame).map(drop),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        // Nobody waits for it any more: the backup failed.
        drop(reply.send(compressed.map(|()| buffers)));
    }
}

fn compressor(level: i32) -> io::Result<Compressor<'static>> {
    let mut compressor = Compressor::new(level)?;
    // So that `zstd --test` finds a damaged object without anything of ours.
    compressor.set_parameter(CParameter::ChecksumFlag(true))?;
    Ok(compressor)
}

impl From<StoreError> for BaseError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
