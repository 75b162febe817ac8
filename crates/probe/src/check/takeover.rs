//! Tells each change of the server or timeline that was written, and for how long sessions of the old one could still commit
//! after the new one had acknowledged its first write.

use std::collections::BTreeSet;

use serde::Serialize;

use super::attempts::{Attempt, Seen};
use super::overlap::{Seat, spans};
use super::seconds;
use crate::finals::RowId;
use crate::history::{Kind, Outcome};

/// A change of what was written.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Takeover {
    /// Where rows were written before.
    pub from: Seat,
    /// Where they were written then.
    pub to: Seat,
    /// When the new one's first write was acknowledged, in seconds from the begin of the run.
    pub at: f64,
    /// Sessions with the old one, opened before that.
    pub old_sessions: usize,
    /// How many of these tried to write after that, or waited for an answer.
    pub tried_after: usize,
    /// Acknowledged by the old one after that.
    pub acknowledged_after: usize,
    /// Left open by the old one after that.
    pub ambiguous_after: usize,
    /// Refused by the old one after that.
    pub refused_after: usize,
    /// How long after it the old one's last acknowledgement came. Nothing when none came.
    pub answered_until: Option<f64>,
    /// How long after it the old one certainly still committed. Nothing when it is not certain that it did.
    pub committed_until: Option<f64>,
}

/// All changes, in the order in which the new ones first wrote.
pub(super) fn judge(seen: &Seen) -> Vec<Takeover> {
    let spans = spans(seen);
    let mut order: Vec<_> = spans.iter().collect();
    order.sort_by_key(|(_, span)| span.first.1.answered);
    order.windows(2).map(|pair| takeover(seen, pair[0].0, pair[1].0, pair[1].1.first.1)).collect()
}

fn takeover(seen: &Seen, from: &Seat, to: &Seat, first_new: &Attempt) -> Takeover {
    let at = first_new.answered;
    // A connection made anew is a session of the old one all the same, but not an old session.
    let was_open = |attempt: &Attempt| attempt.kind != Kind::New && attempt.opened.is_some_and(|opened| opened < at);
    let of_old =
        seen.attempts.iter().filter(|(_, attempt)| was_open(attempt) && Seat::of(attempt).as_ref() == Some(from));
    let mut told = Takeover {
        from: from.clone(),
        to: to.clone(),
        at: seconds(seen.begin, at),
        old_sessions: 0,
        tried_after: 0,
        acknowledged_after: 0,
        ambiguous_after: 0,
        refused_after: 0,
        answered_until: None,
        committed_until: None,
    };
    let (mut sessions, mut tried) = (BTreeSet::new(), BTreeSet::new());
    for (id, attempt) in of_old {
        sessions.insert(session_of(id, attempt));
        if attempt.answered <= at {
            continue;
        }
        tried.insert(session_of(id, attempt));
        match attempt.outcome {
            Outcome::Acknowledged => {
                told.acknowledged_after += 1;
                told.answered_until = longer(told.answered_until, seconds(at, attempt.answered));
                if let Some(sent) = attempt.committing.filter(|sent| *sent > at) {
                    told.committed_until = longer(told.committed_until, seconds(at, sent));
                }
            }
            Outcome::Refused { .. } => told.refused_after += 1,
            Outcome::Ambiguous { .. } => told.ambiguous_after += 1,
        }
    }
    told.old_sessions = sessions.len();
    told.tried_after = tried.len();
    told
}

/// What tells a session apart: when it was opened. One that is set aside goes on under another writer's number.
fn session_of(id: &RowId, attempt: &Attempt) -> (String, Option<crate::clock::Micros>) {
    (id.run.clone(), attempt.opened)
}

fn longer(known: Option<f64>, other: f64) -> Option<f64> {
    Some(known.map_or(other, |known| known.max(other)))
}
