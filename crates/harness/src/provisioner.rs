//! Dynamic local volumes: gives each claim that the scheduler has placed a volume on that node, grows it when the claim
//! grows, and deletes it when it is released.
//!
//! Runs as a component of the control plane (`harness serve-volumes`), with no more rights than it uses. Every pass looks at
//! all claims and volumes; events only say when. Never: a volume is deleted that a claim is bound to, or whose policy is to
//! be kept.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::Error;
use crate::layout::Node;
use crate::pki::kubeconfig_of;
use crate::volume::Volume;

/// The name in the StorageClass.
const PROVISIONER: &str = "harness.bellwether.dev/local";
/// Kubernetes writes on each claim whose class names a provisioner, which one that is.
const MEANT_FOR: &str = "volume.kubernetes.io/storage-provisioner";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// A pass also happens without an event: what failed is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Why a pass ended early.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Kubernetes(#[from] kube::Error),
    #[error("{0}")]
    Volume(#[from] Error),
    #[error("{0}")]
    Claim(String),
}

/// Serves until it is killed. `say` gets what it does and what fails.
pub fn serve(say: &dyn Fn(&str)) -> Result<(), Error> {
    let failed = |error: &dyn std::fmt::Display| Error::Refused(format!("volume provisioner: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| failed(&error))?;
    runtime.block_on(async {
        let config = kubeconfig_of("local-volumes");
        let client = bellwether_runtime::client::from_kubeconfig(&config).await.map_err(|error| failed(&error))?;
        let claims = watcher(Api::<PersistentVolumeClaim>::all(client.clone()), watcher::Config::default());
        let volumes = watcher(Api::<PersistentVolume>::all(client.clone()), watcher::Config::default());
        let claims = claims.default_backoff().map(drop);
        let volumes = volumes.default_backoff().map(drop);
        let mut events = futures::stream::select(claims, volumes).boxed();
        loop {
            if let Err(failure) = pass(&client, say).await {
                say(&failure.to_string());
            }
            // An ended stream and a timeout mean the same: look again.
            let _ = tokio::time::timeout(AGAIN, events.next()).await;
        }
    })
}

async fn pass(client: &Client, say: &dyn Fn(&str)) -> Result<(), Failure> {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let claims = Api::<PersistentVolumeClaim>::all(client.clone()).list(&ListParams::default()).await?;
    let present = volumes.list(&ListParams::default()).await?;
    for claim in &claims {
        // One claim that can't be served must not stop the others.
        if let Err(failure) = serve_claim(client, &volumes, claim, &present.items).await {
            say(&format!("claim {}/{}: {failure}", claim.namespace().unwrap_or_default(), claim.name_any()));
        }
    }
    for volume in present.items.iter().filter(|volume| is_to_be_deleted(volume)) {
        if let Err(failure) = delete(&volumes, volume).await {
            say(&format!("volume {}: {failure}", volume.name_any()));
        }
    }
    Ok(())
}

async fn serve_claim(
    client: &Client,
    volumes: &Api<PersistentVolume>,
    claim: &PersistentVolumeClaim,
    present: &[PersistentVolume],
) -> Result<(), Failure> {
    let Some(spec) = &claim.spec else { return Ok(()) };
    let ours = claim.annotations().get(MEANT_FOR).is_some_and(|provisioner| provisioner == PROVISIONER);
    if !ours || claim.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let asked = asked(claim)?;
    if let Some(bound) = &spec.volume_name {
        let volume = present.iter().find(|volume| volume.name_any() == *bound);
        return match volume {
            Some(volume) if asked.bytes > capacity(volume)? => grow(client, volumes, claim, volume, &asked).await,
            _ => Ok(()),
        };
    }
    let Some(node) = claim.annotations().get(SELECTED_NODE) else { return Ok(()) };
    let node: Node = node.parse().map_err(Failure::Claim)?;
    let name = format!("pvc-{}", claim.uid().unwrap_or_default());
    if present.iter().any(|volume| volume.name_any() == name) {
        return Ok(());
    }
    let volume = Volume::new(node, &name);
    volume.create(asked.bytes)?;
    volumes.create(&PostParams::default(), &describe(&name, node, &volume, claim, &asked.text)).await?;
    Ok(())
}

/// A size as it was written, and in bytes.
struct Size {
    text: String,
    bytes: u64,
}

fn asked(claim: &PersistentVolumeClaim) -> Result<Size, Failure> {
    let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    let text =
        requests.and_then(|requests| requests.get("storage")).map(|quantity| quantity.0.clone()).unwrap_or_default();
    Ok(Size { bytes: bytes(&text)?, text })
}

fn capacity(volume: &PersistentVolume) -> Result<u64, Failure> {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()?.get("storage"));
    bytes(capacity.map(|quantity| quantity.0.as_str()).unwrap_or_default())
}

fn describe(name: &str, node: Node, volume: &Volume, claim: &PersistentVolumeClaim, size: &str) -> PersistentVolume {
    let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.clone()).unwrap_or_default();
    let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node.to_string()]});
    let description = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": modes,
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone()),
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": claim.namespace(), "name": claim.name_any(), "uid": claim.uid(),
            },
            "local": {"path": volume.path()},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    });
    serde_json::from_value(description).unwrap_or_default()
}

async fn grow(
    client: &Client,
    volumes: &Api<PersistentVolume>,
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    asked: &Size,
) -> Result<(), Failure> {
    let size = json!({"storage": asked.text});
    on_disk(volume)?.grow(asked.bytes)?;
    let params = PatchParams::default();
    volumes.patch(&volume.name_any(), &params, &Patch::Merge(json!({"spec": {"capacity": size}}))).await?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &claim.namespace().unwrap_or_default());
    claims.patch_status(&claim.name_any(), &params, &Patch::Merge(json!({"status": {"capacity": size}}))).await?;
    Ok(())
}

fn is_to_be_deleted(volume: &PersistentVolume) -> bool {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    let ours = volume.annotations().get(PROVISIONED_BY).map(String::as_str) == Some(PROVISIONER);
    ours && phase == Some("Released") && policy == Some("Delete")
}

async fn delete(volumes: &Api<PersistentVolume>, volume: &PersistentVolume) -> Result<(), Failure> {
    on_disk(volume)?.delete()?;
    volumes.delete(&volume.name_any(), &DeleteParams::default()).await?;
    Ok(())
}

/// The node is in the path: `…/<node>/volumes/<name>`.
fn on_disk(volume: &PersistentVolume) -> Result<Volume, Failure> {
    let name = volume.name_any();
    let path = volume.spec.as_ref().and_then(|spec| Some(spec.local.as_ref()?.path.clone())).unwrap_or_default();
    let node = Node::ALL.into_iter().find(|node| Volume::new(*node, &name).path().as_os_str() == path.as_str());
    node.map(|node| Volume::new(node, &name)).ok_or_else(|| Failure::Claim(format!("{path:?} is no path of ours")))
}

/// Whole numbers with the suffixes that people write for disks.
fn bytes(quantity: &str) -> Result<u64, Failure> {
    let digits = quantity.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match &quantity[digits.len()..] {
        "" => 1,
        "k" => 1000,
        "M" => 1000 * 1000,
        "G" => 1000 * 1000 * 1000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => 0,
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).filter(|bytes| *bytes > 0);
    number.ok_or_else(|| Failure::Claim(format!("{quantity:?} is no size that a volume can have")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(phase: &str, policy: &str, provisioner: &str) -> PersistentVolume {
        serde_json::from_value(json!({
            "metadata": {"name": "pvc-1", "annotations": {PROVISIONED_BY: provisioner}},
            "spec": {"persistentVolumeReclaimPolicy": policy},
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    #[test]
    fn only_a_released_volume_of_ours_that_need_not_be_kept_is_deleted() {
        assert!(is_to_be_deleted(&volume("Released", "Delete", PROVISIONER)));
        assert!(!is_to_be_deleted(&volume("Bound", "Delete", PROVISIONER)));
        assert!(!is_to_be_deleted(&volume("Released", "Retain", PROVISIONER)));
        assert!(!is_to_be_deleted(&volume("Released", "Delete", "somebody.else/disks")));
    }

    #[test]
    fn sizes_are_read_as_kubernetes_writes_them() {
        assert_eq!(bytes("1Gi").unwrap(), 1 << 30);
        assert_eq!(bytes("500M").unwrap(), 500_000_000);
        assert_eq!(bytes("4096").unwrap(), 4096);
        for wrong in ["", "Gi", "0", "1Xi", "99999999999Ti"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
