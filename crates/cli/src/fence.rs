//! `bellwether fence` and `bellwether unfence`: PostgreSQL on one instance stopped until further notice, and started again.
//!
//! The wish is an annotation on the `PostgresCluster`, which the operator carries to the agents: it outlives every process, RBAC says who may
//! write it, and the API's audit log who did. Never: fences an instance that is not there; changes what others wrote into the same
//! annotation meanwhile.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bellwether_api::labels;
use bellwether_api::v1::{DurabilityMode, InstanceState, PostgresCluster, PostgresClusterStatus};
use bellwether_core::fence;
use kube::ResourceExt;
use serde_json::json;

use crate::args::{Fence, Unfence, Where};
use crate::cluster::{self, Cluster, ClusterError, Space, told};
use crate::consent::{self, NoConsent, Word};

/// How long it may take until PostgreSQL is stopped, or runs again. A kubelet may take its time to pass a configuration on.
const WITHIN: Duration = Duration::from_secs(120);
/// How long another may take to lead once a fenced primary has stopped: an election with its waits takes half of it.
const ANOTHER_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often a write is tried that others keep preventing.
const ATTEMPTS: u32 = 5;

/// Why it did not come to that.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    NoConsent(#[from] NoConsent),
    #[error("others keep changing {cluster}: nothing was written; try again")]
    Contended { cluster: String },
    #[error(
        "{instance} is recorded as fenced, but is still {state:?} after {} s: is an operator running, and is its pod? The wish stays; \
         `bellwether unfence {instance}` withdraws it",
        WITHIN.as_secs()
    )]
    NotFollowed { instance: String, state: InstanceState },
}

/// Fences.
pub fn run(options: &Fence) -> ExitCode {
    told(async { fence(options).await })
}

/// Lifts it.
pub fn lift(options: &Unfence) -> ExitCode {
    told(async { unfence(options).await })
}

async fn fence(options: &Fence) -> Result<String, Refused> {
    let name = &options.instance;
    let (cluster, object) = find(&options.place, name, |object| has_instance(object, name)).await?;
    if fence::wished(&object).contains(name) {
        return Ok(format!("{name} is fenced already; `bellwether unfence {name}` lifts that"));
    }
    let led = cluster.leader().await?.as_ref() == Some(name);
    consent::ask(&consequence(name, &object, led), Word::Yes, options.yes)?;
    wish(&cluster, |names| {
        names.insert(name.clone());
    })
    .await?;
    let began = Instant::now();
    let mut stopped = None;
    loop {
        let status = cluster.status().await?;
        let state = cluster::instance(&status, name).map(|instance| instance.state).unwrap_or_default();
        if state == InstanceState::Fenced {
            let stopped = *stopped.get_or_insert_with(Instant::now);
            if !led {
                return Ok(format!("{name} is fenced: its PostgreSQL is stopped"));
            }
            let other = status.instances.iter().find(|other| other.state == InstanceState::Leading && other.ready);
            if let Some(other) = other {
                return Ok(format!("{name} is fenced: its PostgreSQL is stopped, and {} leads", other.name));
            }
            if stopped.elapsed() > ANOTHER_WITHIN {
                let why = cluster::why_not_ready(&status);
                return Ok(format!("{name} is fenced: its PostgreSQL is stopped, and nobody leads: {why}"));
            }
        } else if began.elapsed() > WITHIN {
            return Err(Refused::NotFollowed { instance: name.clone(), state });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn unfence(options: &Unfence) -> Result<String, Refused> {
    let name = &options.instance;
    let known = |object: &PostgresCluster| has_instance(object, name) || fence::wished(object).contains(name);
    let (cluster, object) = find(&options.place, name, known).await?;
    if !fence::wished(&object).contains(name) {
        return Ok(format!("{name} is not fenced"));
    }
    wish(&cluster, |names| {
        names.remove(name);
    })
    .await?;
    let began = Instant::now();
    loop {
        let status = cluster.status().await?;
        let Some(instance) = cluster::instance(&status, name) else {
            return Ok(format!("{name} is no longer to be fenced; {} has no such instance", cluster.name));
        };
        let runs = matches!(instance.state, InstanceState::Leading | InstanceState::Streaming) && instance.ready;
        if runs || began.elapsed() > WITHIN {
            return Ok(format!("{name} is no longer fenced: it is {:?}", instance.state));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn has_instance(object: &PostgresCluster, name: &str) -> bool {
    object.status.as_ref().is_some_and(|status| cluster::instance(status, name).is_some())
}

/// The cluster that an instance belongs to.
async fn find(
    place: &Where,
    name: &str,
    known: impl Fn(&PostgresCluster) -> bool,
) -> Result<(Cluster, PostgresCluster), Refused> {
    let space = Space::at(place).await?;
    let all = space.clusters.list(&Default::default()).await.map_err(ClusterError::from)?.items;
    match all.iter().find(|object| known(object)) {
        Some(object) => Ok((space.cluster(&object.name_any()), object.clone())),
        None => {
            let statuses = all.into_iter().filter_map(|object| object.status);
            let there = statuses.flat_map(|status| status.instances).map(|instance| instance.name).collect();
            Err(ClusterError::NoInstance { instance: name.to_owned(), namespace: space.namespace, there }.into())
        }
    }
}

/// Changes the annotation as it is at this very moment, and no other.
async fn wish(cluster: &Cluster, change: impl Fn(&mut std::collections::BTreeSet<String>)) -> Result<(), Refused> {
    for _ in 0..ATTEMPTS {
        let object = cluster.get().await?;
        let mut names = fence::wished(&object);
        change(&mut names);
        let patch = json!({"metadata": {
            "resourceVersion": object.resource_version(),
            "annotations": {labels::FENCED: fence::written(&names)},
        }});
        match cluster.patch(patch).await {
            Err(ClusterError::Api(kube::Error::Api(status))) if status.code == 409 => {}
            done => return Ok(done?),
        }
    }
    Err(Refused::Contended { cluster: cluster.name.clone() })
}

/// What fencing means, in words.
fn consequence(name: &str, object: &PostgresCluster, leads: bool) -> String {
    let cluster = object.name_any();
    let none = PostgresClusterStatus::default();
    let status = object.status.as_ref().unwrap_or(&none);
    let streams = |other: &str| {
        other != name
            && cluster::instance(status, other)
                .is_some_and(|other| other.state == InstanceState::Streaming && other.ready)
    };
    let left: Vec<_> =
        status.instances.iter().map(|other| other.name.as_str()).filter(|other| streams(other)).collect();
    let mut said = vec![];
    if leads && left.is_empty() {
        said.push(format!("{name} leads {cluster}, and no standby streams: {cluster} will accept no writes."));
    } else if leads {
        said.push(format!(
            "{name} leads {cluster}. It shuts down, and the best of {} takes over; if none has everything, {cluster} accepts no writes.",
            left.join(", ")
        ));
    } else {
        said.push(format!("{name} is no primary. Its PostgreSQL is stopped; writes to {cluster} go on."));
    }
    // One of those that are left will lead, where the primary goes.
    let standbys = if leads { left.len().saturating_sub(1) } else { left.len() };
    let needed = status.instances.len().saturating_sub(1).div_ceil(2);
    if status.durability == Some(DurabilityMode::Quorum) && standbys < needed && !(leads && left.is_empty()) {
        said.push(format!(
            "Commits will wait: durability quorum needs {needed} streaming standbys, and {standbys} will be left."
        ));
    }
    said.push(format!(
        "It stays so, across restarts, until `bellwether unfence {name}`. Its agent goes on, and its volume is not touched."
    ));
    said.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(states: &[&str]) -> PostgresCluster {
        let instances: Vec<_> = states
            .iter()
            .enumerate()
            .map(|(index, state)| json!({"name": format!("demo-{}", index + 1), "state": state, "ready": true}))
            .collect();
        serde_json::from_value(json!({
            "apiVersion": "bellwether.dev/v1", "kind": "PostgresCluster", "metadata": {"name": "demo"}, "spec": {},
            "status": {"durability": "quorum", "instances": instances},
        }))
        .unwrap()
    }

    #[test]
    fn who_leads_and_whether_commits_will_wait_is_said_before() {
        let three = cluster(&["Leading", "Streaming", "Streaming"]);
        let standby = consequence("demo-2", &three, false);
        assert!(standby.contains("writes to demo go on") && !standby.contains("Commits will wait"), "{standby}");
        let primary = consequence("demo-1", &three, true);
        assert!(primary.contains("the best of demo-2, demo-3 takes over"), "{primary}");
        let last = consequence("demo-2", &cluster(&["Leading", "Streaming", "Fenced"]), false);
        assert!(last.contains("Commits will wait"), "{last}");
        let alone = consequence("demo-1", &cluster(&["Leading", "Fenced", "NotStreaming"]), true);
        assert!(alone.contains("will accept no writes"), "{alone}");
    }
}
