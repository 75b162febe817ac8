//! Decides which backup a recovery begins with: the newest from which its target can be reached.
//!
//! From the catalog alone, pure, and before anything is touched. The catalog knows positions in the log and when backups ended; it does not know when something was committed, or
//! where a name or a transaction is. So of a time it can say that it is before a backup's end, and of a name or a transaction nothing: there PostgreSQL has the last word, and
//! ends with an error when it has not met its target.
//!
//! Never: a backup chosen that is known not to lead there; a gap in the log passed over in silence.

use std::collections::BTreeSet;
use std::fmt;

use bellwether_core::wal::{Lsn, Timeline};
use jiff::Timestamp;

use super::recovery::Target;
use crate::catalog::{Backup, Catalog};
use crate::gaps::{self, Window};
use crate::layout::{BackupId, SegmentName, WalFile};

/// Which way to go where the history forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the newest timeline that there is, as PostgreSQL would look for it.
    Latest,
    /// On the backup's own.
    Current,
    /// To this one.
    Timeline(Timeline),
}

/// What to do where the log has a gap and goes on behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtGap {
    /// Refuse to recover as far as possible: that is less than there is.
    Refuse,
    /// End there.
    Stop,
}

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// How far to go.
    pub target: Target,
    /// Which way.
    pub way: Way,
    /// What to do at a gap.
    pub at_gap: AtGap,
    /// From this backup, and no other.
    pub backup: Option<BackupId>,
    /// What time it is.
    pub now: Timestamp,
}

/// Where a recovery begins, and how far it can go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice<'a> {
    /// From this backup,
    pub backup: &'a Backup,
    /// along the way to this window's timeline.
    pub window: Window,
}

/// Why there is no way to the target, and where there are ways to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Unreachable {
    why: String,
    /// For each backup, newest first: why not from there.
    backups: Vec<(BackupId, String)>,
    /// What can be reached.
    windows: Vec<(BackupId, Timestamp, Window)>,
    /// Whether it is for a gap, and there would be a way to right before it.
    up_to_gap: bool,
}

impl Unreachable {
    /// Whether there is a way if what comes after a gap is done without.
    pub fn is_for_a_gap(&self) -> bool {
        self.up_to_gap
    }
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; nothing was touched", self.why)?;
        for (id, why) in &self.backups {
            write!(f, "\n  not from {id}: {why}")?;
        }
        match self.windows.is_empty() {
            true => write!(f, "\nnothing can be reached"),
            false => write!(f, "\nwhat can be reached:"),
        }?;
        for (id, finished, window) in &self.windows {
            let Window { timeline, from, to, .. } = window;
            let finished = finished.strftime("%Y-%m-%dT%H:%M:%SZ");
            write!(f, "\n  from {id}, on timeline {timeline}: {finished} ({from}) to the end of its log ({to})")?;
        }
        Ok(())
    }
}

/// Chooses.
pub fn choose<'a>(catalog: &'a Catalog, wanted: &Wanted) -> Result<Choice<'a>, Unreachable> {
    let segments = catalog.segments();
    let refused = |why: String, backups| {
        let windows = catalog.backups.iter().rev().flat_map(|backup| {
            let commit = &backup.commit;
            let windows = gaps::windows(commit, &segments, &catalog.histories);
            windows.into_iter().map(|window| (commit.id.clone(), commit.finished, window))
        });
        let windows: Vec<_> = windows.collect();
        let to_the_end = wanted.target == Target::Latest && wanted.at_gap == AtGap::Refuse;
        let up_to_gap = to_the_end && windows.iter().any(|(.., window)| window.gap.is_some());
        Unreachable { why, backups, windows, up_to_gap }
    };
    let meant = |backup: &&Backup| wanted.backup.as_ref().is_none_or(|id| backup.commit.id == *id);
    let candidates: Vec<_> = catalog.backups.iter().rev().filter(meant).collect();
    if candidates.is_empty() {
        let why = match &wanted.backup {
            Some(id) => format!("there is no backup {id} with a commit that can be read"),
            None => "there is no whole backup here".to_owned(),
        };
        return Err(refused(why, vec![]));
    }
    if let Target::Time(at, _) = &wanted.target
        && *at > wanted.now
    {
        return Err(refused(format!("{at} is in the future"), vec![]));
    }
    let mut not = vec![];
    for backup in candidates {
        match reach(backup, catalog, &segments, wanted) {
            Ok(window) => return Ok(Choice { backup, window }),
            Err(why) => not.push((backup.commit.id.clone(), why)),
        }
    }
    Err(refused("the target can't be reached".to_owned(), not))
}

/// Since when every moment can be reached from one of these backups: from the end of the oldest whose log leads to the next, and so on to the newest. How far the
/// newest one's log goes is not looked at: what is on its way into the store seems to be missing.
pub fn since(catalog: &Catalog, counts: impl Fn(&BackupId) -> bool) -> Option<Timestamp> {
    let segments = catalog.segments();
    let mut since: Option<(Timestamp, Lsn)> = None;
    for backup in catalog.backups.iter().rev().filter(|backup| counts(&backup.commit.id)) {
        let commit = &backup.commit;
        let timeline = latest(commit.timeline, catalog);
        let windows = gaps::windows(commit, &segments, &catalog.histories);
        match (windows.into_iter().find(|window| window.timeline == timeline), since) {
            // Of a timeline that was given up, or no backup at all.
            (None, None) => {}
            (Some(window), None) => since = Some((commit.finished, window.from)),
            (Some(window), Some((_, next))) if window.to >= next => since = Some((commit.finished, window.from)),
            (_, Some(_)) => break,
        }
    }
    since.map(|(at, _)| at)
}

/// How far this backup leads on the way that is wanted, if the target can lie there.
fn reach(
    backup: &Backup,
    catalog: &Catalog,
    segments: &BTreeSet<SegmentName>,
    wanted: &Wanted,
) -> Result<Window, String> {
    let commit = &backup.commit;
    if let Some(gap) = gaps::missing_for(commit, segments, &catalog.histories).first() {
        return Err(format!("{gap} is missing, without which it is no backup"));
    }
    let timeline = match wanted.way {
        Way::Latest => latest(commit.timeline, catalog),
        Way::Current => commit.timeline,
        Way::Timeline(timeline) => timeline,
    };
    if timeline != commit.timeline && !catalog.histories.contains_key(&timeline) {
        return Err(format!("there is no history of timeline {timeline}, or it can't be read"));
    }
    let windows = gaps::windows(commit, segments, &catalog.histories);
    let window = windows.into_iter().find(|window| window.timeline == timeline);
    let window = window.ok_or_else(|| {
        format!("its log does not lead to timeline {timeline}: that is no successor of its own, or begins behind a gap, or nothing of it is there yet")
    })?;
    match &wanted.target {
        Target::Time(at, _) if *at < commit.finished => {
            Err(format!("it ended at {}, after that", commit.finished.strftime("%Y-%m-%dT%H:%M:%SZ")))
        }
        Target::Lsn(at, _) if *at < window.from => Err(format!("it ended at {}, after that", window.from)),
        Target::Lsn(at, _) if *at >= window.to => Err(match window.gap {
            Some(gap) => format!("{gap} is missing, and the log before it ends at {}", window.to),
            None => format!("its log ends at {}", window.to),
        }),
        Target::Latest if wanted.at_gap == AtGap::Refuse && window.gap.is_some() => Err(format!(
            "{} is missing and the log goes on behind it: name a target before it",
            window.gap.map(|gap| gap.to_string()).unwrap_or_default()
        )),
        _ => Ok(window),
    }
}

/// The newest timeline as PostgreSQL looks for it: it asks for one history after the other, and takes the last before the first that is not there.
fn latest(from: Timeline, catalog: &Catalog) -> Timeline {
    let is_there = |timeline: &Timeline| catalog.wal.contains_key(&WalFile::History(*timeline));
    (from.0 + 1..).map(Timeline).take_while(is_there).last().unwrap_or(from)
}

#[cfg(test)]
mod tests;
