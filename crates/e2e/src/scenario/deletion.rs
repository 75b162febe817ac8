//! What stays and what goes when a cluster or its namespace is deleted, with an operator and without one.

use std::time::Duration;

use serde_json::{Value, json};

use crate::failure::{Outcome, ensure, eventually, same};
use crate::install;
use crate::namespace::Namespace;
use crate::world::World;

/// Everything of a cluster is gone within this.
const GONE: Duration = Duration::from_secs(60);

/// Rows survive the cluster: a new one of the same name takes up the volumes.
pub fn recreate(world: &World) -> Outcome {
    let namespace = world.namespace("recreate")?;
    namespace.ready_cluster("demo", &json!({}))?;
    let primary = namespace.primary("demo")?;
    namespace.sql(&primary, "app", "create table kept as select generate_series(1, 100) as id")?;
    let system = namespace.status("demo")?["systemIdentifier"].clone();
    let volumes = namespace.volume_uids()?;
    same("volumes", volumes.len(), 3)?;

    namespace.delete_cluster("demo")?;
    eventually("nothing but volumes to be left", GONE, || nothing_left(&namespace))?;
    same("volumes", namespace.volume_uids()?, volumes.clone())?;

    namespace.ready_cluster("demo", &json!({}))?;
    same("volumes", namespace.volume_uids()?, volumes)?;
    same("system identifier", &namespace.status("demo")?["systemIdentifier"], &system)?;
    for instance in ["demo-1", "demo-2", "demo-3"] {
        same(instance, namespace.sql(instance, "app", "select count(*) from kept")?.as_str(), "100")?;
    }
    Ok(())
}

/// Of what the operator makes for a cluster nothing is there, volumes apart.
fn nothing_left(namespace: &Namespace<'_>) -> Outcome {
    let kinds = "pods,services,endpointslices,leases,configmaps,secrets,serviceaccounts,roles,rolebindings,pdb";
    let left = namespace.names([kinds, "-l", "bellwether.dev/cluster"])?;
    same("left", left, Vec::<String>::new())
}

/// Only an explicit `Delete` removes volumes; those behind the claims go too.
pub fn on_delete(world: &World) -> Outcome {
    let namespace = world.namespace("on-delete")?;
    namespace.ready_cluster("demo", &json!({"storage": {"onDelete": "Delete"}}))?;
    let claims = namespace.list(["pvc"])?;
    let volumes: Vec<Value> = claims.iter().map(|claim| claim["spec"]["volumeName"].clone()).collect();
    same("volumes", volumes.len(), 3)?;
    namespace.delete_cluster("demo")?;
    eventually("the claims to be gone", GONE, || same("claims", namespace.volume_uids()?, vec![]))?;
    eventually("the volumes to be gone", GONE, || {
        let there = world.target.list(["pv"])?;
        let left: Vec<_> =
            there.iter().map(|volume| &volume["metadata"]["name"]).filter(|n| volumes.contains(n)).collect();
        ensure(left.is_empty(), || format!("{left:?}"))
    })
}

/// The operator neither holds up the namespace nor fights it.
pub fn namespace(world: &World) -> Outcome {
    let namespace = world.namespace("doomed")?;
    namespace.ready_cluster("kept", &json!({"replicas": 2}))?;
    namespace.ready_cluster("gone", &json!({"replicas": 1, "storage": {"onDelete": "Delete"}}))?;
    // One that is in the middle of its creation, too.
    namespace.cluster("early", &json!({}))?;
    ends(world, &namespace)
}

/// Nothing of ours holds a namespace that nobody looks after.
pub fn namespace_without_operator(world: &World) -> Outcome {
    let namespace = world.namespace("orphaned")?;
    namespace.ready_cluster("demo", &json!({"storage": {"onDelete": "Delete"}}))?;
    world.without_chart();
    install::remove_helm(&world.target)?;
    ends(world, &namespace)
}

fn ends(world: &World, namespace: &Namespace<'_>) -> Outcome {
    world.target.kubectl(["delete", "namespace", &namespace.name, "--wait=false"]).go()?;
    eventually("the namespace to end", GONE, || {
        let found = world.target.kubectl(["get", "namespace", &namespace.name, "--ignore-not-found", "-o", "yaml"]);
        same("namespace", found.output()?.as_str(), "")
    })
}
