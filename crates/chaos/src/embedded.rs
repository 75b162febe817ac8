//! A cluster of three that `bellwether up` runs on this machine, and how it is hurt: by signals to processes, and by the API.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use bellwether_api::names::Names;
use bellwether_api::v1::PostgresCluster;
use bellwether_core::contract::{AGENT_PORT, POSTGRES_PORT};
use bellwether_core::instance::switchover::ANY;
use bellwether_core::lease_object::SWITCHOVER;
use bellwether_embedded::connection::{Connection, ConnectionError};
use bellwether_embedded::proc;
use bellwether_embedded::view::ClusterView;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use probe::check::{Rules, Verdict};
use probe::{Access, Deadlines, Probe, Settings, Target, check, finals};

use crate::fault::{Fault, overloaded_for};

/// How long anything may take on a machine that does much else at the same time.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Writes on each side of the faults.
const ENOUGH: u64 = 200;
/// How long API server and operator are away.
const AWAY: Duration = Duration::from_secs(20);
/// How long standbys are frozen: less than the ten seconds after which a primary lets others try.
const FROZEN: Duration = Duration::from_secs(8);
/// Fewer connections than this are not all that a server has.
const FEW: usize = 50;
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// Why a round has no verdict.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// It did not come to that.
    #[error("not within {PATIENCE:?}: {0}")]
    TooLate(String),
    /// The API said no.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// The probe.
    #[error("the probe: {0}")]
    Probe(String),
    /// A file, or a process.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It is not as it should be.
    #[error("{0}")]
    Wrong(String),
}

/// What came of a round.
#[derive(Debug)]
pub struct Outcome {
    /// Who led before.
    pub before: String,
    /// Who leads.
    pub after: String,
    /// What the probe says.
    pub verdict: Verdict,
    /// From the first fault until every instance was ready.
    pub ready: Duration,
}

/// The cluster `demo` with its three instances, in the namespace `default`.
#[derive(Clone)]
pub struct Site {
    /// May do everything.
    pub client: Client,
    /// The process that serves API, operator and kubelet.
    pub up: i32,
}

const CLUSTER: &str = Site::CLUSTER;
const INSTANCES: [&str; 3] = ["demo-1", "demo-2", "demo-3"];

/// Asks until there is an answer.
async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, ask: impl Fn() -> F) -> Result<T, SiteError> {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return Ok(answer);
        }
        if began.elapsed() > PATIENCE {
            return Err(SiteError::TooLate(what.to_owned()));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

impl Site {
    /// What the cluster is called.
    pub const CLUSTER: &str = "demo";

    /// Hurts it while the probe writes, and says what came of that, once every instance is ready again.
    pub async fn round(&self, faults: &[Fault], apart: Duration) -> Result<Outcome, SiteError> {
        self.during(async |probe| {
            for (number, fault) in faults.iter().enumerate() {
                if number > 0 {
                    tokio::time::sleep(apart).await;
                }
                let primary = eventually("somebody leads", || self.primary()).await?;
                probe.mark(format!("{} of {primary}", fault.name()));
                self.hurt(*fault, &primary).await?;
            }
            Ok(())
        })
        .await
    }

    /// Lets somebody hurt it while the probe writes, and says what came of that, once every instance is ready again.
    pub async fn during(&self, hurt: impl AsyncFnOnce(&Probe) -> Result<(), SiteError>) -> Result<Outcome, SiteError> {
        self.ready().await?;
        let mounted = tempfile::tempdir()?;
        let access = self.access(mounted.path()).await?;
        let settings = Settings { direct: self.instances().await?, ..Settings::new(access.clone()) };
        let probe = Probe::start(settings).await.map_err(|error| SiteError::Probe(error.to_string()))?;
        self.writes_go_on(&probe).await?;
        let before = eventually("somebody leads", || self.primary()).await?;
        let began = Instant::now();
        hurt(&probe).await?;
        self.writes_go_on(&probe).await?;
        self.ready().await?;
        let ready = began.elapsed();
        let after = eventually("somebody leads", || self.primary()).await?;
        let history = probe.stop().await.map_err(|error| SiteError::Probe(error.to_string()))?;
        // A pod that was replaced has another address.
        let instances = self.instances().await?;
        let runs = [history.run().to_owned()];
        let tables = finals(&access, &runs, &instances, Deadlines::default(), PATIENCE).await;
        // How much load a busy machine leaves room for is not the question here.
        let rules = Rules { least_rate: 0.0, least_time: Duration::ZERO };
        let verdict = check(std::slice::from_ref(&history), &tables, &rules)
            .map_err(|error| SiteError::Probe(error.to_string()))?;
        Ok(Outcome { before, after, verdict, ready })
    }

    async fn writes_go_on(&self, probe: &Probe) -> Result<(), SiteError> {
        if probe.more_acknowledged(ENOUGH, PATIENCE).await {
            return Ok(());
        }
        Err(SiteError::TooLate(format!("{ENOUGH} more writes ({} in all)", probe.acknowledged())))
    }

    /// Every instance is ready, by what the cluster's status and its pods say.
    pub async fn ready(&self) -> Result<(), SiteError> {
        let clusters: Api<PostgresCluster> = Api::default_namespaced(self.client.clone());
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        eventually("every instance is ready", || async {
            let pods: Vec<_> =
                pods.list(&Default::default()).await.ok()?.items.into_iter().map(std::sync::Arc::new).collect();
            let view = ClusterView::of(&clusters.get_opt(CLUSTER).await.ok()??).confirmed_by(&pods);
            (view.ready && view.instances.len() == INSTANCES.len()).then_some(())
        })
        .await
    }

    /// The way in that an application has: the Secret's files, and the Service's address.
    async fn access(&self, mounted: &Path) -> Result<Access, SiteError> {
        let secret = Api::<Secret>::default_namespaced(self.client.clone()).get(&format!("{CLUSTER}-app")).await?;
        for (name, value) in secret.data.unwrap_or_default() {
            std::fs::write(mounted.join(name), value.0)?;
        }
        let service = Api::<Service>::default_namespaced(self.client.clone()).get(&format!("{CLUSTER}-rw")).await?;
        let address = service.spec.and_then(|spec| spec.cluster_ip?.parse::<IpAddr>().ok());
        let address = address.ok_or_else(|| SiteError::Wrong("the read-write Service has no address".to_owned()))?;
        Access::from_secret(mounted, Some(SocketAddr::new(address, POSTGRES_PORT)))
            .map_err(|error| SiteError::Probe(error.to_string()))
    }

    /// Whom the read-write Service leads to.
    pub async fn primary(&self) -> Option<String> {
        let slices: Api<EndpointSlice> = Api::default_namespaced(self.client.clone());
        let slice = slices.get(&format!("{CLUSTER}-rw")).await.ok()?;
        slice.endpoints.first()?.target_ref.as_ref()?.name.clone()
    }

    async fn instance(&self, name: &str) -> Option<Target> {
        let pod = Api::<Pod>::default_namespaced(self.client.clone()).get(name).await.ok()?;
        let address = pod.status?.pod_ip?.parse().ok()?;
        Some(Target::at(format!("{name}.{CLUSTER}-pods.default.svc"), address, POSTGRES_PORT))
    }

    async fn instances(&self) -> Result<Vec<Target>, SiteError> {
        let mut all = vec![];
        for name in INSTANCES {
            all.push(eventually("every pod has an address", || self.instance(name)).await?);
        }
        Ok(all)
    }

    /// The process of `name` that listens on `port`, once there is one.
    async fn process(&self, name: &str, port: u16) -> Result<i32, SiteError> {
        eventually(&format!("{name} listens on {port}"), || async {
            let target = self.instance(name).await?;
            listener(&target, port)
        })
        .await
    }

    async fn signal(&self, name: &str, port: u16, signal: Signal) -> Result<i32, SiteError> {
        let pid = self.process(name, port).await?;
        send(pid, signal)?;
        Ok(pid)
    }

    /// Every process of the standbys: their agents, and what these started.
    async fn standbys(&self, primary: &str) -> Result<Vec<i32>, SiteError> {
        let mut all = vec![];
        for name in INSTANCES.into_iter().filter(|name| *name != primary) {
            let agent = self.process(name, AGENT_PORT).await?;
            all.extend([agent].into_iter().chain(descendants(agent)));
        }
        Ok(all)
    }

    /// Takes every connection to `primary` that the application may have, and lets all of them compute, for this long.
    pub async fn overload(&self, primary: &str, lasting: Duration) -> Result<(), SiteError> {
        let wrong = |error: ConnectionError| SiteError::Wrong(error.to_string());
        let directory = tempfile::tempdir()?;
        let connection = Connection::of(&self.client, directory.path(), "default", CLUSTER).await.map_err(wrong)?;
        let pod = Api::<Pod>::default_namespaced(self.client.clone()).get(primary).await?;
        let address = pod.status.and_then(|status| status.pod_ip?.parse().ok());
        let address = address.ok_or_else(|| SiteError::Wrong(format!("{primary} has no address")))?;
        let target = connection.instance(primary, address);
        // It may have begun to lead only now.
        let mut sessions = vec![
            eventually("the server lets somebody in", || async { connection.open(&target, PATIENCE).await.ok() })
                .await?,
        ];
        // Somebody is refused: there is no other left.
        while let Ok(session) = connection.open(&target, PATIENCE).await {
            sessions.push(session);
        }
        if sessions.len() < FEW {
            return Err(SiteError::Wrong(format!("only {} connections could be taken", sessions.len())));
        }
        let seconds = lasting.as_secs();
        let compute = format!(
            "do $$ declare until timestamptz := clock_timestamp() + interval '{seconds} s';
             begin while clock_timestamp() < until loop perform 1; end loop; end $$"
        );
        let busy: Vec<_> = sessions
            .into_iter()
            .map(|session| {
                let compute = compute.clone();
                // A failover would end it: that is for the verdict.
                tokio::spawn(async move { session.batch_execute(&compute).await.is_ok() })
            })
            .collect();
        for session in busy {
            let _ = session.await;
        }
        Ok(())
    }

    async fn another_leads(&self, before: &str) -> Result<String, SiteError> {
        eventually("another leads", || async { self.primary().await.filter(|now| now != before) }).await
    }

    /// Does it. What lasts is over when this returns, and waited for where that takes another primary.
    pub async fn hurt(&self, fault: Fault, primary: &str) -> Result<(), SiteError> {
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        match fault {
            Fault::PostmasterKilled => drop(self.signal(primary, POSTGRES_PORT, Signal::SIGKILL).await?),
            Fault::PostmasterFrozen => {
                let postmaster = self.signal(primary, POSTGRES_PORT, Signal::SIGSTOP).await?;
                // Whoever is connected goes on; the next one would wait for ever.
                ended(postmaster).await?;
            }
            Fault::PostgresFrozen => {
                let postmaster = self.signal(primary, POSTGRES_PORT, Signal::SIGSTOP).await?;
                for process in descendants(postmaster) {
                    send(process, Signal::SIGSTOP)?;
                }
                ended(postmaster).await?;
            }
            Fault::BackendKilled => {
                let postmaster = self.process(primary, POSTGRES_PORT).await?;
                if let Some(backend) = descendants(postmaster).into_iter().find(|pid| serves_an_application(*pid)) {
                    send(backend, Signal::SIGKILL)?;
                }
            }
            Fault::AgentKilled => drop(self.signal(primary, AGENT_PORT, Signal::SIGKILL).await?),
            Fault::StandbyKilled => {
                let standby = INSTANCES.into_iter().find(|name| *name != primary).unwrap_or(primary);
                self.signal(standby, AGENT_PORT, Signal::SIGKILL).await?;
            }
            Fault::StandbysFrozen => {
                let frozen = self.standbys(primary).await?;
                frozen.iter().try_for_each(|process| send(*process, Signal::SIGSTOP))?;
                tokio::time::sleep(FROZEN).await;
                frozen.iter().try_for_each(|process| send(*process, Signal::SIGCONT))?;
            }
            Fault::AllKilled => {
                for name in INSTANCES {
                    self.signal(name, AGENT_PORT, Signal::SIGKILL).await?;
                }
            }
            Fault::AgentFrozen => {
                let target = eventually("the primary has an address", || self.instance(primary)).await?;
                let agent = self.signal(primary, AGENT_PORT, Signal::SIGSTOP).await?;
                eventually("the guard ends PostgreSQL", || async {
                    listener(&target, POSTGRES_PORT).is_none().then_some(())
                })
                .await?;
                self.another_leads(primary).await?;
                send(agent, Signal::SIGCONT)?;
            }
            Fault::PodDeleted => drop(pods.delete(primary, &DeleteParams::default()).await?),
            Fault::PodDeletedByForce => {
                let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
                drop(pods.delete(primary, &now).await?);
            }
            Fault::Switchover => {
                let leases: Api<Lease> = Api::default_namespaced(self.client.clone());
                let patch = Patch::Merge(serde_json::json!({"metadata": {"annotations": {SWITCHOVER: ANY}}}));
                leases.patch(&Names::of(CLUSTER).lease(), &PatchParams::default(), &patch).await?;
            }
            Fault::Overload => self.overload(primary, overloaded_for()).await?,
            Fault::ApiFrozen => {
                send(self.up, Signal::SIGSTOP)?;
                tokio::time::sleep(AWAY).await;
                send(self.up, Signal::SIGCONT)?;
            }
            of_a_node => return Err(SiteError::Wrong(format!("{} needs nodes", of_a_node.name()))),
        }
        Ok(())
    }
}

/// The agent has ended what was stuck, and reaped it.
async fn ended(pid: i32) -> Result<(), SiteError> {
    eventually("what is stuck is ended", || async { (!Path::new(&format!("/proc/{pid}")).exists()).then_some(()) })
        .await
}

fn listener(of: &Target, port: u16) -> Option<i32> {
    proc::listener(SocketAddr::new(of.address?, port)).map(|(pid, _)| pid)
}

/// One that is gone already needs no signal.
fn send(pid: i32, signal: Signal) -> Result<(), SiteError> {
    match kill(Pid::from_raw(pid), signal) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
        Err(errno) => Err(SiteError::Io(errno.into())),
    }
}

/// Every process below this one.
fn descendants(of: i32) -> Vec<i32> {
    let children = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    let children: Vec<i32> = children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    children.iter().flat_map(|child| [*child].into_iter().chain(descendants(*child))).collect()
}

/// By what PostgreSQL calls its processes: cluster, user, database.
fn serves_an_application(pid: i32) -> bool {
    let title = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&title).contains(": app app ")
}
