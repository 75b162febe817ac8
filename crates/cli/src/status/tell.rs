//! Decides what is said of a cluster, from what the operator wrote down, what the kubelets say and what the agents answered.
//!
//! An agent's own word goes before the operator's; where there is none, it is said that what stands there is the operator's last word, and why. Never:
//! ready on a word that an agent contradicts, or that nobody could confirm because the primary does not answer.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_api::labels;
use bellwether_api::reason::Reason;
use bellwether_api::v1::{InstanceRole, InstanceState, InstanceStatus, PostgresCluster, PostgresClusterStatus};
use bellwether_core::contract::Detail;
use bellwether_core::election::{MemberId, Span, Sync};
use bellwether_core::instance::probe;
use bellwether_core::lease_object;
use bellwether_core::object::Kind;
use bellwether_core::observed::Observed;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::Value;

use super::report::{
    BackupReport, ClusterReport, ConditionReport, Durability, InstanceReport, OperationReport, Readiness, Replicas,
    Source, StatusAge, VERSION,
};
use crate::ask::Answer;

/// What was seen.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// When.
    pub at: Timestamp,
    /// The cluster.
    pub cluster: &'a PostgresCluster,
    /// What is around it.
    pub observed: &'a Observed,
    /// The Lease as it is stored.
    pub lease: Option<&'a Value>,
    /// The kinds that could not be listed.
    pub unseen: &'a BTreeMap<Kind, String>,
    /// What the agents said.
    pub answers: &'a BTreeMap<String, Answer>,
}

/// Tells it.
pub fn tell(seen: Seen<'_>) -> ClusterReport {
    let none = PostgresClusterStatus::default();
    let status = seen.cluster.status.as_ref().unwrap_or(&none);
    let sync = seen.lease.and_then(|lease| lease_object::read(lease, Span(0)).ok()).map(|view| view.content.sync);
    let instances = instances(seen, status, sync.as_ref());
    let leads = instances.iter().find(|one| one.source == Source::Agent && one.state == InstanceState::Leading);
    let primary = leads.map(|leader| leader.name.clone()).or_else(|| status.primary.clone());
    let said = primary.as_ref().and_then(|primary| seen.answers.get(primary)).and_then(Answer::said);
    let term = leads.and(said).and_then(|detail| detail.report.term);
    let version = said.and_then(|detail| detail.report.postgres_version.clone());
    ClusterReport {
        kind: "ClusterStatus",
        version: VERSION,
        at: Timestamp::from_second(seen.at.as_second()).unwrap_or(seen.at),
        namespace: seen.cluster.namespace().unwrap_or_default(),
        name: seen.cluster.name_any(),
        ready: readiness(seen, status, &instances),
        phase: status.phase,
        postgres_version: version.unwrap_or_else(|| seen.cluster.spec.version.clone()),
        term: term.or_else(|| status.term.and_then(|term| u64::try_from(term).ok())),
        replicas: Replicas {
            wanted: seen.cluster.spec.replicas,
            known: instances.len(),
            ready: instances.iter().filter(|instance| instance.ready).count(),
            confirmed: instances.iter().filter(|one| one.ready && one.source == Source::Agent).count(),
        },
        durability: durability(seen, status, sync.as_ref(), said),
        primary,
        instances,
        operation: status.operation.as_ref().map(|operation| OperationReport {
            kind: operation.kind,
            step: operation.step,
            since: operation.since.0,
            waiting_on: operation.waiting_on.clone(),
        }),
        conditions: conditions(status),
        backups: backups(seen.cluster, status),
        status: age(seen.cluster, status),
        unseen: seen.unseen.iter().map(|(kind, why)| format!("{kind}: {why}")).collect(),
    }
}

/// Every instance that the operator, a pod or an agent knows of.
fn instances(seen: Seen<'_>, status: &PostgresClusterStatus, sync: Option<&Sync>) -> Vec<InstanceReport> {
    let known = status.instances.iter().map(|instance| instance.name.as_str());
    let names: BTreeSet<&str> = known.chain(seen.observed.pods.items.keys().map(String::as_str)).collect();
    let mut names: Vec<_> = names.into_iter().collect();
    // demo-10 comes after demo-9.
    names.sort_by_key(|name| (seen.observed.names.serial(name), *name));
    let written =
        seen.answers.values().filter_map(Answer::said).find(|detail| leads(detail)).and_then(|detail| detail.lsn);
    let told = names.into_iter().map(|name| {
        let word = status.instances.iter().find(|instance| instance.name == name);
        let told = match seen.answers.get(name) {
            Some(Answer::Said(detail)) => by_agent(name, detail, word, written, sync),
            // One that should answer and doesn't is not ready, whatever was written down of it.
            Some(Answer::Silent(why)) => InstanceReport { ready: false, ..by_status(name, word, why.clone()) },
            Some(Answer::NotAsked(why)) => by_status(name, word, why.clone()),
            None if !seen.unseen.contains_key(&Kind::Pod) => {
                InstanceReport { ready: false, ..by_status(name, word, "it has no pod".to_owned()) }
            }
            None => by_status(name, word, "its pod could not be looked at".to_owned()),
        };
        let node = seen.observed.pods.items.get(name).and_then(|pod| pod.node.clone());
        InstanceReport { node: node.or_else(|| word.and_then(|word| word.node.clone())), ..told }
    });
    told.collect()
}

fn leads(detail: &Detail) -> bool {
    detail.report.state == InstanceState::Leading && detail.report.accepts_sql
}

fn by_agent(
    name: &str,
    detail: &Detail,
    word: Option<&InstanceStatus>,
    written: Option<bellwether_core::wal::Lsn>,
    sync: Option<&Sync>,
) -> InstanceReport {
    let report = &detail.report;
    let standby = report.role == Some(InstanceRole::Standby);
    let streams = matches!(report.state, InstanceState::Streaming | InstanceState::CatchingUp);
    let behind = written.zip(detail.lsn).map(|(written, replayed)| written.ahead_of(replayed));
    let runs = !matches!(report.state, InstanceState::Fenced | InstanceState::Down | InstanceState::Pending);
    let identity = report.identity.as_deref().and_then(MemberId::from_uid);
    InstanceReport {
        name: name.to_owned(),
        source: Source::Agent,
        unasked: None,
        role: report.role,
        state: report.state,
        ready: probe::ready(report).is_ok(),
        timeline: report.timeline.map(|timeline| i64::from(timeline.0)),
        // Of a server that does not run, the agent remembers where it was.
        lsn: detail.lsn.filter(|_| runs).map(|lsn| lsn.to_string()),
        lag_bytes: behind.or(detail.lag_bytes).filter(|_| standby && runs),
        lag_seconds: detail.lag_seconds.filter(|_| standby && streams),
        position_age_seconds: detail.age_seconds.filter(|_| runs),
        synchronous: identity.zip(sync).filter(|_| standby).map(|(identity, sync)| sync.counts_on(identity)),
        node: None,
        message: report.message.clone(),
        status_says: word.map(|word| word.state).filter(|state| *state != report.state),
    }
}

/// The operator's last word.
fn by_status(name: &str, word: Option<&InstanceStatus>, why: String) -> InstanceReport {
    InstanceReport {
        name: name.to_owned(),
        source: Source::Status,
        unasked: Some(why),
        role: word.and_then(|word| word.role),
        state: word.map(|word| word.state).unwrap_or_default(),
        ready: word.is_some_and(|word| word.ready),
        timeline: word.and_then(|word| word.timeline),
        lsn: None,
        lag_bytes: None,
        lag_seconds: None,
        position_age_seconds: None,
        synchronous: None,
        node: None,
        message: word.and_then(|word| word.message.clone()),
        status_says: None,
    }
}

/// Whether it serves: the operator must say so, and no agent otherwise.
fn readiness(seen: Seen<'_>, status: &PostgresClusterStatus, instances: &[InstanceReport]) -> Readiness {
    let not =
        |why: String, runbook: Option<String>| Readiness { ready: false, confirmed: false, why: Some(why), runbook };
    let named = |reason: Reason| Some(reason.to_string());
    if seen.cluster.metadata.deletion_timestamp.is_some() {
        return not("it is being deleted".to_owned(), named(Reason::Deleting));
    }
    let Some(ready) = status.conditions.iter().find(|condition| condition.type_ == "Ready") else {
        return not("no operator has said anything of it yet: is one running?".to_owned(), named(Reason::Provisioning));
    };
    let leader = instances.iter().find(|one| one.source == Source::Agent && one.state == InstanceState::Leading);
    if ready.status != "True" {
        let served = leader.filter(|leader| leader.ready).map(|leader| {
            format!(" ({} says that it leads and answers, which the operator has yet to see)", leader.name)
        });
        return not(format!("{}{}", ready.message, served.unwrap_or_default()), Some(ready.reason.clone()));
    }
    let waits =
        leader.and_then(|leader| seen.answers.get(&leader.name)?.said()).is_some_and(|said| said.report.commits_wait);
    match leader {
        Some(leader) if waits => {
            let why = format!("{} leads, and commits wait for standbys; the operator has yet to say so", leader.name);
            return not(why, named(Reason::NoSynchronousStandby));
        }
        Some(leader) if leader.ready => return Readiness { ready: true, confirmed: true, why: None, runbook: None },
        Some(leader) => {
            let said = leader.message.as_deref().unwrap_or("it does not say why");
            return not(format!("{} leads but does not answer SQL: {said}", leader.name), named(Reason::NoPrimary));
        }
        None => {}
    }
    let primary = status.primary.as_deref().unwrap_or_default();
    match seen.answers.get(primary) {
        Some(Answer::Said(detail)) => {
            let why = format!(
                "the operator's last word is that {primary} leads; its agent says that it is {:?}",
                detail.report.state
            );
            not(why, named(Reason::NoPrimary))
        }
        Some(Answer::Silent(why)) => not(
            format!("{primary} leads by the operator's last word, and its agent does not answer: {why}"),
            named(Reason::NoPrimary),
        ),
        Some(Answer::NotAsked(why)) => {
            Readiness { ready: true, confirmed: false, why: Some(why.clone()), runbook: None }
        }
        None if seen.unseen.contains_key(&Kind::Pod) => {
            let why = "its pods could not be looked at".to_owned();
            Readiness { ready: true, confirmed: false, why: Some(why), runbook: None }
        }
        None => not(
            format!("the operator's last word is that {primary} leads, and it has no pod"),
            named(Reason::NoPrimary),
        ),
    }
}

fn durability(
    seen: Seen<'_>,
    status: &PostgresClusterStatus,
    sync: Option<&Sync>,
    primary: Option<&Detail>,
) -> Durability {
    let name_of = |id: MemberId| {
        let has = |answer: &Answer| {
            let report = answer.said().map(|detail| detail.report.identity.clone());
            report.flatten().and_then(|identity| MemberId::from_uid(&identity)) == Some(id)
        };
        let asked = seen.answers.iter().find(|(_, answer)| has(answer)).map(|(name, _)| name.clone());
        let reported = || {
            let pods = seen.observed.pods.items.values();
            pods.filter(|pod| {
                let identity = pod.report.known().and_then(|report| report.identity.as_deref());
                identity.and_then(MemberId::from_uid) == Some(id)
            })
            .map(|pod| pod.name.clone())
            .next()
        };
        asked.or_else(reported).unwrap_or_else(|| "one that is gone".to_owned())
    };
    let voters = sync.and_then(Sync::newest);
    let mut of: Vec<_> = voters.into_iter().flat_map(|voters| voters.members().iter()).map(name_of).collect();
    of.sort();
    Durability {
        mode: status.durability,
        needed: sync.map(|_| voters.map_or(0, bellwether_core::election::Voters::needed)),
        of,
        changing: sync.is_some_and(Sync::is_joint),
        commits_wait: primary.is_some_and(|detail| detail.report.commits_wait),
    }
}

fn conditions(status: &PostgresClusterStatus) -> Vec<ConditionReport> {
    let told = status.conditions.iter().map(|condition| ConditionReport {
        type_: condition.type_.clone(),
        status: condition.status.clone(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        since: condition.last_transition_time.0,
    });
    told.collect()
}

fn backups(cluster: &PostgresCluster, status: &PostgresClusterStatus) -> BackupReport {
    let archiving = status.conditions.iter().find(|condition| condition.type_ == "Archiving");
    BackupReport {
        store: cluster.spec.backup.store.is_some(),
        last: status.last_backup.as_ref().map(|at| at.0),
        last_verified: status.last_verified_backup.as_ref().map(|at| at.0),
        archiving: archiving.map(|condition| condition.status.clone()),
        recoverable_from: status.recoverable_from.as_ref().map(|at| at.0),
        recoverable_to: status.recoverable_to.as_ref().map(|at| at.0),
    }
}

/// When the status was last written, by the API server's own account of who wrote what.
fn age(cluster: &PostgresCluster, status: &PostgresClusterStatus) -> StatusAge {
    let fields = cluster.metadata.managed_fields.iter().flatten();
    let of_status = fields.filter(|entry| entry.manager.as_deref() == Some(labels::STATUS_MANAGER));
    StatusAge {
        written: of_status.filter_map(|entry| entry.time.as_ref()).map(|at| at.0).max(),
        observed_generation: status.observed_generation,
        generation: cluster.metadata.generation,
    }
}
