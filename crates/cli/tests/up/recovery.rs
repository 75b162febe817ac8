//! New clusters whose database is restored from an object store: to a moment, from a backup, from what a deleted cluster left; and what can't be restored, which is said and never becomes a
//! database.

use std::collections::BTreeSet;

use bellwether_api::v1::{BackupPhase, PostgresCluster};
use bellwether_backup::catalog::Catalog;
use chaos::embedded::Site;
use chaos::fault::Fault;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use crate::backups::{BURST, TABLE, archiving_and_verifying, backups, newest, over, segments};
use crate::home::{Home, eventually};
use crate::store::proxy::{self, Proxy};
use crate::store::s3;

const SEGMENT: i64 = 16 << 20;
const ROWS: &str = "select count(*) from item";

/// A store behind a proxy, a cluster `demo` of one instance that archives there, and the name of its first backup.
async fn original() -> (s3::Server, Proxy, Home, String) {
    let (server, proxy, home) = archiving_and_verifying("1", "never").await;
    let api = backups(&home).await;
    let any = || async { api.list(&ListParams::default()).await.ok()?.items.into_iter().next()?.metadata.name };
    let first = eventually("a backup is scheduled", any).await;
    assert_eq!(over(&home, &first).await.phase, Some(BackupPhase::Completed));
    (server, proxy, home, first)
}

async fn number(home: &Home, cluster: &str, instance: &str, sql: &str) -> i64 {
    eventually(&format!("{instance} answers"), || home.number(cluster, instance, sql)).await
}

/// Has all that was written to `demo` archived.
async fn archived(home: &Home, server: &s3::Server) {
    let segment = format!("select (pg_current_wal_lsn() - '0/0')::bigint / {SEGMENT}");
    let last = number(home, "demo", "demo-1", &segment).await;
    home.execute("demo", &format!("{TABLE}; {BURST}; drop table burst")).await;
    let number_of = |name: &String| i64::from_str_radix(&format!("{}{}", &name[8..16], &name[22..24]), 16).unwrap();
    let there = || async { segments(&server.store()).await.iter().any(|name| number_of(name) >= last).then_some(()) };
    eventually("what was written is archived", there).await;
}

/// How a cluster says where a store is.
fn store(proxy: &Proxy) -> Value {
    json!({
        "url": format!("s3://{}/prod", s3::BUCKET), "endpoint": format!("http://{}", proxy.address), "credentials": {"name": "s3"},
    })
}

/// Creates a cluster that is restored.
async fn create(home: &Home, name: &str, replicas: u32, recovery: &Value, backup: &Value) {
    let clusters: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
    let cluster = json!({
        "apiVersion": "bellwether.dev/v1", "kind": "PostgresCluster", "metadata": {"name": name},
        "spec": {
            "version": newest(), "replicas": replicas, "storage": {"size": "1Gi", "wal": {"size": "1Gi"}},
            "bootstrap": {"recovery": recovery}, "backup": backup,
        },
    });
    clusters.create(&PostParams::default(), &serde_json::from_value(cluster).unwrap()).await.unwrap();
}

/// The message of `Ready`, once that is `False` for this reason.
async fn not_ready(home: &Home, cluster: &str, reason: &str) -> String {
    let api: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
    let says = || async {
        let conditions = api.get(cluster).await.ok()?.status?.conditions;
        let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
        (ready.status == "False" && ready.reason == reason).then_some(ready.message)
    };
    eventually(&format!("{cluster} is not Ready: {reason}"), says).await
}

fn pgdata(home: &Home, instance: &str) -> bool {
    let volumes = std::fs::read_dir(home.path().join("volumes")).unwrap().flatten();
    let of = |name: &str| name.contains(&format!("{instance}-data"));
    volumes.filter(|volume| of(&volume.file_name().to_string_lossy())).any(|volume| {
        let data = volume.path().join("data");
        data.join("pgdata/PG_VERSION").exists() || data.join("pgdata.scratch").exists()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_is_back_in_a_cluster_of_its_own_as_it_was_before_it_was_dropped_and_the_original_goes_on() {
    let (server, proxy, home, first) = original().await;
    home.execute("demo", "create table item as select n from generate_series(1, 1000) n").await;
    let before = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    home.execute("demo", "drop table item").await;
    archived(&home, &server).await;

    let recovery = json!({"backup": {"name": first}, "target": {"time": before}});
    let backup = json!({"store": store(&proxy), "verification": {"policy": "never"}});
    create(&home, "copy", 3, &recovery, &backup).await;
    home.ready("copy", 3).await;
    for instance in ["copy-1", "copy-2", "copy-3"] {
        // By the password in the new cluster's own Secret, over TLS by its own authority.
        assert_eq!(number(&home, "copy", instance, ROWS).await, 1000, "{instance}");
    }
    home.execute("copy", "insert into item values (1001)").await;
    let leads = number(&home, "copy", "copy-1", "select (not pg_is_in_recovery())::int::bigint").await;
    assert_eq!(leads, 1);
    let settings =
        "select count(*) from pg_settings where name in ('restore_command', 'recovery_target_time') and setting <> ''";
    assert_eq!(number(&home, "copy", "copy-1", settings).await, 0, "nothing of the recovery is left");

    // It is backed up where it alone writes, with the history of its timeline.
    let of_copy = || async {
        let store = server.store();
        let names: BTreeSet<_> = store.directories("").await.ok()?.into_iter().filter(|name| name != "probe").collect();
        for name in names {
            let catalog = Catalog::read(&store.below(&name)).await.ok()?;
            let mut backups = catalog.backups.iter();
            if backups.any(|backup| backup.commit.instance.starts_with("copy-")) {
                let [timeline] = catalog.histories.keys().collect::<Vec<_>>()[..] else { return None };
                assert!(catalog.wal.keys().all(|file| file.timeline() == *timeline), "{:?}", catalog.wal);
                return Some(name);
            }
        }
        None
    };
    let of_copy = eventually("the copy is backed up", of_copy).await;
    let api = backups(&home).await;
    let of_demo = api.get(&first).await.unwrap().status.unwrap().archive.unwrap();
    assert_ne!(of_copy, of_demo, "each has an archive of its own");
    assert_eq!(of_copy.split('-').next(), of_demo.split('-').next(), "it is the same database by its identifier");

    // The original knows nothing of all this.
    assert_eq!(home.condition("demo", "Ready").await.unwrap().0, "True");
    assert_eq!(home.condition("demo", "Archiving").await.unwrap().0, "True");
    let gone = "select count(*) from pg_class where relname = 'item'";
    assert_eq!(number(&home, "demo", "demo-1", gone).await, 0);
    home.execute("demo", "create table after (n int)").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_deleted_cluster_left_in_its_store_is_enough_through_a_store_that_is_away_and_an_agent_that_is_killed() {
    let (server, proxy, home, _) = original().await;
    home.execute("demo", "create table item as select n from generate_series(1, 1000) n").await;
    archived(&home, &server).await;
    let clusters: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
    clusters.delete("demo", &DeleteParams::default()).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(home.client().await);
    let gone = || async { pods.list(&ListParams::default()).await.ok()?.items.is_empty().then_some(()) };
    eventually("its pods are gone", gone).await;

    proxy.fail("GET", "/pack-", proxy::Fault::Unavailable, usize::MAX);
    let from = json!({"store": store(&proxy), "archive": "default/demo"});
    create(&home, "again", 1, &from, &json!({})).await;
    create(&home, "given-up", 1, &from, &json!({})).await;
    let waits = || async {
        let operation = clusters.get("again").await.ok()?.status?.operation?;
        let says = operation.waiting_on.contains("waiting: ") && operation.waiting_on.contains("pack-");
        says.then_some(format!("{:?}", operation.step))
    };
    assert_eq!(eventually("it is said what it waits for", waits).await, "Restoring");
    assert_eq!(home.condition("again", "Ready").await, Some(("False".to_owned(), "Restoring".to_owned())));

    // Deleting one ends it in the middle.
    clusters.delete("given-up", &DeleteParams::default()).await.unwrap();
    let gone = || async { pods.get_opt("given-up-1").await.ok()?.is_none().then_some(()) };
    eventually("its pod is gone", gone).await;

    // Half of it is there, and nobody takes that for a database.
    proxy.heal();
    // The segments themselves: what there is can be listed.
    proxy.fail("GET", "/wal/0000", proxy::Fault::Unavailable, usize::MAX);
    let recovers = || async {
        let waiting = clusters.get("again").await.ok()?.status?.operation?.waiting_on;
        waiting.contains("recovering from backup").then_some(())
    };
    eventually("it recovers", recovers).await;
    let site = Site { client: home.client().await, up: i32::try_from(home.pid()).unwrap() };
    site.hurt(Fault::AgentKilled, "again-1").await.unwrap();
    proxy.heal();
    home.ready("again", 1).await;
    assert_eq!(number(&home, "again", "again-1", ROWS).await, 1000);
    let logs = std::fs::read_dir(home.path().join("logs")).unwrap().flatten();
    let said: String = logs.map(|file| std::fs::read_to_string(file.path()).unwrap_or_default()).collect();
    assert!(!said.contains(s3::SECRET), "a secret is in a log");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_not_be_restored_is_said_and_never_becomes_a_database() {
    let (server, _proxy, home, first) = original().await;
    home.execute("demo", "create table item as select n from generate_series(1, 1000) n").await;
    archived(&home, &server).await;
    let from = |target: Value| json!({"cluster": {"name": "demo"}, "target": target});
    create(&home, "early", 1, &from(json!({"time": "2020-01-01T00:00:00Z"})), &json!({})).await;
    create(&home, "never", 1, &from(json!({"name": "never-made"})), &json!({})).await;
    create(&home, "nobody", 1, &json!({"cluster": {"name": "ghost"}}), &json!({})).await;
    create(&home, "nothing", 1, &json!({"backup": {"name": "lost"}}), &json!({})).await;

    let early = not_ready(&home, "early", "RecoveryTargetUnreachable").await;
    let id = backups(&home).await.get(&first).await.unwrap().status.unwrap().id.unwrap();
    let window = format!("what can be reached: from {id}, on timeline 1");
    assert!(early.contains("nothing was touched") && early.contains(&window), "{early}");
    assert!(!pgdata(&home, "early-1"), "nothing was touched");

    let never = not_ready(&home, "never", "RecoveryFailed").await;
    assert!(never.contains("recovery ended before configured recovery target was reached"), "{never}");
    assert!(never.contains("last completed transaction"), "where the log ended: {never}");

    let nobody = not_ready(&home, "nobody", "RecoverySourceMissing").await;
    assert!(nobody.contains("there is no PostgresCluster \"ghost\""), "{nobody}");
    let nothing = not_ready(&home, "nothing", "RecoverySourceMissing").await;
    assert!(nothing.contains("there is no Backup \"lost\""), "{nothing}");

    let pods: Api<Pod> = Api::default_namespaced(home.client().await);
    for instance in ["nobody-1", "nothing-1"] {
        assert!(pods.get_opt(instance).await.unwrap().is_none(), "{instance}: there is nothing that it could do");
    }
    // Nobody has led any of them, so nobody can ever have written to an empty database.
    let clusters: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
    for cluster in ["early", "never", "nobody", "nothing"] {
        let status = clusters.get(cluster).await.unwrap().status.unwrap();
        assert_eq!((status.system_identifier, status.primary), (None, None), "{cluster}");
    }
    // What was missing is there: it goes on by itself.
    clusters.delete("never", &DeleteParams::default()).await.unwrap();
    crate::backups::ask_for(&home, "lost").await;
    home.ready("nothing", 1).await;
    assert_eq!(number(&home, "nothing", "nothing-1", ROWS).await, 1000);
}
