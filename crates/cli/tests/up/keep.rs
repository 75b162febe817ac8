//! What a running cluster has, and what of it changes without a restart: passwords, certificates, the size of its volumes. And a stream that breaks.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use bellwether_api::v1::PostgresCluster;
use bellwether_core::contract::{PEER_PORT, POSTGRES_PORT, REPLICATION_USER};
use bellwether_postgres::sql::{POSTGRES_DATABASE, Session};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::home::{Home, PATIENCE, eventually};

const INSTANCES: [&str; 2] = ["demo-1", "demo-2"];
/// When its postmaster started.
const STARTED: &str = "select (extract(epoch from pg_postmaster_start_time()) * 1000)::bigint";

async fn started(home: &Home) -> Option<BTreeMap<&'static str, i64>> {
    let mut found = BTreeMap::new();
    for instance in INSTANCES {
        found.insert(instance, home.number("demo", instance, STARTED).await?);
    }
    Some(found)
}

/// The certificate that a server shows, to PostgreSQL's clients or to other agents.
fn shown(address: &str, port: u16) -> Option<String> {
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-connect", &format!("{address}:{port}")]);
    if port == POSTGRES_PORT {
        openssl.args(["-starttls", "postgres"]);
    }
    let output = openssl.stdin(Stdio::null()).output().expect("openssl, which PostgreSQL's packages bring along");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (begin, end) = (text.find("-----BEGIN CERTIFICATE-----")?, text.find("-----END CERTIFICATE-----")?);
    Some(text[begin..end].to_owned())
}

async fn all_shown(home: &Home) -> Option<Vec<String>> {
    let pods: Api<Pod> = Api::default_namespaced(home.client().await);
    let mut found = vec![];
    for instance in INSTANCES {
        let address = pods.get(instance).await.ok()?.status?.pod_ip?;
        for port in [POSTGRES_PORT, PEER_PORT] {
            found.push(shown(&address, port)?);
        }
    }
    Some(found)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_certificates_and_larger_volumes_reach_a_running_cluster_without_a_restart() {
    let home = Home::up(&["--replicas", "2"]).await;
    home.ready("demo", 2).await;
    let before = eventually("both answer", || started(&home)).await;
    let secrets: Api<Secret> = Api::default_namespaced(home.client().await);
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(home.client().await);
    let merge = PatchParams::default();

    let former = home.connection("demo").await;
    let rw = former.service(&home.client().await, "demo-rw").await.unwrap();
    let changed = json!({"stringData": {"password": "it's a s3cret/"}});
    secrets.patch("demo-app", &merge, &Patch::Merge(&changed)).await.unwrap();
    let refused = || async { former.open(&rw, PATIENCE).await.is_err().then_some(()) };
    eventually("the former password is refused", refused).await;
    eventually("the new one is taken", || started(&home)).await;
    let address = async || {
        let app = secrets.get("demo-app").await.unwrap();
        String::from_utf8(app.data.unwrap()["uri"].0.clone()).unwrap()
    };
    eventually("it is in the address", || async { address().await.contains(":it%27s%20a%20s3cret%2F@").then_some(()) })
        .await;

    secrets.delete("demo-app", &DeleteParams::default()).await.unwrap();
    let made = || async { secrets.get_opt("demo-app").await.unwrap() };
    eventually("the Secret is made anew", made).await;
    eventually("what is in it works", || started(&home)).await;

    let first = eventually("certificates are shown", || all_shown(&home)).await;
    for name in ["demo-server", "demo-replication"] {
        secrets.delete(name, &DeleteParams::default()).await.unwrap();
    }
    let others = || async {
        let now = all_shown(&home).await?;
        now.iter().zip(&first).all(|(now, then)| now != then).then_some(())
    };
    eventually("PostgreSQL and agents show others", others).await;

    let api: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
    let larger = json!({"spec": {"storage": {"size": "123Gi"}}});
    let asked = api.patch("demo", &merge, &Patch::Merge(&larger)).await.unwrap().metadata.generation;
    let grown = || async {
        let claims = claims.list(&Default::default()).await.unwrap();
        let has = |claim: &PersistentVolumeClaim| Some(claim.status.as_ref()?.capacity.as_ref()?["storage"].0.clone());
        let status = api.get("demo").await.unwrap().status?;
        let synced = status.conditions.into_iter().find(|condition| condition.type_ == "Synced")?;
        let all = claims.iter().all(|claim| has(claim).as_deref() == Some("123Gi"));
        (all && synced.status == "True" && synced.observed_generation == asked).then_some(())
    };
    eventually("every volume is larger", grown).await;

    assert_eq!(started(&home).await, Some(before), "nothing was restarted");
    let mut switchover = Command::new(env!("CARGO_BIN_EXE_bellwether"));
    switchover.args(["switchover", "demo", "--to", "demo-2"]).env("KUBECONFIG", home.kubeconfig());
    let switchover = switchover.output().unwrap();
    assert!(switchover.status.success(), "agents understand each other: {switchover:?}");
    home.ready("demo", 2).await;
}

/// As the superuser, on whichever instance takes it.
async fn insist(home: &Home, sql: &str) {
    let pods = std::fs::read_dir(home.path().join("pods")).unwrap().flatten();
    let volumes = pods.flat_map(|pod| std::fs::read_dir(pod.path()).into_iter().flatten().flatten());
    let mut taken = 0;
    for socket in volumes.map(|volume| volume.path().join("socket")).filter(|path| path.is_dir()) {
        let Ok(session) = Session::local(&socket, POSTGRES_PORT, POSTGRES_DATABASE, PATIENCE).await else { continue };
        taken += usize::from(session.run_script(sql).await.is_ok());
    }
    assert_eq!(taken, 1, "a primary takes it: {sql}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn note_29_a_standby_that_can_t_stream_is_said_to_be_unhealthy_until_it_streams() {
    let home = Home::up(&["--replicas", "2"]).await;
    home.ready("demo", 2).await;
    let says = async |condition: &str, status: &str, reason: &str| {
        let wanted = (status.to_owned(), reason.to_owned());
        let said = || async { home.condition("demo", condition).await.filter(|seen| *seen == wanted) };
        eventually(&format!("{condition}={status}/{reason}"), said).await;
    };
    says("Degraded", "False", "AsSpecified").await;
    insist(&home, &format!("alter role {REPLICATION_USER} nologin")).await;
    insist(&home, "do $$ begin assert not pg_is_in_recovery(); perform pg_terminate_backend(pid) from pg_stat_replication; end $$").await;
    says("Degraded", "True", "ReplicaUnhealthy").await;
    says("Ready", "True", "AsSpecified").await;
    insist(&home, &format!("alter role {REPLICATION_USER} login")).await;
    says("Degraded", "False", "AsSpecified").await;
}
