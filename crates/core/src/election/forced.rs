//! Decides what a person's word overrides when those are gone for good who would know what was acknowledged (E16).
//!
//! From: the wish, which counts for one version of the Lease and one term. Never: overrides anything that INV-1 rests on (own promise lapsed,
//! that version unchanged for L, one compare-and-swap on it, nobody who refuses); counts for another version or term, or twice: the
//! write that follows it makes another version. What it overrides is what INV-2 rests on, and that somebody who is silent yields (E14).

use super::lease::Damage;
use super::message::{Question, Whom};
use super::state::{Ballot, Claim, Member, Quest, Role, State};
use super::types::{LeaseVersion, MemberId, Members, Moment};
use super::{Force, LeaseView};

/// A wish, and since when it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Forced {
    pub force: Force,
    pub since: Moment,
}

/// A person wants somebody to lead whatever was acknowledged elsewhere.
pub(super) fn wished(state: &mut State, force: Force, now: Moment) {
    if state.forced.is_none_or(|known| known.force != force) {
        state.forced = Some(Forced { force, since: now });
    }
}

fn present_version(state: &State) -> Option<LeaseVersion> {
    match state.known.damage() {
        Some(Damage::Replaced(view)) => Some(view.version),
        Some(Damage::Deleted) => None,
        None => state.known.sound().map(|view| view.version),
    }
}

/// The wish, if it is for the Lease as it is now and for the highest term that is known here: one that was made in an earlier term, and came
/// back with a Lease that was put back, is void.
fn valid(state: &State) -> Option<Forced> {
    let current = |forced: &Forced| {
        let this = Some(forced.force.version) == present_version(state) && forced.force.term == state.memory.term;
        this || planted!(state.settings, ForceForEver)
    };
    state.forced.filter(current)
}

/// What a person's word is to this instance.
pub(super) fn to_me(state: &State) -> Option<Whom> {
    valid(state).map(|forced| forced.force.whom).filter(|whom| *whom != Whom::Another)
}

/// A leader is in office, so there is nothing to force: its next write removes the wish, lest it be followed when this one is lost.
pub(super) fn is_moot(state: &State, view: &LeaseView) -> bool {
    state.forced.is_some_and(|forced| forced.force.version == view.version)
}

/// Whether silence counts as a yes in E14: only once the Lease as it is now was unchanged for L on the local clock, so that a leader
/// who needs this instance's promise or the Lease has lost its tenure, and one who can write has written.
pub(super) fn despite_silence(state: &State, now: Moment) -> bool {
    // L of whoever wrote the Lease last, should its settings have been others.
    let written = state.known.newest().map_or(state.settings.lease, |view| view.content.duration);
    let long = |forced: Forced| {
        now.since(forced.since) >= written.max(state.settings.lease) || planted!(state.settings, ForceWithoutWait)
    };
    to_me(state).is_some() && !state.promised_at(now) && valid(state).is_some_and(long)
}

/// Somebody refuses to yield: it leads, or promised another, or has a write on its way. That is no silence, and can't be overridden.
pub(super) fn refused(state: &mut State, from: MemberId, now: Moment) {
    let until = now.plus(state.settings.promise);
    let forced = to_me(state).is_some();
    let Role::Member(Member { quest, .. }) = &mut state.role else { return };
    let objects = matches!(quest, Quest::Polling { claim: Claim::Damage, ballot } if ballot.asked.contains(from));
    if forced && objects && !planted!(state.settings, RefusalOverridden) {
        *quest = Quest::Waiting { until };
    }
}

/// A refusal that comes late must still be heard.
pub(super) fn be_patient(state: &mut State, now: Moment) {
    let until = now.plus(state.settings.last_poll);
    let forced = to_me(state).is_some();
    if let Role::Member(Member { quest: Quest::Polling { ballot, .. }, .. }) = &mut state.role
        && forced
        && ballot.question == Question::Yield
    {
        ballot.until = until;
    }
}

/// Who was asked and did not answer with a log: what only they have is lost.
pub(super) fn unheard(ballot: &Ballot) -> Members {
    let heard = ballot.with_copy();
    ballot.asked.iter().filter(|id| !heard.contains(*id)).collect()
}
