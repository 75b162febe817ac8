//! What the children of a cluster are called. One place, so that nobody spells a name a second time.

/// The names that belong to one `PostgresCluster`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    cluster: String,
}

impl Names {
    /// The names of the cluster called `cluster`.
    pub fn of(cluster: impl Into<String>) -> Self {
        Self { cluster: cluster.into() }
    }
    /// The cluster's own name.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }
    /// The Lease that says who leads, and since which term.
    pub fn lease(&self) -> String {
        self.cluster.clone()
    }
    /// Pod of instance `serial` (1, 2, 3 …). A serial belongs to its volumes: it is taken up again with them, or when they are gone.
    pub fn instance(&self, serial: u32) -> String {
        format!("{}-{serial}", self.cluster)
    }
    /// The serial in an instance's name, if the name is one of ours.
    pub fn serial(&self, instance: &str) -> Option<u32> {
        instance.strip_prefix(&self.cluster)?.strip_prefix('-')?.parse().ok()
    }
    /// The data volume of an instance.
    pub fn data_volume(&self, instance: &str) -> String {
        format!("{instance}-data")
    }
    /// The WAL volume of an instance, where the cluster has one.
    pub fn wal_volume(&self, instance: &str) -> String {
        format!("{instance}-wal")
    }
    /// Service to the primary.
    pub fn rw(&self) -> String {
        format!("{}-rw", self.cluster)
    }
    /// Service to the standbys.
    pub fn ro(&self) -> String {
        format!("{}-ro", self.cluster)
    }
    /// Service to any instance.
    pub fn r(&self) -> String {
        format!("{}-r", self.cluster)
    }
    /// Headless Service that gives instances their names in certificates: `<instance>.<cluster>-pods.<namespace>.svc`.
    pub fn pods(&self) -> String {
        format!("{}-pods", self.cluster)
    }
    /// The name that an instance's server certificate covers.
    pub fn host(&self, instance: &str, namespace: &str) -> String {
        format!("{instance}.{}.{namespace}.svc", self.pods())
    }
    /// Secret: the cluster's certificate authority (`ca.crt`, `ca.key`). Never mounted into a pod.
    pub fn ca(&self) -> String {
        format!("{}-ca", self.cluster)
    }
    /// Secret: the server certificate of every instance (`tls.crt`, `tls.key`, `ca.crt`).
    pub fn server_tls(&self) -> String {
        format!("{}-server", self.cluster)
    }
    /// Secret: the client certificate for replication and between agents (`tls.crt`, `tls.key`, `ca.crt`).
    pub fn replication_tls(&self) -> String {
        format!("{}-replication", self.cluster)
    }
    /// Secret: the superuser's user name and password.
    pub fn superuser(&self) -> String {
        format!("{}-superuser", self.cluster)
    }
    /// Secret for applications: host, port, dbname, username, password, uri, jdbc-uri, ca.crt.
    pub fn app(&self) -> String {
        format!("{}-app", self.cluster)
    }
    /// ConfigMap with what agents need to know (key [`CONFIG_KEY`]).
    pub fn config(&self) -> String {
        format!("{}-config", self.cluster)
    }
    /// Service account, Role and RoleBinding of the cluster's agents.
    pub fn agent_account(&self) -> String {
        format!("{}-agent", self.cluster)
    }
    /// The disruption budget.
    pub fn disruption_budget(&self) -> String {
        self.cluster.clone()
    }
}

/// The key of the ConfigMap [`Names::config`] whose value is the agents' configuration, JSON.
pub const CONFIG_KEY: &str = "instance.json";
