//! Everything of one `bellwether up`, in the order it must start and stop.
//!
//! Start: directory (locked) → addresses (claimed) → leftovers of a killed predecessor stopped → API → what an administrator
//! installs → nodes, kubelet, network → operator. Stop: operator, pods (standbys, then primaries), network, API. Never: a pod started
//! while a process of an earlier run may still hold its volume, or a database that is still up when this has stopped.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether_apiserver::error::ApiError;
use bellwether_apiserver::http::{Audit, Running, ServeError, Server, ServerConfig};
use bellwether_apiserver::store::Store;
use bellwether_core::rbac;
use bellwether_runtime::client;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tokio_util::sync::CancellationToken;

use crate::directory::{DataDirectory, DirectoryError, write_private};
use crate::disruption::Disruption;
use crate::install::{self, OPERATOR_NAMESPACE};
use crate::kubelet::context::{Context, Credentials};
use crate::kubelet::{self, Claims, Kubelet, Stop, nodes};
use crate::mirror::Mirror;
use crate::network::{Network, ServiceAddresses};
use crate::pod_logs;
use crate::priority::Favoured;
use crate::proc::{self, Scope};
use crate::range::{Claim, Range, RangeError, listener_of};
use crate::run_as::{RunAs, RunAsError};
use crate::spawn::Spawner;

/// Leftovers of a killed `up` are asked to end before they are killed; PostgreSQL's fast shutdown takes about a second.
const LEFTOVERS_END_WITHIN: Duration = Duration::from_secs(20);
/// Changes that are kept for watches; whoever is further behind lists again, and on this machine that is only who was stopped. Each change
/// of a pod takes some 240 KB, so that half an hour of chaos took 600 MB with the API's own limit of ten thousand.
const HISTORY: usize = 300;
/// The operator only reads and writes objects; what it is at is done in moments.
const OPERATOR_ENDS_WITHIN: Duration = Duration::from_secs(5);

/// How a home is started.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where the API listens; the range's first address when left out.
    pub listen: Option<SocketAddr>,
    /// The loopback range; the first free one when left out.
    pub range: Option<Range>,
    /// Whether the operator runs in this process.
    pub operator: OperatorChoice,
}

/// Whether the operator runs in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OperatorChoice {
    /// It does.
    #[default]
    Run,
    /// It doesn't: somebody runs it outside, in a debugger for example.
    LeaveOut,
}

/// What a home is doing, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Processes of an earlier run were found and stopped.
    LeftoversStopped(usize),
    /// The API answers at this address.
    ApiAnswers(SocketAddr),
    /// Kubelet and network run.
    NodesReady,
    /// The operator runs.
    OperatorRuns,
    /// The operator is left to somebody else, who finds its credentials here.
    OperatorLeftOut(PathBuf),
    /// The operator has stopped.
    OperatorStopped,
    /// Pods are being stopped.
    StoppingPods,
    /// All pods have stopped.
    PodsStopped,
    /// The API has stopped.
    ApiStopped,
}

/// Why a home did not start.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// The user.
    #[error(transparent)]
    User(#[from] RunAsError),
    /// The directory.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The addresses.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// The API's port is taken.
    #[error("{address} is taken{by}; stop what listens there, or choose another address with --listen")]
    PortTaken {
        /// The address.
        address: SocketAddr,
        /// Who has it, if that can be told.
        by: String,
    },
    /// The API did not start.
    #[error("the API did not start: {0}")]
    Api(#[source] ServeError),
    /// The API's state could not be written.
    #[error("the API's state: {0}")]
    Store(#[source] ApiError),
    /// Credentials could not be made.
    #[error("credentials for {who}: {problem}")]
    Credentials {
        /// For whom.
        who: &'static str,
        /// Why.
        problem: String,
    },
    /// The API refused what we install.
    #[error("installing Bellwether into the API: {0}")]
    Install(#[from] kube::Error),
    /// A file or process.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// Where a home will be: its directory, locked for us, and the user of its processes.
#[derive(Debug)]
pub struct Site {
    /// The directory.
    pub directory: DataDirectory,
    user: RunAs,
}

impl Site {
    /// Opens a directory ([`DataDirectory::default_path`] when none is named) for processes of a user ([`RunAs::choose`]).
    pub fn open(path: Option<&Path>, postgres_user: Option<&str>) -> Result<Self, HomeError> {
        // The databases' user must get at what we create for it; a stricter mask of the shell's would prevent that. What is
        // secret is created with a mode of its own.
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
        let user = RunAs::choose(postgres_user)?;
        let path = path.map_or_else(DataDirectory::default_path, Path::to_owned);
        Ok(Self { directory: DataDirectory::open(&path, &user)?, user })
    }
}

/// A running home.
pub struct Home {
    /// May do everything.
    pub client: Client,
    /// Its addresses.
    pub range: Range,
    directory: DataDirectory,
    api: Arc<Running>,
    operator: Option<Operator>,
    kubelet: Kubelet,
    network: Network,
    disruption: Disruption,
    _claim: Claim,
    _favoured: Favoured,
}

struct Operator {
    cancel: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Home {
    /// Starts everything; tells each step.
    pub async fn start(site: Site, options: Options, mut tell: impl FnMut(Step)) -> Result<Self, HomeError> {
        let Site { directory, user } = site;
        let claim = Range::claim(&directory.range(), options.range)?;
        let leftovers = proc::stop_all(&Scope::Home(directory.root().to_owned()), LEFTOVERS_END_WITHIN).await;
        if leftovers > 0 {
            tell(Step::LeftoversStopped(leftovers));
        }
        clear(&directory.pods()).map_err(|source| HomeError::Io { what: "clearing the pods' directories", source })?;
        let favoured = Favoured::session();
        let api = Arc::new(serve(&directory, options.listen.unwrap_or_else(|| claim.range.api())).await?);
        let addresses = ServiceAddresses::of(claim.range);
        let set = |store: &mut Store| {
            store.set_cluster_ips(Box::new(addresses));
            store.set_history_window(HISTORY);
            Ok(())
        };
        api.shared().write(set).await.map_err(HomeError::Store)?;
        tell(Step::ApiAnswers(api.address()));
        let (client, kubeconfig) = connect(&api).await?;
        install::install(&client).await?;
        nodes::ensure(&client, claim.range).await?;
        api.set_pod_logs(Arc::new(pod_logs::Files(directory.logs())));
        let context = context(&api, &directory, user, claim.range).await?;
        let network = Network::start(context.client.clone()).await;
        let disruption = Disruption::start(context.client.clone()).await;
        let kubelet = Kubelet::start(context).await;
        // Only now: before the kubelet has looked at them, pods of an earlier run still say that they are ready.
        write_private(&directory.kubeconfig(), kubeconfig.as_bytes())
            .map_err(|source| HomeError::Io { what: "writing the kubeconfig", source })?;
        tell(Step::NodesReady);
        let operator = match options.operator {
            OperatorChoice::Run => Some(start_operator(&operator_kubeconfig(&api)?).await?),
            OperatorChoice::LeaveOut => {
                let path = directory.operator_kubeconfig();
                write_private(&path, operator_kubeconfig(&api)?.as_bytes())
                    .map_err(|source| HomeError::Io { what: "writing the operator's kubeconfig", source })?;
                tell(Step::OperatorLeftOut(path));
                None
            }
        };
        if operator.is_some() {
            tell(Step::OperatorRuns);
        }
        let range = claim.range;
        Ok(Self {
            client,
            range,
            directory,
            api,
            operator,
            kubelet,
            network,
            disruption,
            _claim: claim,
            _favoured: favoured,
        })
    }

    /// The data directory.
    pub fn directory(&self) -> &DataDirectory {
        &self.directory
    }

    /// Who wrote what in the API.
    pub fn audit(&self) -> Arc<Audit> {
        self.api.audit()
    }

    /// Everything that this home has started and that still runs.
    pub fn scope(&self) -> Scope {
        Scope::Home(self.directory.root().to_owned())
    }

    /// Stops everything in order; `hurry` skips the waiting. Objects stay, so the next start brings them back.
    pub async fn stop(self, hurry: CancellationToken, mut tell: impl FnMut(Step)) {
        if let Some(operator) = self.operator {
            operator.cancel.cancel();
            let abort = operator.task.abort_handle();
            if tokio::time::timeout(OPERATOR_ENDS_WITHIN, operator.task).await.is_err() {
                abort.abort();
            }
            tell(Step::OperatorStopped);
        }
        tell(Step::StoppingPods);
        let stop = self.kubelet.stop.clone();
        let _already_stopped = stop.send(Stop::InOrder).await;
        let stopped = self.kubelet.stopped();
        tokio::pin!(stopped);
        tokio::select! {
            () = &mut stopped => {}
            () = hurry.cancelled() => {
                let _already_stopped = stop.send(Stop::Now).await;
                stopped.await;
            }
        }
        proc::kill_all(&Scope::Home(self.directory.root().to_owned())).await;
        tell(Step::PodsStopped);
        drop((self.network, self.disruption, self.client));
        if let Some(api) = Arc::into_inner(self.api) {
            api.shutdown().await;
        }
        tell(Step::ApiStopped);
    }
}

/// What is in a pod's directory belongs to a run that is over: sockets, copies of Secrets, binaries.
fn clear(pods: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(pods)? {
        std::fs::remove_dir_all(entry?.path())?;
    }
    Ok(())
}

async fn serve(directory: &DataDirectory, listen: SocketAddr) -> Result<Running, HomeError> {
    let started = Server::start(ServerConfig { listen, dir: Some(directory.api()) }).await;
    started.map_err(|error| match error {
        ServeError::Busy { address } => HomeError::PortTaken { address, by: listener_of(address) },
        other => HomeError::Api(other),
    })
}

/// The administrator's client, and the text of the kubeconfig for people.
async fn connect(api: &Running) -> Result<(Client, String), HomeError> {
    const WHO: &str = "the administrator";
    let text =
        api.admin_kubeconfig().map_err(|error| HomeError::Credentials { who: WHO, problem: error.to_string() })?;
    Ok((client_from(WHO, &text).await?, text))
}

async fn client_from(who: &'static str, kubeconfig: &str) -> Result<Client, HomeError> {
    let failed = |problem: String| HomeError::Credentials { who, problem };
    let parsed = Kubeconfig::from_yaml(kubeconfig).map_err(|error| failed(error.to_string()))?;
    let config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await;
    client::from_config(config.map_err(|error| failed(error.to_string()))?).map_err(|error| failed(error.to_string()))
}

async fn context(
    api: &Arc<Running>,
    directory: &DataDirectory,
    user: RunAs,
    range: Range,
) -> Result<Arc<Context>, HomeError> {
    const WHO: &str = "the kubelet";
    let io = |what| move |source| HomeError::Io { what, source };
    let kubeconfig = api.kubeconfig_for_user("bellwether-up:kubelet", Some("system:masters"));
    let client =
        client_from(WHO, &kubeconfig.map_err(|error| HomeError::Credentials { who: WHO, problem: error.to_string() })?)
            .await?;
    // A weak reference: pods' workers must not keep the API from stopping.
    let server = Arc::downgrade(api);
    let credentials: Credentials = Arc::new(move |namespace, name| {
        let server = server.upgrade().ok_or_else(|| io::Error::other("the API has stopped"))?;
        server.kubeconfig_for_service_account(namespace, name).map_err(io::Error::other)
    });
    Ok(Arc::new(Context {
        home: directory.root().to_owned(),
        pods: directory.pods(),
        logs: directory.logs(),
        binary: kubelet::provide(&directory.bin()).map_err(io("copying our binary into the data directory"))?,
        spawner: Spawner::start().map_err(io("starting the spawning thread"))?,
        credentials,
        claims: Claims::new(directory.volumes(), user.clone()),
        range,
        user,
        secrets: Mirror::start(Api::<Secret>::all(client.clone())).await,
        config_maps: Mirror::start(Api::<ConfigMap>::all(client.clone())).await,
        volume_claims: Mirror::start(Api::<PersistentVolumeClaim>::all(client.clone())).await,
        addresses: Mutex::new((range.pods(), Default::default())),
        client,
    }))
}

const OPERATOR: &str = "the operator";

/// The operator's own service account: what it may not do on a real cluster it may not do here.
fn operator_kubeconfig(api: &Running) -> Result<String, HomeError> {
    let kubeconfig = api.kubeconfig_for_service_account(OPERATOR_NAMESPACE, rbac::OPERATOR);
    kubeconfig.map_err(|error| HomeError::Credentials { who: OPERATOR, problem: error.to_string() })
}

async fn start_operator(kubeconfig: &str) -> Result<Operator, HomeError> {
    let client = client_from(OPERATOR, kubeconfig).await?;
    let cancel = CancellationToken::new();
    let running = bellwether_operator::run(client, bellwether_operator::Settings::default(), cancel.clone());
    let task = tokio::spawn(async move {
        if let Err(error) = running.await {
            tracing::error!(%error, "the operator ended");
        }
    });
    Ok(Operator { cancel, task })
}
