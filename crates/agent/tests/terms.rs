//! A leader that leads again: what a standby goes by is the term, not who leads. Real agents, real PostgreSQL, the in-memory API.

mod support;
#[path = "support/cluster.rs"]
mod support_cluster;

use bellwether_api::v1::{DurabilityMode, InstanceRole, InstanceState};
use bellwether_core::contract::{InstanceConfig, Report};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support_cluster::{Cluster, superuser};

/// How a leader that hears no voter says that it gives way.
const STOOD_BACK: &str = "no voter was heard for long";
/// In the log of an agent whose log is not the beginning of its leader's.
const PARTS: &str = "this log parts from the leader's";

fn leads_in(term: u64) -> impl Fn(&Report) -> bool {
    move |report| {
        report.state == InstanceState::Leading
            && report.accepts_sql
            && report.role == Some(InstanceRole::Primary)
            && report.term == Some(term)
    }
}
fn streams_in(term: u64) -> impl Fn(&Report) -> bool {
    move |report| report.state == InstanceState::Streaming && report.accepts_sql && report.term == Some(term)
}

/// Three, of which the first leads, and commits wait for one of the others.
async fn cluster() -> Cluster {
    let mut config = InstanceConfig {
        instances: ["orders-1", "orders-2", "orders-3"].map(str::to_owned).to_vec(),
        bootstrap_instance: "orders-1".into(),
        durability: Some(DurabilityMode::Quorum),
        ..InstanceConfig::default()
    };
    config.initdb.post_init_sql =
        vec!["create table greetings (text text)".into(), "grant all on greetings to app".into()];
    let mut cluster = Cluster::new(&config).await;
    for (host, instance) in (1..).zip(&config.instances) {
        cluster.start(instance, host).await;
    }
    cluster.wait_for_report("orders-1", "it leads", leads_in(1)).await;
    for standby in ["orders-2", "orders-3"] {
        cluster.wait_for_report(standby, "it streams", streams_in(1)).await;
    }
    cluster.wait_for_voters(2).await;
    write(&cluster, 1, "first").await;
    cluster
}

async fn write(cluster: &Cluster, host: u8, text: &str) {
    let app = cluster.connect(&format!("orders-{host}"), host, "first").await.unwrap();
    app.run_script(&format!("insert into greetings values ('{text}')")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_comes_back_and_leads_again_is_followed_without_a_stop() {
    let mut cluster = cluster().await;
    cluster.lose("orders-1").await;
    let (leader, _) = cluster.wait_for_leader(2).await;
    let third = if leader == "orders-2" { "orders-3" } else { "orders-2" };
    cluster.wait_for_report(third, "it streams", streams_in(2)).await;
    cluster.start("orders-1", 1).await;
    cluster.wait_for_report("orders-1", "it streams", streams_in(2)).await;
    cluster.wait_for_voters(2).await;

    let (postmaster, so_far) = (cluster.postmaster(third), cluster.said(third).len());
    cluster.ask_for("orders-1").await;
    cluster.wait_for_report("orders-1", "it leads", leads_in(3)).await;
    cluster.wait_for_report(third, "it streams", streams_in(3)).await;
    write(&cluster, 1, "third").await;
    assert_eq!(cluster.postmaster(third), postmaster, "it was not stopped");
    let said = cluster.said(third).split_off(so_far);
    assert!(!said.contains(PARTS), "{said}");
}

/// The agent of a standby is frozen, and its PostgreSQL is not: it goes on receiving from where it was told to, also when that one leads
/// again, in a term in which another led before. What it gets is not what it believes to get, so nothing may be acknowledged on its word.
/// A leader that hears no voter for ten seconds stands back, and whoever waits for a commit is sent away: on a busy machine that can be sooner than the
/// standby is connected. That shows nothing, so it is done again.
#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_has_not_heard_of_a_term_does_not_count_in_it() {
    for _ in 0..3 {
        if commit_waits_for_whoever_has_heard_of_the_term().await {
            return;
        }
    }
    panic!("three times the leader stood back before the standby was connected");
}

/// Whether it could be seen.
async fn commit_waits_for_whoever_has_heard_of_the_term() -> bool {
    let mut cluster = cluster().await;
    let frozen = Pid::from_raw(cluster.agent("orders-3"));
    kill(frozen, Signal::SIGSTOP).unwrap();
    cluster.ask_for("orders-2").await;
    cluster.wait_for_report("orders-2", "it leads", leads_in(2)).await;
    cluster.wait_for_report("orders-1", "it streams", streams_in(2)).await;
    write(&cluster, 2, "second").await;
    cluster.wait_for_voters(1).await;
    cluster.lose("orders-2").await;
    cluster.wait_for_report("orders-1", "it leads", leads_in(3)).await;

    let root = superuser(&cluster, "orders-1").await;
    let app = cluster.patient("orders-1", 1, "first", support::PATIENCE).await.unwrap();
    let commit = tokio::spawn(async move { app.run_script("insert into greetings values ('third')").await });
    support::eventually("a commit waits, though the one that is connected has it", async || {
        let (Ok(written), Ok(standbys)) = (root.written().await, root.standbys().await) else { return true };
        let has_it = standbys.iter().any(|standby| standby.streaming && standby.replayed >= Some(written));
        commit.is_finished() || (has_it && root.waiting_commits().await.is_ok_and(|waiting| !waiting.is_empty()))
    })
    .await;
    if commit.is_finished() || root.written().await.is_err() {
        let ended = commit.await.unwrap();
        assert!(ended.is_err(), "acknowledged on the word of one that follows another term");
        let said = cluster.said("orders-1");
        assert!(said.contains(STOOD_BACK), "the commit ended by {ended:?}, and nobody stood back: {said}");
        return false;
    }

    kill(frozen, Signal::SIGCONT).unwrap();
    commit.await.unwrap().unwrap();
    cluster.wait_for_report("orders-3", "it streams", streams_in(3)).await;
    let rows = cluster.connect("orders-3", 3, "first").await.unwrap();
    support::eventually("it has every row", async || {
        let sql = "do $$ begin assert (select count(*) from greetings) = 3; end $$";
        rows.run_script(sql).await.is_ok()
    })
    .await;
    true
}

/// The Lease is made anew, and the leader goes on in a later term with the PostgreSQL that it has. When that crashes and nobody answers, it
/// starts again in place. Had that begun a timeline, those who are connected in this very term would have confirmed WAL of it while
/// their agents take it for that of the term before: they would be passed over for one that has less.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_goes_on_in_a_later_term_begins_no_timeline_that_nobody_was_told_of() {
    let cluster = cluster().await;
    cluster.renew_lease().await;
    cluster.wait_for_report("orders-1", "it leads on", leads_in(2)).await;
    for standby in ["orders-2", "orders-3"] {
        cluster.wait_for_report(standby, "it streams", streams_in(2)).await;
    }
    cluster.wait_for_voters(2).await;
    // Only now: one that hears of its own write from another before it is answered stops, and is promoted in this term.
    let before = cluster.report("orders-1").await;
    let frozen = ["orders-2", "orders-3"].map(|standby| Pid::from_raw(cluster.agent(standby)));
    frozen.iter().for_each(|agent| kill(*agent, Signal::SIGSTOP).unwrap());
    let postmaster = cluster.postmaster("orders-1");
    kill(Pid::from_raw(postmaster), Signal::SIGKILL).unwrap();
    support::eventually("it starts again in place, and those who are connected confirm", async || {
        let Ok(app) = cluster.connect("orders-1", 1, "first").await else { return false };
        app.run_script("insert into greetings values ('again')").await.is_ok()
    })
    .await;
    let after = cluster.wait_for_report("orders-1", "it leads", leads_in(2)).await;
    assert_ne!(cluster.postmaster("orders-1"), postmaster);
    assert_eq!(after.timeline, before.timeline, "they follow in this term, and know of no other timeline in it");
    frozen.iter().for_each(|agent| kill(*agent, Signal::SIGCONT).unwrap());
    for standby in ["orders-2", "orders-3"] {
        cluster.wait_for_report(standby, "it streams", streams_in(2)).await;
    }
}

/// Sessions in the middle of everything: one that has written and not committed, one that computes, one that waits for a lock, one that asks
/// for nothing. None of them keeps a switchover waiting, nothing that was acknowledged is missing, and the former primary's log is the
/// beginning of the new one's.
#[tokio::test(flavor = "multi_thread")]
async fn a_switchover_waits_for_nobody_and_loses_nothing() {
    let cluster = cluster().await;
    let mut open = vec![];
    for sql in [
        "begin; insert into greetings values ('never committed')",
        "select count(*) from generate_series(1, 1000000000)",
        "lock table greetings",
        "select 1",
    ] {
        let app = cluster.patient("orders-1", 1, "first", support::PATIENCE).await.unwrap();
        open.push(tokio::spawn(async move {
            let done = app.run_script(sql).await;
            // The session stays open.
            (done, app)
        }));
    }
    let asleep = cluster.connect("orders-1", 1, "first").await.unwrap();
    asleep
        .run_script("set synchronous_commit = off; insert into greetings values ('acknowledged at once')")
        .await
        .unwrap();
    let (postmaster, so_far) = (cluster.postmaster("orders-3"), cluster.said("orders-1").len());
    cluster.ask_for("orders-2").await;
    cluster.wait_for_report("orders-2", "it leads", leads_in(2)).await;
    for instance in ["orders-1", "orders-3"] {
        cluster.wait_for_report(instance, "it streams", streams_in(2)).await;
    }
    assert_eq!(cluster.postmaster("orders-3"), postmaster, "the third was not stopped");
    let said = cluster.said("orders-1").split_off(so_far);
    assert!(said.contains("drained: the log ends here") && !said.contains(PARTS), "{said}");
    assert!(asleep.run_script("select 1").await.is_err(), "its sessions are closed");
    write(&cluster, 2, "second").await;
    for host in [1, 2, 3] {
        let instance = format!("orders-{host}");
        support::eventually("everybody has every row that was acknowledged, and no other", async || {
            let Ok(app) = cluster.connect(&instance, host, "first").await else { return false };
            let sql = "do $$ begin assert (select array_agg(text order by text) from greetings) = \
                       array['acknowledged at once', 'first', 'second']; end $$";
            app.run_script(sql).await.is_ok()
        })
        .await;
    }
}
