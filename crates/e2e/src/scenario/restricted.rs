//! Database pods pass Pod Security `restricted`, where it is enforced and not only warned about.

use serde_json::json;

use crate::failure::{Outcome, ensure, same};
use crate::scenario::connect::client;
use crate::world::World;

pub fn enforced(world: &World) -> Outcome {
    let labels = json!({
        "pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest",
    });
    let namespace = world.labelled_namespace("restricted", &labels)?;
    let mut bad = client(&namespace, "demo");
    bad["spec"]["securityContext"] = json!({});
    let said = namespace.apply(&bad).err().map(|error| error.to_string()).unwrap_or_default();
    ensure(said.contains("violates PodSecurity"), || format!("it isn't enforced here: {said:?}"))?;

    namespace.ready_cluster("demo", &json!({"storage": {"wal": {"size": "512Mi"}}}))?;
    same("instances", namespace.status("demo")?["readyReplicas"].clone(), 3)
}
