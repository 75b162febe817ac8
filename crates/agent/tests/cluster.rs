//! Agents together: bootstrap, joining, following, crashes, replaced pods, changed Secrets. Real agents, real PostgreSQL, the
//! in-memory API.

mod support;
#[path = "support/cluster.rs"]
mod support_cluster;

use std::time::Duration;

use bellwether_api::labels;
use bellwether_api::v1::{DurabilityMode, InstanceRole, InstanceState};
use bellwether_core::contract::{InstanceConfig, Report};
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
    assert_eq!(
        app.setting("synchronous_standby_names").await.unwrap().as_deref(),
        Some(r#"ANY 1 ("orders-2", "orders-3")"#)
    );
    app.run_script("insert into greetings values ('hello')").await.unwrap();

    // Nothing happens, so nothing is written.
    let before = cluster.writes();
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(cluster.writes(), before, "an idle cluster writes nothing");

    // The primary's PostgreSQL crashes: it comes back in place, in the same term.
    let first = cluster.below("orders-1");
    let postmaster = std::fs::read_to_string(cluster.pgdata("orders-1").join("postmaster.pid")).unwrap();
    let postmaster: i32 = postmaster.lines().next().unwrap().parse().unwrap();
    kill(Pid::from_raw(postmaster), Signal::SIGKILL).unwrap();
    cluster.wait_for_report("orders-1", "it is down", |report| !report.accepts_sql).await;
    let again = cluster.wait_for_report("orders-1", "it leads again", leads).await;
    assert_eq!(again.term, Some(1));
    assert!(first.iter().all(|pid| !support::is_alive(*pid)), "nothing of the first PostgreSQL is left");
    for standby in ["orders-2", "orders-3"] {
        cluster.wait_for_report(standby, "it streams", streams).await;
    }
    cluster.connect("orders-1", 1, "first").await.unwrap().run_script("table greetings").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_leader_is_followed_to_its_new_address_and_settings_follow_the_mounts() {
    let mut wanted = config(&["orders-1", "orders-2"]);
    let mut cluster = Cluster::new(&wanted).await;
    cluster.start("orders-1", 1).await;
    cluster.start("orders-2", 2).await;
    cluster.wait_for_report("orders-1", "it leads", leads).await;
    cluster.wait_for_report("orders-2", "it streams", streams).await;

    // Its pod is replaced: another UID, another address, the same volume.
    cluster.delete("orders-1").await;
    assert_eq!(cluster.endpoints().await, [""; 0], "nobody is sent to an address that is gone");
    cluster
        .wait_for_report("orders-2", "it misses its primary", |report| report.state == InstanceState::NotStreaming)
        .await;
    cluster.start("orders-1", 7).await;
    let report = cluster.wait_for_report("orders-1", "it leads", leads).await;
    assert_eq!(report.term, Some(2));
    cluster.wait_for_report("orders-2", "it streams", |report| streams(report) && report.term == Some(2)).await;
    assert_eq!(cluster.endpoints().await, [cluster.address(7).to_string()]);

    // A new password is taken over, the old one is refused; a parameter that needs a restart is said.
    cluster.set_password("second");
    wanted.parameters.insert("max_connections".into(), "77".into());
    wanted.parameters.insert("work_mem".into(), "5MB".into());
    wanted.instances.pop();
    cluster.configure(&wanted);
    let pending = |report: &Report| report.message.as_deref().is_some_and(|text| text.contains("max_connections"));
    cluster.wait_for_report("orders-1", "a restart is pending", |report| leads(report) && pending(report)).await;
    assert!(cluster.connect("orders-1", 7, "first").await.is_err());
    let app = cluster.connect("orders-1", 7, "second").await.unwrap();
    assert_eq!(app.setting("work_mem").await.unwrap().as_deref(), Some("5MB"));

    // The instance that left holds back no WAL once it is gone.
    cluster.delete("orders-2").await;
    let mut slots = 1;
    while slots > 0 {
        let root = support_cluster::superuser(&cluster, "orders-1").await;
        slots = root.slots().await.unwrap().len();
    }
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
async fn the_retained_volume_of_a_standby_is_adopted_and_promoted() {
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

    // The cluster was deleted and made anew: an empty Lease, and an operator that knows whose volume this is.
    cluster.renew_lease().await;
    wanted.instances = vec!["orders-2".into()];
    wanted.bootstrap_instance = "orders-2".into();
    wanted.system_identifier = before.system_identifier;
    cluster.configure(&wanted);
    cluster.start("orders-2", 2).await;
    let after = cluster.wait_for_report("orders-2", "it leads", leads).await;
    assert_eq!(after.system_identifier, before.system_identifier);
    assert!(after.timeline > before.timeline, "a promotion begins a timeline of its own");
    let app = cluster.connect("orders-2", 2, "first").await.unwrap();
    app.run_script("do $$ begin assert (select text from greetings) = 'kept'; end $$").await.unwrap();
}
