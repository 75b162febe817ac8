//! Judges whether two timelines, servers or terms were written at once.
//!
//! A write was committed at some moment between the sending of its COMMIT and the answer. So the old one certainly was
//! written after the new one had taken over only if its COMMIT was sent after an answer of the new. Writes that merely
//! overlap prove nothing: a commit may have been made before a freeze and answered after it.

use std::collections::BTreeMap;
use std::fmt;

use bellwether_core::wal::{SystemIdentifier, Term, Timeline};
use serde::Serialize;

use super::attempts::{Attempt, Seen};
use super::durable::witness;
use super::{Doubt, Findings, Lie, seconds};
use crate::finals::RowId;

/// Whence rows are written: one postmaster on one timeline.
#[derive(Clone, Debug, Serialize)]
pub struct Seat {
    /// Whose data.
    pub system: SystemIdentifier,
    /// The timeline.
    pub timeline: Timeline,
    /// What tells the postmaster from others: when it started; the server's address where that is not known.
    pub postmaster: String,
    /// What to call it: the instance's name, else its address.
    pub name: String,
}

impl Seat {
    /// Where a write happened; nothing when it did not say its timeline.
    pub(super) fn of(attempt: &Attempt) -> Option<Self> {
        let server = attempt.server.as_ref()?;
        let name = server.name();
        let started = server.postmaster.map(|started| started.to_string());
        Some(Self {
            system: server.system,
            timeline: server.timeline?,
            postmaster: started.or_else(|| server.address.clone()).unwrap_or_else(|| name.clone()),
            name,
        })
    }

    /// A server may be reached at several addresses: what it is called does not tell it apart.
    fn identity(&self) -> (SystemIdentifier, Timeline, &str) {
        (self.system, self.timeline, &self.postmaster)
    }
}

impl PartialEq for Seat {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Seat {}

impl PartialOrd for Seat {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Seat {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.identity().cmp(&other.identity())
    }
}

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on timeline {}", self.name, self.timeline)
    }
}

/// A row and its write.
type Row<'a> = (&'a RowId, &'a Attempt);

/// The moments at which a seat (or term) was certainly written already, and certainly not yet for the last time.
#[derive(Clone, Copy)]
pub(super) struct Span<'a> {
    /// The acknowledged write that was answered first.
    pub(super) first: Row<'a>,
    /// The acknowledged write whose COMMIT was sent last.
    pub(super) last: Row<'a>,
}

impl<'a> Span<'a> {
    fn of(row: Row<'a>) -> Self {
        Self { first: row, last: row }
    }
    fn add(&mut self, row: Row<'a>) {
        if row.1.answered < self.first.1.answered {
            self.first = row;
        }
        if row.1.committing > self.last.1.committing {
            self.last = row;
        }
    }
    /// For how long it certainly was written after `other` first was.
    fn outlasted(&self, other: &Self) -> Option<f64> {
        let sent = self.last.1.committing?;
        (sent > other.first.1.answered).then(|| seconds(other.first.1.answered, sent))
    }
}

/// The spans of all seats.
pub(super) fn spans(seen: &Seen) -> BTreeMap<Seat, Span<'_>> {
    let mut spans: BTreeMap<Seat, Span<'_>> = BTreeMap::new();
    for row in seen.acknowledged() {
        if let Some(seat) = Seat::of(row.1) {
            spans.entry(seat).and_modify(|span| span.add(row)).or_insert(Span::of(row));
        }
    }
    spans
}

/// Looks for overlaps.
pub(super) fn judge(seen: &Seen, findings: &mut Findings) {
    let unknown = seen.acknowledged().filter(|(_, attempt)| Seat::of(attempt).is_none()).count();
    if unknown > 0 {
        findings.doubts.push(Doubt::NoTimeline { writes: unknown });
    }
    let spans = spans(seen);
    for (old, new) in pairs(&spans) {
        if let Some(lie) = overlap(old, new) {
            findings.lies.push(lie);
        }
    }
    findings.lies.extend(term_went_back(seen));
}

/// A seat and when it was written.
type Held<'a, 's> = (&'s Seat, &'s Span<'a>);

/// Each pair of seats once, the one that should come first in front: the lower timeline, else the one that was written first.
fn pairs<'a, 's>(spans: &'s BTreeMap<Seat, Span<'a>>) -> Vec<(Held<'a, 's>, Held<'a, 's>)> {
    let mut order: Vec<_> = spans.iter().collect();
    order.sort_by_key(|(seat, span)| (seat.system, seat.timeline, span.first.1.answered));
    let mut pairs = vec![];
    for (index, one) in order.iter().enumerate() {
        pairs.extend(order[index + 1..].iter().map(|other| (*one, *other)));
    }
    pairs
}

/// Of two timelines of one system the lower must never follow the higher. Two postmasters on the same timeline, or of different
/// systems, may follow each other (a restart), but must not alternate: backends of a postmaster that was killed can go on.
fn overlap(old: Held<'_, '_>, new: Held<'_, '_>) -> Option<Lie> {
    let same_system = old.0.system == new.0.system;
    let ordered = same_system && old.0.timeline != new.0.timeline;
    let (old_after, new_after) = (old.1.outlasted(new.1), new.1.outlasted(old.1));
    let (old, new, by) = match (old_after, new_after) {
        (Some(by), _) if ordered => (old, new, by),
        (Some(old_by), Some(new_by)) if old.1.first.1.answered <= new.1.first.1.answered => {
            (old, new, old_by.min(new_by))
        }
        (Some(old_by), Some(new_by)) => (new, old, old_by.min(new_by)),
        _ => return None,
    };
    Some(Lie::Overlap {
        old: old.0.clone(),
        new: new.0.clone(),
        seconds: by,
        first_new: witness(new.1.first.0, Some(new.1.first.1)),
        last_old: witness(old.1.last.0, Some(old.1.last.1)),
    })
}

/// The first case in which a term was written after a higher one of the same system had been.
fn term_went_back(seen: &Seen) -> Option<Lie> {
    let mut terms: BTreeMap<(SystemIdentifier, Term), Span<'_>> = BTreeMap::new();
    for row in seen.acknowledged() {
        let Some((system, term)) = row.1.server.as_ref().and_then(|server| Some((server.system, server.term?))) else {
            continue;
        };
        terms.entry((system, term)).and_modify(|span| span.add(row)).or_insert(Span::of(row));
    }
    let terms: Vec<_> = terms.into_iter().collect();
    for (index, ((system, _), lower)) in terms.iter().enumerate() {
        let higher = terms[index + 1..].iter().filter(|((other, _), _)| other == system);
        for (_, higher) in higher {
            if lower.outlasted(higher).is_some() {
                return Some(Lie::TermWentBack {
                    higher: witness(higher.first.0, Some(higher.first.1)),
                    lower: witness(lower.last.0, Some(lower.last.1)),
                });
            }
        }
    }
    None
}
