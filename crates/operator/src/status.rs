//! Writes a cluster's status: only what changed in meaning, and only to the cluster that it speaks of.

use bellwether_api::v1::{PostgresCluster, PostgresClusterStatus};
use bellwether_runtime::watch::Key;
use kube::{Resource as _, ResourceExt};
use serde_json::{Value, json};

use crate::caches::Caches;
use crate::failure::Failure;
use crate::port::{CallError, Port, Request, Resource, Verb};

/// Writes `status` if it differs from what `cluster` has. Says whether it wrote.
pub async fn write(
    port: &impl Port,
    caches: &Caches,
    key: &Key,
    cluster: &PostgresCluster,
    status: &PostgresClusterStatus,
) -> Result<bool, Failure> {
    let Some(status) = news(cluster.status.as_ref().unwrap_or(&PostgresClusterStatus::default()), status) else {
        return Ok(false);
    };
    let doing = || format!("write status of PostgresCluster {key}");
    let mut patch = json!({
        "apiVersion": PostgresCluster::api_version(&()),
        "kind": PostgresCluster::kind(&()),
        // With its UID: a cluster that was made anew meanwhile must not get its predecessor's status.
        "metadata": {"name": key.name, "uid": cluster.uid()},
    });
    patch["status"] = status;
    let (namespace, name) = (key.namespace.clone(), key.name.clone());
    let written =
        port.send(Request { resource: Resource::Cluster, namespace, name, verb: Verb::ApplyStatus(patch) }).await;
    match written {
        Ok(Some(object)) => caches.clusters.remember(object),
        // It is gone, and nobody is left to be told.
        Ok(None) | Err(CallError::Refused { code: 404, .. }) => {}
        Err(error) => return Err(Failure::of(doing(), error)),
    }
    Ok(true)
}

/// The status as it is stored, if it says something else than before. Compared in that form: times without fractions, nothing where
/// nothing is said. What is equal to begin with, as after most passes, is stored alike.
fn news(before: &PostgresClusterStatus, now: &PostgresClusterStatus) -> Option<Value> {
    if before == now {
        return None;
    }
    Some(as_json(now)).filter(|now| *now != as_json(before))
}

fn as_json(status: &PostgresClusterStatus) -> Value {
    serde_json::to_value(status).unwrap_or_default()
}
