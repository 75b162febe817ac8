//! Decides which instance of those that are too many leaves next, how far it has come, and when its pod goes.
//!
//! From: who is the least useful ([`super::usefulness`]), who leads, the members of the election by the Lease, the slots by the primary's own account. In
//! this order, one instance at a time: readers are sent elsewhere, and the agents are told that it leaves; the primary lets it leave the
//! members of the election; it stops to stream, and its slot is dropped; its pod is deleted; its volume goes by policy. One that has not joined is in
//! nobody's way, and goes at once.
//!
//! Never: the primary, or one that may be it; one that commits need; two at a time; anything while something could not be seen or a person
//! paused the cluster. A primary that can't let it go (an older agent, a configuration that it does not get) keeps it for [`LEAVE_WITHIN`] and no
//! longer: what is left of it then is what a lost node leaves, and is dealt with in the same way.

use bellwether_api::v1::{DurabilityMode, InstanceRole, OperationStep};
use jiff::{SignedDuration, Timestamp};

use super::action::{Action, Effect, WaitingOn};
use super::effective_durability;
use super::instances::target;
use super::rollout::paused;
use super::usefulness::Because;
use crate::build::Parent;
use crate::contract::{InstanceConfig, Leaving};
use crate::observed::{Observed, Pod};

/// How long a primary may take to let an instance go. It takes a quarter of a minute, and up to a minute more where a kubelet is slow to bring the
/// configuration; an older agent takes a minute to give up on somebody who is silent.
pub const LEAVE_WITHIN: SignedDuration = SignedDuration::from_mins(2);

/// How far the instance has come that leaves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Leave {
    /// Who leaves, for the agents.
    pub leaving: Option<Leaving>,
    /// A word for `status.operation.step`; nothing when nobody is to leave.
    pub step: Option<OperationStep>,
    /// The deletion of its pod.
    pub action: Option<Action>,
    /// What it waits on.
    pub waiting_on: Option<WaitingOn>,
    /// When to look again even if nothing changes.
    pub requeue: Option<SignedDuration>,
}

/// What is next. `surplus` are those that are too many, the least useful first.
pub fn leave(observed: &Observed, parent: &Parent<'_>, surplus: &[(&Pod, Because)], now: Timestamp) -> Leave {
    let Some((next, because)) = surplus.first() else { return Leave::default() };
    let exit = Exit { observed, parent, now };
    if let Some((gone, _)) = surplus.iter().find(|(pod, _)| pod.terminating) {
        let leaving = Some(exit.begun(gone).unwrap_or_else(|| exit.begins(gone)));
        let waiting_on = Some(WaitingOn::Stopping(vec![gone.name.clone()]));
        return Leave { leaving, step: Some(OperationStep::Removing), waiting_on, ..Leave::default() };
    }
    let waits = |on| {
        // What was begun is neither continued nor taken back.
        let begun = surplus.iter().filter(|(pod, _)| !exit.may_lead(pod)).find_map(|(pod, _)| exit.begun(pod));
        Leave { leaving: begun, step: Some(OperationStep::Leaving), waiting_on: Some(on), ..Leave::default() }
    };
    if !observed.sees_instances() {
        return waits(WaitingOn::Sight(observed.unseen()));
    }
    if paused(parent.cluster) {
        return waits(WaitingOn::Resume);
    }
    if exit.may_lead(next) || next.report.is_unknown() || !another_leads(observed, &next.name) {
        return waits(WaitingOn::LeaderUnsure(next.name.clone()));
    }
    if !exit.spared(next) {
        return Leave { leaving: None, ..waits(WaitingOn::Needed(next.name.clone())) };
    }
    exit.of(next, because)
}

/// Whether an instance other than `name` leads, by the Lease and by its own account.
pub(super) fn another_leads(observed: &Observed, name: &str) -> bool {
    observed
        .leader()
        .filter(|leader| *leader != name)
        .and_then(|leader| observed.pods.items.get(leader))
        .is_some_and(Pod::leads)
}

struct Exit<'a> {
    observed: &'a Observed,
    parent: &'a Parent<'a>,
    now: Timestamp,
}

impl Exit<'_> {
    /// One that may go, on its way.
    fn of(&self, pod: &Pod, because: &Because) -> Leave {
        let begun = self.begun(pod);
        let leaving = begun.clone().unwrap_or_else(|| self.begins(pod));
        let left = LEAVE_WITHIN - self.now.duration_since(leaving.since).abs();
        let late = begun.is_some() && !left.is_positive();
        let held = match (self.joined(pod), begun.is_some()) {
            (false, _) => None,
            (true, false) => Some(WaitingOn::Membership(pod.name.clone())),
            (true, true) if self.is_member(pod) => Some(WaitingOn::Membership(pod.name.clone())),
            (true, true) if self.has_slot(pod) => Some(WaitingOn::Slot(pod.name.clone())),
            (true, true) => None,
        };
        let leaving = Some(leaving);
        if let Some(held) = held.filter(|_| !late) {
            let (step, requeue) = (Some(OperationStep::Leaving), Some(left.max(SignedDuration::from_secs(1))));
            return Leave { leaving, step, action: None, waiting_on: Some(held), requeue };
        }
        let given_up = if late && (self.is_member(pod) || self.has_slot(pod)) {
            format!("; the primary has not let it go for {} s", LEAVE_WITHIN.as_secs())
        } else {
            String::new()
        };
        let replicas = self.parent.cluster.spec.replicas;
        Leave {
            leaving,
            step: Some(OperationStep::Removing),
            action: Some(Action {
                effect: Effect::DeletePod(target(pod)),
                why: format!(
                    "spec.replicas is {replicas}, and it is the standby that is needed least: {because}{given_up}"
                ),
            }),
            waiting_on: Some(WaitingOn::Stopping(vec![pod.name.clone()])),
            requeue: None,
        }
    }

    /// Since when the agents are told that it leaves, if they are.
    fn begun(&self, pod: &Pod) -> Option<Leaving> {
        let config = self.told()?;
        config.leaving.iter().find(|leaving| leaving.instance == pod.name).cloned()
    }

    fn begins(&self, pod: &Pod) -> Leaving {
        Leaving { instance: pod.name.clone(), since: self.now }
    }

    fn told(&self) -> Option<&InstanceConfig> {
        self.observed.config.known()
    }

    fn may_lead(&self, pod: &Pod) -> bool {
        self.observed.leader() == Some(&pod.name) || pod.role() == Some(InstanceRole::Primary)
    }

    /// Whether it may count to anybody: it has a role, or the Lease has it.
    fn joined(&self, pod: &Pod) -> bool {
        pod.role().is_some() || self.is_member(pod)
    }

    /// By the Lease. An older agent does not say who it is, but on a volume that it was the first to fill it goes by its pod's UID.
    fn is_member(&self, pod: &Pod) -> bool {
        let told = pod.report.known().and_then(|report| report.identity.as_ref());
        let identity = told.unwrap_or(&pod.uid);
        let members = self.observed.own_lease().and_then(|lease| lease.members.as_ref());
        members.is_some_and(|members| members.contains(identity))
    }

    /// By the primary's account. An older one does not say, and is not waited for.
    fn has_slot(&self, pod: &Pod) -> bool {
        let leader = self.observed.leader().and_then(|leader| self.observed.pods.items.get(leader));
        let slots = leader.and_then(|leader| leader.report.known()?.slots.as_ref());
        slots.is_some_and(|slots| slots.contains(&pod.name))
    }

    /// Whether commits have enough standbys without it.
    fn spared(&self, pod: &Pod) -> bool {
        let spec = &self.parent.cluster.spec;
        let needed = match effective_durability(spec.durability.mode, spec.replicas) {
            DurabilityMode::Quorum => usize::try_from(spec.replicas - 1).unwrap_or(0).div_ceil(2),
            DurabilityMode::Preferred | DurabilityMode::Async => 0,
        };
        let others =
            self.observed.pods.items.values().filter(|other| other.name != pod.name && other.owner == pod.owner);
        !pod.streams() || others.filter(|other| other.streams()).count() >= needed
    }
}
