//! Decides what is said about the log as a whole: for each backup, and each timeline that it leads to, everything that is missing up to the last segment there is.
//!
//! What comes before the oldest backup is of use to nobody and not missing. Never: a gap passed over because a later backup does not need it.

use std::collections::BTreeSet;

use bellwether_core::wal::{Lsn, Timeline};

use super::{Gap, Lineage, Way, missing};
use crate::catalog::Catalog;
use crate::layout::{BackupId, SegmentName};
use crate::record::Commit;

/// The log from a backup along one timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The backup.
    pub backup: BackupId,
    /// The timeline that this way leads to.
    pub timeline: Timeline,
    /// Where the backup's log begins.
    pub from: Lsn,
    /// The end of the last segment on this way.
    pub to: Lsn,
    /// What is missing between the two.
    pub gaps: Vec<Gap>,
}

/// The ways from every backup, oldest first.
pub fn legs(catalog: &Catalog) -> Vec<Leg> {
    let segments = catalog.segments();
    let of = |commit: &Commit| {
        let timelines: BTreeSet<_> = catalog.histories.keys().copied().chain([commit.timeline]).collect();
        timelines.into_iter().filter_map(|timeline| leg(commit, timeline, catalog, &segments)).collect::<Vec<_>>()
    };
    catalog.backups.iter().flat_map(|backup| of(&backup.commit)).collect()
}

/// Timelines of which there are segments, and nothing that says where they come from: nobody gets there.
pub fn without_history(catalog: &Catalog) -> Vec<Timeline> {
    let timelines: BTreeSet<_> = catalog.segments().iter().map(|segment| segment.timeline).collect();
    // The first has none, nor does one that a backup was taken on need it to be reached from there.
    let known = |timeline: &Timeline| {
        *timeline == Timeline(1)
            || catalog.histories.contains_key(timeline)
            || catalog.backups.iter().all(|backup| backup.commit.timeline >= *timeline)
    };
    timelines.into_iter().filter(|timeline| !known(timeline)).collect()
}

fn leg(commit: &Commit, timeline: Timeline, catalog: &Catalog, segments: &BTreeSet<SegmentName>) -> Option<Leg> {
    let (way, size) = (Lineage::to(timeline, &catalog.histories), commit.segment_size);
    if let Way::Leaves(fork) = way.leaves(commit.timeline)?
        && fork < commit.stop
    {
        return None;
    }
    let there = segments.iter().filter(|segment| way.segment(segment.number(size), size) == **segment);
    let end = there.map(|segment| Lsn((segment.number(size) + 1) * size)).max();
    // What the backup itself needs is missing even where there is nothing behind it.
    let to = end.map_or(commit.stop, |end| end.max(commit.stop));
    Some(Leg {
        backup: commit.id.clone(),
        timeline,
        from: commit.start,
        to,
        gaps: missing(segments, &way, commit.start, to, size),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Backup;
    use crate::gaps::History;
    use crate::testing::commit;

    const SIZE: u64 = 16 << 20;

    fn catalog(segments: &[(u32, std::ops::Range<u64>)], forks: &[(u32, u64)]) -> Catalog {
        let commit = commit("20261118T020000Z", 1, 2 * SIZE + 40, 3 * SIZE + 80);
        let mut catalog =
            Catalog { backups: vec![Backup { commit, verified: None, objects: vec![] }], ..Catalog::default() };
        for (timeline, numbers) in segments {
            for number in numbers.clone() {
                let name = SegmentName::numbered(Timeline(*timeline), number, SIZE);
                catalog.wal.insert(crate::WalFile::Segment(name), 1);
            }
        }
        for (timeline, fork) in forks {
            let timeline = Timeline(*timeline);
            catalog.histories.insert(timeline, History { timeline, forks: vec![(Timeline(1), Lsn(*fork))] });
        }
        catalog
    }

    fn told(catalog: &Catalog) -> Vec<(u32, Vec<String>)> {
        legs(catalog).into_iter().map(|leg| (leg.timeline.0, leg.gaps.iter().map(Gap::to_string).collect())).collect()
    }

    #[test]
    fn a_log_without_gaps_has_none_and_what_is_before_the_backup_is_not_missing() {
        assert_eq!(told(&catalog(&[(1, 2..9)], &[])), [(1, vec![])]);
    }

    #[test]
    fn every_gap_up_to_the_last_segment_is_named_on_each_timeline() {
        let catalog = catalog(&[(1, 2..4), (1, 6..8), (2, 9..10), (2, 11..12)], &[(2, 9 * SIZE + 5)]);
        let gap = "000000010000000000000004 to 000000010000000000000005 (2 segments)".to_owned();
        let more = ["000000010000000000000008", "00000002000000000000000A"].map(str::to_owned);
        let second = [gap.clone()].into_iter().chain(more).collect::<Vec<_>>();
        assert_eq!(told(&catalog), [(1, vec![gap]), (2, second)]);
    }

    #[test]
    fn what_a_backup_needs_is_missing_though_nothing_comes_after_it() {
        assert_eq!(told(&catalog(&[(1, 2..3)], &[])), [(1, vec!["000000010000000000000003".to_owned()])]);
    }

    #[test]
    fn a_timeline_that_left_before_the_backup_ended_is_no_way_from_it() {
        let catalog = catalog(&[(1, 2..5), (2, 3..9)], &[(2, 3 * SIZE + 10)]);
        assert_eq!(told(&catalog), [(1, vec![])]);
    }

    #[test]
    fn a_timeline_that_nobody_knows_the_beginning_of_is_named() {
        assert_eq!(without_history(&catalog(&[(1, 2..5), (3, 5..9)], &[])), [Timeline(3)]);
        assert_eq!(without_history(&catalog(&[(1, 2..5), (2, 4..9)], &[(2, 4 * SIZE + 10)])), []);
    }
}
