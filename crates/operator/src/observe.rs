//! Looks at the world around one cluster: from the caches, and live where a cache must not be trusted.
//!
//! Never: calls a cluster absent because a cache doesn't have it. Volumes are deleted and backups fail on that word, so the API server is asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bellwether_api::names::Names;
use bellwether_core::contract::key;
use bellwether_core::fact::Fact;
use bellwether_core::object::Kind;
use bellwether_core::observed::{self, Listing, Observed, Raw, RawSource, Readings};
use bellwether_runtime::watch::Key;
use serde_json::Value;

use crate::caches::Caches;
use crate::failure::Failure;
use crate::port::{Answer, Port, Request, Resource, Verb};

/// Looks.
pub async fn observe(
    port: &impl Port,
    caches: &Caches,
    key: &Key,
    readings: &Mutex<Readings>,
) -> Result<Observed, Failure> {
    let children: BTreeMap<_, _> = Kind::ALL.into_iter().map(|kind| (kind, caches.listing(kind, key))).collect();
    let cached = caches.clusters.group(key).get(&key.name).cloned();
    let has_volumes = children.get(&Kind::PersistentVolumeClaim).is_some_and(|volumes| !volumes.items.is_empty());
    let cluster = match cached {
        Some(cluster) => Fact::Known(cluster),
        None if !caches.clusters.complete() => Fact::Unknown,
        // Nothing hangs on it, so nobody needs to be asked.
        None if !has_volumes && !has_open_backups(&children) => Fact::Absent,
        // A backup may name anything, where the definition's rules are missing. What is no name is not put into an address.
        None if !is_name(&key.name) => Fact::Absent,
        None => Fact::looked_up(live_cluster(port, key).await?),
    };
    let owner_password = match &cluster {
        Fact::Known(cluster) => owner_password(port, key, cluster, &children[&Kind::Secret]).await?,
        Fact::Absent | Fact::Unknown => Fact::Absent,
    };
    let source = match &cluster {
        Fact::Known(cluster) => source(port, key, cluster).await?,
        Fact::Absent | Fact::Unknown => RawSource::default(),
    };
    let mut readings = readings.lock().unwrap_or_else(PoisonError::into_inner);
    let raw = Raw { cluster, children, owner_password, source };
    Ok(observed::observe_again(&key.namespace, &key.name, raw, &mut readings))
}

/// Whether a backup that names the cluster waits, is being taken, or is being verified.
fn has_open_backups(children: &BTreeMap<Kind, Listing<Arc<Value>>>) -> bool {
    let over = |backup: &Value| matches!(backup["status"]["phase"].as_str(), Some("Completed" | "Verified" | "Failed"));
    children.get(&Kind::Backup).is_some_and(|backups| backups.items.values().any(|backup| !over(backup)))
}

fn is_object_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.')
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// The cluster as the API server has it now.
pub async fn live_cluster(port: &impl Port, key: &Key) -> Result<Option<Arc<Value>>, Failure> {
    let found = live(port, Resource::Cluster, &key.namespace, &key.name).await;
    found.map_err(|error| Failure::of(format!("get PostgresCluster {key}"), error))
}

/// Whether the namespace is known to be on its way out. Nothing can be made in it any more, and whatever is there goes.
///
/// What can't be looked at counts as there: the API server refuses what must not be.
pub async fn namespace_ends(port: &impl Port, namespace: &str) -> bool {
    let found = live(port, Resource::Namespace, namespace, namespace).await;
    found.is_ok_and(|found| found.is_some_and(|namespace| !namespace["metadata"]["deletionTimestamp"].is_null()))
}

/// An object as the API server has it now.
pub async fn live(port: &impl Port, resource: Resource, namespace: &str, name: &str) -> Answer {
    port.send(Request { resource, namespace: namespace.to_owned(), name: name.to_owned(), verb: Verb::Get }).await
}

/// The edition of the Secret with the password that the user supplies. No cache has it. Once the application has a password, nothing waits for
/// this one.
pub async fn owner_password(
    port: &impl Port,
    at: &Key,
    cluster: &Value,
    secrets: &Listing<Arc<Value>>,
) -> Result<Fact<String>, Failure> {
    let from = &cluster["spec"]["bootstrap"]["initdb"]["ownerPassword"];
    let (Some(name), Some(wanted)) = (from["name"].as_str(), from["key"].as_str()) else { return Ok(Fact::Absent) };
    let app = secrets.items.get(&Names::of(&at.name).app());
    let found = match live(port, Resource::Child(Kind::Secret), &at.namespace, name).await {
        Ok(found) => found,
        Err(error) if app.is_some_and(|app| has(app, key::PASSWORD)) => {
            tracing::warn!(%error, secret = name, "whether the owner's password was supplied anew can't be seen");
            return Ok(Fact::Unknown);
        }
        Err(error) => return Err(Failure::of(format!("get Secret {}/{name}", at.namespace), error)),
    };
    let edition = |secret: &Value| {
        let metadata = |field: &str| secret["metadata"][field].as_str().unwrap_or_default().to_owned();
        format!("{}/{}", metadata("uid"), metadata("resourceVersion"))
    };
    Ok(Fact::looked_up(found.filter(|secret| has(secret, wanted)).map(|secret| edition(&secret))))
}

/// What a cluster without a database is to be restored from: other objects, which its own caches don't have. Once there is a database nobody asks any more.
pub async fn source(port: &impl Port, at: &Key, cluster: &Value) -> Result<RawSource, Failure> {
    let from = &cluster["spec"]["bootstrap"]["recovery"];
    let mut source = RawSource::default();
    if cluster["status"]["systemIdentifier"].is_string() {
        return Ok(source);
    }
    let mut of = from["cluster"]["name"].as_str().map(str::to_owned);
    if let Some(name) = from["backup"]["name"].as_str().filter(|name| is_object_name(name)) {
        let found = live(port, Resource::Child(Kind::Backup), &at.namespace, name).await;
        let backup = found.map_err(|error| Failure::of(format!("get Backup {}/{name}", at.namespace), error))?;
        of = backup.as_ref().and_then(|backup| backup["spec"]["cluster"].as_str()).map(str::to_owned);
        source.backup = Fact::looked_up(backup);
    }
    // What is no name is not put into an address.
    if let Some(name) = of.filter(|name| is_name(name)) {
        let key = Key { namespace: at.namespace.clone(), name };
        source.cluster = Fact::looked_up(live_cluster(port, &key).await?);
    }
    Ok(source)
}

fn has(secret: &Value, key: &str) -> bool {
    secret["data"][key].as_str().is_some_and(|value| !value.is_empty())
}
