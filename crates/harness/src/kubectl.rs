//! Asking the cluster with its own kubectl, as the administrator.

use std::time::Duration;

use serde_json::Value;

use crate::command::Run;
use crate::layout::kubeconfig;
use crate::{Error, Layout};

/// A kubectl command, with a minute to finish.
pub fn kubectl<'a>(layout: &Layout, arguments: impl IntoIterator<Item = &'a str>) -> Run {
    let config = format!("--kubeconfig={}", kubeconfig().display());
    let all = std::iter::once(config).chain(arguments.into_iter().map(str::to_owned));
    Run::new(layout.program("kubectl"), all).within(Duration::from_secs(60))
}

/// What `kubectl get … -o json` prints.
pub fn get<'a>(layout: &Layout, arguments: impl IntoIterator<Item = &'a str>) -> Result<Value, Error> {
    let text = kubectl(layout, ["get", "-o", "json"].into_iter().chain(arguments)).output()?;
    serde_json::from_str(&text).map_err(|error| Error::Refused(format!("kubectl get printed no JSON: {error}")))
}

/// Applies a manifest.
pub fn apply(layout: &Layout, manifest: &str) -> Result<(), Error> {
    kubectl(layout, ["apply", "-f", "-"]).input(manifest).go()
}

/// Names of nodes that report Ready.
pub fn ready_nodes(layout: &Layout) -> Result<Vec<String>, Error> {
    let nodes = get(layout, ["nodes"])?;
    let ready = |node: &&Value| {
        let conditions = node["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
    };
    let items = nodes["items"].as_array();
    Ok(items
        .into_iter()
        .flatten()
        .filter(ready)
        .filter_map(|node| node["metadata"]["name"].as_str().map(str::to_owned))
        .collect())
}
