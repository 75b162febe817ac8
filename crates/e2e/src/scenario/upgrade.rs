//! Changing or removing the operator touches no database: not a pod, not a volume, not a row.

use serde_json::json;

use crate::failure::{Failure, Outcome, eventually, same};
use crate::install;
use crate::namespace::{COMES_UP, Namespace};
use crate::world::World;

/// What must not change.
#[derive(Debug, PartialEq)]
struct Untouched {
    pods: Vec<(String, String)>,
    volumes: Vec<(String, String)>,
    started: Vec<String>,
    rows: String,
    cluster: String,
}

fn look(namespace: &Namespace<'_>) -> Outcome<Untouched> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let pods = namespace.list(["pods"])?;
    let pods: Vec<_> = pods.iter().map(|pod| (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]))).collect();
    let started = pods.iter().map(|(pod, _)| namespace.sql(pod, "app", "select pg_postmaster_start_time()"));
    Ok(Untouched {
        started: started.collect::<Outcome<_>>()?,
        rows: namespace.sql("demo-1", "app", "select count(*) || ' ' || sum(id) from kept")?,
        volumes: namespace.volume_uids()?,
        cluster: text(&namespace.get(["postgrescluster", "demo"])?["metadata"]["uid"]),
        pods,
    })
}

fn with_rows<'a>(world: &'a World, name: &str) -> Outcome<(Namespace<'a>, Untouched)> {
    let namespace = world.namespace(name)?;
    namespace.ready_cluster("demo", &json!({}))?;
    namespace.sql("demo-1", "app", "create table kept as select generate_series(1, 1000) as id")?;
    let before = look(&namespace)?;
    Ok((namespace, before))
}

pub fn image(world: &World) -> Outcome {
    let (namespace, before) = with_rows(world, "upgrade")?;
    let next = world.target.images.next.as_deref();
    let next = next.ok_or_else(|| Failure::Wrong("there is no second image".to_owned()))?;
    world.without_chart();
    install::by_helm(&world.target, next, &[])?;
    // Those of before are told to go when the new ones are ready, and are still there for a moment.
    eventually("the old operators to be gone", COMES_UP, || {
        for pod in install::pods(&world.target)? {
            same("the operator's image", &pod["spec"]["containers"][0]["image"], next)?;
        }
        Ok(())
    })?;
    // The new operator has looked at the cluster when it acts on a change of it.
    namespace.cluster("demo", &json!({"parameters": {"work_mem": "5MB"}}))?;
    namespace.wait("demo", "jsonpath={.status.observedGeneration}=2")?;
    same("after the upgrade", look(&namespace)?, before)
}

pub fn uninstall(world: &World) -> Outcome {
    let (namespace, before) = with_rows(world, "uninstall")?;
    world.without_chart();
    install::remove_helm(&world.target)?;
    same("without an operator", &look(&namespace)?, &before)?;
    let definitions = world.target.kubectl(["get", "crd", "postgresclusters.bellwether.dev", "-o", "name"]).output()?;
    same(
        "definitions",
        definitions.trim(),
        "customresourcedefinition.apiextensions.k8s.io/postgresclusters.bellwether.dev",
    )?;

    world.with_chart()?;
    namespace.cluster("demo", &json!({"parameters": {"work_mem": "5MB"}}))?;
    namespace.wait("demo", "jsonpath={.status.observedGeneration}=2")?;
    same("after the operator came back", look(&namespace)?, before)
}
