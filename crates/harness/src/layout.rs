//! Where everything is: names, addresses and directories. Nothing else in this crate invents one.
//!
//! All state is below one directory and all names start with one prefix, so that `down` finds what a crashed `up` left
//! without any record of it. One cluster a machine, therefore.

use std::fmt;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// The Kubernetes that is built and run. `hack/kubernetes/components/go.mod` names the same.
pub const KUBERNETES: &str = "v1.36.3";
/// Below this directory is everything that `down` removes. Short, because socket paths end after 107 bytes.
pub const STATE: &str = "/var/lib/bellwether-harness";
/// The cgroup that holds every process of the cluster.
pub const CGROUP: &str = "bellwether-harness";
/// The host's end of its link into the cluster.
pub const HOST_LINK: &str = "bw-host";
/// The bridge, inside the control plane's network namespace.
pub const BRIDGE: &str = "bw-bridge";
/// Where the API server, etcd and DNS listen.
pub const CONTROL_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 231, 0, 1);
/// The host's own address: where a test or a person connects from.
pub const HOST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 231, 0, 254);
/// Addresses of pods; each node has a /24 of it.
pub const POD_RANGE: &str = "10.232.0.0/16";
/// Addresses of Services.
pub const SERVICE_RANGE: &str = "10.233.0.0/16";
/// The first Service address: `kubernetes.default`.
pub const KUBERNETES_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 233, 0, 1);
/// The API server's port.
pub const API_PORT: u16 = 6443;

/// One of the three nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Node(u8);

impl Node {
    /// All of them.
    pub const ALL: [Node; 3] = [Node(1), Node(2), Node(3)];

    /// Its address on the bridge.
    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 231, 0, 10 + self.0)
    }

    /// The addresses of its pods.
    pub fn pod_subnet(self) -> String {
        format!("10.232.{}.0/24", self.0)
    }

    /// Its name with the prefix of everything that exists once a machine: network namespace and link.
    pub fn namespace(self) -> String {
        format!("bw-{self}")
    }

    /// All other nodes.
    pub fn others(self) -> impl Iterator<Item = Node> {
        Self::ALL.into_iter().filter(move |other| *other != self)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node-{}", self.0)
    }
}

impl std::str::FromStr for Node {
    type Err = String;

    fn from_str(name: &str) -> Result<Node, String> {
        Self::ALL
            .into_iter()
            .find(|node| node.to_string() == name)
            .ok_or_else(|| format!("no node {name:?}; there are node-1, node-2 and node-3"))
    }
}

/// Where a process runs: decides its network namespace and its cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Place {
    /// With the API server.
    Control,
    /// On a node.
    Node(Node),
}

impl Place {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Place> {
        std::iter::once(Place::Control).chain(Node::ALL.into_iter().map(Place::Node))
    }

    /// The network namespace's name.
    pub fn namespace(self) -> String {
        match self {
            Place::Control => "bw-control".to_owned(),
            Place::Node(node) => node.namespace(),
        }
    }

    /// Its address on the bridge.
    pub fn address(self) -> Ipv4Addr {
        match self {
            Place::Control => CONTROL_ADDRESS,
            Place::Node(node) => node.address(),
        }
    }

    /// The cgroup, relative to the hierarchy's root. Containers are beside `daemons`, below the node's: freezing the
    /// node's cgroup stops both.
    pub fn cgroup(self) -> String {
        match self {
            Place::Control => format!("{CGROUP}/control"),
            Place::Node(node) => format!("{CGROUP}/{node}"),
        }
    }
}

/// The directories that depend on who calls.
#[derive(Debug, Clone)]
pub struct Layout {
    /// Built programs and images, kept across clusters.
    pub cache: PathBuf,
    /// The Go modules and recipes of this repository.
    pub sources: PathBuf,
}

impl Layout {
    /// From the environment: `XDG_CACHE_HOME`, or `~/.cache`.
    pub fn from_environment() -> Layout {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).unwrap_or_else(|| {
            PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/root".into())).join(".cache")
        });
        let sources = Path::new(env!("BELLWETHER_ROOT")).join("hack/kubernetes");
        Layout { cache: cache.join("bellwether"), sources }
    }

    /// Where the programs built from Go modules are.
    pub fn programs(&self) -> PathBuf {
        self.cache.join("kubernetes").join(KUBERNETES)
    }

    /// Where images are.
    pub fn images(&self) -> PathBuf {
        self.cache.join("images")
    }

    /// One of the programs built from Go modules.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs().join(name)
    }
}

/// A path below [`STATE`].
pub fn state(relative: impl AsRef<Path>) -> PathBuf {
    Path::new(STATE).join(relative)
}

/// A node's directory.
pub fn node_dir(node: Node) -> PathBuf {
    state(node.to_string())
}

/// The administrator's kubeconfig: what `up` prints.
pub fn kubeconfig() -> PathBuf {
    state("kubeconfig")
}

/// Where the API server writes its audit log.
pub fn audit_log() -> PathBuf {
    state("audit.log")
}
