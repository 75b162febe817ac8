//! Several operators, one of which leads.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bellwether_api::v1::PostgresCluster;
use bellwether_core::rbac;
use bellwether_operator::RunError;
use bellwether_runtime::leader::Timing;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use serde_json::json;

use crate::stage::{Operator, SYSTEM_NAMESPACE, Stage};

/// Seconds instead of tens of them. A Lease says whole seconds.
const QUICK: Timing =
    Timing { lease: Duration::from_secs(2), renew: Duration::from_millis(1200), retry: Duration::from_millis(200) };

fn has_status(cluster: &PostgresCluster) -> bool {
    cluster.status.is_some()
}

fn lease(stage: &Stage) -> Api<Lease> {
    Api::namespaced(stage.admin.clone(), SYSTEM_NAMESPACE)
}

pub async fn holder(stage: &Stage) -> Option<String> {
    lease(stage).get_opt(rbac::LEADER_LEASE).await.unwrap()?.spec?.holder_identity.filter(|name| !name.is_empty())
}

/// Waits until this one holds the Lease.
pub async fn until_leads(stage: &Stage, name: &str) {
    stage
        .until(&format!("{name} leads"), async || match holder(stage).await {
            Some(holder) if holder == name => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
}

/// Waits until the holder has renewed so often.
pub async fn until_renewed(stage: &Stage, times: usize) {
    let seen = Mutex::new(BTreeSet::new());
    stage
        .until("the Lease is renewed", async || {
            let renewed = lease(stage).get(rbac::LEADER_LEASE).await.unwrap().spec.unwrap().renew_time.unwrap();
            let mut seen = seen.lock().unwrap();
            seen.insert(renewed.0);
            if seen.len() > times { Ok(()) } else { Err(String::new()) }
        })
        .await;
}

/// `alpha` leads, `beta` waits; each under an account of its own, so that the audit log tells them apart.
async fn two(stage: &Stage, timing: Timing) -> (Operator, Operator) {
    let a = stage.candidate("alpha", timing).await;
    until_leads(stage, "alpha").await;
    (a, stage.candidate("beta", timing).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_acts_and_when_it_dies_the_other_does() {
    let stage = Stage::set().await;
    let (a, b) = two(&stage, QUICK).await;
    stage.create_cluster("first", json!({"replicas": 1})).await;
    stage.wait("first", "first has a status", has_status).await;
    assert_eq!(stage.writes_of("beta"), [""; 0], "who waits writes nothing, not even the Lease");
    a.kill().await;
    stage.create_cluster("second", json!({"replicas": 1})).await;
    stage.wait("second", "second has a status", has_status).await;
    assert_eq!(holder(&stage).await.as_deref(), Some("beta"));
    assert_eq!(stage.refusals_of("alpha"), [""; 0]);
    assert_eq!(stage.refusals_of("beta"), [""; 0]);
    b.stop().await;
    assert_eq!(holder(&stage).await, None, "it was given back");
    stage.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_told_to_stop_hands_over_within_a_second() {
    let stage = Stage::set().await;
    // With the timing of production: it is the release that makes it quick, and that the other one watches.
    let (a, b) = two(&stage, Timing::default()).await;
    // After two renewals the other one has looked, and watches.
    until_renewed(&stage, 2).await;
    let told = Instant::now();
    a.stop().await;
    until_leads(&stage, "beta").await;
    assert!(told.elapsed() < Duration::from_secs(1), "{:?}", told.elapsed());
    b.stop().await;
    stage.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whose_lease_is_stolen_stops_at_once_and_says_so() {
    let stage = Stage::set().await;
    let a = stage.candidate("alpha", Timing::default()).await;
    until_leads(&stage, "alpha").await;
    stage.create_cluster("first", json!({"replicas": 1})).await;
    stage.wait("first", "first has a status", has_status).await;
    steal(&stage).await;
    let ended = a.ended().await;
    assert!(matches!(&ended, Err(RunError::Lost(lost)) if lost.holder == "thief"), "{ended:?}");
    // What it had sent before it ended may be carried out a moment later.
    let mut before = stage.writes_of("alpha");
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = stage.writes_of("alpha");
        if std::mem::replace(&mut before, now.clone()) == now {
            break;
        }
    }
    stage.create_cluster("second", json!({"replicas": 1})).await;
    assert_eq!(stage.writes_of("alpha"), before);
    stage.server.shutdown().await;
}

async fn steal(stage: &Stage) {
    stage
        .until("the Lease is stolen", async || {
            let mut held = lease(stage).get(rbac::LEADER_LEASE).await.unwrap();
            held.spec.as_mut().unwrap().holder_identity = Some("thief".into());
            let replaced = lease(stage).replace(rbac::LEADER_LEASE, &PostParams::default(), &held).await;
            replaced.map(drop).map_err(|conflict| conflict.to_string())
        })
        .await;
}
