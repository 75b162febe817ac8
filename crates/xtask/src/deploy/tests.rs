//! What users install, as a specification.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

fn values() -> Values {
    serde_saphyr::from_str(VALUES).expect("values.yaml is what the types say")
}

fn objects() -> Vec<Value> {
    manifest(&values())
}

fn object(kind: &str) -> Value {
    objects().into_iter().find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

fn file(path: &str) -> String {
    let path = format!("deploy/chart/bellwether/{path}");
    files().expect("files").into_iter().find(|file| file.path == path).unwrap_or_else(|| panic!("no {path}")).content
}

#[test]
fn the_manifest_holds_no_definition_so_that_deleting_it_deletes_no_cluster() {
    assert!(objects().iter().all(|object| object["kind"] != "CustomResourceDefinition"));
}

#[test]
fn the_charts_definitions_are_kept_and_upgraded() {
    let template = file("templates/crds.yaml");
    let (definitions, kept) = ("kind: CustomResourceDefinition\n", "helm.sh/resource-policy: keep\n");
    let count = bellwether_api::v1::crds().len();
    assert_eq!(template.matches(definitions).count(), count);
    assert_eq!(template.matches(kept).count(), count, "uninstalling would delete every cluster");
    assert!(template.contains("{{- if .Values.crds.install }}"));
}

#[test]
fn the_operators_pod_passes_restricted() {
    let pod = object("Deployment")["spec"]["template"]["spec"].clone();
    for context in [&pod["securityContext"], &pod["containers"][0]["securityContext"]] {
        assert_eq!(context["runAsNonRoot"], true);
        assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault");
    }
    let container = &pod["containers"][0]["securityContext"];
    assert_eq!(container["allowPrivilegeEscalation"], false);
    assert_eq!(container["readOnlyRootFilesystem"], true);
    assert_eq!(container["capabilities"]["drop"][0], "ALL");
    assert_eq!(object("Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
}

#[test]
fn two_operators_within_100m_and_128_mib_apart_from_each_other() {
    let deployment = object("Deployment");
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(deployment["spec"]["replicas"], 2);
    let limits = &pod["containers"][0]["resources"]["limits"];
    assert_eq!((&limits["cpu"], &limits["memory"]), (&Value::from("100m"), &Value::from("128Mi")));
    let spread: Vec<_> = pod["topologySpreadConstraints"].as_array().expect("a list").iter().collect();
    assert!(spread.iter().all(|rule| rule["whenUnsatisfiable"] == "ScheduleAnyway"), "one node must do");
    assert_eq!(spread[0]["topologyKey"], "kubernetes.io/hostname");
}

#[test]
fn the_operator_hands_its_own_image_to_database_pods() {
    let container = object("Deployment")["spec"]["template"]["spec"]["containers"][0].clone();
    let own = container["env"].as_array().expect("a list").iter().find(|one| one["name"] == "BELLWETHER_IMAGE");
    assert_eq!(own.expect("it is told")["value"], container["image"]);
    let template = file("templates/operator.yaml");
    assert_eq!(template.matches(r#"{{ include "bellwether.image" . | quote }}"#).count(), 2, "image and variable");
}

#[test]
fn selectors_find_the_operators_pods_and_nothing_that_belongs_to_a_database() {
    let labels = &object("Deployment")["spec"]["template"]["metadata"]["labels"];
    for (kind, selector) in [
        ("Deployment", "/spec/selector/matchLabels"),
        ("Service", "/spec/selector"),
        ("PodDisruptionBudget", "/spec/selector/matchLabels"),
        ("NetworkPolicy", "/spec/podSelector/matchLabels"),
    ] {
        let object = object(kind);
        let selector = object.pointer(selector).and_then(Value::as_object).unwrap_or_else(|| panic!("{kind}"));
        assert!(!selector.is_empty() && selector.iter().all(|(key, value)| labels[key] == *value), "{kind}");
    }
    assert!(labels.get(bellwether_api::labels::MANAGED_BY).is_none(), "the operator would take itself for a child");
}

#[test]
fn bindings_bind_the_operators_account_to_roles_that_exist() {
    let objects = objects();
    let named = |kind: &Value, name: &Value| {
        objects.iter().any(|object| object["kind"] == *kind && object["metadata"]["name"] == *name)
    };
    for binding in objects.iter().filter(|object| object.get("roleRef").is_some()) {
        assert!(named(&binding["roleRef"]["kind"], &binding["roleRef"]["name"]), "{binding}");
        let subject = &binding["subjects"][0];
        assert!(named(&subject["kind"], &subject["name"]), "{binding}");
        assert_eq!(subject["namespace"], NAMESPACE);
    }
}

#[test]
fn a_list_of_namespaces_takes_no_cluster_wide_right() {
    let template = file("templates/rbac.yaml");
    let (before, rest) = template.split_once("{{- with .Values.watchNamespaces }}").expect("a condition");
    let (listed, otherwise) = rest.split_once("{{- else }}").expect("an alternative");
    assert!(!before.contains("kind: Cluster") && !listed.contains("kind: Cluster"), "{listed}");
    assert!(listed.contains("kind: Role\n") && listed.contains("kind: RoleBinding"));
    assert!(otherwise.contains("kind: ClusterRole\n") && otherwise.contains("kind: ClusterRoleBinding"));
}

#[test]
fn every_value_of_the_schema_is_in_values_yaml_and_no_other_is_taken() {
    let schema: Value = serde_json::from_str(&file("values.schema.json")).expect("JSON");
    let values: Value = serde_saphyr::from_str(VALUES).expect("YAML");
    let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<BTreeSet<_>>();
    let mut wanted = keys(&schema["properties"]);
    wanted.remove("global");
    assert_eq!(keys(&values), wanted);
    assert_eq!(schema["additionalProperties"], false, "a typo must be refused");
}

#[test]
fn every_value_is_used_by_a_template() {
    let values: Value = serde_saphyr::from_str(VALUES).expect("YAML");
    let templates: String = files().expect("files").into_iter().map(|file| file.content).collect();
    let mut paths = vec![];
    for (key, value) in values.as_object().expect("an object") {
        match value.as_object().filter(|map| !map.is_empty() && key != "resources") {
            Some(map) => paths.extend(map.keys().map(|inner| format!("{key}.{inner}"))),
            None => paths.push(key.clone()),
        }
    }
    for path in paths {
        assert!(templates.contains(&format!(".Values.{path}")), "{path} is accepted and not acted on");
    }
}
