//! What the cluster acknowledges while it is being hurt is what it has afterwards: the probe's word for it.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use bellwether_core::contract::POSTGRES_PORT;
use bellwether_embedded::proc;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::Api;
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

/// The postmaster is who listens on the instance's address.
fn postmaster(of: &Target) -> Option<i32> {
    proc::listener(SocketAddr::new(of.address?, of.port)).map(|(pid, _)| pid)
}

/// The verdict on what three instances have. How much load a busy machine leaves room for is not the question here.
#[expect(clippy::print_stderr, reason = "the gaps are for whoever reads the test's output")]
async fn verdict(access: &Access, history: &History, instances: &[Target]) -> Verdict {
    let tables = finals(access, &[history.run().to_owned()], instances, Deadlines::default(), PATIENCE).await;
    let rules = Rules { least_rate: 0.0, ..Rules::default() };
    let verdict = check(std::slice::from_ref(history), &tables, &rules).unwrap();
    let gaps: Vec<_> = verdict.gaps.iter().map(|gap| format!("{:?} {:.3} s", gap.kind, gap.seconds)).collect();
    let counts = &verdict.writes;
    eprintln!("largest gaps: {}; {counts:?}", gaps.join(", "));
    verdict
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_primarys_postmaster_is_killed() {
    let home = Home::up(&["--replicas", "3"]).await;
    home.ready("demo", 3).await;
    let mounted = tempfile::tempdir().unwrap();
    let access = access(&home, mounted.path()).await;
    let direct = instances(&home).await;
    let settings = Settings { direct: direct.clone(), ..Settings::new(access.clone()) };
    let probe = Probe::start(settings).await.unwrap();
    assert!(probe.more_acknowledged(ENOUGH, PATIENCE).await, "{} before", probe.acknowledged());

    let pid = postmaster(&direct[0]).expect("the primary listens");
    probe.mark("kill -9 the primary's postmaster");
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    eventually("it is gone", || async { postmaster(&direct[0]).filter(|now| *now == pid).is_none().then_some(()) })
        .await;
    assert!(probe.more_acknowledged(ENOUGH, PATIENCE).await, "{} in all", probe.acknowledged());

    let history = probe.stop().await.unwrap();
    // A pod that was replaced has another address.
    let verdict = verdict(&access, &history, &instances(&home).await).await;
    assert_eq!(verdict.lies, [], "{verdict:#?}");
    assert_eq!(verdict.doubts, [], "{verdict:#?}");
    assert_eq!(verdict.gaps.len(), 3, "of kept sessions, by address, and of new connections");
    assert!(verdict.gaps.iter().all(|gap| gap.to.is_some()), "each ended: {:#?}", verdict.gaps);
}
