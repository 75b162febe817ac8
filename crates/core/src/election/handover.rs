//! Decides how a leader gives the lead away while it lives: a switchover, a fence, a crash of PostgreSQL, or no voter within reach.
//!
//! From: what is left of the own log, and how far the others' reach. Never: consents before every process of PostgreSQL is gone, keeps any
//! tenure beside a consent, writes another's name (E10), or chooses one that may lack an acknowledged commit.

use super::message::{Answer, Consent, Effect, LeaseView, Message, Phase, Question};
use super::settings::Durability;
use super::state::{Ballot, Claim, Handover, HandoverStep, Leader, Look, Out, Quest, Role, State, Why, succession};
use super::types::{MemberId, Members, Moment, Position};
use super::{campaign, fence};
use crate::instance::space::Space;
use crate::wal::Term;

/// PostgreSQL died by itself. Its backends may live on: everything is stopped before anything else is decided.
pub(super) fn crashed(state: &mut State, now: Moment, out: &mut Out) {
    begin(state, Why::Crash, "PostgreSQL crashed: it is reaped, and a standby with everything takes over", now, out);
}

/// A person or the operator wants another primary.
pub(super) fn switchover(state: &mut State, target: Option<MemberId>, now: Moment, out: &mut Out) {
    let eligible = |id| state.required().contains(id);
    if target.is_none_or(eligible) && !state.required().is_empty() {
        begin(state, Why::Switchover(target), "a switchover was asked for: stop first, then choose", now, out);
    }
}

fn begin(state: &mut State, why: Why, because: &'static str, now: Moment, out: &mut Out) {
    let Role::Leader(leader) = &mut state.role else { return };
    if leader.handover.is_some() {
        return;
    }
    let within = match why {
        Why::Switchover(_) | Why::Fence => state.settings.shut_down_within,
        Why::Crash | Why::CutOff => state.settings.stop_within,
    };
    leader.handover = Some(Handover { why, step: HandoverStep::Stopping { until: now.plus(within) } });
    out.push(Effect::Became { phase: Phase::HandingOver, because });
    if planted!(state.settings, HandoverBeforeStop) {
        return stopped(state, None, now, out);
    }
    out.push(Effect::StopPostgres);
}

/// Nobody can write any more, and standbys have everything: they are asked while the last processes are reaped. What they answer is
/// true whatever becomes of those; the consent waits for both.
pub(super) fn drained(state: &mut State, end: Option<Position>, now: Moment, out: &mut Out) {
    let Role::Leader(Leader { handover: Some(handover), .. }) = &state.role else { return };
    let HandoverStep::Stopping { until } = handover.step else { return };
    let others = others(state);
    if matches!(handover.why, Why::Switchover(_)) && !others.is_empty() {
        poll(state, others, end, Some(until), now, out);
    }
}

fn others(state: &State) -> Members {
    state.known.sound().map(|view| view.content.members.without(state.me)).unwrap_or_default()
}

fn poll(
    state: &mut State,
    others: Members,
    end: Option<Position>,
    reaping: Option<Moment>,
    now: Moment,
    out: &mut Out,
) {
    let until = now.plus(state.settings.last_poll);
    let ballot = Ballot { until, ..state.poll(Question::Position, others, now, out) };
    set_step(state, HandoverStep::Polling { ballot, end, reaping });
}

/// Every process of PostgreSQL is gone.
pub(super) fn stopped(state: &mut State, end: Option<Position>, now: Moment, out: &mut Out) {
    let last_poll = state.settings.last_poll;
    let Role::Leader(Leader { handover: Some(handover), .. }) = &mut state.role else { return };
    match &mut handover.step {
        HandoverStep::Stopping { .. } => {}
        HandoverStep::Polling { reaping: reaping @ Some(_), ballot, .. } => {
            *reaping = None;
            ballot.until = now.plus(last_poll);
            return;
        }
        HandoverStep::Polling { .. } | HandoverStep::Settling { .. } => return,
    }
    let why = handover.why;
    let others = others(state);
    if why == Why::CutOff {
        state.stood_back = true;
        state.stand_back_until = Some(now.plus(state.settings.stand_back));
        return state.become_member(
            "no voter within reach, so no commit of its could be acknowledged: the others may try",
            out,
        );
    }
    if others.is_empty() {
        return resume(state, "nobody could take over", out);
    }
    poll(state, others, end, None, now, out);
}

fn set_step(state: &mut State, step: HandoverStep) {
    if let Role::Leader(Leader { handover: Some(handover), .. }) = &mut state.role {
        handover.step = step;
    }
}

/// Tenure was never given up, so PostgreSQL starts where it was; unless a person wants it stopped.
fn resume(state: &mut State, because: &'static str, out: &mut Out) {
    if state.fenced {
        return fence::release(state, out);
    }
    let Role::Leader(leader) = &mut state.role else { return };
    leader.handover = None;
    out.push(Effect::Became { phase: Phase::Leader, because });
    out.push(Effect::Lead { term: leader.term, voters: leader.voters_set.clone() });
}

pub(super) fn answered(leader: &mut Leader, from: MemberId, answer: Answer) {
    if let Some(Handover { step: HandoverStep::Polling { ballot, .. }, .. }) = &mut leader.handover {
        ballot.take(from, answer);
    }
}

pub(super) fn tick(state: &mut State, now: Moment, out: &mut Out) {
    let Role::Leader(leader) = &state.role else { return };
    match &leader.handover {
        None if state.fenced => {
            begin(state, Why::Fence, "it is fenced: stop first, then another leads if one has everything", now, out);
        }
        None if cut_off(state, leader, now) => {
            begin(
                state,
                Why::CutOff,
                "no voter was heard for long: under quorum nothing can be acknowledged here",
                now,
                out,
            );
        }
        None => {}
        Some(Handover {
            step: HandoverStep::Stopping { until } | HandoverStep::Polling { reaping: Some(until), .. },
            ..
        }) if *until <= now => {
            // No consent: it may be writable as long as tenure lasts. The others' promises outlast that.
            state.stand_back_until = Some(now.plus(state.settings.stand_back));
            state.become_member("PostgreSQL can't be stopped: tenure lapses, and the others may try", out);
        }
        Some(Handover {
            step: HandoverStep::Stopping { .. } | HandoverStep::Polling { reaping: Some(_), .. }, ..
        }) => {}
        Some(Handover { why, step: HandoverStep::Polling { ballot, end, reaping: None } })
            if ballot.complete() || ballot.until <= now =>
        {
            match choose(state, *why, ballot, *end) {
                Some((at_least, target)) => {
                    let until = now.plus(state.settings.resume_after);
                    set_step(state, HandoverStep::Settling { target, at_least, until });
                }
                None => resume(
                    state,
                    "no standby is known to have everything, and room: PostgreSQL starts again in place",
                    out,
                ),
            }
            tick(state, now, out);
        }
        Some(Handover { step: HandoverStep::Polling { .. }, .. }) => {}
        Some(Handover { step: HandoverStep::Settling { target, at_least, until }, .. }) => {
            let (target, at_least, until) = (*target, *at_least, *until);
            // A write on its way would take the version that the consent names.
            if !state.known.unresolved() && leader.look_first == Look::Current {
                match state.known.sound().cloned() {
                    Some(view) => consent(state, &view, target, at_least, now, out),
                    None => resume(state, "the Lease is damaged: nothing can be handed over", out),
                }
            } else if until <= now {
                // Nobody may ever learn what became of it: an outage without end, for a write that tenure does not need.
                resume(state, "an own write stays without an answer: PostgreSQL starts again in place", out);
            }
        }
    }
}

/// Whether nothing can be acknowledged here while the others could go on (then, and only once, they get the chance).
fn cut_off(state: &State, leader: &Leader, now: Moment) -> bool {
    let Some(view) = state.known.sound() else { return false };
    let Some(voters) = view.content.sync.newest() else { return false };
    let silent = |id| {
        let heard = leader.peer(id).map_or(leader.began, |peer| peer.heard);
        now.since(heard) >= state.settings.cut_off_after
    };
    // Somebody who streams can be made a voter instead of one that is gone: that is for `voters`, and needs no other leader.
    let streams = |peer: &super::state::Peer| peer.streaming && now.since(peer.heard) < state.settings.cut_off_after;
    state.settings.durability == Durability::Quorum
        && !state.stood_back
        && !leader.peers.iter().any(streams)
        && voters.members().iter().all(silent)
        && campaign::certain(state, &view.content.sync, &view.content.members.without(state.me))
}

/// Who takes over: one whose log reaches the end of ours, or, where commits wait for voters, the best of so many that it is certain
/// to have everything acknowledged. Nobody whose volume is full: it could not write either, and starting again here is as good.
fn choose(state: &State, why: Why, ballot: &Ballot, end: Option<Position>) -> Option<(Position, MemberId)> {
    let sync = &state.known.sound()?.content.sync;
    let certain = sync.newest().is_some() && campaign::certain(state, sync, &campaign::vouching(state, ballot));
    // Of all, also of those that are full: whoever takes over lacks nothing that one of them may hold.
    let (longest, ..) = ballot.best()?;
    let fit = |(position, _): &(Position, MemberId)| {
        if planted!(state.settings, HandoverToAnybody) {
            return true;
        }
        if planted!(state.settings, HandoverBeforeStop) {
            return true;
        }
        end.is_some_and(|end| *position >= end) || certain && *position == longest
    };
    let wanted = match why {
        Why::Switchover(Some(target)) => {
            let (_, answer) = ballot.answers.iter().find(|(who, _)| *who == target)?;
            let full = answer.space == Space::Full;
            (answer.position.filter(|_| !full)?, target)
        }
        Why::Switchover(None) | Why::Crash | Why::CutOff => ballot.best_with_room()?,
        // It does not start again: one that is full is better than nobody.
        Why::Fence => ballot.best_with_room().filter(fit).or_else(|| ballot.best().map(|(end, _, who)| (end, who)))?,
    };
    Some(wanted).filter(fit)
}

/// Tenure and every earlier request are void before the consent leaves (E10).
fn consent(state: &mut State, view: &LeaseView, target: MemberId, at_least: Position, now: Moment, out: &mut Out) {
    let Role::Leader(leader) = &state.role else { return };
    let consent = Consent { uid: view.uid, version: view.version, term: leader.term, at_least };
    if planted!(state.settings, TenureKeptAfterHandover) {
        resume(state, "planted: tenure is kept after a hand-over", out);
        return out.push(Effect::Send { to: target, message: Message::Consent(consent) });
    }
    state.stand_back_until = Some(now.plus(state.settings.resume_after));
    state.become_member("it handed over; should the target fail, it resumes by a write of its own", out);
    out.push(Effect::Send { to: target, message: Message::Consent(consent) });
}

/// The holder consents. This skips the waits of E9, not the read, and not the compare-and-swap.
pub(super) fn consented(state: &mut State, consent: Consent, out: &mut Out) {
    let outdated = Some(consent.term) < state.memory.term
        || state.known.newest().is_some_and(|view| view.version > consent.version)
        || state.known.unresolved();
    let Role::Member(_) = &state.role else { return };
    if outdated || state.fenced {
        return;
    }
    state.learn_term(Some(consent.term), out);
    let request = state.number();
    let Role::Member(member) = &mut state.role else { return };
    member.quest = Quest::Reading { claim: Claim::Consent(consent), request };
    out.push(Effect::ReadLease { request });
}

/// The read after a consent: that very version, or nothing.
pub(super) fn take(state: &mut State, consent: Consent, now: Moment, out: &mut Out) {
    let fits = state.known.sound().is_some_and(|view| {
        view.uid == consent.uid && view.version == consent.version && view.content.members.contains(state.me)
    });
    if fits {
        campaign::canvass(state, Claim::Consent(consent), Question::Position, Default::default(), now, out);
    }
}

/// The own log is known to reach what the old holder saw: take the Lease.
pub(super) fn write(state: &mut State, consent: Consent, ballot: &Ballot, now: Moment, out: &mut Out) {
    let Role::Member(member) = &mut state.role else { return };
    member.quest = Quest::None;
    let reaches = ballot.own.flatten() >= Some(consent.at_least);
    let Some(view) = state.known.sound().filter(|view| view.version == consent.version).cloned() else { return };
    if !reaches || state.known.pending() {
        return;
    }
    let voters = campaign::first_voters(state, &view.content.members, &view.content.members);
    let content = succession(&view.content, state.me, Term(consent.term.0 + 1), voters, &state.settings);
    let request = state.write(&view, content, now, out);
    if let Role::Member(member) = &mut state.role {
        member.quest = Quest::Writing { request };
    }
}
