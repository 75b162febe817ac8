//! Plays PersistentVolumeClaims: a directory for each, found by the claim's UID.
//!
//! Never: one directory for two claims (a claim created again under its old name is another), a directory used by two pods at
//! once, or one removed while its claim exists, while a pod uses it, or because the API could not be asked.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::volumes;
use crate::run_as::RunAs;

/// The file in a volume's directory that says whose it is. It lies beside the data, not in it: to an agent the volume must
/// look empty.
const MARKER: &str = "claim.json";

/// Whose directory it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Marker {
    namespace: String,
    name: String,
    uid: String,
}

/// The directories below `volumes/`.
#[derive(Debug)]
pub struct Claims {
    root: PathBuf,
    user: RunAs,
    /// Which pod (UID) uses which claim (UID).
    in_use: Mutex<BTreeMap<String, String>>,
}

impl Claims {
    /// The claims with their directories below `root`.
    pub fn new(root: PathBuf, user: RunAs) -> Self {
        Self { root, user, in_use: Mutex::default() }
    }

    /// The directory that plays this claim's volume.
    pub fn directory(&self, claim: &PersistentVolumeClaim) -> PathBuf {
        self.home(claim).join("data")
    }

    fn home(&self, claim: &PersistentVolumeClaim) -> PathBuf {
        let uid = claim.uid().unwrap_or_default();
        let short = uid.get(..8).unwrap_or(&uid);
        self.root.join(format!("{}_{}_{short}", claim.namespace().unwrap_or_default(), claim.name_any()))
    }

    /// Gives the claim a directory and says so in its status, once.
    pub async fn bind(&self, client: &Client, claim: &PersistentVolumeClaim) -> Result<(), ClaimError> {
        let requested =
            claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.clone()).unwrap_or_default();
        let status = claim.status.clone().unwrap_or_default();
        let is_bound = status.phase.as_deref() == Some("Bound") && status.capacity.as_ref() == Some(&requested);
        if claim.metadata.deletion_timestamp.is_some() || (is_bound && self.directory(claim).exists()) {
            return Ok(());
        }
        self.create(claim).map_err(|source| ClaimError::Directory { path: self.home(claim), source })?;
        let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.clone());
        let status = json!({"phase": "Bound", "accessModes": modes, "capacity": requested});
        let patch = json!({"metadata": {"uid": claim.uid()}, "status": status});
        let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &claim.namespace().unwrap_or_default());
        api.patch_status(&claim.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    fn create(&self, claim: &PersistentVolumeClaim) -> io::Result<()> {
        let home = self.home(claim);
        fs::create_dir_all(&home)?;
        let uid = claim.uid().unwrap_or_default();
        let marker = Marker { namespace: claim.namespace().unwrap_or_default(), name: claim.name_any(), uid };
        fs::write(home.join(MARKER), serde_json::to_vec_pretty(&marker)?)?;
        volumes::create_directory(&home.join("data"), &self.user)
    }

    /// Takes the claims for a pod, all or none. Returns the pod that has one of them, if there is one.
    pub fn acquire(&self, pod: &str, claims: &[String]) -> Result<(), String> {
        let mut in_use = self.in_use.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(other) = claims.iter().filter_map(|claim| in_use.get(claim)).find(|user| *user != pod) {
            return Err(other.clone());
        }
        in_use.extend(claims.iter().map(|claim| (claim.clone(), pod.to_owned())));
        Ok(())
    }

    /// Gives up all claims of a pod whose processes have ended.
    pub fn release(&self, pod: &str) {
        self.in_use.lock().unwrap_or_else(std::sync::PoisonError::into_inner).retain(|_, user| user != pod);
    }

    /// Removes the directories of claims that are gone.
    pub async fn sweep(&self, client: &Client) {
        for (home, marker) in self.marked() {
            if self.is_used(&marker.uid) || !is_gone(client, &marker).await {
                continue;
            }
            // A pod that was about to start has asked for it meanwhile: its claim was in its copy of the world.
            if !self.is_used(&marker.uid) {
                tracing::info!(claim = marker.name, directory = %home.display(), "removing the volume of a deleted claim");
                if let Err(error) = remove(&home) {
                    tracing::warn!(%error, directory = %home.display(), "a deleted claim's volume could not be removed");
                }
            }
        }
    }

    fn is_used(&self, claim: &str) -> bool {
        self.in_use.lock().unwrap_or_else(std::sync::PoisonError::into_inner).contains_key(claim)
    }

    fn marked(&self) -> Vec<(PathBuf, Marker)> {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let marked = entries.filter_map(|entry| {
            let text = fs::read(entry.path().join(MARKER)).ok()?;
            Some((entry.path(), serde_json::from_slice(&text).ok()?))
        });
        marked.collect()
    }
}

/// Why a claim could not be bound.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// No directory.
    #[error("creating the volume {}: {source}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The API said no.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// Whether the API, asked now, says that this very claim doesn't exist. No answer is not a yes.
async fn is_gone(client: &Client, marker: &Marker) -> bool {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &marker.namespace);
    match api.get_opt(&marker.name).await {
        Ok(found) => found.and_then(|claim| claim.uid()) != Some(marker.uid.clone()),
        Err(_) => false,
    }
}

/// The marker goes last, so that a removal cut short is taken up again.
fn remove(home: &Path) -> io::Result<()> {
    let data = home.join("data");
    if data.exists() {
        fs::remove_dir_all(data)?;
    }
    fs::remove_dir_all(home)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_has_one_user_at_a_time() {
        let user = RunAs { name: "me".into(), uid: 0, gid: 0, switch: false };
        let claims = Claims::new(PathBuf::from("/nowhere"), user);
        let volume = vec!["claim-1".to_owned()];
        claims.acquire("pod-a", &volume).unwrap();
        claims.acquire("pod-a", &volume).unwrap();
        assert_eq!(claims.acquire("pod-b", &volume), Err("pod-a".to_owned()));
        claims.release("pod-a");
        claims.acquire("pod-b", &volume).unwrap();
    }
}
