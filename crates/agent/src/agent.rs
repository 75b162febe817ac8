//! `bellwether agent`: sets the stage, lets the instance live until a signal comes, and stops everything in order.
//!
//! Never: exits while a process of PostgreSQL lives.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bellwether_api::v1::{DurabilityMode, InstanceState};
use bellwether_core::contract::{AGENT_PORT, GRACE_PERIOD_SECONDS, Leader, PEER_PORT, Report};
use bellwether_core::election::{Deadline, Durability, Phase, Settings};
use bellwether_core::fact::Fact;
use bellwether_core::instance::copying::Failed;
use bellwether_core::instance::{durability, leaving};
use bellwether_postgres::{Installation, installation};
use bellwether_runtime::{client, telemetry};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::archive::keeper::Keeper;
use crate::board::Board;
use crate::checkpoint;
use crate::election::driver::{Driver, DriverError, Fence, Links, Wish};
use crate::election::peers::{Me, Peers};
use crate::election::record::Record;
use crate::election::tls::PeerTls;
use crate::election::{Log, Role, Want, memory};
use crate::environment::Environment;
use crate::guard::orders::End;
use crate::http;
use crate::inputs::Inputs;
use crate::instance::Instance;
use crate::kubernetes::endpoint::Endpoint;
use crate::kubernetes::lease::Leases;
use crate::kubernetes::{DEADLINE, pod};
use crate::logs::Complaints;
use crate::postmaster::{Postmaster, StopRequest};
use crate::process::reaper::{self, Children};
use crate::restore::Restoring;
use crate::settings::Places;
use crate::signals::Signals;
use crate::space::{self, Spaces, Volumes};
use crate::volume::{self, LastCopy, Volume};

/// The role's name.
pub const ROLE: &str = "agent";
/// How long a pod that is deleted waits for another to lead: a shutdown with its checkpoint, and an election.
const HAND_OVER: Duration = Duration::from_secs(20);
/// … and for a checkpoint before that: the kubelet's patience ends.
const CHECKPOINT: Duration = Duration::from_secs(5);
/// With less time than this to end there is none for a checkpoint and a shutdown before another leads: a pod deleted by force has a second.
const HURRIED: Duration = Duration::from_secs(5);
/// How long is looked for how much time there is.
const LOOK_AT_GRACE: Duration = Duration::from_millis(200);
/// How long the endpoint is left to whoever was handed over to. It publishes its own in half a second; one that has not after this is in trouble.
const TAKES_OVER: Duration = Duration::from_secs(2);
/// How often a volume is tried that another agent holds.
const LOCK_AGAIN: Duration = Duration::from_millis(200);
/// How often what is missing at the start is looked for again.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Why the agent can't even start.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Environment(#[from] crate::environment::EnvironmentError),
    #[error(transparent)]
    Telemetry(#[from] telemetry::TelemetryError),
    #[error(transparent)]
    Client(#[from] client::ClientError),
    #[error(transparent)]
    Settings(#[from] crate::settings::SettingsError),
    #[error(transparent)]
    Tls(#[from] http::TlsError),
    #[error(transparent)]
    Memory(#[from] memory::MemoryError),
    #[error(transparent)]
    Election(#[from] DriverError),
    #[error("{what}: {cause}")]
    Io { what: String, cause: std::io::Error },
}

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> StartError {
    let what = what.into();
    move |cause| StartError::Io { what, cause }
}

/// Runs the agent with the environment that its home gave it.
pub fn main() -> ExitCode {
    let code = match start() {
        Ok(code) => code,
        Err(error) => {
            tracing::error!(%error, "the agent can't run");
            // Logging may be what failed.
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "bellwether agent: {error}");
            ExitCode::FAILURE
        }
    };
    telemetry::flush();
    code
}

fn start() -> Result<ExitCode, StartError> {
    telemetry::init(ROLE)?;
    client::install_crypto();
    let environment = Environment::read()?;
    // PID 1 gets orphans anyway; elsewhere we ask for them.
    nix::sys::prctl::set_child_subreaper(true).map_err(|errno| io("child subreaper")(errno.into()))?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(io("asynchronous runtime"))?;
    let code = runtime.block_on(run(environment));
    // Whatever still runs on other threads (a name look-up, for example) must not hold up the exit.
    runtime.shutdown_background();
    code
}

async fn run(environment: Environment) -> Result<ExitCode, StartError> {
    let (stop, mut stopping) = watch::channel(None);
    let grace = Duration::from_secs(GRACE_PERIOD_SECONDS);
    tokio::spawn(Signals::catch().map_err(io("signals"))?.publish(grace, stop));
    let mut running = None;
    let Some((mut instance, election, mut driver, client)) =
        unless_stopped(&mut stopping, set_up(environment)).await.transpose()?
    else {
        return Ok(ExitCode::SUCCESS);
    };
    let mut asked = stopping.clone();
    let socket = instance.places.socket.path().to_owned();
    let leaving =
        Leaving { election, socket, pods: kube::Api::namespaced(client.clone(), &instance.environment.namespace) };
    let environment = instance.environment.clone();
    let (request, heir) = tokio::select! {
        never = instance.live(&mut running) => match never {},
        error = ended(&mut driver) => return Err(error),
        left = leaving.handed_over(&mut asked, &environment) => left,
    };
    Ok(stop_in_order(&instance, client, running.map(|running| running.postmaster), &mut stopping, request, heir).await)
}

/// Whether somebody else is about to lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heir {
    /// It was handed over to.
    Expected,
    /// This one did not lead, or nobody could take over.
    None,
}

/// What it takes to leave in order.
struct Leaving {
    election: Election,
    socket: PathBuf,
    pods: kube::Api<Pod>,
}

impl Leaving {
    /// Asked to stop, and no longer leading if anybody else can: another takes over first, while this one still has everything.
    async fn handed_over(
        &self,
        stopping: &mut watch::Receiver<Option<StopRequest>>,
        environment: &Environment,
    ) -> (StopRequest, Heir) {
        let request = asked_to_stop(stopping).await;
        if !self.election.leads() || !self.election.could_hand_over() {
            return (request, Heir::None);
        }
        if self.hurried(environment).await {
            tracing::info!("asked to stop, and no time for it: another takes over at once");
            self.election.wish(Wish::Release);
        } else {
            tracing::info!("asked to stop: another takes over first");
            checkpoint::before_stopping(&self.socket, CHECKPOINT).await;
            self.election.wish(Wish::Switchover(None));
        }
        let _ = tokio::time::timeout(HAND_OVER, self.election.until_handed_over()).await;
        (request, if self.election.leads() { Heir::None } else { Heir::Expected })
    }

    /// Whether PostgreSQL has to be killed for another to lead in time. Only where every acknowledged commit is on a standby: else what it
    /// has not sent would be missing there, and it is shut down, for as long as there is.
    async fn hurried(&self, environment: &Environment) -> bool {
        let quorum = Inputs::read(environment).is_ok_and(|inputs| settings(&inputs).durability == Durability::Quorum);
        let grace = tokio::time::timeout(LOOK_AT_GRACE, pod::grace(&self.pods, environment));
        quorum && grace.await.ok().flatten().is_some_and(|grace| grace < HURRIED)
    }
}

async fn asked_to_stop(stopping: &mut watch::Receiver<Option<StopRequest>>) -> StopRequest {
    match stopping.wait_for(Option::is_some).await {
        Ok(request) => request.unwrap_or_else(|| StopRequest::first(Duration::ZERO)),
        // Nobody can ask any more.
        Err(_) => std::future::pending().await,
    }
}

async fn unless_stopped<T>(
    stopping: &mut watch::Receiver<Option<StopRequest>>,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        _ = asked_to_stop(stopping) => None,
    }
}

/// Why the election ended: it can't go on, and without it nothing may.
async fn ended(driver: &mut JoinHandle<DriverError>) -> StartError {
    match driver.await {
        Ok(error) => error.into(),
        Err(panic) => io("run the election")(std::io::Error::other(panic)),
    }
}

/// What the agent wants of the election.
struct Election {
    wishes: mpsc::UnboundedSender<Wish>,
    phase: watch::Receiver<(Phase, &'static str)>,
    peers: Peers,
}

impl Election {
    fn leads(&self) -> bool {
        matches!(self.phase.borrow().0, Phase::Leader | Phase::HandingOver)
    }
    fn could_hand_over(&self) -> bool {
        !self.peers.who().is_empty()
    }
    fn wish(&self, wish: Wish) {
        let _ = self.wishes.send(wish);
    }
    /// Until another may lead, or nobody could.
    async fn until_handed_over(&self) {
        let mut phase = self.phase.clone();
        let _ = phase.wait_for(|(phase, _)| *phase != Phase::Leader).await;
        let _ = phase.wait_for(|(phase, _)| *phase != Phase::HandingOver).await;
    }
}

/// Gets everything ready: what is mounted, the HTTPS server, the tasks around the loop.
async fn set_up(
    environment: Environment,
) -> Result<(Instance, Election, JoinHandle<DriverError>, kube::Client), StartError> {
    let client = client::infer().await?;
    let places = Places::prepare(&environment)?;
    let inputs = mounted(&environment).await;
    places.stage(&inputs)?;
    let (server_tls, certificates) = watch::channel(http::server_config(&places.server_tls)?);
    let mut listeners = vec![];
    for address in environment.listen() {
        let listener = http::listen(address, AGENT_PORT).await;
        listeners.push(listener.map_err(io(format!("listen on {address}:{AGENT_PORT}")))?);
    }
    let board = Board::new(Report { agent_version: env!("CARGO_PKG_VERSION").to_owned(), ..Report::default() });
    for listener in listeners {
        tokio::spawn(http::serve(listener, certificates.clone(), board.clone()));
    }
    tokio::spawn(pod::publish(client.clone(), environment.clone(), board.subscribe()));
    let installation = installed(&environment, &board).await;
    // Only from here on: before this, programs were run whose exit codes nobody registered.
    let children = Children::default();
    tokio::spawn(reaper::reap_for_ever(children.clone()));
    let pods = kube::Api::namespaced(client.clone(), &environment.namespace);
    let leases = Leases::new(client.clone(), &environment.namespace, environment.names.lease());
    let lock = alone(&environment, &board).await?;
    let record = Record::open(&environment.data_dir, &environment.pod_uid, environment.claim_uid.as_deref())?;
    let (peer_tls, peer_certificates) =
        watch::channel(Arc::new(PeerTls::read(&places.server_tls, &places.replication_tls)?));
    let me = Me {
        names: environment.names.clone(),
        namespace: environment.namespace.clone(),
        instance: environment.instance.clone(),
        identity: record.lock().identity(),
        address: environment.address,
        port: PEER_PORT,
    };
    let (peers, incoming) = Peers::start(me, peer_certificates)
        .await
        .map_err(io(format!("listen on {}:{PEER_PORT}", environment.address)))?;
    peers.set_instances(&inputs.config.everybody());
    let identity = record.lock().identity().to_string();
    board.report(|report| report.identity = Some(identity));
    let me = Leader { instance: environment.instance.clone(), address: environment.address.to_string() };
    let (want, wanted) = watch::channel(Want { number: 0, role: Role::Stand });
    let (guard, deadline) = watch::channel(Deadline::Never);
    let (lease, lease_seen) = watch::channel(Fact::Unknown);
    let (news_sender, news) = mpsc::unbounded_channel();
    let (wishes, wished) = mpsc::unbounded_channel();
    let (log_sender, log) = watch::channel(Log::default());
    let (written_sender, written) = watch::channel(None);
    let (others_sender, others) = watch::channel(BTreeMap::new());
    let (copy_sender, copy) = watch::channel(None);
    let (phase_sender, phase) = watch::channel((Phase::Member, "it has just started"));
    let volumes = Volumes::new(environment.data_dir.clone(), environment.wal_dir.clone());
    let (spaces_sender, mut spaces) = watch::channel(volumes.look(&Spaces::default()));
    // The election is told from the beginning.
    spaces.mark_changed();
    tokio::spawn(space::watch(volumes.clone(), spaces_sender, board.clone()));
    let links = Links {
        want,
        guard,
        lease,
        news,
        wishes: wished,
        log,
        written,
        others: others_sender,
        copy,
        spaces: spaces.clone(),
        phase: phase_sender,
    };
    let fence = Fence::of(&inputs, &environment);
    let wish = (settings(&inputs), fence, leaving::leaving(&inputs.config));
    let driver = Driver::new(wish, record.clone(), peers.clone(), (leases, pods), me, links);
    let driver = tokio::spawn(driver.run(incoming));
    let (archive, wanted_archive) = watch::channel(inputs.config.archive.clone());
    let volume = Volume::new(environment.data_dir.clone(), environment.wal_dir.clone(), &environment.instance);
    let keeper = Keeper {
        program: places.program.clone(),
        places: places.clone(),
        programs: installation.bin_dir.clone(),
        pgdata: volume.pgdata(),
        wanted: wanted_archive,
        lease: lease_seen.clone(),
        board: board.clone(),
        children: children.clone(),
        secrets: kube::Api::namespaced(client.clone(), &environment.namespace),
        environment: environment.clone(),
        archived: None,
        retained: None,
    };
    tokio::spawn(keeper.keep());
    let instance = Instance {
        installation,
        guard: places.program.clone(),
        children,
        volume,
        _lock: lock,
        record,
        want: wanted,
        deadline,
        news: news_sender,
        log: log_sender,
        written: written_sender,
        copy: copy_sender,
        others,
        peers: peers.clone(),
        peer_tls,
        wishes: wishes.clone(),
        least: BTreeMap::new(),
        stands_since: None,
        held_back: None,
        rewound: None,
        last_copy: LastCopy::default(),
        failed_copies: Failed::default(),
        restoring: Restoring::default(),
        secrets: kube::Api::namespaced(client.clone(), &environment.namespace),
        lead_after: tokio::time::Instant::now(),
        fenced_end: None,
        hand_over_after: tokio::time::Instant::now(),
        volumes,
        spaces,
        archive,
        lease: lease_seen,
        endpoint: Endpoint::new(client.clone(), &environment),
        board,
        places,
        inputs,
        server_tls,
        unread_certificates: false,
        complaints: Complaints::default(),
        environment,
    };
    Ok((instance, Election { wishes, phase, peers }, driver, client))
}

/// Waits until no other agent works on this volume: one of a pod that was deleted by force may not have noticed yet. Two of them would be
/// one identity twice (E13).
async fn alone(environment: &Environment, board: &Board) -> Result<File, StartError> {
    let path = environment.data_dir.join(volume::AGENT_LOCK);
    let file = File::create(&path).map_err(io(path.display().to_string()))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(cause)) => return Err(io(path.display().to_string())(cause)),
            Err(TryLockError::WouldBlock) => board.report(|report| {
                report.message = Some("waiting until another agent is gone from this volume".to_owned());
            }),
        }
        board.beat();
        tokio::time::sleep(LOCK_AGAIN).await;
    }
}

/// The election's settings: its timings are fixed, durability is the user's.
pub(crate) fn settings(inputs: &Inputs) -> Settings {
    let durability = match durability::mode(&inputs.config) {
        DurabilityMode::Quorum => Durability::Quorum,
        DurabilityMode::Preferred => Durability::Preferred,
        DurabilityMode::Async => Durability::Async,
    };
    leaving::settings(Settings { durability, ..Settings::default() }, &leaving::leaving(&inputs.config))
}

async fn mounted(environment: &Environment) -> Inputs {
    loop {
        match Inputs::read(environment) {
            Ok(inputs) => return inputs,
            Err(error) => tracing::warn!(%error, "waiting for what should be mounted"),
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// A version that isn't there is said, not crashed on: a person reads the report and changes the spec or the image.
async fn installed(environment: &Environment, board: &Board) -> Installation {
    loop {
        match installation::find(&environment.pg_version) {
            Ok(installation) => return installation,
            Err(error) => board.report(|report| {
                report.state = InstanceState::Down;
                report.message = Some(error.to_string());
            }),
        }
        board.beat();
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Clients are sent away, PostgreSQL is stopped, and that is said; each for no longer than it may take.
async fn stop_in_order(
    instance: &Instance,
    client: kube::Client,
    postmaster: Option<Postmaster>,
    stopping: &mut watch::Receiver<Option<StopRequest>>,
    request: StopRequest,
    heir: Heir,
) -> ExitCode {
    instance.board.report(|report| {
        report.accepts_sql = false;
        report.message = Some("shutting down".into());
    });
    let stopped = async {
        match postmaster {
            Some(mut postmaster) => postmaster.stop(stopping, request).await,
            None => End::Code(0),
        }
    };
    let withdrawn = async {
        if heir == Heir::Expected {
            instance.endpoint.until_elsewhere(TAKES_OVER).await;
        }
        tokio::time::timeout(DEADLINE, instance.endpoint.withdraw()).await
    };
    let (end, withdrawn) = tokio::join!(stopped, withdrawn);
    if !matches!(withdrawn, Ok(Ok(()))) {
        tracing::warn!("the read-write endpoint may still lead here");
    }
    instance.children.kill_orphans().await;
    instance.board.report(|report| {
        report.state = InstanceState::Down;
        report.message = Some("shut down".into());
    });
    let api = kube::Api::namespaced(client, &instance.environment.namespace);
    if let Err(error) = pod::write(&api, &instance.environment, &instance.board.current()).await {
        tracing::warn!(%error, "the last report was not written");
    }
    tracing::info!(%end, "stopped");
    // One that was only just starting may exit with another code than 0 when it is told to stop.
    if matches!(end, End::Code(_)) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
