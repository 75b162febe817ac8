//! The operator's pods: how many, with what rights over their node (none), and how they are kept apart.

use std::collections::BTreeMap;

use bellwether_core::rbac;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use super::slots::{Place, Slot, slot};
use super::values::Values;
use super::{NAMESPACE_SLOT, json, labels, metadata, selector};

/// Where the operator answers: `/healthz`, `/readyz`, `/metrics`, over TLS.
pub const PORT: i32 = 8443;
/// What that port is called.
pub const PORT_NAME: &str = "https";
/// The user in the image; a number, because `runAsNonRoot` can only be checked against one.
const USER: i64 = 65532;

/// The Deployment.
pub fn deployment(values: &Values) -> Value {
    let spec = DeploymentSpec {
        replicas: Some(values.replicas),
        selector: LabelSelector { match_labels: Some(selector()), ..LabelSelector::default() },
        // A new operator is ready before an old one goes: the Lease decides who leads, and a gap between two leaders is short.
        strategy: Some(DeploymentStrategy {
            type_: Some("RollingUpdate".to_owned()),
            rolling_update: Some(RollingUpdateDeployment {
                max_surge: Some(IntOrString::Int(1)),
                max_unavailable: Some(IntOrString::Int(0)),
            }),
        }),
        template: core::PodTemplateSpec {
            metadata: Some(ObjectMeta { labels: Some(labels()), ..ObjectMeta::default() }),
            spec: Some(pod(values)),
        },
        ..DeploymentSpec::default()
    };
    json(&Deployment { metadata: metadata(rbac::OPERATOR), spec: Some(spec), status: None })
}

/// What the chart fills in of [`deployment`].
pub fn deployment_slots() -> Vec<Place> {
    let value = |expression: &str| Slot::Value(expression.to_owned());
    let block = |value: &str| Slot::Block(format!(".Values.{value}"));
    vec![
        slot("/metadata/namespace", value(NAMESPACE_SLOT)),
        slot("/spec/replicas", value(".Values.replicas")),
        slot("/spec/template/metadata/labels", Slot::More(".Values.podLabels".to_owned())),
        slot("/spec/template/metadata/annotations", block("podAnnotations")),
        slot("/spec/template/spec/imagePullSecrets", block("image.pullSecrets")),
        slot("/spec/template/spec/nodeSelector", block("nodeSelector")),
        slot("/spec/template/spec/tolerations", block("tolerations")),
        slot("/spec/template/spec/affinity", block("affinity")),
        slot("/spec/template/spec/priorityClassName", Slot::Optional(".Values.priorityClassName".to_owned())),
        slot(
            "/spec/template/spec/topologySpreadConstraints",
            Slot::Instead(".Values.topologySpreadConstraints".to_owned()),
        ),
        slot("/spec/template/spec/containers/0/image", value(r#"include "bellwether.image" . | quote"#)),
        slot("/spec/template/spec/containers/0/imagePullPolicy", value(".Values.image.pullPolicy")),
        slot("/spec/template/spec/containers/0/resources", block("resources")),
        slot("/spec/template/spec/containers/0/env/0/value", value(r#"include "bellwether.image" . | quote"#)),
        slot("/spec/template/spec/containers/0/env/1/value", value(".Values.postgresUid | int64 | quote")),
        slot(
            "/spec/template/spec/containers/0/args",
            Slot::More(r#"(include "bellwether.args" . | fromYamlArray)"#.to_owned()),
        ),
        slot(
            "/spec/template/spec/containers/0/volumeMounts",
            Slot::Block(r#"(include "bellwether.volumeMounts" . | fromYamlArray)"#.to_owned()),
        ),
        slot(
            "/spec/template/spec/volumes",
            Slot::Block(r#"(include "bellwether.volumes" . | fromYamlArray)"#.to_owned()),
        ),
        slot(
            "/spec/template/spec/containers/0/env",
            Slot::More(r#"(include "bellwether.env" . | fromYamlArray)"#.to_owned()),
        ),
    ]
}

fn pod(values: &Values) -> core::PodSpec {
    core::PodSpec {
        service_account_name: Some(rbac::OPERATOR.to_owned()),
        enable_service_links: Some(false),
        security_context: Some(core::PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            seccomp_profile: Some(seccomp()),
            ..core::PodSecurityContext::default()
        }),
        containers: vec![container(values)],
        topology_spread_constraints: Some(vec![apart("kubernetes.io/hostname"), apart("topology.kubernetes.io/zone")]),
        ..core::PodSpec::default()
    }
}

fn container(values: &Values) -> core::Container {
    let value =
        |name: &str, value: String| core::EnvVar { name: name.to_owned(), value: Some(value), value_from: None };
    let image = &values.image;
    let image = format!("{}:{}", image.repository, env!("CARGO_PKG_VERSION"));
    core::Container {
        name: "operator".to_owned(),
        image: Some(image.clone()),
        image_pull_policy: Some(format!("{:?}", values.image.pull_policy)),
        args: Some(vec!["operator".to_owned(), "--leader-election-namespace=$(POD_NAMESPACE)".to_owned()]),
        env: Some(vec![
            value("BELLWETHER_IMAGE", image),
            value("BELLWETHER_POSTGRES_UID", values.postgres_uid.to_string()),
            field("POD_NAME", "metadata.name"),
            field("POD_NAMESPACE", "metadata.namespace"),
        ]),
        ports: Some(vec![core::ContainerPort {
            name: Some(PORT_NAME.to_owned()),
            container_port: PORT,
            protocol: Some("TCP".to_owned()),
            ..core::ContainerPort::default()
        }]),
        // Half a minute: an operator that hangs delays repairs, and no database depends on it from one second to the next.
        liveness_probe: Some(probe("/healthz", 10, 3)),
        readiness_probe: Some(probe("/readyz", 5, 2)),
        resources: Some(values.resources.clone()),
        security_context: Some(core::SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(core::Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
            privileged: Some(false),
            read_only_root_filesystem: Some(true),
            run_as_non_root: Some(true),
            seccomp_profile: Some(seccomp()),
            ..core::SecurityContext::default()
        }),
        ..core::Container::default()
    }
}

fn field(name: &str, path: &str) -> core::EnvVar {
    let field = core::ObjectFieldSelector { field_path: path.to_owned(), api_version: None };
    let source = core::EnvVarSource { field_ref: Some(field), ..core::EnvVarSource::default() };
    core::EnvVar { name: name.to_owned(), value: None, value_from: Some(source) }
}

fn probe(path: &str, period: i32, failures: i32) -> core::Probe {
    core::Probe {
        http_get: Some(core::HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String(PORT_NAME.to_owned()),
            scheme: Some("HTTPS".to_owned()),
            ..core::HTTPGetAction::default()
        }),
        period_seconds: Some(period),
        timeout_seconds: Some(5),
        failure_threshold: Some(failures),
        ..core::Probe::default()
    }
}

fn seccomp() -> core::SeccompProfile {
    core::SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }
}

/// One in each domain where there are enough of them; on a single node both run there.
fn apart(topology_key: &str) -> core::TopologySpreadConstraint {
    core::TopologySpreadConstraint {
        max_skew: 1,
        topology_key: topology_key.to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        label_selector: Some(LabelSelector { match_labels: Some(selector()), ..LabelSelector::default() }),
        // Only pods of the same version count: otherwise a rollout ends with both where the old ones were not.
        match_label_keys: Some(vec!["pod-template-hash".to_owned()]),
        ..core::TopologySpreadConstraint::default()
    }
}

/// Where metrics are collected.
pub fn metrics_service() -> Value {
    let port = core::ServicePort {
        name: Some(PORT_NAME.to_owned()),
        port: PORT,
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::String(PORT_NAME.to_owned())),
        ..core::ServicePort::default()
    };
    let spec = core::ServiceSpec {
        selector: Some(selector()),
        ports: Some(vec![port]),
        type_: Some("ClusterIP".to_owned()),
        ..core::ServiceSpec::default()
    };
    json(&core::Service { metadata: metadata(&metrics_name()), spec: Some(spec), status: None })
}

fn metrics_name() -> String {
    format!("{}-metrics", rbac::OPERATOR)
}

/// A drain takes one operator at a time, and is never held up, also with a single one.
pub fn disruption_budget() -> Value {
    let spec = PodDisruptionBudgetSpec {
        max_unavailable: Some(IntOrString::Int(1)),
        selector: Some(LabelSelector { match_labels: Some(selector()), ..LabelSelector::default() }),
        ..PodDisruptionBudgetSpec::default()
    };
    json(&PodDisruptionBudget { metadata: metadata(rbac::OPERATOR), spec: Some(spec), status: None })
}

/// The operator's namespace, for the plain manifest; Helm makes its own. Pods that aren't `restricted` are refused in it.
pub fn namespace() -> Value {
    let level = |mode: &str| (format!("pod-security.kubernetes.io/{mode}"), "restricted".to_owned());
    let labels = labels().into_iter().chain([level("enforce"), level("warn")]).collect::<BTreeMap<_, _>>();
    let metadata =
        ObjectMeta { name: Some(super::NAMESPACE.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
    json(&core::Namespace { metadata, ..core::Namespace::default() })
}
