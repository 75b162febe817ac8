//! Faults inside one pod, and taking a node out of service.

use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::command::until;
use crate::kubectl::{get, kubectl};
use crate::layout::{Node, Place};
use crate::process::start_time;
use crate::{Error, Layout, cgroup};

/// A pod or claim as people write it: `namespace/name`, or a name in `default`.
#[derive(Debug, Clone)]
pub struct ObjectName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl std::str::FromStr for ObjectName {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<ObjectName, Self::Err> {
        let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
        Ok(ObjectName { namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

impl std::fmt::Display for ObjectName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A process in a container, seen from the host.
#[derive(Debug)]
pub struct Process {
    /// Its number on the host.
    pub pid: i32,
    /// Whether it is the container's PID 1.
    pub first: bool,
    /// Its command line.
    pub command: String,
}

impl Process {
    /// The memory that is its own, with its share of what it shares (PSS), in bytes.
    pub fn memory(&self) -> Option<u64> {
        let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid)).ok()?;
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
    }
}

/// Kills PID 1 of a container (the pod's first unless named), and waits until it is gone.
pub fn kill_container(layout: &Layout, pod: &ObjectName, container: Option<&str>) -> Result<(), Error> {
    let processes = processes(layout, pod, container)?;
    let first = processes.iter().find(|process| process.first);
    let first = first.ok_or_else(|| Error::Refused(format!("no process of pod {pod} is PID 1")))?;
    send(first.pid, Signal::SIGKILL)?;
    gone(first.pid)
}

/// Sends a signal to the one process of a container whose command line contains `pattern`: SIGKILL ends it, SIGSTOP
/// freezes it, SIGCONT thaws it.
pub fn signal_process(
    layout: &Layout,
    pod: &ObjectName,
    container: Option<&str>,
    pattern: &str,
    signal: Signal,
) -> Result<(), Error> {
    let processes = processes(layout, pod, container)?;
    let matching: Vec<&Process> = processes.iter().filter(|process| process.command.contains(pattern)).collect();
    let [one] = matching.as_slice() else {
        let all: Vec<&str> = processes.iter().map(|process| process.command.as_str()).collect();
        return Err(Error::Refused(format!(
            "{} processes of pod {pod} match {pattern:?}, one is needed; there are:\n  {}",
            matching.len(),
            all.join("\n  ")
        )));
    };
    send(one.pid, signal)?;
    if signal == Signal::SIGKILL { gone(one.pid) } else { Ok(()) }
}

fn send(pid: i32, signal: Signal) -> Result<(), Error> {
    kill(Pid::from_raw(pid), signal)
        .map_err(|errno| Error::Refused(format!("process {pid} can't be sent {signal}: {errno}")))
}

fn gone(pid: i32) -> Result<(), Error> {
    until(&format!("process {pid} to end"), Duration::from_secs(20), || {
        Ok(if start_time(pid).is_some() { Err("it is there".into()) } else { Ok(()) })
    })
}

/// The processes of a running container (the pod's first unless named), by its cgroup.
pub fn processes(layout: &Layout, pod: &ObjectName, container: Option<&str>) -> Result<Vec<Process>, Error> {
    let object = get(layout, ["pod", "-n", &pod.namespace, &pod.name])?;
    let node: Node = object["spec"]["nodeName"].as_str().unwrap_or_default().parse().map_err(Error::Refused)?;
    let id = container_id(&object, container).ok_or_else(|| {
        Error::Refused(format!("pod {pod} has no running container {}", container.unwrap_or("at all")))
    })?;
    let pids = cgroup::processes(&format!("{}/{id}", Place::Node(node).cgroup()));
    Ok(pids.into_iter().filter_map(describe).collect())
}

fn container_id(pod: &Value, container: Option<&str>) -> Option<String> {
    let name = container.or_else(|| pod["spec"]["containers"][0]["name"].as_str())?;
    let statuses = ["containerStatuses", "initContainerStatuses"].map(|list| pod["status"][list].as_array());
    let status = statuses.into_iter().flatten().flatten().find(|status| status["name"] == name)?;
    status["state"].get("running")?;
    status["containerID"].as_str()?.strip_prefix("containerd://").map(str::to_owned)
}

fn describe(pid: i32) -> Option<Process> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let inner = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?.replace('\0', " ");
    Some(Process { pid, first: inner.split_whitespace().last() == Some("1"), command: command.trim().to_owned() })
}

/// Evicts every pod of a node and keeps new ones away, as an administrator does before maintenance.
pub fn drain(layout: &Layout, node: Node, patience: Duration) -> Result<(), Error> {
    let node = node.to_string();
    let timeout = format!("--timeout={}s", patience.as_secs());
    kubectl(layout, ["drain", &node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", &timeout])
        .within(patience + Duration::from_secs(10))
        .go()
}

/// Puts a drained node back into service.
pub fn uncordon(layout: &Layout, node: Node) -> Result<(), Error> {
    kubectl(layout, ["uncordon", &node.to_string()]).go()
}
