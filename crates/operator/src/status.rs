//! Writes a cluster's status: only what changed in meaning, and only to the cluster that it speaks of.

use bellwether_api::labels;
use bellwether_api::v1::{PostgresCluster, PostgresClusterStatus};
use bellwether_runtime::client::within;
use bellwether_runtime::watch::Key;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};

use crate::caches::Caches;
use crate::failure::Failure;

/// Writes `status` if it differs from what `cluster` has. Says whether it wrote.
pub async fn write(
    client: &Client,
    caches: &Caches,
    key: &Key,
    cluster: &PostgresCluster,
    status: &PostgresClusterStatus,
) -> Result<bool, Failure> {
    if as_json(cluster.status.as_ref().unwrap_or(&PostgresClusterStatus::default())) == as_json(status) {
        return Ok(false);
    }
    let doing = || format!("write status of PostgresCluster {key}");
    let patch = json!({
        "apiVersion": PostgresCluster::api_version(&()),
        "kind": PostgresCluster::kind(&()),
        // With its UID: a cluster that was made anew meanwhile must not get its predecessor's status.
        "metadata": {"name": key.name, "uid": cluster.uid()},
        "status": status,
    });
    let api: Api<kube::api::DynamicObject> =
        Api::namespaced_with(client.clone(), &key.namespace, &caches.clusters.resource);
    let params = PatchParams::apply(labels::STATUS_MANAGER).force();
    let patch = Patch::Apply(&patch);
    let written =
        within(api.patch_status(&key.name, &params, &patch)).await.map_err(|late| Failure::late(doing(), late))?;
    match written {
        Ok(object) => caches.clusters.remember(object),
        // It is gone, and nobody is left to be told.
        Err(kube::Error::Api(answer)) if answer.code == 404 => {}
        Err(error) => return Err(Failure::of(doing(), &error)),
    }
    Ok(true)
}

/// Compared as it is stored: times without fractions, nothing where nothing is said.
fn as_json(status: &PostgresClusterStatus) -> Value {
    serde_json::to_value(status).unwrap_or_default()
}
