//! What is in a store: archives, and in each its backups, what is left of broken ones, and the log. Read once, and from then on plain data.
//!
//! Never: one object that can't be understood keeps the others from being seen (it is named); a backup whole without its commit; an answer of the store that failed
//! taken for nothing being there.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::wal::Timeline;
use bytes::Bytes;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::gaps::History;
use crate::layout::{BASE, BackupId, COMMIT, OWNER, SegmentName, WAL, WalFile};
use crate::record::{Commit, FORMAT, Owner, VERIFIED, Verified};
use crate::store::{Entry, Store, StoreError};
use crate::wal;

/// Objects that are read at the same time. They are small: it is the way there and back that takes long.
const PARALLEL: usize = 8;
/// So many of the newest backups are looked at to see whether something is new.
const NEWEST: usize = 8;

/// Something that can't be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Its key, below the store's or the archive's root.
    pub key: String,
    /// Why.
    pub problem: String,
}

/// The archives of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Archives {
    /// By directory: whose they are.
    pub archives: BTreeMap<String, Owner>,
    /// Directories that look like one, and where nobody can tell.
    pub unreadable: Vec<Unreadable>,
}

/// A whole backup.
#[derive(Clone, Debug, PartialEq)]
pub struct Backup {
    /// What it says of itself.
    pub commit: Commit,
    /// When it was found good by restoring it; nothing as long as it was not.
    pub verified: Option<Verified>,
    /// The keys of all its objects.
    pub objects: Vec<String>,
}

/// What there is of a backup without a commit: it is being taken, was broken off, or is being removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incomplete {
    /// Which.
    pub id: BackupId,
    /// The keys of its objects.
    pub objects: Vec<String>,
    /// Bytes of them.
    pub bytes: u64,
    /// When the last of them was written, by the store's clock.
    pub newest: Timestamp,
}

/// An archive, as it was when it was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalog {
    /// Whole backups, oldest first.
    pub backups: Vec<Backup>,
    /// Backups without a commit.
    pub incomplete: Vec<Incomplete>,
    /// What can't be understood. About a backup among these nothing is known but that it may be one.
    pub unreadable: Vec<Unreadable>,
    /// The files of the log, with their sizes in the store.
    pub wal: BTreeMap<WalFile, u64>,
    /// Where timelines come from.
    pub histories: BTreeMap<Timeline, History>,
}

impl Catalog {
    /// The segments of the log.
    pub fn segments(&self) -> BTreeSet<SegmentName> {
        let segment = |file: &WalFile| match file {
            WalFile::Segment(name) => Some(*name),
            _ => None,
        };
        self.wal.keys().filter_map(segment).collect()
    }

    /// The newest backup that was found good.
    pub fn newest_verified(&self) -> Option<&Backup> {
        self.backups.iter().rev().find(|backup| backup.verified.is_some())
    }

    /// The backups whose commits can't be understood.
    pub fn unknown(&self) -> impl Iterator<Item = &Unreadable> {
        self.unreadable.iter().filter(|unreadable| unreadable.key.ends_with(COMMIT))
    }

    /// What is in the archive at this root.
    pub async fn read(archive: &Store) -> Result<Self, StoreError> {
        let (base, log) = (archive.list(BASE).await?, archive.list(WAL).await?);
        let (directories, mut unreadable) = by_backup(base);
        let found: Vec<_> = stream::iter(directories)
            .map(|(id, entries)| backup(archive, id, entries))
            .buffered(PARALLEL)
            .try_collect()
            .await?;
        let mut catalog = Self::default();
        for (found, problems) in found {
            unreadable.extend(problems);
            match found {
                Found::Whole(backup) => catalog.backups.push(*backup),
                Found::Incomplete(incomplete) => catalog.incomplete.push(incomplete),
                Found::Unknown => {}
            }
        }
        for entry in log {
            match WalFile::of_key(&entry.key) {
                Some(file) => drop(catalog.wal.insert(file, entry.size)),
                None => unreadable.push(stranger(entry.key)),
            }
        }
        let timelines = catalog.wal.keys().filter_map(|file| match file {
            WalFile::History(timeline) => Some(*timeline),
            _ => None,
        });
        let histories: Vec<_> = stream::iter(timelines.collect::<Vec<_>>())
            .map(|timeline| history(archive, timeline))
            .buffered(PARALLEL)
            .try_collect()
            .await?;
        for history in histories {
            match history {
                Ok(history) => drop(catalog.histories.insert(history.timeline, history)),
                Err(problem) => unreadable.push(problem),
            }
        }
        unreadable.sort_by(|a, b| a.key.cmp(&b.key));
        catalog.unreadable = unreadable;
        Ok(catalog)
    }
}

/// What tells cheaply that an archive is no longer as it was: a listing and a few looks, however much is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Newest {
    /// The newest whole backup.
    pub whole: Option<BackupId>,
    /// The newest that was found good, if it is among the newest at all.
    pub verified: Option<BackupId>,
}

impl Newest {
    /// Of the archive at this root.
    pub async fn of(archive: &Store) -> Result<Self, StoreError> {
        let names = archive.directories(BASE).await?;
        let ids = names.iter().rev().filter_map(|name| name.parse::<BackupId>().ok());
        let mut newest = Self::default();
        for id in ids.take(NEWEST) {
            if archive.size(&id.key(COMMIT)).await?.is_none() {
                continue;
            }
            let verified = archive.size(&id.key(VERIFIED)).await?.is_some();
            newest.whole.get_or_insert_with(|| id.clone());
            if verified {
                newest.verified = Some(id);
                break;
            }
        }
        Ok(newest)
    }
}

impl Archives {
    /// Those that are meant by a cluster's name, by `namespace/cluster`, or by a directory.
    pub fn meant<'a>(&'a self, name: &str) -> impl Iterator<Item = (&'a String, &'a Owner)> {
        self.archives.iter().filter(move |(directory, owner)| {
            let full = name
                .split_once('/')
                .is_some_and(|(namespace, cluster)| (namespace, cluster) == (&*owner.namespace, &*owner.cluster));
            name == owner.cluster || name == **directory || full
        })
    }
}

/// The archives in a store.
pub async fn archives(store: &Store) -> Result<Archives, StoreError> {
    let directories = store.directories("").await?.into_iter().filter(|name| looks_like_an_archive(name));
    let owners: Vec<_> = stream::iter(directories)
        .map(|name| async {
            let key = format!("{name}/{OWNER}");
            Ok::<_, StoreError>((name, store.find(&key).await?, key))
        })
        .buffered(PARALLEL)
        .try_collect()
        .await?;
    let mut archives = Archives::default();
    for (name, body, key) in owners {
        // Without an owner nobody has archived anything there.
        let Some(body) = body else { continue };
        match read::<Owner>(&body).and_then(|owner| in_its_place(&name, owner)) {
            Ok(owner) => drop(archives.archives.insert(name, owner)),
            Err(problem) => archives.unreadable.push(Unreadable { key, problem }),
        }
    }
    Ok(archives)
}

fn looks_like_an_archive(name: &str) -> bool {
    let parts = name.split_once('-');
    parts.is_some_and(|(system, life)| system.parse::<u64>().is_ok() && !life.is_empty())
}

fn in_its_place(name: &str, owner: Owner) -> Result<Owner, String> {
    match wal::root(&owner) {
        Ok(root) if root == name => Ok(owner),
        Ok(root) => Err(format!("it is that of {root}")),
        Err(error) => Err(error.to_string()),
    }
}

fn stranger(key: String) -> Unreadable {
    Unreadable { key, problem: "it is not one of ours".to_owned() }
}

/// The objects below `base`, by the backup that they are of.
fn by_backup(entries: Vec<Entry>) -> (BTreeMap<BackupId, Vec<Entry>>, Vec<Unreadable>) {
    let (mut directories, mut strangers): (BTreeMap<_, Vec<_>>, _) = (BTreeMap::new(), vec![]);
    for entry in entries {
        let id = entry.key.split('/').nth(1).and_then(|name| name.parse::<BackupId>().ok());
        match id {
            Some(id) => directories.entry(id).or_default().push(entry),
            None => strangers.push(stranger(entry.key)),
        }
    }
    (directories, strangers)
}

enum Found {
    Whole(Box<Backup>),
    Incomplete(Incomplete),
    Unknown,
}

async fn backup(archive: &Store, id: BackupId, entries: Vec<Entry>) -> Result<(Found, Vec<Unreadable>), StoreError> {
    let (commit, verified) = (id.key(COMMIT), id.key(VERIFIED));
    let listed = |key: &str| entries.iter().any(|entry| entry.key == key);
    let mut problems = vec![];
    let mut objects: Vec<_> = entries.iter().map(|entry| entry.key.clone()).collect();
    objects.sort();
    // Listed, and gone when it is read: it is being removed.
    let body = if listed(&commit) { archive.find(&commit).await? } else { None };
    let Some(body) = body else {
        let bytes = entries.iter().map(|entry| entry.size).sum();
        let newest = entries.iter().map(|entry| entry.modified).max().unwrap_or_default();
        return Ok((Found::Incomplete(Incomplete { id, objects, bytes, newest }), problems));
    };
    let read_commit = read::<Commit>(&body).and_then(|read| match read.id == id {
        true => Ok(read),
        false => Err(format!("it is that of {}", read.id)),
    });
    let whole = match read_commit {
        Ok(read) => read,
        Err(problem) => {
            problems.push(Unreadable { key: commit, problem });
            return Ok((Found::Unknown, problems));
        }
    };
    let body = if listed(&verified) { archive.find(&verified).await? } else { None };
    let good = match body.map(|body| read::<Verified>(&body)).transpose() {
        Ok(read) => read.filter(|read| read.id == id),
        Err(problem) => {
            problems.push(Unreadable { key: verified, problem });
            None
        }
    };
    Ok((Found::Whole(Box::new(Backup { commit: whole, verified: good, objects })), problems))
}

/// A record, unless it is newer than what we know: a field that we don't know could change what the others mean.
fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let Format { format } = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if format > FORMAT {
        return Err(format!("its format is {format}, newer than this program's, {FORMAT}: use a newer version"));
    }
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

async fn history(archive: &Store, timeline: Timeline) -> Result<Result<History, Unreadable>, StoreError> {
    let file = WalFile::History(timeline);
    let key = file.key();
    let problem = |problem: String| Unreadable { key: key.clone(), problem };
    let Some(body) = archive.find(&key).await? else {
        return Ok(Err(problem("it was removed meanwhile".to_owned())));
    };
    let parsed = || -> Result<History, String> {
        let text = wal::text(file, &body)?;
        History::parse(timeline, &text).ok_or_else(|| format!("it is no history of timeline {timeline}"))
    };
    Ok(parsed().map_err(problem))
}

#[cfg(test)]
mod tests;
