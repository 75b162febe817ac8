//! What a person sees of a cluster: one row an instance, what it does and what it waits on.

use std::sync::Arc;

use bellwether_api::v1::{InstanceRole, InstanceState, Phase, PostgresCluster};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

/// A cluster at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterView {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Where it is in its life.
    pub phase: Option<Phase>,
    /// Whether it is as specified and serves.
    pub ready: bool,
    /// What it waits on, or why it isn't ready.
    pub waiting_on: Option<String>,
    /// Its instances.
    pub instances: Vec<InstanceView>,
}

/// An instance at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceView {
    /// Its name.
    pub name: String,
    /// Its role, once it has one.
    pub role: Option<InstanceRole>,
    /// What it does.
    pub state: InstanceState,
    /// Whether it answers SQL.
    pub ready: bool,
    /// Its node.
    pub node: String,
    /// Why it isn't further.
    pub message: String,
}

impl ClusterView {
    /// What the cluster's status says. Status that speaks of an older spec says nothing about being ready.
    pub fn of(cluster: &PostgresCluster) -> Self {
        let status = cluster.status.clone().unwrap_or_default();
        let is_current = status.observed_generation == cluster.metadata.generation;
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        let all = status.ready_replicas == cluster.spec.replicas;
        let instances = status.instances.iter().map(|instance| InstanceView {
            name: instance.name.clone(),
            role: instance.role,
            state: instance.state,
            ready: instance.ready,
            node: instance.node.clone().unwrap_or_default(),
            message: instance.message.clone().unwrap_or_default(),
        });
        let is_ready = is_current && all && ready.is_some_and(is_true) && status.phase == Some(Phase::Ready);
        let operation = status.operation.as_ref().map(|operation| operation.waiting_on.clone());
        let reason = ready.filter(|condition| !is_true(condition)).map(|c| format!("{}: {}", c.reason, c.message));
        Self {
            namespace: cluster.namespace().unwrap_or_default(),
            name: cluster.name_any(),
            phase: status.phase,
            ready: is_ready,
            waiting_on: operation.or(reason).filter(|_| !is_ready),
            instances: instances.collect(),
        }
    }

    /// The same, doubted: status is the operator's last word, and after a restart of the home it may be of the run before. Only
    /// while every instance's pod is ready too is the cluster.
    pub fn confirmed_by(mut self, pods: &[Arc<Pod>]) -> Self {
        let is_ready = |name: &str| {
            let pod =
                pods.iter().find(|pod| pod.name_any() == name && pod.namespace().as_deref() == Some(&self.namespace));
            let conditions =
                pod.iter().flat_map(|pod| pod.status.iter()).flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        };
        let missing: Vec<_> =
            self.instances.iter().filter(|instance| !is_ready(&instance.name)).map(|i| i.name.clone()).collect();
        if self.ready && !missing.is_empty() {
            self.ready = false;
            self.waiting_on = Some(format!("{} to start", missing.join(", ")));
        }
        self
    }

    /// The instance that leads.
    pub fn primary(&self) -> Option<&InstanceView> {
        self.instances.iter().find(|instance| instance.role == Some(InstanceRole::Primary))
    }

    /// The instances that follow.
    pub fn standbys(&self) -> impl Iterator<Item = &InstanceView> {
        self.instances.iter().filter(|instance| instance.role == Some(InstanceRole::Standby))
    }
}

fn is_true(condition: &Condition) -> bool {
    condition.status == "True"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster(generation: i64, ready_replicas: i32, ready: &str) -> PostgresCluster {
        let condition = json!({"type": "Ready", "status": ready, "reason": "AsSpecified", "message": "m",
                               "lastTransitionTime": "2024-01-01T00:00:00Z"});
        serde_json::from_value(json!({
            "apiVersion": "bellwether.dev/v1", "kind": "PostgresCluster",
            "metadata": {"name": "demo", "generation": 2}, "spec": {"replicas": 3},
            "status": {"observedGeneration": generation, "readyReplicas": ready_replicas, "phase": "Ready",
                       "conditions": [condition]},
        }))
        .unwrap()
    }

    #[test]
    fn a_status_of_the_run_before_is_doubted_until_the_pods_are_ready() {
        let mut old = cluster(2, 1, "True");
        old.metadata.namespace = Some("default".into());
        old.spec.replicas = 1;
        let instance = json!({"name": "demo-1", "state": "Leading", "ready": true});
        old.status.as_mut().unwrap().instances = vec![serde_json::from_value(instance).unwrap()];
        let pod = |ready: &str| {
            let status = json!({"conditions": [{"type": "Ready", "status": ready}]});
            let pod = json!({"metadata": {"name": "demo-1", "namespace": "default"}, "status": status});
            [Arc::new(serde_json::from_value::<Pod>(pod).unwrap())]
        };
        assert!(ClusterView::of(&old).confirmed_by(&pod("True")).ready);
        let doubted = ClusterView::of(&old).confirmed_by(&pod("False"));
        assert_eq!((doubted.ready, doubted.waiting_on.as_deref()), (false, Some("demo-1 to start")));
    }

    #[test]
    fn ready_means_ready_as_specified_now() {
        assert!(ClusterView::of(&cluster(2, 3, "True")).ready);
        assert!(!ClusterView::of(&cluster(1, 3, "True")).ready, "the status speaks of an older spec");
        assert!(!ClusterView::of(&cluster(2, 2, "True")).ready, "an instance is missing");
        let not = ClusterView::of(&cluster(2, 3, "False"));
        assert_eq!((not.ready, not.waiting_on.as_deref()), (false, Some("AsSpecified: m")));
    }
}
