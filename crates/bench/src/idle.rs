//! A cluster at rest: how much memory operator and agents hold, and what they write to the API when nothing happens.
//!
//! The operator runs as a process of its own here, as it does on Kubernetes, so that its memory can be told from that of the API.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bellwether_api::v1::PostgresCluster;
use bellwether_runtime::client;
use kube::Api;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::process::{self, Process};
use crate::{BenchError, failed, figure, mebibytes};

/// How long a cluster may take to become Ready here.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// How long it is left alone before it counts as at rest.
const SETTLES_IN: Duration = Duration::from_secs(20);
/// The users whose writes count.
const SERVICE_ACCOUNTS: &str = "system:serviceaccount:";

/// A process that ends with us.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Result<Self, BenchError> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        child.map(Self).map_err(|error| failed("starting bellwether", error))
    }
    fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = kill(Pid::from_raw(self.pid()), Signal::SIGTERM);
        let _ended = self.0.wait();
    }
}

/// Measures memory after a while of rest, and writes over `idle`.
pub async fn measure(binary: &Path, idle: Duration) -> Result<(), BenchError> {
    // Readable for the databases' user, as the home demands.
    let home = tempfile::Builder::new().prefix("bellwether-bench-").permissions(readable()).tempdir();
    let home = home.map_err(|error| failed("temporary directory", error))?;
    let up = Running::start(Command::new(binary).args(["up", "--no-operator", "--data-dir"]).arg(home.path()))?;
    let kubeconfig = home.path().join("operator.kubeconfig");
    until("the operator's kubeconfig is written", || kubeconfig.exists()).await?;
    let operator = Running::start(
        Command::new(binary).args(["operator", "--listen", "127.0.0.1:0"]).env("KUBECONFIG", &kubeconfig),
    )?;
    until_ready(&home.path().join("kubeconfig")).await?;
    tokio::time::sleep(SETTLES_IN).await;
    memory(&up, &operator);
    let audit = home.path().join("api").join("audit.log");
    let before = writes(&audit)?;
    tokio::time::sleep(idle).await;
    let after = writes(&audit)?;
    figure(&format!("API writes in {} s at idle", idle.as_secs()), after.saturating_sub(before), "0");
    drop(operator);
    drop(up);
    Ok(())
}

fn readable() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o755)
}

fn memory(up: &Running, operator: &Running) {
    let shown = |process: &Process| {
        format!("{:.1} MiB ({:.1} anonymous)", mebibytes(process.resident), mebibytes(process.anonymous))
    };
    if let Some(operator) = process::tree(operator.pid()).first() {
        figure("operator, memory at rest", shown(operator), "< 20 MiB");
    }
    for role in ["agent", "guard"] {
        let all = process::tree(up.pid());
        let largest = all.iter().filter(|process| process.role == role).max_by_key(|process| process.resident);
        if let Some(largest) = largest {
            let goal = if role == "agent" { "< 20 MiB" } else { "" };
            figure(&format!("{role}, memory at rest (largest)"), shown(largest), goal);
        }
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) -> Result<(), BenchError> {
    let began = Instant::now();
    while !holds() {
        if began.elapsed() > READY_WITHIN {
            return Err(failed(what, format!("not within {READY_WITHIN:?}")));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn until_ready(kubeconfig: &Path) -> Result<(), BenchError> {
    let client = client::from_kubeconfig(kubeconfig).await.map_err(|error| failed("client", error))?;
    let clusters: Api<PostgresCluster> = Api::all(client);
    let began = Instant::now();
    loop {
        let all = clusters.list(&Default::default()).await.map_err(|error| failed("clusters", error))?.items;
        if !all.is_empty() && all.iter().all(is_ready) {
            return Ok(());
        }
        if began.elapsed() > READY_WITHIN {
            return Err(failed("Ready", format!("not within {READY_WITHIN:?}")));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn is_ready(cluster: &PostgresCluster) -> bool {
    let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
    let ready = conditions.filter(|condition| condition.type_ == "Ready").any(|condition| condition.status == "True");
    ready && cluster.status.as_ref().is_some_and(|status| status.ready_replicas == cluster.spec.replicas)
}

/// Writes by our service accounts so far. A dry run writes nothing.
fn writes(audit: &Path) -> Result<usize, BenchError> {
    let text = std::fs::read_to_string(audit).map_err(|error| failed("the audit log", error))?;
    let entries = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let counted = entries.filter(|entry| {
        entry["user"].as_str().is_some_and(|user| user.starts_with(SERVICE_ACCOUNTS)) && entry["dryRun"] != true
    });
    Ok(counted.count())
}
