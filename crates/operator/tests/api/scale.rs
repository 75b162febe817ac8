//! More instances and fewer, as somebody sees it who watches the cluster: each step in its order, and readers and members at the right time.

use bellwether_api::labels;
use bellwether_api::v1::{Phase, PostgresCluster};
use bellwether_core::contract::InstanceConfig;
use bellwether_core::lease_object::MEMBERS;
use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::json;
use tokio::sync::watch;

use crate::stage::{PATIENCE, SYSTEM, Stage};

/// Every step that the status told, and the phase where no operation was under way; each once in a row.
fn watched(stage: &Stage) -> watch::Receiver<Vec<String>> {
    let (steps, seen) = watch::channel(vec![]);
    let clusters = stage.api::<PostgresCluster>();
    tokio::spawn(async move {
        let mut events = clusters.watch(&WatchParams::default(), "0").await.unwrap().boxed();
        while let Some(Ok(event)) = events.next().await {
            let (WatchEvent::Added(cluster) | WatchEvent::Modified(cluster)) = event else { continue };
            let Some(status) = cluster.status.clone().filter(|_| cluster.name_any() == "orders") else { continue };
            let step = status.operation.map(|operation| format!("{:?}", operation.step));
            let now = step.unwrap_or_else(|| format!("{:?}", status.phase.unwrap()));
            steps.send_if_modified(|steps| {
                let news = steps.last() != Some(&now);
                if news {
                    steps.push(now);
                }
                news
            });
        }
    });
    seen
}

async fn scale(stage: &Stage, replicas: i32) {
    let patch = json!({"spec": {"replicas": replicas}});
    stage.api::<PostgresCluster>().patch("orders", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

/// The status is at this step, or in this phase.
async fn at(seen: &mut watch::Receiver<Vec<String>>, step: &str) {
    let reached = seen.wait_for(|steps| steps.last().is_some_and(|last| last == step));
    let reached = tokio::time::timeout(PATIENCE, reached).await.map(|steps| steps.is_ok());
    assert_eq!(reached, Ok(true), "{step}: {:?}", seen.borrow());
}

/// The second instance runs, and says this of itself.
async fn says(stage: &Stage, state: &str) {
    let pods = stage.api::<Pod>();
    let uid = pods.get("orders-2").await.unwrap().uid();
    let status = json!({"status": {
        "phase": "Running", "podIP": "10.0.0.2", "conditions": [{"type": "Ready", "status": "True"}],
    }});
    pods.patch_status("orders-2", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let joined = state != "Joining";
    let report = json!({
        "role": joined.then_some("standby"), "state": state, "acceptsSql": joined, "identity": uid,
        "systemIdentifier": joined.then_some(SYSTEM),
    });
    let metadata = json!({"metadata": {"annotations": {labels::REPORT: report.to_string()}}});
    pods.patch("orders-2", &PatchParams::default(), &Patch::Merge(&metadata)).await.unwrap();
}

async fn members(stage: &Stage, uids: &[String]) {
    let patch = json!({"metadata": {"annotations": {MEMBERS: json!(uids).to_string()}}});
    stage.api::<Lease>().patch("orders", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

async fn readers(stage: &Stage) -> usize {
    stage.api::<EndpointSlice>().get("orders-ro").await.unwrap().endpoints.len()
}

async fn config(stage: &Stage) -> InstanceConfig {
    let map = stage.api::<ConfigMap>().get("orders-config").await.unwrap();
    serde_json::from_str(&map.data.unwrap()["instance.json"]).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_watches_sees_each_step_of_a_scale_up_and_of_a_scale_down_in_order() {
    let stage = Stage::set().await;
    let operator = stage.operator().await;
    stage.create_cluster("orders", json!({"replicas": 1})).await;
    stage.play_until("orders", Phase::Ready).await;
    let mut seen = watched(&stage);
    at(&mut seen, "Ready").await;

    scale(&stage, 2).await;
    at(&mut seen, "ScalingUp").await;
    stage
        .until("the pod", async || stage.api::<Pod>().get("orders-2").await.map(drop).map_err(|e| e.to_string()))
        .await;
    says(&stage, "Joining").await;
    at(&mut seen, "Syncing").await;
    says(&stage, "CatchingUp").await;
    let waits = |cluster: &PostgresCluster| {
        let operation = cluster.status.as_ref().and_then(|status| status.operation.clone());
        operation
            .is_some_and(|operation| operation.waiting_on.contains("orders-2 (replaying, a second or more behind)"))
    };
    stage.wait("orders", "it is said what it does", waits).await;
    assert_eq!(readers(&stage).await, 0, "nobody reads from one that lags");
    says(&stage, "Streaming").await;
    at(&mut seen, "Ready").await;
    assert_eq!(readers(&stage).await, 1);

    let pods = stage.api::<Pod>();
    let (first, second) = (pods.get("orders-1").await.unwrap().uid(), pods.get("orders-2").await.unwrap().uid());
    let (first, second) = (first.unwrap(), second.unwrap());
    members(&stage, &[first.clone(), second]).await;
    scale(&stage, 1).await;
    at(&mut seen, "Leaving").await;
    stage
        .until("nobody is sent there", async || if readers(&stage).await == 0 { Ok(()) } else { Err(String::new()) })
        .await;
    assert!(config(&stage).await.is_leaving("orders-2"));
    // Clusters are taken in order: once another has a status, this one was looked at with its agents told.
    stage.create_cluster("zebra", json!({"replicas": 1})).await;
    stage.wait("zebra", "zebra has a status", |cluster| cluster.status.is_some()).await;
    let pod = pods.get("orders-2").await.unwrap();
    assert_eq!(pod.metadata.deletion_timestamp, None, "it is a member still");
    members(&stage, &[first]).await;
    at(&mut seen, "Removing").await;
    stage
        .until("the pod is gone", async || {
            stage.play("orders").await;
            let pod = stage.api::<Pod>().get_opt("orders-2").await.unwrap();
            if pod.is_none() { Ok(()) } else { Err(String::new()) }
        })
        .await;
    at(&mut seen, "Ready").await;
    let steps = ["Ready", "ScalingUp", "Syncing", "UpdatingEndpoints", "Ready", "Leaving", "Removing", "Ready"];
    assert_eq!(*seen.borrow(), steps);
    assert!(config(&stage).await.leaving.is_empty());
    assert_eq!(stage.refusals(), [""; 0]);
    operator.stop().await;
    stage.server.shutdown().await;
}
