//! The cluster's network: a namespace for the control plane, which also holds the bridge, and one for each node.
//!
//! ```text
//!   host ── bw-host ─┐
//!                    bw-bridge (10.231.0.1, in bw-control) ─┬─ bw-node-1 (10.231.0.11) ─ pods 10.232.1.0/24
//!                                                           ├─ bw-node-2 …
//!                                                           └─ bw-node-3 …
//! ```
//!
//! The host has one link and the routes over it, no bridge, no forwarding, no iptables rule: all of those are inside
//! namespaces and go with them. Never: a setting of an interface, or a rule, outside the namespaces made here.

use std::path::{Path, PathBuf};

use crate::Error;
use crate::command::Run;
use crate::layout::{BRIDGE, CONTROL_ADDRESS, HOST_ADDRESS, HOST_LINK, Node, Place, SERVICE_RANGE};

/// The file that stands for a place's network.
pub fn handle(place: Place) -> PathBuf {
    Path::new("/run/netns").join(place.namespace())
}

/// A command in a place's network. By `nsenter`, because `ip netns exec` also remounts /sys, without the cgroups.
pub fn inside(place: Place, line: &str) -> Run {
    Run::new(
        "nsenter",
        [&format!("--net={}", handle(place).display()), "--"].into_iter().chain(line.split_whitespace()),
    )
}

/// Builds all of it.
pub fn create() -> Result<(), Error> {
    refuse_addresses_in_use()?;
    for place in Place::all() {
        Run::line(&format!("ip netns add {}", place.namespace())).go()?;
        inside(place, "ip link set lo up").go()?;
        inside(place, "sysctl -qw net.ipv4.ip_forward=1").go()?;
    }
    let control = Place::Control;
    // Traffic between nodes passes the bridge as on a switch: the control plane's rules are not asked.
    inside(control, "sysctl -qw net.bridge.bridge-nf-call-iptables=0").go()?;
    inside(control, &format!("ip link add {BRIDGE} type bridge")).go()?;
    inside(control, &format!("ip address add {CONTROL_ADDRESS}/24 dev {BRIDGE}")).go()?;
    inside(control, &format!("ip link set {BRIDGE} up")).go()?;
    for node in Node::ALL {
        join_node(node)?;
    }
    for node in Node::ALL {
        for other in Node::ALL {
            if other != node {
                route(Some(Place::Node(node)), &other.pod_subnet(), &other.address().to_string())?;
            }
        }
        route(Some(control), &node.pod_subnet(), &node.address().to_string())?;
    }
    join_host()
}

fn join_node(node: Node) -> Result<(), Error> {
    let name = node.namespace();
    let place = Place::Node(node);
    inside(Place::Control, &format!("ip link add {name} type veth peer name eth0 netns {name}")).go()?;
    inside(Place::Control, &format!("ip link set {name} master {BRIDGE} up")).go()?;
    inside(place, &format!("ip address add {}/24 dev eth0", node.address())).go()?;
    inside(place, "ip link set eth0 up").go()?;
    // Pods on one node reach each other through Services: the answer must pass the rules that changed the question.
    inside(place, "sysctl -qw net.bridge.bridge-nf-call-iptables=1").go()?;
    route(Some(place), "default", &CONTROL_ADDRESS.to_string())
}

/// The host reaches pods by their nodes, and Services through the control plane's kube-proxy.
fn join_host() -> Result<(), Error> {
    let namespace = Place::Control.namespace();
    Run::line(&format!("ip link add {HOST_LINK} type veth peer name {HOST_LINK} netns {namespace}")).go()?;
    inside(Place::Control, &format!("ip link set {HOST_LINK} master {BRIDGE} up")).go()?;
    Run::line(&format!("ip address add {HOST_ADDRESS}/24 dev {HOST_LINK}")).go()?;
    Run::line(&format!("ip link set {HOST_LINK} up")).go()?;
    for node in Node::ALL {
        route(None, &node.pod_subnet(), &node.address().to_string())?;
    }
    route(None, SERVICE_RANGE, &CONTROL_ADDRESS.to_string())
}

fn route(place: Option<Place>, to: &str, via: &str) -> Result<(), Error> {
    let line = format!("ip route add {to} via {via}");
    match place {
        Some(place) => inside(place, &line).go(),
        None => Run::line(&line).go(),
    }
}

/// Somebody's network may have our addresses; then traffic would go astray, theirs and ours.
fn refuse_addresses_in_use() -> Result<(), Error> {
    let routes = Run::line("ip -4 route show").output()?;
    for range in ["10.231.", "10.232.", "10.233."] {
        if let Some(line) = routes.lines().find(|line| line.starts_with(range)) {
            return Err(Error::Refused(format!(
                "this machine has a route into {range}0.0/16, which the test cluster uses: {line}"
            )));
        }
    }
    Ok(())
}

/// Removes all of it, as much as there is. Processes in the namespaces must have ended: they keep them alive.
pub fn remove() -> Result<(), Error> {
    if Path::new("/sys/class/net").join(HOST_LINK).exists() {
        Run::line(&format!("ip link delete {HOST_LINK}")).go()?;
    }
    for place in Place::all() {
        if handle(place).exists() {
            Run::line(&format!("ip netns delete {}", place.namespace())).go()?;
        }
    }
    Ok(())
}
