//! What the cluster acknowledges while it is being hurt is what it has afterwards: the probe's word for it.

use std::time::Duration;

use chaos::embedded::{Outcome, Site, SiteError};
use chaos::fault::Fault;

use crate::home::Home;

const ATTEMPTS: u32 = 3;

/// Writes before, during and after a fault; every instance is ready again at the end, and has everything that was acknowledged.
async fn nothing_is_lost(home: &Home, fault: Fault) -> Outcome {
    judged(fault, site(home).await.round(&[fault], Duration::ZERO).await)
}

async fn site(home: &Home) -> Site {
    Site { client: home.client().await, up: i32::try_from(home.pid()).unwrap() }
}

#[expect(clippy::print_stderr, reason = "the gaps are for whoever reads the test's output")]
fn judged(fault: Fault, outcome: Result<Outcome, SiteError>) -> Outcome {
    let outcome = outcome.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
    let verdict = &outcome.verdict;
    let gaps: Vec<_> = verdict.gaps.iter().map(|gap| format!("{:?} {:.3} s", gap.kind, gap.seconds)).collect();
    let counts = &verdict.writes;
    eprintln!("{fault:?}: {} → {}: largest gaps: {}; {counts:?}", outcome.before, outcome.after, gaps.join(", "));
    assert_eq!(verdict.lies, [], "{fault:?}: {verdict:#?}");
    assert_eq!(verdict.doubts, [], "{fault:?}: {verdict:#?}");
    outcome
}

/// The same, and the primary stays. A machine that stands still for seconds is a reason for another, so it may take a few attempts.
async fn nothing_happens(home: &Home, fault: Fault) {
    for _ in 0..ATTEMPTS {
        let outcome = nothing_is_lost(home, fault).await;
        // A server that starts itself again is the same server; one that is started anew is not.
        if outcome.before == outcome.after && (fault == Fault::BackendKilled || outcome.verdict.takeovers.is_empty()) {
            return;
        }
    }
    panic!("{fault:?} needs no other primary");
}

async fn all(faults: &[Fault]) {
    let home = Home::up(&["--replicas", "3"]).await;
    for fault in faults {
        nothing_is_lost(&home, *fault).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_processes_of_the_primary_are_killed_or_frozen() {
    all(&[Fault::PostmasterKilled, Fault::AgentKilled, Fault::AgentFrozen, Fault::PostmasterKilled]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_postgresql_is_stuck() {
    all(&[Fault::PostmasterFrozen, Fault::PostgresFrozen]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_no_failover_for_a_backend_a_standby_or_the_api() {
    let home = Home::up(&["--replicas", "3"]).await;
    for fault in [Fault::BackendKilled, Fault::StandbyKilled, Fault::ApiFrozen] {
        nothing_happens(&home, fault).await;
    }
}

/// Longer than any tenure. The fault itself lasts half a minute, which every other test would feel.
const OVERLOADED: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_no_failover_for_a_server_whose_connections_are_all_taken_and_compute() {
    let home = Home::up(&["--replicas", "3"]).await;
    let site = site(&home).await;
    for _ in 0..ATTEMPTS {
        let overload = async |_: &_| {
            let primary = site.primary().await.ok_or_else(|| SiteError::Wrong("nobody leads".to_owned()))?;
            site.overload(&primary, OVERLOADED).await
        };
        let outcome = judged(Fault::Overload, site.during(overload).await);
        if outcome.before == outcome.after && outcome.verdict.takeovers.is_empty() {
            return;
        }
    }
    panic!("an overloaded server needs no other primary");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_pods_are_deleted_or_all_are_killed() {
    all(&[Fault::PodDeleted, Fault::PodDeletedByForce, Fault::AllKilled]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_wait_for_standbys_are_said_reads_work_and_it_goes_on_by_itself() {
    let home = Home::up(&["--replicas", "3"]).await;
    home.ready("demo", 3).await;
    home.execute("demo", "create table waits (id int)").await;
    let site = site(&home).await;
    let primary = site.primary().await.unwrap();
    let (frozen, reason, read, written) = tokio::join!(
        site.hurt(Fault::StandbysFrozen, &primary),
        crate::home::eventually("it is said", || async {
            home.condition("demo", "Ready").await.filter(|(status, _)| status == "False").map(|(_, reason)| reason)
        }),
        home.number("demo", &primary, "select count(*) from pg_class"),
        async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            home.execute("demo", "insert into waits values (1)").await;
        },
    );
    frozen.unwrap();
    assert_eq!(reason, "NoSynchronousStandby");
    assert!(read.is_some());
    let () = written;
    home.ready("demo", 3).await;
    assert_eq!(home.number("demo", &primary, "select count(*) from waits").await, Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switchover_is_asked_for_by_name_and_what_can_t_be_is_refused_with_the_reason() {
    let home = Home::up(&["--replicas", "3"]).await;
    home.ready("demo", 3).await;
    let asked = |arguments: &[&str]| {
        let mut command = std::process::Command::new(crate::home::BELLWETHER);
        let output = command.arg("switchover").args(arguments).env("KUBECONFIG", home.kubeconfig()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    let (code, said) = asked(&["demo", "--to", "demo-9"]);
    assert!(code == Some(1) && said.contains("there are demo-1, demo-2, demo-3"), "{said}");
    let (code, said) = asked(&["other"]);
    assert!(code == Some(1) && said.contains("no cluster \"other\""), "{said}");
    let (code, said) = asked(&["demo", "--to", "demo-1"]);
    assert!(code == Some(0) && said.contains("leads already"), "{said}");
    let (code, said) = asked(&["demo", "--to", "demo-3"]);
    assert!(code == Some(0) && said.contains("demo-1 handed over to demo-3"), "{said}");
    home.ready("demo", 3).await;
    nothing_is_lost(&home, Fault::Switchover).await;
}
