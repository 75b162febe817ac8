//! One node: containerd, kubelet and kube-proxy in the node's network, their files in the node's directory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use crate::command::Run;
use crate::control_plane::{PATIENCE, kube_proxy};
use crate::images::{PAUSE, Prepared};
use crate::layout::{CONTROL_ADDRESS, Node, Place, node_dir};
use crate::pki::kubeconfig_of;
use crate::process::Component;
use crate::{Error, Layout};

/// Where containerd listens.
pub fn socket(node: Node) -> PathBuf {
    node_dir(node).join("containerd.sock")
}

/// The image namespace of the kubelet's containers.
pub const NAMESPACE: &str = "k8s.io";

/// Starts a node. It is not Ready yet.
pub fn start(layout: &Layout, node: Node, images: &Prepared) -> Result<(), Error> {
    let directory = node_dir(node);
    for part in ["cni", "run", "pods", "plugins", "kubelet"] {
        let path = directory.join(part);
        fs::create_dir_all(&path).map_err(Error::file(&path))?;
    }
    images.copy_to(&directory.join("containerd"))?;
    write(&directory.join("cni/10-bridge.conflist"), &pod_network(node))?;
    write_runc(&directory.join("runc"), node)?;
    let place = Place::Node(node);
    let containerd = containerd(&format!("containerd-{node}"), place, &directory)?.start()?;
    containerd.ready_when(PATIENCE, || containerd_answers(&socket(node)))?;
    kubelet(layout, node)?.start()?;
    kube_proxy(layout, place)?.start()?;
    Ok(())
}

/// A containerd whose files are all in `directory`.
pub fn containerd(name: &str, place: Place, directory: &Path) -> Result<Component, Error> {
    let config = directory.join("containerd.toml");
    write(&config, &containerd_config(directory))?;
    let arguments = vec![format!("--config={}", config.display())];
    Ok(Component { name: name.to_owned(), place, program: "containerd".into(), arguments })
}

/// Whether the containerd behind a socket serves.
pub fn containerd_answers(socket: &Path) -> Result<(), String> {
    ctr(socket, ["version"]).within(Duration::from_secs(5)).output().map(drop).map_err(|error| error.to_string())
}

/// A command of containerd's client.
pub fn ctr<'a>(socket: &Path, arguments: impl IntoIterator<Item = &'a str>) -> Run {
    let address = format!("--address={}", socket.display());
    let common = [address, "--namespace".into(), NAMESPACE.into()];
    Run::new("ctr", common.into_iter().chain(arguments.into_iter().map(str::to_owned)))
}

/// `restrict_oom_score_adj`: without CAP_SYS_RESOURCE, as in many virtual machines, runc otherwise dies with "can't get
/// final child's PID". `netns_mounts_under_state_dir`: pods' namespaces are found, and removed, with the state. The `opt`
/// plugin would make a directory in /opt.
fn containerd_config(directory: &Path) -> String {
    let directory = directory.display();
    format!(
        r#"version = 2
root = "{directory}/containerd"
state = "{directory}/run/containerd"
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = "{directory}/containerd.sock"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  disable_apparmor = true

  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{directory}/runc"
      Root = "{directory}/run/runc"

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{directory}/cni"
"#
    )
}

/// A kubelet without cgroups for each class of pods (they don't work everywhere) leaves the choice of a container's cgroup to
/// containerd, which takes the same one on every node. This puts containers below their node's: freezing it freezes them,
/// and `down` finds them.
fn write_runc(path: &Path, node: Node) -> Result<(), Error> {
    let cgroup = Place::Node(node).cgroup();
    let script = format!(
        r##"#!/bin/sh
for word; do
  if [ "$last" = --bundle ]; then
    sed -i 's#"cgroupsPath":"/{NAMESPACE}/#"cgroupsPath":"/{cgroup}/#' "$word/config.json"
  fi
  last=$word
done
exec runc "$@"
"##
    );
    write(path, &script)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(Error::file(path))
}

fn pod_network(node: Node) -> String {
    json!({
        "cniVersion": "0.4.0",
        "name": "bellwether-harness",
        "plugins": [{
            "type": "bridge",
            "bridge": "pods",
            "isGateway": true,
            "ipMasq": false,
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": node.pod_subnet()}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                // One for each node: the plugin's default is one for the machine.
                "dataDir": node_dir(node).join("addresses"),
            },
        }],
    })
    .to_string()
}

fn kubelet(layout: &Layout, node: Node) -> Result<Component, Error> {
    let directory = node_dir(node);
    let config = directory.join("kubelet.json");
    write(&config, &kubelet_config(node))?;
    let arguments = vec![
        format!("--config={}", config.display()),
        format!("--kubeconfig={}", kubeconfig_of(&node.to_string()).display()),
        format!("--root-dir={}", directory.join("kubelet").display()),
        format!("--cert-dir={}", directory.join("kubelet/pki").display()),
        format!("--hostname-override={node}"),
        format!("--node-ip={}", node.address()),
        // Three rooms of one flat; what spreads instances over zones must see three.
        format!("--node-labels=topology.kubernetes.io/zone=zone-{node}"),
    ];
    Ok(Component {
        name: format!("kubelet-{node}"),
        place: Place::Node(node),
        program: layout.program("kubelet"),
        arguments,
    })
}

fn kubelet_config(node: Node) -> String {
    let directory = node_dir(node);
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address().to_string(),
        "containerRuntimeEndpoint": format!("unix://{}", socket(node).display()),
        "clusterDNS": [CONTROL_ADDRESS.to_string()],
        "clusterDomain": "cluster.local",
        // The machine's resolver would be asked for every name that the cluster does not know.
        "resolvConf": "",
        // Only who is on this machine can reach it, and all of those are root.
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": false,
        "failSwapOn": false,
        "oomScoreAdj": 0,
        "podLogsDir": directory.join("pods"),
        "volumePluginDir": directory.join("plugins"),
        // Three nodes share one disk: none is alone to blame when it fills, and images must stay.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "healthzBindAddress": "127.0.0.1",
        "serializeImagePulls": false,
        "registryPullQPS": 0,
        "eventRecordQPS": 0,
    })
    .to_string()
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(Error::file(path))
}
