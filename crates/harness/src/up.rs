//! Bringing the cluster up: what is missing is installed and built, then everything is started in order.
//!
//! Never: two clusters, or a start on top of the remains of another. What a crashed start left is removed first.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use crate::command::until;
use crate::control_plane::{self, PATIENCE};
use crate::layout::{KUBERNETES, Node, STATE, kubeconfig, state};
use crate::process::Started;
use crate::{Error, Layout, down, images, inventory, kubectl, network, node, pki, programs};

/// What `up` found or did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was there, complete.
    AlreadyRunning,
    /// It was started.
    Started,
}

/// Written last.
fn complete() -> std::path::PathBuf {
    state("complete")
}

/// Whether a cluster is up: all of it was started, and all of it still runs.
pub fn is_running() -> bool {
    let started = Started::all();
    complete().exists() && !started.is_empty() && missing().is_empty()
}

/// Components that were started and have ended.
pub fn missing() -> Vec<String> {
    let ended = Started::all().into_iter().filter(|started| !started.is_alive());
    // Helpers that run for a while only.
    let temporary = ["containerd-unpack", crate::fault::SLOW_ETCD];
    ended.map(|started| started.component.name).filter(|name| !temporary.contains(&name.as_str())).collect()
}

/// Brings the cluster up unless it is up. `binary` is the `harness` program, part of which runs as a component of the
/// cluster; `say` gets a line for each step.
pub fn up(layout: &Layout, binary: &Path, say: &dyn Fn(&str)) -> Result<Outcome, Error> {
    if !nix::unistd::Uid::effective().is_root() {
        return Err(Error::Refused("network namespaces and containers need root: run it as root".into()));
    }
    fs::create_dir_all(&layout.cache).map_err(Error::file(&layout.cache))?;
    let _lock = lock(layout)?;
    if is_running() {
        return Ok(Outcome::AlreadyRunning);
    }
    if fs::exists(STATE).unwrap_or(true) || !crate::cgroup::remaining().is_empty() {
        say("removing what an earlier cluster left");
        down::down_unlocked()?;
    }
    programs::prepare(layout, say)?;

    // First of all what `down` must know to put things back.
    fs::create_dir_all(STATE).map_err(Error::file(STATE.as_ref()))?;
    inventory::record_before()?;
    network::create()?;
    let images = images::prepare(layout, say)?;
    install_binary(binary)?;
    pki::create()?;
    control_plane::write_audit_policy()?;
    say(&format!("starting Kubernetes {KUBERNETES}"));
    control_plane::start(layout)?;
    start_nodes(layout, &images)?;
    wait_for_nodes(layout)?;
    control_plane::wait()?;
    fs::write(complete(), "").map_err(Error::file(&complete()))?;
    say(&format!("three nodes are Ready; KUBECONFIG={}", kubeconfig().display()));
    Ok(Outcome::Started)
}

/// One `up` or `down` at a time; the kernel lets go of the lock when its holder dies.
pub(crate) fn lock(layout: &Layout) -> Result<fs::File, Error> {
    let path = layout.cache.join("harness.lock");
    let file = fs::File::options().create(true).truncate(false).write(true).open(&path).map_err(Error::file(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(Error::Refused("another `harness up` or `down` is at work".into())),
        Err(fs::TryLockError::Error(source)) => Err(Error::File { path, source }),
    }
}

/// A copy: the next build would replace the program under a running process.
fn install_binary(binary: &Path) -> Result<(), Error> {
    let directory = state("bin");
    fs::create_dir_all(&directory).map_err(Error::file(&directory))?;
    let copy = directory.join("harness");
    fs::copy(binary, &copy).map_err(Error::file(binary))?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).map_err(Error::file(&copy))
}

fn start_nodes(layout: &Layout, images: &images::Prepared) -> Result<(), Error> {
    std::thread::scope(|scope| {
        let starting = Node::ALL.map(|node| scope.spawn(move || node::start(layout, node, images)));
        let ended = starting
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(Error::Refused("starting a node panicked".into()))));
        ended.collect()
    })
}

fn wait_for_nodes(layout: &Layout) -> Result<(), Error> {
    for node in Node::ALL {
        let kubelet = Started::named(&format!("kubelet-{node}"))?;
        kubelet.ready_when(PATIENCE, || match kubectl::ready_nodes(layout) {
            Ok(ready) if ready.contains(&node.to_string()) => Ok(()),
            Ok(ready) => Err(format!("nodes that are Ready: {ready:?}")),
            Err(error) => Err(error.to_string()),
        })?;
    }
    // Pods need it: created by a controller in each namespace, a moment after it started.
    until("the default service account", Duration::from_secs(60), || {
        let asked = kubectl::get(layout, ["serviceaccount", "default"]);
        Ok(asked.map(drop).map_err(|error| error.to_string()))
    })
}
