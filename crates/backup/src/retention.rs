//! Decides what may be removed from an archive: backups, what is left of broken ones, and the log that no backup needs any longer.
//!
//! From: the catalog, a policy and the time. Pure; [`apply`] carries a plan out.
//!
//! Kept are: the backups that the policy names; the newest that is older than its window, from which its first moments are reached; the newest one that was found good by
//! restoring it, always; and of those after it, or of all where none was found good, a bounded number, because nobody knows yet which of them is one.
//!
//! Never: the newest verified backup removed, or a segment that a kept one needs to reach the present on any timeline; a segment removed while something is in the archive
//! whose needs are not known; half of a backup that looks whole (its commit goes first).

use std::collections::BTreeMap;
use std::fmt;

use futures::stream::{self, StreamExt as _};
use jiff::{SignedDuration, Timestamp};

use crate::catalog::{Backup, Catalog};
use crate::layout::{BackupId, COMMIT, WalFile};
use crate::record::Commit;
use crate::store::{Store, StoreError};

pub use bellwether_api::retention::{BadPolicy, Policy};

/// Of backups that were not verified so many of the newest are kept, whatever the policy says: with one a day, a week in which somebody can see the
/// alarm and repair verification, and a bound on what a year without it costs.
pub const UNVERIFIED: usize = 7;
/// A backup without a commit is broken off when nothing was written to it for so long. The largest take hours, but write every few seconds.
pub const BROKEN_OFF: SignedDuration = SignedDuration::from_hours(24);
/// Objects that are removed at the same time.
const PARALLEL: usize = 16;

/// Why a backup is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keep {
    /// It is the newest that was found good.
    NewestVerified,
    /// It is of the time that the policy names.
    InWindow,
    /// The first moments of that time are reached from it.
    BeforeWindow,
    /// It is one of the newest, as many as the policy names.
    Count,
    /// Nobody knows yet whether it is a backup, and it is one of the newest of which that is so.
    Unverified,
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NewestVerified => "the newest that was verified",
            Self::InWindow => "within the time that backups are kept",
            Self::BeforeWindow => "the beginning of the time that backups are kept is reached from it",
            Self::Count => "among the newest, as many as are kept",
            Self::Unverified => "among the newest, none of which was verified",
        })
    }
}

/// Objects that go, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The backup.
    pub id: BackupId,
    /// Why.
    pub why: &'static str,
    /// The keys of its objects, the commit first.
    pub objects: Vec<String>,
}

/// What somebody must know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Alarm {
    /// No backup is known to be one.
    #[error(
        "none of {completed} backups was verified: only the newest {UNVERIFIED}, and what the policy names, are kept, and nobody knows whether one can be restored"
    )]
    NothingVerified {
        /// How many there are.
        completed: usize,
    },
    /// The newest that is known to be one is old.
    #[error(
        "{newer} backups since {newest} were not verified: those between it and the newest {UNVERIFIED} are kept no longer than the policy says"
    )]
    VerificationBehind {
        /// The newest that was verified.
        newest: BackupId,
        /// How many are newer.
        newer: usize,
    },
    /// A backup can't be understood: nothing of the log is removed, since nobody knows what it needs.
    #[error("{} can't be understood: nothing of the log is removed", keys.join(", "))]
    Unknown {
        /// The keys of what can't be understood.
        keys: Vec<String>,
    },
}

/// What goes, what stays, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Backups that go.
    pub backups: Vec<Removal>,
    /// What is left of backups that were broken off.
    pub incomplete: Vec<Removal>,
    /// The files of the log that go: every kept backup begins later.
    pub log: Vec<WalFile>,
    /// What stays, and why.
    pub kept: BTreeMap<BackupId, Keep>,
    /// What somebody must know.
    pub alarms: Vec<Alarm>,
}

impl Plan {
    /// Whether nothing goes.
    pub fn is_empty(&self) -> bool {
        self.backups.is_empty() && self.incomplete.is_empty() && self.log.is_empty()
    }

    /// Bytes of what goes, in the catalog that this is a plan for.
    pub fn bytes(&self, catalog: &Catalog) -> u64 {
        let goes = |id: &BackupId, removals: &[Removal]| removals.iter().any(|removal| removal.id == *id);
        let whole =
            catalog.backups.iter().map(|backup| &backup.commit).filter(|commit| goes(&commit.id, &self.backups));
        let broken = catalog.incomplete.iter().filter(|run| goes(&run.id, &self.incomplete));
        let log = self.log.iter().filter_map(|file| catalog.wal.get(file));
        whole.map(Commit::stored).chain(broken.map(|run| run.bytes)).chain(log.copied()).sum()
    }

    /// The keys of what goes, in stages: all of one is gone before the next is begun. After each, what looks whole is whole.
    pub fn stages(&self) -> [Vec<String>; 3] {
        let objects = self.backups.iter().chain(&self.incomplete).flat_map(|removal| &removal.objects);
        let (commits, others) = objects.cloned().partition(|key| is_commit(key));
        [commits, others, self.log.iter().map(|file| file.key()).collect()]
    }
}

fn is_commit(key: &str) -> bool {
    key.rsplit('/').next() == Some(COMMIT)
}

/// What may be removed now.
pub fn plan(catalog: &Catalog, policy: Policy, now: Timestamp) -> Plan {
    let kept = kept(&catalog.backups, policy, now);
    let removed = catalog.backups.iter().filter(|backup| !kept.contains_key(&backup.commit.id));
    let gone = removed.map(|backup| removal(&backup.commit.id, "older than what is kept", &backup.objects));
    let broken = catalog.incomplete.iter().filter(|run| now.duration_since(run.newest) > BROKEN_OFF);
    let broken = broken.map(|run| removal(&run.id, "broken off, or half removed", &run.objects));
    Plan {
        backups: gone.collect(),
        incomplete: broken.collect(),
        log: log(catalog, &kept, now),
        alarms: alarms(catalog),
        kept,
    }
}

fn removal(id: &BackupId, why: &'static str, objects: &[String]) -> Removal {
    let mut objects = objects.to_vec();
    objects.sort_by_key(|key| !is_commit(key));
    Removal { id: id.clone(), why, objects }
}

/// Each backup that stays, with the weightiest reason.
fn kept(backups: &[Backup], policy: Policy, now: Timestamp) -> BTreeMap<BackupId, Keep> {
    let mut kept = BTreeMap::new();
    let mut keep = |backup: &Backup, why: Keep| {
        kept.entry(backup.commit.id.clone()).and_modify(|known: &mut Keep| *known = why.min(*known)).or_insert(why);
    };
    let verified = |backup: &&Backup| backup.verified.is_some();
    backups.iter().rev().find(verified).into_iter().for_each(|backup| keep(backup, Keep::NewestVerified));
    let unverified = backups.iter().rev().take_while(|backup| backup.verified.is_none());
    unverified.take(UNVERIFIED).for_each(|backup| keep(backup, Keep::Unverified));
    backups.iter().rev().take(policy.count()).for_each(|backup| keep(backup, Keep::Count));
    if let Some(window) = policy.window() {
        // A window that is longer than time itself has room for everything.
        let start = now.checked_sub(window).unwrap_or(Timestamp::MIN);
        let before = |backup: &&Backup| backup.commit.finished <= start;
        backups.iter().filter(|backup| !before(backup)).for_each(|backup| keep(backup, Keep::InWindow));
        // Not only the newest: should that turn out to be none, one that is known to be a backup leads to the window too.
        let newest = backups.iter().filter(before).max_by_key(|backup| backup.commit.finished);
        let newest_verified =
            backups.iter().filter(before).filter(verified).max_by_key(|backup| backup.commit.finished);
        newest.into_iter().chain(newest_verified).for_each(|backup| keep(backup, Keep::BeforeWindow));
    }
    kept
}

/// The files of the log that no kept backup can come to need. Positions only grow along every way from a backup to the present, so that what lies before the
/// beginning of all is needed by none; on timelines that were given up more may stay than is needed, until all that is kept begins later.
fn log(catalog: &Catalog, kept: &BTreeMap<BackupId, Keep>, now: Timestamp) -> Vec<WalFile> {
    let running = catalog.incomplete.iter().any(|run| now.duration_since(run.newest) <= BROKEN_OFF);
    if running || catalog.unknown().next().is_some() {
        return vec![];
    }
    let commits = || catalog.backups.iter().map(|backup| &backup.commit).filter(|commit| kept.contains_key(&commit.id));
    let first = commits().map(|commit| commit.start).min();
    let oldest = commits().map(|commit| commit.timeline).min();
    let (Some(first), Some(oldest), Some(commit)) = (first, oldest, commits().next()) else { return vec![] };
    // The names of files mean other positions where segments have another size.
    if commits().any(|other| other.segment_size != commit.segment_size) {
        return vec![];
    }
    let size = commit.segment_size;
    let unneeded = |file: &&WalFile| match file {
        WalFile::Segment(name) | WalFile::Partial(name) | WalFile::Label(name, _) => name.number(size) < first.0 / size,
        WalFile::History(timeline) => *timeline < oldest,
    };
    catalog.wal.keys().filter(unneeded).copied().collect()
}

fn alarms(catalog: &Catalog) -> Vec<Alarm> {
    let mut alarms = vec![];
    let newer = catalog.backups.iter().rev().take_while(|backup| backup.verified.is_none()).count();
    match catalog.newest_verified() {
        Some(newest) if newer > UNVERIFIED => {
            alarms.push(Alarm::VerificationBehind { newest: newest.commit.id.clone(), newer });
        }
        None if newer > 0 => alarms.push(Alarm::NothingVerified { completed: newer }),
        _ => {}
    }
    let keys: Vec<_> = catalog.unknown().map(|unreadable| unreadable.key.clone()).collect();
    if !keys.is_empty() {
        alarms.push(Alarm::Unknown { keys });
    }
    alarms
}

/// Removes what a plan names from the archive at this root. It stops at the end of a stage in which something could not be removed; what is left is found by
/// the next plan.
pub async fn apply(archive: &Store, plan: &Plan) -> Result<(), StoreError> {
    for stage in plan.stages() {
        let removals: Vec<_> = stream::iter(stage)
            .map(|key| async move { archive.delete(&key).await })
            // In order, so that what fails again and again is told in the same words.
            .buffered(PARALLEL)
            .collect()
            .await;
        removals.into_iter().collect::<Result<(), _>>()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
