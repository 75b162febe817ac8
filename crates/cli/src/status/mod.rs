//! `bellwether status`: how a cluster is, by the word of its agents, and by the operator's where they can't be asked.
//!
//! Reads and asks, and changes nothing. The exit code says whether it is Ready.

pub mod page;
pub mod report;
pub mod tell;
#[cfg(test)]
pub mod tests;

use std::collections::BTreeMap;

use bellwether_api::v1::PostgresCluster;
use bellwether_core::object::Kind;
use bellwether_operator::look::{Look, look};
use bellwether_operator::port::CallError;
use bellwether_runtime::watch::Key;
use futures::StreamExt as _;
use futures::stream;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use std::process::ExitCode;

use crate::args::{Format, Status};
use crate::ask::{self, Answer};
use crate::cluster::{ClusterError, Space, concluded};
use crate::exit::Exit;
use crate::output::page::Screen;
use crate::why::Case;
use report::{ClusterReport, InstanceReport, ListReport, VERSION};

/// What is looked at.
const KINDS: [Kind; 2] = [Kind::Pod, Kind::Lease];
/// Clusters that are looked at at once: each asks some agents at the same time.
const AT_ONCE: usize = 8;

/// Why nothing can be said.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The cluster can't be had.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// It can't be read.
    #[error("{0}")]
    Call(#[from] CallError),
    /// It can't be printed.
    #[error("as YAML: {0}")]
    Yaml(String),
}

/// What was seen of a cluster.
pub struct View {
    /// By the API.
    pub look: Look,
    /// By the agents.
    pub answers: BTreeMap<String, Answer>,
    /// The cluster itself.
    pub cluster: PostgresCluster,
}

impl View {
    /// Looks at it, and asks its agents.
    pub async fn of(client: &Client, key: &Key, kinds: &[Kind]) -> Result<Option<Self>, Refused> {
        let look = look(client, key, kinds).await?;
        let Some(cluster) = look.observed.cluster.known().cloned() else { return Ok(None) };
        let answers = ask::all(client, &key.namespace, &key.name, look.observed.pods.items.values()).await;
        Ok(Some(Self { look, answers, cluster }))
    }

    /// What was seen of one instance.
    pub fn case<'a>(&'a self, report: &'a ClusterReport, instance: &'a InstanceReport) -> Case<'a> {
        let pod = self.look.observed.pods.items.get(&instance.name);
        Case { report, instance, pod, answer: self.answers.get(&instance.name), at: self.look.at }
    }

    /// What there is to say of it.
    pub fn report(&self) -> ClusterReport {
        let lease = self.look.object(Kind::Lease, &self.look.observed.names.lease());
        tell::tell(tell::Seen {
            at: self.look.at,
            cluster: &self.cluster,
            observed: &self.look.observed,
            lease: lease.as_deref(),
            unseen: &self.look.unseen,
            answers: &self.answers,
        })
    }
}

/// Runs it.
pub fn run(options: &Status) -> ExitCode {
    concluded(status(options))
}

async fn status(options: &Status) -> Result<(String, Exit), Refused> {
    let space = Space::at(&options.place).await?;
    let screen = Screen::here();
    if let Some(name) = &options.cluster {
        let key = Key { namespace: space.namespace.clone(), name: name.clone() };
        let missing = || ClusterError::NoCluster { cluster: name.clone(), namespace: space.namespace.clone() };
        let view = View::of(&space.client, &key, &KINDS).await?.ok_or_else(missing)?;
        let report = view.report();
        let said = match options.output {
            None => page::page(screen, &report),
            Some(format) => written(format, &report)?,
        };
        return Ok((said, exit(std::slice::from_ref(&report))));
    }
    let items = everywhere(&space, options.all_namespaces).await?;
    let code = exit(&items);
    let place =
        if options.all_namespaces { "any namespace".to_owned() } else { format!("namespace {}", space.namespace) };
    let report = ListReport { kind: "ClusterStatusList", version: VERSION, items };
    let said = match options.output {
        None if report.items.is_empty() => format!("there is no cluster in {place}"),
        None => page::list(screen, &report),
        Some(format) => written(format, &report)?,
    };
    Ok((said, code))
}

async fn everywhere(space: &Space, all: bool) -> Result<Vec<ClusterReport>, Refused> {
    let api: Api<PostgresCluster> = if all { Api::all(space.client.clone()) } else { space.clusters.clone() };
    let mut listed = api.list(&ListParams::default()).await.map_err(ClusterError::from)?.items;
    listed.sort_by_key(|cluster| (cluster.namespace(), cluster.name_any()));
    let keys = listed
        .iter()
        .map(|cluster| Key { namespace: cluster.namespace().unwrap_or_default(), name: cluster.name_any() });
    let looks = keys.map(async |key: Key| View::of(&space.client, &key, &KINDS).await);
    let views: Vec<_> = stream::iter(looks).buffered(AT_ONCE).collect().await;
    // One that is gone by now is in no list.
    let views: Vec<_> = views.into_iter().collect::<Result<_, _>>()?;
    Ok(views.into_iter().flatten().map(|view| view.report()).collect())
}

fn exit(reports: &[ClusterReport]) -> Exit {
    if reports.iter().all(|report| report.ready.ready) { Exit::Ok } else { Exit::NotReady }
}

/// As a document for programs.
pub fn written(format: Format, report: &impl serde::Serialize) -> Result<String, Refused> {
    match format {
        Format::Json => serde_json::to_string_pretty(report).map_err(|error| Refused::Yaml(error.to_string())),
        Format::Yaml => {
            let text = serde_saphyr::to_string(report).map_err(|error| Refused::Yaml(error.to_string()))?;
            Ok(text.trim_end().to_owned())
        }
    }
}
