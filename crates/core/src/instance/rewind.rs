//! Decides how a log that parts from the leader's comes back to it: rewound in place, copied anew, or not yet.
//!
//! From: which timelines either history consists of and which leader wrote each, where the own log ends, what the control files of both
//! say, and whether it was tried before. Never: a rewind where `pg_rewind` would take another point for the fork than it is. It goes by
//! numbers of timelines, and two that promoted apart from each other have the same, so that one may have been written over the other; it goes by the timeline of the last checkpoint, which
//! one that was just promoted has not made yet; and where it thinks that there is nothing to do, it says so and succeeds.

use std::fmt;

use crate::wal::{Lsn, Term, Timeline};

/// One timeline of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Its number.
    pub timeline: Timeline,
    /// Where it begins: the end of the one before.
    pub begins: Lsn,
    /// The term of the leader that wrote it, where that is known.
    pub term: Option<Term>,
}

/// A history up to `timeline`, oldest first: `forks` says where the timelines before it ended.
pub fn branches(
    forks: &[(Timeline, Lsn)],
    timeline: Timeline,
    term_of: impl Fn(Timeline) -> Option<Term>,
) -> Vec<Branch> {
    let mut begins = Lsn(0);
    let mut all = vec![];
    for (earlier, end) in forks {
        all.push(Branch { timeline: *earlier, begins, term: term_of(*earlier) });
        begins = *end;
    }
    all.push(Branch { timeline, begins, term: term_of(timeline) });
    all
}

/// The log that parted, of a PostgreSQL that is stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// Its history.
    pub branches: Vec<Branch>,
    /// Where it ends.
    pub end: Lsn,
    /// The timeline that `pg_rewind` takes for its own, by its control file.
    pub checkpoint: Timeline,
    /// Whether it was shut down: `pg_rewind` can't tell otherwise where it ends.
    pub shut_down: bool,
    /// Whether every change of a page is in its log: checksums, or `wal_log_hints`.
    pub changes_logged: bool,
    /// Whether the image has `pg_rewind`.
    pub has_tool: bool,
    /// Whether it was rewound onto this leader's timeline already, and parts all the same.
    pub tried: bool,
}

/// The leader that it is to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its history.
    pub branches: Vec<Branch>,
    /// The timeline of its last checkpoint, as it says over SQL.
    pub checkpoint: Timeline,
}

/// What to do with a log that parted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Undo what it has beyond here, and take what the leader has in its place.
    Rewind {
        /// The last timeline that both have …
        timeline: Timeline,
        /// … up to here.
        at: Lsn,
    },
    /// Set it aside and copy the leader's.
    Copy(Because),
    /// Ask again soon.
    Wait(Waiting),
}

/// Why a log is not rewound. Shown in logs word for word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// It did not help.
    Tried,
    /// There is no `pg_rewind` in the image.
    NoTool,
    /// Pages may have changed without a record of it.
    ChangesNotLogged,
    /// It had to be killed.
    NotShutDown,
    /// Its last checkpoint is of an earlier timeline than its end.
    CheckpointBehind,
    /// Both call different timelines by the same number, or it is not known that they don't.
    OtherBranch,
}

/// What has to happen first. Shown to users word for word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The leader doesn't answer.
    Leader,
    /// It was promoted and has made no checkpoint since.
    Checkpoint,
}

/// How `own` comes back to the leader, which has not answered yet where `source` is `None`.
pub fn repair(own: &Own, source: Option<&Source>) -> Repair {
    // What no waiting changes.
    let hopeless = [
        (own.tried, Because::Tried),
        (!own.has_tool, Because::NoTool),
        (!own.changes_logged, Because::ChangesNotLogged),
        (!own.shut_down, Because::NotShutDown),
        (own.branches.last().is_none_or(|last| last.timeline != own.checkpoint), Because::CheckpointBehind),
    ];
    if let Some((_, because)) = hopeless.into_iter().find(|(is_so, _)| *is_so) {
        return Repair::Copy(because);
    }
    let Some(source) = source else { return Repair::Wait(Waiting::Leader) };
    if source.branches.last().is_none_or(|last| last.timeline != source.checkpoint) {
        return Repair::Wait(Waiting::Checkpoint);
    }
    if own.checkpoint == source.checkpoint {
        return Repair::Copy(Because::OtherBranch);
    }
    match fork(&own.branches, &source.branches) {
        Some((timeline, at)) if own.end > at => Repair::Rewind { timeline, at },
        _ => Repair::Copy(Because::OtherBranch),
    }
}

/// The last timeline that both histories have by number and beginning, which is how `pg_rewind` finds it, and where the first of them leaves
/// it. None if it is not certain that one leader wrote it: then it is the same in both, and with it everything before.
fn fork(own: &[Branch], source: &[Branch]) -> Option<(Timeline, Lsn)> {
    // Of a long history only the newest part is told. Where the first of that begins is not known, so it is passed over.
    let first = source.first()?.timeline;
    let untold = own.iter().take_while(|branch| branch.timeline < first).count();
    let (own, source) = if untold > 0 { (own.get(untold + 1..)?, &source[1..]) } else { (own, source) };
    let same = |(a, b): &(&Branch, &Branch)| a.timeline == b.timeline && a.begins == b.begins;
    let common = own.iter().zip(source).take_while(same).count();
    // A standby whose agent had not heard of the other branch may have been sent some of it, in the files of the own: what was written there is
    // no longer what was replayed, and `pg_rewind` would not undo it.
    let (ours, theirs) = (&own[common..], &source[common..]);
    if ours.iter().any(|branch| theirs.iter().any(|other| other.timeline == branch.timeline)) {
        return None;
    }
    let last = common.checked_sub(1)?;
    let known = own[last].term.is_some() && own[last].term == source[last].term;
    let left = [own.get(common), source.get(common)].into_iter().flatten().map(|next| next.begins).min()?;
    known.then_some((own[last].timeline, left))
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tried => "it was rewound before, and parts all the same",
            Self::NoTool => "the image has no pg_rewind",
            Self::ChangesNotLogged => "it has neither data checksums nor wal_log_hints",
            Self::NotShutDown => "it could not be shut down in order",
            Self::CheckpointBehind => "its last checkpoint is of an earlier timeline than its end",
            Self::OtherBranch => "it is not certain where the two logs part",
        })
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Leader => "to answer",
            Self::Checkpoint => "to make a checkpoint",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Timelines with where each ends and which term wrote it; the last has no end.
    fn history(ended: &[(u32, u64, u64)], last: (u32, u64)) -> Vec<Branch> {
        let forks: Vec<_> = ended.iter().map(|(timeline, end, _)| (Timeline(*timeline), Lsn(*end))).collect();
        let term_of = |timeline: Timeline| {
            let of = |(number, _, term): &(u32, u64, u64)| (*number == timeline.0).then_some(Term(*term));
            ended.iter().find_map(of).or((last.0 == timeline.0).then_some(Term(last.1)))
        };
        branches(&forks, Timeline(last.0), term_of)
    }

    fn own(branches: Vec<Branch>, end: u64) -> Own {
        let checkpoint = branches.last().unwrap().timeline;
        Own { branches, end: Lsn(end), checkpoint, shut_down: true, changes_logged: true, has_tool: true, tried: false }
    }

    fn source(branches: Vec<Branch>) -> Source {
        let checkpoint = branches.last().unwrap().timeline;
        Source { branches, checkpoint }
    }

    /// Led term 1 to 150; another was promoted at 100.
    fn old_primary() -> Own {
        own(history(&[], (1, 1)), 150)
    }
    fn new_primary() -> Source {
        source(history(&[(1, 100, 1)], (2, 2)))
    }

    #[test]
    fn an_old_primary_is_rewound_to_where_the_new_one_was_promoted() {
        assert_eq!(
            repair(&old_primary(), Some(&new_primary())),
            Repair::Rewind { timeline: Timeline(1), at: Lsn(100) }
        );
    }

    #[test]
    fn a_standby_that_somebody_promoted_is_rewound_to_where_that_was() {
        let promoted = own(history(&[(1, 80, 1)], (2, 1)), 90);
        let leader = source(history(&[], (1, 1)));
        assert_eq!(repair(&promoted, Some(&leader)), Repair::Rewind { timeline: Timeline(1), at: Lsn(80) });
    }

    #[test]
    fn what_cannot_be_rewound_is_copied_without_waiting_for_anybody() {
        for (own, because) in [
            (Own { tried: true, ..old_primary() }, Because::Tried),
            (Own { has_tool: false, ..old_primary() }, Because::NoTool),
            (Own { changes_logged: false, ..old_primary() }, Because::ChangesNotLogged),
            (Own { shut_down: false, ..old_primary() }, Because::NotShutDown),
            (Own { branches: history(&[(1, 90, 1)], (2, 3)), ..old_primary() }, Because::CheckpointBehind),
        ] {
            assert_eq!(repair(&own, None), Repair::Copy(because));
        }
    }

    #[test]
    fn a_leader_that_does_not_answer_is_waited_for() {
        assert_eq!(repair(&old_primary(), None), Repair::Wait(Waiting::Leader));
    }

    #[test]
    fn a_leader_just_promoted_makes_a_checkpoint_first() {
        let young = Source { checkpoint: Timeline(1), ..new_primary() };
        assert_eq!(repair(&old_primary(), Some(&young)), Repair::Wait(Waiting::Checkpoint));
    }

    #[test]
    fn two_that_promoted_apart_from_each_other_are_not_told_apart_by_their_number() {
        let apart = own(history(&[(1, 100, 1)], (2, 3)), 150);
        assert_eq!(repair(&apart, Some(&new_primary())), Repair::Copy(Because::OtherBranch));
        // And not when the other has gone on: by number and beginning timeline 2 is common.
        let gone_on = source(history(&[(1, 100, 1), (2, 120, 2)], (3, 4)));
        assert_eq!(repair(&apart, Some(&gone_on)), Repair::Copy(Because::OtherBranch));
        // Had it begun elsewhere, pg_rewind would see that it is another; but some of the other may be in its files by now.
        let elsewhere = own(history(&[(1, 90, 1)], (2, 3)), 150);
        assert_eq!(repair(&elsewhere, Some(&gone_on)), Repair::Copy(Because::OtherBranch));
    }

    #[test]
    fn a_timeline_of_which_nobody_knows_who_wrote_it_proves_nothing() {
        let mut unknown = old_primary();
        unknown.branches[0].term = None;
        assert_eq!(repair(&unknown, Some(&new_primary())), Repair::Copy(Because::OtherBranch));
    }

    #[test]
    fn promotions_longer_ago_than_anybody_remembers_do_not_matter() {
        let mut old = own(history(&[(1, 10, 1), (2, 20, 2)], (3, 3)), 40);
        let mut new = source(history(&[(1, 10, 1), (2, 20, 2), (3, 30, 3)], (4, 4)));
        for branches in [&mut old.branches, &mut new.branches] {
            branches[0].term = None;
            branches[1].term = None;
        }
        assert_eq!(repair(&old, Some(&new)), Repair::Rewind { timeline: Timeline(3), at: Lsn(30) });
    }

    #[test]
    fn of_a_long_history_the_newest_part_is_enough() {
        let old = own(history(&[(1, 10, 1), (2, 20, 2), (3, 30, 3)], (4, 4)), 50);
        let mut new = source(history(&[(1, 10, 1), (2, 20, 2), (3, 30, 3), (4, 40, 4)], (5, 5)));
        new.branches = new.branches.split_off(2);
        new.branches[0].begins = Lsn(0);
        assert_eq!(repair(&old, Some(&new)), Repair::Rewind { timeline: Timeline(4), at: Lsn(40) });
        // It parted before what is told, or where the first of that begins.
        new.branches = new.branches.split_off(1);
        assert_eq!(repair(&old, Some(&new)), Repair::Copy(Because::OtherBranch));
    }

    #[test]
    fn a_log_that_does_not_reach_the_fork_is_not_rewound() {
        let behind = Own { end: Lsn(100), ..old_primary() };
        assert_eq!(repair(&behind, Some(&new_primary())), Repair::Copy(Because::OtherBranch));
    }

    fn any_history() -> impl Strategy<Value = Vec<Branch>> {
        let ended = prop::collection::vec((1u32..4, 1u64..5, 1u64..4), 0..4);
        (ended, (1u32..5, 1u64..5)).prop_map(|(mut ended, (last, term))| {
            ended.sort_unstable();
            ended.dedup_by_key(|entry| entry.0);
            let last = ended.last().map_or(last, |entry| entry.0 + last);
            history(&ended, (last, term))
        })
    }

    proptest! {
        /// What is kept of a log that is rewound was written by the leader that wrote it in the other history too.
        #[test]
        fn a_rewind_keeps_only_what_both_have(ours in any_history(), theirs in any_history(), end in 0u64..9) {
            let repair = repair(&own(ours.clone(), end), Some(&source(theirs.clone())));
            if let Repair::Rewind { timeline, at } = repair {
                let of = |branches: &[Branch]| branches.iter().find(|branch| branch.timeline == timeline).copied();
                prop_assert!(of(&ours).is_some() && of(&ours) == of(&theirs));
                prop_assert!(Lsn(end) > at);
                for branches in [&ours, &theirs] {
                    let next = branches.iter().find(|branch| branch.timeline > timeline);
                    prop_assert!(next.is_none_or(|next| next.begins >= at));
                }
            }
        }
    }
}
