//! Which server the suite talks to: the one that a kubeconfig names, or our own, started in this process.

use std::fmt;
use std::sync::Arc;

use bellwether_apiserver::http::{Running, Server, ServerConfig};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::runner::Need;

const KUBECONFIG: &str = "BELLWETHER_CONFORMANCE_KUBECONFIG";
const CONTROLLERS: &str = "BELLWETHER_CONFORMANCE_CONTROLLERS";
/// How many changes our server keeps here: enough that no case beside the one that outruns it notices.
const HISTORY: usize = 1_000;

/// The way to the server, as its administrator.
pub struct Access {
    pub client: Client,
    pub config: Config,
    /// Tells the names of one run from those of another.
    pub run: String,
    /// Whether it is a server that somebody else started.
    pub remote: bool,
    /// Whether something collects garbage and ends namespaces there.
    pub controllers: bool,
    /// Whether its storage reports progress to watches.
    pub watch_progress: bool,
}

/// A server under test.
pub struct TestServer {
    access: Arc<Access>,
    description: String,
    /// Ours, while it runs.
    running: Option<Running>,
}

/// Why a case can't run on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    Controllers,
    WatchProgress,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Missing::Controllers => "needs controllers",
            Missing::WatchProgress => "needs storage that reports watch progress",
        })
    }
}

impl TestServer {
    pub async fn start() -> Self {
        match std::env::var(KUBECONFIG) {
            Ok(path) => Self::connect_to(&path).await,
            Err(_) => Self::start_ours().await,
        }
    }

    async fn connect_to(path: &str) -> Self {
        let kubeconfig = Kubeconfig::read_from(path).unwrap_or_else(|error| panic!("{KUBECONFIG}={path}: {error}"));
        let controllers = std::env::var(CONTROLLERS).is_ok_and(|value| value == "1");
        let access = connect(kubeconfig, true, controllers).await;
        let version = access.client.apiserver_version().await.unwrap_or_else(|error| panic!("{path}: {error}"));
        let description = format!("{} ({})", access.config.cluster_url, version.git_version);
        Self { access: Arc::new(access), description, running: None }
    }

    async fn start_ours() -> Self {
        let running =
            Server::start(ServerConfig::in_memory()).await.unwrap_or_else(|error| panic!("our server: {error}"));
        let shared = running.shared();
        let shorten = shared.write(|store| {
            store.set_history_window(HISTORY);
            Ok(())
        });
        shorten.await.unwrap_or_else(|error| panic!("our server: {error}"));
        let kubeconfig = running.admin_kubeconfig().unwrap_or_else(|error| panic!("our server's kubeconfig: {error}"));
        let kubeconfig = Kubeconfig::from_yaml(&kubeconfig).expect("our server writes kubeconfigs that can be read");
        let access = connect(kubeconfig, false, true).await;
        Self { access: Arc::new(access), description: "our in-memory server".to_owned(), running: Some(running) }
    }

    pub fn access(&self) -> Arc<Access> {
        self.access.clone()
    }

    pub fn description(&self) -> String {
        self.description.clone()
    }

    /// Whether a case that needs this can run here.
    pub fn offers(&self, need: Need) -> Result<(), Missing> {
        match need {
            Need::Controllers if !self.access.controllers => Err(Missing::Controllers),
            Need::WatchProgress if !self.access.watch_progress => Err(Missing::WatchProgress),
            Need::Nothing | Need::Controllers | Need::WatchProgress => Ok(()),
        }
    }

    pub async fn stop(self) {
        let Self { access, running, .. } = self;
        drop(access);
        if let Some(running) = running {
            running.shutdown().await;
        }
    }
}

async fn connect(kubeconfig: Kubeconfig, remote: bool, controllers: bool) -> Access {
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap_or_else(|error| panic!("the kubeconfig can't be used: {error}"));
    // Every refusal must be seen, a 429 included.
    config.default_retry = false;
    let client = Client::try_from(config.clone()).expect("a client from the kubeconfig");
    let run = uuid::Uuid::new_v4().simple().to_string()[..8].to_owned();
    let watch_progress = !remote || reports_watch_progress(&client).await;
    Access { client, config, run, remote, controllers, watch_progress }
}

/// A kube-apiserver on an old etcd answers a streamed initial list with this one error.
async fn reports_watch_progress(client: &Client) -> bool {
    let uri = "/api/v1/namespaces?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
               &allowWatchBookmarks=true&timeoutSeconds=1";
    let request = http::Request::get(uri).body(vec![]).expect("a well-formed request");
    let answer = client.request_text(request).await.unwrap_or_else(|error| panic!("GET {uri}: {error}"));
    !answer.contains("RequestWatchProgress is disabled")
}
