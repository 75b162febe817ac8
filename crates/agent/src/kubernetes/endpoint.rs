//! Where the `rw` Service leads: the `endpoints` of its EndpointSlice, applied by the primary's agent alone.
//!
//! Never: an address published before SQL was answered on it as the application's user; a write when what is there is
//! already right.

use std::net::IpAddr;
use std::time::Duration;

use bellwether_api::labels;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::{ApiError, call};
use crate::environment::Environment;

const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The `rw` EndpointSlice.
#[derive(Clone, Debug)]
pub struct Endpoint {
    api: Api<EndpointSlice>,
    name: String,
    instance: String,
    namespace: String,
    pod_uid: String,
    address: IpAddr,
}

impl Endpoint {
    /// The slice of this agent's cluster.
    pub fn new(client: kube::Client, environment: &Environment) -> Self {
        Self {
            api: Api::namespaced(client, &environment.namespace),
            name: environment.names.rw(),
            instance: environment.instance.clone(),
            namespace: environment.namespace.clone(),
            pod_uid: environment.pod_uid.clone(),
            address: environment.address,
        }
    }

    /// Makes it lead here, if it doesn't.
    pub async fn publish(&self) -> Result<(), ApiError> {
        let (here, version) = self.leads_here().await?;
        if here {
            return Ok(());
        }
        tracing::info!(address = %self.address, "publishing the read-write endpoint");
        self.apply(json!([self.here()]), version).await
    }

    /// Makes it lead here, without looking first: whoever has just been promoted knows that it doesn't yet.
    pub async fn take_over(&self) -> Result<(), ApiError> {
        tracing::info!(address = %self.address, "publishing the read-write endpoint");
        self.apply(json!([self.here()]), None).await
    }

    /// Waits until it leads elsewhere, for so long. A proxy that has just applied one change applies the next a second later: where another is about to
    /// lead, its write is to be the only one.
    pub async fn until_elsewhere(&self, patience: Duration) {
        let elsewhere = async {
            while !matches!(self.leads_here().await, Ok((false, _))) {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let _ = tokio::time::timeout(patience, elsewhere).await;
    }

    /// Makes it lead nowhere, if it leads here: clients are refused at once instead of waiting for an address that is gone.
    pub async fn withdraw(&self) -> Result<(), ApiError> {
        let (here, version) = self.leads_here().await?;
        if !here {
            return Ok(());
        }
        tracing::info!(address = %self.address, "withdrawing the read-write endpoint");
        self.apply(json!([]), version).await
    }

    /// Whether it leads here, and the version in which that was seen: what is written then replaces no other, so that one who comes late
    /// doesn't lead clients away from whoever leads by now.
    async fn leads_here(&self) -> Result<(bool, Option<String>), ApiError> {
        let slice = call("read the rw endpoint", self.api.get(&self.name)).await?;
        let present = serde_json::to_value(slice.endpoints).unwrap_or_default();
        Ok((same_place(&present, &self.here()), slice.metadata.resource_version))
    }

    fn here(&self) -> Value {
        json!({
            "addresses": [self.address.to_string()],
            "conditions": { "ready": true, "serving": true, "terminating": false },
            "targetRef": {
                "kind": "Pod", "name": self.instance, "namespace": self.namespace, "uid": self.pod_uid,
            },
        })
    }

    async fn apply(&self, endpoints: Value, version: Option<String>) -> Result<(), ApiError> {
        let mut object = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": { "name": self.name, "namespace": self.namespace },
            "endpoints": endpoints,
        });
        if let Some(version) = version {
            object["metadata"]["resourceVersion"] = version.into();
        }
        let params = PatchParams::apply(labels::AGENT_MANAGER).force();
        call("write the rw endpoint", self.api.patch(&self.name, &params, &Patch::Apply(object))).await.map(|_| ())
    }
}

/// Whether the slice holds exactly this endpoint. Fields that we don't set (an API server may add some) don't count.
fn same_place(present: &Value, wanted: &Value) -> bool {
    let Some([only]) = present.as_array().map(Vec::as_slice) else { return false };
    ["addresses", "targetRef"].iter().all(|field| only[field] == wanted[field])
        && only["conditions"]["ready"] == wanted["conditions"]["ready"]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str, ready: bool) -> Value {
        json!({
            "addresses": [address], "conditions": { "ready": ready },
            "targetRef": { "kind": "Pod", "name": "o-1", "uid": "u" }
        })
    }

    #[test]
    fn only_exactly_this_place_is_right() {
        let here = at("10.0.0.1", true);
        assert!(same_place(&json!([at("10.0.0.1", true)]), &here));
        assert!(!same_place(&json!([at("10.0.0.2", true)]), &here));
        assert!(!same_place(&json!([at("10.0.0.1", false)]), &here));
        assert!(!same_place(&json!([at("10.0.0.1", true), at("10.0.0.2", true)]), &here));
        assert!(!same_place(&json!(null), &here));
    }
}
