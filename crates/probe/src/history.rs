//! What a probe saw: one JSON line for each event, written as it happens, so that a probe that is killed leaves what it knew.
//!
//! Never: a line that claims more than was seen. A write whose fate is not certain is `ambiguous`, a term or timeline that
//! nobody told is absent, and the place of a write (server, timeline, term) is what the write itself returned.

mod file;

use bellwether_core::wal::{SystemIdentifier, Term, Timeline};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::clock::Micros;

pub use file::{HistoryError, Recorder, read};

/// The version of the lines. A reader refuses what it does not know.
pub const FORMAT: u32 = 1;

/// All that one probe saw, in the order in which it was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The events.
    pub events: Vec<Event>,
}

impl History {
    /// The run's name, which its rows carry. Empty for a history that has no beginning, of which there are no rows either.
    pub fn run(&self) -> &str {
        match self.events.first() {
            Some(Event::Begin(begin)) => &begin.run,
            _ => "",
        }
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The first line.
    Begin(Begin),
    /// There is a writer.
    Writer(Writer),
    /// A writer opened a session that it means to keep.
    Opened(Opened),
    /// A write, with its outcome.
    Write(Write),
    /// The answer to a write came after its deadline. It replaces the outcome.
    Late(Late),
    /// Somebody said what they did meanwhile: the fault.
    Mark(Mark),
    /// The last line of a probe that was not killed.
    End(End),
}

/// Which run this is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// The version of the lines.
    pub format: u32,
    /// The run's name: its rows in the table carry it.
    pub run: String,
    /// When.
    pub at: Micros,
    /// When, on the wall.
    pub wall: Timestamp,
    /// The boot of the machine whose clock this is.
    pub boot: Option<String>,
    /// The table that the rows are in.
    pub table: String,
}

/// A writer's number, within its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WriterId(pub u32);

/// How a writer connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It keeps its session, opened at the URI's host (a Service).
    Kept,
    /// It keeps its session, opened at one server's own address.
    Direct,
    /// It connects anew for each write.
    New,
    /// Not a writer of its own: a kept session that missed a deadline and is held on to, to see whether it can write again.
    Lingering,
}

/// One writer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writer {
    /// Its number.
    pub writer: WriterId,
    /// How it connects.
    pub kind: Kind,
    /// Whom it connects to.
    pub target: String,
    /// Whose session it holds on to, when it is a lingering one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<WriterId>,
}

/// A session that is meant to be kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Whose.
    pub writer: WriterId,
    /// Which of the writer's.
    pub session: u32,
    /// When it was open.
    pub at: Micros,
    /// Who answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,
}

/// A server, as it described itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Server {
    /// Its `cluster_name`, which is the instance's name in clusters of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The address and port at which it was reached; nothing through a Unix socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// When its postmaster started, in microseconds since 1970: the same at every address of a server, another after a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub postmaster: Option<i64>,
    /// Whose data it serves.
    pub system: SystemIdentifier,
    /// The timeline that it writes; nothing on a standby.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// The term of its leadership, where it says (`bellwether.term`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<Term>,
}

impl Server {
    /// What to call it: its instance's name, else its address.
    pub fn name(&self) -> String {
        let name = self.instance.clone().filter(|name| !name.is_empty()).or_else(|| self.address.clone());
        name.unwrap_or_else(|| format!("system {}", self.system))
    }
}

/// How it is known which server a write was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KnownBy {
    /// The write's own answer says it.
    Write,
    /// The session was with it when it was opened, or at its last answer.
    Session,
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// COMMIT was answered, without a warning.
    Acknowledged,
    /// It is certain not to have been committed.
    Refused {
        /// Why.
        why: String,
    },
    /// It may have been committed, or not.
    Ambiguous {
        /// Why nobody knows.
        why: String,
    },
}

impl Outcome {
    /// Whether the server said that it is committed.
    pub fn is_acknowledged(&self) -> bool {
        matches!(self, Self::Acknowledged)
    }
}

/// A write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// Whose.
    pub writer: WriterId,
    /// The writer's count: with run and writer it is the row's id, used once.
    pub seq: u64,
    /// Which of the writer's sessions; nothing when none could be opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u32>,
    /// When that session was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened: Option<Micros>,
    /// When the writer began with it.
    pub sent: Micros,
    /// When COMMIT was sent, if it was: it can't have been committed before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committing: Option<Micros>,
    /// When its outcome was known.
    pub answered: Micros,
    /// When the writer began with it, on the wall.
    pub wall: Timestamp,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Which server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,
    /// How that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_by: Option<KnownBy>,
}

/// An answer after the deadline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Late {
    /// Whose write.
    pub writer: WriterId,
    /// Which.
    pub seq: u64,
    /// When it came.
    pub answered: Micros,
    /// What it says.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What somebody says they did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// When they said so.
    pub at: Micros,
    /// When, on the wall.
    pub wall: Timestamp,
    /// What.
    pub what: String,
}

/// The end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// When.
    pub at: Micros,
}
