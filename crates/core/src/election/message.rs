//! What agents say to each other and to the API, what happens to an agent, and what it wants done.
//!
//! A grant repeats the request's number, term and incarnation (E8), so that an answer that comes late, or to somebody else's
//! question, can never be taken for one to the last.

use super::types::{
    Deadline, Edition, Incarnation, LeaseUid, LeaseVersion, MemberId, Members, Position, RequestId, Span, Sync, Voters,
};
use crate::fact::Fact;
use crate::instance::space::Space;
use crate::wal::Term;

/// What the Lease says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseContent {
    /// `holderIdentity`. Nobody: the cluster never had a leader, or the Lease was made again.
    pub holder: Option<MemberId>,
    /// `leaseTransitions`. None: as above.
    pub term: Option<Term>,
    /// Annotation `members`: every instance the holder has acknowledged, itself included.
    pub members: Members,
    /// Annotation `sync`.
    pub sync: Sync,
    /// `leaseDurationSeconds`, L.
    pub duration: Span,
    /// Annotation `edition`: counts what the others have to know of, members and sync. Within a term it never goes back, unless the Lease is put back
    /// (E14).
    pub edition: Edition,
}

/// The Lease at one version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseView {
    /// Which Lease.
    pub uid: LeaseUid,
    /// Which version of it.
    pub version: LeaseVersion,
    /// What it says.
    pub content: LeaseContent,
}

/// A write of the Lease: a PUT with uid and resourceVersion, sent once and never retried (E1).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseWrite {
    /// It replaces this Lease and no other.
    pub uid: LeaseUid,
    /// It replaces this version and no other.
    pub base: LeaseVersion,
    /// By this.
    pub content: LeaseContent,
    /// Who was not heard, where a person's word stood in for theirs (E16): to be kept on the Lease.
    pub forced: Option<Members>,
}

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// It is committed; this is the Lease after it.
    Committed(LeaseView),
    /// It is not, and never will be: the version was another, or the Lease is gone.
    Conflict,
    /// No answer. It may be committed, and may be later (E1).
    Ambiguous,
}

/// *I lead term t; promise not to campaign for D.*
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ask {
    /// The number of the round.
    pub request: RequestId,
    /// The leader's term.
    pub term: Term,
    /// The leader's life.
    pub incarnation: Incarnation,
    /// D.
    pub promise: Span,
}

/// *I promise.* The first three are the request's, repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grant {
    /// The number of the round.
    pub request: RequestId,
    /// The leader's term.
    pub term: Term,
    /// The leader's life.
    pub incarnation: Incarnation,
    /// Whether this member streams from the leader.
    pub streaming: bool,
}

/// What a question is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Question {
    /// How far does your log reach? Asked by a candidate, and by a holder that hands over.
    Position,
    /// The Lease is damaged (E14): how far does your log reach, and do you give up every claim from before?
    Yield,
}

/// A question about the log. Whoever answers cuts its WAL receiver first, so that what it says stays true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Poll {
    /// Its number.
    pub request: RequestId,
    /// The asker's life.
    pub incarnation: Incarnation,
    /// What it is for.
    pub question: Question,
    /// The highest term the asker knows of.
    pub term: Option<Term>,
}

/// The answer to a [`Poll`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Answer {
    /// The question's number.
    pub request: RequestId,
    /// The asker's life.
    pub incarnation: Incarnation,
    /// The highest term the answerer knows of.
    pub term: Option<Term>,
    /// The members it knows of; a damaged Lease may have forgotten them.
    pub members: Members,
    /// Where its log ends, read after its receiver was cut. None: it has no usable log.
    pub position: Option<Position>,
    /// How much room its volumes have.
    pub space: Space,
}

/// *Take the Lease at this version; I have stopped.* (E10)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Consent {
    /// Of the Lease.
    pub uid: LeaseUid,
    /// The version to replace, and no other.
    pub version: LeaseVersion,
    /// The term that ends.
    pub term: Term,
    /// The target writes only if its log reaches this far.
    pub at_least: Position,
}

/// What one agent sends another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// Promise.
    Ask(Ask),
    /// Promised.
    Grant(Grant),
    /// Not promised, or no answer to a poll; the highest term the sender knows of.
    Refuse(Option<Term>),
    /// A question about the log.
    Poll(Poll),
    /// Its answer.
    Answer(Answer),
    /// A hand-over.
    Consent(Consent),
    /// *I have a copy and am no member: admit me.*
    Knock,
}

/// Whom a person wants to lead, as seen from one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Whom {
    /// Whoever has the longest log of those who answer.
    Best,
    /// This one.
    Me,
    /// Another.
    Another,
}

/// A person's word that somebody is to lead, though it is not certain to have every acknowledged commit (E16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Force {
    /// It is written on this version of the Lease, and counts for no other.
    pub version: LeaseVersion,
    /// The highest term when it was given. It counts for no other.
    pub term: Option<Term>,
    /// Who is to lead.
    pub whom: Whom,
}

/// What happens to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Time has passed. Needed every few tens of milliseconds: what it comes late is taken from the stop budget.
    Tick,
    /// The Lease, from a watch, or from a read (then with its number). Absent: it does not exist.
    Lease {
        /// The read that it answers.
        read: Option<RequestId>,
        /// What was seen.
        sight: Fact<LeaseView>,
    },
    /// A write ended.
    Written {
        /// Which.
        request: RequestId,
        /// How.
        outcome: Outcome,
    },
    /// Another agent says.
    Received {
        /// Who.
        from: MemberId,
        /// What.
        message: Message,
    },
    /// The own WAL receiver is cut, and the log ends here.
    ReceiverCut {
        /// None: there is no usable log.
        position: Option<Position>,
    },
    /// This standby streams from there, or from nobody any more.
    Streaming {
        /// From whom.
        from: Option<MemberId>,
    },
    /// PostgreSQL died by itself while this instance led.
    PostgresCrashed,
    /// PostgreSQL is being stopped, as was ordered, and nobody can write to it any more: whoever streams from it has all that there ever will
    /// be. Its processes may still be there.
    PostgresDrained {
        /// Where its log ends.
        position: Option<Position>,
    },
    /// PostgreSQL and each of its descendants are gone, as was ordered.
    PostgresStopped {
        /// Where its log ends.
        position: Option<Position>,
    },
    /// No backend goes by older voters any more, **and** a quorum of these holds everything that was acknowledged till then.
    VotersInForce {
        /// These.
        voters: Option<Voters>,
    },
    /// A person or the operator wants another primary.
    Switchover {
        /// This one, or whoever is best.
        target: Option<MemberId>,
    },
    /// This instance initialised the database of a cluster that never had a leader.
    Initialised,
    /// A person wants PostgreSQL here stopped, until further notice.
    Fenced,
    /// No longer.
    FenceLifted,
    /// A person wants somebody to lead whatever was acknowledged elsewhere.
    Forced(Force),
    /// So much room the volumes of this instance have.
    Space(Space),
}

/// What the agent wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Keep this on the volume, durably, before anything that follows (E14).
    Remember(Memory),
    /// Send this.
    Send {
        /// To whom.
        to: MemberId,
        /// What.
        message: Message,
    },
    /// Cut the own WAL receiver, wait until it is gone, read where the log ends, and answer with it.
    CutAndAnswer {
        /// To whom.
        to: MemberId,
        /// The answer, its position still to be filled in.
        answer: Answer,
    },
    /// Cut the own WAL receiver, and say where the log ends.
    CutReceiver,
    /// Read the Lease, from the API itself, not from a cache.
    ReadLease {
        /// The number to answer with.
        request: RequestId,
    },
    /// Write the Lease, once (E1).
    WriteLease {
        /// The number to answer with.
        request: RequestId,
        /// What.
        write: LeaseWrite,
    },
    /// PostgreSQL may accept writes until then; the guard kills it when this passes.
    Guard {
        /// The end of tenure.
        until: Deadline,
    },
    /// Stop PostgreSQL at once and reap every descendant; then say so.
    StopPostgres,
    /// Become the primary, or start as the primary that this instance was; commits wait for these from the first client on.
    Lead {
        /// The term.
        term: Term,
        /// Whom commits wait for.
        voters: Option<Voters>,
    },
    /// Point the `rw` endpoint here, in one write, before anything else.
    PublishEndpoint {
        /// The term.
        term: Term,
    },
    /// Let commits wait for these instead; say when they are in force.
    SetVoters {
        /// These.
        voters: Option<Voters>,
    },
    /// Stream from this leader, as one that follows it in this term; rewind or clone first if need be.
    Follow {
        /// This one.
        leader: MemberId,
        /// Of this term.
        term: Term,
    },
    /// The phase changed.
    Became {
        /// To what.
        phase: Phase,
        /// Why, in one sentence.
        because: &'static str,
    },
}

/// What must survive a restart: kept on the volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Memory {
    /// The highest term seen.
    pub term: Option<Term>,
    /// The Lease last seen.
    pub uid: Option<LeaseUid>,
    /// The highest term seen in that Lease itself. Messages may have told of a higher one before it could be seen.
    pub lease_term: Option<Term>,
    /// The members last known.
    pub members: Members,
    /// The highest edition seen in that term of that Lease.
    pub edition: Edition,
}

/// What an agent is doing, for people and for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Follows, or waits.
    Member,
    /// Wants to lead.
    Candidate,
    /// Leads, with tenure.
    Leader,
    /// Leads, and hands over.
    HandingOver,
    /// The Lease is damaged (E14).
    Recovering,
}
