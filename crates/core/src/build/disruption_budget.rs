//! The disruption budget: a drain may take one instance at a time.
//!
//! Never: a budget that blocks a drain for ever. One instance alone may be taken (there is nothing to wait for), and an instance
//! that isn't healthy may be taken even if the budget is spent (it protects nothing, and keeping it holds the node up).

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::Parent;
use crate::object::{Desired, Kind};

/// The budget. It counts what must stay, because `maxUnavailable` needs a controller that the disruption controller knows.
pub fn disruption_budget(parent: &Parent<'_>) -> Desired {
    let name = parent.names.disruption_budget();
    parent.built(Kind::PodDisruptionBudget, &name, &(), || build(parent, &name))
}

fn build(parent: &Parent<'_>, name: &str) -> Desired {
    let object = PodDisruptionBudget {
        metadata: parent.owned(name),
        spec: Some(PodDisruptionBudgetSpec {
            min_available: Some(IntOrString::Int((parent.cluster.spec.replicas - 1).max(0))),
            selector: Some(LabelSelector { match_labels: Some(parent.selector()), ..LabelSelector::default() }),
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    };
    Desired::of(Kind::PodDisruptionBudget, name, &object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::object::Kind;
    use crate::plan::world::World;

    #[test]
    fn note_23_a_drain_may_always_take_one_more() {
        for replicas in 1..=10 {
            let mut world = World::made(json!({"replicas": replicas}));
            let budget = world.get(Kind::PodDisruptionBudget, "orders")["spec"].clone();
            assert_eq!(budget["minAvailable"], replicas - 1, "of {replicas}");
            assert_eq!(budget["unhealthyPodEvictionPolicy"], "AlwaysAllow");
        }
    }
}
