//! Removing the cluster, or whatever is left of one. Running it again does nothing.
//!
//! The order matters: processes first, because they hold mounts and namespaces; then mounts, because removing a directory
//! must never reach into something that is mounted there; then networks; the state directory last, because it knows what
//! is still to be put back.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::command::{Run, until};
use crate::layout::{CGROUP, STATE};
use crate::process::Started;
use crate::{Error, Layout, cgroup, inventory, network, up};

/// Removes everything but the caches.
pub fn down(layout: &Layout) -> Result<(), Error> {
    fs::create_dir_all(&layout.cache).map_err(Error::file(&layout.cache))?;
    let _lock = up::lock(layout)?;
    down_unlocked()
}

/// The same, for those who hold the lock.
pub(crate) fn down_unlocked() -> Result<(), Error> {
    let sockets = shim_sockets();
    // By record those that might have left the cgroup, by cgroup everybody else.
    for started in Started::all() {
        if started.is_alive() {
            let _ = started.signal(nix::sys::signal::Signal::SIGCONT);
            let _ = started.signal(nix::sys::signal::Signal::SIGKILL);
        }
    }
    cgroup::end_all()?;
    unmount_all()?;
    network::remove()?;
    for socket in sockets {
        remove_file(&socket)?;
    }
    remove_plugin_records()?;
    remove_log_links()?;
    inventory::restore_before()?;
    if Path::new(STATE).exists() {
        // Never into something mounted, should the list of mounts have been wrong.
        Run::new("rm", ["-rf", "--one-file-system", STATE]).within(Duration::from_secs(300)).go()?;
    }
    Ok(())
}

/// containerd's shims listen in a directory of the machine, whatever containerd's configuration says. Ours are known by
/// who holds them, as long as they run.
fn shim_sockets() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for pid in cgroup::processes(CGROUP) {
        let held: Vec<String> = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| fs::read_link(entry.path()).ok()?.to_str().map(str::to_owned))
            .filter_map(|link| link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')).map(str::to_owned))
            .collect();
        let listed = fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap_or_default();
        for line in listed.lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if let [_, _, _, _, _, _, inode, path] = fields.as_slice()
                && held.iter().any(|held| held == inode)
                && path.starts_with("/run/containerd/")
            {
                found.push(PathBuf::from(path));
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Everything mounted below the state directory, innermost first.
pub fn mounts() -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let mut ours: Vec<PathBuf> = points.map(PathBuf::from).filter(|path| path.starts_with(STATE)).collect();
    ours.reverse();
    ours
}

fn unmount_all() -> Result<(), Error> {
    until("everything below the state directory to be unmounted", Duration::from_secs(60), || {
        for point in mounts() {
            // Detached rather than waited for: nobody of ours is left who could hold it. An error shows as a mount that stays.
            let _ = nix::mount::umount2(&point, nix::mount::MntFlags::MNT_DETACH);
        }
        let left = mounts();
        Ok(if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) })
    })
}

/// The network plugins' library notes each result in a directory of the machine. A note that names a network namespace of
/// ours is ours.
fn remove_plugin_records() -> Result<(), Error> {
    for entry in fs::read_dir("/var/lib/cni/results").into_iter().flatten().flatten() {
        if fs::read_to_string(entry.path()).is_ok_and(|text| text.contains(STATE)) {
            remove_file(&entry.path())?;
        }
    }
    Ok(())
}

/// The kubelet links every container's log into a directory of the machine. Those into our state are ours.
fn remove_log_links() -> Result<(), Error> {
    for entry in fs::read_dir("/var/log/containers").into_iter().flatten().flatten() {
        if fs::read_link(entry.path()).is_ok_and(|target| target.starts_with(STATE)) {
            remove_file(&entry.path())?;
        }
    }
    // Three kubelets claim one socket for device plugins. It is only removed when nobody listens any more.
    let socket = Path::new("/var/lib/kubelet/device-plugins/kubelet.sock");
    let dead = |path: &Path| std::os::unix::net::UnixStream::connect(path).is_err();
    if fs::metadata(socket).is_ok_and(|found| found.file_type().is_socket()) && dead(socket) {
        remove_file(socket)?;
    }
    Ok(())
}

fn remove_file(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::File { path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}
