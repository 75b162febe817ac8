//! The pod that verifies a backup: restores it to a volume of its own, under Pod Security `restricted`, and says at its end what came of it.
//!
//! It has nothing of its cluster but the image: no certificate, no password, no token for the API, no label by which Services, the disruption budget or
//! anti-affinity find instances. Never: a volume that outlives it (it is the pod's own, `ephemeral`).

use std::collections::BTreeMap;

use bellwether_api::labels;
use k8s_openapi::api::core::v1::{
    Container, EnvVar, EphemeralVolumeSource, PersistentVolumeClaimSpec, PersistentVolumeClaimTemplate, Pod, PodSpec,
    Volume, VolumeMount, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::Parent;
use super::pod::{Access, as_postgres, image, install_agent, mount, restricted, scratch, secret, value, with_defaults};
use crate::contract::{CONTAINER, VERIFY_ROLE, VerifyOrder, VerifyQuery, env, path};
use crate::object::{Desired, Kind};
use crate::observed::Backup;
use crate::quantity::millis;

/// How long any phase may take, and the whole pod. The largest databases take hours to unpack; what takes longer than this is stuck.
const PATIENCE_SECONDS: u64 = 12 * 3600;
const POD_SECONDS: i64 = 48 * 3600;
const VOLUME: &str = "restored";
/// A name leaves room for what is appended to it.
const LONGEST: usize = 200;

/// The name of the pod that makes this attempt at a backup. No instance and no other backup's pod can have it: theirs have no dot.
pub fn name(backup: &str, attempt: i32) -> String {
    let short: String = backup.chars().take(LONGEST).collect();
    format!("{}.verify-{attempt}", short.trim_end_matches(['-', '.']))
}

/// The pod of this attempt. `archive` and `id` are where the backup is.
pub fn verifier(parent: &Parent<'_>, backup: &Backup, attempt: i32, archive: &str, id: &str) -> Desired {
    let name = name(&backup.name, attempt);
    let mut metadata = parent.owned(&name);
    let labels = metadata.labels.get_or_insert_default();
    labels.remove(labels::CLUSTER);
    labels.insert(labels::VERIFIES.to_owned(), parent.names.cluster().to_owned());
    metadata.annotations = Some(BTreeMap::from([
        (labels::BACKUP.to_owned(), backup.name.clone()),
        (labels::BACKUP_UID.to_owned(), backup.uid.clone()),
    ]));
    Desired::of(Kind::Pod, &name, &Pod { metadata, spec: Some(spec(parent, archive, id)), ..Pod::default() })
}

fn spec(parent: &Parent<'_>, archive: &str, id: &str) -> PodSpec {
    let cluster = &parent.cluster.spec;
    let verification = &cluster.backup.verification;
    let mut volumes = vec![
        restored(parent),
        scratch("run", Some("Memory")),
        scratch("tmp", None),
        scratch("bin", None),
        scratch("shm", Some("Memory")),
    ];
    let mut mounts = vec![
        mount(VOLUME, path::DATA, Access::Write),
        mount("run", path::RUN, Access::Write),
        mount("tmp", "/tmp", Access::Write),
        mount("shm", "/dev/shm", Access::Write),
        mount("bin", path::BIN, Access::Read),
    ];
    let store = cluster.backup.store.as_ref().and_then(|store| store.credentials.as_ref());
    let credentials = verification.credentials.as_ref().or(store);
    if let Some(credentials) = credentials {
        volumes.push(secret("store", credentials.name.clone()));
        mounts.push(mount("store", path::STORE, Access::Read));
    }
    PodSpec {
        // A name with a dot in it is no host's.
        hostname: Some("verify".to_owned()),
        // The store may know it by its account. The API it has no business with.
        service_account_name: Some(parent.names.agent_account()),
        automount_service_account_token: Some(false),
        restart_policy: Some("Never".to_owned()),
        active_deadline_seconds: Some(POD_SECONDS),
        image_pull_secrets: Some(cluster.image_pull_secrets.clone()),
        enable_service_links: Some(false),
        security_context: Some(as_postgres(parent)),
        node_selector: Some(cluster.scheduling.node_selector.clone()).filter(|labels| !labels.is_empty()),
        tolerations: Some(cluster.scheduling.tolerations.clone()),
        init_containers: Some(vec![install_agent(parent)]),
        containers: vec![container(parent, archive, id, mounts, credentials.is_some())],
        volumes: Some(volumes),
        ..PodSpec::default()
    }
}

fn container(parent: &Parent<'_>, archive: &str, id: &str, mounts: Vec<VolumeMount>, secret: bool) -> Container {
    let cluster = &parent.cluster.spec;
    Container {
        name: CONTAINER.to_owned(),
        image: Some(image(cluster)),
        command: Some(vec![format!("{}/bellwether", path::BIN), VERIFY_ROLE.to_owned()]),
        env: Some(environment(parent, archive, id, secret)),
        volume_mounts: Some(mounts),
        resources: Some(with_defaults(cluster.backup.verification.resources.clone().unwrap_or_default())),
        security_context: Some(restricted()),
        termination_message_path: Some(path::LAST_WORDS.to_owned()),
        ..Container::default()
    }
}

fn environment(parent: &Parent<'_>, archive: &str, id: &str, secret: bool) -> Vec<EnvVar> {
    let spec = &parent.cluster.spec;
    let application = &spec.bootstrap.initdb.database;
    let queries = spec.backup.verification.queries.iter().map(|query| VerifyQuery {
        database: query.database.clone().unwrap_or_else(|| application.clone()),
        sql: query.sql.clone(),
        expected: query.expected.clone(),
    });
    let order = VerifyOrder {
        store: spec.backup.store.clone().unwrap_or_default(),
        archive: archive.to_owned(),
        id: id.to_owned(),
        queries: queries.collect(),
        patience_seconds: PATIENCE_SECONDS,
    };
    // Text and numbers throughout: it always serialises.
    let order = serde_json::to_string(&order).unwrap_or_default();
    let mut variables = vec![
        value(env::PG_VERSION, &spec.version),
        value(env::VERIFY, &order),
        value(env::DATA_DIR, path::DATA),
        value(env::RUN_DIR, path::RUN),
        value(env::LAST_WORDS, path::LAST_WORDS),
    ];
    variables.extend(secret.then(|| value(env::STORE_DIR, path::STORE)));
    variables
}

/// As large as all that an instance has: the log that the backup needs goes there too, and no instance lives with full volumes.
fn restored(parent: &Parent<'_>) -> Volume {
    let storage = &parent.cluster.spec.storage;
    let wal = storage.wal.as_ref().map(|wal| &wal.size);
    let class = parent.cluster.spec.backup.verification.storage_class.as_ref().or(storage.storage_class.as_ref());
    let requests = BTreeMap::from([("storage".to_owned(), sum(&storage.size, wal))]);
    let claim = PersistentVolumeClaimSpec {
        access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
        storage_class_name: class.cloned(),
        resources: Some(VolumeResourceRequirements { requests: Some(requests), limits: None }),
        ..PersistentVolumeClaimSpec::default()
    };
    let template = PersistentVolumeClaimTemplate { metadata: None, spec: claim };
    Volume {
        name: VOLUME.to_owned(),
        ephemeral: Some(EphemeralVolumeSource { volume_claim_template: Some(template) }),
        ..Volume::default()
    }
}

fn sum(data: &Quantity, wal: Option<&Quantity>) -> Quantity {
    let sum = wal.and_then(|wal| Some(millis(&data.0)? + millis(&wal.0)?));
    sum.map_or_else(|| data.clone(), |sum| Quantity((sum / 1000).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_name_is_nobody_else_s_and_never_too_long() {
        assert_eq!(name("orders-20260101-0200", 2), "orders-20260101-0200.verify-2");
        let longest = name(&"a".repeat(253), 3);
        assert!(longest.len() <= 253, "{}", longest.len());
        assert_eq!(name(&format!("{}-b", "a".repeat(199)), 1), format!("{}.verify-1", "a".repeat(199)));
    }
}
