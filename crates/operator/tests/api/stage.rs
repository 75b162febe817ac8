//! An API server with our kind installed, an operator, and hands that play kubelets and agents.

use std::time::Duration;

use bellwether_api::labels;
use bellwether_api::v1::{self, PostgresCluster};
use bellwether_apiserver::http::{AuditEntry, Running, Server, ServerConfig};
use bellwether_core::contract::InstanceConfig;
use bellwether_core::lease_object::{SWITCHOVER, SWITCHOVER_ASKED};
use bellwether_core::rbac;
use bellwether_operator::{RunError, Settings, run};
use bellwether_runtime::leader::{Election, Timing};
use bellwether_runtime::{client, telemetry};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use kube::{Client, Config, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub const SYSTEM_NAMESPACE: &str = "bellwether-system";
pub const NAMESPACE: &str = "shop";
pub const SYSTEM: &str = "7000000000000000001";
/// Nothing here takes seconds; what takes this long will not happen.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Stage {
    pub server: Running,
    pub admin: Client,
}

/// An operator that runs; it is stopped by [`Operator::stop`].
pub struct Operator {
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), RunError>>,
}

impl Operator {
    pub async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap();
    }

    /// As `kill -9`: nothing is finished, nothing given back.
    pub async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }

    /// Waits for it to end by itself.
    pub async fn ended(self) -> Result<(), RunError> {
        tokio::time::timeout(PATIENCE, self.task).await.expect("it ends").unwrap()
    }
}

impl Stage {
    pub async fn set() -> Self {
        client::install_crypto();
        if std::env::var_os(telemetry::FILTER).is_some() {
            // Another test of this process may have done it.
            let _ = telemetry::init_with("test", telemetry::Format::Human, telemetry::Sink::Stderr);
        }
        let server = Server::start(ServerConfig::in_memory()).await.unwrap();
        let admin = connect(&server.admin_kubeconfig().unwrap()).await;
        let stage = Self { server, admin };
        stage.install().await;
        stage
    }

    async fn install(&self) {
        let post = PostParams::default();
        let crds: Api<CustomResourceDefinition> = Api::all(self.admin.clone());
        for definition in v1::crds() {
            crds.create(&post, &definition).await.unwrap();
        }
        for name in [SYSTEM_NAMESPACE, NAMESPACE] {
            let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            Api::<Namespace>::all(self.admin.clone()).create(&post, &namespace).await.unwrap();
        }
        Api::<ClusterRole>::all(self.admin.clone()).create(&post, &rbac::operator_role()).await.unwrap();
        let leaders: Role = serde_json::from_value(json!({
            "metadata": {"name": rbac::OPERATOR_LEADER}, "rules": rbac::leader_rules(),
        }))
        .unwrap();
        self.system::<Role>().create(&post, &leaders).await.unwrap();
        self.hire(rbac::OPERATOR).await;
    }

    /// An account that may do what the operator may in [`NAMESPACE`], and nothing anywhere else.
    pub async fn hire_for_namespace(&self, name: &str) {
        let post = PostParams::default();
        let role: Role =
            serde_json::from_value(json!({"metadata": {"name": name}, "rules": rbac::operator_rules()})).unwrap();
        self.api::<Role>().create(&post, &role).await.unwrap();
        let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        self.system::<ServiceAccount>().create(&post, &account).await.unwrap();
        let bound: RoleBinding = serde_json::from_value(binding(name, "Role", name)).unwrap();
        self.api::<RoleBinding>().create(&post, &bound).await.unwrap();
    }

    /// Takes all permissions away.
    pub async fn remove_role(&self) {
        let roles = Api::<ClusterRole>::all(self.admin.clone());
        roles.delete(rbac::OPERATOR, &Default::default()).await.unwrap();
    }

    /// An account that may do what the operator may.
    async fn hire(&self, name: &str) {
        let post = PostParams::default();
        let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        self.system::<ServiceAccount>().create(&post, &account).await.unwrap();
        let everywhere: ClusterRoleBinding =
            serde_json::from_value(binding(name, "ClusterRole", rbac::OPERATOR)).unwrap();
        Api::<ClusterRoleBinding>::all(self.admin.clone()).create(&post, &everywhere).await.unwrap();
        let at_home: RoleBinding = serde_json::from_value(binding(name, "Role", rbac::OPERATOR_LEADER)).unwrap();
        self.system::<RoleBinding>().create(&post, &at_home).await.unwrap();
    }

    fn system<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.admin.clone(), SYSTEM_NAMESPACE)
    }

    /// Starts an operator under its own service account. One worker, so that clusters are worked on in order.
    pub async fn operator(&self) -> Operator {
        self.operator_as(rbac::OPERATOR, Settings::default()).await
    }

    /// Starts an operator that takes part in an election, under this name and an account of the same name.
    pub async fn candidate(&self, name: &str, timing: Timing) -> Operator {
        self.candidate_by(name, timing, |client| client).await
    }

    /// The same, with something between it and the API server.
    pub async fn candidate_by(&self, name: &str, timing: Timing, wrap: impl FnOnce(Client) -> Client) -> Operator {
        self.hire(name).await;
        let election = Election {
            namespace: SYSTEM_NAMESPACE.into(),
            name: rbac::LEADER_LEASE.into(),
            identity: name.into(),
            timing,
        };
        self.operator_by(name, Settings { election: Some(election), ..Settings::default() }, wrap).await
    }

    /// Starts an operator under this account.
    pub async fn operator_as(&self, account: &str, settings: Settings) -> Operator {
        self.operator_by(account, settings, |client| client).await
    }

    async fn operator_by(&self, account: &str, settings: Settings, wrap: impl FnOnce(Client) -> Client) -> Operator {
        let kubeconfig = self.server.kubeconfig_for_service_account(SYSTEM_NAMESPACE, account).unwrap();
        let traffic = settings.listening.as_ref().map(|listening| listening.traffic.clone()).unwrap_or_default();
        let client = client::observed(config(&kubeconfig).await, &traffic).unwrap();
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(run(wrap(client), Settings { workers: 1, ..settings }, shutdown.clone()));
        Operator { shutdown, task }
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    pub async fn create_cluster(&self, name: &str, spec: Value) {
        let cluster: PostgresCluster = serde_json::from_value(json!({
            "apiVersion": "bellwether.dev/v1", "kind": "PostgresCluster", "metadata": {"name": name}, "spec": spec,
        }))
        .unwrap();
        self.api::<PostgresCluster>().create(&PostParams::default(), &cluster).await.unwrap();
    }

    /// Waits until `done` of the cluster.
    pub async fn wait(&self, name: &str, what: &str, done: impl Fn(&PostgresCluster) -> bool) -> PostgresCluster {
        self.until(what, async || {
            let cluster = self.api::<PostgresCluster>().get_opt(name).await.unwrap();
            cluster.filter(&done).ok_or_else(String::new)
        })
        .await
    }

    /// Asks again with every change of the store until there is an answer.
    pub async fn until<T>(&self, what: &str, ask: impl AsyncFn() -> Result<T, String>) -> T {
        let shared = self.server.shared();
        let mut changes = shared.changes();
        let waiting = async {
            loop {
                changes.borrow_and_update();
                match ask().await {
                    Ok(value) => return value,
                    Err(_) => changes.changed().await.unwrap(),
                }
            }
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(value) => value,
            Err(_) => panic!("{what}: not within {PATIENCE:?}; {}", self.describe().await),
        }
    }

    /// Plays every kubelet and every agent until the cluster is in the wanted phase.
    pub async fn play_until(&self, name: &str, phase: v1::Phase) -> PostgresCluster {
        self.until(&format!("{name} {phase:?}"), async || {
            self.play(name).await;
            let cluster = self.api::<PostgresCluster>().get(name).await.map_err(|error| error.to_string())?;
            let reached = cluster.status.as_ref().and_then(|status| status.phase) == Some(phase);
            if reached { Ok(cluster) } else { Err(String::new()) }
        })
        .await
    }

    pub async fn play(&self, name: &str) {
        let configs: Api<ConfigMap> = self.api();
        let Some(config) = configs.get_opt(&format!("{name}-config")).await.unwrap() else { return };
        let config: InstanceConfig = serde_json::from_str(&config.data.unwrap()["instance.json"]).unwrap();
        let leases: Api<Lease> = self.api();
        let Some(mut lease) = leases.get_opt(name).await.unwrap() else { return };
        if !lease.annotations().contains_key(labels::LEADER) {
            let leader = json!({"instance": config.bootstrap_instance, "address": "127.0.0.1"}).to_string();
            lease.annotations_mut().insert(labels::LEADER.to_owned(), leader);
            lease.annotations_mut().insert(labels::SYSTEM_IDENTIFIER.to_owned(), SYSTEM.to_owned());
            lease.spec.get_or_insert_default().lease_transitions = Some(1);
            leases.replace(name, &PostParams::default(), &lease).await.unwrap();
        }
        if lease.annotations_mut().remove(SWITCHOVER).is_some() {
            self.hand_over(name, lease.clone()).await;
            return;
        }
        let leader: Value = serde_json::from_str(&lease.annotations()[labels::LEADER]).unwrap();
        let selector = ListParams::default().labels(&format!("{}={name}", labels::CLUSTER));
        for pod in self.api::<Pod>().list(&selector).await.unwrap() {
            self.play_pod(name, &pod, leader["instance"] == pod.name_any().as_str()).await;
        }
    }

    /// The primary follows a request: the next instance leads, and both say so anew.
    async fn hand_over(&self, name: &str, mut lease: Lease) {
        let leader: Value = serde_json::from_str(&lease.annotations()[labels::LEADER]).unwrap();
        let pods: Api<Pod> = self.api();
        let all = pods.list(&ListParams::default().labels(&format!("{}={name}", labels::CLUSTER))).await.unwrap();
        let next = all.iter().map(ResourceExt::name_any).find(|other| leader["instance"] != other.as_str()).unwrap();
        let unsaid = json!({"metadata": {"annotations": {labels::REPORT: null}}});
        for pod in [leader["instance"].as_str().unwrap(), &next] {
            pods.patch(pod, &PatchParams::default(), &Patch::Merge(&unsaid)).await.unwrap();
        }
        let led = json!({"instance": next, "address": "127.0.0.1"}).to_string();
        lease.annotations_mut().insert(labels::LEADER.to_owned(), led);
        lease.annotations_mut().remove(SWITCHOVER_ASKED);
        let spec = lease.spec.get_or_insert_default();
        spec.lease_transitions = spec.lease_transitions.map(|term| term + 1);
        self.api::<Lease>().replace(name, &PostParams::default(), &lease).await.unwrap();
    }

    async fn play_pod(&self, cluster: &str, pod: &Pod, leads: bool) {
        let pods: Api<Pod> = self.api();
        let name = pod.name_any();
        if pod.metadata.deletion_timestamp.is_some() {
            // The kubelet's last word: everything has stopped.
            let now = kube::api::DeleteParams::default().grace_period(0);
            let _ = pods.delete(&name, &now).await;
            return;
        }
        if pod.annotations().contains_key(labels::REPORT) {
            return;
        }
        let serial = name.rsplit('-').next().unwrap();
        let (role, state) = if leads { ("primary", "Leading") } else { ("standby", "Streaming") };
        let status = json!({"status": {
            "phase": "Running", "podIP": format!("10.0.0.{serial}"), "conditions": [{"type": "Ready", "status": "True"}],
        }});
        pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
        let report =
            json!({"role": role, "state": state, "acceptsSql": true, "timeline": 1, "systemIdentifier": SYSTEM});
        let metadata = json!({"metadata": {"annotations": {labels::REPORT: report.to_string()}}});
        pods.patch(&name, &PatchParams::default(), &Patch::Merge(&metadata)).await.unwrap();
        if leads {
            let endpoints = json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": format!("{cluster}-rw")},
                "addressType": "IPv4", "endpoints": [{"addresses": [format!("10.0.0.{serial}")]}],
            });
            let slices: Api<EndpointSlice> = self.api();
            let agent = PatchParams::apply(labels::AGENT_MANAGER);
            slices.patch(&format!("{cluster}-rw"), &agent, &Patch::Apply(&endpoints)).await.unwrap();
        }
    }

    /// What the operator wrote since `since` entries, status and events included.
    pub fn writes(&self) -> Vec<AuditEntry> {
        self.server.audit().writes_by(&user(rbac::OPERATOR))
    }

    /// What an account wrote.
    pub fn writes_of(&self, account: &str) -> Vec<String> {
        self.server.audit().writes_by(&user(account)).iter().map(described).collect()
    }

    /// What the operator was refused.
    pub fn refusals(&self) -> Vec<String> {
        self.refusals_of(rbac::OPERATOR)
    }

    /// What an account was refused for want of a permission.
    pub fn refusals_of(&self, account: &str) -> Vec<String> {
        self.server.audit().refusals_of(&user(account)).iter().map(described).collect()
    }

    async fn describe(&self) -> String {
        let clusters = self.api::<PostgresCluster>().list(&ListParams::default()).await.unwrap();
        let statuses: Vec<_> = clusters.iter().map(|cluster| serde_json::to_string(&cluster.status).unwrap()).collect();
        format!("{statuses:?}, refused: {:?}", self.refusals())
    }
}

fn binding(account: &str, kind: &str, role: &str) -> Value {
    json!({
        "metadata": {"name": account},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": SYSTEM_NAMESPACE}],
    })
}

fn user(account: &str) -> String {
    format!("system:serviceaccount:{SYSTEM_NAMESPACE}:{account}")
}

fn described(entry: &AuditEntry) -> String {
    format!("{} {}/{} {}", entry.verb, entry.group, entry.resource, entry.name.as_deref().unwrap_or_default())
}

async fn connect(kubeconfig: &str) -> Client {
    client::from_config(config(kubeconfig).await).unwrap()
}

async fn config(kubeconfig: &str) -> Config {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap()
}
