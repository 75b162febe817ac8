//! Judges whether there was enough load to notice anything: acknowledged writes a second before the fault, and after writes
//! worked again.
//!
//! The fault is the first mark; without marks it is where the largest gap of all writers together begins. Never: a verdict
//! on a load that a lost second would not show in.

use serde::Serialize;

use super::attempts::Seen;
use super::gap::answers;
use super::{Doubt, Findings, Rules, seconds};
use crate::clock::Micros;

/// The load on both sides of the fault.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Load {
    /// What separates them: the first mark, if there was one.
    pub fault: Option<String>,
    /// Before the fault.
    pub before: Rate,
    /// After the gap that the fault made.
    pub after: Rate,
}

/// A rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rate {
    /// Acknowledged writes.
    pub acknowledged: usize,
    /// In so many seconds.
    pub seconds: f64,
}

/// Which side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Before the fault.
    Before,
    /// After it.
    After,
}

impl Rate {
    /// Writes a second; none in no time.
    pub fn per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.acknowledged as f64 / self.seconds } else { 0.0 }
    }
}

/// Measures both sides, and doubts what is too thin.
pub(super) fn judge(seen: &Seen, rules: &Rules, findings: &mut Findings) -> Load {
    let mut at: Vec<_> = answers(seen, |_| true).iter().map(|attempt| attempt.answered).collect();
    at.sort();
    let mark = seen.marks.iter().min_by_key(|mark| mark.at);
    let (fault, again) = sides(&at, mark.map(|mark| mark.at));
    let between = |from: Option<Micros>, to: Option<Micros>| match (from, to) {
        (Some(from), Some(to)) => {
            let acknowledged = at.iter().filter(|at| (from..=to).contains(*at)).count();
            Rate { acknowledged, seconds: seconds(from, to) }
        }
        _ => Rate::default(),
    };
    let load = Load {
        fault: mark.map(|mark| mark.what.clone()),
        before: between(at.first().copied(), fault),
        after: between(again, Some(seen.end)),
    };
    for (when, rate) in [(When::Before, load.before), (When::After, load.after)] {
        if rate.per_second() < rules.least_rate || rate.seconds < rules.least_time.as_secs_f64() {
            findings.doubts.push(Doubt::ThinLoad { when, per_second: rate.per_second(), seconds: rate.seconds });
        }
    }
    load
}

/// When the fault was, and when writes worked again.
fn sides(at: &[Micros], mark: Option<Micros>) -> (Option<Micros>, Option<Micros>) {
    let gaps = at.windows(2).filter(|pair| mark.is_none_or(|mark| pair[1] > mark));
    let largest = gaps.max_by_key(|pair| pair[1].since(pair[0]));
    (mark.or(largest.map(|pair| pair[0])), largest.map(|pair| pair[1]))
}
