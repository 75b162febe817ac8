//! Decides how long the leader may accept writes: asks for promises, renews the Lease when one is missing, and stops in time.
//!
//! From: grants (b), own writes of the Lease (a), the local clock. Never: lets a promise revive tenure that has lapsed (E3), counts a
//! promise or a write from anything later than its sending (E2, E8), or leaves out anybody who might be a member (E5).

use super::lease::OwnWrite;
use super::message::{Ask, Effect, Grant, LeaseContent, LeaseView, Message, Phase};
use super::state::{Handover, HandoverStep, Leader, Look, Out, Peer, Role, State};
use super::types::{Deadline, MemberId, Moment};
use super::{forced, handover, membership, recovery, voters};
use crate::wal::Term;

/// Ends tenure that would not outlast a stop of PostgreSQL.
pub(super) fn expire(state: &mut State, now: Moment, out: &mut Out) {
    let Role::Leader(leader) = &mut state.role else { return };
    if !leader.until.passed(now.plus(state.settings.stop_budget)) {
        return;
    }
    if planted!(state.settings, PromisesRevive) {
        return;
    }
    if planted!(state.settings, LapseIgnored) {
        return;
    }
    out.push(Effect::StopPostgres);
    state.become_member(
        "neither the Lease nor every member's promise keeps it in office: it stops before tenure ends",
        out,
    );
}

/// A newer Lease: another leads, or the set of members changed.
pub(super) fn newer_lease(state: &mut State, now: Moment, out: &mut Out) {
    let Some(view) = state.known.newest() else { return };
    let (term, holder) = (view.content.term, view.content.holder);
    let Role::Leader(leader) = &state.role else { return };
    if term > Some(leader.term) {
        outranked(state, term, out);
    } else if term == Some(leader.term) && holder == Some(state.me) {
        bound_tenure(state, now, out);
    }
}

/// A higher term exists, so this one is over (E12).
pub(super) fn outranked(state: &mut State, term: Option<Term>, out: &mut Out) {
    if let Role::Leader(leader) = &state.role
        && term > Some(leader.term)
    {
        if planted!(state.settings, HigherTermIgnored) {
            return;
        }
        out.push(Effect::StopPostgres);
        state.become_member("a higher term exists: another was elected", out);
    }
    state.learn_term(term, out);
}

/// An own write is committed: tenure (a), from its sending (E2).
pub(super) fn renewed(state: &mut State, sent: &OwnWrite, now: Moment, out: &mut Out) {
    let Some((term, lease)) = state.known.newest().map(|view| (view.content.term, view.content.duration)) else {
        return;
    };
    let from = if planted!(state.settings, RenewalFromResponse) { now } else { sent.sent };
    let margin = drift(state);
    let Role::Leader(leader) = &mut state.role else { return };
    if let Some(term) = term
        && term > leader.term
    {
        // The Lease was made anew by this very write (E14): promises for the old term are no promises for this one.
        leader.term = term;
        leader.rounds.clear();
        leader.peers.iter_mut().for_each(|peer| peer.granted = None);
        out.push(Effect::Became {
            phase: Phase::Leader,
            because: "it led when the Lease was damaged, and wrote it anew",
        });
        out.push(Effect::PublishEndpoint { term });
    }
    leader.look_first = Look::Current;
    leader.renewed = leader.renewed.max(from);
    extend(state, Deadline::At(from.plus(lease).minus(margin)), out);
    bound_tenure(state, now, out);
}

/// A promise: tenure (b), if every member's holds.
pub(super) fn granted(state: &mut State, from: MemberId, grant: Grant, now: Moment, out: &mut Out) {
    let incarnation = state.incarnation;
    let Role::Leader(leader) = &mut state.role else { return };
    if grant.term != leader.term || grant.incarnation != incarnation {
        return;
    }
    let round = leader.rounds.iter().find(|(request, _)| *request == grant.request).map(|(_, sent)| *sent);
    let sent = match round {
        Some(_) if planted!(state.settings, PromiseFromReceipt) => now,
        Some(sent) => sent,
        None if planted!(state.settings, GrantWithoutRequest) => match leader.rounds.last() {
            Some((_, sent)) => *sent,
            None => return,
        },
        None => return,
    };
    let Some(peer) = leader.peers.iter_mut().find(|peer| peer.id == from) else { return };
    peer.granted = peer.granted.max(Some(sent));
    peer.heard = now;
    peer.streaming = grant.streaming;
    if grant.streaming {
        peer.streamed = Some(now);
        state.stood_back = false;
    }
    let revives = planted!(state.settings, PromisesRevive) && leader.until.passed(now);
    if let Some(until) = promised_until(state) {
        if revives && until > Deadline::At(now) {
            let (term, voters) = match &state.role {
                Role::Leader(leader) => (leader.term, leader.voters_set.clone()),
                Role::Member(_) => return,
            };
            out.push(Effect::Lead { term, voters });
        }
        extend(state, until, out);
    }
}

/// Until when the promises of all who are required hold.
fn promised_until(state: &State) -> Option<Deadline> {
    let Role::Leader(leader) = &state.role else { return None };
    let required = state.required();
    if required.is_empty() {
        return Some(Deadline::Never);
    }
    let needed = if planted!(state.settings, MajorityOfPromises) { required.len().div_ceil(2) } else { required.len() };
    let mut sent: Vec<Moment> = required.iter().filter_map(|id| leader.peer(id)?.granted).collect();
    sent.sort_unstable();
    let oldest = sent.len().checked_sub(needed)?;
    let from = sent.get(oldest)?;
    Some(Deadline::At(from.plus(state.settings.promise).minus(drift(state))))
}

fn drift(state: &State) -> super::Span {
    if planted!(state.settings, NoDriftMargin) { super::Span(0) } else { state.settings.drift }
}

fn extend(state: &mut State, until: Deadline, out: &mut Out) {
    let Role::Leader(leader) = &mut state.role else { return };
    if until > leader.until {
        leader.until = until;
        out.push(Effect::Guard { until });
    }
}

/// Tenure without end is for one who is alone. When somebody else becomes required, it ends with their promise, or with the last
/// own write, whichever comes later.
pub(super) fn bound_tenure(state: &mut State, now: Moment, out: &mut Out) {
    let promised = promised_until(state);
    let lease = state.settings.lease;
    let margin = drift(state);
    let alone = promised == Some(Deadline::Never);
    let Role::Leader(leader) = &mut state.role else { return };
    if alone {
        return extend(state, Deadline::Never, out);
    }
    if leader.until == Deadline::Never {
        let written = Deadline::At(leader.renewed.plus(lease).minus(margin));
        leader.until = promised.map_or(written, |promised| promised.max(written));
        out.push(Effect::Guard { until: leader.until });
        expire(state, now, out);
    }
}

/// What a leader does as time passes: at most one write of the Lease is on its way.
pub(super) fn tick(state: &mut State, now: Moment, out: &mut Out) {
    handover::tick(state, now, out);
    ask(state, now, out);
    let Role::Leader(leader) = &state.role else { return };
    if state.known.pending() || matches!(leader.look_first, Look::Reading(_)) {
        return;
    }
    let wrote_long_ago = now.since(leader.wrote) >= state.settings.renew_every;
    if leader.look_first == Look::Needed {
        return look(state, out);
    }
    if state.known.damage().is_some() {
        if wrote_long_ago {
            recovery::rewrite(state, now, out);
        }
        return;
    }
    let Some(view) = state.known.sound().cloned() else { return };
    let stays = leader.handover.is_none();
    if stays
        && let Some(content) = voters::change(state, &view, now, out).or_else(|| membership::change(state, &view, now))
    {
        write(state, &view, content, now, out);
        return;
    }
    let due = wrote_long_ago && promise_missing(state, now);
    if due || stays && forced::is_moot(state, &view) {
        let content = LeaseContent { duration: state.settings.lease, ..view.content.clone() };
        write(state, &view, content, now, out);
    }
}

fn look(state: &mut State, out: &mut Out) {
    let request = state.number();
    if let Role::Leader(leader) = &mut state.role {
        leader.look_first = Look::Reading(request);
        out.push(Effect::ReadLease { request });
    }
}

pub(super) fn write(state: &mut State, view: &LeaseView, content: LeaseContent, now: Moment, out: &mut Out) {
    state.write(view, content, now, out);
    if let Role::Leader(leader) = &mut state.role {
        leader.wrote = now;
    }
    bound_tenure(state, now, out);
}

/// Whether somebody's promise is so old that a round was lost.
fn promise_missing(state: &State, now: Moment) -> bool {
    let Role::Leader(leader) = &state.role else { return false };
    let age = |id| leader.peer(id).and_then(|peer| peer.granted).map(|sent| now.since(sent));
    let members = state.known.members(&state.settings);
    let mut required = members.iter().filter(|id| *id != state.me);
    required.any(|id| age(id).is_none_or(|age| age >= state.settings.renew_after))
}

/// A round of requests, to everybody who is required and to those who knock. None while they are polled: whoever is asked follows, and one
/// who follows has no end of its log to tell.
fn ask(state: &mut State, now: Moment, out: &mut Out) {
    let Role::Leader(leader) = &state.role else { return };
    if matches!(&leader.handover, Some(Handover { step: HandoverStep::Polling { .. }, .. })) {
        return;
    }
    if leader.asked.is_some_and(|asked| now.since(asked) < state.settings.ask_every) {
        return;
    }
    let required = state.required();
    let request = state.number();
    let useful = state.settings.promise;
    let Role::Leader(leader) = &mut state.role else { return };
    leader.asked = Some(now);
    leader.rounds.retain(|(_, sent)| now.since(*sent) < useful);
    leader.rounds.push((request, now));
    for id in required.iter() {
        if leader.peer(id).is_none() {
            leader.peers.push(Peer::new(id, now));
            leader.peers.sort_unstable_by_key(|peer| peer.id);
        }
    }
    leader.peers.retain(|peer| peer.knocking || required.contains(peer.id));
    let ask = Ask { request, term: leader.term, incarnation: state.incarnation, promise: state.settings.promise };
    for peer in &leader.peers {
        out.push(Effect::Send { to: peer.id, message: Message::Ask(ask) });
    }
}

impl Leader {
    pub(super) fn peer(&self, id: MemberId) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.id == id)
    }
}

impl Peer {
    pub(super) fn new(id: MemberId, now: Moment) -> Self {
        Self { id, granted: None, heard: now, streamed: None, streaming: false, knocking: false }
    }
}
