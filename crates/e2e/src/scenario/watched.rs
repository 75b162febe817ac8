//! An operator for a list of namespaces looks after these, sees no other, and has no right beyond them.

use serde_json::json;

use crate::failure::{Outcome, ensure, same};
use crate::install;
use crate::world::World;

pub fn listed(world: &World) -> Outcome {
    let target = &world.target;
    install::remove_helm(target)?;
    let (watched, other) = (world.namespace("watched")?, world.namespace("unwatched")?);
    other.cluster("demo", &json!({"replicas": 1}))?;
    install::by_helm(target, &target.images.operator, &[&watched.name])?;
    watched.ready_cluster("demo", &json!({"replicas": 2}))?;
    same("status of the other", &other.status("demo")?, &json!(null))?;
    same("pods of the other", other.names(["pods"])?, Vec::<String>::new())?;

    let bindings = target.list(["clusterrolebindings"])?;
    let ours = bindings.iter().filter(|binding| {
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        subjects.into_iter().any(|subject| subject["namespace"] == install::NAMESPACE)
    });
    let ours: Vec<_> = ours.map(|binding| &binding["metadata"]["name"]).collect();
    ensure(ours.is_empty(), || format!("bound everywhere by {ours:?}"))?;
    install::remove_helm(target)
}
