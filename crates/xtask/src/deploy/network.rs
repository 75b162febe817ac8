//! Who may talk to the operator and to whom it talks, and how Prometheus finds it.

use std::collections::BTreeMap;

use bellwether_api::labels::{MANAGED_BY, MANAGED_BY_VALUE};
use bellwether_core::contract::AGENT_PORT;
use bellwether_core::rbac;
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
    NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use super::slots::{Place, Slot, slot};
use super::values::Values;
use super::workload::{PORT, PORT_NAME};
use super::{NAMESPACE_SLOT, metadata, selector};

/// In: metrics and health. Out: DNS, the API server, agents.
pub fn policy(values: &Values) -> Value {
    let labelled = |labels| LabelSelector { match_labels: Some(labels), ..LabelSelector::default() };
    let databases = NetworkPolicyPeer {
        namespace_selector: Some(LabelSelector::default()),
        pod_selector: Some(labelled(BTreeMap::from([(MANAGED_BY.to_owned(), MANAGED_BY_VALUE.to_owned())]))),
        ip_block: None,
    };
    let out = |ports: Vec<NetworkPolicyPort>, to| NetworkPolicyEgressRule { ports: Some(ports), to };
    let spec = NetworkPolicySpec {
        pod_selector: Some(labelled(selector())),
        policy_types: Some(vec!["Ingress".to_owned(), "Egress".to_owned()]),
        // From everywhere: Prometheus may be in any namespace, and a kubelet is no pod.
        ingress: Some(vec![NetworkPolicyIngressRule { ports: Some(vec![port("TCP", PORT)]), from: None }]),
        egress: Some(vec![
            out(vec![port("UDP", 53), port("TCP", 53)], None),
            // The API server has no labels to select it by.
            out(values.network_policy.api_server_ports.iter().map(|number| port("TCP", *number)).collect(), None),
            out(vec![port("TCP", i32::from(AGENT_PORT))], Some(vec![databases])),
        ]),
    };
    super::json(&NetworkPolicy { metadata: metadata(rbac::OPERATOR), spec: Some(spec) })
}

/// What the chart fills in of [`policy`].
pub fn policy_slots() -> Vec<Place> {
    vec![
        slot("/metadata/namespace", Slot::Value(NAMESPACE_SLOT.to_owned())),
        slot(
            "/spec/egress/1/ports",
            Slot::Block(r#"(include "bellwether.apiServerPorts" . | fromYamlArray)"#.to_owned()),
        ),
    ]
}

fn port(protocol: &str, number: i32) -> NetworkPolicyPort {
    NetworkPolicyPort { protocol: Some(protocol.to_owned()), port: Some(IntOrString::Int(number)), end_port: None }
}

/// For a Prometheus that is run by its operator; only the chart has it, because its kind is somebody else's.
pub fn service_monitor() -> Value {
    json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": metadata(rbac::OPERATOR),
        "spec": {
            "endpoints": [{
                "port": PORT_NAME,
                "path": "/metrics",
                "scheme": "https",
                "interval": "30s",
                // Unless told otherwise, the operator makes its certificate at its start and keeps it in memory.
                "tlsConfig": { "insecureSkipVerify": true },
            }],
            "selector": { "matchLabels": selector() },
        },
    })
}

/// What the chart fills in of [`service_monitor`].
pub fn service_monitor_slots() -> Vec<Place> {
    vec![
        slot("/metadata/namespace", Slot::Value(NAMESPACE_SLOT.to_owned())),
        slot("/metadata/labels", Slot::More(".Values.serviceMonitor.labels".to_owned())),
        slot("/spec/endpoints/0/tlsConfig", Slot::Block(".Values.serviceMonitor.tlsConfig".to_owned())),
        slot("/spec/endpoints/0/interval", Slot::Value(".Values.serviceMonitor.interval".to_owned())),
    ]
}
