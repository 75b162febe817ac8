//! Decides who becomes a member, and who ceases to be one (E15).
//!
//! From: who knocks, whose promises the leader holds, who has been silent. Never: sends an admission before it holds the newcomer's
//! promise, or removes one that commits may be waiting for, so under `quorum` never the last standby.

use super::message::{LeaseContent, LeaseView};
use super::state::{Peer, Role, State};
use super::types::{MemberId, Moment};

/// Somebody with a copy wants to be a member: it is asked for its promise in the next round.
pub(super) fn knocked(state: &mut State, from: MemberId, now: Moment) {
    let member = state.required().contains(from);
    let Role::Leader(leader) = &mut state.role else { return };
    if member || leader.peer(from).is_some() {
        return;
    }
    leader.peers.push(Peer { knocking: true, ..Peer::new(from, now) });
    leader.peers.sort_unstable_by_key(|peer| peer.id);
    leader.asked = None;
}

/// The next change of members, if one is due.
pub(super) fn change(state: &mut State, view: &LeaseView, now: Moment) -> Option<LeaseContent> {
    let members = match (newcomer(state, now), silent(state, view, now)) {
        (Some(id), _) if !view.content.members.contains(id) => view.content.members.with(id),
        (_, Some(id)) => view.content.members.without(id),
        _ => return None,
    };
    Some(LeaseContent { members, duration: state.settings.lease, ..view.content.clone() })
}

/// One whose promise is held and fresh: from the sending of its admission on, tenure needs it (E5).
fn newcomer(state: &mut State, now: Moment) -> Option<MemberId> {
    let fresh = state.settings.renew_after;
    let patience = state.settings.remove_after;
    let early = planted!(state.settings, AdmissionBeforePromise);
    let Role::Leader(leader) = &mut state.role else { return None };
    leader.peers.retain(|peer| !peer.knocking || now.since(peer.heard) < patience);
    let peer = leader
        .peers
        .iter_mut()
        .find(|peer| peer.knocking && (early || peer.granted.is_some_and(|sent| now.since(sent) < fresh)))?;
    peer.knocking = false;
    Some(peer.id)
}

/// One that has been silent for long, and that no commit may be waiting for.
fn silent(state: &State, view: &LeaseView, now: Moment) -> Option<MemberId> {
    let Role::Leader(leader) = &state.role else { return None };
    let long = |peer: &&Peer| !peer.knocking && now.since(peer.heard) >= state.settings.remove_after;
    leader.peers.iter().filter(long).map(|peer| peer.id).find(|id| {
        view.content.members.contains(*id)
            && (!view.content.sync.counts_on(*id) || planted!(state.settings, VoterRemoved))
    })
}
