//! What a cluster can't have is said in its status, under a reason that has a runbook; once it can be had, it comes up by itself.

use serde_json::json;

use crate::failure::{Failure, Outcome, ensure, eventually, same};
use crate::namespace::COMES_UP;
use crate::world::World;

pub fn no_image(world: &World) -> Outcome {
    let namespace = world.namespace("no-image")?;
    namespace.cluster("demo", &json!({"image": "bellwether.test/none:1"}))?;
    for type_ in ["Ready", "Degraded"] {
        let status = if type_ == "Ready" { "False" } else { "True" };
        namespace.says("demo", type_, (status, "ImageUnavailable"), "bellwether.test/none:1")?;
    }
    // A kubelet tries again and again, and what it says has something else in it each time; the status stays as it is.
    let attempts = || -> Outcome<i64> {
        let events = namespace.list(["events", "--field-selector=involvedObject.name=demo-1,reason=Pulling"])?;
        Ok(events.iter().filter_map(|event| event["count"].as_i64()).max().unwrap_or_default())
    };
    let said = eventually("each instance to say why", COMES_UP, || {
        let status = namespace.status("demo")?;
        let instances = status["instances"].as_array().cloned().unwrap_or_default();
        let told = instances.iter().filter(|instance| instance["message"].is_string()).count();
        same("instances that say why", told, 3)?;
        Ok(status)
    })?;
    let tried = attempts()?;
    eventually("two more attempts to pull", COMES_UP, || {
        let now = attempts()?;
        ensure(now >= tried + 2, || format!("{now} attempts"))
    })?;
    same("status after further attempts", namespace.status("demo")?, said)?;
    // Pods that never ran anything are replaced by the change; the user deletes nothing.
    namespace.cluster("demo", &json!({}))?;
    namespace.wait_ready("demo")
}

pub fn no_volume(world: &World) -> Outcome {
    let namespace = world.namespace("no-volume")?;
    let class = "e2e-absent";
    world.target.kubectl(["delete", "storageclass", class, "--ignore-not-found"]).go()?;
    namespace.cluster("demo", &json!({"storage": {"storageClass": class}}))?;
    let said = namespace.says("demo", "Ready", ("False", "Unschedulable"), "demo-1")?;
    ensure(said.message.contains("PersistentVolumeClaim"), || format!("which volume? {:?}", said.message))?;

    let classes = world.target.list(["storageclasses"])?;
    let default = classes
        .into_iter()
        .find(|class| class["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true");
    let default = default.ok_or_else(|| Failure::Wrong("there is no default StorageClass".to_owned()))?;
    let mut made = default.clone();
    made["metadata"] = json!({"name": class});
    world.target.apply(&made)?;
    let up = namespace.wait_ready("demo");
    world.target.kubectl(["delete", "storageclass", class]).go()?;
    up
}

pub fn quota(world: &World) -> Outcome {
    let namespace = world.namespace("quota")?;
    let quota = |pods: &str| {
        json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": pods}},
        })
    };
    namespace.apply(&quota("2"))?;
    eventually("the quota to count", COMES_UP, || {
        same("hard", &namespace.get(["quota", "few"])?["status"]["hard"]["pods"], "2")
    })?;
    namespace.cluster("demo", &json!({}))?;
    namespace.says("demo", "Degraded", ("True", "ApiRefused"), "exceeded quota: few")?;
    namespace.apply(&quota("4"))?;
    namespace.wait_ready("demo")?;
    same("Degraded", namespace.condition("demo", "Degraded")?.status.as_str(), "False")
}
