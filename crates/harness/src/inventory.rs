//! What a machine looks like to the harness: what was there before, to put it back, and a listing of everything that a
//! cluster could leave behind, to compare.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::command::Run;
use crate::layout::{CGROUP, STATE, state};
use crate::{Error, cgroup};

/// Settings of the machine that a kubelet changes without being asked.
const SETTINGS: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

/// Directories outside the state that kubelet, containerd and the network plugins make, outermost last.
const DIRECTORIES: [&str; 15] = [
    "/run/containerd/s",
    "/run/containerd/fifo",
    "/run/containerd/runc",
    "/run/containerd",
    "/var/lib/cni/results",
    "/var/lib/cni/cache",
    "/var/lib/cni",
    "/var/lib/kubelet/device-plugins",
    "/var/lib/kubelet/plugins_registry",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
    "/opt/containerd",
    "/usr/libexec/kubernetes",
    "/run/kubernetes",
];

#[derive(Serialize, Deserialize)]
struct Before {
    settings: BTreeMap<String, String>,
    absent: Vec<String>,
}

fn setting(name: &str) -> String {
    format!("/proc/sys/{name}")
}

/// Writes down what `restore_before` puts back.
pub fn record_before() -> Result<(), Error> {
    let settings = SETTINGS
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), fs::read_to_string(setting(name)).ok()?.trim().to_owned())))
        .collect();
    let absent = DIRECTORIES.iter().filter(|path| !Path::new(path).exists()).map(|path| (*path).to_owned()).collect();
    let path = state("before.json");
    let text = serde_json::to_vec_pretty(&Before { settings, absent }).unwrap_or_default();
    fs::write(&path, text).map_err(Error::file(&path))
}

/// Puts settings back, and removes directories that were not there and are empty now. Does nothing without a record.
pub fn restore_before() -> Result<(), Error> {
    let Ok(text) = fs::read(state("before.json")) else { return Ok(()) };
    let Ok(before) = serde_json::from_slice::<Before>(&text) else {
        // Half-written: then nothing had been started that could have changed anything.
        return Ok(());
    };
    for (name, value) in before.settings {
        let path = setting(&name);
        if fs::read_to_string(&path).is_ok_and(|now| now.trim() != value) {
            fs::write(&path, value).map_err(Error::file(path.as_ref()))?;
        }
    }
    for path in before.absent {
        // Not empty: somebody else's by now. `left_behind` shows it if it is ours after all.
        let _ = fs::remove_dir(path);
    }
    Ok(())
}

/// A listing of everything on this machine that a cluster could leave behind, one line each.
pub fn listing() -> Result<BTreeSet<String>, Error> {
    let mut lines = BTreeSet::new();
    let mut add =
        |kind: &str, items: Vec<String>| lines.extend(items.into_iter().map(|item| format!("{kind}: {item}")));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    add("mount", mounts.lines().filter_map(|line| line.split(' ').nth(4).map(str::to_owned)).collect());
    add("network namespace", names("/run/netns"));
    add("link", names("/sys/class/net"));
    for (kind, command) in [
        ("route", "ip route show table all"),
        ("address", "ip -brief address"),
        ("iptables", "iptables-save"),
        ("ip6tables", "ip6tables-save"),
        ("loop device", "losetup --noheadings --output BACK-FILE"),
    ] {
        let output = Run::line(command).output()?;
        // Comments carry the time, and counters move.
        let stable = output.lines().filter(|line| !line.starts_with('#') && !line.starts_with(':'));
        add(kind, stable.map(str::to_owned).collect());
    }
    add("cgroup", cgroup::outermost().iter().map(|path| path.display().to_string()).collect());
    add("process", processes());
    for directory in DIRECTORIES.into_iter().chain([STATE]) {
        if Path::new(directory).exists() {
            add("directory", vec![directory.to_owned()]);
            add(directory, names(directory));
        }
    }
    for name in SETTINGS {
        add("setting", vec![format!("{name} = {}", fs::read_to_string(setting(name)).unwrap_or_default().trim())]);
    }
    Ok(lines)
}

fn names(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Processes of the cluster by cgroup, and by what their command lines mention, should one have left the cgroup.
fn processes() -> Vec<String> {
    let mut members = cgroup::processes(CGROUP);
    members.extend(cgroup::strays());
    let all = names("/proc").into_iter().filter_map(|name| name.parse::<i32>().ok());
    all.filter_map(|pid| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?.replace('\0', " ");
        (members.contains(&pid) || line.contains(STATE)).then(|| format!("{pid} {line}"))
    })
    .collect()
}
