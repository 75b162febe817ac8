//! The cluster's processes as a tree of cgroups: who belongs to it, stopping a part of it, and ending all of it.
//!
//! Membership is inherited, so a container, its shim and whatever they fork are in their node's cgroup without any record
//! of ours: a crash between starting a process and noting its pid loses nothing. A container that got out of the tree is
//! still known by its root file system, which is below our state directory. Never: a process is ended that is neither.
//!
//! On hosts with the first version of cgroups (also the hybrid ones) the freezer's hierarchy is used, else the unified one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Error;
use crate::command::until;
use crate::layout::{CGROUP, STATE};

const ROOT: &str = "/sys/fs/cgroup";

fn unified() -> bool {
    Path::new(ROOT).join("cgroup.controllers").exists()
}

/// The directory of a cgroup, `path` being relative to the hierarchy's root.
pub fn directory(path: &str) -> PathBuf {
    let hierarchy = if unified() { PathBuf::from(ROOT) } else { Path::new(ROOT).join("freezer") };
    hierarchy.join(path)
}

/// Makes a cgroup; returns the file that a process writes its pid to in order to join.
pub fn create(path: &str) -> Result<PathBuf, Error> {
    let directory = directory(path);
    fs::create_dir_all(&directory).map_err(Error::file(&directory))?;
    Ok(directory.join("cgroup.procs"))
}

/// All processes in a cgroup and below it.
pub fn processes(path: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for directory in tree(&directory(path)) {
        // A cgroup that vanishes while we look has no processes.
        let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
        found.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
    }
    found
}

/// A directory and all below, parents first.
fn tree(root: &Path) -> Vec<PathBuf> {
    let mut found = if root.is_dir() { vec![root.to_owned()] } else { Vec::new() };
    let mut next = 0;
    while let Some(directory) = found.get(next).cloned() {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        found.extend(
            entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
        );
        next += 1;
    }
    found
}

/// Whether processes of a cgroup get to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Motion {
    /// None runs, not even to die.
    Frozen,
    /// As usual.
    Running,
}

/// Freezes or thaws a cgroup with everything below it, and waits until the kernel says that it is so.
pub fn set_motion(path: &str, motion: Motion) -> Result<(), Error> {
    let (file, value, sign) = match (unified(), motion) {
        (true, Motion::Frozen) => ("cgroup.freeze", "1", "frozen 1"),
        (true, Motion::Running) => ("cgroup.freeze", "0", "frozen 0"),
        (false, Motion::Frozen) => ("freezer.state", "FROZEN", "FROZEN"),
        (false, Motion::Running) => ("freezer.state", "THAWED", "THAWED"),
    };
    let directory = directory(path);
    let shown = directory.join(if unified() { "cgroup.events" } else { file });
    let file = directory.join(file);
    until(&format!("{path} to be {motion:?}"), Duration::from_secs(20), || {
        // Written each time: the old freezer gives up on a process that was just forking, until it is asked again.
        fs::write(&file, value).map_err(Error::file(&file))?;
        let state = fs::read_to_string(&shown).map_err(Error::file(&shown))?;
        Ok(if state.contains(sign) { Ok(()) } else { Err(state) })
    })
}

/// Ends every process of the cluster and removes its cgroups. Nothing happens when there are none.
pub fn end_all() -> Result<(), Error> {
    // A frozen process can't die.
    let frozen = tree(&directory(CGROUP));
    for directory in &frozen {
        for (file, value) in [("freezer.state", "THAWED"), ("cgroup.freeze", "0")] {
            if directory.join(file).exists() {
                // It may have gone meanwhile; if it is still there and frozen, the wait below says so.
                let _ = fs::write(directory.join(file), value);
            }
        }
    }
    until("all processes of the cluster to end", Duration::from_secs(30), || {
        let mut left = processes(CGROUP);
        left.extend(strays());
        for pid in &left {
            // It may have ended by itself.
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        Ok(if left.is_empty() { Ok(()) } else { Err(format!("processes {left:?}")) })
    })?;
    until("the cluster's cgroups to be removed", Duration::from_secs(10), || {
        let left = remaining();
        for directory in &left {
            for child in tree(directory).iter().rev() {
                // Busy for a moment after its last process has ended: looked at again.
                let _ = fs::remove_dir(child);
            }
        }
        Ok(if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) })
    })
}

/// Processes whose root file system is one of our containers'.
pub fn strays() -> Vec<i32> {
    let all = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let ours = |pid: &i32| {
        let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/"));
        root.is_some_and(|line| line.contains(STATE))
    };
    all.filter(ours).collect()
}

/// The outermost cgroups of every hierarchy, ours or not.
pub fn outermost() -> Vec<PathBuf> {
    let inside = |root: PathBuf| fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    let directories = inside(PathBuf::from(ROOT)).filter(|path| path.is_dir());
    directories.flat_map(|path| inside(path.clone()).chain([path])).filter(|path| path.is_dir()).collect()
}

/// The cluster's cgroups in every hierarchy: container runtimes make one for each controller.
pub fn remaining() -> Vec<PathBuf> {
    let hierarchies = fs::read_dir(ROOT).into_iter().flatten().flatten().map(|entry| entry.path());
    std::iter::once(PathBuf::from(ROOT))
        .chain(hierarchies)
        .map(|root| root.join(CGROUP))
        .filter(|path| path.is_dir())
        .collect()
}
