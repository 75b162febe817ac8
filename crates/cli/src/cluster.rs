//! One cluster, as a command sees it through the API: what its status says, and whom its Lease names.

use std::fmt::Display;
use std::process::ExitCode;

use bellwether_api::labels;
use bellwether_api::names::Names;
use bellwether_api::v1::{Backup, InstanceStatus, PostgresCluster, PostgresClusterStatus};
use bellwether_core::contract::Leader;
use bellwether_runtime::client::{self, ClientError};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

use crate::args::Where;
use crate::exit::Exit;
use crate::{bring_up, output};

/// Does it, and says what came of it.
pub fn told<E: Display>(done: impl Future<Output = Result<String, E>>) -> ExitCode {
    concluded(async { Ok::<_, E>((done.await?, Exit::Ok)) })
}

/// The same, and what came of it is in the exit code too.
pub fn concluded<E: Display>(done: impl Future<Output = Result<(String, Exit), E>>) -> ExitCode {
    bring_up::block_on(async {
        Ok(match done.await {
            Ok((said, exit)) => {
                output::line(&said);
                exit
            }
            Err(error) => {
                output::error(&error.to_string());
                Exit::Failed
            }
        })
    })
}

/// Why nothing can be said about it.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// There is no way to the API.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The API said no.
    #[error("{0}")]
    Api(#[from] kube::Error),
    /// There is no such cluster.
    #[error("there is no cluster {cluster:?} in namespace {namespace:?}; `bellwether status -A` lists them")]
    NoCluster {
        /// Its name.
        cluster: String,
        /// Where it was looked for.
        namespace: String,
    },
    /// There is no such instance.
    #[error("there is no instance {instance:?} in namespace {namespace:?}; {}", those(there))]
    NoInstance {
        /// Its name.
        instance: String,
        /// Where it was looked for.
        namespace: String,
        /// Those that there are.
        there: Vec<String>,
    },
}

/// Those that there are, in words.
pub fn those(there: &[String]) -> String {
    if there.is_empty() { "there are none".to_owned() } else { format!("there are {}", there.join(", ")) }
}

/// A namespace, and a way to it.
pub struct Space {
    /// The way to the API.
    pub client: Client,
    /// Its name.
    pub namespace: String,
    /// Its clusters.
    pub clusters: Api<PostgresCluster>,
    /// Its backups.
    pub backups: Api<Backup>,
    leases: Api<Lease>,
}

/// One cluster.
pub struct Cluster {
    /// Its name.
    pub name: String,
    space: Space,
}

impl Space {
    /// The namespace that the command line, the context, or nobody names.
    pub async fn at(place: &Where) -> Result<Self, ClusterError> {
        let client: Client = client::for_context(place.context.as_deref()).await?;
        let namespace = place.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let clusters = Api::namespaced(client.clone(), &namespace);
        let backups = Api::namespaced(client.clone(), &namespace);
        let leases = Api::namespaced(client.clone(), &namespace);
        Ok(Self { client, clusters, backups, leases, namespace })
    }

    /// The cluster called `name`, there or not.
    pub fn cluster(self, name: &str) -> Cluster {
        Cluster { name: name.to_owned(), space: self }
    }
}

impl Cluster {
    /// The object.
    pub async fn get(&self) -> Result<PostgresCluster, ClusterError> {
        let found = self.space.clusters.get_opt(&self.name).await?;
        let missing =
            || ClusterError::NoCluster { cluster: self.name.clone(), namespace: self.space.namespace.clone() };
        found.ok_or_else(missing)
    }

    /// Its status.
    pub async fn status(&self) -> Result<PostgresClusterStatus, ClusterError> {
        Ok(self.get().await?.status.unwrap_or_default())
    }

    /// The names of its instances.
    pub async fn instances(&self) -> Result<Vec<String>, ClusterError> {
        Ok(self.status().await?.instances.into_iter().map(|instance| instance.name).collect())
    }

    /// The Lease, if there is one.
    pub async fn lease(&self) -> Result<Option<Lease>, ClusterError> {
        Ok(self.space.leases.get_opt(&Names::of(&self.name).lease()).await?)
    }

    /// Changes the Lease.
    pub async fn patch_lease(&self, patch: Value) -> Result<(), ClusterError> {
        let lease = Names::of(&self.name).lease();
        self.space.leases.patch(&lease, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Changes the cluster.
    pub async fn patch(&self, patch: Value) -> Result<(), ClusterError> {
        self.space.clusters.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Who leads, by the Lease.
    pub async fn leader(&self) -> Result<Option<String>, ClusterError> {
        Ok(self.lease().await?.as_ref().and_then(leader))
    }
}

/// Whom a Lease names.
pub fn leader(lease: &Lease) -> Option<String> {
    let text = lease.annotations().get(labels::LEADER)?;
    serde_json::from_str::<Leader>(text).ok().map(|leader| leader.instance)
}

/// What a status says of an instance.
pub fn instance<'a>(status: &'a PostgresClusterStatus, name: &str) -> Option<&'a InstanceStatus> {
    status.instances.iter().find(|instance| instance.name == name)
}

/// Why a cluster is not Ready, in its own words.
pub fn why_not_ready(status: &PostgresClusterStatus) -> String {
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    ready.map_or_else(|| "it was only just created".to_owned(), |ready| ready.message.clone())
}
