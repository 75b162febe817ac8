//! `bellwether switchover`: asks the primary to hand over, and waits until another leads.
//!
//! The request is an annotation on the cluster's Lease, which the agents watch. The primary decides: it stops only for a standby that streams
//! closely, and resumes if that one fails. Never: a request left behind that nobody followed.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bellwether_api::labels;
use bellwether_api::names::Names;
use bellwether_api::v1::PostgresCluster;
use bellwether_core::contract::Leader;
use bellwether_core::instance::switchover::ANY;
use bellwether_core::lease_object::SWITCHOVER;
use bellwether_runtime::client::{self, ClientError};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::args::Switchover;
use crate::bring_up;
use crate::exit::Exit;
use crate::output;

/// How long another may take to lead. A switchover takes less than a second; a shutdown with many dirty pages takes longer.
const WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Why it did not come to that.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("there is no cluster {cluster:?} in namespace {namespace:?}; `kubectl get pgc -A` lists them")]
    NoCluster { cluster: String, namespace: String },
    #[error("{cluster} has no primary to hand over: {why}")]
    NoPrimary { cluster: String, why: String },
    #[error("{cluster} has no instance {wanted:?}; there are {}", there.join(", "))]
    NoInstance { cluster: String, wanted: String, there: Vec<String> },
    #[error("{primary} still leads after {} s, and the request is withdrawn: {why}", WITHIN.as_secs())]
    NotFollowed { primary: String, why: String },
}

/// Runs it.
pub fn run(options: &Switchover) -> ExitCode {
    bring_up::block_on(async {
        Ok(match ask(options).await {
            Ok(said) => {
                output::line(&said);
                Exit::Ok
            }
            Err(error) => {
                output::error(&error.to_string());
                Exit::Failed
            }
        })
    })
}

struct Cluster<'a> {
    name: &'a str,
    namespace: String,
    clusters: Api<PostgresCluster>,
    leases: Api<Lease>,
}

async fn ask(options: &Switchover) -> Result<String, Refused> {
    let client: Client = client::for_context(options.context.as_deref()).await?;
    let namespace = options.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let cluster = Cluster {
        name: &options.cluster,
        clusters: Api::namespaced(client.clone(), &namespace),
        leases: Api::namespaced(client, &namespace),
        namespace,
    };
    let before = cluster.leader().await?;
    let there = cluster.instances().await?;
    if let Some(wanted) = &options.to {
        if !there.contains(wanted) {
            return Err(Refused::NoInstance { cluster: options.cluster.clone(), wanted: wanted.clone(), there });
        }
        if *wanted == before {
            return Ok(format!("{wanted} leads already"));
        }
    }
    let began = Instant::now();
    cluster.request(Some(options.to.as_deref().unwrap_or(ANY))).await?;
    loop {
        let now = cluster.leader().await?;
        if now != before {
            return Ok(format!("{before} handed over to {now} within {:.1} s", began.elapsed().as_secs_f64()));
        }
        if began.elapsed() > WITHIN {
            cluster.request(None).await?;
            return Err(Refused::NotFollowed { why: cluster.message_of(&before).await?, primary: before });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

impl Cluster<'_> {
    async fn status(&self) -> Result<bellwether_api::v1::PostgresClusterStatus, Refused> {
        let found = self.clusters.get_opt(self.name).await?;
        let missing = || Refused::NoCluster { cluster: self.name.to_owned(), namespace: self.namespace.clone() };
        Ok(found.ok_or_else(missing)?.status.unwrap_or_default())
    }

    async fn instances(&self) -> Result<Vec<String>, Refused> {
        Ok(self.status().await?.instances.into_iter().map(|instance| instance.name).collect())
    }

    async fn message_of(&self, instance: &str) -> Result<String, Refused> {
        let said = self.status().await?.instances.into_iter().find(|other| other.name == instance);
        Ok(said.and_then(|said| said.message).unwrap_or_else(|| "it does not say why".to_owned()))
    }

    /// Who leads, by the Lease.
    async fn leader(&self) -> Result<String, Refused> {
        let lease = self.leases.get_opt(&Names::of(self.name).lease()).await?;
        let leader = lease.and_then(|lease| lease.annotations().get(labels::LEADER).cloned());
        match leader.and_then(|text| serde_json::from_str::<Leader>(&text).ok()) {
            Some(leader) => Ok(leader.instance),
            None => {
                let status = self.status().await?;
                let ready = status.conditions.into_iter().find(|condition| condition.type_ == "Ready");
                let why = ready.map_or_else(|| "it was only just created".to_owned(), |ready| ready.message);
                Err(Refused::NoPrimary { cluster: self.name.to_owned(), why })
            }
        }
    }

    /// Asks, or withdraws what was asked.
    async fn request(&self, wanted: Option<&str>) -> Result<(), Refused> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {SWITCHOVER: wanted}}}));
        self.leases.patch(&Names::of(self.name).lease(), &PatchParams::default(), &patch).await?;
        Ok(())
    }
}
