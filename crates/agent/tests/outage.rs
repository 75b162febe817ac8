//! What happens when something is missing that usually is there: the API, the one that should take over, every standby. Real agents, real
//! PostgreSQL, the in-memory API behind a way that can be cut.

mod support;
#[path = "support/cluster.rs"]
mod support_cluster;

use std::time::Duration;

use bellwether_api::v1::{DurabilityMode, InstanceState};
use bellwether_core::contract::{InstanceConfig, Report};
use bellwether_core::election::Settings;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support_cluster::Cluster;
use tokio::time::Instant;

fn leads_in(term: u64) -> impl Fn(&Report) -> bool {
    move |report| report.state == InstanceState::Leading && report.accepts_sql && report.term == Some(term)
}
fn streams(report: &Report) -> bool {
    report.state == InstanceState::Streaming && report.accepts_sql
}

/// So many, of which the first leads, with one row.
async fn cluster(instances: u8, durability: DurabilityMode) -> Cluster {
    let mut config = InstanceConfig {
        instances: (1..=instances).map(|host| format!("orders-{host}")).collect(),
        bootstrap_instance: "orders-1".into(),
        durability: Some(durability),
        ..InstanceConfig::default()
    };
    config.initdb.post_init_sql =
        vec!["create table greetings (text text)".into(), "grant all on greetings to app".into()];
    let mut cluster = Cluster::new(&config).await;
    for host in 1..=instances {
        cluster.start(&format!("orders-{host}"), host).await;
    }
    cluster.wait_for_report("orders-1", "it leads", leads_in(1)).await;
    for host in 2..=instances {
        cluster.wait_for_report(&format!("orders-{host}"), "it streams", streams).await;
    }
    cluster.wait_for_voters(usize::from(instances) - 1).await;
    assert!(writes(&cluster, 1, "first").await);
    cluster
}

async fn writes(cluster: &Cluster, host: u8, text: &str) -> bool {
    let Ok(app) = cluster.connect(&format!("orders-{host}"), host, "first").await else { return false };
    app.run_script(&format!("insert into greetings values ('{text}')")).await.is_ok()
}

async fn reads(cluster: &Cluster, host: u8, rows: usize) -> bool {
    let Ok(app) = cluster.connect(&format!("orders-{host}"), host, "first").await else { return false };
    app.run_script(&format!("do $$ begin assert (select count(*) from greetings) = {rows}; end $$")).await.is_ok()
}

/// Longer than any promise and any Lease.
fn long() -> Duration {
    let settings = Settings::default();
    Duration::from_millis(settings.promise.0 + settings.lease.0 + 2_000)
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_api_everybody_goes_on_and_a_primary_whose_agent_restarts_serves_reads_only() {
    let mut cluster = cluster(3, DurabilityMode::Quorum).await;
    let (postmaster, written) = (cluster.postmaster("orders-1"), cluster.writes());
    cluster.wire.cut();
    let until = Instant::now() + long();
    let mut rows = 1;
    while Instant::now() < until {
        assert!(writes(&cluster, 1, "without the API").await, "every member promises: nobody needs the API");
        rows += 1;
    }
    assert_eq!(cluster.postmaster("orders-1"), postmaster);
    assert_eq!(cluster.report("orders-1").await.term, Some(1));
    assert_eq!(cluster.writes(), written, "nobody could write");

    // No write of its own can succeed, so it has no tenure; and nobody else can take the Lease.
    cluster.restart("orders-1", 1).await;
    let until = Instant::now() + long();
    while Instant::now() < until {
        for host in 1..=3 {
            assert!(!writes(&cluster, host, "nobody leads").await, "orders-{host} took a write");
        }
    }
    for host in 2..=3 {
        assert!(reads(&cluster, host, rows).await, "orders-{host} serves reads");
    }

    cluster.wire.mend();
    // Not by what is reported: that is from before, until they can say something else.
    support::eventually("one of them takes a write", async || {
        writes(&cluster, 1, "last").await || writes(&cluster, 2, "last").await || writes(&cluster, 3, "last").await
    })
    .await;
    for host in 1..=3 {
        support::eventually("everybody has every row", async || reads(&cluster, host, rows + 1).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_whose_successor_does_not_answer_resumes_and_has_lost_nothing() {
    let cluster = cluster(3, DurabilityMode::Quorum).await;
    // It streams, so it may be asked for; its agent does not answer.
    let target = Pid::from_raw(cluster.agent("orders-2"));
    kill(target, Signal::SIGSTOP).unwrap();
    let postmaster = cluster.postmaster("orders-1");
    cluster.ask_for("orders-2").await;
    support::eventually("it was stopped for the switchover", async || {
        std::fs::read_to_string(cluster.pgdata("orders-1").join("postmaster.pid"))
            .is_ok_and(|text| !text.starts_with(&format!("{postmaster}\n")))
    })
    .await;
    let report = cluster.wait_for_report("orders-1", "it leads again", leads_in(1)).await;
    assert_eq!(report.timeline.map(|timeline| timeline.0), Some(1), "it resumed, nobody was promoted");
    support::eventually("it takes writes", async || writes(&cluster, 1, "resumed").await).await;
    kill(target, Signal::SIGCONT).unwrap();
    for host in 1..=3 {
        support::eventually("everybody has every row", async || reads(&cluster, host, 2).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn under_preferred_a_primary_without_standbys_goes_on_alone_and_says_so() {
    let mut cluster = cluster(2, DurabilityMode::Preferred).await;
    cluster.lose("orders-2").await;
    support::eventually("it takes writes alone", async || writes(&cluster, 1, "alone").await).await;
    cluster
        .wait_for_report("orders-1", "it says so", |report| {
            leads_in(1)(report)
                && report.message.as_ref().is_some_and(|said| said.contains("commits wait for no standby"))
        })
        .await;
    // Back, it is waited for again.
    cluster.start("orders-2", 2).await;
    cluster.wait_for_report("orders-2", "it streams", streams).await;
    cluster.wait_for_voters(1).await;
    cluster.wait_for_report("orders-1", "nothing is left to say", |report| report.message.is_none()).await;
}
