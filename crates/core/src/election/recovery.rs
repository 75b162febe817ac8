//! Decides how a cluster comes back when its Lease was deleted, replaced, or put back to an earlier term (E14).
//!
//! From: the damaged Lease, what each volume remembers, and everybody's word. Never: makes a leader beside one that has tenure, or loses an
//! acknowledged commit. Two ways lead back: a leader whose tenure is unbroken writes the Lease anew in a higher term; or, when
//! nobody leads, one instance gets the word of **everybody** who may be a member that they give up all earlier claims.
//! Somebody who can't be asked keeps the cluster from coming back by itself: then a person must say that it is gone (E16).

use super::lease::Damage;
use super::message::{Effect, LeaseContent, LeaseView, Question, Whom};
use super::state::{Ballot, Claim, Look, Out, Quest, Role, State};
use super::types::{Members, Moment, Sync, Voters};
use super::{campaign, forced, leader};
use crate::wal::Term;

fn damaged(state: &State) -> Option<LeaseView> {
    match state.known.damage() {
        Some(Damage::Replaced(view)) => Some(view.clone()),
        Some(Damage::Deleted) | None => None,
    }
}

fn next_term(state: &State) -> Term {
    Term(state.memory.term.map_or(1, |term| term.0 + 1))
}

/// The leader's way: its tenure is unbroken, so nobody else has any.
pub(super) fn rewrite(state: &mut State, now: Moment, out: &mut Out) {
    let Some(view) = damaged(state) else {
        // Deleted: there is nothing to write on until the operator makes it again. Look for it now and then.
        if let Role::Leader(leader) = &mut state.role {
            leader.wrote = now;
            leader.look_first = Look::Needed;
        }
        return;
    };
    let Some(content) = state.known.newest().map(|old| LeaseContent {
        holder: Some(state.me),
        term: Some(next_term(state)),
        duration: state.settings.lease,
        ..old.content.clone()
    }) else {
        return;
    };
    leader::write(state, &view, content, now, out);
}

/// Everybody who may be a member: by the Lease as it is, by the own memory.
fn everybody(state: &State, view: &LeaseView) -> Members {
    view.content.members.union(&state.memory.members).with(state.me)
}

/// The members' way: ask everybody to yield.
pub(super) fn canvass(state: &mut State, now: Moment, out: &mut Out) {
    let Some(view) = damaged(state) else {
        let until = now.plus(state.settings.defer);
        if let Role::Member(member) = &mut state.role {
            member.quest = Quest::Waiting { until };
        }
        return;
    };
    state.void_requests();
    let others = everybody(state, &view).without(state.me);
    campaign::canvass(state, Claim::Damage, Question::Yield, others, now, out);
    forced::be_patient(state, now);
}

/// How long one that yielded leaves the asker the field. The identity decides how long each stands back, or two would go on asking at
/// the same time.
pub(super) fn pause(state: &State) -> super::Span {
    let turn = u64::try_from(state.me.0 % 4).unwrap_or(0) + 1;
    super::Span(state.settings.promise.0 + turn * state.settings.defer.0)
}

/// All yielded, nobody knows of anybody else, and no log reaches further than ours: take the Lease in a term above all.
pub(super) fn decide(state: &mut State, ballot: &Ballot, now: Moment, out: &mut Out) {
    // Longer than those who yielded stand back: whoever is better among them asks next.
    let again = Quest::Waiting { until: now.plus(state.settings.promise).plus(pause(state)) };
    let asked = ballot.asked.with(state.me);
    let known = ballot.answers.iter().fold(asked.clone(), |all, (_, answer)| all.union(&answer.members));
    let complete = ballot.complete() || planted!(state.settings, RecoveryWithoutAll);
    let unanimous = complete || forced::despite_silence(state, now);
    // Of equals any will do: all yielded to this one.
    let longest = ballot.best().is_none_or(|(position, ..)| ballot.own.flatten() >= Some(position));
    let best = longest || forced::to_me(state) == Some(Whom::Me);
    let Role::Member(member) = &mut state.role else { return };
    member.quest = again;
    if known != asked {
        // Somebody unheard of: ask them too, next time.
        state.memory.members = known;
        return out.push(Effect::Remember(state.memory.clone()));
    }
    let Some(view) = damaged(state).filter(|_| unanimous && best && !state.known.pending()) else { return };
    // Only the winner is certain to hold everything, so until the new voters do, a successor must hear it too.
    let any_of_all = Voters::new(1, asked.clone());
    let voters = campaign::first_voters(state, &asked, &ballot.heard());
    let content = LeaseContent {
        holder: Some(state.me),
        term: Some(next_term(state)),
        members: asked,
        sync: Sync::only(any_of_all).joined_by(voters),
        duration: state.settings.lease,
        edition: view.content.edition,
    };
    let by_force = (!complete || !longest).then(|| forced::unheard(ballot));
    let request = state.write_by(&view, content, by_force, now, out);
    if let Role::Member(member) = &mut state.role {
        member.quest = Quest::Writing { request };
    }
}
