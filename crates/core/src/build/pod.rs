//! The pod of an instance: the agent as PID 1 over PostgreSQL, under Pod Security `restricted`.
//!
//! Never: anything but the user's words in the hash. It is what databases are restarted for, and an operator that was upgraded alone (its
//! image, its defaults, how it builds pods) must restart none; what is new in the pod comes with its next restart.

use std::collections::BTreeMap;

use bellwether_api::v1::PostgresClusterSpec;
use bellwether_api::{labels, versions};
use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource, EnvVar, EnvVarSource,
    HTTPGetAction, ObjectFieldSelector, PersistentVolumeClaimVolumeSource, Pod, PodSecurityContext, PodSpec, Probe,
    ResourceRequirements, SeccompProfile, SecretVolumeSource, SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use serde_json::json;

use super::{Parent, scheduling};
use crate::contract::{
    AGENT_PORT, CONTAINER, GRACE_PERIOD_SECONDS, INIT_CONTAINER, PEER_PORT, POSTGRES_PORT, env, path, probe,
};
use crate::object::{self, Desired, Kind};

/// What a container gets when the spec says nothing. PostgreSQL with its own defaults (128 MB of shared buffers, a hundred
/// connections) lives in 256 MiB when idle and below 1 GiB when busy. There is no CPU limit by default: a throttled agent
/// answers late, and a late answer looks like a dead primary.
const DEFAULT_CPU: &str = "100m";
const DEFAULT_MEMORY: &str = "256Mi";
const DEFAULT_MEMORY_LIMIT: &str = "1Gi";

/// The pod of `instance` on the data volume of this claim, which finds the configuration with this hash.
pub fn pod(parent: &Parent<'_>, instance: &str, claim_uid: &str, config_hash: &str) -> Desired {
    let mut metadata = parent.owned(instance);
    metadata.labels.get_or_insert_default().insert(labels::INSTANCE.to_owned(), instance.to_owned());
    let mut spec = spec(parent, instance);
    metadata.annotations = Some(BTreeMap::from([
        (labels::POD_HASH.to_owned(), current_hash(parent)),
        (labels::CONFIG_HASH.to_owned(), config_hash.to_owned()),
    ]));
    // A volume that was replaced is another instance's, and its pod is made anew with it.
    let claim = value(env::CLAIM_UID, claim_uid);
    spec.containers.iter_mut().for_each(|container| container.env.get_or_insert_default().push(claim.clone()));
    Desired::of(Kind::Pod, instance, &Pod { metadata, spec: Some(spec), ..Pod::default() })
}

/// The hash that a pod would have if it were made now: of what the user says that only a new pod can take up.
pub fn current_hash(parent: &Parent<'_>) -> String {
    let hash = || hash(&parent.cluster.spec);
    match parent.kept {
        Some(kept) => kept.pod_hash(hash),
        None => hash(),
    }
}

fn hash(spec: &PostgresClusterSpec) -> String {
    let mut from = json!({
        "version": spec.version,
        "image": spec.image,
        "imagePullSecrets": spec.image_pull_secrets,
        "resources": spec.resources,
        "scheduling": spec.scheduling,
        "walVolume": spec.storage.wal.is_some(),
    });
    // Said only where there is one, so that the pods of an earlier release keep their hash. PostgreSQL begins to archive at a start, and an agent
    // that was installed before there were archives does not say that it has to.
    if spec.backup.store.is_some() {
        from["archive"] = true.into();
    }
    object::hash(&from)
}

fn spec(parent: &Parent<'_>, instance: &str) -> PodSpec {
    let cluster = &parent.cluster.spec;
    let mut pod = PodSpec {
        hostname: Some(instance.to_owned()),
        subdomain: Some(parent.names.pods()),
        service_account_name: Some(parent.names.agent_account()),
        restart_policy: Some("Always".to_owned()),
        termination_grace_period_seconds: i64::try_from(GRACE_PERIOD_SECONDS).ok(),
        image_pull_secrets: Some(cluster.image_pull_secrets.clone()),
        // Environment variables for every Service of the namespace would change what a pod sees with each new one.
        enable_service_links: Some(false),
        security_context: Some(as_postgres(parent)),
        init_containers: Some(vec![install_agent(parent)]),
        containers: vec![postgres(parent)],
        volumes: Some(volumes(parent, instance)),
        ..PodSpec::default()
    };
    scheduling::apply(parent, &mut pod);
    pod
}

/// Everything in the pod runs as PostgreSQL's user.
pub(super) fn as_postgres(parent: &Parent<'_>) -> PodSecurityContext {
    let uid = parent.settings.postgres_uid;
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(uid),
        run_as_group: Some(uid),
        fs_group: Some(uid),
        // Without it the kubelet walks every file of the volume at each start: hours on a large database.
        fs_group_change_policy: Some("OnRootMismatch".to_owned()),
        seccomp_profile: Some(runtime_default()),
        ..PodSecurityContext::default()
    }
}

/// The image with PostgreSQL.
pub(super) fn image(spec: &PostgresClusterSpec) -> String {
    spec.image.clone().unwrap_or_else(|| versions::default_image(&spec.version))
}

pub(super) fn install_agent(parent: &Parent<'_>) -> Container {
    Container {
        name: INIT_CONTAINER.to_owned(),
        image: Some(parent.settings.image.clone()),
        args: Some(vec!["install".to_owned(), path::BIN.to_owned()]),
        volume_mounts: Some(vec![mount("bin", path::BIN, Access::Write)]),
        resources: Some(resources("10m", "32Mi", "64Mi")),
        security_context: Some(restricted()),
        ..Container::default()
    }
}

fn postgres(parent: &Parent<'_>) -> Container {
    let cluster = &parent.cluster.spec;
    Container {
        name: CONTAINER.to_owned(),
        image: Some(image(cluster)),
        command: Some(vec![format!("{}/bellwether", path::BIN), "agent".to_owned()]),
        env: Some(environment(parent)),
        ports: Some(vec![port("postgresql", POSTGRES_PORT), port("agent", AGENT_PORT), port("peers", PEER_PORT)]),
        volume_mounts: Some(mounts(parent)),
        // A day of seconds: cloning a large database takes hours, and a kubelet that restarts it starts it over.
        startup_probe: Some(https(probe::STARTUP, 1, 86_400)),
        readiness_probe: Some(https(probe::READY, 2, 3)),
        // A minute: the agent answers from memory, so silence this long is a hang and not a load.
        liveness_probe: Some(https(probe::LIVE, 10, 6)),
        resources: Some(with_defaults(cluster.resources.clone().unwrap_or_default())),
        security_context: Some(restricted()),
        ..Container::default()
    }
}

pub(super) fn value(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.to_owned()), value_from: None }
}

fn environment(parent: &Parent<'_>) -> Vec<EnvVar> {
    let field = |name: &str, path: &str| EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector { api_version: Some("v1".to_owned()), field_path: path.to_owned() }),
            ..EnvVarSource::default()
        }),
    };
    let mut variables = vec![
        value(env::CLUSTER, parent.names.cluster()),
        field(env::NAMESPACE, "metadata.namespace"),
        field(env::INSTANCE, "metadata.name"),
        field(env::POD_UID, "metadata.uid"),
        field(env::POD_IP, "status.podIP"),
        value(env::PG_VERSION, &parent.cluster.spec.version),
        value(env::DATA_DIR, path::DATA),
        value(env::RUN_DIR, path::RUN),
        value(env::CONFIG_DIR, path::CONFIG),
        value(env::SERVER_TLS_DIR, path::SERVER_TLS),
        value(env::REPLICATION_TLS_DIR, path::REPLICATION_TLS),
        value(env::SUPERUSER_DIR, path::SUPERUSER),
        value(env::APP_DIR, path::APP),
    ];
    if parent.cluster.spec.storage.wal.is_some() {
        variables.push(value(env::WAL_DIR, path::WAL));
    }
    variables
}

/// A Secret's files.
pub(super) fn secret(name: &str, secret: String) -> Volume {
    Volume {
        name: name.to_owned(),
        // PostgreSQL takes a key that root owns and its group may read; the group is the pod's `fsGroup`.
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret),
            default_mode: Some(0o440),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    }
}

/// An empty directory that goes with the pod.
pub(super) fn scratch(name: &str, medium: Option<&str>) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource { medium: medium.map(str::to_owned), size_limit: None }),
        ..Volume::default()
    }
}

fn volumes(parent: &Parent<'_>, instance: &str) -> Vec<Volume> {
    let names = &parent.names;
    let claim = |name: &str, claim_name: String| Volume {
        name: name.to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource { claim_name, read_only: None }),
        ..Volume::default()
    };
    let mut volumes = vec![
        claim("data", names.data_volume(instance)),
        scratch("run", Some("Memory")),
        scratch("tmp", None),
        scratch("bin", None),
        // A container's own /dev/shm has 64 MiB: one parallel query of PostgreSQL can need more.
        scratch("shm", Some("Memory")),
        Volume {
            name: "config".to_owned(),
            config_map: Some(ConfigMapVolumeSource { name: names.config(), ..ConfigMapVolumeSource::default() }),
            ..Volume::default()
        },
        secret("server-tls", names.server_tls()),
        secret("replication-tls", names.replication_tls()),
        secret("superuser", names.superuser()),
        secret("app", names.app()),
    ];
    if parent.cluster.spec.storage.wal.is_some() {
        volumes.push(claim("wal", names.wal_volume(instance)));
    }
    volumes
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

fn mounts(parent: &Parent<'_>) -> Vec<VolumeMount> {
    let mut mounts = vec![
        mount("data", path::DATA, Access::Write),
        mount("run", path::RUN, Access::Write),
        mount("tmp", "/tmp", Access::Write),
        mount("shm", "/dev/shm", Access::Write),
        mount("bin", path::BIN, Access::Read),
        mount("config", path::CONFIG, Access::Read),
        mount("server-tls", path::SERVER_TLS, Access::Read),
        mount("replication-tls", path::REPLICATION_TLS, Access::Read),
        mount("superuser", path::SUPERUSER, Access::Read),
        mount("app", path::APP, Access::Read),
    ];
    if parent.cluster.spec.storage.wal.is_some() {
        mounts.push(mount("wal", path::WAL, Access::Write));
    }
    mounts
}

pub(super) fn mount(name: &str, path: &str, access: Access) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: (access == Access::Read).then_some(true),
        ..VolumeMount::default()
    }
}

fn https(path: &str, period: i32, failures: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::Int(i32::from(AGENT_PORT)),
            scheme: Some("HTTPS".to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period),
        timeout_seconds: Some(5),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

fn port(name: &str, number: u16) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: i32::from(number),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

pub(super) fn restricted() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        run_as_non_root: Some(true),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
        seccomp_profile: Some(runtime_default()),
        ..SecurityContext::default()
    }
}

pub(super) fn runtime_default() -> SeccompProfile {
    SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }
}

fn resources(cpu: &str, memory: &str, memory_limit: &str) -> ResourceRequirements {
    let quantity = |name: &str, value: &str| (name.to_owned(), Quantity(value.to_owned()));
    ResourceRequirements {
        requests: Some(BTreeMap::from([quantity("cpu", cpu), quantity("memory", memory)])),
        limits: Some(BTreeMap::from([quantity("memory", memory_limit)])),
        ..ResourceRequirements::default()
    }
}

/// The user's own, completed. A limit without a request makes Kubernetes set the request to the limit, so ours is only put
/// in where the user said nothing at all about that resource; a limit is never put below a request.
pub(super) fn with_defaults(mut own: ResourceRequirements) -> ResourceRequirements {
    let says = |own: &ResourceRequirements, name: &str| {
        own.requests.iter().chain(own.limits.iter()).any(|quantities| quantities.contains_key(name))
    };
    let defaults = resources(DEFAULT_CPU, DEFAULT_MEMORY, DEFAULT_MEMORY_LIMIT);
    for name in ["cpu", "memory"] {
        if says(&own, name) {
            continue;
        }
        for (target, default) in [(&mut own.requests, &defaults.requests), (&mut own.limits, &defaults.limits)] {
            if let Some(quantity) = default.as_ref().and_then(|quantities| quantities.get(name)) {
                target.get_or_insert_default().insert(name.to_owned(), quantity.clone());
            }
        }
    }
    own
}
