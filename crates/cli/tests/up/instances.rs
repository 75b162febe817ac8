//! Instances that go and come: deleted pods, more of them, fewer.

use bellwether_api::v1::PostgresCluster;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::home::{Home, eventually};

async fn scale(home: &Home, replicas: i32) {
    let api: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    api.patch("demo", &PatchParams::default(), &patch).await.unwrap();
}

/// Deletes a pod and waits for another of its name to be ready.
async fn replace(home: &Home, pod: &str) {
    let pods: Api<Pod> = Api::default_namespaced(home.client().await);
    let before = pods.get(pod).await.unwrap().uid();
    pods.delete(pod, &Default::default()).await.unwrap();
    let is_back = || async {
        let now = pods.get_opt(pod).await.ok()??;
        let conditions = now.status.clone()?.conditions?;
        let ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
        (now.uid() != before && ready).then_some(())
    };
    eventually(&format!("{pod} is back"), is_back).await;
}

#[tokio::test]
async fn a_deleted_pod_comes_back_with_its_data_also_the_primarys() {
    let home = Home::up(&["--replicas", "2"]).await;
    home.ready("demo", 2).await;
    home.execute("demo", "create table kept (id int); insert into kept values (1)").await;
    for pod in ["demo-2", "demo-1"] {
        replace(&home, pod).await;
        home.ready("demo", 2).await;
        let rows = || async { home.number("demo", pod, "select count(*) from kept").await.filter(|n| *n == 1) };
        eventually(&format!("{pod} has the row"), rows).await;
    }
    home.execute("demo", "insert into kept values (2)").await;
}

#[tokio::test]
async fn a_cluster_grows_and_shrinks() {
    let home = Home::up(&["--replicas", "1"]).await;
    home.ready("demo", 1).await;
    home.execute("demo", "create table kept (id int); insert into kept values (1)").await;
    scale(&home, 3).await;
    let view = home.ready("demo", 3).await;
    let nodes: std::collections::BTreeSet<_> = view.instances.iter().map(|instance| instance.node.clone()).collect();
    assert_eq!(nodes.len(), 3, "instances are spread over the nodes");
    for standby in view.standbys() {
        let rows =
            || async { home.number("demo", &standby.name, "select count(*) from kept").await.filter(|n| *n == 1) };
        eventually(&format!("{} has the row", standby.name), rows).await;
    }
    scale(&home, 2).await;
    home.ready("demo", 2).await;
    home.execute("demo", "insert into kept values (2)").await;
}
