//! Decides whether the servers told the truth: a pure function over histories and final tables.
//!
//! A lie is only what can be proven: an acknowledged row that a caught-up instance lacks, a refused row that is there, a row
//! that is there twice or that nobody wrote, a timeline or server written after another had certainly taken over. What was not
//! seen (an instance that could not be read, a load too thin to notice) is a doubt. Never: "truthful" while there is a doubt.

mod attempts;
mod durable;
mod gap;
mod load;
mod overlap;
mod takeover;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::Serialize;

use crate::clock::Micros;
use crate::finals::{FinalTable, Role, RowId};
use crate::history::{History, Kind};

pub use attempts::{Attempt, CheckError};
pub use gap::{Edge, Gap};
pub use load::{Load, Rate};
pub use overlap::Seat;
pub use takeover::Takeover;

use attempts::Seen;

/// What a verdict demands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Acknowledged writes a second, before and after the fault, below which nothing can be concluded.
    pub least_rate: f64,
    /// For how long there must have been load on each side of the fault.
    pub least_time: Duration,
}

impl Default for Rules {
    /// At 100 writes a second a lost tenth of a second is ten rows; and a rate over less than a second is a guess.
    fn default() -> Self {
        Self { least_rate: 100.0, least_time: Duration::from_secs(1) }
    }
}

/// All that can be said.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The one word.
    pub conclusion: Conclusion,
    /// What is proven against the servers.
    pub lies: Vec<Lie>,
    /// What is not known.
    pub doubts: Vec<Doubt>,
    /// How many writes had which outcome.
    pub writes: Counts,
    /// The load before and after the fault.
    pub load: Load,
    /// The largest time without an acknowledged write, for each kind of writer.
    pub gaps: Vec<Gap>,
    /// Each change of the server or timeline that was written.
    pub takeovers: Vec<Takeover>,
    /// What each instance had in the end.
    pub instances: Vec<Instance>,
}

/// The one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// Nothing is wrong, and everything was looked at.
    Truthful,
    /// Nothing is proven, but not everything could be looked at.
    Inconclusive,
    /// A lie is proven.
    Lied,
}

/// Something proven against the servers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "lie", rename_all = "snake_case")]
pub enum Lie {
    /// Acknowledged, and not there.
    Lost {
        /// On which instance.
        instance: String,
        /// Which rows.
        rows: Rows,
    },
    /// There more than once.
    Duplicate {
        /// On which instance.
        instance: String,
        /// Which rows.
        rows: Rows,
    },
    /// Refused, and there.
    RefusedButThere {
        /// On which instance.
        instance: String,
        /// Which rows.
        rows: Rows,
    },
    /// There, and never written.
    NeverWritten {
        /// On which instance.
        instance: String,
        /// Which rows.
        rows: Rows,
    },
    /// Two timelines or servers were written at once, or an old one after a new one.
    Overlap {
        /// The one that should have been over.
        old: Seat,
        /// The one that had taken over.
        new: Seat,
        /// For how long, at least, in seconds.
        seconds: f64,
        /// The first acknowledged write of the new.
        first_new: Witness,
        /// The last acknowledged write of the old: its COMMIT was sent after that.
        last_old: Witness,
    },
    /// A write was acknowledged in a term after one in a higher term had been.
    TermWentBack {
        /// The higher.
        higher: Witness,
        /// The lower, whose COMMIT was sent after that.
        lower: Witness,
    },
}

/// Rows, counted, with the first of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rows {
    /// How many.
    pub count: usize,
    /// The first few.
    pub first: Vec<Witness>,
}

/// One row and what is known of its write.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Witness {
    /// Its id.
    pub id: RowId,
    /// Its write, unless there was none.
    #[serde(flatten)]
    pub attempt: Option<Attempt>,
}

/// Something that is not known.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "doubt", rename_all = "snake_case")]
pub enum Doubt {
    /// No instance was given to look at.
    NoInstance,
    /// An instance could not be read.
    Unread {
        /// Which.
        instance: String,
        /// Why.
        why: String,
    },
    /// An instance had not replayed everything in time.
    NotCaughtUp {
        /// Which.
        instance: String,
        /// How many acknowledged rows it lacked.
        missing: usize,
    },
    /// More than one instance said it was primary.
    SeveralPrimaries {
        /// Which.
        instances: Vec<String>,
    },
    /// Too few writes to notice much, or for too short a time.
    ThinLoad {
        /// When.
        when: load::When,
        /// Acknowledged writes a second.
        per_second: f64,
        /// In so many seconds.
        seconds: f64,
    },
    /// Writers of this kind never had a write acknowledged.
    NeverAcknowledged {
        /// Which kind.
        kind: Kind,
    },
    /// Acknowledged writes without a timeline: overlap could not be judged for them.
    NoTimeline {
        /// How many.
        writes: usize,
    },
}

/// How many writes had which outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// The server said it was committed.
    pub acknowledged: usize,
    /// Certain not to be committed.
    pub refused: usize,
    /// Nobody knows.
    pub ambiguous: usize,
    /// Of all these, how many were answered after their deadline.
    pub late: usize,
}

/// What an instance had in the end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Instance {
    /// Which.
    pub instance: String,
    /// What it was; nothing when it was not read.
    pub role: Option<Role>,
    /// How many rows it had.
    pub rows: usize,
    /// How many of the ambiguous ones.
    pub ambiguous: usize,
    /// How many acknowledged ones it lacked.
    pub lacks: usize,
    /// Whether it had everything that the primary had.
    pub caught_up: bool,
}

/// Judges histories and, where there are any, the final tables.
pub fn check(histories: &[History], finals: &[FinalTable], rules: &Rules) -> Result<Verdict, CheckError> {
    let seen = Seen::of(histories)?;
    let mut findings = Findings::default();
    let instances = durable::judge(&seen, finals, &mut findings);
    overlap::judge(&seen, &mut findings);
    let load = load::judge(&seen, rules, &mut findings);
    let gaps = gap::judge(&seen, &mut findings);
    let takeovers = takeover::judge(&seen);
    let conclusion = match (findings.lies.is_empty(), findings.doubts.is_empty()) {
        (false, _) => Conclusion::Lied,
        (true, false) => Conclusion::Inconclusive,
        (true, true) => Conclusion::Truthful,
    };
    let Findings { lies, doubts } = findings;
    Ok(Verdict { conclusion, lies, doubts, writes: seen.counts(), load, gaps, takeovers, instances })
}

#[derive(Debug, Default)]
struct Findings {
    lies: Vec<Lie>,
    doubts: Vec<Doubt>,
}

/// Seconds between two moments.
fn seconds(from: Micros, to: Micros) -> f64 {
    to.since(from).as_secs_f64()
}
