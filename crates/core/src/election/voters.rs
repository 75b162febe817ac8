//! Decides whom commits wait for, and changes it in a joint step: record old and new, apply, wait, record the new.
//!
//! From: the durability asked for, who streams, the Lease's record. Never: drops the last voter under `quorum`; lets a record forget the
//! old voters while a commit may have been acknowledged by them that a quorum of the new doesn't hold yet.

use super::message::{Effect, LeaseContent, LeaseView};
use super::settings::Durability;
use super::state::{Out, Role, State};
use super::types::{Moment, Sync, Voters};

/// How many standbys make a majority of all instances together with the primary.
pub(super) fn needed(others: usize) -> usize {
    others.div_ceil(2)
}

/// The next write of the record, if one is due.
pub(super) fn change(state: &mut State, view: &LeaseView, now: Moment, out: &mut Out) -> Option<LeaseContent> {
    let recorded = &view.content.sync;
    let target = recorded.newest().cloned();
    let wanted = wanted(state, view, now);
    let hasty = planted!(state.settings, OldVotersForgotten);
    let applied_first = planted!(state.settings, VotersBeforeRecord);
    let Role::Leader(leader) = &mut state.role else { return None };
    let apply = |leader: &mut super::state::Leader, voters: &Option<Voters>, out: &mut Out| {
        leader.voters_set.clone_from(voters);
        leader.voters_in_force = false;
        out.push(Effect::SetVoters { voters: voters.clone() });
    };
    if leader.voters_set != target && !applied_first {
        apply(leader, &target, out);
    }
    let in_force = leader.voters_in_force || hasty;
    let sync = if recorded.is_joint() && in_force {
        Sync::only(target)
    } else if recorded.is_joint() {
        // One of the new voters was given up on, so the new rule may never be in force: another step is added to the record, which
        // forgets nothing. Without it commits would wait for the dead for ever.
        if !gave_up(target.as_ref(), wanted.as_ref()) {
            return None;
        }
        recorded.joined_by(wanted)
    } else if wanted != target {
        if applied_first {
            apply(leader, &wanted, out);
        }
        if hasty { Sync::only(wanted) } else { recorded.joined_by(wanted) }
    } else {
        return None;
    };
    Some(LeaseContent { sync, duration: state.settings.lease, ..view.content.clone() })
}

/// Whether somebody whom commits are about to wait for is no longer counted on.
fn gave_up(target: Option<&Voters>, wanted: Option<&Voters>) -> bool {
    let counted = |id| wanted.is_some_and(|wanted| wanted.members().contains(id));
    target.is_some_and(|target| target.members().iter().any(|id| !counted(id)))
}

/// Whom commits should wait for: every member that streams; one that fell silent is counted on for a while.
fn wanted(state: &State, view: &LeaseView, now: Moment) -> Option<Voters> {
    let present = view.content.sync.newest();
    let Role::Leader(leader) = &state.role else { return present.cloned() };
    let others = || view.content.members.iter().filter(|id| *id != state.me);
    let counted = |id: &super::MemberId| {
        let Some(peer) = leader.peer(*id) else { return present.is_some_and(|voters| voters.members().contains(*id)) };
        let votes = present.is_some_and(|voters| voters.members().contains(*id));
        // Since this leader began, if it never streamed to it.
        let last = peer.streamed.unwrap_or(leader.began);
        peer.streaming && now.since(peer.heard) < state.settings.drop_voter_after
            || votes && now.since(last) < state.settings.drop_voter_after
    };
    let mut live = others().filter(counted);
    match state.settings.durability {
        Durability::Async => None,
        // The last voter is never dropped: without it commits would be acknowledged alone.
        Durability::Quorum if live.clone().next().is_none() && !planted!(state.settings, LastVoterDropped) => {
            present.cloned()
        }
        Durability::Quorum | Durability::Preferred => {
            let needed = needed(others().count());
            // Mostly those who are waited for already, and then nobody needs another list of them.
            let same = |voters: &&Voters| {
                let members = voters.members();
                voters.needed() == needed.min(members.len()) && members.iter().eq(live.by_ref())
            };
            let as_before = present.filter(same).cloned();
            as_before.or_else(|| Voters::new(needed, others().filter(counted).collect()))
        }
    }
}

/// No backend goes by older voters any more, and a quorum of these holds everything acknowledged.
pub(super) fn in_force(state: &mut State, voters: Option<&Voters>) {
    if let Role::Leader(leader) = &mut state.role
        && leader.voters_set.as_ref() == voters
    {
        leader.voters_in_force = true;
    }
}
