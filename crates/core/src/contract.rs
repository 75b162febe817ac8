//! What operator, agent and the home they run in (a kubelet, or `bellwether up`) agree on: environment, paths, ports,
//! and the messages that pass through annotations.
//!
//! Versioned by being additive: an agent must work with the configuration of an operator one release older or newer, so
//! fields are only added, each with a default.

use std::collections::BTreeMap;

use bellwether_api::v1::{BackupStore, DurabilityMode, Initdb, InstanceRole, InstanceState};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::instance::space::VolumeKind;
use crate::object;
use crate::wal::{Lsn, SystemIdentifier, Timeline};

/// Names of the environment variables that a pod's container gets.
pub mod env {
    /// The cluster's name.
    pub const CLUSTER: &str = "BELLWETHER_CLUSTER";
    /// The namespace (downward API).
    pub const NAMESPACE: &str = "BELLWETHER_NAMESPACE";
    /// The instance's name: the pod's (downward API).
    pub const INSTANCE: &str = "BELLWETHER_INSTANCE";
    /// The pod's UID (downward API).
    pub const POD_UID: &str = "BELLWETHER_POD_UID";
    /// The UID of the data volume's claim: whose volume it is that an identity is kept on.
    pub const CLAIM_UID: &str = "BELLWETHER_CLAIM_UID";
    /// The address that PostgreSQL and the agent listen on: the pod's (downward API).
    pub const POD_IP: &str = "BELLWETHER_POD_IP";
    /// PostgreSQL's major version.
    pub const PG_VERSION: &str = "BELLWETHER_PG_VERSION";
    /// Mount of the data volume.
    pub const DATA_DIR: &str = "BELLWETHER_DATA_DIR";
    /// Mount of the WAL volume; unset when there is none.
    pub const WAL_DIR: &str = "BELLWETHER_WAL_DIR";
    /// An empty directory for sockets and generated files.
    pub const RUN_DIR: &str = "BELLWETHER_RUN_DIR";
    /// Mount of the ConfigMap with `instance.json`.
    pub const CONFIG_DIR: &str = "BELLWETHER_CONFIG_DIR";
    /// Mount of the server certificate's Secret.
    pub const SERVER_TLS_DIR: &str = "BELLWETHER_SERVER_TLS_DIR";
    /// Mount of the replication certificate's Secret.
    pub const REPLICATION_TLS_DIR: &str = "BELLWETHER_REPLICATION_TLS_DIR";
    /// Mount of the superuser's Secret.
    pub const SUPERUSER_DIR: &str = "BELLWETHER_SUPERUSER_DIR";
    /// Mount of the application's Secret.
    pub const APP_DIR: &str = "BELLWETHER_APP_DIR";
    /// What is to be verified ([`super::VerifyOrder`], JSON).
    pub const VERIFY: &str = "BELLWETHER_VERIFY";
    /// Mount of the Secret with the object store's credentials, in the pod of a verification.
    pub const STORE_DIR: &str = "BELLWETHER_STORE_DIR";
    /// Where the container of a verification leaves its last words.
    pub const LAST_WORDS: &str = "BELLWETHER_LAST_WORDS";
}

/// Where the volumes are mounted in the container. In `bellwether up` a path below one of these in the value of an
/// environment variable is replaced by the directory that plays the volume.
pub mod path {
    /// The data volume; `pgdata` below it is PostgreSQL's data directory.
    pub const DATA: &str = "/var/lib/bellwether/data";
    /// The WAL volume.
    pub const WAL: &str = "/var/lib/bellwether/wal";
    /// Sockets and generated files; in memory.
    pub const RUN: &str = "/run/bellwether";
    /// The agent's configuration.
    pub const CONFIG: &str = "/etc/bellwether/config";
    /// The server certificate.
    pub const SERVER_TLS: &str = "/etc/bellwether/server-tls";
    /// The replication certificate.
    pub const REPLICATION_TLS: &str = "/etc/bellwether/replication-tls";
    /// The superuser's Secret.
    pub const SUPERUSER: &str = "/etc/bellwether/superuser";
    /// The application's Secret.
    pub const APP: &str = "/etc/bellwether/app";
    /// Where the init container puts our binary.
    pub const BIN: &str = "/opt/bellwether";
    /// The credentials of the object store, in the pod of a verification.
    pub const STORE: &str = "/etc/bellwether/store";
    /// What the container of a verification says at its end, which the kubelet puts into the pod's status.
    pub const LAST_WORDS: &str = "/run/bellwether/last-words";
}

/// The container that runs agent and PostgreSQL.
pub const CONTAINER: &str = "postgres";
/// The role that verifies a backup: what the container of a verification runs.
pub const VERIFY_ROLE: &str = "verify-backup";
/// The init container that copies our binary in.
pub const INIT_CONTAINER: &str = "install-agent";
/// PostgreSQL's port, on the pod's address.
pub const POSTGRES_PORT: u16 = 5432;
/// The agent's HTTPS port, on the pod's address: probes for everybody, the rest by client certificate.
pub const AGENT_PORT: u16 = 8008;
/// The port on which agents of a cluster talk to each other, on the pod's address, by the certificate for replication only.
pub const PEER_PORT: u16 = 8009;

/// How long a pod is given to stop: `terminationGracePeriodSeconds`, by which the agent measures how hard it stops PostgreSQL.
/// A fast shutdown writes a checkpoint, which on a busy server with large buffers takes tens of seconds; what is cut off here is
/// replayed at the next start.
pub const GRACE_PERIOD_SECONDS: u64 = 120;

/// Probes, on [`AGENT_PORT`]. 200 is yes, 503 is no; the body says why in one line.
pub mod probe {
    /// The instance has been bootstrapped or joined, and PostgreSQL has started once.
    pub const STARTUP: &str = "/startupz";
    /// SQL answers; a standby streams or is catching up.
    pub const READY: &str = "/readyz";
    /// The agent itself.
    pub const LIVE: &str = "/livez";
    /// Everything the agent knows of itself, JSON ([`super::Detail`]); only with a certificate of the cluster's CA.
    pub const DETAIL: &str = "/status";
}

/// The role for replication and between agents; it logs in by certificate, whose common name it is.
pub const REPLICATION_USER: &str = "bellwether_replication";
/// The superuser; locally by peer or the operating-system user's map, remotely by password.
pub const SUPERUSER: &str = "postgres";

/// Keys of our Secrets.
pub mod key {
    /// A certificate, PEM.
    pub const TLS_CRT: &str = "tls.crt";
    /// Its private key, PEM.
    pub const TLS_KEY: &str = "tls.key";
    /// The authority's certificate, PEM.
    pub const CA_CRT: &str = "ca.crt";
    /// The authority's private key, PEM.
    pub const CA_KEY: &str = "ca.key";
    /// A role's name.
    pub const USERNAME: &str = "username";
    /// A role's password.
    pub const PASSWORD: &str = "password";
    /// The host name of the read-write Service.
    pub const HOST: &str = "host";
    /// The port.
    pub const PORT: &str = "port";
    /// The application's database.
    pub const DBNAME: &str = "dbname";
    /// Everything in one `postgresql://` URI.
    pub const URI: &str = "uri";
    /// Everything in one `jdbc:postgresql://` URI.
    pub const JDBC_URI: &str = "jdbc-uri";
}

/// The agents' configuration: the value of `instance.json`. What can change without a restart of the pod is here and not
/// in the pod's spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceConfig {
    /// `spec.parameters`, already checked.
    pub parameters: BTreeMap<String, String>,
    /// `spec.pgHba`.
    pub pg_hba: Vec<String>,
    /// `spec.bootstrap.initdb`.
    pub initdb: Initdb,
    /// The durability in force.
    pub durability: Option<DurabilityMode>,
    /// The instances that belong to the cluster; slots exist for these.
    pub instances: Vec<String>,
    /// Instances that are on their way out, and in `instances` no more: whoever leads lets them leave the members of the election, and drops their
    /// slots once nobody streams from them. All are talked to until they are gone: an acknowledged commit may be on nobody else.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<Leaving>,
    /// The instance that may initialise the cluster if nobody ever has: exactly one, chosen by the operator.
    pub bootstrap_instance: String,
    /// The system identifier that the operator knows of, from status or from adopted volumes. When it is set, nobody may
    /// initialise anything.
    pub system_identifier: Option<SystemIdentifier>,
    /// The user's `spec.image` volumes have WAL of their own.
    pub wal_volume: bool,
    /// Instances whose PostgreSQL is to be stopped, and to stay so.
    pub fenced: Vec<String>,
    /// The primary that is to restart PostgreSQL in place, because nothing but lower values wait for it ([`Report::lowered`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
    /// Where backups and the log go; nothing where no store is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<Archive>,
    /// Where the database comes from, of a cluster that is to be restored and has not been yet. Whoever may initialise restores instead, and nobody initialises.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryOrder>,
}

impl InstanceConfig {
    /// Whether this instance is on its way out.
    pub fn is_leaving(&self, instance: &str) -> bool {
        self.leaving.iter().any(|leaving| leaving.instance == instance)
    }

    /// Everybody who may be talked to.
    pub fn everybody(&self) -> Vec<String> {
        let leaving = self.leaving.iter().map(|leaving| leaving.instance.clone());
        self.instances.iter().cloned().chain(leaving).collect()
    }
}

/// An instance that is on its way out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leaving {
    /// Which.
    pub instance: String,
    /// Since when, by the operator's clock.
    pub since: Timestamp,
}

/// A restart in place that is asked of a primary. It is for the one that is asked, and not for its successors: one that could not start
/// with the lower values is replaced, and its successor would fail in the same way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Restart {
    /// The primary.
    pub instance: String,
    /// The term in which it leads.
    pub term: u64,
}

/// Where backups and the log of a cluster go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Archive {
    /// The store.
    pub store: BackupStore,
    /// One life of the database: nobody else ever writes where this one does, also not a cluster that was restored from it.
    pub incarnation: String,
    /// How long backups and their log are kept (`spec.backup.retention`). Of nothing, as an older operator says it, nothing is removed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub retention: String,
    /// How base backups are taken.
    #[serde(skip_serializing_if = "Effort::is_left_to_the_agent")]
    pub effort: Effort,
    /// The backup that is to be taken now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<BackupOrder>,
}

/// How base backups are taken; what is left out, the agent chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Effort {
    /// The level of zstd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<i32>,
    /// How many processors compress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// What PostgreSQL reads at most, in KiB a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rate: Option<u32>,
}

impl Effort {
    fn is_left_to_the_agent(&self) -> bool {
        *self == Self::default()
    }
}

/// A database that is to be restored. It is read strictly: a target that an agent does not know must not become another one, so an agent that
/// can't read it has no configuration, and waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecoveryOrder {
    /// The UID of the cluster that it becomes the database of: what is on a volume was restored for this one, or for another.
    pub incarnation: String,
    /// The store.
    pub store: BackupStore,
    /// The archive in it: its directory, or `namespace/cluster` where only one is that cluster's.
    pub archive: String,
    /// The backup's name in the store; nothing for the newest from which the target can be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,
    /// How far.
    pub target: RecoveryTarget,
    /// Which way where the history forks.
    pub way: RecoveryWay,
}

/// How far a database is restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum RecoveryTarget {
    /// To the end of the log.
    Latest,
    /// To what was committed up to this time.
    Time {
        /// The time.
        at: Timestamp,
        /// Whether what was committed exactly then is left out.
        exclusive: bool,
    },
    /// To this position.
    Lsn {
        /// The position.
        at: Lsn,
        /// Whether what begins exactly there is left out.
        exclusive: bool,
    },
    /// To the restore point of this name.
    Name(String),
    /// To the commit of this transaction.
    Transaction {
        /// Its number.
        xid: u64,
        /// Whether it is left out itself.
        exclusive: bool,
    },
}

/// Which way a recovery goes where the history forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RecoveryWay {
    /// To the newest timeline.
    Latest,
    /// On the backup's own.
    Current,
    /// To this one.
    Timeline(Timeline),
}

/// How the restore of a new cluster's database goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecoveryState {
    /// It is under way, or waits for a store that does not answer.
    Restoring,
    /// There is no such archive in the store. It is looked for again.
    NoSource,
    /// What is asked for can't be reached. Nothing was touched, and it is looked at again.
    OutOfReach,
    /// It was tried, and ended with an error. It is not begun again by itself.
    Failed,
}

/// A backup that is to be taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackupOrder {
    /// The `Backup`'s name.
    pub backup: String,
    /// Its UID.
    pub uid: String,
    /// Which attempt it is, counted from 1.
    pub attempt: i32,
    /// The instance that takes it.
    pub instance: String,
}

/// What the pod of a verification is told, in [`env::VERIFY`]. Nothing in it is secret: credentials are mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VerifyOrder {
    /// The store.
    pub store: BackupStore,
    /// The archive in it: the directory below the store's URL.
    pub archive: String,
    /// The backup's name in the store.
    pub id: String,
    /// What must be so in the restored database besides.
    pub queries: Vec<VerifyQuery>,
    /// How long any of its phases may take.
    pub patience_seconds: u64,
}

/// A query, and what it has to answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VerifyQuery {
    /// The database.
    pub database: String,
    /// The statement.
    pub sql: String,
    /// The rows.
    pub expected: Vec<Vec<String>>,
}

/// What came of a verification: the last words of its container ([`path::LAST_WORDS`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VerifyResult {
    /// What it says of the backup.
    pub outcome: VerifyOutcome,
    /// What is wrong, with the backup or with its verification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finding: Option<String>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// How long each phase took, in milliseconds.
    pub phases: Vec<(String, u64)>,
    /// How long it took to a database that accepts writes, in milliseconds.
    pub restored_in: u64,
    /// Where recovery ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached: Option<Lsn>,
    /// On which timeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// When the last byte of the backup was read: how old the data is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_of: Option<Timestamp>,
    /// What could not be looked at, and why.
    pub not_looked_at: Vec<String>,
    /// How many queries answered as expected.
    pub queries: u64,
    /// Why the store does not say that the backup is good, if it doesn't.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_recorded: Option<String>,
}

/// What a verification says of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum VerifyOutcome {
    /// Nothing: it could not be finished, for a reason that is not the backup's.
    #[default]
    Inconclusive,
    /// It was restored and recovered, and nothing is wrong with it.
    Good,
    /// It is none.
    Bad,
}

/// Which parameters an agent speaks of ([`Report::parameters`]).
pub fn parameters_hash(parameters: &BTreeMap<String, String>) -> String {
    object::hash(&serde_json::json!(parameters))
}

/// What an agent says about itself, in the annotation [`bellwether_api::labels::REPORT`] of its own pod: coarse, and
/// written on change only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    /// Its role, once it has one.
    pub role: Option<InstanceRole>,
    /// What it is doing.
    pub state: InstanceState,
    /// The term it leads or follows.
    pub term: Option<u64>,
    /// PostgreSQL's timeline.
    pub timeline: Option<Timeline>,
    /// The volume's system identifier.
    pub system_identifier: Option<SystemIdentifier>,
    /// Whether SQL answers. On a primary: over TLS, as the application's user, not in recovery.
    pub accepts_sql: bool,
    /// On a primary: whether commits wait, because fewer standbys stream than must acknowledge.
    pub commits_wait: bool,
    /// Its volumes that are full. A primary refuses writes then, a standby receives nothing.
    pub full: Vec<VolumeKind>,
    /// Why it isn't further, for people; with progress in tens of per cent while it joins.
    pub message: Option<String>,
    /// Parameters whose new value waits for a restart of PostgreSQL.
    pub pending_restart: Vec<String>,
    /// Parameters that a standby must not have below its primary's, and that are to be lower. On a primary: those of `pending_restart` that only
    /// its restart as primary lowers. On a standby: those that it has above the spec, because its WAL was written with more.
    pub lowered: Vec<String>,
    /// The hash of the parameters that this is said of ([`parameters_hash`]); nothing before PostgreSQL was asked, or by an older agent.
    pub parameters: Option<String>,
    /// PostgreSQL's full version, such as `17.6`.
    pub postgres_version: Option<String>,
    /// Who it is to the election: the identity of its volume, as the Lease has it among the members. Nothing by an older agent.
    pub identity: Option<String>,
    /// On a primary: the instances that it keeps a replication slot for. Nothing by others, or by an older agent.
    pub slots: Option<Vec<String>>,
    /// On a primary with an archive: what is wrong with it, or nothing. Nothing by others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archiving: Option<Archiving>,
    /// How the restore of the cluster's database goes, by the instance that does it. Nothing once it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryState>,
    /// The backup that it was told to take, until it is told of none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupReport>,
    /// Version of the agent.
    pub agent_version: String,
}

/// How the archive of the log is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Archiving {
    /// Why the log does not get into the store; nothing when it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing: Option<String>,
    /// Up to when the log is in the store, said only while no more of it gets there: otherwise it would be another time with each segment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// What became of retention; nothing before it was looked at, or by an older agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retained>,
}

/// What became of retention, when it was last carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Retained {
    /// What was to be kept, as the agent was told.
    pub policy: String,
    /// Since when every moment can be restored, by what is in the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Why what is to go is still there; nothing when it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing: Option<String>,
    /// What somebody must know of the archive, though all that may go is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alarm: Option<String>,
    /// What went when something last did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<Removed>,
}

/// What retention removed at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Removed {
    /// When all of it was gone.
    pub at: Option<Timestamp>,
    /// So many backups, and what was left of so many that were broken off.
    pub backups: u64,
    /// So many files of the log.
    pub log: u64,
    /// Bytes of all of it in the store.
    pub bytes: u64,
}

/// What became of a backup that an instance was told to take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackupReport {
    /// The `Backup`'s UID.
    pub uid: String,
    /// Which attempt.
    pub attempt: i32,
    /// How far it is.
    pub state: BackupState,
    /// What it is doing, in tens of per cent, or why it failed; for people.
    pub message: Option<String>,
    /// Its name in the store.
    pub id: Option<String>,
    /// The archive in the store: the directory below the store's URL.
    pub archive: Option<String>,
    /// When it was begun.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// Bytes of the database's files.
    pub bytes: Option<u64>,
    /// Bytes in the store.
    pub stored: Option<u64>,
    /// The timeline.
    pub timeline: Option<Timeline>,
    /// Where recovery begins.
    pub start: Option<Lsn>,
    /// What recovery must reach.
    pub stop: Option<Lsn>,
}

/// How far a backup is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum BackupState {
    /// Under way.
    #[default]
    Running,
    /// All of it was read back from the store.
    Completed,
    /// It failed, and may succeed when it is tried again.
    Failed,
}

/// Where the leader is: the annotation [`bellwether_api::labels::LEADER`] on the Lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leader {
    /// The instance's name.
    pub instance: String,
    /// Its address.
    pub address: String,
}

/// What [`probe::DETAIL`] answers: the report, and what moves too fast for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Detail {
    /// The report as last written.
    pub report: Report,
    /// The write position on a primary, the replayed one on a standby.
    pub lsn: Option<Lsn>,
    /// Bytes not replayed yet, on a standby.
    pub lag_bytes: Option<u64>,
    /// Seconds since the last replayed transaction on a standby that has something to replay; 0 when it has replayed all.
    pub lag_seconds: Option<f64>,
    /// The process id of the postmaster.
    pub postmaster_pid: Option<i32>,
    /// When the postmaster started (RFC 3339).
    pub postmaster_started: Option<String>,
    /// Seconds since the agent asked PostgreSQL for all of this that is not in the report; nothing when it never did, or is an older agent.
    pub age_seconds: Option<f64>,
}
