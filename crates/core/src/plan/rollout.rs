//! Decides which instance is restarted next because what changed takes a restart: its pod is made anew on its volume, or its primary is
//! asked to hand over, or to restart in place.
//!
//! From: what each pod was made from, what each agent says waits for a restart, who leads, and how everybody is. Standbys first, one at a
//! time; each must stream again as the spec now has it before the next. Then a switchover, then the old primary, which is a standby by
//! then. A single instance is simply made anew. Never: the primary's pod while another could take over; two at once; a step on facts that
//! are unknown, while somebody is missing (one that is broken and outdated apart: it is the one that profits), or while commits wait; one
//! more after an instance that did not come back.
//!
//! Some parameters a standby must have at least as large as the WAL says that its primary had (`max_connections`, `max_worker_processes`,
//! `max_prepared_transactions`, `max_locks_per_transaction`; `max_wal_senders` is ours and never changes). What the agents guarantee: a
//! standby never starts below what its WAL was written with, whatever the spec says, says where that is more, and looks again. So what is raised
//! comes to standbys first, by the order above. What is lowered can't come by a switchover: a standby is never below its primary, so it
//! would take the old value along, and the next switchover too, for ever. It is lowered on the primary first, by a restart in place, which
//! the agent does only if nothing but lower values wait; then the standbys find it in the WAL and are restarted like for any other change.

use std::collections::BTreeMap;

use bellwether_api::labels;
use bellwether_api::v1::{DurabilityMode, InstanceRole, InstanceState, OperationKind, OperationStep, PostgresCluster};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::action::{Action, Effect, WaitingOn};
use super::effective_durability;
use super::instances::{self, Members, ours};
use super::status::{Health, health, said};
use crate::build::{self, Parent};
use crate::contract::{Report, Restart, parameters_hash};
use crate::fence::Fences;
use crate::instance::switchover::ANY;
use crate::observed::{Lease, Observed, Pod};

/// How long a primary has to follow a request before it is asked again. It looks at a request once, and a standby that was too far behind
/// then has caught up by now. But it makes a checkpoint before it hands over, for up to five minutes, and consents to a version of the
/// Lease: a request in that moment would make the hand-over fail.
const ASK_AGAIN: SignedDuration = SignedDuration::from_mins(6);
/// How long an instance without any visible trouble may take to come back before that is called a failure. Recovery after a clean stop
/// takes seconds; one that has to copy its data anew goes on and is only said to be late.
const BACK_WITHIN: SignedDuration = SignedDuration::from_mins(10);

/// How far a rollout has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Every instance runs with the spec as it is.
    #[default]
    Done,
    /// The primary restarts in place with lower values.
    Lowering,
    /// Standbys are restarted.
    Standbys,
    /// The primary is to hand over.
    Switchover,
    /// The only instance is restarted.
    Primary,
    /// All were restarted, and the last comes back.
    Returning,
    /// A person wants no new step.
    Paused,
    /// It stopped; why.
    Stalled(String),
}

impl Stage {
    /// A word for `status.operation.step`.
    pub fn step(&self) -> OperationStep {
        match self {
            Self::Lowering => OperationStep::Lowering,
            Self::Standbys => OperationStep::Standbys,
            Self::Switchover => OperationStep::Switchover,
            Self::Primary => OperationStep::Primary,
            Self::Done | Self::Returning => OperationStep::Returning,
            Self::Paused => OperationStep::Paused,
            Self::Stalled(_) => OperationStep::Stalled,
        }
    }
}

/// What is rolled out, and what comes next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rollout {
    /// How far it has come.
    pub stage: Stage,
    /// The instances that don't run with the spec as it is, each with what it lacks.
    pub outdated: BTreeMap<String, String>,
    /// Instances that have not said yet what the parameters as they are mean to them.
    pub unsure: Vec<String>,
    /// Standbys that have more than the spec says, because the WAL that they replay was written with more.
    pub held: Vec<String>,
    /// At most one step.
    pub actions: Vec<Action>,
    /// What it waits on.
    pub waiting_on: Vec<WaitingOn>,
    /// The restart in place that is asked of the primary.
    pub restart: Option<Restart>,
    /// When to look again even if nothing changes.
    pub requeue: Option<SignedDuration>,
}

impl Rollout {
    /// Whether nobody is left to restart.
    fn is_over(&self) -> bool {
        self.outdated.is_empty() && self.held.is_empty()
    }
}

/// Whether a person wants no new step.
pub fn paused(cluster: &PostgresCluster) -> bool {
    cluster.annotations().get(labels::PAUSED).is_some_and(|value| value == "true")
}

/// What comes next.
pub fn rollout(
    observed: &Observed,
    parent: &Parent<'_>,
    members: &Members,
    fences: &Fences,
    now: Timestamp,
) -> Rollout {
    let herd = Herd { observed, parent, members, fences, now };
    let mut rollout =
        Rollout { outdated: herd.outdated(), unsure: herd.unsure(), held: herd.held(), ..Rollout::default() };
    rollout.restart = herd.asked();
    if observed.sees_instances() {
        herd.next(&mut rollout);
    } else if !rollout.is_over() {
        rollout.stage = Stage::Standbys;
    }
    if matches!(rollout.stage, Stage::Done | Stage::Paused) {
        rollout.restart = None;
    }
    if rollout.stage == Stage::Done && observed.sees_instances() && herd.missing().is_empty() {
        rollout.actions.extend(herd.withdraw());
    }
    rollout
}

/// Everybody, as they are seen.
struct Herd<'a> {
    observed: &'a Observed,
    parent: &'a Parent<'a>,
    members: &'a Members,
    fences: &'a Fences,
    now: Timestamp,
}

impl<'a> Herd<'a> {
    fn next(&self, rollout: &mut Rollout) {
        let missing = self.missing();
        if rollout.is_over() && (missing.is_empty() || !self.was_rolling()) {
            return;
        }
        rollout.stage = if rollout.is_over() { Stage::Returning } else { Stage::Standbys };
        if let Some((why, again)) = self.failed(rollout, &missing) {
            match again {
                None => rollout.stage = Stage::Stalled(why),
                Some(_) => rollout.requeue = again,
            }
            return;
        }
        if rollout.is_over() {
            return;
        }
        if paused(self.parent.cluster) {
            rollout.stage = Stage::Paused;
            return rollout.waiting_on.push(WaitingOn::Resume);
        }
        // Somebody goes, or has yet to stop or to be made: that comes first, and is said where it is decided.
        let leaving = self.pods().any(|pod| pod.terminating);
        if leaving || !self.members.surplus.is_empty() || !self.members.actions.is_empty() {
            return;
        }
        let Some(leader) = self.leader() else { return };
        if !self.fences.instances.is_empty() {
            return rollout.waiting_on.push(WaitingOn::Unfenced(self.fences.instances.clone()));
        }
        if missing.is_empty() {
            self.next_of_all(leader, rollout);
        } else {
            self.mend(leader, &missing, rollout);
        }
    }

    /// Everybody is there and works.
    fn next_of_all(&self, leader: &Pod, rollout: &mut Rollout) {
        if !rollout.unsure.is_empty() {
            return rollout.waiting_on.push(WaitingOn::Parameters(rollout.unsure.clone()));
        }
        let Some(report) = leader.report.known() else { return };
        if report.commits_wait {
            return rollout.waiting_on.push(WaitingOn::Commits(leader.name.clone()));
        }
        let only_lowered = report.pending_restart.iter().all(|name| report.lowered.contains(name));
        if only_lowered && !report.pending_restart.is_empty() {
            return self.lower(leader, report, rollout);
        }
        if report.lowered.is_empty() {
            // It is lower by now, whoever leads next.
            rollout.restart = None;
            if !rollout.held.is_empty() {
                rollout.stage = Stage::Lowering;
                return rollout.waiting_on.push(WaitingOn::Replayed(rollout.held.clone()));
            }
        }
        let standby = self.pods().find(|pod| pod.name != leader.name && rollout.outdated.contains_key(&pod.name));
        if let Some(standby) = standby {
            let why = format!("{}; standbys come first, one at a time", rollout.outdated[&standby.name]);
            return self.restart_standby(standby, why, rollout);
        }
        if self.members.wanted.len() == 1 {
            rollout.stage = Stage::Primary;
            let why = format!(
                "{}; it is the only instance, so nobody accepts writes until it is back",
                rollout.outdated[&leader.name]
            );
            return self.restart(leader, why, rollout);
        }
        self.hand_over(leader, rollout);
    }

    /// Somebody is missing. If it runs with an earlier spec, that may be why, and it has nothing to lose.
    fn mend(&self, leader: &Pod, missing: &[(&'a str, Health)], rollout: &mut Rollout) {
        let profits = |(name, health): &&(&str, Health)| {
            rollout.outdated.contains_key(*name) && (*health == Health::Broken || self.spared())
        };
        let all_outdated = missing.iter().all(|(name, _)| rollout.outdated.contains_key(*name));
        let found = missing.iter().filter(|_| all_outdated).find(profits);
        let pod = found.and_then(|(name, _)| self.pod(name)).filter(|pod| pod.name != leader.name);
        if let Some(pod) = pod {
            let why = format!("{}; it does not work as it is", rollout.outdated[&pod.name]);
            self.restart_standby(pod, why, rollout);
        }
    }

    /// A standby for certain: not the leader by the Lease, nor by its own account.
    fn restart_standby(&self, pod: &Pod, why: String, rollout: &mut Rollout) {
        if pod.role() == Some(InstanceRole::Primary) || pod.report.is_unknown() {
            return rollout.waiting_on.push(WaitingOn::LeaderUnsure(pod.name.clone()));
        }
        // The only standby there is can't be spared and has to be restarted all the same; any other can wait.
        if pod.streams() && !self.spares_one() && self.members.wanted.len() > 2 {
            return rollout.waiting_on.push(WaitingOn::Commits(pod.name.clone()));
        }
        self.restart(pod, why, rollout);
    }

    fn restart(&self, pod: &Pod, why: String, rollout: &mut Rollout) {
        rollout.waiting_on.push(WaitingOn::Stopping(vec![pod.name.clone()]));
        rollout.actions.push(Action { effect: Effect::RestartPod(instances::target(pod)), why });
    }

    /// Asks the primary to restart in place, once in its term. One that leads no longer could not start with it, or died of something else:
    /// the next would, too.
    fn lower(&self, leader: &Pod, report: &Report, rollout: &mut Rollout) {
        let Some(term) = self.observed.own_lease().and_then(|lease| lease.term) else { return };
        let wanted = Restart { instance: leader.name.clone(), term };
        if let Some(asked) = self.asked().filter(|asked| *asked != wanted) {
            rollout.stage = Stage::Stalled(format!(
                "{} was to restart in place with lower {}, and no longer leads",
                asked.instance,
                report.lowered.join(", ")
            ));
            return;
        }
        rollout.stage = Stage::Lowering;
        rollout.waiting_on.push(WaitingOn::Lowered(leader.name.clone(), report.lowered.clone()));
        rollout.restart = Some(wanted);
    }

    /// What was asked for the parameters as they are. It is kept until it is done, or this would be forgotten with the leader.
    fn asked(&self) -> Option<Restart> {
        let config = self.observed.config.known()?;
        config.restart.clone().filter(|_| config.parameters == self.parent.cluster.spec.parameters)
    }

    /// Asks the primary to hand over to whom it chooses, by its own rules: all standbys are as the spec has it.
    fn hand_over(&self, leader: &Pod, rollout: &mut Rollout) {
        rollout.stage = Stage::Switchover;
        let said = leader.report.known().and_then(|report| report.message.clone());
        rollout.waiting_on.push(WaitingOn::Handover(leader.name.clone(), said));
        rollout.requeue = Some(ASK_AGAIN);
        let Some(lease) = self.observed.own_lease() else { return };
        let pending = lease.switchover.is_some();
        // A person's request is followed or refused like ours would be, and ends with the Lease's next write.
        let ours_is_old = lease.switchover_asked.is_some_and(|asked| self.now.duration_since(asked).abs() >= ASK_AGAIN);
        if !pending || ours_is_old {
            rollout.actions.push(Action {
                effect: ask(lease, Some((ANY, self.now))),
                why: format!("{}, and every standby is as the spec has it", rollout.outdated[&leader.name]),
            });
        }
    }

    /// Takes back what was asked for a rollout that needs it no more: it would be followed much later, and surprise people. Only while all is
    /// well: somebody who is missing may be in the middle of it, and would fail at a Lease that has changed.
    fn withdraw(&self) -> Option<Action> {
        self.leader()?;
        let lease = self.observed.own_lease()?;
        let ours = lease.switchover.is_some() && lease.switchover_asked.is_some();
        ours.then(|| Action { effect: ask(lease, None), why: "no rollout needs it any more".to_owned() })
    }

    /// An instance that has the spec as it is and does not work, with why; or one that has a while yet, with how long.
    fn failed(&self, rollout: &Rollout, missing: &[(&str, Health)]) -> Option<(String, Option<SignedDuration>)> {
        let current = missing.iter().filter(|(name, _)| !rollout.outdated.contains_key(*name));
        let mut late = None;
        for (name, health) in current {
            let Some(pod) = self.pod(name).filter(|pod| !pod.terminating) else { continue };
            let left = pod.created.map(|created| BACK_WITHIN - self.now.duration_since(created));
            let told = said(pod, self.parent.cluster.status.as_ref());
            let told = told.map(|told| format!(" ({told})")).unwrap_or_default();
            if *health == Health::Broken || left.is_some_and(|left| !left.is_positive()) {
                return Some((format!("{name} was made as the spec has it and does not work{told}"), None));
            }
            late = late.max(left);
        }
        late.map(|left| (String::new(), Some(left)))
    }

    /// Who runs with something else than the spec as it is, and with what. Not those that have not said.
    fn outdated(&self) -> BTreeMap<String, String> {
        let hash = build::pod::current_hash(self.parent);
        let lacks = |pod: &Pod| {
            if pod.hash.as_ref() != Some(&hash) {
                return Some("its pod is of an earlier spec".to_owned());
            }
            let report = running(pod).filter(|report| self.speaks_of_now(report))?;
            let waits = !report.pending_restart.is_empty();
            waits.then(|| format!("{} takes effect with a restart", report.pending_restart.join(", ")))
        };
        self.pods().filter_map(|pod| Some((pod.name.clone(), lacks(pod)?))).collect()
    }

    fn unsure(&self) -> Vec<String> {
        let unsure = |pod: &&Pod| running(pod).is_some_and(|report| !self.speaks_of_now(report));
        self.pods().filter(unsure).map(|pod| pod.name.clone()).collect()
    }

    fn held(&self) -> Vec<String> {
        let held = |report: &Report| {
            self.speaks_of_now(report) && report.role == Some(InstanceRole::Standby) && !report.lowered.is_empty()
        };
        self.pods().filter(|pod| running(pod).is_some_and(held)).map(|pod| pod.name.clone()).collect()
    }

    /// Whether what waits for a restart is said of the parameters as they are. An older agent does not say.
    fn speaks_of_now(&self, report: &Report) -> bool {
        let hash = || parameters_hash(&self.parent.cluster.spec.parameters);
        report.parameters.as_ref().is_none_or(|told| *told == hash())
    }

    /// Wanted instances that neither lead nor stream.
    fn missing(&self) -> Vec<(&'a str, Health)> {
        let wanted = self.members.wanted.iter();
        let health = wanted.map(|name| (name.as_str(), health(self.pod(name), self.fences)));
        health.filter(|(_, health)| *health != Health::Good).collect()
    }

    /// Whether commits have enough standbys without those that are missing.
    fn spared(&self) -> bool {
        self.streaming() >= self.needed()
    }

    /// Whether they still have if one more stops.
    fn spares_one(&self) -> bool {
        self.streaming() > self.needed()
    }

    fn streaming(&self) -> usize {
        self.pods().filter(|pod| pod.streams()).count()
    }

    fn needed(&self) -> usize {
        let spec = &self.parent.cluster.spec;
        match effective_durability(spec.durability.mode, spec.replicas) {
            DurabilityMode::Quorum => usize::try_from(spec.replicas - 1).unwrap_or(0).div_ceil(2),
            DurabilityMode::Preferred | DurabilityMode::Async => 0,
        }
    }

    fn was_rolling(&self) -> bool {
        let operation = self.parent.cluster.status.as_ref().and_then(|status| status.operation.as_ref());
        operation.is_some_and(|operation| operation.kind == OperationKind::Rollout)
    }

    /// The primary, by the Lease, by its own account, and by the kubelet's.
    fn leader(&self) -> Option<&'a Pod> {
        self.pod(self.observed.leader()?).filter(|pod| pod.leads())
    }

    fn pod(&self, name: &str) -> Option<&'a Pod> {
        self.observed.pods.items.get(name).filter(|pod| ours(pod, self.parent))
    }

    fn pods(&self) -> impl Iterator<Item = &'a Pod> {
        self.members.wanted.iter().filter_map(|name| self.pod(name))
    }
}

/// What an instance says whose PostgreSQL runs. One that starts has what the spec says, whatever its last one lacked.
fn running(pod: &Pod) -> Option<&Report> {
    use InstanceState::{CatchingUp, Leading, NotStreaming, Streaming};
    pod.report.known().filter(|_| matches!(pod.state(), Leading | Streaming | CatchingUp | NotStreaming))
}

fn ask(lease: &Lease, wish: Option<(&str, Timestamp)>) -> Effect {
    let (name, uid, resource_version) = (lease.name.clone(), lease.uid.clone(), lease.resource_version.clone());
    Effect::AskSwitchover {
        target: super::Target { name, uid, resource_version },
        wish: wish.map(|(to, at)| (to.to_owned(), at)),
    }
}
