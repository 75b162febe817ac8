//! Labels and annotations: the keys by which our objects find each other.
//!
//! A key is written by exactly one party; the comment says which.

/// Label on everything we create: which cluster it belongs to. Written by the operator.
pub const CLUSTER: &str = "bellwether.dev/cluster";
/// Label on pods and volumes: which instance it belongs to (the pod's name). Written by the operator.
pub const INSTANCE: &str = "bellwether.dev/instance";
/// Label on volumes: `data` or `wal`. Written by the operator.
pub const VOLUME: &str = "bellwether.dev/volume";
/// Label on pods: `primary` or `standby`. Written by the instance's agent.
pub const ROLE: &str = "bellwether.dev/role";
/// The usual label for "who manages this object"; its value is [`MANAGED_BY_VALUE`].
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`] on everything of ours.
pub const MANAGED_BY_VALUE: &str = "bellwether";
/// The usual label for "what this is".
pub const APP_NAME: &str = "app.kubernetes.io/name";
/// The value of [`APP_NAME`] on everything that belongs to a PostgreSQL cluster.
pub const APP_NAME_VALUE: &str = "postgresql";

/// Label on the pod of a verification: the cluster whose backup it restores. Such a pod is no instance, and has no [`CLUSTER`]: neither the
/// disruption budget nor anti-affinity may count it. Written by the operator.
pub const VERIFIES: &str = "bellwether.dev/verifies";
/// Annotation on the pod of a verification: the `Backup`'s name. Written by the operator.
pub const BACKUP: &str = "bellwether.dev/backup";
/// Annotation on the pod of a verification: the `Backup`'s UID. Written by the operator.
pub const BACKUP_UID: &str = "bellwether.dev/backup-uid";

/// Annotation on a pod: the agent's report about itself, JSON. Written by the instance's agent, on change only.
pub const REPORT: &str = "bellwether.dev/report";
/// Annotation on the Lease and on volumes: PostgreSQL's system identifier. On the Lease by the agent that
/// initialised the cluster; on volumes by the operator.
pub const SYSTEM_IDENTIFIER: &str = "bellwether.dev/system-identifier";
/// Annotation on the Lease: which instance leads and where, JSON. Written by the holder's agent.
pub const LEADER: &str = "bellwether.dev/leader";
/// Annotation on volumes: the UID of the `PostgresCluster` that uses the volume. Written by the operator.
pub const CLUSTER_UID: &str = "bellwether.dev/cluster-uid";
/// Annotation on volumes: `Retain` or `Delete`, what happens to it when its cluster is deleted. Written by the operator.
pub const ON_DELETE: &str = "bellwether.dev/on-delete";
/// Annotation on volumes: `primary` or `standby`, the last role of the instance on it. Written by the operator.
pub const LAST_ROLE: &str = "bellwether.dev/last-role";
/// Annotation on certificates' Secrets: when they expire (RFC 3339). Written by the operator.
pub const NOT_AFTER: &str = "bellwether.dev/not-after";
/// Annotation on what a certificate authority issued or is copied into: when that authority expires, which tells one authority
/// from the next. Written by the operator.
pub const ISSUER_NOT_AFTER: &str = "bellwether.dev/issuer-not-after";
/// Annotation on the application's Secret: UID and version of the user's own Secret that its password was taken from. Written by the operator.
pub const PASSWORD_FROM: &str = "bellwether.dev/password-from";
/// Annotation on pods: a hash of what a restart would be needed for. Written by the operator.
pub const POD_HASH: &str = "bellwether.dev/pod-hash";
/// Annotation on pods: a hash of the configuration that there is to read, so that kubelets read it at once. Written by the operator.
pub const CONFIG_HASH: &str = "bellwether.dev/config-hash";
/// Annotation on what the operator applies: a hash of what it last applied, so that a second pass writes nothing.
pub const APPLIED_HASH: &str = "bellwether.dev/applied-hash";

/// Annotation on a `Backup`: the time of the schedule that it was created for (RFC 3339). Written by the operator, at its creation.
pub const SCHEDULED: &str = "bellwether.dev/scheduled";
/// Annotation on a `Backup`: why it was created, for people. Written by the operator, at its creation.
pub const CREATED_BECAUSE: &str = "bellwether.dev/created-because";

/// Annotation on a `PostgresCluster`: instances whose PostgreSQL is to be stopped, separated by commas. Written by people, or for them by
/// `bellwether fence`; we only read it.
pub const FENCED: &str = "bellwether.dev/fenced";

/// Annotation on a `PostgresCluster`: `true` while no rollout and no scale-down may begin a new step. Written by people; we only read it.
pub const PAUSED: &str = "bellwether.dev/paused";

/// The field manager of the operator's server-side applies.
pub const OPERATOR_MANAGER: &str = "bellwether-operator";
/// The field manager of the operator's writes to `status`.
pub const STATUS_MANAGER: &str = "bellwether-operator-status";
/// The field manager of an agent's server-side applies.
pub const AGENT_MANAGER: &str = "bellwether-agent";
