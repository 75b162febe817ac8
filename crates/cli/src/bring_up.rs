//! `bellwether up`: a home that stays, with a cluster in it.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bellwether_api::names::Names;
use bellwether_api::v1::PostgresCluster;
use bellwether_api::versions::SUPPORTED;
use bellwether_embedded::connection::Connection;
use bellwether_embedded::home::{Home, HomeError, OperatorChoice, Options, Site, Step};
use bellwether_embedded::manifest::{self, Manifest, ManifestError};
use bellwether_embedded::view::ClusterView;
use bellwether_postgres::installation;
use bellwether_runtime::telemetry::{self, Format, Sink, TelemetryError};
use kube::Api;
use tokio_util::sync::CancellationToken;

use crate::args::{Place, Up};
use crate::exit::Exit;
use crate::output::live::{self, Scene, Until};
use crate::output::{self, Tone, paint};

const DEFAULT_NAME: &str = "demo";
const DEFAULT_REPLICAS: i32 = 3;

/// Why `up` or `try` did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The home.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// A manifest.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The log.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// No PostgreSQL that we support.
    #[error(
        "no supported PostgreSQL is installed (supported: {supported}; found: {found}); on Debian or Ubuntu: \
             apt-get install postgresql"
    )]
    NoPostgres {
        /// What we support.
        supported: String,
        /// What is there.
        found: String,
    },
    /// The API.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// A file.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
}

/// Runs it.
pub fn run(options: Up) -> ExitCode {
    block_on(up(options))
}

/// A runtime with a few threads: the API, the operator and connections through Services share it.
pub fn block_on(future: impl Future<Output = Result<Exit, StartError>>) -> ExitCode {
    let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 4);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(future),
        Err(source) => Err(StartError::Io { what: "starting the runtime".to_owned(), source }),
    };
    match result {
        Ok(exit) => exit.into(),
        Err(error) => {
            output::error(&error.to_string());
            Exit::CannotStart.into()
        }
    }
}

async fn up(options: Up) -> Result<Exit, StartError> {
    let given = manifests(&options)?;
    let site = open(options.data_dir.as_deref(), &options.place)?;
    let began = Instant::now();
    let choice = if options.no_operator { OperatorChoice::LeaveOut } else { OperatorChoice::Run };
    let starting = Home::start(site, home_options(&options.place, choice), say);
    let home = tokio::select! {
        home = starting => home?,
        // Nothing of a home that hasn't started needs an order to stop: what it started dies with us.
        () = output::signal() => return Ok(Exit::Ok),
    };
    let applied = apply(&home, &options, given).await;
    let exit = match applied {
        Ok(clusters) => stay(&home, &options, clusters, began).await,
        Err(error) => {
            output::error(&error.to_string());
            Exit::CannotStart
        }
    };
    stop(home).await;
    Ok(exit)
}

/// The manifests of the command line, read before anything is started.
fn manifests(options: &Up) -> Result<Vec<Manifest>, StartError> {
    let read: Result<Vec<_>, ManifestError> = options.files.iter().map(|path| manifest::read(path)).collect();
    Ok(read?.into_iter().flatten().collect())
}

/// Opens the directory, and the log in it.
pub fn open(data_dir: Option<&Path>, place: &Place) -> Result<Site, StartError> {
    let site = Site::open(data_dir, place.postgres_user.as_deref())?;
    let path = site.directory.logs().join("up.log");
    let log = OpenOptions::new().append(true).create(true).open(&path);
    let log = log.map_err(|source| StartError::Io { what: path.display().to_string(), source })?;
    telemetry::init_with("up", Format::Human, Sink::File(log))?;
    Ok(site)
}

/// The home's options from the command line's.
pub fn home_options(place: &Place, operator: OperatorChoice) -> Options {
    Options { listen: place.listen, range: place.range, operator }
}

/// The version of the default cluster: the newest that is both installed and supported.
pub fn newest_version() -> Result<String, StartError> {
    let found = installation::find_all();
    let is_installed = |major: &str| found.iter().any(|installation| installation.major == major);
    let newest = SUPPORTED.iter().rev().find(|supported| is_installed(supported.major));
    newest.map(|supported| supported.major.to_owned()).ok_or_else(|| {
        let list = |majors: Vec<&str>| if majors.is_empty() { "none".to_owned() } else { majors.join(", ") };
        StartError::NoPostgres {
            supported: list(SUPPORTED.iter().map(|supported| supported.major).collect()),
            found: list(found.iter().map(|installation| installation.major.as_str()).collect()),
        }
    })
}

/// Applies what was asked for. A directory that has clusters already keeps them as they are, unless told otherwise.
async fn apply(home: &Home, options: &Up, given: Vec<Manifest>) -> Result<usize, StartError> {
    let existing = Api::<PostgresCluster>::all(home.client.clone()).list(&Default::default()).await?.items.len();
    let asked = options.name.is_some() || options.postgres_version.is_some() || options.replicas.is_some();
    let manifests = match (given.is_empty(), options.no_cluster) {
        (false, _) => given,
        (true, true) => vec![],
        (true, false) if existing > 0 && !asked => vec![],
        (true, false) => {
            let name = options.name.as_deref().unwrap_or(DEFAULT_NAME);
            let version = options.postgres_version.clone().map_or_else(newest_version, Ok)?;
            vec![manifest::default_cluster(name, &version, options.replicas.unwrap_or(DEFAULT_REPLICAS))]
        }
    };
    for manifest in &manifests {
        let applied = manifest::apply(&home.client, manifest).await?;
        let kind = applied.types.as_ref().map_or("object", |types| types.kind.as_str());
        output::line(&format!("applied {kind} {}", applied.metadata.name.as_deref().unwrap_or_default()));
    }
    Ok(Api::<PostgresCluster>::all(home.client.clone()).list(&Default::default()).await?.items.len())
}

/// Shows what happens until somebody asks us to stop.
async fn stay(home: &Home, options: &Up, clusters: usize, began: Instant) -> Exit {
    let scene = Scene::of(&home.client).await;
    if clusters > 0 {
        let deadline = options.wait_ready.map(Duration::from_secs);
        let all_ready = within(deadline, live::show(&scene, began, Until::AllReady));
        let views = tokio::select! {
            views = all_ready => views,
            () = output::signal() => return Exit::Ok,
        };
        match views {
            Some(views) => {
                introduce(home, &views).await;
                output::line(&next_steps(home, &views));
            }
            None => {
                output::error(&format!("not Ready within {} s", options.wait_ready.unwrap_or_default()));
                return Exit::NotReady;
            }
        }
    }
    if clusters == 0 {
        output::line(&next_steps(home, &[]));
    }
    tokio::select! {
        _ = live::show(&scene, began, Until::Forever) => {}
        () = output::signal() => {}
    }
    Exit::Ok
}

async fn within<T>(deadline: Option<Duration>, future: impl Future<Output = T>) -> Option<T> {
    match deadline {
        Some(deadline) => tokio::time::timeout(deadline, future).await.ok(),
        None => Some(future.await),
    }
}

/// How to connect to each cluster.
async fn introduce(home: &Home, views: &[ClusterView]) {
    for view in views {
        let connection = Connection::of(&home.client, home.directory().root(), &view.namespace, &view.name).await;
        let command = match &connection {
            Ok(connection) => {
                let target = connection.service(&home.client, &Names::of(&view.name).rw()).await;
                target.map(|target| connection.psql(&target)).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        let name = paint(&format!("{}/{}", view.namespace, view.name), Tone::Strong);
        match command {
            Ok(command) => output::line(&format!("{name} is {}. Connect:\n  {command}", paint("Ready", Tone::Good))),
            Err(problem) => output::error(&format!("{name} is Ready, but how to connect could not be told: {problem}")),
        }
    }
}

fn next_steps(home: &Home, views: &[ClusterView]) -> String {
    let name = views.first().map_or(DEFAULT_NAME, |view| view.name.as_str());
    let kubeconfig = home.directory().kubeconfig().display().to_string();
    let heading = |text: &str| paint(text, Tone::Strong);
    format!(
        "\n{}\n  export KUBECONFIG={kubeconfig}\n\n{}\n  kubectl get pgc -w                              follow the clusters\n  \
         kubectl get pods -L bellwether.dev/role         who leads, who follows\n  \
         kubectl scale pgc/{name} --replicas 4             one more standby\n  \
         kubectl delete pod {name}-2                       it comes back with its data\n  \
         kubectl logs {name}-1 -f                          PostgreSQL's log\n  \
         kubectl explain pgc.spec                        everything that can be set\n\nCtrl-C stops everything in order.\n",
        heading("kubectl finds it with:"),
        heading("Try next:")
    )
}

/// Stops the home and shows how far it is. A second signal hurries.
pub async fn stop(home: Home) {
    let hurry = CancellationToken::new();
    let impatient = hurry.clone();
    let watching = tokio::spawn(async move {
        output::signal().await;
        output::line("hurrying: stopping everything at once");
        impatient.cancel();
    });
    home.stop(hurry, say).await;
    watching.abort();
}

/// A step in words.
pub fn say(step: Step) {
    let text = match step {
        Step::LeftoversStopped(count) => format!("stopped {count} processes that an earlier run left behind"),
        Step::ApiAnswers(address) => format!("the API answers on https://{address}"),
        Step::NodesReady => "three nodes are ready for pods".to_owned(),
        Step::OperatorRuns => "the operator runs".to_owned(),
        Step::OperatorLeftOut(kubeconfig) => {
            format!("no operator runs; start one: KUBECONFIG={} bellwether operator", kubeconfig.display())
        }
        Step::OperatorStopped => "stopping: the operator has stopped".to_owned(),
        Step::StoppingPods => "stopping: PostgreSQL, standbys first".to_owned(),
        Step::PodsStopped => "stopping: every PostgreSQL has shut down".to_owned(),
        Step::ApiStopped => "stopped".to_owned(),
    };
    output::line(&paint(&text, Tone::Faint));
}
