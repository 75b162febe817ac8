//! What the volume remembers of the election: who this instance is, what it has seen, and which leader wrote its WAL.
//!
//! `<data>/election.json`, beside `pgdata`. Every change is flushed, file and directory, before the call returns: a promise or a
//! term that a power failure takes back would be one that was never given (E13, E14).
//!
//! **Which leader wrote it**: `bellwether_core::instance::history`.
//!
//! Never: an unreadable file taken for an empty one; a copy that is being replaced taken for a log.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use bellwether_core::election::{Edition, MemberId, Memory};
use bellwether_core::instance::history::{self, WrittenBy};
use bellwether_core::wal::{Term, Timeline};
use bellwether_postgres::file::{self, Written};
use serde::{Deserialize, Serialize};

use super::ids::{self, Uid};
use crate::space;

/// Its name on the data volume.
pub const FILE: &str = "election.json";
/// What a crash in the middle of a write may leave beside it.
pub const UNFINISHED: &str = "election.json.new";

const FORMAT: u32 = 1;
/// The record of one volume.
#[derive(Debug)]
pub struct VolumeMemory {
    path: PathBuf,
    identity: MemberId,
    claim: Option<String>,
    memory: Memory,
    log: Vec<WrittenBy>,
    copy: CopyState,
}

/// What can be said about the copy on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CopyState {
    /// Nobody has begun to replace it.
    Whole,
    /// It is being cloned or rewound, and is no log.
    Unfinished,
}

/// Why the record can't be had, or kept.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The file system said no.
    #[error("{what} {}: {cause}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What came back.
        cause: io::Error,
    },
    /// The file says something that this version doesn't understand.
    #[error("{}: {why}; it says who this instance is, so nothing is assumed in its place", path.display())]
    NotUnderstood {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A new volume gets the pod's UID for its identity, and this is none.
    #[error("{0:?} is not a pod's UID")]
    PodUid(String),
}

impl VolumeMemory {
    /// Reads the record of the volume mounted at `data`, or begins one under the pod's UID. Either way it is durable when this
    /// returns.
    ///
    /// A record that was made for another claim came with a copy of that one's volume (a snapshot, a clone, a backup). Who it was is
    /// somebody else, or one that has forgotten what it promised and acknowledged since: what is here begins anew under the pod's UID, with its log.
    pub fn open(data: &Path, pod_uid: &str, claim_uid: Option<&str>) -> Result<Self, MemoryError> {
        let path = data.join(FILE);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                return Self::begin(path, pod_uid, claim_uid);
            }
            Err(cause) => return Err(MemoryError::Io { what: "read", path, cause }),
        };
        let stored = Stored::parse(&bytes).map_err(|why| MemoryError::NotUnderstood { path: path.clone(), why })?;
        let mut memory = Self {
            path,
            identity: stored.identity.into(),
            claim: stored.claim,
            memory: stored.memory.into(),
            log: stored.log,
            copy: stored.copy,
        };
        match claim_uid.map(str::to_owned) {
            now @ Some(_) if now != memory.claim => {
                if memory.claim.is_some() {
                    tracing::warn!(was = %memory.identity, "the volume is a copy of another: it takes part as somebody new");
                    memory.identity = identity(pod_uid)?;
                }
                memory.claim = now;
                memory.write()?;
            }
            // An earlier process may have died between the rename and the flush.
            _ => memory.flush()?,
        }
        Ok(memory)
    }

    fn begin(path: PathBuf, pod_uid: &str, claim_uid: Option<&str>) -> Result<Self, MemoryError> {
        let (identity, claim) = (identity(pod_uid)?, claim_uid.map(str::to_owned));
        let memory = Self { path, identity, claim, memory: Memory::default(), log: vec![], copy: CopyState::Whole };
        memory.write()?;
        Ok(memory)
    }

    /// Who this instance is: the UID of the pod that first filled the volume (E13).
    pub fn identity(&self) -> MemberId {
        self.identity
    }

    /// What the election has to remember.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Who wrote which timelines, lowest first.
    pub fn log(&self) -> &[WrittenBy] {
        &self.log
    }

    /// Whether the copy on the volume may be called a log: not while it is being cloned or rewound.
    pub fn usable(&self) -> bool {
        self.copy == CopyState::Whole
    }

    /// The term of the leader that wrote this timeline's WAL here. Unknown: there is no position to speak of.
    pub fn term_of(&self, timeline: Timeline) -> Option<Term> {
        history::term_of(&self.log, timeline)
    }

    /// Keeps what [`bellwether_core::election::Effect::Remember`] says.
    pub fn remember(&mut self, memory: &Memory) -> Result<(), MemoryError> {
        self.memory.clone_from(memory);
        self.write()
    }

    /// From now on WAL of the leader of `term` may arrive, on timelines above `above`. Before following it, and before a promotion of
    /// our own (`above` is the timeline that ends then). What is on the volume must be part of that leader's history: otherwise its
    /// own timelines above the fork would be taken for the leader's; see [`Self::restart_log`].
    pub fn will_receive(&mut self, term: Term, above: Timeline) -> Result<(), MemoryError> {
        self.log = history::extended(&self.log, &[WrittenBy { term, above }]);
        self.write()
    }

    /// The list of the leader that is about to be followed, in the place of our own: it knows who wrote the timelines that we missed.
    /// Same condition as [`Self::will_receive`]; the list is that leader's [`Self::log`].
    pub fn adopt_log(&mut self, leaders: &[WrittenBy]) -> Result<(), MemoryError> {
        self.log = history::extended(&[], leaders);
        self.write()
    }

    /// The copy is about to be replaced, by a clone of what the leader of `term` has or by a rewind onto it: no log until
    /// [`Self::copy_complete`], and then all of it that leader's. Before the first file is touched.
    pub fn restart_log(&mut self, term: Term) -> Result<(), MemoryError> {
        self.log = vec![WrittenBy { term, above: Timeline(0) }];
        self.copy = CopyState::Unfinished;
        self.write()
    }

    /// The clone or rewind is done, and flushed.
    pub fn copy_complete(&mut self) -> Result<(), MemoryError> {
        self.copy = CopyState::Whole;
        self.write()
    }

    /// A failure leaves it open which of the two is on the volume. What is in memory is the newer one, and the next write that
    /// succeeds settles it.
    fn write(&self) -> Result<(), MemoryError> {
        let stored = Stored {
            format: FORMAT,
            identity: self.identity.into(),
            claim: self.claim.clone(),
            memory: (&self.memory).into(),
            log: self.log.clone(),
            copy: self.copy,
        };
        let written = serde_json::to_vec(&stored)
            .map_err(io::Error::other)
            .and_then(|bytes| match file::replace(&self.path, &bytes) {
                // Whoever can't remember may promise nothing, and ends: the reserve is for this, too.
                Err(cause) if cause.kind() == io::ErrorKind::StorageFull && space::give_back(self.directory()) => {
                    file::replace(&self.path, &bytes)
                }
                written => written,
            })
            .map_err(|cause| MemoryError::Io { what: "write", path: self.path.clone(), cause })?;
        match written {
            Written::Changed => Ok(()),
            // It may be a write that failed at its last step, repeated.
            Written::Unchanged => self.flush(),
        }
    }

    fn directory(&self) -> &Path {
        self.path.parent().unwrap_or_else(|| Path::new("."))
    }

    fn flush(&self) -> Result<(), MemoryError> {
        [self.path.as_path(), self.directory()]
            .into_iter()
            .try_for_each(|path| File::open(path).and_then(|file| file.sync_all()))
            .map_err(|cause| MemoryError::Io { what: "flush", path: self.path.clone(), cause })
    }
}

fn identity(pod_uid: &str) -> Result<MemberId, MemoryError> {
    MemberId::from_uid(pod_uid).ok_or_else(|| MemoryError::PodUid(pod_uid.to_owned()))
}

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Stored {
    format: u32,
    identity: Uid,
    /// The UID of the claim that the volume belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    claim: Option<String>,
    memory: StoredMemory,
    log: Vec<WrittenBy>,
    copy: CopyState,
}

/// [`Memory`] in the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StoredMemory {
    term: Option<Term>,
    uid: Option<Uid>,
    lease_term: Option<Term>,
    members: Vec<Uid>,
    #[serde(default)]
    edition: u64,
}

/// Read first: another format may have other fields.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

impl Stored {
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let Version { format } = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if format != FORMAT {
            return Err(format!("it has format {format}, and this version knows {FORMAT}"));
        }
        let stored: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if !stored.log.is_sorted_by(|a, b| a.above < b.above) {
            return Err("the entries of its log are out of order".to_owned());
        }
        Ok(stored)
    }
}

impl From<&Memory> for StoredMemory {
    fn from(memory: &Memory) -> Self {
        let Memory { term, uid, lease_term, members, edition } = memory;
        let (term, lease_term) = (*term, *lease_term);
        Self { term, uid: uid.map(Uid::from), lease_term, members: ids::list(members), edition: edition.0 }
    }
}

impl From<StoredMemory> for Memory {
    fn from(stored: StoredMemory) -> Self {
        let StoredMemory { term, uid, lease_term, members, edition } = stored;
        let (uid, members) = (uid.map(Into::into), ids::members(&members));
        Self { term, uid, lease_term, members, edition: Edition(edition) }
    }
}

#[cfg(test)]
mod tests;
