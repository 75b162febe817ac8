//! Carries out a plan, action by action, and stops at the first that fails: what follows may depend on it.
//!
//! Never: a delete without the identity and version that it was decided on, or on the word of a cache: before anything is
//! destroyed the cluster and the target are read live.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bellwether_api::labels;
use bellwether_core::contract::key;
use bellwether_core::fact::Fact;
use bellwether_core::object::{Desired, Kind};
use bellwether_core::observed::Observed;
use bellwether_core::plan::{Action, Content, Effect, SecretOrder, Target};
use bellwether_runtime::client::within;
use bellwether_runtime::watch::Key;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::caches::{self, Caches};
use crate::failure::Failure;
use crate::observe;
use crate::secrets::{self, Contents, Sources};

/// Who acts, on what.
pub struct Actor<'a> {
    /// The client.
    pub client: &'a Client,
    /// Where answers are remembered.
    pub caches: &'a Caches,
    /// The cluster.
    pub key: &'a Key,
    /// What the plan was made from.
    pub observed: &'a Observed,
}

impl Actor<'_> {
    /// Carries out one action.
    pub async fn carry_out(&self, action: &Action, now: Timestamp) -> Result<(), Failure> {
        let doing = || action.to_string();
        match &action.effect {
            Effect::Apply(desired) => self.apply(desired.kind, &desired.name, &desired.value, doing).await,
            Effect::Create(desired) => self.create(desired, doing).await,
            Effect::Issue(order) => self.issue(order, now, doing).await,
            Effect::AnnotateVolume { target, annotations } => {
                let patch = json!({"metadata": {"uid": target.uid, "resourceVersion": target.resource_version, "annotations": annotations}});
                self.patch_volume(&target.name, &patch, doing).await
            }
            Effect::GrowVolume { name, uid, size } => {
                let patch = json!({"metadata": {"uid": uid}, "spec": {"resources": {"requests": {"storage": size}}}});
                self.patch_volume(name, &patch, doing).await
            }
            Effect::DeletePod(target) => self.delete(Kind::Pod, target, doing).await,
            Effect::DeleteVolume(target) => self.delete(Kind::PersistentVolumeClaim, target, doing).await,
        }
    }

    async fn apply(&self, kind: Kind, name: &str, value: &Value, doing: impl Fn() -> String) -> Result<(), Failure> {
        let params = PatchParams::apply(labels::OPERATOR_MANAGER).force();
        let request = self.api(kind);
        let patch = Patch::Apply(value);
        let written = answer(request.patch(name, &params, &patch), doing).await?;
        self.caches.remember(kind, written);
        Ok(())
    }

    async fn create(&self, desired: &Desired, doing: impl Fn() -> String) -> Result<(), Failure> {
        let object: DynamicObject = serde_json::from_value(desired.value.clone())
            .map_err(|error| Failure::Secret { doing: doing(), cause: error.to_string() })?;
        let params = PostParams { field_manager: Some(labels::OPERATOR_MANAGER.to_owned()), ..PostParams::default() };
        let api = self.api(desired.kind);
        let written = answer(api.create(&params, &object), doing).await?;
        self.caches.remember(desired.kind, written);
        Ok(())
    }

    async fn patch_volume(&self, name: &str, patch: &Value, doing: impl Fn() -> String) -> Result<(), Failure> {
        let params = PatchParams { field_manager: Some(labels::OPERATOR_MANAGER.to_owned()), ..PatchParams::default() };
        let api = self.api(Kind::PersistentVolumeClaim);
        let patch = Patch::Merge(patch);
        let written = answer(api.patch(name, &params, &patch), doing).await?;
        self.caches.remember(Kind::PersistentVolumeClaim, written);
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
            Content::Application { password_from: Some((secret, wanted)), .. }
                if !existing.contains_key(key::PASSWORD) =>
            {
                self.contents(secret, &doing).await?.and_then(|contents| contents.get(wanted).cloned())
            }
            _ => None,
        };
        let filled = secrets::fill(order, Sources { existing, authority, owner_password }, now)
            .map_err(|error| Failure::Secret { doing: doing(), cause: error.to_string() })?;
        let mut value = order.shape.value.clone();
        for (key, content) in filled {
            value["data"][key] = BASE64.encode(content).into();
        }
        self.apply(Kind::Secret, &order.shape.name, &value, doing).await
    }

    async fn contents(&self, name: &str, doing: &impl Fn() -> String) -> Result<Option<Contents>, Failure> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.key.namespace);
        let found = answer(api.get_opt(name), doing).await?;
        Ok(found.map(|secret| secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect()))
    }

    async fn delete(&self, kind: Kind, target: &Target, doing: impl Fn() -> String) -> Result<(), Failure> {
        self.still_so(&doing).await?;
        if kind == Kind::PersistentVolumeClaim {
            self.no_pod_on(target, &doing).await?;
        }
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(target.uid.clone()),
                resource_version: Some(target.resource_version.clone()),
            }),
            ..DeleteParams::default()
        };
        // The answer shows the object whether it is gone already or on its way out; only the watch tells these apart.
        match within(self.api(kind).delete(&target.name, &params)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(()),
            Ok(Err(error)) => Err(Failure::of(doing(), &error)),
            Err(late) => Err(Failure::late(doing(), late)),
        }
    }

    /// The cluster is the one that was planned for, or as gone as it was.
    async fn still_so(&self, doing: &impl Fn() -> String) -> Result<(), Failure> {
        let live = observe::live_cluster(self.client, self.key).await?;
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

    /// No pod uses the volume, whatever the cache says.
    async fn no_pod_on(&self, target: &Target, doing: &impl Fn() -> String) -> Result<(), Failure> {
        let Some(volume) = self.observed.volumes.items.get(&target.name) else {
            return Err(overtaken(doing, "the volume was not seen"));
        };
        let api = self.api(Kind::Pod);
        match answer(api.get_opt(&volume.instance), doing).await? {
            None => Ok(()),
            Some(_) => Err(overtaken(doing, "its pod is there")),
        }
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.key.namespace, &caches::resource(kind))
    }
}

fn overtaken(doing: &impl Fn() -> String, cause: &str) -> Failure {
    Failure::Overtaken { doing: doing(), cause: cause.to_owned() }
}

/// The answer to a request, within its deadline.
async fn answer<T>(request: impl Future<Output = kube::Result<T>>, doing: impl Fn() -> String) -> Result<T, Failure> {
    match within(request).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Failure::of(doing(), &error)),
        Err(late) => Err(Failure::late(doing(), late)),
    }
}
