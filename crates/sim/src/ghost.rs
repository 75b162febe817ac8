//! What must hold, judged with an eye that sees everything: INV-1 … INV-4, the log, and that nothing acknowledged is lost.
//!
//! Nothing here is known to an agent or to the operator. The first broken promise ends the run.

use std::sync::Arc;

use bellwether_core::election::{Deadline, Durability, LeaseContent, LeaseView, MemberId, Members, Rule, Voters};
use bellwether_core::fact::Fact;
use serde_json::Value;

use crate::queue::Time;
use crate::world::{Who, World};

/// After a thaw, PostgreSQL may run for an instant before its guard does.
const THAW: Time = 60;
/// How late a guard's timer may fire; δ pays for it.
const LATE: Time = 5;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub property: &'static str,
    /// How.
    pub how: String,
}

/// What is known to nobody in the world.
#[derive(Clone, Debug, Default)]
pub struct Ghost {
    /// The first broken promise.
    pub violation: Option<Violation>,
    /// The highest term that had tenure.
    pub reigned: u64,
    /// What was acknowledged: its place in the log, and the record.
    acknowledged: Vec<(usize, u32)>,
    /// How many databases were initialised.
    pub databases: u64,
    /// The Lease as it is.
    pub lease: Option<LeaseView>,
    /// The claim that a fault takes away, data and all.
    pub doomed: Option<String>,
    /// Commits acknowledged in all.
    pub commits: u64,
    /// Acknowledged commits that a failover lost where that is allowed.
    pub lost: u64,
    /// How often somebody began to lead.
    pub reigns: u64,
    /// When the faults ended.
    pub calm: Option<Time>,
    /// When the cluster was ready after that.
    pub ready: Option<Time>,
    /// Writes of ours when the quiet time began.
    pub writes: Option<u64>,
    /// Commits acknowledged by then: ready means that there are more.
    pub commits_before: Option<u64>,
}

impl Ghost {
    /// A promise is broken. Only the first counts: what follows is its consequence.
    pub fn violated(&mut self, property: &'static str, how: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { property, how: how() });
        }
    }
}

impl World {
    fn name(&self, instance: usize) -> &str {
        &self.instances[instance].name
    }

    /// INV-1: at most one has tenure, and none after a later one had it. INV-3: nobody without a deadline ahead accepts writes.
    pub fn judge_tenure(&mut self) {
        let mut holder: Option<(usize, u64)> = None;
        let mut broken = None;
        for (at, container) in self.running() {
            let now = self.machines[self.instances[at].machine].clock(self.now);
            if let Some(tenure) = container.state.tenure(now) {
                if let Some((other, term)) = holder {
                    let (one, two) = (self.name(other), self.name(at));
                    broken = Some(format!("{one} has tenure of term {term} and {two} of term {}", tenure.term));
                }
                holder = holder.max(Some((at, tenure.term.0)));
            }
        }
        if let Some(how) = broken {
            self.ghost.violated("INV-1", || how);
        }
        let Some((at, term)) = holder else { return };
        let reigned = self.ghost.reigned;
        if term < reigned {
            let name = self.name(at).to_owned();
            self.ghost.violated("INV-1", || format!("{name} has tenure of term {term} after term {reigned} had it"));
        }
        self.ghost.reigned = reigned.max(term);
    }

    /// Whether it runs again only since a moment ago, and its guard perhaps not yet.
    fn thawed(&self, who: Who) -> bool {
        self.container(who).and_then(|container| container.thawed).is_some_and(|at| self.now <= at + THAW)
    }

    /// INV-3: a session writes.
    pub fn judge_write(&mut self, who: Who) {
        let Some(container) = self.container(who) else { return };
        let machine = &self.machines[self.instances[who.instance].machine];
        let thawed = self.thawed(who);
        let over = match container.guard {
            Deadline::Never => false,
            Deadline::At(moment) => machine.when(moment) + LATE < self.now,
        };
        let headed = container.leads.unwrap_or(0);
        let outlived = headed < self.ghost.reigned && !thawed;
        if over && !thawed {
            let name = self.name(who.instance).to_owned();
            self.ghost.violated("INV-3", || format!("{name} accepts a write after its tenure of term {headed} ended"));
        } else if outlived {
            let (name, reigned) = (self.name(who.instance).to_owned(), self.ghost.reigned);
            self.ghost
                .violated("INV-3", || format!("{name} accepts a write in term {headed} after term {reigned} began"));
        }
    }

    /// A commit is acknowledged to its client.
    pub fn judge_acknowledgement(&mut self, who: Who, at: usize) {
        self.ghost.commits += 1;
        let headed = self.container(who).and_then(|container| container.leads).unwrap_or(0);
        if headed < self.ghost.reigned && self.settings.durability != Durability::Quorum {
            // The documented instant after a thaw, when another leads already: nobody else will ever have it.
            self.ghost.lost += 1;
            return;
        }
        let record = self.data(who.instance).and_then(|data| data.log.get(at).copied());
        self.ghost.acknowledged.extend(record.map(|record| (at, record)));
        if let Some(record) = record {
            self.trace.mix(u64::from(record));
        }
    }

    /// INV-2: whoever begins to lead has everything that was acknowledged.
    pub fn judge_leader(&mut self, who: Who, term: u64) {
        self.ghost.reigns += 1;
        self.trace.mix(term);
        let missing: Vec<(usize, u32)> = match self.data(who.instance) {
            Some(data) => self
                .ghost
                .acknowledged
                .iter()
                .filter(|(at, record)| data.log.get(*at) != Some(record))
                .copied()
                .collect(),
            None => self.ghost.acknowledged.clone(),
        };
        let (name, count) = (self.name(who.instance).to_owned(), missing.len());
        self.note(|_| format!("{name} accepts writes in term {term}"));
        // The documented instant after a thaw, when another leads already. Whatever is acknowledged in it counts all the same.
        let overtaken = term < self.ghost.reigned && self.thawed(who);
        if missing.is_empty() || overtaken {
            return;
        }
        if self.settings.durability == Durability::Quorum {
            let (at, record) = missing[0];
            self.ghost.violated("INV-2", || {
                format!("{name} leads term {term} without {count} acknowledged commits, the first is record {record} at {at}")
            });
        }
        self.ghost.lost += count as u64;
        self.ghost.acknowledged.retain(|entry| !missing.contains(entry));
    }

    /// Whoever receives has nothing that the other lacks.
    pub fn judge_connection(&mut self, primary: Who, standby: Who) {
        let own = self.data(standby.instance).map_or(0, |data| data.log.len());
        let common = self.common(primary.instance, standby.instance);
        if common < own {
            let (name, from) = (self.name(standby.instance).to_owned(), self.name(primary.instance).to_owned());
            self.ghost
                .violated("LOG", || format!("{name} receives from {from}, and their logs part at {common} of {own}"));
        }
    }

    /// Nobody goes on from a log into which another branch was written.
    pub fn judge_going_on(&mut self, instance: usize) {
        if self.data(instance).is_some_and(|data| data.mixed) {
            let name = self.name(instance).to_owned();
            self.ghost.violated("LOG", || format!("{name} goes on from a log into which another branch was written"));
        }
    }

    /// A standby's log is the beginning of its primary's.
    pub fn judge_delivery(&mut self, connection: usize) {
        let standby = self.connections[connection].standby;
        let have = self.data(standby.instance).map_or(0, |data| data.log.len());
        let begins = self.batch_begins(connection);
        if have != begins {
            let name = self.name(standby.instance).to_owned();
            self.ghost.violated("LOG", || format!("{name} has {have} records and is sent what follows {begins}"));
        }
    }

    /// The Lease changed: it speaks of one database for ever.
    pub fn judge_lease(&mut self, object: Option<&Arc<Value>>) {
        self.ghost.lease = object.and_then(|object| match self.view(object) {
            Fact::Known(view) => Some(view),
            Fact::Absent | Fact::Unknown => None,
        });
    }

    /// INV-4: a claim is gone, and what was on it.
    pub fn judge_volume_removal(&mut self, volume: usize, claim: &str) {
        if self.ghost.doomed.as_deref() == Some(&self.volumes[volume].claim) {
            return;
        }
        let used = self.instances.iter().find(|instance| !instance.gone && instance.volume == volume);
        if let Some(name) = used.map(|instance| instance.name.clone()) {
            self.ghost.violated("INV-4", || format!("{claim} was deleted under {name}, which is there"));
        }
        let complete = |other: usize| {
            self.volumes[other].data.as_ref().is_some_and(|data| {
                !data.broken && self.ghost.acknowledged.iter().all(|(at, record)| data.log.get(*at) == Some(record))
            })
        };
        let had = self.volumes[volume].data.is_some();
        if had && !(0..self.volumes.len()).any(|other| other != volume && complete(other)) {
            self.ghost.violated("INV-4", || format!("{claim} was deleted, and it was the last complete copy"));
        }
    }

    /// The cluster is ready by the operator's own word, for the spec as it is.
    pub fn is_ready(&self) -> bool {
        let Ok(cluster) = self.api.store.get(&self.api.cluster()) else { return false };
        let cluster = cluster.plain();
        let status = &cluster["status"];
        let ready = status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        ready
            && status["phase"] == "Ready"
            && status["observedGeneration"] == cluster["metadata"]["generation"]
            && status["readyReplicas"] == cluster["spec"]["replicas"]
    }

    /// Why it is not, for people.
    pub fn why_not_ready(&self) -> String {
        let Ok(cluster) = self.api.store.get(&self.api.cluster()) else { return "there is no cluster".to_owned() };
        let status = &cluster.plain()["status"];
        let ready = status["conditions"][0]["message"].as_str().unwrap_or_default();
        let live = self.instances.iter().enumerate().filter(|(_, instance)| !instance.gone);
        let instances: Vec<_> = live.map(|(at, instance)| self.described(at, instance)).collect();
        let lease = self.ghost.lease.as_ref().map(|view| &view.content);
        format!(
            "phase {}, Ready: {ready}; {:?}; {}; the Lease: {}",
            status["phase"],
            self.operator,
            instances.join(", "),
            lease.map_or_else(|| "none".to_owned(), |content| self.lease_in_names(content))
        )
    }

    fn described(&self, at: usize, instance: &crate::world::Instance) -> String {
        let Some(container) = &instance.container else { return format!("{} does not run", instance.name) };
        let follows = container.follow.map(|following| self.name_of(following.leader));
        let end = self.position(at).map(|position| (position.term.0, position.lsn.0));
        format!(
            "{} {:?} {:?} follows {follows:?} streams {} log {end:?} says {}",
            instance.name,
            container.state.phase(),
            container.server.state,
            container.server.receiver.is_some(),
            self.said_on_pod(at).as_deref().unwrap_or("nothing"),
        )
    }

    /// The instance's name, or how its UID begins when it is gone.
    pub fn name_of(&self, id: MemberId) -> String {
        let text = || id.to_string().chars().take(8).collect();
        self.place(id).map_or_else(text, |at| self.instances[at].name.clone())
    }

    /// A Lease, with names instead of UIDs.
    pub fn lease_in_names(&self, content: &LeaseContent) -> String {
        let names = |all: &Members| all.iter().map(|id| self.name_of(id)).collect::<Vec<_>>().join(" ");
        let rule = |rule: &Rule| {
            let count = |voters: &Voters| format!("any {} of ({})", voters.needed(), names(voters.members()));
            let voters = rule.voters.as_ref().map_or_else(|| "nobody".to_owned(), count);
            match rule.former {
                Some(leader) => format!("{voters} by {}", self.name_of(leader)),
                None => voters,
            }
        };
        let rules: Vec<_> = content.sync.rules().map(rule).collect();
        format!(
            "term {} of {}, members {}, commits wait for {}",
            content.term.map_or(0, |term| term.0),
            content.holder.map_or_else(|| "nobody".to_owned(), |holder| self.name_of(holder)),
            names(&content.members),
            rules.join(" and before ")
        )
    }
}
