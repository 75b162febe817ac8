//! What agents write to each other: frames of JSON, a greeting first, then messages of the election.
//!
//! ```text
//! u32 length, big endian, at most 16 KiB │ JSON
//! ```
//!
//! The types here mirror those of `bellwether_core::election`, so that what goes over the wire is decided here and changes only on
//! purpose. What is added later is optional: agents of two versions talk to each other during an upgrade.
//!
//! Never: memory for a length that somebody merely claims.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use bellwether_core::election::{
    Answer, Ask, Consent, Grant, Incarnation, LeaseVersion, MemberId, Message, Poll, Position, Question, RequestId,
    Span,
};
use bellwether_core::instance::history::{Told, WrittenBy};
use bellwether_core::instance::space::Space;
use bellwether_core::wal::{Lsn, Term, Timeline};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::ids::{self, Uid};

/// The protocol's version. Another one is not spoken to.
pub const PROTOCOL: u32 = 1;
/// No frame is longer. The longest message lists members, 40 bytes each.
pub const LONGEST: usize = 16 * 1024;

/// The first frame, in both directions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// The cluster.
    pub cluster: String,
    /// Its namespace.
    pub namespace: String,
    /// The instance.
    pub instance: String,
    /// The identity of its volume.
    pub identity: Uid,
}

impl Hello {
    /// Why this greeting is not answered, if it isn't: somebody of another cluster, or of another time.
    pub fn objection(&self, ours: &Self) -> Option<String> {
        let Self { protocol, cluster, namespace, identity, .. } = self;
        if *protocol != PROTOCOL {
            Some(format!("it speaks protocol {protocol}, and we speak {PROTOCOL}"))
        } else if (cluster, namespace) != (&ours.cluster, &ours.namespace) {
            Some(format!("it belongs to the cluster {namespace}/{cluster}"))
        } else if *identity == ours.identity {
            Some(format!("it claims our own identity {}", MemberId::from(*identity)))
        } else {
            None
        }
    }
}

/// What goes along with a message, beyond what the election looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Which log the sender writes, if it leads.
    pub told: Told,
    /// How far the sender has written, a moment ago, if it leads.
    pub written: Option<Lsn>,
    /// From where on the sender keeps WAL for the others, by slot. Empty: not said.
    pub slots: BTreeMap<String, Lsn>,
    /// Where the sender knows instances to be: a name service may be away, or there is none.
    pub addresses: BTreeMap<String, IpAddr>,
    /// How much room the sender's volumes have. None: not said.
    pub space: Option<Space>,
}

/// Every frame after the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    m: Option<WireMessage>,
    timeline: Option<Timeline>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    leads: Option<Term>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    promoting: Option<Lsn>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    log: Vec<(Term, Timeline)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    forks: Vec<(Timeline, Lsn)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    written: Option<Lsn>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    slots: BTreeMap<String, Lsn>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    addresses: BTreeMap<String, IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    space: Option<WireSpace>,
}

impl Letter {
    /// For the wire.
    pub fn new(message: Option<&Message>, about: About) -> Self {
        let About { told, written, slots, addresses, space } = about;
        let Told { timeline, term: leads, promoting, forks, log } = told;
        let log = log.iter().map(|entry| (entry.term, entry.above)).collect();
        let space = space.map(Into::into);
        Self { m: message.map(Into::into), timeline, leads, promoting, log, forks, written, slots, addresses, space }
    }
    /// From the wire.
    pub fn open(self) -> (Option<Message>, About) {
        let log = self.log.iter().map(|(term, above)| WrittenBy { term: *term, above: *above }).collect();
        let Self { m, timeline, leads: term, promoting, forks, written, slots, addresses, space, .. } = self;
        let told = Told { timeline, term, promoting, forks, log };
        (m.map(Into::into), About { told, written, slots, addresses, space: space.map(Into::into) })
    }
}

/// One frame, ready to be written.
pub fn frame(content: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, content)?;
    let length = bytes.len() - 4;
    if length > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes is too long")));
    }
    bytes[..4].copy_from_slice(&(length as u32).to_be_bytes());
    Ok(bytes)
}

/// Writes one frame.
pub async fn write(stream: &mut (impl AsyncWrite + Unpin), frame: &[u8]) -> io::Result<()> {
    stream.write_all(frame).await?;
    stream.flush().await
}

/// Reads one frame.
pub async fn read<T: DeserializeOwned>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<T> {
    let length = stream.read_u32().await? as usize;
    if length > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes is announced")));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// [`Message`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
enum WireMessage {
    Ask {
        request: u64,
        term: Term,
        incarnation: u64,
        promise: u64,
    },
    Grant {
        request: u64,
        term: Term,
        incarnation: u64,
        streaming: bool,
    },
    Refuse {
        term: Option<Term>,
    },
    Poll {
        request: u64,
        incarnation: u64,
        question: WireQuestion,
        term: Option<Term>,
    },
    Answer {
        request: u64,
        incarnation: u64,
        term: Option<Term>,
        members: Vec<Uid>,
        position: Option<WirePosition>,
        /// Of an agent that doesn't say: in the middle, so that it is neither passed over nor preferred.
        #[serde(default = "not_said")]
        space: WireSpace,
    },
    Consent {
        uid: Uid,
        version: u64,
        term: Term,
        at_least: WirePosition,
    },
    Knock,
}

/// [`Question`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum WireQuestion {
    Position,
    Yield,
}

/// [`Space`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum WireSpace {
    Full,
    Low,
    Ample,
}

/// [`Position`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct WirePosition {
    term: Term,
    timeline: Timeline,
    lsn: Lsn,
}

impl From<&Message> for WireMessage {
    fn from(message: &Message) -> Self {
        match message {
            Message::Ask(Ask { request, term, incarnation, promise }) => {
                Self::Ask { request: request.0, term: *term, incarnation: incarnation.0, promise: promise.0 }
            }
            Message::Grant(Grant { request, term, incarnation, streaming }) => {
                Self::Grant { request: request.0, term: *term, incarnation: incarnation.0, streaming: *streaming }
            }
            Message::Refuse(term) => Self::Refuse { term: *term },
            Message::Poll(Poll { request, incarnation, question, term }) => {
                Self::Poll { request: request.0, incarnation: incarnation.0, question: (*question).into(), term: *term }
            }
            Message::Answer(Answer { request, incarnation, term, members, position, space }) => Self::Answer {
                request: request.0,
                incarnation: incarnation.0,
                term: *term,
                members: ids::list(members),
                position: position.map(Into::into),
                space: (*space).into(),
            },
            Message::Consent(Consent { uid, version, term, at_least }) => {
                Self::Consent { uid: (*uid).into(), version: version.0, term: *term, at_least: (*at_least).into() }
            }
            Message::Knock => Self::Knock,
        }
    }
}

impl From<WireMessage> for Message {
    fn from(message: WireMessage) -> Self {
        match message {
            WireMessage::Ask { request, term, incarnation, promise } => Self::Ask(Ask {
                request: RequestId(request),
                term,
                incarnation: Incarnation(incarnation),
                promise: Span(promise),
            }),
            WireMessage::Grant { request, term, incarnation, streaming } => Self::Grant(Grant {
                request: RequestId(request),
                term,
                incarnation: Incarnation(incarnation),
                streaming,
            }),
            WireMessage::Refuse { term } => Self::Refuse(term),
            WireMessage::Poll { request, incarnation, question, term } => Self::Poll(Poll {
                request: RequestId(request),
                incarnation: Incarnation(incarnation),
                question: question.into(),
                term,
            }),
            WireMessage::Answer { request, incarnation, term, members, position, space } => Self::Answer(Answer {
                request: RequestId(request),
                incarnation: Incarnation(incarnation),
                term,
                members: ids::members(&members),
                position: position.map(Into::into),
                space: space.into(),
            }),
            WireMessage::Consent { uid, version, term, at_least } => Self::Consent(Consent {
                uid: uid.into(),
                version: LeaseVersion(version),
                term,
                at_least: at_least.into(),
            }),
            WireMessage::Knock => Self::Knock,
        }
    }
}

impl From<Question> for WireQuestion {
    fn from(question: Question) -> Self {
        match question {
            Question::Position => Self::Position,
            Question::Yield => Self::Yield,
        }
    }
}

impl From<WireQuestion> for Question {
    fn from(question: WireQuestion) -> Self {
        match question {
            WireQuestion::Position => Self::Position,
            WireQuestion::Yield => Self::Yield,
        }
    }
}

fn not_said() -> WireSpace {
    WireSpace::Low
}

impl From<Space> for WireSpace {
    fn from(space: Space) -> Self {
        match space {
            Space::Full => Self::Full,
            Space::Low => Self::Low,
            Space::Ample => Self::Ample,
        }
    }
}

impl From<WireSpace> for Space {
    fn from(space: WireSpace) -> Self {
        match space {
            WireSpace::Full => Self::Full,
            WireSpace::Low => Self::Low,
            WireSpace::Ample => Self::Ample,
        }
    }
}

impl From<Position> for WirePosition {
    fn from(Position { term, timeline, lsn }: Position) -> Self {
        Self { term, timeline, lsn }
    }
}

impl From<WirePosition> for Position {
    fn from(WirePosition { term, timeline, lsn }: WirePosition) -> Self {
        Self { term, timeline, lsn }
    }
}

#[cfg(test)]
mod tests;
