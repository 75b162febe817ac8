//! Plays the disruption controller: how many pods of a PodDisruptionBudget may be evicted now. Written on change only.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::kubelet::schedule::selects;
use crate::mirror::Mirror;

/// Keeps budgets' status up to date until dropped.
pub struct Disruption {
    task: tokio::task::JoinHandle<()>,
}

impl Disruption {
    /// Starts it.
    pub async fn start(client: Client) -> Self {
        let pods = Mirror::start(Api::<Pod>::all(client.clone())).await;
        let budgets = Mirror::start(Api::<PodDisruptionBudget>::all(client.clone())).await;
        Self { task: tokio::spawn(run(client, pods, budgets)) }
    }
}

impl Drop for Disruption {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(client: Client, pods: Mirror<Pod>, budgets: Mirror<PodDisruptionBudget>) {
    let (mut pod_ticks, mut budget_ticks) = (pods.ticks(), budgets.ticks());
    loop {
        let all = pods.all();
        for budget in budgets.all() {
            let status = status(&budget, &all);
            let before = budget.status.as_ref().map(|status| (figures(status), status.observed_generation));
            if before == Some((figures(&status), status.observed_generation)) {
                continue;
            }
            let api: Api<PodDisruptionBudget> =
                Api::namespaced(client.clone(), &budget.namespace().unwrap_or_default());
            let patch = Patch::Merge(json!({"metadata": {"uid": budget.uid()}, "status": status}));
            if let Err(error) = api.patch_status(&budget.name_any(), &PatchParams::default(), &patch).await {
                tracing::debug!(budget = budget.name_any(), %error, "status not written");
            }
        }
        tokio::select! {
            _ = pod_ticks.changed() => {}
            _ = budget_ticks.changed() => {}
        }
    }
}

fn figures(status: &PodDisruptionBudgetStatus) -> [i32; 4] {
    [status.current_healthy, status.desired_healthy, status.expected_pods, status.disruptions_allowed]
}

fn status(budget: &PodDisruptionBudget, pods: &[Arc<Pod>]) -> PodDisruptionBudgetStatus {
    let spec = budget.spec.clone().unwrap_or_default();
    let of_budget =
        |pod: &&Arc<Pod>| pod.namespace() == budget.namespace() && selects(spec.selector.as_ref(), pod.labels());
    let selected: Vec<_> = pods.iter().filter(of_budget).collect();
    let expected = count(selected.len());
    let healthy = count(selected.iter().filter(|pod| is_healthy(pod)).count());
    let desired = match (&spec.min_available, &spec.max_unavailable) {
        (Some(least), _) => share(least, expected),
        (None, Some(most)) => (expected - share(most, expected)).max(0),
        (None, None) => (expected - 1).max(0),
    };
    PodDisruptionBudgetStatus {
        current_healthy: healthy,
        desired_healthy: desired,
        disruptions_allowed: (healthy - desired).max(0),
        expected_pods: expected,
        observed_generation: budget.metadata.generation,
        ..PodDisruptionBudgetStatus::default()
    }
}

fn is_healthy(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

fn share(of: &IntOrString, total: i32) -> i32 {
    match of {
        IntOrString::Int(number) => *number,
        // A percentage is rounded up, as the real controller does for both fields.
        IntOrString::String(text) => {
            let percent: i32 = text.trim_end_matches('%').parse().unwrap_or(100);
            (total * percent + 99) / 100
        }
    }
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, ready: &str) -> Arc<Pod> {
        let metadata = json!({"name": name, "namespace": "default", "labels": {"app": "db"}});
        let status = json!({"conditions": [{"type": "Ready", "status": ready}]});
        Arc::new(serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap())
    }

    #[test]
    fn one_of_three_ready_pods_may_go() {
        let spec = json!({"maxUnavailable": 1, "selector": {"matchLabels": {"app": "db"}}});
        let budget = json!({"metadata": {"name": "db", "namespace": "default"}, "spec": spec});
        let budget: PodDisruptionBudget = serde_json::from_value(budget).unwrap();
        let three = [pod("1", "True"), pod("2", "True"), pod("3", "True")];
        assert_eq!(figures(&status(&budget, &three)), [3, 2, 3, 1]);
        let one_down = [pod("1", "True"), pod("2", "True"), pod("3", "False")];
        assert_eq!(figures(&status(&budget, &one_down)), [2, 2, 3, 0]);
    }
}
