//! Decides which of the cluster's objects are created or corrected, in the order in which they depend on each other.
//!
//! From: the objects as they should be, and as they are. Never: writes what already holds, creates what it could not look for,
//! writes to something that is being deleted (it would vanish a moment later, and with it what was built on it), or writes the
//! Lease once it exists.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_api::labels;
use bellwether_api::v1::{BackupPolicy, DurabilityMode};
use serde_json::Value;

use super::action::{Action, Effect, WaitingOn};
use super::adopt::Identity;
use super::backup::Backups;
use super::instances::Members;
use super::origin::Origin;
use super::rollout::Rollout;
use super::{certificates, endpoints, instances, volumes};
use crate::build::{self, Parent};
use crate::contract::{Archive, Effort, InstanceConfig};
use crate::fact::Fact;
use crate::fence;
use crate::object::{Desired, Kind};
use crate::observed::{Observed, Pod, PodPhase};
use crate::quantity::millis;
use crate::wal::Term;

/// Why an object that we wrote exactly so is written again.
pub(super) const DRIFTED: &str = "somebody changed it";
/// What PostgreSQL takes for the rate of a base backup, in KiB a second. Beyond it, it would refuse every backup.
const RATES: (u32, u32) = (32, 1 << 20);

/// What to create or correct.
#[derive(Clone, Debug, Default)]
pub struct Provision {
    /// In order; each needs those before it.
    pub actions: Vec<Action>,
    /// What is waited on.
    pub waiting_on: Vec<WaitingOn>,
}

/// What was decided of the cluster, and agents are told.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// Which database it is.
    pub identity: &'a Identity,
    /// What that begins as.
    pub origin: &'a Origin,
    /// Its instances.
    pub members: &'a Members,
    /// What restarts.
    pub rollout: &'a Rollout,
    /// What is backed up.
    pub backups: &'a Backups,
}

/// Everything that the cluster needs, its Secrets given.
pub fn provision(
    observed: &Observed,
    parent: &Parent<'_>,
    told: &Told<'_>,
    secrets: certificates::Certificates,
) -> Provision {
    let Told { identity, members, .. } = *told;
    let mut result = Provision::default();
    // Whoever has reported has an agent, and that is who needs them.
    let pods = observed.pods.items.values().filter(|pod| instances::ours(pod, parent) && !pod.report.is_absent());
    for desired in build::rbac::agent(parent, &may_report(members), &may_read(parent, told.origin), pods) {
        result.ensure(observed, parent, desired);
    }
    result.actions.extend(secrets.actions);
    result.waiting_on.extend(secrets.waiting_on);
    let config = build::config::config(parent, &configuration(observed, parent, told));
    let config_hash = config.hash();
    if !observed.config.is_unknown() {
        result.ensure(observed, parent, config.clone());
    }
    result.lease(observed, parent);
    for desired in build::service::services(parent) {
        result.ensure(observed, parent, desired);
    }
    if observed.pods.complete {
        let leaving = members.leave.leaving.as_ref().map(|leaving| leaving.instance.as_str());
        for desired in endpoints::endpoints(observed, parent, leaving) {
            result.ensure(observed, parent, desired);
        }
    }
    for instance in &members.wanted {
        result.instance(observed, parent, instance, &config_hash);
    }
    result.actions.extend(refresh(observed, parent, &config));
    let kept = volumes::keep(observed, parent, identity, members);
    result.actions.extend(kept);
    result.ensure(observed, parent, build::disruption_budget::disruption_budget(parent));
    result
}

impl Provision {
    fn ensure(&mut self, observed: &Observed, parent: &Parent<'_>, desired: Desired) {
        let why = match observed.object(desired.kind, &desired.name) {
            Fact::Unknown => return self.wait(WaitingOn::Sight(vec![desired.kind.to_string()])),
            Fact::Known(object) if deleting(object) => {
                return self.wait(WaitingOn::Leftovers(vec![format!("{} {}", desired.kind, desired.name)]));
            }
            Fact::Known(object) if parent.holds_in(&desired, object) => return,
            Fact::Known(object) if desired.lacks_only_owners(object) => "it has to stay for as long as its pods",
            Fact::Known(object) if desired.was_applied_to(object) => DRIFTED,
            Fact::Known(_) => "what it is made from changed",
            Fact::Absent => "the cluster needs it",
        };
        self.actions.push(Action { effect: Effect::Apply(desired), why: why.to_owned() });
    }

    fn lease(&mut self, observed: &Observed, parent: &Parent<'_>) {
        let last_term = parent.cluster.status.as_ref().and_then(|status| u64::try_from(status.term?).ok()).map(Term);
        match observed.lease {
            Fact::Known(_) => {}
            Fact::Unknown => self.wait(WaitingOn::Sight(vec![Kind::Lease.to_string()])),
            Fact::Absent => self.actions.push(Action {
                effect: Effect::Create(build::lease::lease(parent, last_term)),
                why: "agents decide by it who leads".to_owned(),
            }),
        }
    }

    /// Volumes and pod of one instance. Its pod comes last, and only when nothing that it needs is on its way out.
    fn instance(&mut self, observed: &Observed, parent: &Parent<'_>, instance: &str, config_hash: &str) {
        if !self.blocking().is_empty() {
            return;
        }
        // Who of those without a pod belongs, and who left, is what agents were told.
        if observed.config.is_unknown() {
            return self.wait(WaitingOn::Sight(vec![Kind::ConfigMap.to_string()]));
        }
        let (mut leaving, mut coming) = (vec![], vec![]);
        for role in build::volume::roles(parent) {
            match observed.volumes.get(&build::volume::name(parent, instance, role)) {
                Fact::Known(volume) if volume.terminating => leaving.push(volume.name.clone()),
                Fact::Known(_) => {}
                Fact::Unknown => return self.wait(WaitingOn::Sight(vec![Kind::PersistentVolumeClaim.to_string()])),
                Fact::Absent => {
                    coming.push(build::volume::name(parent, instance, role));
                    self.actions.push(Action {
                        effect: Effect::Create(build::volume::volume(parent, instance, role)),
                        why: format!("instance {instance} keeps its data on it"),
                    });
                }
            }
        }
        let claim = observed.volumes.get(&parent.names.data_volume(instance)).known().map(|volume| volume.uid.clone());
        match observed.pods.get(instance) {
            Fact::Unknown => self.wait(WaitingOn::Sight(vec![Kind::Pod.to_string()])),
            // Its volumes can't be removed while it uses them, nor made anew before they are removed.
            _ if !leaving.is_empty() => self.wait(WaitingOn::Volumes(leaving)),
            Fact::Known(pod) if pod.terminating => self.wait(WaitingOn::Stopping(vec![pod.name.clone()])),
            Fact::Known(_) => {}
            Fact::Absent => match claim.filter(|_| coming.is_empty()) {
                // Which claim it is on is part of the pod: what an instance is goes with its volume.
                None => self.wait(WaitingOn::Claims(coming)),
                Some(claim) => self.actions.push(Action {
                    effect: Effect::Create(build::pod::pod(parent, instance, &claim, config_hash)),
                    why: format!("spec.replicas is {}", parent.cluster.spec.replicas),
                }),
            },
        }
    }

    fn wait(&mut self, on: WaitingOn) {
        if let WaitingOn::Claims(more) = &on
            && let Some(WaitingOn::Claims(names)) =
                self.waiting_on.iter_mut().find(|on| matches!(on, WaitingOn::Claims(_)))
        {
            return names.extend(more.iter().cloned());
        }
        if !self.waiting_on.contains(&on) {
            self.waiting_on.push(on);
        }
    }

    /// A pod whose Secret is missing would sit in ContainerCreating; it is better not to make it yet.
    fn blocking(&self) -> Vec<&WaitingOn> {
        self.waiting_on.iter().filter(|on| matches!(on, WaitingOn::OwnerPassword { .. })).collect()
    }
}

/// Tells kubelets that there is a new configuration. A kubelet looks at a pod's ConfigMaps when the pod changes, and otherwise about
/// once a minute; so the hash of what there is to read is put on the pod. Not before the ConfigMap is there: looking too early, it
/// would find the old one and wait for the minute after all.
fn refresh(observed: &Observed, parent: &Parent<'_>, config: &Desired) -> Vec<Action> {
    let there = observed.object(config.kind, &config.name).known().is_some_and(|map| parent.holds_in(config, map));
    let hash = config.hash();
    let behind = |pod: &&Pod| {
        instances::ours(pod, parent)
            && !pod.terminating
            && pod.phase != PodPhase::Ended
            && pod.config_hash.as_ref() != Some(&hash)
    };
    let pods = observed.pods.items.values().filter(|_| there).filter(behind);
    pods.map(|pod| Action {
        effect: Effect::AnnotatePod {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            annotations: BTreeMap::from([(labels::CONFIG_HASH.to_owned(), hash.clone())]),
        },
        why: "its kubelet should read the new configuration now".to_owned(),
    })
    .collect()
}

/// The agents' configuration. The instance that may initialise is chosen once: while nobody leads, whoever was told that it
/// may could be in the middle of it, and telling another would make two databases.
fn configuration(observed: &Observed, parent: &Parent<'_>, decided: &Told<'_>) -> InstanceConfig {
    let Told { identity, origin, members, rollout, backups } = *decided;
    let spec = &parent.cluster.spec;
    let told = observed.config.known().map(|config| config.bootstrap_instance.clone()).filter(|name| !name.is_empty());
    let chosen = identity.primary.clone().or(told).or_else(|| members.wanted.first().cloned());
    InstanceConfig {
        parameters: spec.parameters.clone(),
        pg_hba: spec.pg_hba.clone(),
        initdb: spec.bootstrap.initdb.clone(),
        durability: Some(effective_durability(spec.durability.mode, spec.replicas)),
        instances: belong(observed, parent, members),
        leaving: match observed.config.known() {
            Some(told) if !observed.pods.complete => told.leaving.clone(),
            _ => members.leave.leaving.iter().cloned().collect(),
        },
        bootstrap_instance: chosen.unwrap_or_default(),
        system_identifier: identity.system,
        wal_volume: spec.storage.wal.is_some(),
        // All names, whether or not there are such instances: what could not be seen must not lift a fence.
        fenced: fence::wished(parent.cluster).into_iter().collect(),
        restart: rollout.restart.clone(),
        archive: spec.backup.store.clone().map(|store| Archive {
            store,
            // A cluster of the same name that is made anew has a UID of its own, and so has one that is restored from this one's archive.
            incarnation: parent.uid.clone(),
            retention: spec.backup.retention.clone(),
            effort: effort(&spec.backup),
            order: backups.order.clone(),
        }),
        recovery: origin.order().cloned(),
    }
}

/// How hard base backups are taken. What is as it is by default stays unsaid, so that nobody is told anything new for it.
fn effort(policy: &BackupPolicy) -> Effort {
    let default = BackupPolicy::default();
    let rate = policy.max_rate.as_ref().and_then(|rate| u32::try_from(millis(&rate.0)? / 1000 / 1024).ok());
    Effort {
        level: Some(policy.compression.level).filter(|level| *level != default.compression.level),
        workers: policy.compression.workers.and_then(|workers| u32::try_from(workers).ok()),
        max_rate: rate.map(|rate| rate.clamp(RATES.0, RATES.1)),
    }
}

/// The Secrets that the agents may read: what it takes to get into the cluster's own store, and until it is restored into the one that it is restored from.
fn may_read(parent: &Parent<'_>, origin: &Origin) -> Vec<String> {
    let own = parent.cluster.spec.backup.store.as_ref();
    let stores = own.into_iter().chain(origin.order().map(|order| &order.store));
    let secrets = stores.filter_map(|store| store.credentials.as_ref()).map(|secret| secret.name.clone());
    secrets.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The durability in force: as asked, or by the number of instances.
pub fn effective_durability(asked: Option<DurabilityMode>, replicas: i32) -> DurabilityMode {
    asked.unwrap_or(match replicas {
        ..=1 => DurabilityMode::Async,
        2 => DurabilityMode::Preferred,
        _ => DurabilityMode::Quorum,
    })
}

/// Whoever is not on its way out: of those that are too many, one leaves after the other. Before all pods were seen it stays as it was told.
fn belong(observed: &Observed, parent: &Parent<'_>, members: &Members) -> Vec<String> {
    if let Some(told) = observed.config.known().filter(|_| !observed.pods.complete) {
        return told.instances.clone();
    }
    let leaving = members.leave.leaving.as_ref().map(|leaving| leaving.instance.as_str());
    let mut all: Vec<_> = members.wanted.iter().chain(&members.surplus).cloned().collect();
    all.retain(|name| leaving != Some(name));
    all.sort_by_key(|name| parent.names.serial(name));
    all
}

/// Instances that are on their way out still report until they are gone.
fn may_report(members: &Members) -> Vec<String> {
    let mut names: Vec<_> = members.wanted.iter().chain(&members.surplus).cloned().collect();
    names.sort();
    names
}

fn deleting(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some_and(|at| !at.is_null())
}
