//! Where an instance may run: the spec's rules, with our anti-affinity merged in.

use bellwether_api::v1::AntiAffinity;
use k8s_openapi::api::core::v1::{
    Affinity, PodAffinityTerm, PodSpec, TopologySpreadConstraint, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::Parent;

const NODE: &str = "kubernetes.io/hostname";

/// Puts the spec's scheduling into a pod.
pub(super) fn apply(parent: &Parent<'_>, pod: &mut PodSpec) {
    let scheduling = &parent.cluster.spec.scheduling;
    pod.affinity = affinity(parent);
    pod.node_selector = Some(scheduling.node_selector.clone()).filter(|labels| !labels.is_empty());
    pod.tolerations = Some(scheduling.tolerations.clone());
    pod.topology_spread_constraints = Some(spread(parent));
    pod.priority_class_name = scheduling.priority_class_name.clone();
}

/// Without a selector Kubernetes counts no pod at all, and a constraint that was written down does nothing: it means our own.
fn spread(parent: &Parent<'_>) -> Vec<TopologySpreadConstraint> {
    let own = |mut constraint: TopologySpreadConstraint| {
        constraint.label_selector.get_or_insert_with(|| instances(parent));
        constraint
    };
    parent.cluster.spec.scheduling.topology_spread_constraints.iter().cloned().map(own).collect()
}

/// Selects the cluster's instances.
fn instances(parent: &Parent<'_>) -> LabelSelector {
    LabelSelector { match_labels: Some(parent.selector()), ..LabelSelector::default() }
}

fn affinity(parent: &Parent<'_>) -> Option<Affinity> {
    let scheduling = &parent.cluster.spec.scheduling;
    let mut affinity = scheduling.affinity.clone();
    if scheduling.anti_affinity == AntiAffinity::Off {
        return affinity;
    }
    let term = PodAffinityTerm {
        label_selector: Some(instances(parent)),
        topology_key: NODE.to_owned(),
        ..PodAffinityTerm::default()
    };
    let rules = affinity.get_or_insert_default().pod_anti_affinity.get_or_insert_default();
    if scheduling.anti_affinity == AntiAffinity::Required {
        rules.required_during_scheduling_ignored_during_execution.get_or_insert_default().push(term);
    } else {
        let preferred = rules.preferred_during_scheduling_ignored_during_execution.get_or_insert_default();
        preferred.push(WeightedPodAffinityTerm { pod_affinity_term: term, weight: 100 });
    }
    affinity
}
