//! A cluster's life as the API server sees it.

use bellwether_api::labels;
use bellwether_api::v1::{Phase, PostgresCluster};
use bellwether_operator::Settings;
use bellwether_runtime::watch::Namespaces;
use k8s_openapi::api::core::v1::{ConfigMap, Event, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::stage::{NAMESPACE, Stage};

fn names<K: kube::Resource + Clone>(list: &kube::api::ObjectList<K>) -> Vec<String> {
    list.iter().map(ResourceExt::name_any).collect()
}

fn has_status(cluster: &PostgresCluster) -> bool {
    cluster.status.is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_comes_up_and_a_second_pass_writes_nothing() {
    let stage = Stage::set().await;
    let operator = stage.operator().await;
    stage.create_cluster("orders", json!({"replicas": 3})).await;
    let cluster = stage.play_until("orders", Phase::Ready).await;
    let status = cluster.status.unwrap();
    assert_eq!((status.ready_replicas, status.primary.as_deref()), (3, Some("orders-1")));
    assert_eq!(status.selector.as_deref(), Some("bellwether.dev/cluster=orders"));
    // The last thing that it does: kubelets are told of the configuration as it is since the database has an identity.
    stage
        .until("every pod was told of the configuration", async || {
            let config = stage.api::<ConfigMap>().get("orders-config").await.unwrap();
            let told = stage.api::<Pod>().list(&ListParams::default()).await.unwrap();
            let all = told.iter().all(|pod| {
                pod.annotations().get(labels::CONFIG_HASH) == config.annotations().get(labels::APPLIED_HASH)
            });
            if all { Ok(()) } else { Err(String::new()) }
        })
        .await;
    operator.stop().await;

    // A new operator knows nothing of what the first did. Clusters are taken in order, so once the second cluster has a status,
    // the first has been looked at.
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
async fn everything_that_a_cluster_needs_is_there() {
    let stage = Stage::set().await;
    let operator = stage.operator().await;
    stage.create_cluster("orders", json!({"replicas": 2})).await;
    stage.play_until("orders", Phase::Ready).await;
    let all = ListParams::default();
    let secrets = stage.api::<Secret>().list(&all).await.unwrap();
    let app = secrets.iter().find(|secret| secret.name_any() == "orders-app").unwrap();
    let text = |key: &str| String::from_utf8(app.data.as_ref().unwrap()[key].0.clone()).unwrap();
    assert_eq!(text("host"), "orders-rw.shop.svc");
    assert_eq!(text("password").len(), 32);
    assert_eq!(
        text("uri"),
        format!("postgresql://app:{}@orders-rw.shop.svc:5432/app?sslmode=require", text("password"))
    );
    assert!(text("ca.crt").starts_with("-----BEGIN CERTIFICATE-----"));
    assert_eq!(names(&secrets), ["orders-app", "orders-ca", "orders-replication", "orders-server", "orders-superuser"]);
    let services = names(&stage.api::<Service>().list(&all).await.unwrap());
    assert_eq!(services, ["orders-pods", "orders-r", "orders-ro", "orders-rw"]);
    let slice = stage
        .until("the standby is in orders-ro", async || {
            let slice = stage.api::<EndpointSlice>().get("orders-ro").await.unwrap();
            if slice.endpoints.len() == 1 { Ok(slice) } else { Err(String::new()) }
        })
        .await;
    assert_eq!(slice.endpoints[0].addresses, ["10.0.0.2"]);
    let volumes = stage.api::<PersistentVolumeClaim>().list(&all).await.unwrap();
    assert!(
        volumes.iter().all(|volume| volume.owner_references().is_empty()),
        "the garbage collector must not find them"
    );
    let events = stage.api::<Event>().list(&all).await.unwrap();
    assert!(events.iter().any(|event| event.reason.as_deref() == Some("InstanceCreated")));
    operator.stop().await;
    stage.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_go_up_and_down() {
    let stage = Stage::set().await;
    let operator = stage.operator().await;
    stage.create_cluster("orders", json!({"replicas": 1, "storage": {"onDelete": "Delete"}})).await;
    stage.play_until("orders", Phase::Ready).await;
    for replicas in [3, 1] {
        let patch = json!({"spec": {"replicas": replicas}});
        stage.api::<PostgresCluster>().patch("orders", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        stage
            .until(&format!("{replicas} instances"), async || {
                let cluster = stage.play_until("orders", Phase::Ready).await;
                let pods = stage.api::<Pod>().list(&ListParams::default()).await.unwrap().items.len();
                let volumes =
                    stage.api::<PersistentVolumeClaim>().list(&ListParams::default()).await.unwrap().items.len();
                let ready = usize::try_from(cluster.status.unwrap().ready_replicas).unwrap();
                if [pods, volumes, ready] == [replicas; 3] { Ok(()) } else { Err(String::new()) }
            })
            .await;
    }
    assert_eq!(stage.refusals(), [""; 0]);
    operator.stop().await;
    stage.server.shutdown().await;
}

async fn delete_and_recreate(on_delete: &str) -> (Stage, Vec<Option<String>>, Vec<Option<String>>) {
    let stage = Stage::set().await;
    let operator = stage.operator().await;
    let spec = json!({"replicas": 2, "storage": {"onDelete": on_delete}});
    stage.create_cluster("orders", spec.clone()).await;
    stage.play_until("orders", Phase::Ready).await;
    let uids = async || {
        let volumes = stage.api::<PersistentVolumeClaim>().list(&ListParams::default()).await.unwrap();
        volumes.iter().map(ResourceExt::uid).collect::<Vec<_>>()
    };
    // The volumes' annotations are what a later cluster adopts by.
    stage
        .until("volumes are annotated", async || {
            let volumes = stage.api::<PersistentVolumeClaim>().list(&ListParams::default()).await.unwrap();
            let known = |v: &PersistentVolumeClaim| v.annotations().contains_key(labels::LAST_ROLE);
            if volumes.iter().all(known) { Ok(()) } else { Err(String::new()) }
        })
        .await;
    let before = uids().await;
    stage.api::<PostgresCluster>().delete("orders", &DeleteParams::default()).await.unwrap();
    stage.create_cluster("orders", spec).await;
    stage.play_until("orders", Phase::Ready).await;
    let after = uids().await;
    assert_eq!(stage.refusals(), [""; 0]);
    operator.stop().await;
    (stage, before, after)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_created_again_has_its_volumes_back() {
    let (stage, before, after) = delete_and_recreate("Retain").await;
    assert_eq!(before, after);
    stage.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_delete_the_volumes_are_gone_before_the_next_cluster_starts() {
    let (stage, before, after) = delete_and_recreate("Delete").await;
    assert!(before.iter().all(|uid| !after.contains(uid)), "{before:?} {after:?}");
    stage.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn note_3_a_cluster_deleted_while_no_operator_ran_leaves_nothing_behind() {
    let stage = Stage::set().await;
    let operator = stage.operator().await;
    stage.create_cluster("orders", json!({"replicas": 2, "storage": {"onDelete": "Delete"}})).await;
    stage.play_until("orders", Phase::Ready).await;
    operator.stop().await;
    stage.api::<PostgresCluster>().delete("orders", &DeleteParams::default()).await.unwrap();
    let operator = stage.operator().await;
    stage
        .until("no volume is left", async || {
            for pod in stage.api::<Pod>().list(&ListParams::default()).await.unwrap() {
                let _ = stage.api::<Pod>().delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
            }
            let left = stage.api::<PersistentVolumeClaim>().list(&ListParams::default()).await.unwrap();
            if left.items.is_empty() { Ok(()) } else { Err(String::new()) }
        })
        .await;
    operator.stop().await;
    stage.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_the_user_supplies_is_honoured() {
    let stage = Stage::set().await;
    let operator = stage.operator().await;
    let from = json!({"name": "mine", "key": "pw"});
    stage.create_cluster("orders", json!({"replicas": 1, "bootstrap": {"initdb": {"ownerPassword": from}}})).await;
    let told = stage
        .wait("orders", "the missing Secret is named", |cluster| {
            let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
            conditions
                .into_iter()
                .any(|c| c.type_ == "Accepted" && c.reason == "InvalidSpec" && c.message.contains("mine"))
        })
        .await;
    assert_eq!(told.status.unwrap().replicas, 0);
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": "mine"}, "stringData": {"pw": "p@ss w/ord"},
    }))
    .unwrap();
    stage.api::<Secret>().create(&Default::default(), &secret).await.unwrap();
    // The user's Secret has no label of ours, so nothing tells us of it; a change of the cluster does.
    let touch = json!({"metadata": {"annotations": {"touched": "yes"}}});
    stage.api::<PostgresCluster>().patch("orders", &PatchParams::default(), &Patch::Merge(&touch)).await.unwrap();
    stage.play_until("orders", Phase::Ready).await;
    let app = stage.api::<Secret>().get("orders-app").await.unwrap();
    let uri = String::from_utf8(app.data.unwrap()["uri"].0.clone()).unwrap();
    assert!(uri.contains("p%40ss%20w%2Ford"), "{uri}");
    operator.stop().await;
    stage.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_for_some_namespaces_needs_nothing_outside_of_them() {
    let stage = Stage::set().await;
    stage.hire_for_namespace("narrow").await;
    let namespaces = Namespaces::Only([NAMESPACE.to_owned()].into());
    let operator = stage.operator_as("narrow", Settings { namespaces, ..Settings::default() }).await;
    stage.create_cluster("orders", json!({"replicas": 2})).await;
    stage.play_until("orders", Phase::Ready).await;
    // A list or watch of a kind in all namespaces would be refused to this account.
    assert_eq!(stage.refusals_of("narrow"), [""; 0]);
    operator.stop().await;
    stage.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn note_21_a_new_image_is_rolled_out_and_a_new_operator_restarts_nothing() {
    let stage = Stage::set().await;
    let operator = stage.operator().await;
    stage.create_cluster("orders", json!({"replicas": 3})).await;
    stage.play_until("orders", Phase::Ready).await;
    let patch = json!({"spec": {"image": "postgres:18.1"}});
    stage.api::<PostgresCluster>().patch("orders", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    stage
        .until("every instance has the image", async || {
            stage.play("orders").await;
            let pods = stage.api::<Pod>().list(&ListParams::default()).await.unwrap();
            let status = stage.api::<PostgresCluster>().get("orders").await.unwrap().status.unwrap();
            let new = |pod: &Pod| pod.spec.as_ref().unwrap().containers[0].image.as_deref() == Some("postgres:18.1");
            let done = status.phase == Some(Phase::Ready) && status.operation.is_none();
            if pods.items.len() == 3 && pods.iter().all(new) && done { Ok(()) } else { Err(String::new()) }
        })
        .await;
    let verbs = |verb: &str, resource: &str| {
        let all = stage.writes();
        all.iter().filter(|entry| entry.verb == verb && entry.resource == resource).count()
    };
    assert_eq!((verbs("delete", "pods"), verbs("patch", "leases")), (3, 1), "each once, and one switchover");
    assert_eq!(stage.refusals(), [""; 0]);
    operator.stop().await;

    let mut next = Settings::default();
    next.objects.image = "bellwether:next".to_owned();
    let operator = stage.operator_as(bellwether_core::rbac::OPERATOR, next).await;
    stage.create_cluster("zebra", json!({"replicas": 1})).await;
    stage.wait("zebra", "zebra has a status", has_status).await;
    assert_eq!((verbs("delete", "pods"), verbs("patch", "leases")), (3, 1), "nothing restarts");
    operator.stop().await;
    stage.server.shutdown().await;
}
