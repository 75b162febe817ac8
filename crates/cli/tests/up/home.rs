//! A `bellwether up` for a test, and what tests ask of it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether_api::v1::PostgresCluster;
use bellwether_embedded::connection::{Connection, Target};
use bellwether_embedded::proc::Scope;
use bellwether_embedded::view::ClusterView;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// How long anything may take on a machine that does much else at the same time.
pub const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The built binary.
pub const BELLWETHER: &str = env!("CARGO_BIN_EXE_bellwether");

/// A data directory, and the `up` on it.
pub struct Home {
    directory: TempDir,
    process: Option<Child>,
}

impl Home {
    /// A fresh data directory, with nothing running.
    pub fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("bw-").tempdir().unwrap();
        Self { directory, process: None }
    }

    /// A fresh one, with `up` started and its API answering.
    pub async fn up(arguments: &[&str]) -> Self {
        let mut home = Self::new();
        home.start(arguments).await;
        home
    }

    /// Starts `up` and waits for its API.
    pub async fn start(&mut self, arguments: &[&str]) {
        let _of_an_earlier_run = std::fs::remove_file(self.kubeconfig());
        self.process = Some(self.command(arguments).spawn().unwrap());
        let started = Instant::now();
        while self.try_client().await.is_none() {
            let ended = self.process.as_mut().and_then(|process| process.try_wait().unwrap());
            assert_eq!(ended, None, "up ended: {}", self.said("err"));
            assert!(started.elapsed() < PATIENCE, "the API does not answer; up says: {}", self.said("err"));
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// `up` on this directory, not started yet.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let log = |name: &str| std::fs::File::create(self.path().with_extension(name)).unwrap();
        // A session of its own: `up` asks for CPU for its session, and must not give that back for another test's.
        let mut command = Command::new("setsid");
        command.arg(BELLWETHER).arg("up").arg("--data-dir").arg(self.path()).args(arguments);
        command.stdin(Stdio::null()).stdout(log("out")).stderr(log("err"));
        command
    }

    /// Runs `up` to its end, which must be an error; returns exit code and what it said.
    pub fn refused(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Runs a command against this home; its exit code, and all that it said.
    pub fn asked(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(BELLWETHER);
        command.args(arguments).env("KUBECONFIG", self.kubeconfig()).stdin(Stdio::null());
        // Servers of a test run on the same threads.
        let output = tokio::task::block_in_place(|| command.output()).unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }
    pub fn kubeconfig(&self) -> PathBuf {
        self.path().join("kubeconfig")
    }
    pub fn pid(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }
    pub fn scope(&self) -> Scope {
        Scope::Home(self.path().canonicalize().unwrap())
    }
    /// What `up` printed so far.
    pub fn printed(&self) -> String {
        self.said("out")
    }
    fn said(&self, stream: &str) -> String {
        std::fs::read_to_string(self.path().with_extension(stream)).unwrap_or_default()
    }

    async fn try_client(&self) -> Option<Client> {
        let client = bellwether_runtime::client::from_kubeconfig(&self.kubeconfig()).await.ok()?;
        Api::<PostgresCluster>::all(client.clone()).list(&Default::default()).await.ok()?;
        Some(client)
    }

    pub async fn client(&self) -> Client {
        self.try_client().await.expect("the API answers")
    }

    /// The cluster's view once it is Ready with so many instances.
    pub async fn ready(&self, cluster: &str, instances: usize) -> ClusterView {
        let api: Api<PostgresCluster> = Api::default_namespaced(self.client().await);
        let pods: Api<Pod> = Api::default_namespaced(self.client().await);
        let is_ready = || async {
            let pods: Vec<_> = pods.list(&Default::default()).await.ok()?.items.into_iter().map(Arc::new).collect();
            let view = ClusterView::of(&api.get_opt(cluster).await.ok()??).confirmed_by(&pods);
            (view.ready && view.instances.len() == instances).then_some(view)
        };
        eventually(&format!("{cluster} is Ready with {instances} instances"), is_ready).await
    }

    /// Status and reason of a condition.
    pub async fn condition(&self, cluster: &str, kind: &str) -> Option<(String, String)> {
        let api: Api<PostgresCluster> = Api::default_namespaced(self.client().await);
        let conditions = api.get_opt(cluster).await.ok()??.status?.conditions;
        conditions.into_iter().find(|condition| condition.type_ == kind).map(|found| (found.status, found.reason))
    }

    pub async fn connection(&self, cluster: &str) -> Connection {
        Connection::of(&self.client().await, self.path(), "default", cluster).await.unwrap()
    }

    /// Runs SQL on the primary, through the read-write Service.
    pub async fn execute(&self, cluster: &str, sql: &str) {
        let connection = self.connection(cluster).await;
        let rw = connection.service(&self.client().await, &format!("{cluster}-rw")).await.unwrap();
        let session = connection.open(&rw, PATIENCE).await.unwrap();
        // A commit that waits for its standbys waits for ever.
        let executed = tokio::time::timeout(PATIENCE, session.batch_execute(sql)).await;
        executed.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {sql}")).unwrap();
    }

    /// The same, of which nobody minds if it fails.
    pub async fn try_execute(&self, cluster: &str, sql: &str) -> Result<(), String> {
        let connection = self.connection(cluster).await;
        let rw = connection.service(&self.client().await, &format!("{cluster}-rw")).await.map_err(|e| e.to_string())?;
        let session = connection.open(&rw, PATIENCE).await.map_err(|error| error.to_string())?;
        session.batch_execute(sql).await.map_err(|error| error.to_string())
    }

    /// The number that a query gives on an instance.
    pub async fn number(&self, cluster: &str, instance: &str, sql: &str) -> Option<i64> {
        let connection = self.connection(cluster).await;
        let target = self.instance(&connection, instance).await?;
        let session = connection.open(&target, PATIENCE).await.ok()?;
        let row = tokio::time::timeout(PATIENCE, session.query_one(sql, &[])).await.ok()?;
        row.ok().map(|row| row.get(0))
    }

    async fn instance(&self, connection: &Connection, name: &str) -> Option<Target> {
        let pod = Api::<Pod>::default_namespaced(self.client().await).get(name).await.ok()?;
        let address: IpAddr = pod.status?.pod_ip?.parse().ok()?;
        Some(connection.instance(name, address))
    }

    /// Kills `up` without warning.
    pub fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Asks `up` to stop, and waits until it has.
    pub async fn stop(&mut self) -> ExitStatus {
        let mut process = self.process.take().unwrap();
        kill(Pid::from_raw(i32::try_from(process.id()).unwrap()), Signal::SIGTERM).unwrap();
        let mut has_ended = || process.try_wait().unwrap();
        let started = Instant::now();
        loop {
            if let Some(status) = has_ended() {
                return status;
            }
            assert!(started.elapsed() < PATIENCE, "up did not stop; it printed:\n{}", self.printed());
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until no process of this home is left.
    pub async fn nothing_left(&self) {
        let scope = self.scope();
        eventually("no process is left", || async { scope.processes().is_empty().then_some(()) }).await;
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut said = format!("--- up printed:\n{}{}", self.printed(), self.said("err"));
            for entry in std::fs::read_dir(self.path().join("logs")).into_iter().flatten().flatten() {
                let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
                let tail: Vec<_> = text.lines().rev().take(60).collect();
                let tail: Vec<_> = tail.into_iter().rev().collect();
                said += &format!("--- {}:\n{}\n", entry.path().display(), tail.join("\n"));
            }
            let _best_effort = std::io::Write::write_all(&mut std::io::stderr(), said.as_bytes());
        }
        if let Some(process) = &mut self.process {
            let _gone = process.kill();
            let _reaped = process.wait();
        }
        // The agents die with `up`, their guards end PostgreSQL; whatever a bug left is ended here.
        if let Ok(path) = self.path().canonicalize() {
            let started = Instant::now();
            while !Scope::Home(path.clone()).processes().is_empty() && started.elapsed() < Duration::from_secs(10) {
                for process in Scope::Home(path.clone()).processes() {
                    let _gone = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
                }
                std::thread::sleep(LOOK_EVERY);
            }
        }
        for name in ["out", "err"] {
            let _not_there = std::fs::remove_file(self.path().with_extension(name));
        }
    }
}

/// Asks until there is an answer.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(started.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
