//! `bellwether switchover`: asks the primary to hand over, and waits until another leads.
//!
//! The request is an annotation on the cluster's Lease, which the agents watch. The primary decides: it stops only for a standby that streams
//! closely, and resumes if that one fails. Never: a request left behind that nobody followed.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bellwether_core::instance::switchover::ANY;
use bellwether_core::lease_object::SWITCHOVER;
use serde_json::json;

use crate::args::Switchover;
use crate::cluster::{self, Cluster, ClusterError, Space, told};

/// How long another may take to lead. A switchover takes less than a second; a shutdown with many dirty pages takes longer.
const WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Why it did not come to that.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("{cluster} has no primary to hand over: {why}")]
    NoPrimary { cluster: String, why: String },
    #[error("{cluster} has no instance {wanted:?}; there are {}", there.join(", "))]
    NoInstance { cluster: String, wanted: String, there: Vec<String> },
    #[error("{primary} still leads after {} s, and the request is withdrawn: {why}", WITHIN.as_secs())]
    NotFollowed { primary: String, why: String },
}

/// Runs it.
pub fn run(options: &Switchover) -> ExitCode {
    told(ask(options))
}

async fn ask(options: &Switchover) -> Result<String, Refused> {
    let cluster = Space::at(&options.place).await?.cluster(&options.cluster);
    let before = leader(&cluster).await?;
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
    request(&cluster, Some(options.to.as_deref().unwrap_or(ANY))).await?;
    loop {
        let now = leader(&cluster).await?;
        if now != before {
            return Ok(format!("{before} handed over to {now} within {:.1} s", began.elapsed().as_secs_f64()));
        }
        if began.elapsed() > WITHIN {
            request(&cluster, None).await?;
            return Err(Refused::NotFollowed { why: message_of(&cluster, &before).await?, primary: before });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn message_of(cluster: &Cluster, instance: &str) -> Result<String, Refused> {
    let said = cluster::instance(&cluster.status().await?, instance).and_then(|said| said.message.clone());
    Ok(said.unwrap_or_else(|| "it does not say why".to_owned()))
}

async fn leader(cluster: &Cluster) -> Result<String, Refused> {
    if let Some(leader) = cluster.leader().await? {
        return Ok(leader);
    }
    let why = cluster::why_not_ready(&cluster.status().await?);
    Err(Refused::NoPrimary { cluster: cluster.name.clone(), why })
}

/// Asks, or withdraws what was asked.
async fn request(cluster: &Cluster, wanted: Option<&str>) -> Result<(), Refused> {
    Ok(cluster.patch_lease(json!({"metadata": {"annotations": {SWITCHOVER: wanted}}})).await?)
}
