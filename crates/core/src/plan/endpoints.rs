//! Decides whom the `-ro` and `-r` Services send clients to, and when that is changed.
//!
//! From: what each instance says about itself, and what the kubelet says about it. Never: a standby that doesn't stream (its
//! clients would read old data without knowing), or an instance that is stopping or on its way out; a change while the lead is on its way from one instance to
//! another. A proxy applies a change at once and whatever comes after it only a second later: had we just taken the old primary from
//! `-r`, writers would wait that second for `-rw` to move.

use bellwether_api::v1::PostgresClusterStatus;
use jiff::{SignedDuration, Timestamp};

use super::action::{Action, Effect};
use super::conditions;
use crate::build::Parent;
use crate::build::slices::{self, Member};
use crate::fact::Fact;
use crate::object::{Desired, Kind};
use crate::observed::{Observed, Pod};

/// Longer than a failover takes, even from a node that is lost while another was gone already. Readers may be sent to an instance that is gone for
/// as long.
const LEAD_MOVES: SignedDuration = SignedDuration::from_secs(8);

const CLOCKS: SignedDuration = SignedDuration::from_secs(2);

/// The slices as they should be.
pub fn endpoints(observed: &Observed, parent: &Parent<'_>, leaving: Option<&str>) -> Vec<Desired> {
    let stays = |pod: &&Pod| super::instances::ours(pod, parent) && leaving != Some(&pod.name);
    let members = |which: fn(&Pod) -> bool| -> Vec<Member> {
        let pods = observed.pods.items.values().filter(stays).filter(|pod| which(pod));
        pods.filter_map(member).collect()
    };
    vec![
        slices::rw(parent),
        slices::slice(parent, &parent.names.ro(), &members(Pod::streams)),
        slices::slice(parent, &parent.names.r(), &members(|pod| pod.streams() || pod.leads())),
    ]
}

/// For how much longer the lead may be on its way; nothing when it is where it belongs, or takes too long to be waited for.
pub fn held_back(observed: &Observed, parent: &Parent<'_>, now: Timestamp) -> Option<SignedDuration> {
    let leader = observed.leader()?;
    let leading = observed.pods.items.get(leader).filter(|pod| super::instances::ours(pod, parent) && pod.leads());
    let since = match leading {
        Some(pod) if leads_to(observed, parent, pod) => return None,
        // It has taken the Lease and writes its endpoint in a moment.
        Some(_) => observed.own_lease()?.renewed,
        // As far as anybody has said so; the first who does is this pass.
        None => not_ready_since(parent.cluster.status.as_ref()?, now),
    };
    // A clock that is a little ahead of ours is no reason to wait longer, and one that is far ahead none to wait at all.
    let ago = now.duration_since(since?);
    (ago > -CLOCKS && ago < LEAD_MOVES).then(|| LEAD_MOVES - ago.max(SignedDuration::ZERO))
}

/// Whether an action changes where readers are sent. One that makes the slice is not held back.
pub fn moves_readers(action: &Action, observed: &Observed, parent: &Parent<'_>) -> bool {
    let Effect::Apply(desired) = &action.effect else { return false };
    let of_readers = [parent.names.ro(), parent.names.r()].contains(&desired.name);
    let there = matches!(observed.object(desired.kind, &desired.name), Fact::Known(_));
    desired.kind == Kind::EndpointSlice && of_readers && there
}

/// Whether the `-rw` Service leads to this pod.
fn leads_to(observed: &Observed, parent: &Parent<'_>, pod: &Pod) -> bool {
    let slice = observed.object(Kind::EndpointSlice, &parent.names.rw());
    let endpoints = slice.known().and_then(|slice| slice["endpoints"].as_array());
    let addresses = endpoints.into_iter().flatten().flat_map(|endpoint| endpoint["addresses"].as_array()).flatten();
    pod.ip.as_ref().is_some_and(|ip| addresses.into_iter().any(|address| address.as_str() == Some(ip)))
}

fn not_ready_since(before: &PostgresClusterStatus, now: Timestamp) -> Option<Timestamp> {
    let ready = before.conditions.iter().find(|condition| condition.type_ == conditions::READY)?;
    Some(if ready.status == "True" { now } else { ready.last_transition_time.0 })
}

fn member(pod: &Pod) -> Option<Member> {
    Some(Member { pod: pod.name.clone(), uid: pod.uid.clone(), address: pod.ip.clone()?, node: pod.node.clone() })
}
