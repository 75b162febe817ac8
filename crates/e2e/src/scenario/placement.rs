//! Where instances run: what the spec says arrives in the pods and is obeyed, and a cluster on one node works and warns.

use harness::fault;
use harness::layout::Node;
use serde_json::{Value, json};

use crate::failure::{Outcome, ensure, eventually, same};
use crate::namespace::COMES_UP;
use crate::world::World;

pub fn fields(world: &World) -> Outcome {
    let target = &world.target;
    let namespace = world.namespace("placement")?;
    let [first, second, _] = Node::ALL.map(|node| node.to_string());
    target.kubectl(["label", "node", &first, &second, "e2e-disk=ssd", "--overwrite"]).go()?;
    target.kubectl(["taint", "node", &first, "e2e-dedicated=db:NoSchedule", "--overwrite"]).go()?;
    let constraint = json!({
        "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"bellwether.dev/cluster": "demo"}},
    });
    let toleration = json!({"key": "e2e-dedicated", "operator": "Equal", "value": "db", "effect": "NoSchedule"});
    let outcome = namespace
        .ready_cluster("demo", &json!({
            "replicas": 2,
            "imagePullSecrets": [{"name": "registry"}],
            "scheduling": {
                "nodeSelector": {"e2e-disk": "ssd"}, "tolerations": [toleration], "topologySpreadConstraints": [constraint],
            },
        }))
        .and_then(|()| {
            let pods = namespace.list(["pods"])?;
            let mut nodes: Vec<&str> = pods.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
            nodes.sort_unstable();
            same("nodes", nodes, vec![first.as_str(), second.as_str()])?;
            for pod in &pods {
                let spec = &pod["spec"];
                same("imagePullSecrets", &spec["imagePullSecrets"], &json!([{"name": "registry"}]))?;
                same("nodeSelector", &spec["nodeSelector"], &json!({"e2e-disk": "ssd"}))?;
                let tolerated = spec["tolerations"].as_array().is_some_and(|all| all.contains(&toleration));
                ensure(tolerated, || format!("no toleration: {}", spec["tolerations"]))?;
                same("topology", &spec["topologySpreadConstraints"], &json!([constraint]))?;
            }
            Ok(())
        });
    target.kubectl(["label", "node", &first, &second, "e2e-disk-"]).go()?;
    target.kubectl(["taint", "node", &first, "e2e-dedicated-"]).go()?;
    outcome
}

pub fn one_node(world: &World) -> Outcome {
    let target = &world.target;
    let namespace = world.namespace("one-node")?;
    let [only, others @ ..] = Node::ALL.map(|node| node.to_string());
    for node in &others {
        target.kubectl(["cordon", node]).go()?;
    }
    let outcome = namespace.ready_cluster("demo", &json!({})).and_then(|()| {
        same("open nodes", target.open_nodes()?, vec![only.clone()])?;
        let seen = namespace.says("demo", "Spread", ("False", "SharedFailureDomain"), &only)?;
        ensure(seen.message.contains("all 3 instances"), || seen.message.clone())
    });
    for node in &others {
        target.kubectl(["uncordon", node]).go()?;
    }
    outcome
}

/// The disruption budget lets a drain take one instance, and the instance comes back to its volume.
pub fn drained(world: &World) -> Outcome {
    let namespace = world.namespace("drained")?;
    namespace.ready_cluster("demo", &json!({}))?;
    let pods = namespace.list(["pods"])?;
    let standby = pods.iter().find(|pod| pod["metadata"]["name"] == "demo-2").cloned().unwrap_or_default();
    let node: Node =
        standby["spec"]["nodeName"].as_str().unwrap_or_default().parse().map_err(harness::Error::Refused)?;
    let drained = fault::drain(&world.target.layout, node, COMES_UP);
    let said = eventually("the loss to be said", COMES_UP, || {
        let seen = namespace.condition("demo", "Degraded")?;
        ensure(seen.status == "True" && seen.message.contains("demo-2"), || format!("{seen:?}"))
    });
    fault::uncordon(&world.target.layout, node)?;
    drained?;
    said?;
    namespace.wait_ready("demo")?;
    let back: Value = namespace.get(["pod", "demo-2"])?;
    ensure(back["metadata"]["uid"] != standby["metadata"]["uid"], || "it was never evicted".to_owned())
}
