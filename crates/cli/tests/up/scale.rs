//! A cluster grows and shrinks under a writer: every step is seen by whoever watches, readers come last and go first, who leaves has left the
//! election and its slot before its pod stops, and nothing that was acknowledged is lost.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bellwether_api::labels;
use bellwether_api::v1::{InstanceState, OperationStep, PostgresCluster};
use bellwether_core::contract::Report;
use bellwether_core::lease_object::MEMBERS;
use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::home::{Home, PATIENCE, eventually};

const SLOTS: &str = "select count(*) from pg_replication_slots";

async fn scale(home: &Home, replicas: i32) {
    let api: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    api.patch("demo", &PatchParams::default(), &patch).await.unwrap();
}

/// Nothing is under way, with so many instances.
async fn settled(home: &Home, instances: usize) {
    home.ready("demo", instances).await;
    let api: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
    let idle = || async { api.get("demo").await.ok()?.status?.operation.is_none().then_some(()) };
    eventually("nothing is under way", idle).await;
}

fn report(pod: &Pod) -> Option<Report> {
    serde_json::from_str(pod.annotations().get(labels::REPORT)?).ok()
}

/// Every step that the status tells, in order.
async fn watch_steps(home: &Home) -> Arc<Mutex<Vec<OperationStep>>> {
    let api: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
    let steps = Arc::<Mutex<Vec<OperationStep>>>::default();
    let seen = Arc::clone(&steps);
    let mut events = api.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    tokio::spawn(async move {
        while let Some(Ok(event)) = events.next().await {
            let (WatchEvent::Added(cluster) | WatchEvent::Modified(cluster)) = event else { continue };
            let step = cluster.status.and_then(|status| status.operation).map(|operation| operation.step);
            let mut seen = seen.lock().unwrap();
            if step.is_some() && seen.last() != step.as_ref() {
                seen.extend(step);
            }
        }
    });
    steps
}

/// Each instance that readers are ever sent to, with what it said of itself when that was seen.
async fn watch_readers(home: &Home) -> Arc<Mutex<Vec<(String, InstanceState)>>> {
    let slices: Api<EndpointSlice> = Api::default_namespaced(home.client().await);
    let pods: Api<Pod> = Api::default_namespaced(home.client().await);
    let readers = Arc::<Mutex<Vec<(String, InstanceState)>>>::default();
    let seen = Arc::clone(&readers);
    let only = WatchParams::default().fields("metadata.name=demo-ro");
    let mut events = slices.watch(&only, "0").await.unwrap().boxed();
    tokio::spawn(async move {
        while let Some(Ok(event)) = events.next().await {
            let (WatchEvent::Added(slice) | WatchEvent::Modified(slice)) = event else { continue };
            for name in slice.endpoints.iter().filter_map(|endpoint| endpoint.target_ref.as_ref()?.name.clone()) {
                let known = seen.lock().unwrap().iter().any(|(known, _)| *known == name);
                if !known && let Some(said) = pods.get(&name).await.ok().as_ref().and_then(report) {
                    seen.lock().unwrap().push((name, said.state));
                }
            }
        }
    });
    readers
}

/// Writes one number after the other until it is told to stop; answers those that were acknowledged.
async fn write(home: &Home, stop: Arc<AtomicBool>) -> JoinHandle<BTreeSet<i64>> {
    let connection = home.connection("demo").await;
    let rw = connection.service(&home.client().await, "demo-rw").await.unwrap();
    let session = connection.open(&rw, PATIENCE).await.unwrap();
    tokio::spawn(async move {
        let mut acknowledged = BTreeSet::new();
        for id in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let insert = format!("insert into kept values ({id})");
            let written = tokio::time::timeout(PATIENCE, session.batch_execute(&insert)).await;
            written.expect("a commit that waits for nobody who left").expect("the same primary all along");
            acknowledged.insert(id);
        }
        acknowledged
    })
}

/// Waits until this pod is told to go, and answers whether it is a member of the election then.
async fn member_when_it_goes(home: &Home, name: &str) -> bool {
    let pods: Api<Pod> = Api::default_namespaced(home.client().await);
    let leases: Api<Lease> = Api::default_namespaced(home.client().await);
    let identity = report(&pods.get(name).await.unwrap()).unwrap().identity.expect("it says who it is");
    let members = async || leases.get("demo").await.unwrap().annotations()[MEMBERS].clone();
    assert!(members().await.contains(&identity), "it is one before");
    let only = WatchParams::default().fields(&format!("metadata.name={name}"));
    let mut events = pods.watch(&only, "0").await.unwrap().boxed();
    scale(home, 2).await;
    let goes = async {
        loop {
            match events.next().await {
                Some(Ok(WatchEvent::Modified(pod))) if pod.metadata.deletion_timestamp.is_some() => return,
                Some(Ok(WatchEvent::Deleted(_))) => return,
                Some(Ok(_)) => {}
                other => panic!("the watch ended: {other:?}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, goes).await.expect("it is told to go");
    members().await.contains(&identity)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_to_three_to_two_under_a_writer_and_back_to_one() {
    let home = Home::up(&["--replicas", "1"]).await;
    home.ready("demo", 1).await;
    home.execute("demo", "create table kept (id bigint primary key)").await;
    let stop = Arc::<AtomicBool>::default();
    let writer = write(&home, Arc::clone(&stop)).await;
    let (steps, readers) = (watch_steps(&home).await, watch_readers(&home).await);

    scale(&home, 3).await;
    settled(&home, 3).await;
    let up = std::mem::take(&mut *steps.lock().unwrap());
    let first = |step| up.iter().position(|found| *found == step);
    let order = [OperationStep::ScalingUp, OperationStep::Syncing, OperationStep::UpdatingEndpoints].map(first);
    assert!(order.is_sorted() && order[0].is_some(), "{up:?}");
    let read = || async { (readers.lock().unwrap().len() == 2).then_some(()) };
    eventually("readers are sent to both", read).await;
    let seen = readers.lock().unwrap().clone();
    assert!(seen.iter().all(|(_, state)| *state == InstanceState::Streaming), "{seen:?}");
    assert_eq!(home.number("demo", "demo-1", SLOTS).await, Some(2));

    assert!(!member_when_it_goes(&home, "demo-3").await, "it has left before its pod goes");
    assert_eq!(home.number("demo", "demo-1", SLOTS).await, Some(1), "and so has its slot");
    settled(&home, 2).await;
    // A standby that a busy machine keeps from streaming for a moment is another operation.
    let mut down = std::mem::take(&mut *steps.lock().unwrap());
    down.retain(|step| matches!(step, OperationStep::Leaving | OperationStep::Removing));
    down.dedup();
    assert_eq!(down, [OperationStep::Leaving, OperationStep::Removing]);
    let slice = Api::<EndpointSlice>::default_namespaced(home.client().await).get("demo-ro").await.unwrap();
    let left: Vec<_> = slice.endpoints.iter().filter_map(|e| e.target_ref.as_ref()?.name.clone()).collect();
    assert_eq!(left, ["demo-2"]);
    let volumes = Api::<PersistentVolumeClaim>::default_namespaced(home.client().await);
    assert!(volumes.get_opt("demo-3-data").await.unwrap().is_some(), "storage.onDelete is Retain");

    stop.store(true, Ordering::Relaxed);
    let acknowledged = i64::try_from(writer.await.unwrap().len()).unwrap();
    assert!(acknowledged > 0);
    for instance in ["demo-1", "demo-2"] {
        let all = || async {
            home.number("demo", instance, "select count(*) from kept").await.filter(|found| *found == acknowledged)
        };
        eventually(&format!("{instance} has every row that was acknowledged"), all).await;
    }

    // And nobody is left to wait for.
    scale(&home, 1).await;
    settled(&home, 1).await;
    home.execute("demo", "insert into kept values (-1)").await;
    assert_eq!(home.number("demo", "demo-1", SLOTS).await, Some(0));
}
