//! The nodes of a home: three names, so that spreading means something. Written once; nobody's heartbeat.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::range::Range;

const COUNT: u8 = 3;

/// The number in a node's name.
pub fn number(name: &str) -> Option<u8> {
    name.strip_prefix("node-")?.parse().ok()
}

/// Makes the nodes exist and be ready. One that exists keeps its labels, taints and cordon: they are the user's.
pub async fn ensure(client: &Client, range: Range) -> Result<(), kube::Error> {
    let api: Api<Node> = Api::all(client.clone());
    for n in 1..=COUNT {
        let name = format!("node-{n}");
        let labels = json!({
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": format!("zone-{n}"),
        });
        let node =
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {}});
        let node = serde_json::from_value(node).map_err(kube::Error::SerdeError)?;
        let existing = match api.get_opt(&name).await? {
            Some(node) => node,
            None => api.create(&PostParams::default(), &node).await?,
        };
        if existing.status.iter().flat_map(|status| status.conditions.iter().flatten()).all(|c| c.status != "True") {
            let patch = Patch::Merge(json!({"status": status(&existing.name_any(), &range.node(n).to_string())}));
            api.patch_status(&name, &PatchParams::default(), &patch).await?;
        }
    }
    Ok(())
}

fn status(name: &str, address: &str) -> serde_json::Value {
    let cores = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let capacity = json!({"cpu": cores, "memory": "8Gi", "pods": "110"});
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::now());
    json!({
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
        "capacity": capacity, "allocatable": capacity,
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "BellwetherUp", "message": "pods run as local processes",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        }],
        "nodeInfo": {
            "kubeletVersion": concat!("bellwether-", env!("CARGO_PKG_VERSION")), "operatingSystem": "linux",
            "architecture": std::env::consts::ARCH, "osImage": "this machine", "kernelVersion": "", "machineID": "",
            "systemUUID": "", "bootID": "", "containerRuntimeVersion": "process://", "kubeProxyVersion": "",
        },
    })
}
