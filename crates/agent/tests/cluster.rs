//! Agents together: bootstrap, joining, following, crashes, replaced pods, changed Secrets. Real agents, real PostgreSQL, the
//! in-memory API.

mod support;
#[path = "support/cluster.rs"]
mod support_cluster;

use std::time::Duration;

use bellwether_api::labels;
use bellwether_api::v1::{DurabilityMode, InstanceRole, InstanceState};
use bellwether_core::contract::{InstanceConfig, Leaving, Report};
use bellwether_core::lease_object::{MEMBERS, SYNC};
use k8s_openapi::jiff::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support_cluster::Cluster;

fn config(instances: &[&str]) -> InstanceConfig {
    let mut config = InstanceConfig {
        instances: instances.iter().map(|name| (*name).to_owned()).collect(),
        bootstrap_instance: "orders-1".into(),
        durability: Some(DurabilityMode::Quorum),
        ..InstanceConfig::default()
    };
    config.initdb.post_init_sql =
        vec!["create table greetings (text text)".into(), "grant all on greetings to app".into()];
    config
}

fn leads(report: &Report) -> bool {
    report.state == InstanceState::Leading && report.accepts_sql && report.role == Some(InstanceRole::Primary)
}
fn streams(report: &Report) -> bool {
    report.state == InstanceState::Streaming && report.accepts_sql && report.role == Some(InstanceRole::Standby)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_comes_up_survives_crashes_and_is_silent_when_idle() {
    let mut cluster = Cluster::new(&config(&["orders-1", "orders-2", "orders-3"])).await;
    for (instance, host) in [("orders-3", 3), ("orders-2", 2), ("orders-1", 1)] {
        cluster.start(instance, host).await;
    }
    let leader = cluster.wait_for_report("orders-1", "it leads", leads).await;
    for standby in ["orders-2", "orders-3"] {
        let report = cluster.wait_for_report(standby, "it streams", streams).await;
        assert_eq!(report.system_identifier, leader.system_identifier);
    }
    assert_eq!(cluster.endpoints().await, [cluster.address(1).to_string()]);
    let lease = cluster.lease().await;
    let annotations = lease.metadata.annotations.unwrap();
    assert_eq!(annotations[labels::SYSTEM_IDENTIFIER], leader.system_identifier.unwrap().to_string());
    assert_eq!(lease.spec.unwrap().lease_transitions, Some(1));

    // Commits wait for a standby from now on, and postInitSql ran once.
    cluster.wait_for_report("orders-1", "nothing is left to say", |report| report.message.is_none()).await;
    let app = cluster.connect("orders-1", 1, "first").await.unwrap();
    support::eventually("commits wait for any one of two identities", async || {
        let names = app.setting("synchronous_standby_names").await.unwrap().unwrap();
        names.starts_with("ANY 1 (") && names.matches('-').count() == 8
    })
    .await;
    // The record of it, and of both members, is written; after that nothing is.
    support::eventually("the record is settled", async || {
        let annotations = cluster.lease().await.metadata.annotations.unwrap();
        annotations[MEMBERS].matches('-').count() == 12 && annotations[SYNC].matches("needed").count() == 1
    })
    .await;
    app.run_script("insert into greetings values ('hello')").await.unwrap();

    // Nothing happens, so nothing is written.
    let before = cluster.writes();
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(cluster.writes(), before, "an idle cluster writes nothing");

    // The primary's PostgreSQL crashes: one that has everything takes over, and the other two follow it.
    let first = cluster.below("orders-1");
    let session = cluster.connect("orders-1", 1, "first").await.unwrap();
    kill(Pid::from_raw(cluster.postmaster("orders-1")), Signal::SIGKILL).unwrap();
    let (leader, report) = cluster.wait_for_leader(2).await;
    assert_ne!(leader, "orders-1");
    assert_eq!(report.term, Some(2));
    assert!(first.iter().all(|pid| !support::is_alive(*pid)), "nothing of the first PostgreSQL is left");
    assert!(session.run_script("select 1").await.is_err(), "its sessions are closed");
    for standby in ["orders-1", "orders-2", "orders-3"].into_iter().filter(|name| *name != leader) {
        cluster.wait_for_report(standby, "it streams", |report| streams(report) && report.term == Some(2)).await;
    }
    let host = leader.rsplit('-').next().unwrap().parse().unwrap();
    assert_eq!(cluster.endpoints().await, [cluster.address(host).to_string()]);
    let app = cluster.connect(&leader, host, "first").await.unwrap();
    app.run_script("do $$ begin assert (select count(*) from greetings) = 1; end $$").await.unwrap();
    app.run_script("insert into greetings values ('again')").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_deleted_hands_over_first_and_settings_follow_the_mounts() {
    let mut wanted = config(&["orders-1", "orders-2"]);
    let mut cluster = Cluster::new(&wanted).await;
    cluster.start("orders-1", 1).await;
    cluster.start("orders-2", 2).await;
    cluster.wait_for_report("orders-1", "it leads", leads).await;
    cluster.wait_for_report("orders-2", "it streams", streams).await;
    cluster.wait_for_voters(1).await;

    // Its pod is deleted: the other takes over before it goes. It comes back with another UID and address, on the same volume.
    let app = cluster.connect("orders-1", 1, "first").await.unwrap();
    app.run_script("insert into greetings values ('kept')").await.unwrap();
    cluster.delete("orders-1").await;
    let report = cluster.wait_for_report("orders-2", "it leads", leads).await;
    assert_eq!(report.term, Some(2));
    assert_eq!(cluster.endpoints().await, [cluster.address(2).to_string()]);
    cluster.start("orders-1", 7).await;
    cluster.wait_for_report("orders-1", "it streams", |report| streams(report) && report.term == Some(2)).await;
    let app = cluster.connect("orders-2", 2, "first").await.unwrap();
    app.run_script("do $$ begin assert (select text from greetings) = 'kept'; end $$").await.unwrap();

    // A new password is taken over, the old one is refused; a parameter that needs a restart is said.
    cluster.set_password("second");
    wanted.parameters.insert("max_connections".into(), "77".into());
    wanted.parameters.insert("work_mem".into(), "5MB".into());
    wanted.instances.remove(0);
    wanted.durability = Some(DurabilityMode::Async);
    cluster.configure(&wanted);
    let pending = |report: &Report| report.message.as_deref().is_some_and(|text| text.contains("max_connections"));
    cluster.wait_for_report("orders-2", "a restart is pending", |report| leads(report) && pending(report)).await;
    assert!(cluster.connect("orders-2", 2, "first").await.is_err());
    let app = cluster.connect("orders-2", 2, "second").await.unwrap();
    assert_eq!(app.setting("work_mem").await.unwrap().as_deref(), Some("5MB"));

    // The instance that left holds back no WAL once it is gone.
    cluster.delete("orders-1").await;
    let mut slots = 1;
    while slots > 0 {
        let root = support_cluster::superuser(&cluster, "orders-2").await;
        slots = root.slots().await.unwrap().len();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_leaves_is_let_go_and_one_that_is_to_stay_after_all_is_let_in_again() {
    let all = ["orders-1", "orders-2", "orders-3"];
    let mut cluster = Cluster::new(&config(&all)).await;
    for (instance, host) in all.into_iter().zip(1..) {
        cluster.start(instance, host).await;
    }
    cluster.wait_for_report("orders-1", "it leads", leads).await;
    for standby in ["orders-2", "orders-3"] {
        cluster.wait_for_report(standby, "it streams", streams).await;
    }
    cluster.wait_for_voters(2).await;
    let identity = cluster.report("orders-3").await.identity.unwrap();
    let recorded = async |key: &str| cluster.lease().await.metadata.annotations.unwrap()[key].contains(&identity);
    let keeps = |report: &Report, names: &[&str]| report.slots.as_deref().is_some_and(|slots| slots == names);
    assert!(recorded(MEMBERS).await && recorded(SYNC).await);
    cluster.wait_for_report("orders-1", "it keeps a slot for both", |report| keeps(report, &all[1..])).await;

    // It may leave: commits count on it no more, then it is no member, then it stops to stream, and then its slot goes.
    let mut fewer = config(&all[..2]);
    fewer.leaving = vec![Leaving { instance: "orders-3".into(), since: Timestamp::UNIX_EPOCH }];
    cluster.configure(&fewer);
    let left = |report: &Report| report.state == InstanceState::NotStreaming;
    let report = cluster.wait_for_report("orders-3", "it has left", left).await;
    assert!(report.message.is_some_and(|message| message.contains("left")));
    assert!(!recorded(MEMBERS).await && !recorded(SYNC).await);
    cluster.wait_for_report("orders-1", "its slot is gone", |report| keeps(report, &all[1..2])).await;
    let app = cluster.connect("orders-1", 1, "first").await.unwrap();
    app.run_script("insert into greetings values ('without it')").await.unwrap();

    // Somebody changes their mind.
    cluster.configure(&config(&all));
    cluster.wait_for_report("orders-3", "it streams again", streams).await;
    support::eventually("it is a member again", async || recorded(MEMBERS).await && recorded(SYNC).await).await;
    assert_eq!(cluster.lease().await.spec.unwrap().lease_transitions, Some(1), "and nobody else led");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_lost_its_volume_and_a_foreign_volume_are_refused() {
    let mut cluster = Cluster::new(&config(&["orders-1"])).await;
    let notes = cluster.home.path().join("orders-1/data/notes.txt");
    std::fs::create_dir_all(notes.parent().unwrap()).unwrap();
    std::fs::write(&notes, "mine").unwrap();
    cluster.start("orders-1", 1).await;
    let refused = cluster.wait_for_report("orders-1", "it refuses", |report| report.state == InstanceState::Down).await;
    assert!(refused.message.unwrap().contains("notes.txt"));
    std::fs::remove_file(&notes).unwrap();
    cluster.wait_for_report("orders-1", "it leads", leads).await;
    cluster.delete("orders-1").await;

    let data = cluster.home.path().join("orders-1/data");
    std::fs::remove_dir_all(&data).unwrap();
    cluster.start("orders-1", 1).await;
    let refused = cluster.wait_for_report("orders-1", "it refuses", |report| report.state == InstanceState::Down).await;
    assert!(refused.message.unwrap().contains("nothing was initialised"));
    assert!(!cluster.pgdata("orders-1").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn retained_volumes_are_adopted_by_whoever_has_the_most() {
    let mut wanted = config(&["orders-1", "orders-2"]);
    let mut cluster = Cluster::new(&wanted).await;
    cluster.start("orders-1", 1).await;
    cluster.start("orders-2", 2).await;
    let before = cluster.wait_for_report("orders-1", "it leads", leads).await;
    cluster.wait_for_report("orders-2", "it streams", streams).await;
    let app = cluster.connect("orders-1", 1, "first").await.unwrap();
    app.run_script("insert into greetings values ('kept')").await.unwrap();
    drop(app);
    cluster.delete("orders-1").await;
    cluster.delete("orders-2").await;

    // The cluster was deleted and made anew: an empty Lease, and an operator that knows whose volumes these are.
    cluster.renew_lease().await;
    wanted.bootstrap_instance = "orders-2".into();
    wanted.system_identifier = before.system_identifier;
    cluster.configure(&wanted);
    cluster.start("orders-2", 2).await;
    cluster.start("orders-1", 1).await;
    let (leader, after) = cluster.wait_for_leader(1).await;
    assert_eq!(after.system_identifier, before.system_identifier);
    assert!(after.timeline > before.timeline, "a promotion begins a timeline of its own");
    let host = leader.rsplit('-').next().unwrap().parse().unwrap();
    let app = cluster.connect(&leader, host, "first").await.unwrap();
    app.run_script("do $$ begin assert (select text from greetings) = 'kept'; end $$").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_somebody_promotes_is_stopped_and_follows_again() {
    let mut cluster = Cluster::new(&config(&["orders-1", "orders-2"])).await;
    cluster.start("orders-1", 1).await;
    cluster.start("orders-2", 2).await;
    let leader = cluster.wait_for_report("orders-1", "it leads", leads).await;
    cluster.wait_for_report("orders-2", "it streams", streams).await;

    // Its log parts from the leader's: it has a timeline that the leader never had.
    support_cluster::superuser(&cluster, "orders-2").await.promote().await.unwrap();
    let branch = cluster.pgdata("orders-2").join("pg_wal/00000002.history");
    support::eventually("it was promoted", async || branch.exists()).await;
    support::eventually("that is gone", async || !branch.exists()).await;
    let report = cluster.wait_for_report("orders-2", "it streams", streams).await;
    assert_eq!((report.timeline, report.system_identifier), (leader.timeline, leader.system_identifier));
    let aside = cluster.home.path().join("orders-2/data/pgdata.aside");
    support::eventually("what parted is removed once the copy streams", async || !aside.exists()).await;
    assert_eq!(cluster.endpoints().await, [cluster.address(1).to_string()], "nobody was led there");
}
