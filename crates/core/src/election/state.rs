//! The state of one agent, and what every part of the protocol does with it: number requests, learn terms, look at the Lease,
//! write it.

use super::forced::Forced;
use super::lease::{Known, OwnWrite, Sight};
use super::message::{Consent, Effect, LeaseContent, LeaseView, LeaseWrite, Memory, Message, Phase};
use super::settings::Settings;
use super::types::{
    Deadline, Edition, Incarnation, MemberId, Members, Moment, Position, Promise, RequestId, Tenure, Voters,
};
use super::{Answer, Question};
use crate::fact::Fact;
use crate::instance::space::Space;
use crate::wal::Term;

/// One agent's share of the election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) settings: Settings,
    pub(super) me: MemberId,
    pub(super) incarnation: Incarnation,
    pub(super) memory: Memory,
    pub(super) known: Known,
    pub(super) promise: Option<Promise>,
    pub(super) next_request: RequestId,
    /// Answers to requests before this one give no tenure (E3, E7, E10).
    pub(super) void_before: RequestId,
    pub(super) following: Option<(MemberId, Term)>,
    /// Whom it streams from, as the shell last said.
    pub(super) streaming: Option<MemberId>,
    /// Not before this does it try to lead: others have the first move.
    pub(super) stand_back_until: Option<Moment>,
    /// Whether it stood back already since it last heard a voter; twice would be a vacancy without end.
    pub(super) stood_back: bool,
    pub(super) initialised: bool,
    /// A person wants PostgreSQL here stopped.
    pub(super) fenced: bool,
    /// What a person overrides, if it is for the Lease as it is now.
    pub(super) forced: Option<Forced>,
    /// How much room its own volumes have. It says who goes first among equals, and nothing about who may lead.
    pub(super) space: Space,
    pub(super) role: Role,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Role {
    Member(Member),
    Leader(Leader),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Member {
    pub quest: Quest,
    pub knocked: Option<Moment>,
    /// Whether a better candidate was already left the first move.
    pub deferred: bool,
}

/// How far the attempt to lead has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Quest {
    #[default]
    None,
    /// Not again before this.
    Waiting { until: Moment },
    /// A fresh read, so that no campaign is sent that must fail: one in flight or ambiguous blocks promises (E12).
    Reading { claim: Claim, request: RequestId },
    /// Asking who has how much.
    Polling { claim: Claim, ballot: Ballot },
    /// The compare-and-swap is on its way.
    Writing { request: RequestId },
}

/// By what right it wants to lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Claim {
    /// The leader is gone (E9).
    Vacancy,
    /// The Lease names this very instance (E4).
    OwnName,
    /// The holder consents (E10).
    Consent(Consent),
    /// The Lease is damaged and everybody yields (E14).
    Damage,
    /// There never was a leader, and this instance made the database.
    First,
}

/// A poll and its answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ballot {
    pub request: RequestId,
    pub question: Question,
    pub asked: Members,
    pub answers: Vec<(MemberId, Answer)>,
    pub until: Moment,
    /// The own log's end, once the receiver is cut.
    pub own: Option<Option<Position>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Leader {
    pub term: Term,
    pub until: Deadline,
    /// Rounds of requests whose grants would still count: number and sending.
    pub rounds: Vec<(RequestId, Moment)>,
    pub began: Moment,
    pub peers: Vec<Peer>,
    pub asked: Option<Moment>,
    /// When it last sent a write.
    pub wrote: Moment,
    /// When it sent the last write that is known to be committed.
    pub renewed: Moment,
    /// A conflict or an ambiguity: read before the next write.
    pub look_first: Look,
    pub voters_set: Option<Voters>,
    pub voters_in_force: bool,
    pub handover: Option<Handover>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Look {
    Current,
    Needed,
    Reading(RequestId),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Peer {
    pub id: MemberId,
    /// The sending of the newest request it granted (E8).
    pub granted: Option<Moment>,
    pub heard: Moment,
    /// When it last streamed.
    pub streamed: Option<Moment>,
    pub streaming: bool,
    /// It knocked and is no member yet.
    pub knocking: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Handover {
    pub why: Why,
    pub step: HandoverStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Why {
    Switchover(Option<MemberId>),
    Fence,
    Crash,
    CutOff,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum HandoverStep {
    /// Not for longer than until then: what can't be stopped must not hold the lead.
    Stopping { until: Moment },
    /// Asking the others how far their logs reach, beside the reaping of a PostgreSQL that was drained: not for longer than until then.
    Polling { ballot: Ballot, end: Option<Position>, reaping: Option<Moment> },
    /// Waiting for an own write to end before consent names a version; not for longer than until then.
    Settling { target: MemberId, at_least: Position, until: Moment },
}

/// What a step wants done.
pub(super) type Out = Vec<Effect>;

impl State {
    /// A process that has just started: it has no promise, no tenure, and no view but what its volume remembers (E4, E11).
    pub fn new(settings: Settings, me: MemberId, incarnation: Incarnation, memory: Memory) -> Self {
        Self {
            settings,
            me,
            incarnation,
            memory,
            known: Known::default(),
            promise: None,
            next_request: RequestId(1),
            void_before: RequestId(1),
            following: None,
            streaming: None,
            stand_back_until: None,
            stood_back: false,
            initialised: false,
            fenced: false,
            forced: None,
            space: Space::Ample,
            role: Role::Member(Member::default()),
        }
    }

    /// Other settings, from now on. Those that the proof needs are the same in all: only what was asked for changes.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Its tenure at `now`, if it has any: the only right to accept writes.
    pub fn tenure(&self, now: Moment) -> Option<Tenure> {
        match &self.role {
            Role::Leader(leader) if !leader.until.passed(now) => {
                Some(Tenure { term: leader.term, until: leader.until })
            }
            _ => None,
        }
    }
    /// What it is doing.
    pub fn phase(&self) -> Phase {
        match &self.role {
            Role::Leader(Leader { handover: Some(_), .. }) => Phase::HandingOver,
            Role::Leader(_) => Phase::Leader,
            Role::Member(_) if self.known.damage().is_some() => Phase::Recovering,
            Role::Member(Member { quest: Quest::None | Quest::Waiting { .. }, .. }) => Phase::Member,
            Role::Member(_) => Phase::Candidate,
        }
    }
    /// The highest term it knows of.
    pub fn term(&self) -> Option<Term> {
        self.memory.term
    }
    /// The promise it gave last, lapsed or not.
    pub fn promise(&self) -> Option<Promise> {
        self.promise
    }
    /// What its volume must hold.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }
    /// The newest sound Lease it has seen.
    pub fn lease(&self) -> Option<&LeaseView> {
        self.known.newest()
    }
    /// Who it is.
    pub fn id(&self) -> MemberId {
        self.me
    }

    pub(super) fn number(&mut self) -> RequestId {
        let number = self.next_request;
        self.next_request = RequestId(number.0 + 1);
        number
    }

    /// No answer to anything asked so far gives tenure any more.
    pub(super) fn void_requests(&mut self) {
        self.void_before = self.next_request;
    }

    pub(super) fn promised_at(&self, now: Moment) -> bool {
        self.promise.is_some_and(|promise| promise.until > now)
    }

    /// Everybody but this instance whose promise tenure needs (E5).
    pub(super) fn required(&self) -> Members {
        self.known.members(&self.settings).without(self.me)
    }

    /// Keeps the highest term seen on the volume, before anything is said or done that depends on it (E14).
    pub(super) fn learn_term(&mut self, term: Option<Term>, out: &mut Out) {
        if term > self.memory.term {
            self.memory.term = term;
            out.push(Effect::Remember(self.memory.clone()));
        }
    }

    pub(super) fn see(&mut self, sight: Fact<LeaseView>, now: Moment, out: &mut Out) -> Sight {
        let sight = match sight {
            Fact::Unknown => Sight::Old,
            Fact::Absent => self.known.see_nothing(),
            Fact::Known(view) => self.known.see(view, now, &self.memory, &self.settings),
        };
        if sight == Sight::Newer
            && let Some(view) = self.known.newest()
        {
            let memory = Memory {
                term: view.content.term.max(self.memory.term),
                uid: Some(view.uid),
                lease_term: view.content.term,
                members: view.content.members.clone(),
                edition: view.content.edition,
            };
            if memory != self.memory {
                self.memory = memory;
                out.push(Effect::Remember(self.memory.clone()));
            }
        }
        sight
    }

    /// Sends a write on `view`. It counts for [`State::required`] from here on (E5).
    pub(super) fn write(&mut self, view: &LeaseView, content: LeaseContent, now: Moment, out: &mut Out) -> RequestId {
        self.write_by(view, content, None, now, out)
    }

    /// The same, where a person's word stood in for that of those who were not heard (E16).
    pub(super) fn write_by(
        &mut self,
        view: &LeaseView,
        content: LeaseContent,
        forced: Option<Members>,
        now: Moment,
        out: &mut Out,
    ) -> RequestId {
        let request = self.number();
        let content = LeaseContent { edition: self.edition_of(&content, &view.content), ..content };
        let members = content.members.clone();
        self.known.send(OwnWrite { request, uid: view.uid, base: view.version, members, sent: now, pending: true });
        let write = LeaseWrite { uid: view.uid, base: view.version, content, forced };
        out.push(Effect::WriteLease { request, write });
        request
    }

    /// A renewal is no new edition. Whatever else is above all that is known, also on a Lease that was put back.
    pub(super) fn edition_of(&self, content: &LeaseContent, base: &LeaseContent) -> Edition {
        let renewed = LeaseContent { duration: content.duration, edition: content.edition, ..base.clone() };
        let newest = self.known.newest().map_or(base.edition, |view| view.content.edition.max(base.edition));
        if renewed == *content { base.edition } else { Edition(newest.0 + 1) }
    }

    pub(super) fn poll(&mut self, question: Question, asked: Members, now: Moment, out: &mut Out) -> Ballot {
        let request = self.number();
        let poll = super::Poll { request, incarnation: self.incarnation, question, term: self.memory.term };
        for to in asked.iter() {
            out.push(Effect::Send { to, message: Message::Poll(poll) });
        }
        let until = now.plus(self.settings.poll);
        Ballot { request, question, asked, answers: vec![], until, own: None }
    }

    /// The same leader in a later term is another: others may have led meanwhile, and its log is to be compared with again.
    pub(super) fn follow(&mut self, leader: MemberId, term: Term, out: &mut Out) {
        let same = self.following.is_some_and(|(followed, in_term)| {
            followed == leader && (in_term == term || planted!(self.settings, SameLeaderNotCompared))
        });
        if !same {
            self.following = Some((leader, term));
            self.streaming = None;
            out.push(Effect::Follow { leader, term });
        }
    }

    pub(super) fn become_member(&mut self, because: &'static str, out: &mut Out) {
        self.role = Role::Member(Member::default());
        self.void_requests();
        out.push(Effect::Became { phase: Phase::Member, because });
    }
}

impl Ballot {
    /// Takes an answer to this very poll.
    pub fn take(&mut self, from: MemberId, answer: Answer) {
        let fresh = answer.request == self.request && !self.answers.iter().any(|(who, _)| *who == from);
        if fresh && self.asked.contains(from) {
            self.answers.push((from, answer));
            self.answers.sort_unstable();
        }
    }
    pub fn complete(&self) -> bool {
        self.answers.len() == self.asked.len()
    }
    pub fn heard(&self) -> Members {
        self.answers.iter().map(|(who, _)| *who).collect()
    }
    /// Those who answered and have a usable log. One whose copy is being made anew holds nothing that it acknowledged before.
    pub fn with_copy(&self) -> Members {
        self.answers.iter().filter(|(_, answer)| answer.position.is_some()).map(|(who, _)| *who).collect()
    }
    /// The longest log; among equals the one with the most room.
    pub fn best(&self) -> Option<(Position, Space, MemberId)> {
        self.answers.iter().filter_map(|(who, answer)| Some((answer.position?, answer.space, *who))).max()
    }
    /// The same of those that could be written to.
    pub fn best_with_room(&self) -> Option<(Position, MemberId)> {
        let room = self.answers.iter().filter(|(_, answer)| answer.space > Space::Full);
        let best = room.filter_map(|(who, answer)| Some((answer.position?, answer.space, *who))).max();
        best.map(|(position, _, who)| (position, who))
    }
}

/// What the Lease says after a change of leader: the old rules of replication, with the name of the one that leaves, still count
/// beside the new one, until a quorum of the new voters holds what was acknowledged under the old.
pub(super) fn succession(
    old: &LeaseContent,
    me: MemberId,
    term: Term,
    voters: Option<Voters>,
    settings: &Settings,
) -> LeaseContent {
    LeaseContent {
        holder: Some(me),
        term: Some(term),
        members: old.members.with(me),
        sync: old.sync.left_by(old.holder).joined_by(voters),
        duration: settings.lease,
        edition: old.edition,
    }
}
