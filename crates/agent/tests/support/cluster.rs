//! A cluster of real agents with real PostgreSQL over the in-memory API. The test plays the operator (it makes the objects
//! and mounts) and the kubelet (it starts, kills and replaces pods).

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::fs::File;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use bellwether_agent::process::tree;
use bellwether_api::labels;
use bellwether_api::names::{CONFIG_KEY, Names};
use bellwether_api::v1::InstanceState;
use bellwether_apiserver::http::{Running, Server, ServerConfig};
use bellwether_core::contract::{InstanceConfig, REPLICATION_USER, Report, env, key};
use bellwether_core::lease_object::{SWITCHOVER, SYNC};
use bellwether_postgres::sql::{Remote, Session, SqlError, TlsClient};
use bellwether_postgres::{Secret, installation};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::json;

use crate::support::{self, Home, PATIENCE, postgresql, unprivileged};

#[path = "relay.rs"]
mod relay;
use relay::Relay;

pub const NAMESPACE: &str = "shop";

/// Loopback addresses: one /24 for each cluster of a test process, by the process's own number.
static NETWORKS: AtomicU8 = AtomicU8::new(1);

pub struct Cluster {
    pub home: Home,
    pub names: Names,
    pub api: Running,
    client: kube::Client,
    network: [u8; 3],
    agents: BTreeMap<String, Child>,
    /// The agents' way to the API; the test's own does not end with it.
    pub wire: Relay,
    /// Where agents that start from now on find PostgreSQL's programs, if not where everybody does.
    pub programs: Option<PathBuf>,
}

impl Cluster {
    /// Everything that an operator makes for these instances, but no pod.
    pub async fn new(config: &InstanceConfig) -> Self {
        bellwether_runtime::client::install_crypto();
        let api = Server::start(ServerConfig::in_memory()).await.expect("an API server");
        let home = Home::new();
        let text = api.admin_kubeconfig().expect("a kubeconfig");
        let direct = home.path().join("kubeconfig-direct");
        std::fs::write(&direct, &text).expect("written");
        let client = bellwether_runtime::client::from_kubeconfig(&direct).await.expect("a client");
        let wire = Relay::to(api.address()).await;
        let relayed = text.replace(&api.address().to_string(), &wire.address.to_string());
        assert_ne!(relayed, text, "agents go through the relay");
        std::fs::write(home.path().join("kubeconfig"), relayed).expect("written");
        let pid = std::process::id();
        let network = [127, 64 + (pid % 128) as u8, (pid / 128) as u8 ^ NETWORKS.fetch_add(1, Ordering::Relaxed)];
        let cluster = Self {
            home,
            names: Names::of("orders"),
            api,
            client,
            network,
            agents: BTreeMap::new(),
            wire,
            programs: None,
        };
        cluster.mount(config);
        cluster.create_objects().await;
        cluster
    }

    async fn create_objects(&self) {
        let namespace = json!({ "metadata": { "name": NAMESPACE } });
        create(&Api::<Namespace>::all(self.client.clone()), namespace).await;
        create(&self.api::<Lease>(), json!({ "metadata": { "name": self.names.lease() } })).await;
        let slice = json!({
            "metadata": { "name": self.names.rw(), "labels": { "kubernetes.io/service-name": self.names.rw() } },
            "addressType": "IPv4", "endpoints": [], "ports": [{ "name": "postgres", "port": 5432 }],
        });
        create(&self.api::<EndpointSlice>(), slice).await;
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn dir(&self, name: &str) -> PathBuf {
        let dir = self.home.path().join(name);
        std::fs::create_dir_all(&dir).expect("a directory");
        dir
    }

    /// Writes configuration, certificates and passwords where the agents' volumes are mounted.
    fn mount(&self, config: &InstanceConfig) {
        self.configure(config);
        self.set_password("first");
        std::fs::write(self.dir("superuser").join(key::PASSWORD), "geheim").expect("written");
        let app = self.dir("app");
        std::fs::write(app.join(key::USERNAME), "app").expect("written");
        std::fs::write(app.join(key::DBNAME), "app").expect("written");
        let ca_key = KeyPair::generate().expect("a key");
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_crt = ca.self_signed(&ca_key).expect("a CA").pem();
        let issuer = Issuer::new(ca, ca_key);
        let hosts = format!("*.{}.{NAMESPACE}.svc", self.names.pods());
        for (dir, name) in [("server-tls", hosts.as_str()), ("replication-tls", REPLICATION_USER)] {
            let own = KeyPair::generate().expect("a key");
            let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
            params.distinguished_name.push(DnType::CommonName, name);
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            let crt = params.signed_by(&own, &issuer).expect("signed").pem();
            let dir = self.dir(dir);
            for (file, text) in [(key::CA_CRT, &ca_crt), (key::TLS_CRT, &crt), (key::TLS_KEY, &own.serialize_pem())] {
                std::fs::write(dir.join(file), text).expect("written");
            }
        }
    }

    pub fn configure(&self, config: &InstanceConfig) {
        let text = serde_json::to_vec(config).expect("JSON");
        std::fs::write(self.dir("config").join(CONFIG_KEY), text).expect("written");
    }

    pub fn set_password(&self, password: &str) {
        std::fs::write(self.dir("app").join(key::PASSWORD), password).expect("written");
    }

    pub fn address(&self, host: u8) -> Ipv4Addr {
        let [a, b, c] = self.network;
        Ipv4Addr::new(a, b, c, host)
    }

    /// Creates the pod and starts its agent, at the given last byte of the address.
    pub async fn start(&mut self, instance: &str, host: u8) {
        let spec = json!({ "containers": [{ "name": "postgres", "image": "none" }] });
        let pod = create(&self.api::<Pod>(), json!({ "metadata": { "name": instance }, "spec": spec })).await;
        let uid = pod.metadata.uid.expect("a UID");
        let status = json!({ "status": { "podIP": self.address(host).to_string() } });
        let patched = self.api::<Pod>().patch_status(instance, &PatchParams::default(), &Patch::Merge(status)).await;
        patched.expect("the kubelet says where it is");
        self.run(instance, host, &uid);
    }

    /// The agent is killed, and its container started again, as a kubelet does it: the same pod.
    pub async fn restart(&mut self, instance: &str, host: u8) {
        let mut agent = self.agents.remove(instance).expect("an agent");
        agent.kill().expect("it is there");
        agent.wait().expect("its end");
        let uid = self.api::<Pod>().get(instance).await.expect("a pod").metadata.uid.expect("a UID");
        self.run(instance, host, &uid);
    }

    fn run(&mut self, instance: &str, host: u8, uid: &str) {
        let dir = |name: &str| self.dir(name);
        let volume = self.dir(&format!("{instance}/data"));
        let run = self.dir(&format!("{instance}/run"));
        for dir in [&volume, &run, &self.dir(instance)] {
            support::give_away(dir);
        }
        let mut command = Command::new(self.home.roles());
        let log = File::options().create(true).append(true).open(self.log(instance)).expect("a log");
        command.arg("agent").stdin(Stdio::null()).stdout(log).current_dir(self.home.path());
        command.env("KUBECONFIG", self.home.path().join("kubeconfig"));
        command.env(env::CLUSTER, self.names.cluster()).env(env::NAMESPACE, NAMESPACE).env(env::INSTANCE, instance);
        command.env(env::POD_UID, uid).env(env::POD_IP, self.address(host).to_string());
        command.env(env::PG_VERSION, postgresql().major).env(env::DATA_DIR, volume).env(env::RUN_DIR, run);
        command.env(env::CONFIG_DIR, dir("config")).env(env::SERVER_TLS_DIR, dir("server-tls"));
        command.env(env::REPLICATION_TLS_DIR, dir("replication-tls"));
        command.env(env::SUPERUSER_DIR, dir("superuser")).env(env::APP_DIR, dir("app"));
        if let Some(programs) = &self.programs {
            command.env(installation::OVERRIDE, programs);
        }
        let child = unprivileged(&mut command).spawn().expect("the agent starts");
        self.agents.insert(instance.to_owned(), child);
    }

    /// A node is lost: nothing of the pod is asked to do anything. The pod is made again elsewhere, on the same volume.
    pub async fn lose(&mut self, instance: &str) {
        let mut agent = self.agents.remove(instance).expect("an agent");
        agent.kill().expect("it is there");
        agent.wait().expect("its end");
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.api::<Pod>().delete(instance, &now).await.expect("deleted");
    }

    /// What an agent and its PostgreSQL have said.
    pub fn said(&self, instance: &str) -> String {
        std::fs::read_to_string(self.log(instance)).unwrap_or_default()
    }

    fn log(&self, instance: &str) -> PathBuf {
        self.dir(instance).join("log")
    }

    /// Deletes the pod: its agent is asked to stop, and must.
    pub async fn delete(&mut self, instance: &str) {
        let mut agent = self.agents.remove(instance).expect("an agent");
        kill(Pid::from_raw(agent.id() as i32), Signal::SIGTERM).expect("it is there");
        assert!(agent.wait().expect("its end").success(), "an orderly stop");
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.api::<Pod>().delete(instance, &now).await.expect("deleted");
    }

    pub fn agent(&self, instance: &str) -> i32 {
        self.agents[instance].id() as i32
    }

    /// All processes below an agent.
    pub fn below(&self, instance: &str) -> Vec<i32> {
        tree::descendants(self.agent(instance), &tree::all()).into_iter().map(|process| process.pid).collect()
    }

    pub fn pgdata(&self, instance: &str) -> PathBuf {
        self.home.path().join(instance).join("data/pgdata")
    }

    pub async fn report(&self, instance: &str) -> Report {
        let pod = self.api::<Pod>().get(instance).await.expect("a pod");
        let annotation = pod.metadata.annotations.and_then(|all| all.get(labels::REPORT).cloned());
        annotation.map(|text| serde_json::from_str(&text).expect("a report")).unwrap_or_default()
    }

    /// Waits until an instance's report is so, and shows the last one if it never is.
    pub async fn wait_for_report(&self, instance: &str, what: &str, so: impl Fn(&Report) -> bool) -> Report {
        let began = Instant::now();
        loop {
            let report = self.report(instance).await;
            if so(&report) {
                return report;
            }
            if began.elapsed() > PATIENCE {
                self.agents.keys().for_each(|name| self.show_log(name));
                panic!("{instance}: waited in vain until {what}; last report: {report:?}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The postmaster of an instance.
    pub fn postmaster(&self, instance: &str) -> i32 {
        let text = std::fs::read_to_string(self.pgdata(instance).join("postmaster.pid")).expect("a postmaster");
        text.lines().next().and_then(|line| line.parse().ok()).expect("its number")
    }

    /// Waits until somebody leads this term or a later one.
    pub async fn wait_for_leader(&self, term: u64) -> (String, Report) {
        let began = Instant::now();
        loop {
            for instance in self.agents.keys() {
                let report = self.report(instance).await;
                if report.state == InstanceState::Leading && report.accepts_sql && report.term >= Some(term) {
                    return (instance.clone(), report);
                }
            }
            if began.elapsed() > PATIENCE {
                for instance in self.agents.keys() {
                    self.show_log(instance);
                }
                panic!("waited in vain for a leader of term {term}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    #[expect(clippy::print_stderr, reason = "for whoever reads why a test failed")]
    fn show_log(&self, instance: &str) {
        let log = std::fs::read_to_string(self.log(instance)).unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(40).collect();
        eprintln!("{instance}, newest first: {tail:#?}");
    }

    /// Waits until the Lease records one rule of replication, with so many voters.
    pub async fn wait_for_voters(&self, voters: usize) {
        support::eventually("the record of voters is settled", async || {
            let sync = self.lease().await.metadata.annotations.and_then(|all| all.get(SYNC).cloned());
            sync.is_some_and(|sync| sync.matches("needed").count() == 1 && sync.matches('-').count() == 4 * voters)
        })
        .await;
    }

    pub async fn lease(&self) -> Lease {
        self.api::<Lease>().get(&self.names.lease()).await.expect("the Lease")
    }

    /// A person wants this instance to lead.
    pub async fn ask_for(&self, instance: &str) {
        let wish = json!({ "metadata": { "annotations": { SWITCHOVER: instance } } });
        let asked = self.api::<Lease>().patch(&self.names.lease(), &PatchParams::default(), &Patch::Merge(wish)).await;
        asked.expect("asked for");
    }

    /// Another Lease of the same name, that names nobody.
    pub async fn renew_lease(&self) {
        self.api::<Lease>().delete(&self.names.lease(), &DeleteParams::default()).await.expect("deleted");
        create(&self.api::<Lease>(), json!({ "metadata": { "name": self.names.lease() } })).await;
    }

    /// Where `rw` leads.
    pub async fn endpoints(&self) -> Vec<String> {
        let slice = self.api::<EndpointSlice>().get(&self.names.rw()).await.expect("the slice");
        slice.endpoints.into_iter().flat_map(|endpoint| endpoint.addresses).collect()
    }

    /// A session as an application would have.
    pub async fn connect(&self, instance: &str, host: u8, password: &str) -> Result<Session, SqlError> {
        self.patient(instance, host, password, Duration::from_secs(5)).await
    }

    /// The same of one that waits this long for an answer.
    pub async fn patient(
        &self,
        instance: &str,
        host: u8,
        password: &str,
        patience: Duration,
    ) -> Result<Session, SqlError> {
        let ca = self.dir("server-tls").join(key::CA_CRT);
        let name = self.names.host(instance, NAMESPACE);
        let password = Secret::new(password);
        let remote = Remote {
            host: &name,
            address: self.address(host).into(),
            port: 5432,
            user: "app",
            password: Some(&password),
            database: "app",
        };
        Session::tls(&remote, TlsClient::anonymous(&ca).expect("a CA"), patience).await
    }

    /// How often anybody wrote anything.
    pub fn writes(&self) -> usize {
        self.api.audit().writes_by("").len()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for agent in self.agents.values_mut() {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

async fn create<K>(api: &Api<K>, object: serde_json::Value) -> K
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let object = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object).await.expect("created")
}

/// A session as superuser through an instance's socket.
pub async fn superuser(cluster: &Cluster, instance: &str) -> Session {
    let socket = cluster.home.path().join(instance).join("run/socket");
    Session::local(&socket, 5432, "postgres", Duration::from_secs(5)).await.expect("a session")
}
