//! The Kubernetes under test: our own three-node one, or any other that `KUBECONFIG` names.
//!
//! On another's cluster nothing may be assumed but kubectl: what needs the machine underneath (its audit log, its nodes' processes,
//! images put on nodes) is skipped there, by name. Never: a write outside namespaces that this program made, the operator's own objects
//! apart.

use std::path::PathBuf;
use std::time::Duration;

use harness::Layout;
use harness::command::Run;
use serde_json::Value;

use crate::failure::{Failure, Outcome};

/// How long a kubectl command may take unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whose cluster it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// That of `make cluster-up`, on this machine.
    Harness,
    /// Another, reached through the API only.
    Foreign,
}

/// The images that are tested.
#[derive(Debug, Clone)]
pub struct Images {
    /// The operator's.
    pub operator: String,
    /// The same under another name: what an upgrade changes to.
    pub next: Option<String>,
    /// PostgreSQL's; the operator's default when there is none.
    pub postgres: Option<String>,
    /// The major version in it.
    pub version: String,
}

/// The cluster, and how it is talked to.
#[derive(Debug, Clone)]
pub struct Target {
    /// Where programs are.
    pub layout: Layout,
    /// Whose it is.
    pub home: Home,
    /// Who we are.
    pub kubeconfig: PathBuf,
    /// What is tested.
    pub images: Images,
    /// The program that people run where they sit.
    pub program: PathBuf,
    /// The Helm that installs the chart.
    pub helm: PathBuf,
    /// The probe as one static program, to be copied into a pod.
    pub probe: Option<PathBuf>,
    /// The checkout, which holds what users install.
    pub sources: PathBuf,
}

impl Target {
    /// A kubectl command.
    pub fn kubectl<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Run {
        // The one that the harness built fits its cluster; on a machine without it there is the user's own.
        let built = self.layout.program("kubectl");
        let program = if built.exists() { built } else { PathBuf::from("kubectl") };
        Run::new(program, arguments).env("KUBECONFIG", &self.kubeconfig).within(PATIENCE)
    }

    /// Our own program, as people run it.
    pub fn bellwether<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Run {
        Run::new(self.program.clone(), arguments).env("KUBECONFIG", &self.kubeconfig).within(PATIENCE)
    }

    /// What `kubectl get … -o json` prints.
    pub fn get<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Outcome<Value> {
        let text = self.kubectl(["get", "-o", "json"].into_iter().chain(arguments)).output()?;
        serde_json::from_str(&text).map_err(|error| Failure::Wrong(format!("kubectl get printed no JSON: {error}")))
    }

    /// The items of a list.
    pub fn list<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Outcome<Vec<Value>> {
        Ok(self.get(arguments)?["items"].as_array().cloned().unwrap_or_default())
    }

    /// Applies an object.
    pub fn apply(&self, object: &Value) -> Outcome {
        Ok(self.kubectl(["apply", "-f", "-"]).input(object.to_string()).go()?)
    }

    /// The names of nodes that pods can be placed on.
    pub fn open_nodes(&self) -> Outcome<Vec<String>> {
        let nodes = self.list(["nodes"])?;
        let open = nodes.iter().filter(|node| node["spec"]["unschedulable"] != true);
        Ok(open.filter_map(|node| node["metadata"]["name"].as_str().map(str::to_owned)).collect())
    }
}
