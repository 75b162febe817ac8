//! etcd, the API server and those that work for it, all in the control plane's network.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use crate::command::Run;
use crate::layout::{API_PORT, CONTROL_ADDRESS, Node, POD_RANGE, Place, SERVICE_RANGE, audit_log, state};
use crate::pki::kubeconfig_of;
use crate::process::{Component, Started};
use crate::{Error, Layout, kubectl};

/// How long a component may take. Two cores that compile something else at the same time are slow.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The name of the API server's component.
pub const API_SERVER: &str = "kube-apiserver";
/// The name of etcd's component.
pub const ETCD: &str = "etcd";

const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;
const DNS_READY_PORT: u16 = 8181;
const PROXY_HEALTH_PORT: u16 = 10256;

/// Every request, by whom and with what result, without bodies.
const AUDIT_POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
 "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}
"#;

/// What the cluster needs in the API: rights of DNS and of the volume provisioner, the default StorageClass.
const MANIFEST: &str = include_str!("../../../hack/kubernetes/cluster.yaml");

/// Starts all of it and waits until it answers.
pub fn start(layout: &Layout) -> Result<(), Error> {
    start_etcd()?;
    let api = api_server(layout).start()?;
    api.ready_when(PATIENCE, || api_answers(layout))?;
    kubectl::apply(layout, MANIFEST)?;
    for component in followers(layout)? {
        component.start()?;
    }
    Ok(())
}

/// Waits until those that need nodes, or the API, to be ready are so.
pub fn wait() -> Result<(), Error> {
    Started::named("coredns")?.ready_when(PATIENCE, || http_ok(CONTROL_ADDRESS, DNS_READY_PORT, "/ready"))?;
    for place in Place::all() {
        // Until it has written its rules once, Services lead nowhere.
        let ready = || http_ok(place.address(), PROXY_HEALTH_PORT, "/healthz");
        Started::named(&proxy_name(place))?.ready_when(PATIENCE, ready)?;
    }
    Ok(())
}

fn control(name: &str, program: PathBuf, arguments: Vec<String>) -> Component {
    Component { name: name.to_owned(), place: Place::Control, program, arguments }
}

/// In memory: the distribution's etcd can't be told not to sync, and a test cluster that is gone after a power cut is fine.
fn start_etcd() -> Result<(), Error> {
    let data = state("etcd");
    fs::create_dir_all(&data).map_err(Error::file(&data))?;
    Run::new(
        "mount",
        ["-t", "tmpfs", "-o", "size=1g,mode=700", "bellwether-etcd"]
            .map(String::from)
            .into_iter()
            .chain([data.display().to_string()]),
    )
    .go()?;
    let clients = format!("http://{CONTROL_ADDRESS}:{CLIENT_PORT}");
    let peers = format!("http://{CONTROL_ADDRESS}:{PEER_PORT}");
    let arguments = vec![
        format!("--data-dir={}/data", data.display()),
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster=default={peers}"),
    ];
    let etcd = control(ETCD, "etcd".into(), arguments).start()?;
    etcd.ready_when(PATIENCE, || http_ok(CONTROL_ADDRESS, CLIENT_PORT, "/health"))
}

fn api_server(layout: &Layout) -> Component {
    let pki = state("pki").display().to_string();
    let policy = state("audit-policy.json");
    let arguments = vec![
        format!("--etcd-servers=http://{CONTROL_ADDRESS}:{CLIENT_PORT}"),
        format!("--bind-address={CONTROL_ADDRESS}"),
        format!("--advertise-address={CONTROL_ADDRESS}"),
        format!("--secure-port={API_PORT}"),
        format!("--tls-cert-file={pki}/apiserver.crt"),
        format!("--tls-private-key-file={pki}/apiserver.key"),
        format!("--token-auth-file={pki}/tokens.csv"),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
        format!("--service-account-key-file={pki}/service-accounts.pub"),
        format!("--service-account-signing-key-file={pki}/service-accounts.key"),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        // Else `logs` and `exec` need a DNS server that knows the nodes' names.
        "--kubelet-preferred-address-types=InternalIP".into(),
        "--allow-privileged=true".into(),
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", audit_log().display()),
        // Never begun anew, which would be after 100 MB: tests read it from a position on. It goes with the cluster.
        "--audit-log-maxsize=100000".into(),
    ];
    control(API_SERVER, layout.program(API_SERVER), arguments)
}

fn followers(layout: &Layout) -> Result<Vec<Component>, Error> {
    let pki = state("pki").display().to_string();
    let config = |name: &str| format!("--kubeconfig={}", kubeconfig_of(name).display());
    let manager = vec![
        config("kube-controller-manager"),
        "--leader-elect=false".into(),
        format!("--bind-address={CONTROL_ADDRESS}"),
        "--use-service-account-credentials=true".into(),
        format!("--root-ca-file={pki}/ca.crt"),
        format!("--service-account-private-key-file={pki}/service-accounts.key"),
        // By default it asks twenty times a second: the hundreds of namespaces that a test run leaves then end minutes later.
        "--kube-api-qps=200".into(),
        "--kube-api-burst=400".into(),
        // Both are where the manager looks for plugins, and it makes the directory.
        format!("--flex-volume-plugin-dir={}", state("plugins").display()),
    ];
    let scheduler =
        vec![config("kube-scheduler"), "--leader-elect=false".into(), format!("--bind-address={CONTROL_ADDRESS}")];
    let corefile = write_corefile()?;
    let provisioner = state("bin/harness");
    Ok(vec![
        control("kube-controller-manager", layout.program("kube-controller-manager"), manager),
        control("kube-scheduler", layout.program("kube-scheduler"), scheduler),
        control("coredns", layout.program("coredns"), vec![format!("-conf={}", corefile.display())]),
        control("local-volumes", provisioner, vec!["serve-volumes".into()]),
        kube_proxy(layout, Place::Control)?,
    ])
}

fn write_corefile() -> Result<PathBuf, Error> {
    let path = state("Corefile");
    // A short memory: tests replace what a name stands for, and then ask.
    let text = format!(
        ".:53 {{\n  bind {CONTROL_ADDRESS}\n  errors\n  ready {CONTROL_ADDRESS}:{DNS_READY_PORT}\n  \
         kubernetes cluster.local in-addr.arpa {{\n    kubeconfig {}\n    pods insecure\n    ttl 2\n  }}\n  cache 2\n}}\n",
        kubeconfig_of("coredns").display()
    );
    fs::write(&path, text).map_err(Error::file(&path))?;
    Ok(path)
}

fn proxy_name(place: Place) -> String {
    format!("kube-proxy-{}", place.namespace())
}

/// kube-proxy for a node, or for the control plane: the API server calls webhooks by Service, and the host's way to
/// Services leads through there. It insists on being one of the nodes; which one only matters for traffic policies that
/// keep to a node.
pub fn kube_proxy(layout: &Layout, place: Place) -> Result<Component, Error> {
    let name = proxy_name(place);
    let config = state(format!("{name}.json"));
    let node = match place {
        Place::Control => Node::ALL[0],
        Place::Node(node) => node,
    };
    let unchanged =
        serde_json::json!({"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"});
    let text = serde_json::json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": POD_RANGE,
        "hostnameOverride": node.to_string(),
        "bindAddress": place.address().to_string(),
        "clientConnection": {"kubeconfig": kubeconfig_of("kube-proxy")},
        // The table of connections is the machine's; its limits are none of our business.
        "conntrack": unchanged,
        "oomScoreAdj": 0,
    });
    fs::write(&config, text.to_string()).map_err(Error::file(&config))?;
    Ok(Component {
        name,
        place,
        program: layout.program("kube-proxy"),
        arguments: vec![format!("--config={}", config.display())],
    })
}

/// Prepares what the API server reads.
pub fn write_audit_policy() -> Result<(), Error> {
    let path = state("audit-policy.json");
    fs::write(&path, AUDIT_POLICY).map_err(Error::file(&path))
}

/// Whether the API server says that it is ready.
pub fn api_answers(layout: &Layout) -> Result<(), String> {
    let asked = kubectl::kubectl(layout, ["get", "--raw", "/readyz"]).within(Duration::from_secs(10)).output();
    asked.map(drop).map_err(|error| error.to_string())
}

/// Whether an HTTP server of the cluster answers 200.
fn http_ok(address: Ipv4Addr, port: u16, path: &str) -> Result<(), String> {
    let seen = |error: std::io::Error| format!("port {port}: {error}");
    let mut stream = TcpStream::connect_timeout(&(address, port).into(), Duration::from_secs(1)).map_err(seen)?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).map_err(seen)?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: harness\r\n\r\n").map_err(seen)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(seen)?;
    let status = answer.lines().next().unwrap_or_default();
    if status.contains(" 200 ") { Ok(()) } else { Err(format!("port {port}: {answer}")) }
}
