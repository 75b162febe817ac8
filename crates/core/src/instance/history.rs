//! Which leader wrote which part of a log, and what a leader tells of its own.
//!
//! A log's rank begins with the term of the leader that wrote its newest record, and PostgreSQL writes no terms. So each volume keeps a list of
//! *WAL on a timeline above this one was written by the leader of this term*. An entry is made **before** the first byte that it speaks for
//! can arrive, and because it speaks only for timelines above, it says nothing about what was there before: a standby that has been told of a
//! new leader and has received nothing still ranks as before.
//!
//! Never: a list in which an entry is followed by one that speaks for as much, or more.

use serde::{Deserialize, Serialize};

use crate::election::Position;
use crate::wal::{Lsn, Term, Timeline};

/// WAL on a timeline above `above` was written by the leader of `term`, unless a later entry says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenBy {
    /// The leader's term.
    pub term: Term,
    /// The timeline above which it wrote; 0 for everything.
    pub above: Timeline,
}

/// Where the log of a database ends that was initialised and that nobody has led yet: below whatever any leader wrote.
pub const BEGINNING: Position = Position { term: Term(0), timeline: Timeline(1), lsn: Lsn(0) };

/// How many entries of a list are kept, the newest. One is added with each promotion; a volume whose newest WAL is this many
/// promotions old has to be cloned anyway, and without its entry it counts as having no log, which is the safe side.
const ENTRIES: usize = 32;

/// The term of the leader that wrote this timeline's WAL, by such a list.
pub fn term_of(log: &[WrittenBy], timeline: Timeline) -> Option<Term> {
    log.iter().rev().find(|entry| entry.above < timeline).map(|entry| entry.term)
}

/// Whether a server that writes on in this term does so by an earlier one's list: its Lease was damaged, and it wrote it anew. Had its PostgreSQL to
/// start again then, that would begin a timeline, of which those who follow in this term by now have not heard whose it is: so an entry for this
/// term is made before anybody is told of it.
pub fn leads_on(log: &[WrittenBy], term: Term) -> bool {
    log.last().is_some_and(|newest| newest.term < term)
}

/// The same list with these after it, each of which replaces whatever spoke for as much.
pub fn extended(log: &[WrittenBy], by: &[WrittenBy]) -> Vec<WrittenBy> {
    let mut all = log.to_vec();
    for entry in by {
        all.retain(|kept| kept.above < entry.above);
        all.push(*entry);
    }
    let excess = all.len().saturating_sub(ENTRIES);
    all.drain(..excess);
    all
}

/// What another tells of its log, along with whatever it says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The timeline that it writes, if it is a primary.
    pub timeline: Option<Timeline>,
    /// The term in which it does.
    pub term: Option<Term>,
    /// Where its log ends, if it is being promoted: on the timeline above which, by the last entry of `log`, it will write.
    pub promoting: Option<Lsn>,
    /// Where the timelines before it ended, oldest first.
    pub forks: Vec<(Timeline, Lsn)>,
    /// Who wrote which timelines.
    pub log: Vec<WrittenBy>,
}

impl Told {
    /// A leader of this term that writes this timeline. Of its history the newest part is told, which is more than anybody's list goes back:
    /// a history grows with each promotion, and a message must not.
    pub fn leader(term: Term, timeline: Timeline, forks: &[(Timeline, Lsn)], log: Vec<WrittenBy>) -> Self {
        let forks = forks[forks.len().saturating_sub(2 * ENTRIES)..].to_vec();
        Self { timeline: Some(timeline), term: Some(term), promoting: None, forks, log }
    }

    /// One that is being promoted, and whose log ends here.
    pub fn promoting(end: Lsn, log: Vec<WrittenBy>) -> Self {
        Self { promoting: Some(end), log, ..Self::default() }
    }

    /// The timeline that it writes as the leader of this term. What it told when it led before is something else: whoever followed others
    /// since would seem to have parted from it, and whoever didn't would take its new WAL for that of the old term, rank too low, and
    /// be passed over by one that lacks what it acknowledged. A later term than the one that was seen is no earlier one.
    pub fn leads(&self, term: Term) -> Option<Timeline> {
        self.timeline.filter(|_| self.term.is_some_and(|told| told >= term))
    }

    /// Whether it is the same history, however far anybody is by now.
    pub fn is_that_of(&self, other: &Self) -> bool {
        (self.timeline, &self.forks, &self.log) == (other.timeline, &other.forks, &other.log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(term: u64, above: u32) -> WrittenBy {
        WrittenBy { term: Term(term), above: Timeline(above) }
    }

    #[test]
    fn what_a_leader_told_in_an_earlier_term_is_not_what_it_writes_now() {
        let told = |term: Option<u64>| {
            let told = Told { timeline: Some(Timeline(3)), term: term.map(Term), ..Told::default() };
            told.leads(Term(4))
        };
        assert_eq!([told(Some(2)), told(None)], [None, None]);
        assert_eq!([told(Some(4)), told(Some(5))], [Some(Timeline(3)); 2]);
    }

    #[test]
    fn a_leader_that_is_followed_but_has_sent_nothing_does_not_raise_the_rank() {
        let log = extended(&[entry(1, 0)], &[entry(5, 1)]);
        assert_eq!([1, 2].map(|timeline| term_of(&log, Timeline(timeline))), [Some(Term(1)), Some(Term(5))]);
    }

    #[test]
    fn a_leader_that_writes_on_in_a_later_term_keeps_that_before_it_tells_anybody() {
        let log = [entry(1, 0), entry(2, 1)];
        assert!(leads_on(&log, Term(3)) && !leads_on(&log, Term(2)));
        assert!(!leads_on(&[], Term(3)), "nobody has written anything");
        // What it wrote till then keeps its rank, and another leader that goes on from there takes the entry's place.
        let kept = extended(&log, &[entry(3, 2)]);
        assert_eq!([2, 3].map(|timeline| term_of(&kept, Timeline(timeline))), [Some(Term(2)), Some(Term(3))]);
        assert!(!leads_on(&kept, Term(3)));
        assert_eq!(extended(&kept, &[entry(4, 2)]), [entry(1, 0), entry(2, 1), entry(4, 2)]);
    }

    #[test]
    fn however_often_a_cluster_was_promoted_what_it_tells_stays_short() {
        let forks: Vec<_> = (1..2_000).map(|n| (Timeline(n), Lsn(u64::from(n)))).collect();
        let told = Told::leader(Term(9), Timeline(2_000), &forks, vec![]);
        assert_eq!((told.forks.len(), told.forks.last()), (2 * ENTRIES, Some(&(Timeline(1_999), Lsn(1_999)))));
    }

    #[test]
    fn an_entry_replaces_whatever_spoke_for_as_much() {
        assert_eq!(extended(&[entry(1, 0), entry(2, 1), entry(3, 2)], &[entry(4, 1)]), [entry(1, 0), entry(4, 1)]);
    }

    #[test]
    fn what_is_older_than_anybody_remembers_has_no_rank() {
        let all: Vec<_> = (0..40).map(|n| entry(u64::from(n) + 1, n)).collect();
        let kept = extended(&[], &all);
        assert_eq!(kept.len(), ENTRIES);
        assert_eq!([1, 40].map(|timeline| term_of(&kept, Timeline(timeline))), [None, Some(Term(40))]);
    }
}
