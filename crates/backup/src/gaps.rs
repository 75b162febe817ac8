//! Decides what can be restored: which segments of the log are missing on the way from one position to another, and how far a backup reaches on each timeline.
//!
//! From: the segments that there are, and the histories of timelines. Pure. A segment belongs to the newest timeline of the way that has begun by its end: where one
//! timeline forked off another, only its own first segment holds both the log before the fork and after it.
//!
//! Never: a position called reachable of which a segment is missing, or which is on a way that the backup's timeline does not lead to.

mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bellwether_core::wal::{Lsn, Timeline};

use crate::layout::SegmentName;
use crate::record::Commit;

pub use report::{Leg, legs, without_history};

/// Where a timeline comes from, as its history file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// Which timeline.
    pub timeline: Timeline,
    /// Those before it and where each ended, oldest first.
    pub forks: Vec<(Timeline, Lsn)>,
}

impl History {
    /// From the text of a history file: a line for each timeline before this one, with its number and where it ended; `#` begins a comment. Nothing if it is none.
    pub fn parse(timeline: Timeline, text: &str) -> Option<Self> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let fork = |line: &str| {
            let mut words = line.split_whitespace();
            Some((Timeline(words.next()?.parse().ok()?), words.next()?.parse().ok()?))
        };
        let forks = lines.map(fork).collect::<Option<Vec<_>>>()?;
        let order = forks.iter().map(|(of, _)| *of).chain([timeline]).collect::<Vec<_>>();
        let grows = order.is_sorted_by(|a, b| a < b) && forks.is_sorted_by_key(|(_, end)| *end);
        (grows && !forks.is_empty()).then_some(Self { timeline, forks })
    }
}

/// The way to a timeline: those that it comes from, and itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lineage {
    /// Each with where it begins, oldest first. There is always one.
    legs: Vec<(Timeline, Lsn)>,
}

impl Lineage {
    /// The way to a timeline. One without a history is only known by itself.
    pub fn to(timeline: Timeline, histories: &BTreeMap<Timeline, History>) -> Self {
        let mut legs = vec![];
        let mut begin = Lsn(0);
        for (of, end) in histories.get(&timeline).map_or(&[][..], |history| &history.forks) {
            legs.push((*of, begin));
            begin = *end;
        }
        legs.push((timeline, begin));
        Self { legs }
    }

    /// The segment with this number, on this way.
    pub fn segment(&self, number: u64, segment_size: u64) -> SegmentName {
        let begun = |(_, begin): &&(Timeline, Lsn)| begin.0 / segment_size <= number;
        let (timeline, _) = self.legs.iter().rev().find(begun).unwrap_or(&self.legs[0]);
        SegmentName::numbered(*timeline, number, segment_size)
    }

    /// Where the way leaves a timeline: nothing when it ends on it.
    fn leaves(&self, timeline: Timeline) -> Option<Way> {
        let at = self.legs.iter().position(|(of, _)| *of == timeline)?;
        Some(self.legs.get(at + 1).map_or(Way::EndsHere, |(_, begin)| Way::Leaves(*begin)))
    }

    /// Where its last timeline begins.
    fn begin(&self) -> Lsn {
        self.legs.last().map_or(Lsn(0), |(_, begin)| *begin)
    }
}

/// What becomes of a timeline on a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    EndsHere,
    Leaves(Lsn),
}

/// Segments, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first.
    pub first: SegmentName,
    /// The last.
    pub last: SegmentName,
    /// How many.
    pub segments: u64,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { first, segments: 1, .. } => first.fmt(f),
            Self { first, last, segments } => write!(f, "{first} to {last} ({segments} segments)"),
        }
    }
}

/// What is missing of the log between two positions on a way.
pub fn missing(present: &BTreeSet<SegmentName>, way: &Lineage, from: Lsn, to: Lsn, segment_size: u64) -> Vec<Gap> {
    let mut gaps: Vec<Gap> = vec![];
    let mut last_missing = None;
    for number in from.0 / segment_size..to.0.div_ceil(segment_size) {
        let segment = way.segment(number, segment_size);
        if present.contains(&segment) {
            continue;
        }
        match gaps.last_mut() {
            Some(gap) if last_missing == number.checked_sub(1) => {
                (gap.last, gap.segments) = (segment, gap.segments + 1);
            }
            _ => gaps.push(Gap { first: segment, last: segment, segments: 1 }),
        }
        last_missing = Some(number);
    }
    gaps
}

/// What is missing of the log that a backup needs to become consistent. Without it the backup is none.
pub fn missing_for(
    commit: &Commit,
    present: &BTreeSet<SegmentName>,
    histories: &BTreeMap<Timeline, History>,
) -> Vec<Gap> {
    missing(present, &Lineage::to(commit.timeline, histories), commit.start, commit.stop, commit.segment_size)
}

/// What a backup can be recovered to, along one timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The timeline that it leads to.
    pub timeline: Timeline,
    /// The first position.
    pub from: Lsn,
    /// The end of the last segment that there is without a gap.
    pub to: Lsn,
    /// The first segment that is missing although there are later ones: what lies behind it is lost to this backup.
    pub gap: Option<SegmentName>,
}

/// What a backup can be recovered to: every position from its end to the last segment without a gap, on each timeline that it leads to. Nothing when it can't be
/// recovered at all.
pub fn windows(
    commit: &Commit,
    present: &BTreeSet<SegmentName>,
    histories: &BTreeMap<Timeline, History>,
) -> Vec<Window> {
    let timelines: BTreeSet<_> = histories.keys().copied().chain([commit.timeline]).collect();
    timelines.into_iter().filter_map(|timeline| window(commit, timeline, present, histories)).collect()
}

fn window(
    commit: &Commit,
    timeline: Timeline,
    present: &BTreeSet<SegmentName>,
    histories: &BTreeMap<Timeline, History>,
) -> Option<Window> {
    let (way, size) = (Lineage::to(timeline, histories), commit.segment_size);
    // A timeline that forked off before the backup ended does not have all that is in the backup.
    if let Way::Leaves(fork) = way.leaves(commit.timeline)?
        && fork < commit.stop
    {
        return None;
    }
    let start = commit.start.0 / size;
    let end = (start..).find(|number| !present.contains(&way.segment(*number, size)))?;
    let to = Lsn(end * size);
    if to < commit.stop || to <= way.begin() {
        return None;
    }
    let later = |segment: &&SegmentName| {
        let number = segment.number(size);
        number > end && way.segment(number, size) == **segment
    };
    let gap = present.iter().find(later).map(|_| way.segment(end, size));
    Some(Window { timeline, from: commit.stop, to, gap })
}

#[cfg(test)]
mod tests;
