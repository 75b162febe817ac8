//! What the cluster acknowledges while it is being hurt is what it has afterwards: the probe's word for it.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use bellwether_core::contract::{AGENT_PORT, POSTGRES_PORT};
use bellwether_embedded::proc;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::DeleteParams;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use probe::check::{Rules, Verdict};
use probe::{Access, Deadlines, History, Probe, Settings, Target, check, finals};

use crate::home::{Home, PATIENCE, eventually};

const INSTANCES: [&str; 3] = ["demo-1", "demo-2", "demo-3"];
/// Writes on each side of the fault.
const ENOUGH: u64 = 200;

/// The way in that an application has: the Secret's files, and the Service's address.
async fn access(home: &Home, mounted: &Path) -> Access {
    let client = home.client().await;
    let secret = Api::<Secret>::default_namespaced(client.clone()).get("demo-app").await.unwrap();
    for (name, value) in secret.data.unwrap() {
        std::fs::write(mounted.join(name), value.0).unwrap();
    }
    let service = Api::<Service>::default_namespaced(client).get("demo-rw").await.unwrap();
    let address: IpAddr = service.spec.unwrap().cluster_ip.unwrap().parse().unwrap();
    Access::from_secret(mounted, Some(SocketAddr::new(address, POSTGRES_PORT))).unwrap()
}

async fn instance(home: &Home, name: &str) -> Target {
    let pod = Api::<Pod>::default_namespaced(home.client().await).get(name).await.unwrap();
    let address = pod.status.unwrap().pod_ip.unwrap().parse().unwrap();
    Target::at(format!("{name}.demo-pods.default.svc"), address, POSTGRES_PORT)
}

async fn instances(home: &Home) -> Vec<Target> {
    let mut all = vec![];
    for name in INSTANCES {
        all.push(instance(home, name).await);
    }
    all
}

/// The verdict on what three instances have. How much load a busy machine leaves room for is not the question here.
#[expect(clippy::print_stderr, reason = "the gaps are for whoever reads the test's output")]
async fn verdict(access: &Access, history: &History, instances: &[Target], fault: Fault) -> Verdict {
    let tables = finals(access, &[history.run().to_owned()], instances, Deadlines::default(), PATIENCE).await;
    let rules = Rules { least_rate: 0.0, ..Rules::default() };
    let verdict = check(std::slice::from_ref(history), &tables, &rules).unwrap();
    let gaps: Vec<_> = verdict.gaps.iter().map(|gap| format!("{:?} {:.3} s", gap.kind, gap.seconds)).collect();
    let counts = &verdict.writes;
    eprintln!("{fault:?}: largest gaps: {}; {counts:?}", gaps.join(", "));
    verdict
}

/// What is done to the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// `kill -9` of the postmaster; its agent lives.
    PostmasterKilled,
    /// The postmaster is stopped by SIGSTOP: nobody is let in, and who is in works on.
    PostmasterFrozen,
    /// Every process of PostgreSQL is: connections stay open, and nothing answers.
    PostgresFrozen,
    /// `kill -9` of a backend: PostgreSQL starts itself again.
    BackendKilled,
    /// `kill -9` of the agent: PostgreSQL dies with it, and the container starts again.
    AgentKilled,
    /// The agent is stopped by SIGSTOP, and goes on when another leads. PostgreSQL lives; nobody extends its time.
    AgentFrozen,
    /// The pod is deleted as a drain does it: another takes over first.
    PodDeleted,
    /// The pod is deleted without a grace period.
    PodDeletedByForce,
    /// Every agent is killed, and with it every PostgreSQL.
    AllKilled,
}

/// Whom the read-write Service leads to.
async fn primary(home: &Home) -> Option<String> {
    let slice = Api::<EndpointSlice>::default_namespaced(home.client().await).get("demo-rw").await.ok()?;
    slice.endpoints.first()?.target_ref.as_ref()?.name.clone()
}

fn process(of: &Target, port: u16) -> Option<i32> {
    proc::listener(SocketAddr::new(of.address?, port)).map(|(pid, _)| pid)
}

async fn signal(home: &Home, name: &str, port: u16, signal: Signal) -> i32 {
    let target = instance(home, name).await;
    let pid = process(&target, port).unwrap_or_else(|| panic!("{name} listens on {port}"));
    kill(Pid::from_raw(pid), signal).unwrap();
    pid
}

/// Every process below this one.
fn descendants(of: i32) -> Vec<i32> {
    let children = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    let children: Vec<i32> = children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    children.iter().flat_map(|child| [*child].into_iter().chain(descendants(*child))).collect()
}

/// A backend that serves a client of the probe's.
fn backend(of: i32) -> i32 {
    let serves = |pid: &i32| {
        let title = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&title).contains(": app app ")
    };
    descendants(of).into_iter().find(serves).expect("a backend")
}

async fn hurt(home: &Home, fault: Fault, primary_before: &str) {
    let pods: Api<Pod> = Api::default_namespaced(home.client().await);
    match fault {
        Fault::PostmasterKilled => drop(signal(home, primary_before, POSTGRES_PORT, Signal::SIGKILL).await),
        Fault::PostmasterFrozen => {
            signal(home, primary_before, POSTGRES_PORT, Signal::SIGSTOP).await;
            // Whoever is connected goes on; the next one would wait for ever.
            eventually("another leads", || async { primary(home).await.filter(|now| now != primary_before) }).await;
        }
        Fault::PostgresFrozen => {
            let postmaster = signal(home, primary_before, POSTGRES_PORT, Signal::SIGSTOP).await;
            for process in descendants(postmaster) {
                kill(Pid::from_raw(process), Signal::SIGSTOP).unwrap();
            }
        }
        Fault::BackendKilled => {
            let target = instance(home, primary_before).await;
            let postmaster = process(&target, POSTGRES_PORT).expect("a postmaster");
            kill(Pid::from_raw(backend(postmaster)), Signal::SIGKILL).unwrap();
        }
        Fault::AgentKilled => drop(signal(home, primary_before, AGENT_PORT, Signal::SIGKILL).await),
        Fault::AllKilled => {
            for name in INSTANCES {
                signal(home, name, AGENT_PORT, Signal::SIGKILL).await;
            }
        }
        Fault::AgentFrozen => {
            let target = instance(home, primary_before).await;
            let agent = signal(home, primary_before, AGENT_PORT, Signal::SIGSTOP).await;
            eventually("the guard ends PostgreSQL", || async {
                process(&target, POSTGRES_PORT).is_none().then_some(())
            })
            .await;
            eventually("another leads", || async { primary(home).await.filter(|now| now != primary_before) }).await;
            kill(Pid::from_raw(agent), Signal::SIGCONT).unwrap();
        }
        Fault::PodDeleted => drop(pods.delete(primary_before, &DeleteParams::default()).await.unwrap()),
        Fault::PodDeletedByForce => {
            let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
            drop(pods.delete(primary_before, &now).await.unwrap());
        }
    }
}

/// Writes before, during and after a fault; every instance is ready again at the end, and has everything that was acknowledged.
async fn nothing_is_lost(home: &Home, fault: Fault) {
    home.ready("demo", 3).await;
    let mounted = tempfile::tempdir().unwrap();
    let access = access(home, mounted.path()).await;
    let settings = Settings { direct: instances(home).await, ..Settings::new(access.clone()) };
    let probe = Probe::start(settings).await.unwrap();
    assert!(probe.more_acknowledged(ENOUGH, PATIENCE).await, "{fault:?}: {} before", probe.acknowledged());
    let before = eventually("somebody leads", || primary(home)).await;
    probe.mark(format!("{fault:?} of {before}"));
    hurt(home, fault, &before).await;
    assert!(probe.more_acknowledged(ENOUGH, PATIENCE).await, "{fault:?}: {} in all", probe.acknowledged());
    home.ready("demo", 3).await;
    if fault == Fault::BackendKilled {
        assert_eq!(primary(home).await.as_ref(), Some(&before), "a crash of one backend needs no other primary");
    }
    let history = probe.stop().await.unwrap();
    // A pod that was replaced has another address.
    let verdict = verdict(&access, &history, &instances(home).await, fault).await;
    assert_eq!(verdict.lies, [], "{fault:?}: {verdict:#?}");
    assert_eq!(verdict.doubts, [], "{fault:?}: {verdict:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_processes_of_the_primary_are_killed_or_frozen() {
    let home = Home::up(&["--replicas", "3"]).await;
    for fault in [Fault::PostmasterKilled, Fault::AgentKilled, Fault::AgentFrozen, Fault::PostmasterKilled] {
        nothing_is_lost(&home, fault).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_postgresql_is_stuck_and_one_backend_is_no_reason_to_fail_over() {
    let home = Home::up(&["--replicas", "3"]).await;
    for fault in [Fault::BackendKilled, Fault::PostmasterFrozen, Fault::PostgresFrozen] {
        nothing_is_lost(&home, fault).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_pods_are_deleted_or_all_are_killed() {
    let home = Home::up(&["--replicas", "3"]).await;
    for fault in [Fault::PodDeleted, Fault::PodDeletedByForce, Fault::AllKilled] {
        nothing_is_lost(&home, fault).await;
    }
}
