//! What every pod's worker shares: the copies of objects, the addresses, the volumes, the means to start processes.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bellwether_core::contract::{AGENT_PORT, PEER_PORT, POSTGRES_PORT};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use kube::{Client, ResourceExt};
use tokio::sync::watch;

use super::claims::Claims;
use super::environment::{Lookup, Unresolved};
use super::nodes;
use crate::mirror::Mirror;
use crate::range::{Pool, Range};
use crate::run_as::RunAs;
use crate::spawn::Spawner;

/// Makes a kubeconfig for a service account, by namespace and name.
pub type Credentials = Arc<dyn Fn(&str, &str) -> io::Result<String> + Send + Sync>;

/// What workers share.
pub struct Context {
    /// A client that may do what a kubelet may.
    pub client: Client,
    /// The data directory: the mark of our processes.
    pub home: PathBuf,
    /// Where pods' directories are.
    pub pods: PathBuf,
    /// Where logs are.
    pub logs: PathBuf,
    /// Our binary, where pods can run it.
    pub binary: PathBuf,
    /// Whom processes run as.
    pub user: RunAs,
    /// What starts processes.
    pub spawner: Spawner,
    /// Kubeconfigs for pods.
    pub credentials: Credentials,
    /// The volumes.
    pub claims: Claims,
    /// The addresses.
    pub range: Range,
    /// Copies of the objects that pods refer to.
    pub secrets: Mirror<Secret>,
    /// See `secrets`.
    pub config_maps: Mirror<ConfigMap>,
    /// See `secrets`.
    pub volume_claims: Mirror<PersistentVolumeClaim>,
    /// Which pod (UID) has which address.
    pub addresses: Mutex<(Pool, BTreeMap<String, Ipv4Addr>)>,
}

impl Context {
    /// The objects that a pod may refer to.
    pub fn lookup<'a>(&'a self, pod: &Pod) -> impl Lookup + use<'a> {
        Namespace { context: self, name: pod.namespace().unwrap_or_default() }
    }

    /// Announces changes of objects that pods refer to, from now on.
    pub fn changes(&self) -> Changes {
        Changes([self.secrets.ticks(), self.config_maps.ticks(), self.volume_claims.ticks()])
    }

    /// The UID of a claim that is bound.
    pub fn claim_uid(&self, pod: &Pod, name: &str) -> Result<String, Unresolved> {
        Ok(self.claim(pod, name)?.uid().unwrap_or_default())
    }

    /// The directory of a claim that is bound.
    pub fn claim_directory(&self, pod: &Pod, name: &str) -> Result<PathBuf, Unresolved> {
        Ok(self.claims.directory(&*self.claim(pod, name)?))
    }

    fn claim(&self, pod: &Pod, name: &str) -> Result<Arc<PersistentVolumeClaim>, Unresolved> {
        let claim = self.volume_claims.get(&pod.namespace().unwrap_or_default(), name);
        let is_bound = |claim: &Arc<PersistentVolumeClaim>| {
            claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
                && claim.metadata.deletion_timestamp.is_none()
        };
        claim.filter(is_bound).ok_or_else(|| Unresolved::Claim { name: name.to_owned() })
    }

    /// An address for a pod: the one it had before if that is free, and never one on which somebody listens.
    pub fn pod_address(&self, uid: &str, before: Option<Ipv4Addr>) -> Option<Ipv4Addr> {
        let mut guard = self.addresses.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (pool, given) = &mut *guard;
        let mut used: std::collections::BTreeSet<_> = given.values().copied().collect();
        let mut candidate = before.filter(|address| self.range.holds(*address) && !used.contains(address));
        loop {
            let address = candidate.take().or_else(|| pool.next_free(|address| used.contains(&address)))?;
            if [POSTGRES_PORT, AGENT_PORT, PEER_PORT].iter().all(|port| TcpListener::bind((address, *port)).is_ok()) {
                given.insert(uid.to_owned(), address);
                return Some(address);
            }
            used.insert(address);
        }
    }

    /// Gives a pod's address back.
    pub fn release_address(&self, uid: &str) {
        self.addresses.lock().unwrap_or_else(std::sync::PoisonError::into_inner).1.remove(uid);
    }

    /// The address of a node.
    pub fn node_address(&self, node: &str) -> Ipv4Addr {
        self.range.node(nodes::number(node).unwrap_or(0))
    }

    /// A pod's directory. Its name is short, because PostgreSQL's socket lies below it.
    pub fn pod_directory(&self, uid: &str) -> PathBuf {
        self.pods.join(uid.get(..8).unwrap_or(uid))
    }
}

/// A pod's namespace, as its references see it.
struct Namespace<'a> {
    context: &'a Context,
    name: String,
}

impl Lookup for Namespace<'_> {
    fn secret(&self, name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
        let secret = self.context.secrets.get(&self.name, name)?;
        Some(secret.data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone())).collect())
    }
    fn config_map(&self, name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
        let map = self.context.config_maps.get(&self.name, name)?;
        let text = map.data.iter().flatten().map(|(key, value)| (key.clone(), value.clone().into_bytes()));
        let binary = map.binary_data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone()));
        Some(text.chain(binary).collect())
    }
}

/// Changes of Secrets, ConfigMaps and claims.
pub struct Changes([watch::Receiver<u64>; 3]);

impl Changes {
    /// Resolves at the next change of any of them.
    pub async fn any(&mut self) {
        let [secrets, config_maps, claims] = &mut self.0;
        tokio::select! {
            _ = secrets.changed() => {}
            _ = config_maps.changed() => {}
            _ = claims.changed() => {}
        }
    }
}
