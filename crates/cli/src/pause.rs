//! `bellwether pause` and `bellwether resume`: whether rollouts and scale-downs begin new steps.
//!
//! The wish is an annotation on the `PostgresCluster`, which the operator reads. Never: stops elections, failover or repairs; those don't ask.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bellwether_api::labels;
use bellwether_api::v1::PostgresClusterStatus;
use bellwether_core::plan::paused;
use kube::ResourceExt as _;
use serde_json::json;

use crate::args;
use crate::cluster::{Cluster, ClusterError, Space, told};

/// How long an operator may take to say that it has seen it. It takes a fraction of a second where one runs.
const SEEN_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Paused,
    Going,
}

/// Pauses.
pub fn pause(options: &args::Pause) -> ExitCode {
    told(wish(options, Wish::Paused))
}

/// Lets it go on.
pub fn resume(options: &args::Pause) -> ExitCode {
    told(wish(options, Wish::Going))
}

async fn wish(options: &args::Pause, wish: Wish) -> Result<String, ClusterError> {
    let cluster = Space::at(&options.place).await?.cluster(&options.cluster);
    let (name, object) = (&options.cluster, cluster.get().await?);
    // One with a value that pauses nothing is to go too.
    let is = if wish == Wish::Paused { paused(&object) } else { object.annotations().contains_key(labels::PAUSED) };
    let value = match (wish, is) {
        (Wish::Paused, true) => {
            return Ok(format!("{name} is paused already; `bellwether resume {name}` lets it go on"));
        }
        (Wish::Going, false) => return Ok(format!("{name} is not paused")),
        (Wish::Paused, false) => Some("true"),
        (Wish::Going, true) => None,
    };
    cluster.patch(json!({"metadata": {"annotations": {labels::PAUSED: value}}})).await?;
    let seen = seen(&cluster, wish).await?;
    let said = match wish {
        Wish::Paused => format!(
            "{name} is paused: no rollout and no scale-down begins a new step, until \
             `bellwether resume {name}`. Elections, failover and repairs go on"
        ),
        Wish::Going => format!("{name} goes on: rollouts and scale-downs begin new steps"),
    };
    Ok(if seen {
        said
    } else {
        format!(
            "{said}. That is written down, but no operator has said within {} s that it has seen it: is one running?",
            SEEN_WITHIN.as_secs()
        )
    })
}

/// Whether the operator says so too.
async fn seen(cluster: &Cluster, wish: Wish) -> Result<bool, ClusterError> {
    let began = Instant::now();
    loop {
        if says(&cluster.status().await?) == wish {
            return Ok(true);
        }
        if began.elapsed() > SEEN_WITHIN {
            return Ok(false);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn says(status: &PostgresClusterStatus) -> Wish {
    let paused = status.conditions.iter().any(|condition| condition.type_ == "Paused" && condition.status == "True");
    if paused { Wish::Paused } else { Wish::Going }
}
