//! The writes of all histories, each with its last word: a late answer replaces "no answer in time".

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;

use super::Counts;
use crate::clock::Micros;
use crate::finals::RowId;
use crate::history::{Event, History, Kind, Mark, Outcome, Server, WriterId};

/// A write, with its last word.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Attempt {
    /// What kind of writer's.
    pub kind: Kind,
    /// When it began.
    pub sent: Micros,
    /// When COMMIT was sent.
    pub committing: Option<Micros>,
    /// When its outcome was known.
    pub answered: Micros,
    /// When it began, on the wall.
    pub wall: Timestamp,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Whether its answer came after the deadline.
    pub late: bool,
    /// Where.
    pub server: Option<Server>,
    /// Which of the writer's sessions.
    pub session: Option<u32>,
    /// When that was opened.
    pub opened: Option<Micros>,
}

/// Why histories can't be judged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// There is none.
    #[error("there is no history")]
    Nothing,
    /// One has no beginning.
    #[error("a history does not begin with a `begin`")]
    NoBegin,
    /// Clocks that can't be compared.
    #[error(
        "the histories of runs {first} and {second} are of different machines (or boots): their clocks can't be compared; check each alone"
    )]
    OtherClock {
        /// One.
        first: String,
        /// The other.
        second: String,
    },
    /// The same run twice.
    #[error("the history of run {run} was given twice")]
    Twice {
        /// Which.
        run: String,
    },
    /// The same id twice: the probe is broken, not the server.
    #[error("the history has two writes {writer}/{seq}: a probe never uses an id twice")]
    ReusedId {
        /// The writer.
        writer: u32,
        /// Its count.
        seq: u64,
    },
}

/// Everything that was seen.
#[derive(Debug)]
pub(super) struct Seen {
    /// All writes.
    pub(super) attempts: BTreeMap<RowId, Attempt>,
    /// Where each run began and ended.
    pub(super) begin: Micros,
    /// The end, or the last thing seen of runs that were killed.
    pub(super) end: Micros,
    /// What was said to be done.
    pub(super) marks: Vec<Mark>,
    /// Which kinds of writers there were.
    pub(super) kinds: BTreeSet<Kind>,
    /// The runs that were killed: the next id of each of their writers may be there.
    pub(super) killed: BTreeSet<String>,
}

impl Seen {
    pub(super) fn of(histories: &[History]) -> Result<Self, CheckError> {
        let mut boots: Vec<(&str, Option<&str>)> = vec![];
        let mut seen = Self {
            attempts: BTreeMap::new(),
            begin: Micros(u64::MAX),
            end: Micros(0),
            marks: vec![],
            kinds: BTreeSet::new(),
            killed: BTreeSet::new(),
        };
        for history in histories {
            let Some(Event::Begin(begin)) = history.events.first() else { return Err(CheckError::NoBegin) };
            if boots.iter().any(|(run, _)| *run == begin.run) {
                return Err(CheckError::Twice { run: begin.run.clone() });
            }
            boots.push((&begin.run, begin.boot.as_deref()));
            seen.begin = seen.begin.min(begin.at);
            seen.take(&begin.run, &history.events[1..])?;
        }
        let Some((first, boot)) = boots.first() else { return Err(CheckError::Nothing) };
        // One history is its own clock, also where the machine has no name for its boot.
        match boots.iter().skip(1).find(|(_, other)| other != boot || other.is_none()) {
            Some((second, _)) => {
                Err(CheckError::OtherClock { first: (*first).to_owned(), second: (*second).to_owned() })
            }
            None => Ok(seen),
        }
    }

    fn take(&mut self, run: &str, events: &[Event]) -> Result<(), CheckError> {
        let mut kinds = BTreeMap::new();
        let mut ended = false;
        let id = |writer: WriterId, seq: u64| RowId { run: run.to_owned(), writer, seq };
        for event in events {
            match event {
                Event::Begin(_) | Event::Opened(_) => {}
                Event::Writer(writer) => {
                    kinds.insert(writer.writer, writer.kind);
                    self.kinds.insert(writer.kind);
                }
                Event::Write(write) => {
                    let attempt = Attempt {
                        kind: kinds.get(&write.writer).copied().unwrap_or(Kind::Kept),
                        sent: write.sent,
                        committing: write.committing,
                        answered: write.answered,
                        wall: write.wall,
                        outcome: write.outcome.clone(),
                        late: false,
                        server: write.server.clone(),
                        session: write.session,
                        opened: write.opened,
                    };
                    self.end = self.end.max(write.answered);
                    if self.attempts.insert(id(write.writer, write.seq), attempt).is_some() {
                        return Err(CheckError::ReusedId { writer: write.writer.0, seq: write.seq });
                    }
                }
                Event::Late(_) => {}
                Event::Mark(mark) => self.marks.push(mark.clone()),
                Event::End(end) => {
                    ended = true;
                    self.end = self.end.max(end.at);
                }
            }
        }
        for event in events {
            let Event::Late(late) = event else { continue };
            let Some(attempt) = self.attempts.get_mut(&id(late.writer, late.seq)) else { continue };
            attempt.outcome = late.outcome.clone();
            attempt.answered = late.answered;
            attempt.late = true;
        }
        if !ended {
            self.killed.insert(run.to_owned());
        }
        Ok(())
    }

    /// The acknowledged writes.
    pub(super) fn acknowledged(&self) -> impl Iterator<Item = (&RowId, &Attempt)> {
        self.attempts.iter().filter(|(_, attempt)| attempt.outcome.is_acknowledged())
    }

    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for attempt in self.attempts.values() {
            let count = match attempt.outcome {
                Outcome::Acknowledged => &mut counts.acknowledged,
                Outcome::Refused { .. } => &mut counts.refused,
                Outcome::Ambiguous { .. } => &mut counts.ambiguous,
            };
            *count += 1;
            counts.late += usize::from(attempt.late);
        }
        counts
    }
}
