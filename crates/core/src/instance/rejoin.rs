//! Decides whether a log can go on from where it ends, as a standby of a leader: or whether it holds something that the leader's history
//! does not.
//!
//! From: where the own log ends, the leader's timeline, and where the timelines before it ended. Never: says that it can when the
//! leader's history is not known.

use crate::wal::{Lsn, Timeline};

/// How an instance comes to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejoin {
    /// It streams from where its log ends.
    Stream,
    /// Its log goes on where the leader's does not: rewind, or copy anew.
    Diverged {
        /// The timeline that both have …
        timeline: Timeline,
        /// … up to here.
        at: Lsn,
    },
    /// The leader's history doesn't say.
    Unknown,
}

/// How a log that ends at `end` on `timeline` follows a leader that writes `leader`, whose history is `forks`: each earlier timeline
/// with the end of it.
pub fn rejoin(timeline: Timeline, end: Lsn, leader: Timeline, forks: &[(Timeline, Lsn)]) -> Rejoin {
    if timeline == leader {
        // Two that promoted apart can have the same number; the term tells them apart, before this is asked.
        return Rejoin::Stream;
    }
    match forks.iter().find(|(earlier, _)| *earlier == timeline) {
        Some((_, at)) if end <= *at => Rejoin::Stream,
        Some((_, at)) => Rejoin::Diverged { timeline, at: *at },
        // A timeline that the leader's history does not have, though the history is known: it is a dead branch.
        None => match forks.last() {
            Some((last, at)) => Rejoin::Diverged { timeline: *last, at: *at },
            None if timeline > leader => Rejoin::Diverged { timeline: leader, at: Lsn(0) },
            None => Rejoin::Unknown,
        },
    }
}

/// Whether a log that ends at `own` may go on from a leader that is being promoted and has no timeline of its own yet: its log ends at
/// `leader`, and that is where the new timeline will part from the old one, or at most an unfinished record before. Whoever has less,
/// on the same timeline, has nothing that the leader lacks, and need not wait until it is promoted.
pub fn precedes(own: (Timeline, Lsn), leader: (Timeline, Lsn)) -> bool {
    own.0 == leader.0 && own.1 <= leader.1
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORKS: [(Timeline, Lsn); 2] = [(Timeline(1), Lsn(100)), (Timeline(2), Lsn(200))];

    fn on(timeline: u32, end: u64) -> Rejoin {
        rejoin(Timeline(timeline), Lsn(end), Timeline(3), &FORKS)
    }

    #[test]
    fn a_log_that_ends_before_the_fork_streams_on() {
        assert_eq!(on(1, 100), Rejoin::Stream);
        assert_eq!(on(2, 150), Rejoin::Stream);
        assert_eq!(on(3, 999), Rejoin::Stream);
    }

    #[test]
    fn a_log_that_goes_on_after_the_fork_has_diverged() {
        assert_eq!(on(1, 101), Rejoin::Diverged { timeline: Timeline(1), at: Lsn(100) });
        assert_eq!(on(2, 201), Rejoin::Diverged { timeline: Timeline(2), at: Lsn(200) });
    }

    #[test]
    fn a_timeline_that_the_leader_never_had_is_a_dead_branch() {
        assert!(matches!(on(4, 150), Rejoin::Diverged { .. }));
    }

    #[test]
    fn only_who_has_no_more_on_the_same_timeline_follows_a_leader_that_is_being_promoted() {
        let leader = (Timeline(2), Lsn(200));
        assert!(precedes((Timeline(2), Lsn(200)), leader));
        assert!(precedes((Timeline(2), Lsn(150)), leader));
        assert!(!precedes((Timeline(2), Lsn(201)), leader));
        assert!(!precedes((Timeline(1), Lsn(100)), leader), "where timeline 1 ended is not known yet");
        assert!(!precedes((Timeline(3), Lsn(100)), leader));
    }

    #[test]
    fn without_a_history_nothing_is_said() {
        assert_eq!(rejoin(Timeline(1), Lsn(1), Timeline(3), &[]), Rejoin::Unknown);
    }
}
