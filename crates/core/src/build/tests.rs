//! What a database pod looks like to Kubernetes: Pod Security `restricted`, and where the spec lets it run.

use bellwether_api::v1::PostgresCluster;
use serde_json::{Value, json};

use super::{Parent, Settings, pod};

/// The spec of the first instance's pod.
fn spec(cluster: &Value) -> Value {
    let cluster: PostgresCluster = serde_json::from_value(json!({
        "apiVersion": "bellwether.dev/v1",
        "kind": "PostgresCluster",
        "metadata": { "name": "orders", "namespace": "shop", "uid": "u" },
        "spec": cluster,
    }))
    .expect("a cluster");
    let settings = Settings::default();
    let parent = Parent::of(&cluster, &settings).expect("it is stored");
    pod::pod(&parent, "orders-1", "a-claim", "c0ffee").value["spec"].clone()
}

/// What `restricted` asks for, from its definition: <https://kubernetes.io/docs/concepts/security/pod-security-standards/>.
fn violations(pod: &Value) -> Vec<String> {
    let mut found = vec![];
    for key in ["hostNetwork", "hostPID", "hostIPC"] {
        if pod.get(key).is_some_and(|value| value != false) {
            found.push(key.to_owned());
        }
    }
    let allowed = ["name", "configMap", "downwardAPI", "emptyDir", "persistentVolumeClaim", "projected", "secret"];
    for volume in pod["volumes"].as_array().into_iter().flatten() {
        found.extend(
            volume
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, _)| key)
                .filter(|key| !allowed.contains(&key.as_str()))
                .cloned(),
        );
    }
    let both = pod["containers"].as_array().into_iter().chain(pod["initContainers"].as_array()).flatten();
    for container in both {
        let own = &container["securityContext"];
        let says = |key: &str| if own[key].is_null() { &pod["securityContext"][key] } else { &own[key] };
        let must = [
            ("runAsNonRoot", says("runAsNonRoot") == true),
            ("runAsUser", says("runAsUser") != 0),
            (
                "seccompProfile",
                ["RuntimeDefault", "Localhost"].iter().any(|kind| says("seccompProfile")["type"] == *kind),
            ),
            ("allowPrivilegeEscalation", own["allowPrivilegeEscalation"] == false),
            ("privileged", own["privileged"] != true),
            ("capabilities", own["capabilities"]["drop"] == json!(["ALL"]) && own["capabilities"]["add"].is_null()),
            ("hostPort", container["ports"].as_array().into_iter().flatten().all(|port| port["hostPort"].is_null())),
        ];
        let name = container["name"].as_str().unwrap_or_default();
        found.extend(must.iter().filter(|(_, holds)| !holds).map(|(what, _)| format!("{name}: {what}")));
    }
    found
}

#[test]
fn database_pods_pass_restricted() {
    for cluster in [json!({ "replicas": 3 }), json!({ "storage": { "size": "1Gi", "wal": { "size": "1Gi" } } })] {
        let spec = spec(&cluster);
        assert_eq!(violations(&spec), [""; 0]);
        let mut broken = spec;
        broken["initContainers"][0]["securityContext"]["capabilities"] = json!({});
        assert_eq!(violations(&broken), ["install-agent: capabilities"], "what checks it can fail");
    }
}

#[test]
fn instances_prefer_nodes_of_their_own_unless_told_otherwise() {
    let rules = |cluster: &Value| spec(cluster)["affinity"]["podAntiAffinity"].clone();
    let preferred = rules(&json!({}))["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"].clone();
    assert_eq!(preferred["topologyKey"], "kubernetes.io/hostname");
    assert_eq!(preferred["labelSelector"]["matchLabels"], json!({ "bellwether.dev/cluster": "orders" }));
    let required = rules(&json!({ "scheduling": { "antiAffinity": "required" } }));
    assert_eq!(required["requiredDuringSchedulingIgnoredDuringExecution"][0], preferred);
    assert!(rules(&json!({ "scheduling": { "antiAffinity": "off" } })).is_null());
}

#[test]
fn what_the_spec_says_about_nodes_and_registries_arrives_in_the_pod() {
    let spec = spec(&json!({
        "imagePullSecrets": [{ "name": "registry" }],
        "scheduling": {
            "nodeSelector": { "disk": "ssd" },
            "tolerations": [{ "key": "databases", "operator": "Exists" }],
            "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 1, "preference": { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["a"] }] } }] } },
            "priorityClassName": "important",
        },
    }));
    assert_eq!(spec["imagePullSecrets"], json!([{ "name": "registry" }]));
    assert_eq!(spec["nodeSelector"], json!({ "disk": "ssd" }));
    assert_eq!(spec["tolerations"][0]["key"], "databases");
    assert_eq!(spec["priorityClassName"], "important");
    assert!(spec["affinity"]["nodeAffinity"].is_object() && spec["affinity"]["podAntiAffinity"].is_object());
}

#[test]
fn a_spread_constraint_counts_the_clusters_own_instances_unless_it_selects_others() {
    let constraint = |selector: Value| {
        let mut constraint = json!({ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule" });
        if !selector.is_null() {
            constraint["labelSelector"] = selector;
        }
        constraint
    };
    let given = [constraint(Value::Null), constraint(json!({ "matchLabels": { "a": "b" } }))];
    let spread =
        spec(&json!({ "scheduling": { "topologySpreadConstraints": given } }))["topologySpreadConstraints"].clone();
    assert_eq!(spread[0]["labelSelector"]["matchLabels"], json!({ "bellwether.dev/cluster": "orders" }));
    assert_eq!(spread[1]["labelSelector"]["matchLabels"], json!({ "a": "b" }));
}

/// What an operator of this release would make pods from, and of another.
fn hashes(cluster: &Value) -> [String; 2] {
    let cluster: PostgresCluster = serde_json::from_value(json!({
        "apiVersion": "bellwether.dev/v1", "kind": "PostgresCluster",
        "metadata": { "name": "orders", "namespace": "shop", "uid": "u" }, "spec": cluster,
    }))
    .expect("a cluster");
    let next = Settings { image: "bellwether:next".to_owned(), postgres_uid: 26, ..Settings::default() };
    [Settings::default(), next]
        .map(|settings| pod::current_hash(&Parent::of(&cluster, &settings).expect("it is stored")))
}

#[test]
fn databases_are_restarted_for_what_users_say_and_for_nothing_that_is_the_operators() {
    let [first, next] = hashes(&json!({ "version": "17", "replicas": 3 }));
    assert_eq!(first, next);
    // A release in which this differs restarts every database that there is.
    assert_eq!(first, "d237f8e1dfa9f16e");
    for change in [
        json!({ "version": "17", "image": "postgres:17.6" }),
        json!({ "version": "17", "resources": { "limits": { "memory": "2Gi" } } }),
        json!({ "version": "17", "scheduling": { "nodeSelector": { "disk": "ssd" } } }),
        json!({ "version": "17", "imagePullSecrets": [{ "name": "registry" }] }),
    ] {
        assert_ne!(hashes(&change)[0], first, "{change}");
    }
    let reloaded = json!({ "version": "17", "replicas": 5, "parameters": { "work_mem": "8MB" }, "pgHba": ["# a"] });
    assert_eq!(hashes(&reloaded)[0], first);
}
