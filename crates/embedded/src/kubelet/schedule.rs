//! Decides which node a pod goes to: the scheduler's part, for nodes that are only names.
//!
//! From: the pod's selectors, affinities and tolerations, and where the others are. Instances of one cluster are spread.
//! Never: a pod on a node that its spec excludes; then it stays Pending and the message says why, as a scheduler's would.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelectorTerm, Pod, PodAffinityTerm, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;

/// The label of a node that spreading goes by.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// The node for `pod`, or why there is none.
pub fn place(pod: &Pod, nodes: &[&Node], others: &[&Pod]) -> Result<String, String> {
    let mut refusals: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut fitting = vec![];
    for node in nodes {
        match refusal(pod, node, nodes, others) {
            Some(reason) => *refusals.entry(reason).or_default() += 1,
            None => fitting.push(*node),
        }
    }
    let best = fitting.into_iter().min_by_key(|node| (crowding(pod, node, others), node.name_any()));
    best.map(|node| node.name_any()).ok_or_else(|| {
        let why: Vec<_> = refusals.iter().map(|(reason, count)| format!("{count} node(s) {reason}")).collect();
        format!("0/{} nodes are available: {}.", nodes.len(), why.join(", "))
    })
}

fn refusal(pod: &Pod, node: &Node, nodes: &[&Node], others: &[&Pod]) -> Option<&'static str> {
    let spec = pod.spec.as_ref()?;
    let node_spec = node.spec.clone().unwrap_or_default();
    if node_spec.unschedulable == Some(true) {
        return Some("were unschedulable");
    }
    let tolerations = spec.tolerations.clone().unwrap_or_default();
    if node_spec.taints.unwrap_or_default().iter().any(|taint| !tolerated(taint, &tolerations)) {
        return Some("had untolerated taint(s)");
    }
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| node.labels().get(key) == Some(value));
    if !selected || !node_affinity_matches(pod, node) {
        return Some("didn't match Pod's node affinity/selector");
    }
    let required =
        anti_affinity(pod).and_then(|a| a.required_during_scheduling_ignored_during_execution).unwrap_or_default();
    let shares = |term: &PodAffinityTerm| others.iter().any(|other| conflicts(pod, term, node, nodes, other));
    required.iter().any(shares).then_some("didn't match pod anti-affinity rules")
}

fn tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    if taint.effect == "PreferNoSchedule" {
        return true;
    }
    tolerations.iter().any(|toleration| {
        let key = toleration.key.as_ref().is_none_or(|key| *key == taint.key);
        let effect = toleration.effect.as_ref().is_none_or(|effect| *effect == taint.effect);
        let exists = toleration.operator.as_deref() == Some("Exists");
        key && effect && (exists || toleration.value.as_deref() == Some(taint.value.as_deref().unwrap_or_default()))
    })
}

fn node_affinity_matches(pod: &Pod, node: &Node) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.clone()).and_then(|affinity| affinity.node_affinity);
    let Some(required) = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution) else {
        return true;
    };
    required.node_selector_terms.iter().any(|term| term_matches(term, node))
}

fn term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    term.match_expressions.iter().flatten().all(|expression| {
        let value = node.labels().get(&expression.key);
        operator_matches(&expression.operator, value, expression.values.as_deref().unwrap_or_default())
    })
}

fn operator_matches(operator: &str, value: Option<&String>, values: &[String]) -> bool {
    match operator {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

fn anti_affinity(pod: &Pod) -> Option<k8s_openapi::api::core::v1::PodAntiAffinity> {
    pod.spec.as_ref()?.affinity.as_ref()?.pod_anti_affinity.clone()
}

/// Whether `other` is one that `term` keeps away, in the same topology domain as `node`.
fn conflicts(pod: &Pod, term: &PodAffinityTerm, node: &Node, nodes: &[&Node], other: &Pod) -> bool {
    let their_node = other.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    let Some(theirs) = their_node.and_then(|name| nodes.iter().find(|node| node.name_any() == *name)) else {
        return false;
    };
    let domain = |node: &Node| node.labels().get(&term.topology_key).cloned();
    let same_domain = domain(node).is_some() && domain(node) == domain(theirs);
    same_domain && other.namespace() == pod.namespace() && selects(term.label_selector.as_ref(), other.labels())
}

/// Whether a label selector matches; none matches nothing, an empty one everything.
pub fn selects(selector: Option<&LabelSelector>, labels: &BTreeMap<String, String>) -> bool {
    selector.is_some_and(|selector| {
        let exact = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
        let expressions = selector.match_expressions.iter().flatten();
        exact
            && expressions
                .into_iter()
                .all(|e| operator_matches(&e.operator, labels.get(&e.key), e.values.as_deref().unwrap_or_default()))
    })
}

/// How unwelcome a node is: first by the pod's preferred anti-affinity, then by how many pods it has.
fn crowding(pod: &Pod, node: &Node, others: &[&Pod]) -> (i64, usize) {
    let preferred = anti_affinity(pod).and_then(|a| a.preferred_during_scheduling_ignored_during_execution);
    let penalty = preferred.iter().flatten().map(|weighted| {
        let term = PodAffinityTerm { topology_key: HOSTNAME.to_owned(), ..weighted.pod_affinity_term.clone() };
        let shared = others.iter().filter(|other| conflicts(pod, &term, node, &[node], other)).count();
        i64::from(weighted.weight) * i64::try_from(shared).unwrap_or(i64::MAX)
    });
    let here = |other: &&&Pod| other.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(&node.name_any());
    (penalty.sum(), others.iter().filter(here).count())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str) -> Node {
        serde_json::from_value(json!({"metadata": {"name": name, "labels": {HOSTNAME: name}}, "spec": {}})).unwrap()
    }
    fn pod(name: &str, on: Option<&str>, affinity: &serde_json::Value) -> Pod {
        let spec = json!({"containers": [], "nodeName": on, "affinity": {"podAntiAffinity": affinity}});
        let metadata = json!({"name": name, "namespace": "default", "labels": {"app": "db"}});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }
    fn required() -> serde_json::Value {
        json!({"requiredDuringSchedulingIgnoredDuringExecution":
            [{"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "db"}}}]})
    }
    fn preferred() -> serde_json::Value {
        json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm":
            {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "db"}}}}]})
    }

    #[test]
    fn instances_of_one_cluster_are_spread() {
        let (a, b) = (node("node-1"), node("node-2"));
        let first = pod("db-1", Some("node-1"), &preferred());
        assert_eq!(place(&pod("db-2", None, &preferred()), &[&a, &b], &[&first]).unwrap(), "node-2");
    }

    #[test]
    fn preferred_anti_affinity_shares_a_node_when_there_is_no_other() {
        let a = node("node-1");
        let first = pod("db-1", Some("node-1"), &preferred());
        assert_eq!(place(&pod("db-2", None, &preferred()), &[&a], &[&first]).unwrap(), "node-1");
    }

    #[test]
    fn required_anti_affinity_waits_and_says_so() {
        let a = node("node-1");
        let first = pod("db-1", Some("node-1"), &required());
        let why = place(&pod("db-2", None, &required()), &[&a], &[&first]).unwrap_err();
        assert_eq!(why, "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules.");
    }

    #[test]
    fn a_selector_that_no_node_has_leaves_the_pod_pending() {
        let a = node("node-1");
        let mut wanting = pod("db-1", None, &json!({}));
        wanting.spec.as_mut().unwrap().node_selector = Some([("disk".to_owned(), "ssd".to_owned())].into());
        let why = place(&wanting, &[&a], &[]).unwrap_err();
        assert_eq!(why, "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.");
    }

    #[test]
    fn a_cordoned_node_gets_nothing() {
        let (mut a, b) = (node("node-1"), node("node-2"));
        a.spec.as_mut().unwrap().unschedulable = Some(true);
        assert_eq!(place(&pod("db-1", None, &json!({})), &[&a, &b], &[]).unwrap(), "node-2");
    }
}
