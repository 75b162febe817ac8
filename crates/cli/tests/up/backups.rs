//! Backups of a cluster into a real S3 server: on demand and by schedule, the log beside them, and what becomes of both in a failover.

use std::collections::BTreeSet;
use std::time::Duration;

use bellwether_api::labels;
use bellwether_api::v1::{Backup, BackupPhase, BackupSpec, BackupStatus, PostgresCluster};
use bellwether_backup::base::{self, seal};
use bellwether_backup::catalog::{self, Catalog};
use bellwether_backup::{Store, WalFile};
use chaos::embedded::Site;
use chaos::fault::Fault;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::home::{Home, eventually};
use crate::store::proxy::{self, Proxy};
use crate::store::s3::{self, KEY};

/// More than a segment of log.
pub const BURST: &str = "insert into burst select n, repeat(md5(n::text), 40) from generate_series(1, 20000) n";
pub const TABLE: &str = "create table burst (n int, what text)";

/// A server behind a proxy, and a cluster that archives there.
pub async fn archiving(replicas: &str) -> (s3::Server, Proxy, Home) {
    archiving_and_verifying(replicas, "scheduled").await
}

/// The same, with this policy of verification.
pub async fn archiving_and_verifying(replicas: &str, policy: &str) -> (s3::Server, Proxy, Home) {
    let server = s3::Server::start().await;
    let proxy = Proxy::before(server.address).await;
    let home = Home::up(&["--no-cluster"]).await;
    let client = home.client().await;
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let secret = json!({
        "metadata": {"name": "s3"},
        "stringData": {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": s3::SECRET},
    });
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let clusters: Api<PostgresCluster> = Api::default_namespaced(client);
    let cluster = json!({
        "apiVersion": "bellwether.dev/v1", "kind": "PostgresCluster", "metadata": {"name": "demo"},
        "spec": {
            "version": newest(), "replicas": replicas.parse::<i32>().unwrap(),
            "backup": {"verification": {"policy": policy}, "store": {
                "url": format!("s3://{}/prod", s3::BUCKET),
                "endpoint": format!("http://{}", proxy.address),
                "credentials": {"name": "s3"},
            }},
        },
    });
    clusters.create(&PostParams::default(), &serde_json::from_value(cluster).unwrap()).await.unwrap();
    home.ready("demo", replicas.parse().unwrap()).await;
    (server, proxy, home)
}

pub fn newest() -> String {
    bellwether_postgres::installation::find_all().pop().expect("PostgreSQL is installed").major
}

pub async fn backups(home: &Home) -> Api<Backup> {
    Api::default_namespaced(home.client().await)
}

pub async fn ask_for(home: &Home, name: &str) {
    let backup = Backup::new(name, BackupSpec { cluster: "demo".to_owned(), ..BackupSpec::default() });
    backups(home).await.create(&PostParams::default(), &backup).await.unwrap();
}

pub async fn over(home: &Home, name: &str) -> BackupStatus {
    let api = backups(home).await;
    let over = || async {
        let status = api.get_opt(name).await.ok()??.status?;
        status.phase.is_some_and(BackupPhase::is_taken).then_some(status)
    };
    eventually(&format!("{name} is over"), over).await
}

async fn verified(home: &Home, name: &str) -> BackupStatus {
    let api = backups(home).await;
    let over = || async {
        let status = api.get_opt(name).await.ok()??.status?;
        matches!(status.phase, Some(BackupPhase::Verified | BackupPhase::Failed)).then_some(status)
    };
    eventually(&format!("{name} is verified, or not"), over).await
}

/// The archive that the cluster has in the store.
pub async fn archive(store: &Store) -> Store {
    let names = store.directories("").await.unwrap();
    let [name] = names.iter().filter(|name| *name != "probe").collect::<Vec<_>>()[..] else { panic!("{names:?}") };
    store.below(name)
}

/// The names of segments in the archive.
pub async fn segments(store: &Store) -> BTreeSet<String> {
    let found = archive(store).await.list("wal").await.unwrap();
    let segment = |key: &str| match WalFile::of_key(key)? {
        WalFile::Segment(name) => Some(name.to_string()),
        _ => None,
    };
    found.iter().filter_map(|entry| segment(&entry.key)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_cluster_is_backed_up_at_once_and_another_backup_is_taken_when_one_is_asked_for() {
    let (server, _proxy, home) = archiving("3").await;
    // Nobody waits until two at night for the first.
    let api = backups(&home).await;
    let first = || async { api.list(&ListParams::default()).await.ok()?.items.into_iter().next() };
    let first = eventually("a backup is scheduled", first).await.metadata.name.unwrap();
    let status = over(&home, &first).await;
    assert!(status.phase.is_some_and(BackupPhase::is_complete), "{status:?}");
    assert_ne!(status.instance.as_deref(), Some("demo-1"), "a standby gives it: {status:?}");
    let status = verified(&home, &first).await;
    assert_eq!(status.phase, Some(BackupPhase::Verified), "{status:?}");
    let verification = status.verification.expect("it says what it saw");
    assert!(verification.reached_lsn.is_some() && verification.restore_time.is_some(), "{verification:?}");
    let phases: Vec<_> = verification.phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(phases, ["unpack", "log", "manifest", "recovery", "structure", "queries", "pages"]);
    let proven = || async { home.condition("demo", "BackupVerified").await.filter(|(status, _)| status == "True") };
    eventually("the cluster says that its backup was verified", proven).await;
    let pods: Api<Pod> = Api::default_namespaced(home.client().await);
    let gone = || async {
        let verifiers = pods.list(&ListParams::default().labels(labels::VERIFIES)).await.ok()?.items;
        verifiers.is_empty().then_some(())
    };
    eventually("the pod that verified it is gone", gone).await;

    home.execute("demo", "create table kept as select n from generate_series(1, 1000) n").await;
    ask_for(&home, "mine").await;
    let status = over(&home, "mine").await;
    assert_eq!(status.phase, Some(BackupPhase::Completed), "{status:?}");
    assert!(status.size_bytes > Some(1 << 20) && status.stored_bytes > Some(1 << 18), "{status:?}");
    assert_eq!(home.condition("demo", "BackedUp").await.unwrap().0, "True");
    assert_eq!(home.condition("demo", "Archiving").await.unwrap().0, "True");

    // As hard as it is asked for: less is compressed, so more is stored.
    let rough = json!({"spec": {"backup": {"compression": {"level": 1, "workers": 1}, "maxRate": "512Mi"}}});
    let clusters: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
    clusters.patch("demo", &PatchParams::default(), &Patch::Merge(&rough)).await.unwrap();
    ask_for(&home, "rough").await;
    let roughly = over(&home, "rough").await;
    assert!(roughly.stored_bytes > status.stored_bytes, "{roughly:?} {status:?}");

    // The store alone says the same.
    let catalog = Catalog::read(&archive(&server.store()).await).await.unwrap();
    let ids: Vec<_> = catalog.backups.iter().map(|backup| backup.commit.id.to_string()).collect();
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert!(catalog.backups[0].verified.is_some(), "the store knows that the first was verified");
    assert!(catalog.backups[1].verified.is_none(), "nobody asked for that of the second");
    assert_eq!(Some(ids[1].as_str()), status.id.as_deref());
    assert_eq!(catalog::archives(&server.store()).await.unwrap().archives.len(), 1);

    // What is removed here is not removed there.
    api.delete("mine", &DeleteParams::default()).await.unwrap();
    assert_eq!(Catalog::read(&archive(&server.store()).await).await.unwrap().backups.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_segment_is_missing_after_a_primary_was_killed_in_the_middle_of_a_burst() {
    let (server, _proxy, home) = archiving("3").await;
    let site = Site { client: home.client().await, up: i32::try_from(home.pid()).unwrap() };
    home.execute("demo", TABLE).await;
    for _ in 0..4 {
        home.execute("demo", BURST).await;
    }
    let before = site.primary().await.unwrap();
    site.hurt(Fault::PostmasterKilled, &before).await.unwrap();
    home.ready("demo", 3).await;
    eventually("writes go on", || async { home.try_execute("demo", "select 1").await.ok() }).await;
    for _ in 0..2 {
        home.execute("demo", BURST).await;
    }
    ask_for(&home, "after").await;
    let status = over(&home, "after").await;
    assert_eq!(status.phase, Some(BackupPhase::Completed), "{status:?}");
    let found = segments(&server.store()).await;
    let numbers: BTreeSet<u64> = found.iter().map(|name| u64::from_str_radix(&name[16..], 16).unwrap()).collect();
    let (first, last) = (*numbers.first().unwrap(), *numbers.last().unwrap());
    let missing: Vec<_> = (first..=last).filter(|number| !numbers.contains(number)).collect();
    assert_eq!(missing, Vec::<u64>::new(), "of {found:?}");
    assert!(last - first >= 6, "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn note_20_while_the_store_is_down_the_log_is_kept_that_is_said_and_all_of_it_ends_by_itself() {
    let (_server, proxy, home) = archiving("1").await;
    let api = backups(&home).await;
    let any = || async { api.list(&ListParams::default()).await.ok()?.items.into_iter().next()?.metadata.name };
    let first = eventually("a backup is scheduled", any).await;
    // Its verification reads from there too, and is not what this is about.
    assert_eq!(verified(&home, &first).await.phase, Some(BackupPhase::Verified));

    proxy.fail("PUT", "/wal/", proxy::Fault::Unavailable, usize::MAX);
    home.execute("demo", TABLE).await;
    home.execute("demo", BURST).await;
    let failing = || async { home.condition("demo", "Archiving").await.filter(|(status, _)| status == "False") };
    assert_eq!(eventually("it is said", failing).await.1, "ArchiveFailing");
    assert_eq!(home.condition("demo", "Ready").await.unwrap().0, "True", "nobody who writes is hurt by it");
    let clusters: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
    let rests = || async {
        let conditions = clusters.get_opt("demo").await.ok()??.status?.conditions;
        let said = conditions.into_iter().find(|condition| condition.type_ == "Archiving")?.message;
        (said.contains("left alone since 20") && said.contains("it is down") && said.contains("SlowDown")).then_some(())
    };
    eventually("it is said since when it is left alone, and why", rests).await;
    let status = || async { clusters.get_opt("demo").await.ok()??.status };
    let stale = || async { status().await?.recoverable_to };
    let until = eventually("it is said up to when the database can be restored", stale).await;
    assert!(until.0 < Timestamp::now(), "{until:?}");
    proxy.heal();
    let works = || async { home.condition("demo", "Archiving").await.filter(|(status, _)| status == "True") };
    eventually("it catches up", works).await;
    ask_for(&home, "after").await;
    assert_eq!(over(&home, "after").await.phase, Some(BackupPhase::Completed));
    let window = || async { Some(status().await?).filter(|status| status.recoverable_to.is_none())?.recoverable_from };
    let since = eventually("it is said since when every moment can be restored", window).await;
    let taken = api.get(&first).await.unwrap().status.unwrap();
    assert!(Some(&since) <= taken.completed_at.as_ref(), "{since:?} {taken:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn note_31_a_backup_of_which_all_is_copied_is_not_complete_while_its_log_does_not_get_into_the_store() {
    let (server, proxy, home) = archiving_and_verifying("1", "never").await;
    let api = backups(&home).await;
    let any = || async { api.list(&ListParams::default()).await.ok()?.items.into_iter().next()?.metadata.name };
    let first = eventually("a backup is scheduled", any).await;
    assert_eq!(over(&home, &first).await.phase, Some(BackupPhase::Completed));

    proxy.fail("PUT", "/wal/", proxy::Fault::Unavailable, usize::MAX);
    ask_for(&home, "mine").await;
    let status = || async { api.get_opt("mine").await.ok()??.status };
    let copied = || async {
        let status = status().await?;
        status.message.as_ref().is_some_and(|said| said.contains("waiting for the end of its log")).then_some(status)
    };
    let id = eventually("all of it is copied", copied).await.id.unwrap();
    let failing = || async { home.condition("demo", "Archiving").await.filter(|(status, _)| status == "False") };
    eventually("the log does not get there", failing).await;
    let archive = archive(&server.store()).await;
    let there: Vec<_> = archive.list(&format!("base/{id}")).await.unwrap().into_iter().map(|entry| entry.key).collect();
    assert!(there.iter().any(|key| key.contains("pack-")), "{there:?}");
    assert!(!there.iter().any(|key| key.ends_with("commit.json")), "it counts by nobody's word: {there:?}");
    assert_eq!(status().await.unwrap().phase, Some(BackupPhase::Running));

    proxy.heal();
    let status = over(&home, "mine").await;
    assert_eq!((status.phase, status.id.as_ref()), (Some(BackupPhase::Completed), Some(&id)), "{status:?}");
    let commit = seal::read(&archive, &id.parse().unwrap()).await.unwrap();
    let found = segments(&server.store()).await;
    let needed = base::needed_segments(&commit);
    assert!(!needed.is_empty() && needed.iter().all(|name| found.contains(&name.to_string())), "{needed:?} {found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_that_are_wrong_are_named_and_never_shown_and_the_right_ones_help_without_a_restart() {
    let (_server, _proxy, home) = archiving("1").await;
    let secrets: Api<Secret> = Api::default_namespaced(home.client().await);
    let set = async |secret: &str| {
        let patch = Patch::Merge(json!({"stringData": {"AWS_SECRET_ACCESS_KEY": secret}}));
        secrets.patch("s3", &PatchParams::default(), &patch).await.unwrap();
    };
    set("hunter2hunter2").await;
    home.execute("demo", TABLE).await;
    home.execute("demo", BURST).await;
    let failing = || async { home.condition("demo", "Archiving").await.filter(|(status, _)| status == "False") };
    eventually("it is said", failing).await;
    set(s3::SECRET).await;
    let works = || async { home.condition("demo", "Archiving").await.filter(|(status, _)| status == "True") };
    eventually("it is said that it works", works).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    let logs = std::fs::read_dir(home.path().join("logs")).unwrap().flatten();
    let said: String = logs.map(|file| std::fs::read_to_string(file.path()).unwrap_or_default()).collect();
    assert!(!said.contains("hunter2") && !said.contains(s3::SECRET), "a secret is in a log");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn note_33_a_backup_with_one_byte_changed_is_never_verified_and_the_next_one_is() {
    let (server, _proxy, home) = archiving("1").await;
    let api = backups(&home).await;
    let any = || async { api.list(&ListParams::default()).await.ok()?.items.into_iter().next()?.metadata.name };
    let first = eventually("a backup is scheduled", any).await;
    assert_eq!(verified(&home, &first).await.phase, Some(BackupPhase::Verified));

    ask_for(&home, "mine").await;
    let status = over(&home, "mine").await;
    assert_eq!(status.phase, Some(BackupPhase::Completed), "{status:?}");
    let archive = archive(&server.store()).await;
    let commit = seal::read(&archive, &status.id.unwrap().parse().unwrap()).await.unwrap();
    let pack = server.file(&format!("{}/{}", status.archive.unwrap(), commit.packs[0].key));
    let mut body = std::fs::read(&pack).unwrap();
    let middle = body.len() / 2;
    body[middle] ^= 1;
    std::fs::write(&pack, body).unwrap();
    let wish = Patch::Merge(json!({"spec": {"verify": true}}));
    api.patch("mine", &PatchParams::default(), &wish).await.unwrap();
    let status = verified(&home, "mine").await;
    assert_eq!(status.phase, Some(BackupPhase::Failed), "{status:?}");
    let why = status.message.unwrap_or_default();
    assert!(why.contains(&commit.packs[0].key) && why.contains("damaged"), "{why}");
    let refuted = || async { home.condition("demo", "BackupVerified").await.filter(|(status, _)| status == "False") };
    assert_eq!(eventually("the cluster says so", refuted).await.1, "VerificationFailed");

    let (code, said) = home.asked(&["backup", "now", "demo", "--verify"]);
    assert!(code == Some(0) && said.contains("nothing is wrong with it"), "{said}");
    let proven = || async { home.condition("demo", "BackupVerified").await.filter(|(status, _)| status == "True") };
    eventually("the cluster says that too", proven).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_answers_something_else_in_the_restored_database_fails_the_verification() {
    let (_server, _proxy, home) = archiving("1").await;
    let api = backups(&home).await;
    let any = || async { api.list(&ListParams::default()).await.ok()?.items.into_iter().next()?.metadata.name };
    let first = eventually("a backup is scheduled", any).await;
    assert_eq!(verified(&home, &first).await.phase, Some(BackupPhase::Verified));
    home.execute("demo", "create table kept as select n from generate_series(1, 1000) n").await;
    let expect = async |count: &str| {
        let clusters: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
        let queries = json!([{"sql": "select count(*) from kept", "expected": [[count]]}]);
        let patch =
            Patch::Merge(json!({"spec": {"backup": {"verification": {"policy": "always", "queries": queries}}}}));
        clusters.patch("demo", &PatchParams::default(), &patch).await.unwrap();
    };
    expect("1000").await;
    ask_for(&home, "good").await;
    let status = verified(&home, "good").await;
    assert_eq!(status.phase, Some(BackupPhase::Verified), "{status:?}");
    assert_eq!(status.verification.unwrap().queries, Some(1));
    expect("1001").await;
    ask_for(&home, "bad").await;
    let status = verified(&home, "bad").await;
    assert_eq!(status.phase, Some(BackupPhase::Failed), "{status:?}");
    let why = status.message.unwrap_or_default();
    assert!(why.contains("select count(*) from kept") && why.contains("1000") && why.contains("1001"), "{why}");
}
