//! Measures the largest time without an acknowledged write, for each kind of writer: sessions that were kept feel a failover
//! otherwise than new connections do.

use serde::Serialize;

use super::attempts::{Attempt, Seen};
use super::overlap::Seat;
use super::{Doubt, Findings, seconds};
use crate::clock::Micros;
use crate::history::Kind;

/// The largest time without an acknowledged write.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gap {
    /// Of which kind of writer.
    pub kind: Kind,
    /// How long, in seconds.
    pub seconds: f64,
    /// The acknowledged write before it.
    pub from: Edge,
    /// The one after it; nothing when it lasted to the end of the run.
    pub to: Option<Edge>,
}

/// An end of a gap.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Edge {
    /// When it was answered.
    pub at: Micros,
    /// When, in seconds from the begin of the run.
    pub seconds: f64,
    /// When, on the wall.
    pub wall: jiff::Timestamp,
    /// Where.
    pub seat: Option<Seat>,
}

/// Measures each kind of which there were writers. A session set aside is none: it writes when it can, not when it should.
pub(super) fn judge(seen: &Seen, findings: &mut Findings) -> Vec<Gap> {
    let mut gaps = vec![];
    for kind in [Kind::Kept, Kind::Direct, Kind::New] {
        let mut acknowledged: Vec<_> = answers(seen, |attempt| attempt.kind == kind);
        acknowledged.sort_by_key(|attempt| attempt.answered);
        match largest(seen, kind, &acknowledged) {
            Some(gap) => gaps.push(gap),
            // A standby refuses every write at its own address, as it should.
            None if seen.kinds.contains(&kind) && kind != Kind::Direct => {
                findings.doubts.push(Doubt::NeverAcknowledged { kind });
            }
            None => {}
        }
    }
    gaps
}

/// The acknowledged writes that were answered in time.
pub(super) fn answers(seen: &Seen, which: impl Fn(&Attempt) -> bool) -> Vec<&Attempt> {
    seen.acknowledged().map(|(_, attempt)| attempt).filter(|attempt| !attempt.late && which(attempt)).collect()
}

fn largest(seen: &Seen, kind: Kind, acknowledged: &[&Attempt]) -> Option<Gap> {
    let last = acknowledged.last()?;
    let between = acknowledged.windows(2).map(|pair| Gap {
        kind,
        seconds: seconds(pair[0].answered, pair[1].answered),
        from: edge(seen, pair[0]),
        to: Some(edge(seen, pair[1])),
    });
    let at_the_end = Gap { kind, seconds: seconds(last.answered, seen.end), from: edge(seen, last), to: None };
    between.chain([at_the_end]).max_by(|a, b| a.seconds.total_cmp(&b.seconds))
}

fn edge(seen: &Seen, attempt: &Attempt) -> Edge {
    let took = attempt.answered.since(attempt.sent);
    Edge {
        at: attempt.answered,
        seconds: seconds(seen.begin, attempt.answered),
        wall: attempt.wall.checked_add(took).unwrap_or(attempt.wall),
        seat: Seat::of(attempt),
    }
}
