//! A cluster comes up, and says the truth about itself in every column and condition.

use std::time::Duration;

use serde_json::{Value, json};

use crate::failure::{Failure, Outcome, ensure, eventually, same};
use crate::namespace::{COMES_UP, Namespace};
use crate::world::World;

pub fn three(world: &World) -> Outcome {
    let namespace = world.namespace("create")?;
    namespace.ready_cluster("demo", &json!({}))?;
    columns(&namespace, &world.target.images.version)?;
    conditions(&namespace)?;
    instances(&namespace)?;
    events(&namespace)
}

/// Every column of `kubectl get -o wide`, by its heading.
fn columns(namespace: &Namespace<'_>, version: &str) -> Outcome {
    let printed = namespace.kubectl(["get", "postgrescluster", "demo", "-o", "wide"]).output()?;
    let [heading, row] = printed.lines().collect::<Vec<_>>()[..] else {
        return Err(Failure::Wrong(format!("not two lines: {printed}")));
    };
    // Cells are aligned with their headings; an empty cell is where the next heading has not begun.
    let starts = |name: &str| heading.find(name).ok_or_else(|| Failure::Wrong(format!("no column {name}: {heading}")));
    let cell = |name: &str| -> Outcome<String> {
        let begin = starts(name)?;
        let rest = row.get(begin..).unwrap_or_default();
        Ok(rest.split("  ").next().unwrap_or_default().trim().to_owned())
    };
    for (column, wanted) in [
        ("NAME", "demo"),
        ("VERSION", version),
        ("REPLICAS", "3"),
        ("READY", "3"),
        ("PRIMARY", "demo-1"),
        ("PHASE", "Ready"),
        ("LAST BACKUP", ""),
        ("DURABILITY", "quorum"),
        ("WAITING ON", ""),
    ] {
        same(column, cell(column)?.as_str(), wanted)?;
    }
    ensure(cell("AGE")?.ends_with(['s', 'm']), || format!("age: {row}"))
}

fn conditions(namespace: &Namespace<'_>) -> Outcome {
    for (type_, status, reason) in [
        ("Ready", "True", "AsSpecified"),
        ("Progressing", "False", "AsSpecified"),
        ("Degraded", "False", "AsSpecified"),
        ("Accepted", "True", "NotYetActedOn"),
        ("Synced", "True", "AsSpecified"),
    ] {
        let seen = namespace.condition("demo", type_)?;
        same(type_, (seen.status.as_str(), seen.reason.as_str()), (status, reason))?;
        ensure(!seen.message.is_empty(), || format!("{type_} says nothing"))?;
    }
    let cluster = namespace.get(["postgrescluster", "demo"])?;
    let generation = &cluster["metadata"]["generation"];
    for condition in cluster["status"]["conditions"].as_array().into_iter().flatten() {
        same("observedGeneration", &condition["observedGeneration"], generation)?;
    }
    same("observedGeneration", &cluster["status"]["observedGeneration"], generation)
}

fn instances(namespace: &Namespace<'_>) -> Outcome {
    let status = namespace.status("demo")?;
    same("operation", &status["operation"], &Value::Null)?;
    same("term", &status["term"], 1)?;
    let instances = status["instances"].as_array().cloned().unwrap_or_default();
    same("instances", instances.len(), 3)?;
    for instance in &instances {
        let (role, state) =
            if instance["name"] == "demo-1" { ("primary", "Leading") } else { ("standby", "Streaming") };
        same("role", &instance["role"], role)?;
        same("state", &instance["state"], state)?;
        same("ready", &instance["ready"], true)?;
        ensure(instance["node"].is_string(), || format!("no node: {instance}"))?;
    }
    Ok(())
}

fn events(namespace: &Namespace<'_>) -> Outcome {
    eventually("an event about each instance", Duration::from_secs(30), || {
        let events = namespace.list(["events", "--field-selector=involvedObject.kind=PostgresCluster"])?;
        let created = events.iter().filter(|event| event["reason"] == "InstanceCreated").count();
        same("InstanceCreated events", created, 3)
    })
}

/// What is written at the primary is read at each standby, and every commit has waited for one of them.
pub fn standbys_stream(world: &World) -> Outcome {
    let namespace = world.namespace("stream")?;
    namespace.ready_cluster("demo", &json!({}))?;
    let primary = namespace.primary("demo")?;
    // A standby goes by the identity of its volume; its slot says which instance it is.
    let replication = "select string_agg(slot_name || ' ' || state || ' ' || sync_state, ', ' order by slot_name)
        from pg_stat_replication join pg_replication_slots on active_pid = pid";
    eventually("two standbys that commits wait for", COMES_UP, || {
        let seen = namespace.sql(&primary, "app", replication)?;
        same("replication", seen.as_str(), "bw_demo_2 streaming quorum, bw_demo_3 streaming quorum")
    })?;
    namespace.sql(&primary, "app", "create table written as select generate_series(1, 1000) as id")?;
    for standby in ["demo-2", "demo-3"] {
        eventually("the rows to arrive", Duration::from_secs(30), || {
            same(standby, namespace.sql(standby, "app", "select count(*) from written")?.as_str(), "1000")
        })?;
        let refused = namespace.sql(standby, "app", "insert into written values (0)");
        let refused = refused.err().map(|error| error.to_string()).unwrap_or_default();
        ensure(refused.contains("read-only transaction"), || format!("{standby} took a write: {refused}"))?;
    }
    Ok(())
}

/// Sooner than a kubelet looks by itself, which is after 60 to 90 seconds.
const PROMPTLY: Duration = Duration::from_secs(30);

/// A parameter that can be reloaded is in force without a restart; a larger size reaches the file system.
pub fn changes(world: &World) -> Outcome {
    let namespace = world.namespace("changes")?;
    namespace.ready_cluster("demo", &json!({"replicas": 2}))?;
    let started = "select pg_postmaster_start_time()";
    let before = namespace.sql("demo-1", "app", started)?;
    namespace
        .cluster("demo", &json!({"replicas": 2, "parameters": {"work_mem": "5MB"}, "storage": {"size": "768Mi"}}))?;
    for instance in ["demo-1", "demo-2"] {
        // Kubelets look at a pod's ConfigMaps once a minute; the operator sees to it that they look now.
        eventually("work_mem to be in force", PROMPTLY, || {
            same(instance, namespace.sql(instance, "app", "show work_mem")?.as_str(), "5MB")
        })?;
    }
    same("postmaster's start", namespace.sql("demo-1", "app", started)?, before)?;
    eventually("larger volumes", COMES_UP, || {
        for claim in namespace.list(["pvc"])? {
            same("capacity", &claim["status"]["capacity"]["storage"], "768Mi")?;
        }
        Ok(())
    })?;
    namespace.wait("demo", "condition=Synced")
}
