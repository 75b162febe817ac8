//! The ConfigMap with the agents' configuration: what can change without a restart of the pod.

use std::collections::BTreeMap;

use bellwether_api::names::CONFIG_KEY;
use k8s_openapi::api::core::v1::ConfigMap;

use super::Parent;
use crate::contract::InstanceConfig;
use crate::object::{Desired, Kind};

/// The ConfigMap that carries `config`.
pub fn config(parent: &Parent<'_>, config: &InstanceConfig) -> Desired {
    let name = parent.names.config();
    parent.built(Kind::ConfigMap, &name, config, || build(parent, &name, config))
}

fn build(parent: &Parent<'_>, name: &str, config: &InstanceConfig) -> Desired {
    // Text keys and plain fields throughout: it always serialises.
    let text = serde_json::to_string_pretty(config).unwrap_or_default();
    let object = ConfigMap {
        metadata: parent.owned(name),
        data: Some(BTreeMap::from([(CONFIG_KEY.to_owned(), text)])),
        ..ConfigMap::default()
    };
    Desired::of(Kind::ConfigMap, name, &object)
}
