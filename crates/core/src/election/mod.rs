//! Decides who leads: one agent's share of the election, as a pure function.
//!
//! From: what the agent knows ([`State`]), what happened ([`Event`]), and the local clock. Never: two instances with tenure at once, or
//! an earlier term's tenure after a later one's (INV-1); a successor without an acknowledged commit (INV-2); writes without
//! tenure (INV-3). The rules E1–E15 are in `docs/election.md`; the code names them where it keeps them, and
//! `bellwether-model` explores this very function.

/// Whether the bug of this name is planted. Without the feature it is `false`, and the branch behind it does not exist.
#[cfg(feature = "planted")]
macro_rules! planted {
    ($settings:expr, $plant:ident) => {
        $settings.planted == Some(crate::election::Plant::$plant)
    };
}
#[cfg(not(feature = "planted"))]
macro_rules! planted {
    ($settings:expr, $plant:ident) => {{
        let _ = &$settings;
        false
    }};
}

mod campaign;
mod fence;
mod forced;
mod handover;
mod leader;
mod lease;
mod member;
mod membership;
mod message;
#[cfg(feature = "planted")]
mod plant;
mod recovery;
#[cfg(feature = "planted")]
mod renaming;
mod settings;
mod state;
mod types;
mod voters;

#[cfg(test)]
mod tests;

pub use lease::Damage;
pub use message::{
    Answer, Ask, Consent, Effect, Event, Force, Grant, LeaseContent, LeaseView, LeaseWrite, Memory, Message, Outcome,
    Phase, Poll, Question, Whom,
};
#[cfg(feature = "planted")]
pub use plant::Plant;
#[cfg(feature = "planted")]
pub use renaming::{Ages, Names};
pub use settings::{Durability, Settings, Unsound};
pub use state::State;
pub use types::{
    Deadline, Edition, Incarnation, LeaseUid, LeaseVersion, MemberId, Members, Moment, Position, Promise, RequestId,
    Rule, Span, Sync, Tenure, Voters,
};

use lease::Sight;
use state::{Look, Out, Quest, Role};

/// What `event` at `now` means for this agent: its state after it, and what is to be done, in this order.
pub fn step(state: &mut State, event: Event, now: Moment) -> Vec<Effect> {
    let mut out = Vec::new();
    // Before anything else: whatever the event brings, it finds a leader only if tenure has not lapsed (E3).
    leader::expire(state, now, &mut out);
    match event {
        Event::Tick => {}
        Event::Lease { read, sight } => lease_seen(state, read, sight, now, &mut out),
        Event::Written { request, outcome } => written(state, request, outcome, now, &mut out),
        Event::Received { from, message } => received(state, from, message, now, &mut out),
        Event::ReceiverCut { position } => campaign::receiver_cut(state, position),
        Event::Streaming { from } => state.streaming = from,
        Event::PostgresCrashed => handover::crashed(state, now, &mut out),
        Event::PostgresDrained { position } => handover::drained(state, position, now, &mut out),
        Event::PostgresStopped { position } => handover::stopped(state, position, now, &mut out),
        Event::VotersInForce { voters } => voters::in_force(state, voters.as_ref()),
        Event::Switchover { target } => handover::switchover(state, target, now, &mut out),
        Event::Initialised => state.initialised = true,
        Event::Fenced => fence::fenced(state),
        Event::FenceLifted => fence::lifted(state),
        Event::Forced(force) => forced::wished(state, force, now),
        Event::Space(space) => state.space = space,
    }
    match state.role {
        Role::Leader(_) => leader::tick(state, now, &mut out),
        Role::Member(_) => campaign::tick(state, now, &mut out),
    }
    out
}

fn lease_seen(
    state: &mut State,
    read: Option<RequestId>,
    sight: crate::fact::Fact<LeaseView>,
    now: Moment,
    out: &mut Out,
) {
    let failed = sight.is_unknown();
    let seen = state.see(sight, now, out);
    if seen == Sight::Newer {
        leader::newer_lease(state, now, out);
        member::newer_lease(state, now, out);
    }
    if seen == Sight::Damaged {
        out.push(Effect::Became {
            phase: state.phase(),
            because: "the Lease was deleted, replaced, or put back to an earlier term: nobody campaigns on it (E14)",
        });
    }
    match &mut state.role {
        Role::Leader(leader) if read.is_some_and(|read| leader.look_first == Look::Reading(read)) => {
            leader.look_first = if failed { Look::Needed } else { Look::Current };
        }
        Role::Member(member) => match (&member.quest, read) {
            (Quest::Reading { request, claim }, Some(read)) if *request == read => {
                let claim = *claim;
                campaign::read_back(state, claim, failed, now, out);
            }
            _ => {}
        },
        Role::Leader(_) => {}
    }
}

fn written(state: &mut State, request: RequestId, outcome: Outcome, now: Moment, out: &mut Out) {
    let ambiguous = outcome == Outcome::Ambiguous;
    let Some(sent) = state.known.end(request, ambiguous) else { return };
    let counts = request >= state.void_before || planted!(state.settings, OksAfterSteppingDown);
    match outcome {
        Outcome::Committed(view) => {
            let term = view.content.term;
            state.see(crate::fact::Fact::Known(view), now, out);
            // E7: an OK for a term that is over, or from before this instance stepped down, gives nothing.
            if counts && (term >= state.memory.term || planted!(state.settings, OksAfterSteppingDown)) {
                match state.role {
                    Role::Leader(_) => leader::renewed(state, &sent, now, out),
                    Role::Member(_) => campaign::won(state, &sent, now, out),
                }
            }
        }
        Outcome::Conflict | Outcome::Ambiguous => match &mut state.role {
            Role::Leader(leader) => leader.look_first = Look::Needed,
            Role::Member(member) => {
                if matches!(member.quest, Quest::Writing { request: sent } if sent == request) {
                    member.quest = Quest::Waiting { until: now.plus(state.settings.defer) };
                }
            }
        },
    }
}

fn received(state: &mut State, from: MemberId, message: Message, now: Moment, out: &mut Out) {
    match message {
        Message::Ask(ask) => member::asked(state, from, ask, now, out),
        Message::Grant(grant) => leader::granted(state, from, grant, now, out),
        Message::Refuse(term) => {
            leader::outranked(state, term, out);
            forced::refused(state, from, now);
        }
        Message::Poll(poll) => member::polled(state, from, poll, now, out),
        Message::Answer(answer) => campaign::answered(state, from, answer, out),
        Message::Consent(consent) => handover::consented(state, consent, out),
        Message::Knock => membership::knocked(state, from, now),
    }
}
