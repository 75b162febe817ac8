//! What is kept of a scenario that failed: everything a person would ask for, in one directory.

use std::fs;
use std::path::{Path, PathBuf};

use harness::command::Run;

use crate::install::NAMESPACE;
use crate::target::Target;

/// Lines of each log.
const LINES: &str = "--tail=2000";

/// Writes objects, descriptions, events and logs of these namespaces and of the operator below `directory`; gives that back.
///
/// It never fails: half of the evidence is better than none, and the scenario's own failure is what is reported.
pub fn collect(target: &Target, directory: &Path, scenario: &str, namespaces: &[String]) -> PathBuf {
    let directory = directory.join(scenario.replace(' ', "-"));
    let _ = fs::remove_dir_all(&directory);
    let _ = fs::create_dir_all(&directory);
    let keep = |file: &str, run: Run| {
        let text = run.output().unwrap_or_else(|error| error.to_string());
        let _ = fs::write(directory.join(file), text);
    };
    keep("nodes.txt", target.kubectl(["describe", "nodes"]));
    for namespace in namespaces.iter().map(String::as_str).chain([NAMESPACE]) {
        let of = |what: &[&str]| target.kubectl(["-n", namespace].into_iter().chain(what.iter().copied()));
        let everything =
            "postgresclusters,pods,pvc,services,endpointslices,leases,configmaps,roles,pdb,quota,deployments";
        keep(&format!("{namespace}.yaml"), of(&["get", everything, "-o", "yaml"]));
        keep(&format!("{namespace}.describe.txt"), of(&["describe", "postgresclusters,pods,pvc"]));
        keep(&format!("{namespace}.events.txt"), of(&["get", "events", "--sort-by=.lastTimestamp"]));
        for pod in names(target, namespace) {
            keep(&format!("{namespace}.{pod}.log"), of(&["logs", &pod, "--all-containers", "--prefix", LINES]));
            keep(&format!("{namespace}.{pod}.previous.log"), of(&["logs", &pod, "--all-containers", "-p", LINES]));
        }
    }
    directory
}

fn names(target: &Target, namespace: &str) -> Vec<String> {
    let printed = target.kubectl(["-n", namespace, "get", "pods", "-o", "name"]).output().unwrap_or_default();
    printed.lines().filter_map(|line| line.strip_prefix("pod/").map(str::to_owned)).collect()
}
