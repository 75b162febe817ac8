//! Decides what goes wrong, and when: kinds, targets and lengths all follow from the seed.
//!
//! Never: a combination that no protocol survives and the documents say so (`docs/election.md`, known limits): a volume is taken away,
//! or the Lease damaged, only while every member lives and the record of members is settled. Everything else may overlap.

use std::collections::BTreeMap;

use bellwether_core::election::{Durability, Event, LeaseContent, Memory, Phase};
use bellwether_core::object::Kind as Object;
use serde_json::json;

use crate::api::CLUSTER;
use crate::network::Place;
use crate::queue::Time;
use crate::rng::Rng;
use crate::world::{CrashAt, Instance, What, World};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is its own name")]
pub enum Kind {
    MachineCrash,
    ContainerCrash,
    PostgresCrash,
    AgentFreeze,
    PodFreeze,
    CutOutgoing,
    CutIncoming,
    CutFromPeers,
    CutFromApi,
    CutFromOne,
    CutAll,
    Loss,
    Delay,
    Duplicates,
    ApiDown,
    AnswersLost,
    LateWrites,
    Stale,
    LeaseDeleted,
    LeaseRestored,
    ScaleUp,
    ScaleDown,
    PodDeleted,
    AllPodsDeleted,
    VolumeLost,
    Switchover,
    CrashBeforeWrite,
    CrashDuringWrite,
    CrashAfterWrite,
    OperatorCrash,
    OperatorCrashBeforeWrite,
    OperatorCrashDuringWrite,
    OperatorCrashAfterWrite,
    OperatorCutOff,
}

impl Kind {
    /// Every one, with how often it is drawn beside the others.
    pub const ALL: &[(Self, u64)] = &[
        (Self::MachineCrash, 6),
        (Self::ContainerCrash, 6),
        (Self::PostgresCrash, 6),
        (Self::AgentFreeze, 5),
        (Self::PodFreeze, 5),
        (Self::CutOutgoing, 4),
        (Self::CutIncoming, 4),
        (Self::CutFromPeers, 5),
        (Self::CutFromApi, 5),
        (Self::CutFromOne, 5),
        (Self::CutAll, 4),
        (Self::Loss, 3),
        (Self::Delay, 3),
        (Self::Duplicates, 2),
        (Self::ApiDown, 5),
        (Self::AnswersLost, 4),
        (Self::LateWrites, 5),
        (Self::Stale, 4),
        (Self::LeaseDeleted, 2),
        (Self::LeaseRestored, 2),
        (Self::ScaleUp, 2),
        (Self::ScaleDown, 2),
        (Self::PodDeleted, 3),
        (Self::AllPodsDeleted, 2),
        (Self::VolumeLost, 2),
        (Self::Switchover, 5),
        (Self::CrashBeforeWrite, 2),
        (Self::CrashDuringWrite, 4),
        (Self::CrashAfterWrite, 3),
        (Self::OperatorCrash, 2),
        (Self::OperatorCrashBeforeWrite, 2),
        (Self::OperatorCrashDuringWrite, 2),
        (Self::OperatorCrashAfterWrite, 2),
        (Self::OperatorCutOff, 2),
    ];

    /// What it is called in tables.
    pub fn name(self) -> String {
        format!("{self:?}")
    }
}

/// What the cluster was in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is its own name")]
pub enum During {
    Bootstrap,
    Steady,
    Degraded,
    Joining,
    JointStep,
    HandOver,
    Failover,
    Recovery,
    Scaling,
}

impl During {
    /// Every one.
    pub const ALL: [Self; 9] = [
        Self::Bootstrap,
        Self::Steady,
        Self::Degraded,
        Self::Joining,
        Self::JointStep,
        Self::HandOver,
        Self::Failover,
        Self::Recovery,
        Self::Scaling,
    ];
}

/// How often each fault fired in the middle of what.
pub type Coverage = BTreeMap<(Kind, During), u64>;

/// A fault that will end.
#[derive(Clone, Debug)]
enum Active {
    Links(Vec<(Place, Place)>),
    Weather,
    ApiDown,
    AnswersLost,
    LateWrites,
    Stale,
}

/// The faults of a run.
#[derive(Clone, Debug)]
pub struct Faults {
    rng: Rng,
    active: Vec<Option<Active>>,
    /// What fired.
    pub coverage: Coverage,
    /// What fired inside the API.
    pub inside: BTreeMap<&'static str, u64>,
    /// No more.
    pub over: bool,
    /// Between two faults, at most.
    pace: Time,
}

impl Faults {
    /// The faults of this seed.
    pub fn new(mut rng: Rng) -> Self {
        let pace = rng.between(4_000, 30_000);
        Self { rng, active: Vec::new(), coverage: Coverage::new(), inside: BTreeMap::new(), over: false, pace }
    }

    /// Something inside the API went wrong.
    pub fn fired(&mut self, what: &'static str) {
        *self.inside.entry(what).or_default() += 1;
    }

    fn draw(&mut self) -> Kind {
        let total: u64 = Kind::ALL.iter().map(|(_, weight)| weight).sum();
        let mut at = self.rng.below(total);
        for (kind, weight) in Kind::ALL {
            if at < *weight {
                return *kind;
            }
            at -= weight;
        }
        Kind::ContainerCrash
    }
}

impl World {
    /// The next fault, and after it the next.
    pub fn next_fault(&mut self) {
        if self.faults.over {
            return;
        }
        let kind = self.faults.draw();
        let during = self.during();
        if self.begin(kind) {
            *self.faults.coverage.entry((kind, during)).or_default() += 1;
            self.trace.mix(kind as u64);
        }
        let pause = match self.faults.rng.below(5) {
            0 => self.faults.rng.between(20, 500),
            1 => self.faults.rng.between(500, 4_000),
            _ => self.faults.rng.between(1_000, self.faults.pace),
        };
        self.after(pause, What::Fault);
    }

    /// What the cluster is in the middle of.
    fn during(&self) -> During {
        let phase = |phase: Phase| self.running().any(|(_, container)| container.state.phase() == phase);
        let joining = self.running().any(|(at, c)| self.position(at).is_none() || c.server.rewinding);
        let joint = self.ghost.lease.as_ref().is_some_and(|view| view.content.sync.is_joint());
        let members = self.ghost.lease.as_ref().map_or(0, |view| view.content.members.len());
        let live = self.instances.iter().filter(|instance| !instance.gone).count();
        match () {
            () if self.ghost.reigns == 0 => During::Bootstrap,
            () if phase(Phase::Recovering) => During::Recovery,
            () if phase(Phase::HandingOver) => During::HandOver,
            () if self.primary().is_none() => During::Failover,
            () if joint => During::JointStep,
            () if joining => During::Joining,
            () if members != live => During::Scaling,
            () if self.running().count() < live || !self.net.calm() => During::Degraded,
            () => During::Steady,
        }
    }

    /// One of the instances that run: the leader as often as not.
    fn victim(&mut self) -> Option<usize> {
        let running: Vec<usize> = self.running().map(|(at, _)| at).collect();
        match self.primary() {
            Some(primary) if self.faults.rng.chance(500) => Some(primary),
            _ => self.faults.rng.pick(&running),
        }
    }

    fn begin(&mut self, kind: Kind) -> bool {
        let victim = self.victim();
        let name = victim.map(|at| self.instances[at].name.clone()).unwrap_or_default();
        let length = match self.faults.rng.below(3) {
            0 => self.faults.rng.between(300, 3_000),
            1 => self.faults.rng.between(2_000, 12_000),
            _ => self.faults.rng.between(5_000, 45_000),
        };
        self.note(|_| format!("FAULT {kind:?} {name} for {length} ms"));
        match kind {
            Kind::MachineCrash | Kind::ContainerCrash | Kind::PostgresCrash | Kind::AgentFreeze | Kind::PodFreeze => {
                victim.is_some_and(|victim| self.strike(kind, victim, length))
            }
            Kind::CutOutgoing
            | Kind::CutIncoming
            | Kind::CutFromPeers
            | Kind::CutFromApi
            | Kind::CutFromOne
            | Kind::CutAll => victim.is_some_and(|victim| self.cut_links(kind, victim, length)),
            Kind::Loss => self.weather(300, 0, 0, length),
            Kind::Delay => self.weather(0, 2_500, 0, length),
            Kind::Duplicates => self.weather(0, 300, 400, length),
            Kind::ApiDown | Kind::AnswersLost | Kind::LateWrites | Kind::Stale => self.trouble_api(kind, length),
            Kind::LeaseDeleted | Kind::LeaseRestored => self.damage_lease(kind),
            Kind::PodDeleted => victim.is_some_and(|victim| self.delete_pod(victim)),
            Kind::AllPodsDeleted => self.delete_all_pods(),
            Kind::ScaleUp | Kind::ScaleDown | Kind::VolumeLost => self.change_members(kind, victim),
            Kind::Switchover => self.switchover(),
            Kind::CrashBeforeWrite => self.crash_at_next_write(victim, CrashAt::Before),
            Kind::CrashDuringWrite => self.crash_at_next_write(victim, CrashAt::During),
            Kind::CrashAfterWrite => self.crash_at_next_write(victim, CrashAt::After),
            Kind::OperatorCrash => {
                self.crash_operator(length.min(20_000));
                true
            }
            Kind::OperatorCrashBeforeWrite | Kind::OperatorCrashDuringWrite | Kind::OperatorCrashAfterWrite => {
                self.operator.crash_at_write = Some(match kind {
                    Kind::OperatorCrashBeforeWrite => CrashAt::Before,
                    Kind::OperatorCrashDuringWrite => CrashAt::During,
                    _ => CrashAt::After,
                });
                true
            }
            Kind::OperatorCutOff => {
                let (operator, api) = (self.net.operator(), self.net.api());
                self.cut_for(vec![(operator, api), (api, operator)], length)
            }
        }
    }

    fn until_healed(&mut self, active: Active, length: Time) -> bool {
        self.faults.active.push(Some(active));
        let number = self.faults.active.len() - 1;
        self.after(length, What::Heal(number));
        true
    }

    fn strike(&mut self, kind: Kind, victim: usize, length: Time) -> bool {
        let Some(who) = self.present(victim) else { return false };
        let until = self.now + length;
        match kind {
            Kind::MachineCrash => self.power_off(self.instances[victim].machine, length),
            Kind::ContainerCrash => self.crash_container(who, "a fault"),
            Kind::PostgresCrash => self.crash_postgres(who),
            _ => {
                let whole = kind == Kind::PodFreeze;
                let Some(container) = self.container_mut(who) else { return false };
                // One that is frozen already thaws no earlier for it.
                container.frozen = container.frozen.max(Some(until));
                if whole {
                    container.frozen_whole = container.frozen_whole.max(Some(until));
                    container.thawed = container.frozen_whole;
                    self.watch_silence();
                }
                self.after(1_000, What::Probe(victim));
                self.after(length + 100, What::Probe(victim));
            }
        }
        true
    }

    fn cut_links(&mut self, kind: Kind, victim: usize, length: Time) -> bool {
        let here = self.instances[victim].machine;
        let (api, clients) = (self.net.api(), self.net.clients());
        let machines: Vec<Place> = (0..self.machines.len()).filter(|other| *other != here).collect();
        let both = |others: &[Place]| others.iter().flat_map(|other| [(here, *other), (*other, here)]).collect();
        let links: Vec<(Place, Place)> = match kind {
            Kind::CutOutgoing => machines.iter().chain([&api]).map(|other| (here, *other)).collect(),
            Kind::CutIncoming => machines.iter().chain([&api]).map(|other| (*other, here)).collect(),
            Kind::CutFromPeers => both(&machines),
            Kind::CutFromApi => both(&[api]),
            Kind::CutFromOne => {
                let other = self.faults.rng.pick(&machines).unwrap_or(here);
                if self.faults.rng.chance(500) { vec![(here, other)] } else { both(&[other]) }
            }
            // The clients of this machine stay with it: whoever is cut off with its clients must not serve them.
            _ if self.faults.rng.chance(500) => both(&[machines.as_slice(), &[api]].concat()),
            _ => both(&[machines.as_slice(), &[api, clients]].concat()),
        };
        self.cut_for(links, length)
    }

    fn cut_for(&mut self, links: Vec<(Place, Place)>, length: Time) -> bool {
        for (from, to) in &links {
            self.net.block(*from, *to);
        }
        self.watch_silence();
        self.until_healed(Active::Links(links), length)
    }

    fn weather(&mut self, loss: u64, jitter: u64, twice: u64, length: Time) -> bool {
        self.net.weather(loss, jitter, twice);
        self.until_healed(Active::Weather, length)
    }

    fn trouble_api(&mut self, kind: Kind, length: Time) -> bool {
        let active = match kind {
            Kind::ApiDown => {
                self.api.down += 1;
                Active::ApiDown
            }
            Kind::AnswersLost => {
                self.api.answers_lost = true;
                Active::AnswersLost
            }
            Kind::LateWrites => {
                self.api.late = true;
                // Something must keep the writes back.
                let api = self.net.api();
                if let Some(victim) = self.victim() {
                    let here = self.instances[victim].machine;
                    self.cut_for(vec![(here, api)], length.min(6_000));
                }
                Active::LateWrites
            }
            _ => {
                self.api.stale = true;
                Active::Stale
            }
        };
        self.until_healed(active, length)
    }

    /// Every member lives and has a copy, the record of members says so and is sound, and nothing about it is changing.
    fn settled(&self) -> bool {
        let Some(lease) = &self.ghost.lease else { return false };
        let live = self.instances.iter().enumerate().filter(|(_, instance)| !instance.gone);
        let all = live.clone().all(|(at, instance)| {
            !instance.terminating
                && lease.content.members.contains(instance.id)
                && self.position(at).is_some()
                // Nobody may have seen yet that the Lease was put back.
                && Self::is_up_to_date(&self.volumes[instance.volume].memory, &lease.content)
                && instance.container.as_ref().is_some_and(|c| c.state.phase() != Phase::Recovering)
        });
        let wanted = self.api.store.get(&self.api.cluster()).ok().and_then(|c| c.plain()["spec"]["replicas"].as_u64());
        all && live.clone().count() == lease.content.members.len()
            && wanted == Some(live.count() as u64)
            && !lease.content.sync.is_joint()
            && lease.content.holder.is_some_and(|holder| self.place(holder).is_some())
    }

    /// Whether the Lease is what an instance remembers, or newer.
    fn is_up_to_date(memory: &Memory, lease: &LeaseContent) -> bool {
        let same_term = memory.lease_term == lease.term;
        memory.term <= lease.term && (!same_term || memory.edition <= lease.edition)
    }

    fn damage_lease(&mut self, kind: Kind) -> bool {
        // Recovery needs the word of everybody whom anybody remembers; one that is gone for good can't give it (a known limit).
        let remembered = |at: usize| self.volumes[self.instances[at].volume].memory.members.clone();
        let all_live = (0..self.instances.len())
            .filter(|at| !self.instances[*at].gone)
            .all(|at| remembered(at).iter().all(|id| self.place(id).is_some()));
        if !self.settled() || !all_live {
            return false;
        }
        if kind == Kind::LeaseDeleted {
            self.delete_by_others(Object::Lease, CLUSTER, None);
            return true;
        }
        // One that was cut off while terms went by takes an old term for new: restoring under it needs a person.
        let term = self.ghost.lease.as_ref().and_then(|view| view.content.term);
        if !self.net.calm() || self.running().any(|(_, container)| container.state.term() != term) {
            return false;
        }
        self.restore_lease()
    }

    /// Somebody deletes a pod. It comes back on its volume, as the same instance.
    fn delete_pod(&mut self, instance: usize) -> bool {
        let Instance { ref name, gone, terminating, .. } = self.instances[instance];
        if gone || terminating {
            return false;
        }
        let name = name.clone();
        self.delete_by_others(Object::Pod, &name, None);
        true
    }

    fn delete_all_pods(&mut self) -> bool {
        let mut any = false;
        for instance in 0..self.instances.len() {
            any |= self.delete_pod(instance);
        }
        any
    }

    fn change_members(&mut self, kind: Kind, victim: Option<usize>) -> bool {
        if !self.settled() {
            return false;
        }
        let Some(victim) = victim else { return false };
        let live = self.instances.iter().filter(|instance| !instance.gone).count();
        match kind {
            Kind::ScaleUp if live < 5 => self.change_spec(&json!({"spec": {"replicas": live + 1}})),
            Kind::ScaleDown if live > 2 => self.change_spec(&json!({"spec": {"replicas": live - 1}})),
            Kind::VolumeLost if !self.alone_holds_commits(victim) => {
                let name = self.instances[victim].name.clone();
                self.ghost.doomed = Some(self.volumes[self.instances[victim].volume].claim.clone());
                self.delete_by_others(Object::Pod, &name, None);
            }
            _ => return false,
        }
        true
    }

    /// A pod whose volume is to be lost has gone, and its volume goes, too: unless it became the last whole copy meanwhile, because it led again
    /// while it was being deleted and another is being rewound onto it, or the last one of a member, because the others were silent and it removed
    /// them. Whoever loses that has lost everything, or what only a person may do without (a known limit).
    pub fn lose_volume(&mut self, instance: usize) {
        let volume = self.instances[instance].volume;
        // Who is no member campaigns on no Lease.
        let member = |id| self.ghost.lease.as_ref().is_none_or(|lease| lease.content.members.contains(id));
        let whole = |other: &usize| {
            let it = &self.instances[*other];
            let rewinding = it.container.as_ref().is_some_and(|container| container.server.rewinding);
            let data = self.volumes[it.volume].data.as_ref();
            let good = data.is_some_and(|data| !data.broken && !data.mixed);
            it.volume != volume && !it.gone && !rewinding && good && member(it.id)
        };
        if (0..self.instances.len()).any(|other| whole(&other)) {
            let claim = self.api.names.data_volume(&self.instances[instance].name);
            self.delete_by_others(Object::PersistentVolumeClaim, &claim, None);
        } else {
            self.ghost.doomed = None;
        }
    }

    /// Under `quorum`, what a leader acknowledged before its first voters were recorded may be on its volume alone. Whoever loses that
    /// has lost it, and a person must say so (a known limit).
    fn alone_holds_commits(&self, instance: usize) -> bool {
        self.settings.durability == Durability::Quorum
            && self.ghost.lease.as_ref().is_some_and(|lease| {
                lease.content.holder == Some(self.instances[instance].id) && lease.content.sync.newest().is_none()
            })
    }

    fn switchover(&mut self) -> bool {
        let Some(who) = self.primary().and_then(|primary| self.present(primary)) else { return false };
        if self.agent_frozen(who).is_some() {
            return false;
        }
        let others: Vec<_> = self.places.iter().filter(|(_, at)| **at != who.instance).map(|(id, _)| *id).collect();
        let target = if self.faults.rng.chance(500) { self.faults.rng.pick(&others) } else { None };
        self.happen(who, Event::Switchover { target });
        true
    }

    fn crash_at_next_write(&mut self, victim: Option<usize>, at: CrashAt) -> bool {
        let Some(who) = victim.and_then(|victim| self.present(victim)) else { return false };
        let Some(container) = self.container_mut(who) else { return false };
        container.crash_at_write = Some(at);
        true
    }

    /// A fault ends.
    pub fn heal(&mut self, number: usize) {
        match self.faults.active[number].take() {
            None => {}
            Some(Active::Links(links)) => {
                for (from, to) in links {
                    self.net.unblock(from, to);
                }
            }
            Some(Active::Weather) => self.net.weather(0, 0, 0),
            Some(Active::ApiDown) => self.api.down -= 1,
            Some(Active::AnswersLost) => self.api.answers_lost = false,
            Some(Active::LateWrites) => self.api.late = false,
            Some(Active::Stale) => self.api.stale = false,
        }
    }

    /// Everything that can be healed is.
    pub fn heal_all(&mut self) {
        self.faults.over = true;
        for number in 0..self.faults.active.len() {
            self.heal(number);
        }
        for machine in 0..self.machines.len() {
            if !self.machines[machine].up {
                self.power_on(machine);
            }
        }
        self.operator.crash_at_write = None;
        for instance in &mut self.instances {
            if let Some(container) = &mut instance.container {
                container.crash_at_write = None;
            }
        }
    }
}
