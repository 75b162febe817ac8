//! Decides everything that the operator does: from what it sees to what it does next, and what it says about it.
//!
//! One decision a file; this one only puts them in order. Never: an action without a reason, or a destructive action on a fact
//! that is unknown ([`crate::check`] refuses such a plan should a decision ever make one).
//!
//! A second plan over the world that the first one made is empty.

mod action;
mod adopt;
mod backed_up;
mod backup;
mod certificates;
mod conditions;
mod endpoints;
mod growth;
mod instances;
mod joining;
mod leave;
mod notes;
mod origin;
mod orphans;
mod provision;
mod retained;
mod rollout;
mod schedule;
mod status;
mod stuck;
mod taker;
mod usefulness;
mod verified;
mod verify;
mod volumes;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod world;

use bellwether_api::v1::{PostgresCluster, PostgresClusterStatus};
use jiff::{SignedDuration, Timestamp};
use kube::Resource;

pub use action::{Action, Content, Effect, Existing, Note, SecretOrder, Target, WaitingOn};
pub use adopt::{Adoption, Identity};
pub use conditions::{not_grown, refused};
pub use instances::Members;
pub use leave::LEAVE_WITHIN;
pub use notes::of_growth;
pub use provision::effective_durability;
pub use rollout::paused;

use crate::build::{Kept, Parent, Settings};
use crate::fact::Fact;
use crate::fence::{self, Fences};
use crate::observed::Observed;
use certificates::whole_seconds;
use origin::Origin;
use rollout::Rollout;
use status::Verdict;
use taker::Ground;

/// How soon a source that a cluster is to be restored from, and that is not there, is looked for again.
const SOURCE_AGAIN: SignedDuration = SignedDuration::from_secs(10);

/// What to do next, and why.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// In order: each may need those before it.
    pub actions: Vec<Action>,
    /// Why nothing more happens now.
    pub waiting_on: Vec<WaitingOn>,
    /// The status as it should be; nothing when too little was seen to say.
    pub status: Option<PostgresClusterStatus>,
    /// Look again after this long even if nothing changes.
    pub requeue: Option<SignedDuration>,
    /// What people may want to know, beyond what each action means ([`Action::note`]).
    pub events: Vec<Note>,
}

/// Plans for one cluster.
pub fn plan(observed: &Observed, now: Timestamp, settings: &Settings) -> Plan {
    plan_keeping(observed, now, settings, &Kept::default())
}

/// The same, with what was built for it before.
pub fn plan_keeping(observed: &Observed, now: Timestamp, settings: &Settings, kept: &Kept) -> Plan {
    let now = whole_seconds(now);
    match &observed.cluster {
        Fact::Unknown => blind(observed),
        Fact::Absent => without_cluster(observed, now),
        Fact::Known(cluster) if cluster.meta().deletion_timestamp.is_some() => {
            let (actions, status) = (backup::deleting(observed, now), Some(status::deleting(cluster, now)));
            Plan { actions, status, ..Plan::default() }
        }
        Fact::Known(cluster) => match Parent::of(cluster, settings) {
            Some(parent) => for_cluster(observed, cluster, &parent.keeping(kept), now),
            None => blind(observed),
        },
    }
}

/// Nothing is known, so nothing is done.
fn blind(observed: &Observed) -> Plan {
    let mut unseen = vec!["PostgresCluster".to_owned()];
    unseen.extend(observed.unreadable.iter().cloned());
    Plan { waiting_on: vec![WaitingOn::Sight(unseen)], ..Plan::default() }
}

/// The cluster is gone. Its children went with it; what is left are volumes.
fn without_cluster(observed: &Observed, now: Timestamp) -> Plan {
    let mut actions = backup::without_cluster(observed, now);
    actions.extend(orphans::remove(observed, None));
    let left: Vec<_> = orphans::doomed(observed, None).iter().map(|volume| volume.name.clone()).collect();
    let waiting_on = if left.is_empty() { vec![] } else { vec![WaitingOn::Volumes(left)] };
    Plan { actions, waiting_on, ..Plan::default() }
}

fn for_cluster(observed: &Observed, cluster: &PostgresCluster, parent: &Parent<'_>, now: Timestamp) -> Plan {
    let invalid = parent.invalid();
    let leftovers = leftovers(observed, parent);
    let adoption = adopt::adopt(observed, parent);
    let begins = match &adoption {
        Adoption::Settled(identity) => origin::origin(observed, parent, identity),
        // Nothing begins.
        Adoption::Wait(_) | Adoption::Refused { .. } => Ok(Origin::There),
    };
    let verdict = match (&adoption, invalid.first(), &begins) {
        (_, Some(_), _) => Verdict::Invalid(invalid.join("; ")),
        (Adoption::Refused { reason, message }, None, _) => Verdict::Refused(*reason, message.clone()),
        (Adoption::Wait(on), None, _) => Verdict::Waiting(on.clone()),
        (Adoption::Settled(_), None, _) if !leftovers.is_empty() => Verdict::Waiting(WaitingOn::Leftovers(leftovers)),
        (Adoption::Settled(_), None, Err(on)) => Verdict::Waiting(on.clone()),
        (Adoption::Settled(_), None, Ok(_)) => Verdict::Go,
    };
    let identity = match adoption {
        Adoption::Settled(identity) => identity,
        Adoption::Wait(_) | Adoption::Refused { .. } => Identity::default(),
    };
    let mut plan = Plan::default();
    let mut members = Members::default();
    let mut rollout = Rollout::default();
    let mut fences = Fences::default();
    let mut backups;
    if verdict == Verdict::Go
        && let Ok(begins) = &begins
    {
        members = instances::members(observed, parent, &identity, now);
        fences = fence::fences(cluster, &members.wanted);
        rollout = rollout::rollout(observed, parent, &members, &fences, now);
        let ground = Ground { observed, parent, members: &members, fences: &fences };
        backups = backup::backups(observed, parent, Some(ground), now);
        let secrets = certificates::certificates(observed, parent, now);
        plan.requeue = secrets.next_renewal.map(|at| at.duration_since(now).max(SignedDuration::from_secs(1)));
        let provision = {
            let told = provision::Told {
                identity: &identity,
                origin: begins,
                members: &members,
                rollout: &rollout,
                backups: &backups,
            };
            provision::provision(observed, parent, &told, secrets)
        };
        plan.actions = provision.actions;
        plan.waiting_on = provision.waiting_on;
        plan.actions.append(&mut members.actions);
        plan.actions.extend(growth::grow(observed, parent));
        plan.actions.append(&mut rollout.actions);
        plan.requeue = plan.requeue.into_iter().chain(rollout.requeue).chain(members.leave.requeue).min();
        // The user's own Secret has no label of ours, so no watch tells of it: it is asked for, more often until it is there.
        let awaited = plan.waiting_on.iter().any(|on| matches!(on, WaitingOn::OwnerPassword { .. }));
        let supplied = cluster.spec.bootstrap.initdb.owner_password.as_ref();
        let overdue = stuck::look_again(observed, parent, now);
        let look = supplied.map(|_| SignedDuration::from_secs(if awaited { 10 } else { 60 }));
        plan.requeue = plan.requeue.into_iter().chain(look).chain(overdue).min();
        plan.waiting_on.append(&mut members.waiting_on);
        rollout.waiting_on.retain(|on| !plan.waiting_on.contains(on));
        plan.waiting_on.append(&mut rollout.waiting_on);
        if let Some(rest) = endpoints::held_back(observed, parent, now) {
            plan.actions.retain(|action| !endpoints::moves_readers(action, observed, parent));
            plan.requeue = plan.requeue.into_iter().chain([rest]).min();
        }
    } else {
        backups = backup::backups(observed, parent, None, now);
        // Volumes of an earlier cluster that asked for their removal: the new one waits for that.
        plan.actions = orphans::remove(observed, Some(&parent.uid));
    }
    let mut verifying = verify::verify(observed, parent, verdict == Verdict::Go, now);
    backups.actions.append(&mut verifying.actions);
    plan.requeue = plan.requeue.into_iter().chain(verifying.requeue).min();
    if let Verdict::Waiting(on) = &verdict {
        plan.waiting_on.push(on.clone());
        // What a person named has no label of ours, so no watch tells of it.
        let look = matches!(on, WaitingOn::Source(_)).then_some(SOURCE_AGAIN);
        plan.requeue = plan.requeue.into_iter().chain(look).min();
    }
    if observed.unseen().is_empty() && observed.unreadable.is_empty() {
        let (identity, members, rollout) = (&identity, &members, &rollout);
        let (verdict, fences, backups) = (&verdict, &fences, &backups);
        let joining = &joining::joining(observed, parent, members, fences);
        let view =
            status::View { observed, parent, identity, members, joining, rollout, verdict, fences, backups, now };
        let waiting = status::waiting(&view);
        plan.waiting_on.extend(waiting);
        let status = status::status(&view, &plan.waiting_on);
        if *verdict == Verdict::Go {
            let due = schedule::due(observed, parent, conditions::cluster(&view, &status), now);
            plan.requeue = plan.requeue.into_iter().chain(due.requeue).min();
            plan.actions.splice(0..0, due.action);
        }
        plan.status = Some(status);
    }
    // First: nothing here needs what comes later, and what is refused later must not keep the word of a backup from being written down.
    plan.actions.splice(0..0, backups.actions);
    if let Some(after) = &plan.status {
        let before = cluster.status.as_ref();
        plan.events.extend(notes::of_phase(before, after));
        plan.events.extend(notes::of_fences(before, after));
        plan.events.extend(notes::of_force(before, after));
        plan.events.extend(notes::of_rollout(before, after));
        plan.events.extend(notes::of_scaling(before, after));
        plan.events.extend(notes::of_pause(before, after));
    }
    plan
}

/// Objects under our names that the garbage collector still has to remove with an earlier cluster.
fn leftovers(observed: &Observed, parent: &Parent<'_>) -> Vec<String> {
    let theirs = |owner: Option<&str>| owner.is_some_and(|uid| uid != parent.uid);
    let mut left = vec![];
    for (name, pod) in &observed.pods.items {
        left.extend(theirs(pod.owner.as_deref()).then(|| format!("Pod {name}")));
    }
    for (name, secret) in &observed.secrets.items {
        left.extend(theirs(secret.owner.as_deref()).then(|| format!("Secret {name}")));
    }
    left.extend(observed.lease.known().filter(|lease| theirs(lease.owner.as_deref())).map(|_| "Lease".to_owned()));
    for (kind, listing) in &observed.objects {
        for (name, object) in &listing.items {
            let owners = || object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            // Most are.
            if owners().any(|owner| owner["uid"] == parent.uid.as_str()) {
                continue;
            }
            // Kubernetes gives the slices of the `-pods` Service that Service's labels and makes it their controller: they are
            // found by our label, but they are no cluster's. What only pods own any more was an earlier cluster's.
            let of_a_cluster = owners().any(|owner| owner["kind"] == "PostgresCluster" || owner["kind"] == "Pod");
            left.extend(of_a_cluster.then(|| format!("{kind} {name}")));
        }
    }
    left
}
