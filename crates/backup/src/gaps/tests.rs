//! What is called reachable is compared with a model that knows, for each byte of the log, which timeline wrote it, and what each file holds.

use proptest::prelude::*;

use super::*;
use crate::testing::commit;

const SIZE: u64 = 16 << 20;

fn segments(names: &[&str]) -> BTreeSet<SegmentName> {
    names.iter().map(|name| format!("{name:0>24}").parse().unwrap()).collect()
}

/// `1:5` is segment 5 of timeline 1.
fn present(names: &[(u32, std::ops::Range<u64>)]) -> BTreeSet<SegmentName> {
    let of = |(timeline, numbers): &(u32, std::ops::Range<u64>)| {
        let timeline = Timeline(*timeline);
        numbers.clone().map(move |number| SegmentName::numbered(timeline, number, SIZE)).collect::<Vec<_>>()
    };
    names.iter().flat_map(of).collect()
}

fn histories(all: &[(u32, &[(u32, u64)])]) -> BTreeMap<Timeline, History> {
    let history = |(timeline, forks): &(u32, &[(u32, u64)])| {
        let timeline = Timeline(*timeline);
        (timeline, History { timeline, forks: forks.iter().map(|(of, end)| (Timeline(*of), Lsn(*end))).collect() })
    };
    all.iter().map(history).collect()
}

#[test]
fn a_history_is_read_as_postgresql_writes_it() {
    let text = "1\t0/3000148\tno recovery target specified\n\n# by hand\n2\t1/A0\tbefore 2026-11-18 02:00:00+00\n";
    let forks = vec![(Timeline(1), Lsn(0x0300_0148)), (Timeline(2), Lsn(0x1_0000_00A0))];
    assert_eq!(History::parse(Timeline(3), text), Some(History { timeline: Timeline(3), forks }));
    for bad in ["", "# nothing", "x", "1", "1\t0/0\n1\t0/1", "2\t0/0\n1\t0/1", "3\t0/1", "1\t0/5\n2\t0/1"] {
        assert_eq!(History::parse(Timeline(3), bad), None, "{bad:?}");
    }
}

#[test]
fn what_is_missing_is_named_in_one_piece() {
    let way = Lineage::to(Timeline(1), &BTreeMap::new());
    let there = present(&[(1, 2..5), (1, 8..9)]);
    let gaps = missing(&there, &way, Lsn(2 * SIZE + 40), Lsn(10 * SIZE), SIZE);
    let names: Vec<_> = gaps.iter().map(Gap::to_string).collect();
    assert_eq!(
        names,
        ["000000010000000000000005 to 000000010000000000000007 (3 segments)", "000000010000000000000009"]
    );
    assert_eq!(missing(&there, &way, Lsn(2 * SIZE), Lsn(5 * SIZE), SIZE), [], "the end itself is not needed");
    assert_eq!(missing(&there, &way, Lsn(2 * SIZE), Lsn(5 * SIZE + 1), SIZE).len(), 1);
}

#[test]
fn where_a_timeline_forks_off_its_own_segment_is_needed_and_not_the_older_one() {
    let histories = histories(&[(2, &[(1, 5 * SIZE + 100)])]);
    let way = Lineage::to(Timeline(2), &histories);
    let needed: Vec<_> = (4..7).map(|number| way.segment(number, SIZE).to_string()).collect();
    assert_eq!(needed, ["000000010000000000000004", "000000020000000000000005", "000000020000000000000006"]);
    let there = present(&[(1, 2..6), (2, 6..8)]);
    assert_eq!(missing(&there, &way, Lsn(2 * SIZE), Lsn(8 * SIZE), SIZE)[0].to_string(), "000000020000000000000005");
}

#[test]
fn a_backup_reaches_as_far_as_the_log_goes_on_each_timeline() {
    let backup = commit("20261118T020000Z", 1, 2 * SIZE + 40, 3 * SIZE + 80);
    let histories = histories(&[(2, &[(1, 5 * SIZE + 100)]), (3, &[(1, 3 * SIZE + 10)]), (5, &[(4, SIZE)])]);
    let there = present(&[(1, 2..5), (2, 5..7), (2, 8..9), (3, 3..9)]);
    let seen = windows(&backup, &there, &histories);
    let gap = SegmentName::numbered(Timeline(2), 7, SIZE);
    assert_eq!(
        seen,
        [
            Window { timeline: Timeline(1), from: backup.stop, to: Lsn(5 * SIZE), gap: None },
            Window { timeline: Timeline(2), from: backup.stop, to: Lsn(7 * SIZE), gap: Some(gap) },
        ],
        "timeline 3 forked off before the backup ended, and 5 has nothing to do with it"
    );
}

#[test]
fn a_backup_whose_own_log_is_not_there_reaches_nothing() {
    let backup = commit("20261118T020000Z", 1, 2 * SIZE + 40, 4 * SIZE + 80);
    let there = present(&[(1, 2..4), (1, 5..9)]);
    assert_eq!(windows(&backup, &there, &BTreeMap::new()), []);
    let gaps = missing_for(&backup, &there, &BTreeMap::new());
    assert_eq!(gaps.iter().map(Gap::to_string).collect::<Vec<_>>(), ["000000010000000000000004"]);
    assert_eq!(segments(&["1000000000000000A"]).len(), 1);
}

/// Small segments, so that every byte can be looked at.
const SMALL: u64 = 8;
const END: u64 = 96;

/// Timelines, each with whom it forked off and where, and what of each was written to its end.
#[derive(Clone, Debug)]
struct Tree(Vec<(usize, u64, u64)>);

impl Tree {
    /// Which timeline wrote the byte at this position, on the way to a timeline.
    fn writer(&self, timeline: usize, position: u64) -> usize {
        let (parent, fork, _) = self.0[timeline];
        if timeline > 0 && position < fork { self.writer(parent, position) } else { timeline }
    }

    /// The files that there ever were, each with who wrote its bytes.
    fn files(&self) -> BTreeMap<SegmentName, Vec<usize>> {
        let mut files = BTreeMap::new();
        for (timeline, (_, fork, end)) in self.0.iter().enumerate() {
            for number in fork / SMALL..end / SMALL {
                let bytes = (number * SMALL..(number + 1) * SMALL).map(|position| self.writer(timeline, position));
                files.insert(SegmentName::numbered(Timeline(timeline as u32 + 1), number, SMALL), bytes.collect());
            }
        }
        files
    }

    fn histories(&self) -> BTreeMap<Timeline, History> {
        let forks = |mut timeline: usize| {
            let mut forks = vec![];
            while timeline > 0 {
                let (parent, fork, _) = self.0[timeline];
                forks.push((Timeline(parent as u32 + 1), Lsn(fork)));
                timeline = parent;
            }
            forks.reverse();
            forks
        };
        let history = |at: usize| {
            let timeline = Timeline(at as u32 + 1);
            (timeline, History { timeline, forks: forks(at) })
        };
        (1..self.0.len()).map(history).collect()
    }
}

prop_compose! {
    fn trees()(raw in prop::collection::vec((any::<prop::sample::Index>(), 0..END, 0..END), 1..6)) -> Tree {
        let mut tree: Vec<(usize, u64, u64)> = vec![];
        for (at, (parent, fork, length)) in raw.into_iter().enumerate() {
            if at == 0 {
                tree.push((0, 0, length));
            } else {
                let parent = parent.index(at);
                let (_, begin, end) = tree[parent];
                let fork = begin + fork % (end - begin + 1);
                tree.push((parent, fork, (fork + length).min(END)));
            }
        }
        Tree(tree)
    }
}

/// The position up to which a timeline can be recovered from `start`: every file on the way holds the bytes that the timeline should have.
fn naive(tree: &Tree, files: &BTreeMap<SegmentName, Vec<usize>>, timeline: usize, start: u64) -> u64 {
    let mut number = start / SMALL;
    loop {
        let wanted: Vec<_> = (number * SMALL..(number + 1) * SMALL).map(|at| tree.writer(timeline, at)).collect();
        let holds = |(name, bytes): (&SegmentName, &Vec<usize>)| name.number(SMALL) == number && *bytes == wanted;
        if !files.iter().any(holds) {
            return number * SMALL;
        }
        number += 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn windows_are_what_the_files_hold(
        tree in trees(),
        lost in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        on in any::<prop::sample::Index>(),
        start in 0..END,
        length in 1..END,
    ) {
        let mut files = tree.files();
        let names: Vec<_> = files.keys().copied().collect();
        if !names.is_empty() {
            for lost in lost {
                files.remove(&names[lost.index(names.len())]);
            }
        }
        let on = on.index(tree.0.len());
        let (_, fork, _) = tree.0[on];
        let mut backup = commit("20261118T020000Z", on as u32 + 1, fork.max(start), fork.max(start) + length);
        backup.segment_size = SMALL;
        let there: BTreeSet<_> = files.keys().copied().collect();
        let seen = windows(&backup, &there, &tree.histories());
        for timeline in 0..tree.0.len() {
            let window = seen.iter().find(|window| window.timeline == Timeline(timeline as u32 + 1));
            let holds = (0..backup.stop.0).all(|at| tree.writer(timeline, at) == tree.writer(on, at));
            let to = naive(&tree, &files, timeline, backup.start.0);
            let (_, begin, _) = tree.0[timeline];
            let reaches = holds && to >= backup.stop.0 && to > begin;
            // A timeline on which nothing was written is reached by the one before, and nobody can tell them apart.
            let empty = timeline != on && begin / SMALL == to / SMALL;
            match window {
                Some(window) => {
                    prop_assert!(holds, "{window:?}: the backup holds what this timeline never had");
                    prop_assert!(reaches, "{window:?}: this timeline is not reached");
                    prop_assert_eq!((window.from, window.to.0), (backup.stop, to));
                }
                None => prop_assert!(!reaches || empty, "timeline {timeline} can be recovered to {to}"),
            }
        }
        let missing = missing_for(&backup, &there, &tree.histories());
        prop_assert_eq!(missing.is_empty(), naive(&tree, &files, on, backup.start.0) >= backup.stop.0);
    }
}
