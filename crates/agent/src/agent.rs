//! `bellwether agent`: sets the stage, lets the instance live until a signal comes, and stops everything in order.
//!
//! Never: exits while a process of PostgreSQL lives.

use std::process::ExitCode;
use std::time::Duration;

use bellwether_api::v1::InstanceState;
use bellwether_core::contract::{AGENT_PORT, GRACE_PERIOD_SECONDS, Report};
use bellwether_postgres::{Installation, installation};
use bellwether_runtime::{client, telemetry};
use tokio::sync::watch;

use crate::board::Board;
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
use crate::settings::Places;
use crate::signals::Signals;
use crate::synchronous::Memory;
use crate::volume::Volume;

/// The role's name.
pub const ROLE: &str = "agent";
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
    #[error("{what}: {cause}")]
    Io { what: String, cause: std::io::Error },
}

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> StartError {
    let what = what.into();
    move |cause| StartError::Io { what, cause }
}

/// Runs the agent with the environment that its home gave it.
pub fn main() -> ExitCode {
    match start() {
        Ok(code) => code,
        Err(error) => {
            tracing::error!(%error, "the agent can't run");
            // Logging may be what failed.
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "bellwether agent: {error}");
            ExitCode::FAILURE
        }
    }
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
    let mut postmaster = None;
    let Some((mut instance, client)) = unless_stopped(&mut stopping, set_up(environment)).await.transpose()? else {
        return Ok(ExitCode::SUCCESS);
    };
    let mut asked = stopping.clone();
    let request = tokio::select! {
        never = instance.live(&mut postmaster) => match never {},
        request = asked_to_stop(&mut asked) => request,
    };
    Ok(stop_in_order(&instance, client, postmaster, &mut stopping, request).await)
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

/// Gets everything ready: what is mounted, the HTTPS server, the tasks around the loop.
async fn set_up(environment: Environment) -> Result<(Instance, kube::Client), StartError> {
    let client = client::infer().await?;
    let places = Places::prepare(&environment)?;
    let inputs = mounted(&environment).await;
    places.stage(&inputs)?;
    let (server_tls, certificates) = watch::channel(http::server_config(&places.server_tls)?);
    let listener = http::listen(environment.address, AGENT_PORT)
        .await
        .map_err(io(format!("listen on {}:{AGENT_PORT}", environment.address)))?;
    let board = Board::new(Report { agent_version: env!("CARGO_PKG_VERSION").to_owned(), ..Report::default() });
    tokio::spawn(http::serve(listener, certificates, board.clone()));
    tokio::spawn(pod::publish(client.clone(), environment.clone(), board.subscribe()));
    let installation = installed(&environment, &board).await;
    // Only from here on: before this, programs were run whose exit codes nobody registered.
    let children = Children::default();
    tokio::spawn(reaper::reap_for_ever(children.clone()));
    let leases = Leases::new(client.clone(), &environment.namespace, environment.names.lease());
    let (seen, lease) = watch::channel(None);
    tokio::spawn(leases.clone().follow(seen));
    let instance = Instance {
        installation,
        guard: std::env::current_exe().map_err(io("find our own binary"))?,
        children,
        volume: Volume::new(environment.data_dir.clone(), environment.wal_dir.clone(), &environment.instance),
        memory: Memory::on(&environment.data_dir),
        leases,
        lease,
        endpoint: Endpoint::new(client.clone(), &environment),
        board,
        places,
        inputs,
        server_tls,
        complaints: Complaints::default(),
        environment,
    };
    Ok((instance, client))
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
    let (end, withdrawn) = tokio::join!(stopped, tokio::time::timeout(DEADLINE, instance.endpoint.withdraw()));
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
    if end == End::Code(0) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
