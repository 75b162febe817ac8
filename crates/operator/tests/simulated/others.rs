//! Whoever else works on a cluster, between two passes of the operator: the provisioner of volumes, kubelets, and agents.

use std::collections::BTreeMap;

use bellwether_api::labels;
use bellwether_apiserver::request::{PatchKind, Subresource};
use bellwether_core::contract::CONTAINER;
use bellwether_core::lease_object::{MEMBERS, SWITCHOVER, SWITCHOVER_ASKED};
use serde_json::{Value, json};

use crate::world::World;

/// What an instance says of the backup that it is told to take: each time that somebody looks, it is a step further. Of one that it is no longer told
/// of, it says nothing any more.
fn taken(config: &Value, instance: &str, before: Option<&str>) -> Value {
    let order = &config["archive"]["order"];
    if order["instance"] != instance {
        return Value::Null;
    }
    let before: Value = before.map_or(Value::Null, |text| serde_json::from_str(text).unwrap());
    let begun = ["uid", "attempt"].iter().all(|key| before["backup"][key] == order[key]);
    let times = json!({"started": "2027-01-15T08:00:00Z", "ended": "2027-01-15T08:01:00Z"});
    json!({
        "uid": order["uid"], "attempt": order["attempt"], "id": "20270115T080000Z", "archive": "7-u", "started": times["started"],
        "state": if begun { "Completed" } else { "Running" }, "ended": begun.then_some(&times["ended"]), "bytes": begun.then_some(4096),
    })
}

fn verifies(pod: &Value) -> bool {
    pod["metadata"]["labels"][labels::VERIFIES].is_string()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

impl World {
    /// Each does what is left to do.
    pub fn others(&mut self) {
        for claim in self.list("persistentvolumeclaims") {
            let status = json!({"phase": "Bound", "capacity": claim["spec"]["resources"]["requests"]});
            if claim["status"] != status {
                let status = json!({"status": status});
                self.merge("persistentvolumeclaims", name(&claim), Subresource::Status, &status);
            }
        }
        for pod in self.list("pods") {
            let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
            self.made.entry(name(&pod).to_owned()).or_default().insert(uid);
            if !pod["metadata"]["deletionTimestamp"].is_null() {
                self.delete("pods", name(&pod));
            }
        }
        self.verifiers();
        while self.collect_garbage() {}
        let maps = self.list("configmaps");
        let config = maps.iter().find_map(|map| map["data"]["instance.json"].as_str());
        if let Some(config) = config.map(|text| serde_json::from_str::<Value>(text).unwrap()) {
            self.agents(&config);
        }
    }

    /// Those that verify backups find nothing wrong with any.
    fn verifiers(&mut self) {
        for pod in self.list("pods").iter().filter(|pod| verifies(pod) && pod["status"]["phase"] != "Succeeded") {
            let words = json!({"outcome": "Good", "restoredIn": 1000, "reached": "0/2000100"}).to_string();
            let terminated = json!({"exitCode": 0, "reason": "Completed", "message": words});
            let status = json!({"status": {"phase": "Succeeded", "containerStatuses": [{
                "name": CONTAINER, "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": terminated},
            }]}});
            self.merge("pods", name(pod), Subresource::Status, &status);
        }
    }

    fn agents(&mut self, config: &Value) {
        let instances = self.list("pods").into_iter().filter(|pod| !verifies(pod));
        let pods: BTreeMap<String, Value> = instances.map(|pod| (name(&pod).to_owned(), pod)).collect();
        let leases = self.list("leases");
        let Some(lease) = leases.iter().find(|lease| name(lease) == "orders") else { return };
        let leaving: Vec<_> = config["leaving"].as_array().into_iter().flatten().map(|one| &one["instance"]).collect();
        let leader = self.lead(config, lease, &pods, &leaving);
        for (instance, pod) in &pods {
            let serial = instance.rsplit('-').next().unwrap();
            let leads = leader.as_deref() == Some(instance);
            let slots: Vec<_> =
                config["instances"].as_array().unwrap().iter().filter(|other| **other != *instance).collect();
            let (role, state) = match leads {
                true => ("primary", "Leading"),
                false if leaving.iter().any(|one| **one == *instance) => ("standby", "NotStreaming"),
                false => ("standby", "Streaming"),
            };
            let backup = taken(config, instance, pod["metadata"]["annotations"][labels::REPORT].as_str());
            let report = json!({
                "role": role, "backup": backup, "archiving": (leads && !config["archive"].is_null()).then(|| json!({})), "state": state, "acceptsSql": true, "timeline": 1, "systemIdentifier": "7000000000000000001",
                "identity": pod["metadata"]["uid"], "slots": leads.then_some(slots),
                "parameters": bellwether_core::contract::parameters_hash(
                    &serde_json::from_value(config["parameters"].clone()).unwrap(),
                ),
            });
            let report = report.to_string();
            if pod["metadata"]["annotations"][labels::REPORT] == report.as_str() {
                continue;
            }
            let status = json!({"status": {
                "phase": "Running", "podIP": format!("10.0.0.{serial}"), "conditions": [{"type": "Ready", "status": "True"}],
            }});
            self.merge("pods", instance, Subresource::Status, &status);
            let said = json!({"metadata": {"annotations": {labels::REPORT: report}}});
            self.merge("pods", instance, Subresource::Main, &said);
        }
        let slices = self.list("endpointslices");
        let slice = slices.iter().find(|slice| name(slice) == "orders-rw");
        if let (Some(leader), Some(slice)) = (leader.filter(|leader| pods.contains_key(leader)), slice) {
            let address = format!("10.0.0.{}", leader.rsplit('-').next().unwrap());
            if slice["endpoints"][0]["addresses"] != json!([address]) {
                let (target, write) = (self.target("endpointslices", "orders-rw"), self.by(labels::AGENT_MANAGER));
                let endpoints = json!({
                    "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "orders-rw"},
                    "addressType": "IPv4", "endpoints": [{"addresses": [address]}],
                });
                self.store.patch(&target, PatchKind::Apply, &endpoints, &write).unwrap();
            }
        }
    }

    /// Who leads: the first to, whoever led, the one that is asked for, or another where that one is gone.
    fn lead(
        &mut self,
        config: &Value,
        lease: &Value,
        pods: &BTreeMap<String, Value>,
        leaving: &[&Value],
    ) -> Option<String> {
        let annotations = &lease["metadata"]["annotations"];
        let led = annotations[labels::LEADER].as_str().map(|text| serde_json::from_str::<Value>(text).unwrap());
        let led = led.and_then(|leader| leader["instance"].as_str().map(str::to_owned));
        let asked = annotations[SWITCHOVER].is_string();
        let stays = |instance: &&String| !leaving.iter().any(|one| **one == **instance);
        let reported = |instance: &&String| pods[*instance]["metadata"]["annotations"][labels::REPORT].is_string();
        let next = pods.keys().filter(stays).filter(reported).find(|other| Some(*other) != led.as_ref()).cloned();
        let leader = match led.clone() {
            None => {
                config["bootstrapInstance"].as_str().filter(|first| pods.contains_key(*first)).map(str::to_owned)?
            }
            Some(led) if asked || !pods.contains_key(&led) => next.unwrap_or(led),
            Some(led) => led,
        };
        let members: Vec<_> =
            pods.iter().filter(|(name, _)| stays(name)).map(|(_, pod)| &pod["metadata"]["uid"]).collect();
        let members = json!(members).to_string();
        let handed_over = led.as_ref() != Some(&leader);
        if handed_over || annotations[MEMBERS] != members.as_str() {
            let term = lease["spec"]["leaseTransitions"].as_i64().unwrap_or(0) + i64::from(handed_over);
            let record = json!({"instance": leader, "address": "10.0.0.1"}).to_string();
            let mut written = json!({
                labels::LEADER: record, labels::SYSTEM_IDENTIFIER: "7000000000000000001", MEMBERS: members,
            });
            if handed_over {
                written[SWITCHOVER] = Value::Null;
                written[SWITCHOVER_ASKED] = Value::Null;
            }
            let patch = json!({"metadata": {"annotations": written}, "spec": {"leaseTransitions": term}});
            self.merge("leases", "orders", Subresource::Main, &patch);
        }
        Some(leader)
    }
}
