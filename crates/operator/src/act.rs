//! Carries out one action of a plan.
//!
//! Never: a delete without the identity and version that it was decided on, or on the word of a cache: before anything is
//! destroyed the cluster and the target are read live, and the cluster before an instance is made.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bellwether_api::labels::{self, LEADER};
use bellwether_api::v1::BackupStatus;
use bellwether_core::build::verifier;
use bellwether_core::contract::{Leader, key};
use bellwether_core::fact::Fact;
use bellwether_core::lease_object::{SWITCHOVER, SWITCHOVER_ASKED};
use bellwether_core::object::Kind;
use bellwether_core::observed::Observed;
use bellwether_core::plan::{Action, Content, Effect, SecretOrder, Target};
use bellwether_runtime::watch::Key;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::caches::Caches;
use crate::failure::Failure;
use crate::observe;
use crate::port::{CallError, Port, Request, Resource, Verb};
use crate::secrets::{self, Contents, Sources};

/// Who acts, on what.
pub struct Actor<'a, P> {
    /// The way to the API server.
    pub port: &'a P,
    /// Where answers are remembered.
    pub caches: &'a Caches,
    /// The cluster.
    pub key: &'a Key,
    /// What the plan was made from.
    pub observed: &'a Observed,
}

impl<P: Port> Actor<'_, P> {
    /// Carries out one action.
    pub async fn carry_out(&self, action: &Action, now: Timestamp) -> Result<(), Failure> {
        let doing = || action.to_string();
        match &action.effect {
            Effect::Apply(desired) => {
                self.write(desired.kind, &desired.name, Verb::Apply(desired.value.clone()), doing).await
            }
            Effect::Create(desired) => {
                // A cluster that is gone gets no pod on a volume that it has left.
                self.still_so(&doing).await?;
                let created =
                    self.write(desired.kind, &desired.name, Verb::Create(Value::clone(&desired.value)), doing).await;
                match created {
                    // Somebody gave that name to a backup of another cluster. It will not go away by being tried again.
                    Err(Failure::Overtaken { .. }) if desired.kind == Kind::Backup => Ok(()),
                    created => created,
                }
            }
            Effect::Issue(order) => self.issue(order, now, doing).await,
            Effect::AnnotateVolume { target, annotations } => {
                let patch = json!({"metadata": {"uid": target.uid, "resourceVersion": target.resource_version, "annotations": annotations}});
                self.write(Kind::PersistentVolumeClaim, &target.name, Verb::Merge(patch), doing).await
            }
            Effect::AnnotatePod { name, uid, annotations } => {
                let patch = json!({"metadata": {"uid": uid, "annotations": annotations}});
                self.write(Kind::Pod, name, Verb::Merge(patch), doing).await
            }
            Effect::GrowVolume { name, uid, size } => {
                let patch = json!({"metadata": {"uid": uid}, "spec": {"resources": {"requests": {"storage": size}}}});
                self.write(Kind::PersistentVolumeClaim, name, Verb::Merge(patch), doing).await
            }
            Effect::DeletePod(target) => self.delete(Kind::Pod, target, doing).await,
            Effect::RestartPod(target) => {
                self.led_as_planned(&doing).await?;
                self.delete(Kind::Pod, target, doing).await
            }
            Effect::AskSwitchover { target, wish } => {
                let (to, asked) = wish.as_ref().map(|(to, at)| (to, at.to_string())).unzip();
                let annotations = json!({SWITCHOVER: to, SWITCHOVER_ASKED: asked});
                let patch = json!({"metadata": {"uid": target.uid, "resourceVersion": target.resource_version, "annotations": annotations}});
                self.write(Kind::Lease, &target.name, Verb::Merge(patch), doing).await
            }
            Effect::CreateVerifier(desired) => {
                self.still_so(&doing).await?;
                self.still_verifying(&desired.value, &doing).await?;
                self.write(desired.kind, &desired.name, Verb::Create(Value::clone(&desired.value)), doing).await
            }
            Effect::DeleteVerifier(target) => self.delete(Kind::Pod, target, doing).await,
            Effect::DeleteVolume(target) => self.delete(Kind::PersistentVolumeClaim, target, doing).await,
            Effect::BackupStatus { target, status } => self.backup_status(target, status, doing).await,
        }
    }

    async fn write(&self, kind: Kind, name: &str, verb: Verb, doing: impl Fn() -> String) -> Result<(), Failure> {
        let written = self.port.send(self.request(kind, name, verb)).await;
        if let Some(object) = written.map_err(|error| Failure::of(doing(), error))? {
            self.caches.remember(kind, object);
        }
        Ok(())
    }

    /// With its UID and version: one that was made anew meanwhile must not get its predecessor's status, and an operator whose view is old must not
    /// take back that it is over.
    async fn backup_status(
        &self,
        target: &Target,
        status: &BackupStatus,
        doing: impl Fn() -> String,
    ) -> Result<(), Failure> {
        let patch = json!({
            "apiVersion": Kind::Backup.api_version(), "kind": Kind::Backup.to_string(),
            "metadata": {"name": target.name, "uid": target.uid, "resourceVersion": target.resource_version}, "status": status,
        });
        match self.port.send(self.request(Kind::Backup, &target.name, Verb::ApplyStatus(patch))).await {
            Ok(Some(object)) => self.caches.remember(Kind::Backup, object),
            // It is gone, and nobody is left to be told.
            Ok(None) | Err(CallError::Refused { code: 404, .. }) => {}
            Err(error) => return Err(Failure::of(doing(), error)),
        }
        Ok(())
    }

    /// Existing contents are read live: a Secret that a cache doesn't have yet must not be made a second time.
    async fn issue(&self, order: &SecretOrder, now: Timestamp, doing: impl Fn() -> String) -> Result<(), Failure> {
        let existing = self.contents(&order.shape.name, &doing).await?.unwrap_or_default();
        let authority = match order.content {
            Content::Authority { .. } | Content::Password { .. } => Contents::new(),
            _ => self.contents(&self.observed.names.ca(), &doing).await?.unwrap_or_default(),
        };
        let owner_password = match &order.content {
            Content::Application { password_from: Some((secret, wanted)), password_anew, .. }
                if *password_anew || !existing.contains_key(key::PASSWORD) =>
            {
                self.contents(secret, &doing).await?.and_then(|contents| contents.get(wanted).cloned())
            }
            _ => None,
        };
        let filled = secrets::fill(self.port.mint(), order, Sources { existing, authority, owner_password }, now)
            .map_err(|error| Failure::Secret { doing: doing(), cause: error.to_string() })?;
        let mut value = Value::clone(&order.shape.value);
        for (key, content) in filled {
            value["data"][key] = BASE64.encode(content).into();
        }
        self.write(Kind::Secret, &order.shape.name, Verb::Apply(value.into()), doing).await
    }

    async fn contents(&self, name: &str, doing: &impl Fn() -> String) -> Result<Option<Contents>, Failure> {
        let found = observe::live(self.port, Resource::Child(Kind::Secret), &self.key.namespace, name).await;
        let Some(secret) = found.map_err(|error| Failure::of(doing(), error))? else { return Ok(None) };
        let data: Option<BTreeMap<String, ByteString>> = serde_json::from_value(secret["data"].clone())
            // The decoder's own words would show the contents.
            .map_err(|_| Failure::Secret { doing: doing(), cause: format!("Secret {name} can't be read") })?;
        Ok(Some(data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect()))
    }

    async fn delete(&self, kind: Kind, target: &Target, doing: impl Fn() -> String) -> Result<(), Failure> {
        self.still_so(&doing).await?;
        if kind == Kind::PersistentVolumeClaim {
            self.no_pod_on(target, &doing).await?;
        }
        let verb = Verb::Delete { uid: target.uid.clone(), resource_version: target.resource_version.clone() };
        // The answer shows the object whether it is gone already or on its way out; only the watch tells these apart.
        match self.port.send(self.request(kind, &target.name, verb)).await {
            Ok(_) | Err(CallError::Refused { code: 404, .. }) => Ok(()),
            Err(error) => Err(Failure::of(doing(), error)),
        }
    }

    /// The cluster is the one that was planned for, or as gone as it was.
    async fn still_so(&self, doing: &impl Fn() -> String) -> Result<(), Failure> {
        let live = observe::live_cluster(self.port, self.key).await?;
        let planned = match &self.observed.cluster {
            Fact::Known(cluster) => cluster.uid(),
            Fact::Absent => None,
            Fact::Unknown => return Err(overtaken(doing, "the cluster was not seen")),
        };
        let leaving = live.as_ref().is_some_and(|cluster| !cluster["metadata"]["deletionTimestamp"].is_null());
        let uid = live.as_ref().and_then(|cluster| cluster["metadata"]["uid"].as_str()).map(str::to_owned);
        match uid == planned && !leaving {
            true => Ok(()),
            false => Err(overtaken(doing, "the cluster was deleted or made anew")),
        }
    }

    /// The backup is still being verified, and this pod's attempt is the one. An operator whose view is old would restore a database once more for
    /// nobody.
    async fn still_verifying(&self, pod: &Value, doing: &impl Fn() -> String) -> Result<(), Failure> {
        let annotation = |key: &str| pod["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned();
        let (name, uid) = (annotation(labels::BACKUP), annotation(labels::BACKUP_UID));
        let found = self.port.send(self.request(Kind::Backup, &name, Verb::Get)).await;
        let backup = found.map_err(|error| Failure::of(doing(), error))?.unwrap_or_default();
        let attempt =
            backup["status"]["verification"]["attempts"].as_i64().and_then(|attempt| i32::try_from(attempt).ok());
        let is_the_one =
            attempt.is_some_and(|attempt| pod["metadata"]["name"] == verifier::name(&name, attempt).as_str());
        let verifying = backup["metadata"]["uid"] == uid.as_str() && backup["status"]["phase"] == "Verifying";
        match verifying && is_the_one {
            true => Ok(()),
            false => Err(overtaken(doing, "the backup is no longer being verified by this attempt")),
        }
    }

    /// The instance that led when this was planned still does, whatever the cache says: a standby that was just promoted must not go for a
    /// rollout.
    async fn led_as_planned(&self, doing: &impl Fn() -> String) -> Result<(), Failure> {
        let found = self.port.send(self.request(Kind::Lease, &self.observed.names.lease(), Verb::Get)).await;
        let lease = found.map_err(|error| Failure::of(doing(), error))?;
        let leader: Option<Leader> =
            lease.and_then(|lease| serde_json::from_str(lease["metadata"]["annotations"][LEADER].as_str()?).ok());
        match leader.as_ref().map(|leader| leader.instance.as_str()) == self.observed.leader() {
            true => Ok(()),
            false => Err(overtaken(doing, "another leads by now")),
        }
    }

    /// No pod uses the volume, whatever the cache says.
    async fn no_pod_on(&self, target: &Target, doing: &impl Fn() -> String) -> Result<(), Failure> {
        let Some(volume) = self.observed.volumes.items.get(&target.name) else {
            return Err(overtaken(doing, "the volume was not seen"));
        };
        let found = self.port.send(self.request(Kind::Pod, &volume.instance, Verb::Get)).await;
        match found.map_err(|error| Failure::of(doing(), error))? {
            None => Ok(()),
            Some(_) => Err(overtaken(doing, "its pod is there")),
        }
    }

    fn request(&self, kind: Kind, name: &str, verb: Verb) -> Request {
        let namespace = self.key.namespace.clone();
        Request { resource: Resource::Child(kind), namespace, name: name.to_owned(), verb }
    }
}

fn overtaken(doing: &impl Fn() -> String, cause: &str) -> Failure {
    Failure::Overtaken { doing: doing(), cause: cause.to_owned() }
}
