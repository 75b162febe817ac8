//! Backups as the API server sees them.

use bellwether_api::labels;
use bellwether_api::v1::{Backup, BackupPhase, Phase, PostgresCluster};
use bellwether_core::contract::{BackupOrder, InstanceConfig};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use k8s_openapi::api::rbac::v1::Role;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::stage::Stage;

impl Stage {
    async fn ask_for_backup(&self, name: &str, cluster: &str) {
        let backup: Backup = serde_json::from_value(json!({
            "apiVersion": "bellwether.dev/v1", "kind": "Backup", "metadata": {"name": name}, "spec": {"cluster": cluster},
        }))
        .unwrap();
        self.api::<Backup>().create(&PostParams::default(), &backup).await.unwrap();
    }

    /// What the agents of `orders` are told to take.
    async fn order(&self) -> Option<BackupOrder> {
        let config = self.api::<ConfigMap>().get("orders-config").await.unwrap();
        let config: InstanceConfig = serde_json::from_str(&config.data.unwrap()["instance.json"]).unwrap();
        config.archive?.order
    }

    async fn ordered(&self, backup: &str) -> BackupOrder {
        self.until(&format!("{backup} is ordered"), async || {
            self.order().await.filter(|order| order.backup == backup).ok_or_else(String::new)
        })
        .await
    }

    async fn reaches(&self, backup: &str, phase: BackupPhase) -> Backup {
        self.until(&format!("{backup} is {phase:?}"), async || {
            let found = self.api::<Backup>().get_opt(backup).await.unwrap();
            found
                .filter(|found| found.status.as_ref().and_then(|status| status.phase) == Some(phase))
                .ok_or_else(String::new)
        })
        .await
    }

    async fn told(&self, reason: &str, message: &str) {
        self.until(&format!("{reason}: {message}"), async || {
            let events = self.api::<Event>().list(&ListParams::default()).await.unwrap();
            let is = |event: &Event| {
                event.reason.as_deref() == Some(reason)
                    && event.message.as_ref().is_some_and(|said| said.starts_with(message))
            };
            if events.iter().any(is) { Ok(()) } else { Err(String::new()) }
        })
        .await;
    }

    /// The instance that was told says how far it is.
    async fn report(&self, order: &BackupOrder, state: &str, more: &Value) {
        let pods = self.api::<Pod>();
        let pod = pods.get(&order.instance).await.unwrap();
        let mut report: Value = serde_json::from_str(&pod.annotations()[labels::REPORT]).unwrap();
        report["backup"] =
            json!({"uid": order.uid, "attempt": order.attempt, "state": state, "started": "2026-01-01T00:00:00Z"});
        for (key, value) in more.as_object().into_iter().flatten() {
            report["backup"][key] = value.clone();
        }
        let metadata = json!({"metadata": {"annotations": {labels::REPORT: report.to_string()}}});
        pods.patch(&order.instance, &PatchParams::default(), &Patch::Merge(&metadata)).await.unwrap();
    }
}

fn has_status(cluster: &PostgresCluster) -> bool {
    cluster.status.is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_taken_and_an_operator_that_dies_in_between_changes_nothing() {
    let stage = Stage::set().await;
    let operator = stage.operator().await;
    let store = json!({"url": "s3://acme/pg", "credentials": {"name": "s3"}});
    stage.create_cluster("orders", json!({"replicas": 2, "backup": {"store": store}})).await;
    stage.play_until("orders", Phase::Ready).await;
    // The first one comes by itself.
    let first = stage
        .until("a first backup", async || {
            let all = stage.api::<Backup>().list(&ListParams::default()).await.unwrap();
            all.items.into_iter().next().ok_or_else(String::new)
        })
        .await;
    assert!(first.name_any().starts_with("orders-") && first.owner_references().is_empty(), "{first:?}");
    let order = stage.ordered(&first.name_any()).await;
    stage.report(&order, "Completed", &json!({"ended": "2026-01-01T00:01:00Z"})).await;
    stage.reaches(&first.name_any(), BackupPhase::Completed).await;

    stage.ask_for_backup("mine", "orders").await;
    let order = stage.ordered("mine").await;
    assert_eq!((order.instance.as_str(), order.attempt), ("orders-2", 1));
    stage.reaches("mine", BackupPhase::Pending).await;
    stage.report(&order, "Running", &json!({"message": "copying: 10 %"})).await;
    stage.reaches("mine", BackupPhase::Running).await;
    // People are told after it is done, once: who dies in between has not told them.
    stage.told("BackupBegun", "orders-2 began backup mine").await;
    operator.kill().await;
    let end = json!({"ended": "2026-01-01T00:01:12Z", "bytes": 1_288_490_189, "stop": "0/2000100"});
    stage.report(&order, "Completed", &end).await;
    let operator = stage.operator().await;
    let status = stage.reaches("mine", BackupPhase::Completed).await.status.unwrap();
    assert_eq!((status.size.as_deref(), status.duration.as_deref()), (Some("1.2 GiB"), Some("1m 12s")));
    assert_eq!((status.attempts, status.stop_lsn.as_deref()), (1, Some("0/2000100")));
    stage
        .until(
            "the order is withdrawn",
            async || if stage.order().await.is_none() { Ok(()) } else { Err(String::new()) },
        )
        .await;
    let cluster = stage
        .wait("orders", "the cluster says so", |cluster| {
            let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
            conditions
                .into_iter()
                .any(|one| one.type_ == "BackedUp" && one.status == "True" && one.message.contains("mine"))
        })
        .await;
    assert_eq!(cluster.status.unwrap().last_backup.unwrap().0.to_string(), "2026-01-01T00:01:12Z");
    let role = stage.api::<Role>().get("orders-agent").await.unwrap();
    let secrets =
        role.rules.unwrap().into_iter().find(|rule| rule.resources == Some(vec!["secrets".to_owned()])).unwrap();
    assert_eq!((secrets.verbs, secrets.resource_names), (vec!["get".to_owned()], Some(vec!["s3".to_owned()])));
    stage.told("BackupCompleted", "backup mine from orders-2").await;
    // Kubelets hear of the configuration without the order last.
    stage
        .until("every pod was told of the configuration", async || {
            let config = stage.api::<ConfigMap>().get("orders-config").await.unwrap();
            let told = stage.api::<Pod>().list(&ListParams::default()).await.unwrap();
            let hash = config.annotations().get(labels::APPLIED_HASH);
            let all = told.iter().all(|pod| pod.annotations().get(labels::CONFIG_HASH) == hash);
            if all { Ok(()) } else { Err(String::new()) }
        })
        .await;
    operator.stop().await;

    let before = stage.writes().len();
    let operator = stage.operator().await;
    stage.create_cluster("zebra", json!({"replicas": 1})).await;
    stage.wait("zebra", "zebra has a status", has_status).await;
    let again: Vec<_> = stage.writes()[before..]
        .iter()
        .filter(|entry| !entry.name.as_deref().unwrap_or_default().starts_with("zebra"))
        .cloned()
        .collect();
    assert!(again.is_empty(), "{again:#?}");
    assert_eq!(stage.refusals(), [""; 0]);
    operator.stop().await;
    stage.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_cluster_that_is_not_there_fails_and_names_the_field() {
    let stage = Stage::set().await;
    let operator = stage.operator().await;
    stage.ask_for_backup("mine", "nobody").await;
    let status = stage.reaches("mine", BackupPhase::Failed).await.status.unwrap();
    let message = status.message.unwrap();
    assert!(message.starts_with("spec.cluster: there is no PostgresCluster \"nobody\" in this namespace"), "{message}");
    assert_eq!(stage.refusals(), [""; 0]);
    operator.stop().await;
    stage.server.shutdown().await;
}
