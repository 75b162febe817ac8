//! Decides whether a log can go on from where it ends, as a standby of a leader: or whether it holds something that the leader's history
//! does not.
//!
//! From: where the own log ends and who wrote it, the leader's term, and what the leader told of its log. Never: says that it can when the
//! leader's history is not known, or is that of an earlier term; two timelines taken for one because they have the same number.

use super::history::{Told, WrittenBy, term_of};
use crate::wal::{Lsn, Term, Timeline};

/// The own log.
#[derive(Clone, Copy, Debug)]
pub struct Own<'a> {
    /// The timeline that it ends on …
    pub timeline: Timeline,
    /// … and where.
    pub end: Lsn,
    /// Who wrote which timelines.
    pub log: &'a [WrittenBy],
}

/// How an instance comes to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejoin<'a> {
    /// It streams from where its log ends. Who wrote what, its own part included, is the leader's to say: this list is kept, durably, before
    /// anything is received.
    Stream(&'a [WrittenBy]),
    /// Its log goes on where the leader's does not: rewind, or copy anew.
    Parted {
        /// The timeline that both have, by number …
        timeline: Timeline,
        /// … up to here.
        at: Lsn,
    },
    /// The leader has not told enough yet.
    Wait,
}

/// How the own log follows a leader of this term that told this.
pub fn rejoin<'a>(own: &Own<'_>, term: Term, told: Option<&'a Told>) -> Rejoin<'a> {
    let Some(told) = told else { return Rejoin::Wait };
    if is_ahead_of(told, own, term) {
        return Rejoin::Stream(&told.log);
    }
    let Some((timeline, at)) = told.leads(term).and_then(|leader| shared(own, leader, &told.forks)) else {
        return Rejoin::Wait;
    };
    // Two that promoted apart from each other have the same number for their timelines; terms tell them apart.
    let all = timeline == own.timeline && own.end <= at && same_branch(told, own);
    if all { Rejoin::Stream(&told.log) } else { Rejoin::Parted { timeline, at } }
}

/// Whether the log may go on from a leader that is being promoted and has no timeline of its own yet: its log ends at `promoting`, and that is
/// where the new timeline will part from the old one, or at most an unfinished record before. Whoever has less, on the same timeline,
/// has nothing that the leader lacks, and need not wait until it is promoted. What it told in an earlier term says nothing about its log of today.
fn is_ahead_of(told: &Told, own: &Own<'_>, term: Term) -> bool {
    let Some(coming) = told.log.last().filter(|entry| entry.term == term) else { return false };
    let reaches = told.promoting.is_some_and(|end| own.end <= end);
    reaches && own.timeline == coming.above && same_branch(told, own)
}

/// Whether the same leader wrote the timeline that the own log ends on, here and there.
fn same_branch(told: &Told, own: &Own<'_>) -> bool {
    let ours = term_of(own.log, own.timeline);
    ours.is_some() && term_of(&told.log, own.timeline) == ours
}

/// By numbers alone: the last timeline that a leader which writes `leader` shares with the own log, and up to where. `forks`: each earlier
/// timeline of its history with the end of it.
fn shared(own: &Own<'_>, leader: Timeline, forks: &[(Timeline, Lsn)]) -> Option<(Timeline, Lsn)> {
    if own.timeline == leader {
        return Some((leader, own.end));
    }
    let left = forks.iter().find(|(earlier, _)| *earlier == own.timeline);
    // A timeline that the leader's history does not have, though the history is known, is a dead branch.
    let dead = || forks.last().copied().or((own.timeline > leader).then_some((leader, Lsn(0))));
    left.copied().or_else(dead)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Leaders of terms 1, 2 and 4 wrote timelines 1, 2 and 3.
    const LOG: [WrittenBy; 3] = [written_by(1, 0), written_by(2, 1), written_by(4, 2)];

    const fn written_by(term: u64, above: u32) -> WrittenBy {
        WrittenBy { term: Term(term), above: Timeline(above) }
    }

    fn leader() -> Told {
        Told {
            timeline: Some(Timeline(3)),
            term: Some(Term(4)),
            promoting: None,
            forks: vec![(Timeline(1), Lsn(100)), (Timeline(2), Lsn(200))],
            log: LOG.to_vec(),
        }
    }
    fn promoted_at(end: u64) -> Told {
        Told { promoting: Some(Lsn(end)), log: LOG.to_vec(), ..Told::default() }
    }
    fn following(told: &Told, timeline: u32, end: u64) -> Rejoin<'_> {
        rejoin(&Own { timeline: Timeline(timeline), end: Lsn(end), log: &LOG }, Term(4), Some(told))
    }
    fn streams(how: Rejoin<'_>) -> bool {
        how == Rejoin::Stream(&LOG)
    }

    #[test]
    fn a_log_that_ends_before_the_fork_streams_on() {
        for (timeline, end) in [(1, 100), (2, 150), (3, 999)] {
            assert!(streams(following(&leader(), timeline, end)), "{timeline} {end}");
        }
    }

    #[test]
    fn a_log_that_goes_on_after_the_fork_has_parted() {
        assert_eq!(following(&leader(), 1, 101), Rejoin::Parted { timeline: Timeline(1), at: Lsn(100) });
        assert_eq!(following(&leader(), 2, 201), Rejoin::Parted { timeline: Timeline(2), at: Lsn(200) });
    }

    #[test]
    fn a_timeline_that_the_leader_never_had_is_a_dead_branch() {
        assert!(matches!(following(&leader(), 4, 150), Rejoin::Parted { .. }));
    }

    #[test]
    fn a_timeline_of_the_same_number_that_another_leader_wrote_is_another() {
        for (timeline, log) in [(3, [written_by(2, 1), written_by(3, 2)]), (2, [written_by(1, 0), written_by(3, 1)])] {
            let own = Own { timeline: Timeline(timeline), end: Lsn(150), log: &log };
            assert!(matches!(rejoin(&own, Term(4), Some(&leader())), Rejoin::Parted { .. }), "{timeline}");
        }
        let unknown = Own { timeline: Timeline(3), end: Lsn(1), log: &[] };
        assert!(
            matches!(rejoin(&unknown, Term(4), Some(&leader())), Rejoin::Parted { .. }),
            "nobody knows who wrote it"
        );
    }

    #[test]
    fn only_who_has_no_more_on_the_same_timeline_follows_a_leader_that_is_being_promoted() {
        let told = promoted_at(200);
        assert!(streams(following(&told, 2, 200)) && streams(following(&told, 2, 150)));
        assert_eq!(following(&told, 2, 201), Rejoin::Wait);
        assert_eq!(following(&told, 1, 100), Rejoin::Wait, "where timeline 1 ended is not known yet");
        assert_eq!(following(&told, 3, 100), Rejoin::Wait);
    }

    #[test]
    fn what_a_leader_told_of_another_term_is_waited_out() {
        let own = Own { timeline: Timeline(2), end: Lsn(150), log: &LOG };
        for told in [Told { term: Some(Term(2)), ..leader() }, Told { term: None, ..leader() }, promoted_at(200)] {
            assert_eq!(rejoin(&own, Term(5), Some(&told)), Rejoin::Wait);
        }
    }

    #[test]
    fn without_a_history_nothing_is_said() {
        let own = Own { timeline: Timeline(1), end: Lsn(1), log: &LOG };
        assert_eq!(rejoin(&own, Term(4), None), Rejoin::Wait);
        assert_eq!(rejoin(&own, Term(4), Some(&Told { forks: vec![], ..leader() })), Rejoin::Wait);
    }
}
