//! Renames what a state holds without changing what it does, so that the exploration can tell that two states are one.
//!
//! Four things grow without end and are only ever compared: moments, numbers of requests, versions of the Lease and its editions. A moment may be
//! moved with the clock, and one that every rule takes for "long ago" may be any such moment; numbers and versions may be
//! any others in the same order. Never: merges two states that would answer some event differently. That is tested by
//! `bellwether-model`, which is all that this is for.

use super::forced::Forced;
use super::lease::Damage;
use super::message::{Consent, LeaseView, Message};
use super::settings::Settings;
use super::state::{Ballot, Claim, Handover, HandoverStep, Leader, Look, Member, Peer, Quest, Role, State};
use super::types::{Deadline, Edition, LeaseVersion, Moment, Promise, RequestId, Span};

/// New names for versions and numbers.
pub struct Names<'a> {
    /// Of the Lease.
    pub version: &'a dyn Fn(LeaseVersion) -> LeaseVersion,
    /// Of this agent's requests.
    pub request: &'a dyn Fn(RequestId) -> RequestId,
    /// Of what the Lease records.
    pub edition: &'a dyn Fn(Edition) -> Edition,
}

/// What becomes of a moment that every rule takes for "long ago".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ages {
    /// It is any such moment.
    Merged,
    /// It is what it is: to compare with.
    Exact,
}

/// Moments are moved back by what has passed, while the clock is said to stand at `now`.
struct Aging {
    by: Span,
    now: Moment,
    ages: Ages,
}

impl Aging {
    fn moved(&self, moment: &mut Moment) {
        *moment = moment.minus(self.by);
    }
    /// A moment of the past whose age counts up to `limit`.
    fn past(&self, moment: &mut Moment, limit: Span) {
        self.moved(moment);
        if self.ages == Ages::Merged {
            *moment = (*moment).max(self.now.minus(limit));
        }
    }
    fn past_if(&self, moment: &mut Option<Moment>, limit: Span) {
        if let Some(moment) = moment {
            self.past(moment, limit);
        }
    }
    /// A moment to wait for: once it has passed, it has.
    fn ahead(&self, moment: &mut Moment) {
        self.past(moment, Span(0));
    }
}

impl Deadline {
    /// The same deadline for a clock that was put back by `by` to `now`.
    pub fn aged(self, by: Span, now: Moment, ages: Ages) -> Self {
        match self {
            Self::At(at) if ages == Ages::Exact => Self::At(at.minus(by)),
            Self::At(at) => Self::At(at.minus(by).max(now)),
            Self::Never => Self::Never,
        }
    }
}

impl State {
    /// `by` has passed, and the clock is put back to `now`, where it stood before. Every part is named, so that a new one can't be
    /// forgotten here: it would stay young for ever.
    pub fn age(&mut self, by: Span, now: Moment, ages: Ages) {
        let aging = Aging { by, now, ages };
        let Self {
            settings,
            me: _,
            incarnation: _,
            memory: _,
            known,
            promise,
            next_request: _,
            void_before: _,
            following: _,
            streaming: _,
            stand_back_until,
            stood_back: _,
            initialised: _,
            fenced: _,
            forced,
            space: _,
            role,
        } = self;
        if let Some(Promise { to: _, term: _, until }) = promise {
            aging.moved(until);
        }
        // A promise that has lapsed binds nobody, and no rule asks to whom it was.
        *promise = promise.filter(|promise| promise.until > now || ages == Ages::Exact);
        if let Some(until) = stand_back_until {
            aging.moved(until);
        }
        *stand_back_until = stand_back_until.filter(|until| *until > now || ages == Ages::Exact);
        if let Some(Forced { force: _, since }) = forced {
            aging.past(since, settings.lease);
        }
        known.age(|moment, limit| aging.past(moment, limit), settings.lease);
        match role {
            Role::Member(member) => age_member(member, &aging, settings),
            Role::Leader(leader) => age_leader(leader, &aging, settings),
        }
    }

    /// Plants a bug in an agent that was sound till now.
    pub fn plant(&mut self, planted: Option<super::Plant>) {
        self.settings.planted = planted;
    }

    /// Every number of a request that it would still recognise.
    pub fn requests(&self) -> Vec<RequestId> {
        let mut all = vec![self.next_request];
        all.extend(self.known.own_writes().map(|write| write.request));
        match &self.role {
            Role::Member(member) => match &member.quest {
                Quest::None | Quest::Waiting { .. } => {}
                Quest::Reading { request, .. } | Quest::Writing { request } => all.push(*request),
                Quest::Polling { ballot, .. } => all.push(ballot.request),
            },
            Role::Leader(leader) => {
                all.extend(leader.rounds.iter().map(|(request, _)| *request));
                if let Look::Reading(request) = leader.look_first {
                    all.push(request);
                }
                if let Some(Handover { step: HandoverStep::Polling { ballot, .. }, .. }) = &leader.handover {
                    all.push(ballot.request);
                }
            }
        }
        all
    }

    /// Every version that it knows of.
    pub fn versions(&self) -> Vec<LeaseVersion> {
        let mut all: Vec<_> = self.known.newest().map(|view| view.version).into_iter().collect();
        if let Some(Damage::Replaced(view)) = self.known.damage() {
            all.push(view.version);
        }
        all.extend(self.known.own_writes().map(|write| write.base));
        all.extend(self.forced.map(|forced| forced.force.version));
        if let Role::Member(Member { quest, .. }) = &self.role
            && let Quest::Reading { claim: Claim::Consent(consent), .. }
            | Quest::Polling { claim: Claim::Consent(consent), .. } = quest
        {
            all.push(consent.version);
        }
        all
    }

    /// Every edition that it knows of.
    pub fn editions(&self) -> Vec<Edition> {
        let mut all = vec![self.memory.edition];
        all.extend(self.known.newest().map(|view| view.content.edition));
        if let Some(Damage::Replaced(view)) = self.known.damage() {
            all.push(view.content.edition);
        }
        all
    }

    /// Gives everything its new name. `void_before` gets that of the first number not before it.
    pub fn rename(&mut self, names: &Names<'_>) {
        let first_valid = self.requests().into_iter().filter(|request| *request >= self.void_before).min();
        self.void_before = first_valid.map_or(self.void_before, names.request);
        self.next_request = (names.request)(self.next_request);
        self.known.rename(names);
        self.memory.edition = (names.edition)(self.memory.edition);
        if let Some(Forced { force, since: _ }) = &mut self.forced {
            force.version = (names.version)(force.version);
        }
        match &mut self.role {
            Role::Member(member) => match &mut member.quest {
                Quest::None | Quest::Waiting { .. } => {}
                Quest::Writing { request } => *request = (names.request)(*request),
                Quest::Reading { request, claim } => {
                    *request = (names.request)(*request);
                    rename_claim(claim, names);
                }
                Quest::Polling { ballot, claim } => {
                    rename_ballot(ballot, names);
                    rename_claim(claim, names);
                }
            },
            Role::Leader(leader) => {
                leader.rounds.iter_mut().for_each(|(request, _)| *request = (names.request)(*request));
                if let Look::Reading(request) = &mut leader.look_first {
                    *request = (names.request)(*request);
                }
                if let Some(Handover { step: HandoverStep::Polling { ballot, .. }, .. }) = &mut leader.handover {
                    rename_ballot(ballot, names);
                }
            }
        }
    }
}

impl LeaseView {
    /// The same view under its new name.
    pub fn rename(&mut self, names: &Names<'_>) {
        self.version = (names.version)(self.version);
        self.content.edition = (names.edition)(self.content.edition);
    }
}

impl Message {
    /// Gives the versions in it, and the numbers if they are this agent's, their new names.
    pub fn rename(&mut self, names: &Names<'_>) {
        match self {
            Self::Ask(ask) => ask.request = (names.request)(ask.request),
            Self::Grant(grant) => grant.request = (names.request)(grant.request),
            Self::Poll(poll) => poll.request = (names.request)(poll.request),
            Self::Answer(answer) => answer.request = (names.request)(answer.request),
            Self::Consent(consent) => consent.version = (names.version)(consent.version),
            Self::Refuse(_) | Self::Knock => {}
        }
    }
}

fn rename_claim(claim: &mut Claim, names: &Names<'_>) {
    if let Claim::Consent(Consent { version, .. }) = claim {
        *version = (names.version)(*version);
    }
}

fn rename_ballot(ballot: &mut Ballot, names: &Names<'_>) {
    ballot.request = (names.request)(ballot.request);
    ballot.answers.iter_mut().for_each(|(_, answer)| answer.request = (names.request)(answer.request));
}

fn age_member(member: &mut Member, aging: &Aging, settings: &Settings) {
    let Member { quest, knocked, deferred: _ } = member;
    aging.past_if(knocked, settings.ask_every);
    match quest {
        Quest::Waiting { until } => aging.ahead(until),
        Quest::Polling { ballot, claim: _ } => age_ballot(ballot, aging),
        Quest::None | Quest::Reading { claim: _, request: _ } | Quest::Writing { request: _ } => {}
    }
}

fn age_ballot(ballot: &mut Ballot, aging: &Aging) {
    let Ballot { request: _, question: _, asked: _, answers: _, until, own: _ } = ballot;
    aging.ahead(until);
}

fn age_leader(leader: &mut Leader, aging: &Aging, settings: &Settings) {
    let silence = settings.cut_off_after.max(settings.remove_after).max(settings.drop_voter_after);
    let Leader {
        term: _,
        until,
        rounds,
        began,
        peers,
        asked,
        wrote,
        renewed,
        look_first: _,
        voters_set: _,
        voters_in_force: _,
        handover,
    } = leader;
    *until = until.aged(aging.by, aging.now, aging.ages);
    rounds.iter_mut().for_each(|(_, sent)| aging.past(sent, settings.promise));
    aging.past(began, silence);
    for Peer { id: _, granted, heard, streamed, streaming: _, knocking: _ } in peers {
        aging.past_if(granted, settings.promise);
        aging.past(heard, silence);
        aging.past_if(streamed, silence);
    }
    aging.past_if(asked, settings.ask_every);
    aging.past(wrote, settings.renew_every);
    aging.past(renewed, settings.lease);
    match handover {
        Some(Handover { why: _, step: HandoverStep::Polling { ballot, end: _, reaping } }) => {
            age_ballot(ballot, aging);
            reaping.iter_mut().for_each(|until| aging.ahead(until));
        }
        Some(Handover { why: _, step: HandoverStep::Settling { target: _, at_least: _, until } }) => aging.ahead(until),
        Some(Handover { why: _, step: HandoverStep::Stopping { until } }) => aging.ahead(until),
        None => {}
    }
}
