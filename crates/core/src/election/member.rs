//! Decides what a member promises, and whom it follows.
//!
//! From: requests, polls, the Lease. Never: promises to a lower term, while an own campaign may still be committed, or while it leads
//! (E12); answers a poll while a promise of its own keeps another in office.

use super::message::{Ask, Effect, Grant, Message, Poll, Question};
use super::state::{Out, Quest, Role, State};
use super::types::{MemberId, Moment, Promise};
use super::{Answer, leader};

/// A newer Lease: whoever it names leads, and nothing begun on an older version goes on (E9).
pub(super) fn newer_lease(state: &mut State, now: Moment, out: &mut Out) {
    let Some(view) = state.known.newest() else { return };
    let holder = view.content.holder;
    let lease = view.content.duration;
    let term = view.content.term;
    let Role::Member(member) = &mut state.role else { return };
    if matches!(member.quest, Quest::Polling { .. } | Quest::Waiting { .. }) {
        member.quest = Quest::None;
    }
    member.deferred = false;
    if planted!(state.settings, NameIsTenure) && holder == Some(state.me) {
        if let Some(term) = term {
            super::campaign::lead(state, term, now, now.plus(lease).minus(state.settings.drift), out);
        }
        return;
    }
    if let (Some(holder), Some(term)) = (holder, term)
        && holder != state.me
        && Some(term) == state.memory.term
    {
        state.follow(holder, term, out);
    }
}

/// *Promise not to campaign.*
pub(super) fn asked(state: &mut State, from: MemberId, ask: Ask, now: Moment, out: &mut Out) {
    if Some(ask.term) < state.memory.term && !planted!(state.settings, LowerTermPromised) {
        return refuse(state, from, out);
    }
    leader::outranked(state, Some(ask.term), out);
    if matches!(state.role, Role::Leader(_)) && !planted!(state.settings, LeaderGrants) {
        return refuse(state, from, out);
    }
    let named =
        state.known.newest().filter(|view| view.content.term == Some(ask.term)).and_then(|view| view.content.holder);
    if named.is_some_and(|holder| holder != from) {
        return refuse(state, from, out);
    }
    // What is on its way may be committed at any time, and would break the promise as it is given.
    if state.known.unresolved() && !planted!(state.settings, PromiseWhileCampaigning) {
        return refuse(state, from, out);
    }
    promise(state, from, ask, now);
    state.follow(from, ask.term, out);
    let grant = Grant {
        request: ask.request,
        term: ask.term,
        incarnation: ask.incarnation,
        streaming: state.streaming == Some(from),
    };
    out.push(Effect::Send { to: from, message: Message::Grant(grant) });
}

/// Counted from receipt to D (E8); an earlier promise that reaches further still holds.
fn promise(state: &mut State, to: MemberId, ask: Ask, now: Moment) {
    let until = now.plus(ask.promise);
    let until = state.promise.map_or(until, |earlier| earlier.until.max(until));
    state.promise = Some(Promise { to, term: ask.term, until });
    if let Role::Member(member) = &mut state.role {
        member.deferred = false;
        if !matches!(member.quest, Quest::Writing { .. }) {
            member.quest = Quest::None;
        }
    }
}

fn refuse(state: &State, to: MemberId, out: &mut Out) {
    out.push(Effect::Send { to, message: Message::Refuse(state.memory.term) });
}

/// *How far does your log reach?* Whoever answers has cut its receiver first: a primary that is not yet stopped gets no more
/// acknowledgements from it.
pub(super) fn polled(state: &mut State, from: MemberId, poll: Poll, now: Moment, out: &mut Out) {
    let promised_another = state.promise.is_some_and(|promise| promise.until > now && promise.to != from);
    let mut refused = matches!(state.role, Role::Leader(_)) || promised_another;
    if poll.question == Question::Yield {
        refused |= state.known.unresolved() || poll.term < state.memory.term;
    }
    if refused {
        return refuse(state, from, out);
    }
    if poll.question == Question::Yield {
        // To yield is to give up every claim from before, and to leave the asker the field for a while (E14). It is no promise: one that
        // refused the next who asks would, with three of them, keep everybody from ever having everybody's word.
        state.void_requests();
        // Who stands back already is not kept longer by the next who asks: two that ask in turn would keep the best one back for ever.
        if state.stand_back_until.is_none_or(|until| until <= now) {
            state.stand_back_until = Some(now.plus(super::recovery::pause(state)));
        }
        if let Role::Member(member) = &mut state.role {
            member.quest = Quest::None;
        }
    }
    state.following = None;
    state.streaming = None;
    let answer = Answer {
        request: poll.request,
        incarnation: poll.incarnation,
        term: state.memory.term,
        members: state.memory.members.clone(),
        position: None,
        space: state.space,
    };
    out.push(Effect::CutAndAnswer { to: from, answer });
}
