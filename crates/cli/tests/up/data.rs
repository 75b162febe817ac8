//! What becomes of data when clusters are deleted and created again.

use bellwether_api::v1::PostgresCluster;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::home::{Home, eventually};

async fn delete(home: &Home) -> PostgresCluster {
    let api: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
    let cluster = api.get("demo").await.unwrap();
    api.delete("demo", &Default::default()).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(home.client().await);
    let gone = || async { pods.list(&Default::default()).await.ok()?.items.is_empty().then_some(()) };
    eventually("the pods of a deleted cluster are gone", gone).await;
    home.nothing_left().await;
    cluster
}

async fn create_again(home: &Home, cluster: &PostgresCluster) {
    let api: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
    api.create(&PostParams::default(), &PostgresCluster::new("demo", cluster.spec.clone())).await.unwrap();
    home.ready("demo", 1).await;
}

fn volumes(home: &Home) -> usize {
    std::fs::read_dir(home.path().join("volumes")).unwrap().count()
}

#[tokio::test]
async fn retained_data_comes_back_and_deleted_data_is_gone() {
    let home = Home::up(&["--replicas", "1"]).await;
    home.ready("demo", 1).await;
    home.execute("demo", "create table kept (id int); insert into kept values (42)").await;
    let count = "select count(*) from pg_class where relname = 'kept'";

    let cluster = delete(&home).await;
    assert_eq!(volumes(&home), 1, "the default is to keep data");
    create_again(&home, &cluster).await;
    assert_eq!(home.number("demo", "demo-1", "select id::bigint from kept").await, Some(42));

    let api: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
    let patch = Patch::Merge(json!({"spec": {"storage": {"onDelete": "Delete"}}}));
    api.patch("demo", &PatchParams::default(), &patch).await.unwrap();
    home.ready("demo", 1).await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(home.client().await);
    let cluster = delete(&home).await;
    let gone = || async { claims.list(&Default::default()).await.ok()?.items.is_empty().then_some(()) };
    eventually("the claims are gone", gone).await;
    eventually("the directories are gone", || async { (volumes(&home) == 0).then_some(()) }).await;
    create_again(&home, &cluster).await;
    assert_eq!(home.number("demo", "demo-1", count).await, Some(0));
}
