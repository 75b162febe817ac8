//! `bellwether try`: a cluster on this machine, and named checks that it does what we promise.
//!
//! Each check is a question with a yes or a no and what was measured; the first no ends the trial, because what follows would only
//! repeat it. Never: a trial that passes although a check was left out.

mod failover;
mod replication;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use bellwether_api::v1::PostgresCluster;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use serde::Serialize;

use crate::connection::{Connection, ConnectionError, Target};
use crate::mirror::Mirror;
use crate::view::ClusterView;

/// How long a session may take to come up, in a cluster that says it is ready.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// The questions, in the order they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// Every instance is ready within the deadline.
    Ready,
    /// The read-write Service answers over TLS as the application's user, and takes rows.
    Write,
    /// Each standby has these rows, asked at its own address and through the read-only Service.
    Read,
    /// How long a committed row takes to be seen on each standby.
    ReplicationLag,
    /// The primary's postmaster is killed under a client that writes: writes go on, and nothing acknowledged is lost.
    Failover,
    /// Everything stops, and no process is left.
    CleanStop,
}

impl Check {
    /// All of them: a trial passes when each was asked and answered with yes.
    pub const ALL: [Self; 6] =
        [Self::Ready, Self::Write, Self::Read, Self::ReplicationLag, Self::Failover, Self::CleanStop];

    /// The question in words.
    pub fn question(self) -> &'static str {
        match self {
            Self::Ready => "every instance becomes ready",
            Self::Write => "rows are written through the read-write Service, over TLS, as the application's user",
            Self::Read => "every standby has these rows, at its own address and through the read-only Service",
            Self::ReplicationLag => "a committed row is soon seen on every standby",
            Self::Failover => "the primary is killed under load: writes go on, and no acknowledged row is lost",
            Self::CleanStop => "everything stops, and no process is left",
        }
    }
}

/// The answer to a check.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// Which.
    pub check: Check,
    /// Whether it holds.
    pub passed: bool,
    /// What was seen, in words.
    pub seen: String,
}

/// What was measured.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// From applying the manifest to Ready.
    pub apply_to_ready_seconds: Option<f64>,
    /// Rows written.
    pub rows: u32,
    /// From commit to visible, on each standby.
    pub replication: Vec<Lag>,
    /// What happened when the primary was killed.
    pub failover: Option<Failover>,
}

/// A failover.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failover {
    /// Who led.
    pub from: String,
    /// Who leads: another, or the same started again in place, where no standby was known to have everything in time.
    pub to: String,
    /// The longest time between two acknowledged rows of one client.
    pub gap_seconds: f64,
}

/// How far a standby is behind: from the primary's answer to a commit to the row being visible.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lag {
    /// The standby.
    pub instance: String,
    /// How often it was measured.
    pub samples: usize,
    /// Half of them were at most this.
    pub p50_milliseconds: f64,
    /// None was more than this.
    pub max_milliseconds: f64,
}

/// A trial on a running home.
pub struct Trial {
    /// May do everything in the home's API.
    pub client: Client,
    /// Where files for connecting go.
    pub directory: std::path::PathBuf,
    /// The cluster's namespace.
    pub namespace: String,
    /// The cluster's name.
    pub cluster: String,
    /// When it was applied.
    pub applied: Instant,
    /// How long it may take to become ready.
    pub deadline: Duration,
}

/// Why a check does not hold.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// No connection, or no answer.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The API said no.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// It isn't as promised.
    #[error("{0}")]
    Broken(String),
}

impl Trial {
    /// Asks every question but the last ([`Check::CleanStop`], which is the caller's), telling each answer at once. Stops at the first no.
    pub async fn run(&self, figures: &mut Figures, mut tell: impl FnMut(Answer)) -> bool {
        let mut ask = |check, result: Result<String, TrialError>| {
            let passed = result.is_ok();
            tell(Answer { check, passed, seen: result.unwrap_or_else(|error| error.to_string()) });
            passed
        };
        let view = self.until_ready().await;
        if let Ok((_, seconds)) = &view {
            figures.apply_to_ready_seconds = Some(*seconds);
        }
        let seen =
            view.as_ref().map(|(view, seconds)| format!("{} instances after {seconds:.1} s", view.instances.len()));
        if !ask(Check::Ready, seen.map_err(|error| TrialError::Broken(error.to_string()))) {
            return false;
        }
        let Ok((view, _)) = view else { return false };
        let written = self.write(figures).await;
        if !ask(Check::Write, written) {
            return false;
        }
        let read = self.read(&view, figures.rows).await;
        if !ask(Check::Read, read) {
            return false;
        }
        let lag = self.lag(&view).await;
        if let Ok(lag) = &lag {
            figures.replication.clone_from(lag);
        }
        if !ask(Check::ReplicationLag, lag.map(|lag| in_words(&lag))) {
            return false;
        }
        // One instance alone starts again in place; there is nobody to take over.
        if view.instances.len() < 2 {
            return ask(Check::Failover, Ok("there is no standby".to_owned()));
        }
        let failover = self.failover(&view).await;
        if let Ok((failover, _)) = &failover {
            figures.failover = Some(failover.clone());
        }
        ask(Check::Failover, failover.map(|(_, seen)| seen))
    }

    async fn until_ready(&self) -> Result<(ClusterView, f64), TrialError> {
        let api: Api<PostgresCluster> = Api::namespaced(self.client.clone(), &self.namespace);
        let clusters = Mirror::start(api).await;
        let mut ticks = clusters.ticks();
        let end = tokio::time::Instant::from_std(self.applied + self.deadline);
        loop {
            let view = clusters.get(&self.namespace, &self.cluster).map(|cluster| ClusterView::of(&cluster));
            if let Some(view) = view.clone().filter(|view| view.ready) {
                return Ok((view, self.applied.elapsed().as_secs_f64()));
            }
            if tokio::time::timeout_at(end, ticks.changed()).await.is_err() {
                let waiting =
                    view.and_then(|view| view.waiting_on).unwrap_or_else(|| "nothing that status names".to_owned());
                let problem = format!("not ready within {:?}; it waits on: {waiting}", self.deadline);
                return Err(TrialError::Broken(problem));
            }
        }
    }

    async fn connection(&self) -> Result<Connection, ConnectionError> {
        Connection::of(&self.client, &self.directory, &self.namespace, &self.cluster).await
    }

    /// The address of an instance, from its pod.
    async fn instance(&self, connection: &Connection, name: &str) -> Result<Target, TrialError> {
        let pod = Api::<Pod>::namespaced(self.client.clone(), &self.namespace).get(name).await?;
        let address: Option<IpAddr> = pod.status.and_then(|status| status.pod_ip?.parse().ok());
        let missing = || TrialError::Broken(format!("the pod {name:?} has no address"));
        Ok(connection.instance(name, address.ok_or_else(missing)?))
    }
}

fn in_words(lags: &[Lag]) -> String {
    let each = lags.iter().map(|lag| {
        format!(
            "{}: p50 {:.1} ms, max {:.1} ms ({} rows)",
            lag.instance, lag.p50_milliseconds, lag.max_milliseconds, lag.samples
        )
    });
    each.collect::<Vec<_>>().join("; ")
}
