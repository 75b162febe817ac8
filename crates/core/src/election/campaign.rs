//! Decides whether and when this instance takes the Lease: a fresh read, a poll of the logs, one compare-and-swap.
//!
//! From: the Lease and since when it is unchanged, own promises, the answers of the others. Never: campaigns while not a member, while a
//! promise holds, or before the Lease was unchanged for L (E9); wins without everything that was acknowledged (INV-2); has
//! tenure by anything but a committed write of its own (E4).

use super::lease::OwnWrite;
use super::message::{Answer, Effect, LeaseContent, Message, Phase, Question, Whom};
use super::settings::Durability;
use super::state::{Ballot, Claim, Leader, Look, Member, Out, Quest, Role, State, succession};
use super::types::{Deadline, MemberId, Members, Moment, Position, RequestId, Sync, Voters};
use super::{forced, leader, recovery, voters};
use crate::wal::Term;

/// What a member does as time passes.
pub(super) fn tick(state: &mut State, now: Moment, out: &mut Out) {
    let Role::Member(member) = &state.role else { return };
    match &member.quest {
        Quest::Waiting { until } if *until <= now => set_quest(state, Quest::None),
        Quest::Polling { ballot, claim: Claim::Consent(_) } if ballot.until <= now => set_quest(state, Quest::None),
        Quest::Polling { claim, ballot } if ballot.own.is_some() && (ballot.complete() || ballot.until <= now) => {
            let (claim, ballot) = (*claim, ballot.clone());
            decide(state, claim, &ballot, now, out);
        }
        _ => {}
    }
    let Role::Member(member) = &state.role else { return };
    if member.quest != Quest::None {
        return;
    }
    if let Some(claim) = claim(state, now) {
        let request = state.number();
        set_quest(state, Quest::Reading { claim, request });
        out.push(Effect::ReadLease { request });
    } else {
        knock(state, now, out);
    }
}

fn set_quest(state: &mut State, quest: Quest) {
    if let Role::Member(member) = &mut state.role {
        member.quest = quest;
    }
}

/// By what right this instance might lead now.
fn claim(state: &State, now: Moment) -> Option<Claim> {
    let stands_back = state.fenced || state.stand_back_until.is_some_and(|until| until > now);
    if state.known.pending() || stands_back {
        return None;
    }
    if state.known.damage().is_some() {
        return (!state.promised_at(now)).then_some(Claim::Damage);
    }
    let Some(view) = state.known.sound() else {
        // Nothing was seen since the start: look.
        return Some(Claim::OwnName);
    };
    let current = view.content.term == state.memory.term || planted!(state.settings, DamageIgnored);
    match view.content.holder {
        None if view.content.term.is_none() => state.initialised.then_some(Claim::First),
        None => None,
        Some(holder) if holder == state.me => current.then_some(Claim::OwnName),
        Some(_) => vacant(state, now).then_some(Claim::Vacancy),
    }
}

/// E9: a member at this version, own promise lapsed, and this version first seen at least L ago on the local clock.
fn vacant(state: &State, now: Moment) -> bool {
    let Some((view, seen)) = state.known.sound().zip(state.known.first_seen()) else { return false };
    let lease = if planted!(state.settings, LeaseShorterThanPromise) {
        state.settings.ask_every
    } else {
        view.content.duration
    };
    let member = view.content.members.contains(state.me) || planted!(state.settings, CampaignWhileNoMember);
    let lapsed = !state.promised_at(now) || planted!(state.settings, CampaignDespitePromise);
    let unchanged = now.since(seen) >= lease || planted!(state.settings, CampaignWithoutWait);
    let current = view.content.term == state.memory.term || planted!(state.settings, DamageIgnored);
    member && lapsed && unchanged && current
}

/// The fresh read came back. It may have changed everything: the claim is judged anew.
pub(super) fn read_back(state: &mut State, was: Claim, failed: bool, now: Moment, out: &mut Out) {
    set_quest(state, Quest::None);
    if failed {
        return set_quest(state, Quest::Waiting { until: now.plus(state.settings.defer) });
    }
    if let Claim::Consent(consent) = was {
        return super::handover::take(state, consent, now, out);
    }
    let Some(claim) = claim(state, now) else { return };
    if std::mem::discriminant(&claim) != std::mem::discriminant(&was) {
        return;
    }
    match claim {
        Claim::First => take_own(state, now, out),
        Claim::OwnName | Claim::Vacancy => {
            let others = state.known.sound().map(|view| view.content.members.without(state.me)).unwrap_or_default();
            canvass(state, claim, Question::Position, others, now, out);
        }
        Claim::Damage => recovery::canvass(state, now, out),
        Claim::Consent(_) => {}
    }
}

/// The Lease names this instance. So it may do if it was put back to an earlier state behind the back of one that was away (E14): only
/// when everybody says that they know of no higher term, or when no leader has objected for L by a write, is it taken at its word.
fn own_name(state: &mut State, ballot: &Ballot, now: Moment, out: &mut Out) {
    let lease = state.known.sound().map(|view| view.content.duration);
    let unchanged = state.known.first_seen().zip(lease).is_some_and(|(seen, lease)| now.since(seen) >= lease);
    let still = claim(state, now) == Some(Claim::OwnName);
    if still && (ballot.complete() || unchanged || planted!(state.settings, OwnNameTrusted)) {
        take_own(state, now, out);
    } else {
        set_quest(state, Quest::Waiting { until: now.plus(state.settings.defer) });
    }
}

/// The Lease names this instance, or nobody yet: a write of its own comes before any tenure (E4).
fn take_own(state: &mut State, now: Moment, out: &mut Out) {
    let Some(view) = state.known.sound().cloned() else { return };
    let content = if view.content.holder.is_some() {
        LeaseContent { duration: state.settings.lease, ..view.content.clone() }
    } else {
        succession(&view.content, state.me, Term(1), None, &state.settings)
    };
    let request = state.write(&view, content, now, out);
    set_quest(state, Quest::Writing { request });
}

/// Asks the others how far their logs reach, after cutting the own receiver: what was counted must not grow elsewhere.
pub(super) fn canvass(state: &mut State, claim: Claim, question: Question, asked: Members, now: Moment, out: &mut Out) {
    state.following = None;
    state.streaming = None;
    let because = match claim {
        Claim::OwnName => "the Lease names it: it asks the others whether they know of a later term",
        Claim::Consent(_) => "the holder hands over: it looks how far its own log reaches",
        Claim::Damage => "the Lease is damaged and its promise has lapsed: it asks everybody to yield",
        Claim::Vacancy | Claim::First => "its promise has lapsed and the Lease is old: it polls the others",
    };
    out.push(Effect::Became { phase: Phase::Candidate, because });
    out.push(Effect::CutReceiver);
    let ballot = state.poll(question, asked, now, out);
    set_quest(state, Quest::Polling { claim, ballot });
}

/// The own receiver is cut.
pub(super) fn receiver_cut(state: &mut State, position: Option<Position>) {
    if let Role::Member(Member { quest: Quest::Polling { ballot, .. }, .. }) = &mut state.role {
        ballot.own = Some(position);
    }
}

/// An answer to a poll of a candidate, or of a holder that hands over.
pub(super) fn answered(state: &mut State, from: MemberId, answer: Answer, out: &mut Out) {
    if answer.incarnation != state.incarnation {
        return;
    }
    if answer.term > state.memory.term {
        // The Lease that the campaign would be based on is older than it looked.
        leader::outranked(state, answer.term, out);
        return set_quest(state, Quest::None);
    }
    match &mut state.role {
        Role::Member(Member { quest: Quest::Polling { ballot, .. }, .. }) => ballot.take(from, answer),
        Role::Leader(leader) => super::handover::answered(leader, from, answer),
        Role::Member(_) => {}
    }
}

/// The answers are in, or the time for them is over.
fn decide(state: &mut State, claim: Claim, ballot: &Ballot, now: Moment, out: &mut Out) {
    let again = Quest::Waiting { until: now.plus(state.settings.defer) };
    // A member may have lost its copy since it became one (a rewind that was interrupted): there is nothing to lead with.
    if ballot.own.flatten().is_none() {
        return set_quest(state, again);
    }
    match claim {
        Claim::Vacancy if vacant(state, now) && !state.known.pending() => {}
        Claim::OwnName => return own_name(state, ballot, now, out),
        Claim::Damage => return recovery::decide(state, ballot, now, out),
        Claim::Consent(consent) => return super::handover::write(state, consent, ballot, now, out),
        _ => return set_quest(state, Quest::None),
    }
    let Some(view) = state.known.sound().cloned() else { return };
    // E16: a person's word stands in for those who would know. Where one instance was named, also for those who have more.
    let forced = forced::to_me(state);
    let (certain, better) = (enough(state, ballot, &view.content), better_elsewhere(state, ballot, &view.content));
    if !certain && forced.is_none() {
        return set_quest(state, again);
    }
    if better && forced != Some(Whom::Me) {
        let Role::Member(member) = &mut state.role else { return };
        member.deferred = true;
        member.quest = again;
        return;
    }
    let Some(term) = view.content.term else { return };
    let voters = first_voters(state, &view.content.members, &ballot.with_copy());
    let content = succession(&view.content, state.me, Term(term.0 + 1), voters, &state.settings);
    let by_force = (!certain || better).then(|| forced::unheard(ballot));
    let request = state.write_by(&view, content, by_force, now, out);
    set_quest(state, Quest::Writing { request });
}

/// Whether one of those heard, itself included, is certain to hold every acknowledged commit.
fn enough(state: &State, ballot: &Ballot, lease: &LeaseContent) -> bool {
    if planted!(state.settings, QuorumIgnored) {
        return true;
    }
    let heard = vouching(state, ballot).with(state.me);
    if planted!(state.settings, JointStepIgnored) {
        return lease.sync.newest().is_none_or(|voters| voters.covered_by(&heard));
    }
    certain(state, &lease.sync, &heard)
}

/// Whether those `heard`, each with an intact copy, are so many that one of them is certain to hold whatever was acknowledged: by
/// every rule, so in a joint step by the old and by the new, but for those that a former leader among them answers for.
pub(super) fn certain(state: &State, sync: &Sync, heard: &Members) -> bool {
    let open = sync.left_open(heard);
    if planted!(state.settings, FormerLeaderForAll) && open.len() < sync.rules().count() {
        return true;
    }
    open.iter().all(|rule| match &rule.voters {
        Some(voters) => voters.covered_by(heard),
        // Under quorum, what a leader acknowledged before it had any voter is on its own volume and nowhere else for certain.
        None => state.settings.durability != Durability::Quorum,
    })
}

/// Whose word counts for what was acknowledged: a voter that has given its copy up, to clone it anew, has forgotten what it
/// acknowledged, and must not be counted as one that would know.
pub(super) fn vouching(state: &State, ballot: &Ballot) -> Members {
    if planted!(state.settings, EmptyCopyCounted) { ballot.heard() } else { ballot.with_copy() }
}

/// Whether another must go first. One with a longer log, always where commits wait for voters, because it may hold what was
/// acknowledged; otherwise it gets the first move, once. Between equals the one with more room moves first, then the higher identity,
/// once.
fn better_elsewhere(state: &State, ballot: &Ballot, lease: &LeaseContent) -> bool {
    let Role::Member(member) = &state.role else { return false };
    let Some((best, space, who)) = ballot.best() else { return false };
    let own = ballot.own.flatten();
    let waits = lease.sync.newest().is_some() || lease.sync.is_joint();
    if Some(best) > own && !planted!(state.settings, ShorterLogWins) {
        return waits || !member.deferred;
    }
    Some(best) == own && (space, who) > (state.space, state.me) && !member.deferred
}

/// Whom commits of the new term wait for: those who answered with a copy; were there none, everybody, because under `quorum` nothing may be
/// acknowledged alone.
pub(super) fn first_voters(state: &State, members: &Members, heard: &Members) -> Option<Voters> {
    let others = members.without(state.me);
    let live: Members = others.iter().filter(|id| heard.contains(*id)).collect();
    let needed = voters::needed(others.len());
    match state.settings.durability {
        Durability::Async => None,
        Durability::Quorum if live.is_empty() => Voters::new(needed, others),
        Durability::Quorum | Durability::Preferred => Voters::new(needed, live),
    }
}

/// The own write is committed: this instance leads, from its sending (E2).
pub(super) fn won(state: &mut State, sent: &OwnWrite, now: Moment, out: &mut Out) {
    let Role::Member(member) = &state.role else { return };
    let asked_for: Option<RequestId> = match member.quest {
        Quest::Writing { request } => Some(request),
        _ => None,
    };
    if asked_for != Some(sent.request) && !planted!(state.settings, OksAfterSteppingDown) {
        return;
    }
    if state.fenced {
        // It was sent before the wish came. The Lease names this instance now, and another takes it after L.
        return set_quest(state, Quest::None);
    }
    let Some(view) = state.known.sound() else { return };
    let (term, lease, holder) = (view.content.term, view.content.duration, view.content.holder);
    let (Some(term), true) = (term, holder == Some(state.me)) else { return };
    let margin = if planted!(state.settings, NoDriftMargin) { super::Span(0) } else { state.settings.drift };
    let from = if planted!(state.settings, RenewalFromResponse) { now } else { sent.sent };
    let until = from.plus(lease).minus(margin);
    if until <= now.plus(state.settings.stop_budget) {
        // The answer took longer than the tenure it gives: the next write counts from later.
        return set_quest(state, Quest::None);
    }
    lead(state, term, from, until, out);
}

pub(super) fn lead(state: &mut State, term: Term, wrote: Moment, until: Moment, out: &mut Out) {
    state.void_requests();
    state.following = None;
    state.streaming = None;
    state.stand_back_until = None;
    let voters = state.known.newest().and_then(|view| view.content.sync.newest().cloned());
    state.role = Role::Leader(Leader {
        term,
        until: Deadline::At(until),
        rounds: vec![],
        began: wrote,
        peers: vec![],
        asked: None,
        wrote,
        renewed: wrote,
        look_first: Look::Current,
        voters_set: voters.clone(),
        voters_in_force: false,
        handover: None,
    });
    out.push(Effect::Became { phase: Phase::Leader, because: "its own write of the Lease is committed" });
    leader::bound_tenure(state, wrote, out);
    if let Role::Leader(leader) = &state.role {
        out.push(Effect::Guard { until: leader.until });
        out.push(Effect::Lead { term, voters });
        out.push(Effect::PublishEndpoint { term });
    }
}

/// An instance with a copy that is no member asks to be admitted (E15), as often as a leader asks for promises.
fn knock(state: &mut State, now: Moment, out: &mut Out) {
    let Some(view) = state.known.sound() else { return };
    let Some(holder) = view.content.holder else { return };
    if view.content.members.contains(state.me) || holder == state.me || state.fenced {
        return;
    }
    let Role::Member(member) = &mut state.role else { return };
    if member.knocked.is_none_or(|knocked| now.since(knocked) >= state.settings.ask_every) {
        member.knocked = Some(now);
        out.push(Effect::Send { to: holder, message: Message::Knock });
    }
}
