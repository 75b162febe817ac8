//! The chart, rendered by a real Helm (`hack/helm`). Skipped, by name, where that isn't built.
//!
//! Held to: the chart with its defaults is the plain manifest; a typo is refused; what is switched on appears, what is off doesn't.

#![allow(clippy::print_stderr, reason = "a skipped test says why")]

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    PathBuf::from(env!("BELLWETHER_ROOT"))
}

/// Runs Helm with the chart; `None`, and a line that says so, where there is none.
fn helm(verb: &[&str], values: &str) -> Option<Result<String, String>> {
    let found = Command::new(root().join("hack/helm")).arg("--if-built").output().expect("hack/helm runs");
    if !found.status.success() {
        eprintln!("SKIPPED: {}", String::from_utf8_lossy(&found.stderr).trim());
        return None;
    }
    let program = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    let scratch = tempfile::tempdir().expect("a directory");
    let file = scratch.path().join("values.yaml");
    std::fs::write(&file, values).expect("written");
    let home = |name: &str| (format!("HELM_{name}_HOME"), scratch.path().join(name));
    let output = Command::new(program)
        .args(verb)
        .arg(root().join("deploy/chart/bellwether"))
        .arg("--values")
        .arg(&file)
        .envs(["CACHE", "CONFIG", "DATA"].map(home))
        .output()
        .expect("helm runs");
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Some(if output.status.success() { Ok(said.into_owned()) } else { Err(format!("{said}{complained}")) })
}

fn template(values: &str) -> Option<Result<Vec<Value>, String>> {
    let rendered = helm(&["template", "bellwether", "--namespace", "bellwether-system"], values)?;
    Some(rendered.map(|text| documents(&text)))
}

fn documents(text: &str) -> Vec<Value> {
    let found: Vec<Option<Value>> = serde_saphyr::from_multiple(text).expect("YAML");
    let mut found: Vec<Value> = found.into_iter().flatten().collect();
    found.sort_by_key(identity);
    found
}

fn identity(object: &Value) -> String {
    let metadata = &object["metadata"];
    format!("{} {} {}", object["kind"], metadata["namespace"], metadata["name"])
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

#[test]
fn lint_has_nothing_to_say() {
    let Some(linted) = helm(&["lint", "--strict"], "{}") else { return };
    let said = linted.expect("helm lint passes");
    assert!(said.contains("0 chart(s) failed") && !said.contains("[WARNING]"), "{said}");
}

#[test]
fn the_chart_with_its_defaults_is_the_manifest_and_the_definitions() {
    let Some(rendered) = template("{}") else { return };
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect(path);
    let mut wanted = documents(&read("deploy/bellwether.yaml"));
    wanted.retain(|object| object["kind"] != "Namespace");
    for name in ["postgresclusters", "backups"] {
        let mut definition = documents(&read(&format!("deploy/crds/{name}.bellwether.dev.yaml"))).remove(0);
        definition["metadata"]["annotations"]["helm.sh/resource-policy"] = "keep".into();
        wanted.push(definition);
    }
    wanted.sort_by_key(identity);
    let rendered = rendered.expect("it renders");
    assert_eq!(rendered.iter().map(identity).collect::<Vec<_>>(), wanted.iter().map(identity).collect::<Vec<_>>());
    for (rendered, wanted) in rendered.iter().zip(&wanted) {
        assert_eq!(rendered, wanted, "{}", identity(wanted));
    }
}

#[test]
fn a_list_of_namespaces_gets_roles_in_each_and_nothing_cluster_wide() {
    let Some(rendered) = template("watchNamespaces: [one, two]") else { return };
    let objects = rendered.expect("it renders");
    for kind in ["ClusterRole", "ClusterRoleBinding"] {
        assert!(of_kind(&objects, kind).is_empty(), "{kind}");
    }
    for kind in ["Role", "RoleBinding"] {
        let names = of_kind(&objects, kind);
        let place =
            |object: &&Value| (object["metadata"]["namespace"].to_string(), object["metadata"]["name"].to_string());
        let places: Vec<_> = names.iter().map(place).collect();
        let wanted = [
            ("bellwether-system", "bellwether-operator-leader"),
            ("one", "bellwether-operator"),
            ("two", "bellwether-operator"),
        ];
        assert_eq!(places, wanted.map(|(namespace, name)| (format!("{namespace:?}"), format!("{name:?}"))), "{kind}");
    }
    let binding = of_kind(&objects, "RoleBinding").into_iter().find(|object| object["metadata"]["namespace"] == "two");
    assert_eq!(binding.expect("a binding")["subjects"][0]["namespace"], "bellwether-system");
    let deployment = of_kind(&objects, "Deployment")[0];
    let env = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array().expect("a list");
    let told = env.iter().find(|one| one["name"] == "BELLWETHER_NAMESPACES").expect("it is told");
    assert_eq!(told["value"], "one,two");
}

#[test]
fn what_is_set_arrives_in_the_pod() {
    let values = r#"
replicas: 3
image: {repository: registry.example/bw, digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", pullPolicy: Always, pullSecrets: [{name: registry}]}
postgresUid: 26
log: debug
resources: {limits: {memory: 256Mi}}
nodeSelector: {disk: ssd}
tolerations: [{key: databases, operator: Exists}]
affinity: {nodeAffinity: {}}
topologySpreadConstraints: [{maxSkew: 2, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}]
priorityClassName: system-cluster-critical
podLabels: {team: data}
podAnnotations: {note: "7"}
serviceAccount: {annotations: {role: x}}
networkPolicy: {enabled: false}
"#;
    let Some(rendered) = template(values) else { return };
    let objects = rendered.expect("it renders");
    let deployment = of_kind(&objects, "Deployment")[0];
    let (template, pod) = (&deployment["spec"]["template"], &deployment["spec"]["template"]["spec"]);
    let container = &pod["containers"][0];
    let image = "registry.example/bw@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let variable = |name: &str| {
        let env = container["env"].as_array().expect("a list");
        env.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name}"))["value"].clone()
    };
    assert_eq!(deployment["spec"]["replicas"], 3);
    assert_eq!((container["image"].as_str(), variable("BELLWETHER_IMAGE")), (Some(image), image.into()));
    assert_eq!((variable("BELLWETHER_POSTGRES_UID"), variable("BELLWETHER_LOG")), ("26".into(), "debug".into()));
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(container["resources"]["limits"]["memory"], "256Mi");
    assert_eq!(container["resources"]["limits"]["cpu"], "100m", "values are merged, as Helm does");
    assert_eq!(pod["imagePullSecrets"][0]["name"], "registry");
    assert_eq!(pod["nodeSelector"]["disk"], "ssd");
    assert_eq!(pod["tolerations"][0]["key"], "databases");
    assert!(pod["affinity"]["nodeAffinity"].is_object());
    assert_eq!(pod["topologySpreadConstraints"].as_array().map(Vec::len), Some(1));
    assert_eq!(pod["topologySpreadConstraints"][0]["topologyKey"], "rack");
    assert_eq!(pod["priorityClassName"], "system-cluster-critical");
    assert_eq!(template["metadata"]["labels"]["team"], "data");
    assert_eq!(template["metadata"]["labels"]["app.kubernetes.io/name"], "bellwether");
    assert_eq!(template["metadata"]["annotations"]["note"], "7");
    assert_eq!(of_kind(&objects, "ServiceAccount")[0]["metadata"]["annotations"]["role"], "x");
    assert!(of_kind(&objects, "NetworkPolicy").is_empty());
}

#[test]
fn a_service_monitor_is_there_when_it_is_switched_on() {
    let Some(off) = template("{}") else { return };
    assert!(of_kind(&off.expect("it renders"), "ServiceMonitor").is_empty());
    let on = template("serviceMonitor: {enabled: true, interval: 10s, labels: {release: prometheus}}");
    let objects = on.expect("helm is there").expect("it renders");
    let monitor = of_kind(&objects, "ServiceMonitor")[0];
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    assert_eq!(monitor["spec"]["endpoints"][0]["interval"], "10s");
    let service = of_kind(&objects, "Service")[0];
    assert_eq!(monitor["spec"]["endpoints"][0]["port"], service["spec"]["ports"][0]["name"]);
    let selected = monitor["spec"]["selector"]["matchLabels"].as_object().expect("labels");
    assert!(selected.iter().all(|(key, value)| service["metadata"]["labels"][key] == *value), "it selects nothing");
}

#[test]
fn a_certificate_of_ones_own_is_mounted_and_named() {
    let Some(rendered) = template("tlsSecret: metrics-certificate") else { return };
    let objects = rendered.expect("it renders");
    let pod = &of_kind(&objects, "Deployment")[0]["spec"]["template"]["spec"];
    let (container, volume) = (&pod["containers"][0], &pod["volumes"][0]);
    assert_eq!(volume["secret"]["secretName"], "metrics-certificate");
    assert_eq!(
        (&container["volumeMounts"][0]["name"], &container["volumeMounts"][0]["readOnly"]),
        (&volume["name"], &true.into())
    );
    let arguments: Vec<_> = container["args"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    let mount = container["volumeMounts"][0]["mountPath"].as_str().expect("a path");
    for (flag, file) in [("--tls-certificate", "tls.crt"), ("--tls-key", "tls.key")] {
        assert!(arguments.contains(&format!("{flag}={mount}/{file}").as_str()), "{arguments:?}");
    }
    assert_eq!(arguments[0], "operator");
}

#[test]
fn definitions_can_be_left_to_somebody_else() {
    let Some(rendered) = template("crds: {install: false}") else { return };
    assert!(of_kind(&rendered.expect("it renders"), "CustomResourceDefinition").is_empty());
}

#[test]
fn typos_and_impossible_values_are_refused_by_name() {
    for (values, named) in [
        ("replica: 3", "replica"),
        ("replicas: 0", "replicas"),
        ("replicas: two", "replicas"),
        ("image: {tags: x}", "tags"),
        ("image: {digest: 'sha256:short'}", "digest"),
        ("image: {pullPolicy: Sometimes}", "pullPolicy"),
        ("watchNamespaces: one", "watchNamespaces"),
        ("watchNamespaces: [Not_A_Name]", "watchNamespaces"),
        ("watchNamespaces: [one, one]", "watchNamespaces"),
        ("networkPolicy: {apiServerPorts: [70000]}", "apiServerPorts"),
        ("serviceMonitor: {interval: often}", "interval"),
        ("postgresUid: 0", "postgresUid"),
    ] {
        let Some(rendered) = template(values) else { return };
        let why = rendered.err().unwrap_or_else(|| panic!("{values} was taken"));
        assert!(why.contains(named), "{values}: {why}");
    }
}
