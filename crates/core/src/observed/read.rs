//! From JSON as the API server gives it to what the plan looks at. An object that can't be decoded is named, and makes its kind
//! incomplete: what we can't read must not look absent.

use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_api::labels;
use bellwether_api::names::{CONFIG_KEY, Names};
use bellwether_api::v1::PostgresCluster;
use k8s_openapi::api::coordination::v1 as coordination;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::pod::Given;
use super::{Backup, Lease, Listing, Observed, Pod, RawSource, Secret, Source, Verifier, Volume};
use crate::contract::InstanceConfig;
use crate::fact::Fact;
use crate::force;
use crate::lease_object;
use crate::object::Kind;

/// Everything as JSON, by kind and name. Secrets come without contents: each value that is set is replaced by any other.
#[derive(Clone, Debug, Default)]
pub struct Raw {
    /// The cluster.
    pub cluster: Fact<Arc<Value>>,
    /// Its children. A kind that is missing was not looked at.
    pub children: BTreeMap<Kind, Listing<Arc<Value>>>,
    /// See [`Observed::owner_password`].
    pub owner_password: Fact<String>,
    /// See [`Observed::source`].
    pub source: RawSource,
}

/// What was read from the objects of one cluster the last time: most of them are the same the next time.
#[derive(Debug, Default)]
pub struct Readings {
    cluster: Reading<PostgresCluster>,
    pods: Reading<AnyPod>,
    volumes: Reading<Volume>,
    secrets: Reading<Secret>,
    backups: Reading<Backup>,
    leases: Reading<Lease>,
    config: Option<(Arc<Value>, Fact<InstanceConfig>)>,
}

/// By name, each with the object that it was read from. It is held here, so no other object can have its address.
type Reading<T> = BTreeMap<String, (Arc<Value>, T)>;

/// Reads the world around the cluster called `name`.
pub fn observe(namespace: &str, name: &str, raw: Raw) -> Observed {
    observe_again(namespace, name, raw, &mut Readings::default())
}

/// The same, but for objects that were read before.
pub fn observe_again(namespace: &str, name: &str, mut raw: Raw, readings: &mut Readings) -> Observed {
    let names = Names::of(name);
    let mut unreadable = vec![];
    let cluster = match raw.cluster {
        Fact::Known(value) => {
            let only = Listing { complete: true, items: BTreeMap::from([(name.to_owned(), value)]) };
            let read = |cluster: PostgresCluster| Some(cluster);
            let mut read = decoded("PostgresCluster", &only, read, &mut readings.cluster, &mut unreadable);
            read.items.remove(name).map_or(Fact::Unknown, Fact::Known)
        }
        Fact::Absent => Fact::Absent,
        Fact::Unknown => Fact::Unknown,
    };
    let mut take = |kind| raw.children.remove(&kind).unwrap_or_default();
    let (pods, volumes, secrets) = (take(Kind::Pod), take(Kind::PersistentVolumeClaim), take(Kind::Secret));
    let (backups, leases) = (take(Kind::Backup), take(Kind::Lease));
    let pods = looked_at("Pod", &pods, read_pod, &mut readings.pods, &mut unreadable);
    let (pods, verifiers) = apart(pods);
    let volumes = decoded(
        "PersistentVolumeClaim",
        &volumes,
        |claim| Volume::read(&claim),
        &mut readings.volumes,
        &mut unreadable,
    );
    let secrets = decoded("Secret", &secrets, |secret| read_secret(&secret), &mut readings.secrets, &mut unreadable);
    let backups = decoded("Backup", &backups, Backup::read, &mut readings.backups, &mut unreadable);
    let leases = decoded("Lease", &leases, |lease| read_lease(&lease), &mut readings.leases, &mut unreadable);
    let config = match raw.children.get(&Kind::ConfigMap).map_or(Fact::Unknown, |maps| maps.get(&names.config())) {
        // What can't be read is treated as never written: it is our own object, and the plan writes it anew.
        Fact::Known(map) => match readings.config.take().filter(|(from, _)| Arc::ptr_eq(from, map)) {
            Some((from, config)) => readings.config.insert((from, config)).1.clone(),
            None => {
                let text = map["data"][CONFIG_KEY].as_str().unwrap_or_default();
                let config = Fact::looked_up(serde_json::from_str(text).ok());
                readings.config.insert((map.clone(), config)).1.clone()
            }
        },
        Fact::Absent => Fact::Absent,
        Fact::Unknown => Fact::Unknown,
    };
    let source = Source::read(&raw.source, &mut unreadable);
    Observed {
        namespace: namespace.to_owned(),
        cluster,
        pods,
        verifiers,
        volumes,
        secrets,
        backups,
        lease: match leases.get(&names.lease()) {
            // A Lease from a list that isn't complete may be an old one, and somebody else may lead by now.
            Fact::Known(lease) if leases.complete => Fact::Known(lease.clone()),
            Fact::Absent => Fact::Absent,
            Fact::Known(_) | Fact::Unknown => Fact::Unknown,
        },
        config,
        objects: raw.children,
        owner_password: raw.owner_password,
        source,
        unreadable,
        names,
    }
}

/// The UID of the controller among the owners.
pub(super) fn controller(metadata: &ObjectMeta) -> Option<String> {
    let owners = metadata.owner_references.iter().flatten();
    owners.filter(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone()).next()
}

fn decoded<K: DeserializeOwned, T: Clone>(
    kind: &str,
    listing: &Listing<Arc<Value>>,
    read: impl Fn(K) -> Option<T>,
    last: &mut Reading<T>,
    unreadable: &mut Vec<String>,
) -> Listing<T> {
    looked_at(kind, listing, |value, _| K::deserialize(value).map(&read), last, unreadable)
}

/// A pod of ours.
#[derive(Clone, Debug)]
enum AnyPod {
    Instance(Box<Pod>),
    Verifier(Box<Verifier>),
}

fn apart(pods: Listing<AnyPod>) -> (Listing<Pod>, Listing<Verifier>) {
    let mut instances = Listing { complete: pods.complete, items: BTreeMap::new() };
    let mut verifiers = Listing { complete: pods.complete, items: BTreeMap::new() };
    for (name, pod) in pods.items {
        match pod {
            AnyPod::Instance(pod) => drop(instances.items.insert(name, *pod)),
            AnyPod::Verifier(pod) => drop(verifiers.items.insert(name, *pod)),
        }
    }
    (instances, verifiers)
}

/// A pod's spec is the longest part of it and we wrote it ourselves: it is decoded, to see whether it can be, when it is another than
/// the last time.
fn read_pod(pod: &Value, last: Option<&Value>) -> Result<Option<AnyPod>, serde_json::Error> {
    let spec = pod.get("spec");
    if last.is_none_or(|last| last.get("spec") != spec) {
        Option::<core::PodSpec>::deserialize(spec.unwrap_or(&Value::Null))?;
    }
    Given::deserialize(pod).map(|pod| match Verifier::read(&pod) {
        Some(verifier) => Some(AnyPod::Verifier(Box::new(verifier))),
        None => Pod::read(pod).map(|pod| AnyPod::Instance(Box::new(pod))),
    })
}

/// Reads what is not the same as the last time. `read` is given what was read then under the same name.
fn looked_at<T: Clone>(
    kind: &str,
    listing: &Listing<Arc<Value>>,
    read: impl Fn(&Value, Option<&Value>) -> Result<Option<T>, serde_json::Error>,
    last: &mut Reading<T>,
    unreadable: &mut Vec<String>,
) -> Listing<T> {
    let mut result = Listing { complete: listing.complete, items: BTreeMap::new() };
    last.retain(|name, _| listing.items.contains_key(name));
    for (name, value) in &listing.items {
        let before = last.get(name);
        if let Some((_, item)) = before.filter(|(from, _)| Arc::ptr_eq(from, value)) {
            result.items.insert(name.clone(), item.clone());
            continue;
        }
        match read(value, before.map(|(from, _)| &**from)) {
            Ok(Some(item)) => {
                last.insert(name.clone(), (value.clone(), item.clone()));
                result.items.insert(name.clone(), item);
            }
            Ok(None) => drop(last.remove(name)),
            Err(why) => {
                last.remove(name);
                result.complete = false;
                unreadable.push(format!("{kind} {name}: {why}"));
            }
        }
    }
    result
}

fn read_secret(secret: &core::Secret) -> Option<Secret> {
    let annotation = |key: &str| secret.metadata.annotations.as_ref()?.get(key).cloned();
    let data = secret.data.iter().flatten();
    Some(Secret {
        keys: data.filter(|(_, value)| !value.0.is_empty()).map(|(key, _)| key.clone()).collect(),
        not_after: annotation(labels::NOT_AFTER).and_then(|text| text.parse().ok()),
        issuer: annotation(labels::ISSUER_NOT_AFTER).and_then(|text| text.parse().ok()),
        owner: controller(&secret.metadata),
        applied: annotation(labels::APPLIED_HASH),
        password_from: annotation(labels::PASSWORD_FROM),
    })
}

fn read_lease(lease: &coordination::Lease) -> Option<Lease> {
    let annotation = |key: &str| lease.metadata.annotations.as_ref()?.get(key).cloned();
    Some(Lease {
        name: lease.metadata.name.clone()?,
        uid: lease.metadata.uid.clone()?,
        resource_version: lease.metadata.resource_version.clone()?,
        owner: controller(&lease.metadata),
        leader: annotation(labels::LEADER).and_then(|text| serde_json::from_str(&text).ok()),
        system_identifier: annotation(labels::SYSTEM_IDENTIFIER).and_then(|text| text.parse().ok()),
        members: annotation(lease_object::MEMBERS).and_then(|text| serde_json::from_str(&text).ok()),
        forced: annotation(force::RECORD).and_then(|text| force::Record::read(&text)),
        switchover: annotation(lease_object::SWITCHOVER),
        switchover_asked: annotation(lease_object::SWITCHOVER_ASKED).and_then(|text| text.parse().ok()),
        term: lease.spec.as_ref().and_then(|spec| spec.lease_transitions).and_then(|term| u64::try_from(term).ok()),
        renewed: lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0),
    })
}
