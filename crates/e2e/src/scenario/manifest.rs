//! The plain manifest: what it installs works, and removing it leaves databases alone.

use serde_json::json;

use crate::failure::{Outcome, same};
use crate::install;
use crate::world::World;

pub fn plain(world: &World) -> Outcome {
    let target = &world.target;
    install::by_manifest(target)?;
    let namespace = world.namespace("manifest")?;
    namespace.ready_cluster("demo", &json!({"replicas": 1}))?;
    let pod = namespace.get(["pod", "demo-1"])?["metadata"]["uid"].clone();

    install::remove_manifest(target)?;
    same("the pod's UID", &namespace.get(["pod", "demo-1"])?["metadata"]["uid"], &pod)?;
    same("answer", namespace.sql("demo-1", "app", "select 6 * 7")?.as_str(), "42")
}
