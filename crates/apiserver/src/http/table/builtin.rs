//! The columns of built-in kinds: the same as a kube-apiserver's, so that `kubectl get` looks as everywhere else.

use jiff::Timestamp;
use serde_json::Value;

/// Fills a row.
pub(super) type CellsOf = fn(&Value, Timestamp) -> Vec<Value>;
type Columns = &'static [(&'static str, &'static str, i64)];

/// Name, type and priority of a kind's columns, and what fills them; none for kinds with name and age only.
pub(super) fn columns_of(kind: &str) -> Option<(Columns, CellsOf)> {
    const S: &str = "string";
    Some(match kind {
        "Pod" => (
            &[
                ("Name", S, 0),
                ("Ready", S, 0),
                ("Status", S, 0),
                ("Restarts", S, 0),
                ("Age", S, 0),
                ("IP", S, 1),
                ("Node", S, 1),
                ("Nominated Node", S, 1),
                ("Readiness Gates", S, 1),
            ],
            super::pod::cells,
        ),
        "Service" => (
            &[
                ("Name", S, 0),
                ("Type", S, 0),
                ("Cluster-IP", S, 0),
                ("External-IP", S, 0),
                ("Port(s)", S, 0),
                ("Age", S, 0),
                ("Selector", S, 1),
            ],
            service,
        ),
        "Secret" => (&[("Name", S, 0), ("Type", S, 0), ("Data", S, 0), ("Age", S, 0)], secret),
        "ConfigMap" => (&[("Name", S, 0), ("Data", S, 0), ("Age", S, 0)], config_map),
        "PersistentVolumeClaim" => (
            &[
                ("Name", S, 0),
                ("Status", S, 0),
                ("Volume", S, 0),
                ("Capacity", S, 0),
                ("Access Modes", S, 0),
                ("StorageClass", S, 0),
                ("VolumeAttributesClass", S, 0),
                ("Age", S, 0),
                ("VolumeMode", S, 1),
            ],
            claim,
        ),
        "Lease" => (&[("Name", S, 0), ("Holder", S, 0), ("Age", S, 0)], lease),
        "Event" => (
            &[
                ("Last Seen", S, 0),
                ("Type", S, 0),
                ("Reason", S, 0),
                ("Object", S, 0),
                ("Subobject", S, 1),
                ("Source", S, 1),
                ("Message", S, 0),
                ("First Seen", S, 1),
                ("Count", S, 1),
                ("Name", S, 1),
            ],
            event,
        ),
        "EndpointSlice" => (
            &[("Name", S, 0), ("AddressType", S, 0), ("Ports", S, 0), ("Endpoints", S, 0), ("Age", S, 0)],
            endpoint_slice,
        ),
        "Node" => (
            &[
                ("Name", S, 0),
                ("Status", S, 0),
                ("Roles", S, 0),
                ("Age", S, 0),
                ("Version", S, 0),
                ("Internal-IP", S, 1),
                ("External-IP", S, 1),
                ("OS-Image", S, 1),
                ("Kernel-Version", S, 1),
                ("Container-Runtime", S, 1),
            ],
            node,
        ),
        "Namespace" => (&[("Name", S, 0), ("Status", S, 0), ("Age", S, 0)], namespace),
        "PodDisruptionBudget" => (
            &[
                ("Name", S, 0),
                ("Min Available", S, 0),
                ("Max Unavailable", S, 0),
                ("Allowed Disruptions", "integer", 0),
                ("Age", S, 0),
            ],
            disruption_budget,
        ),
        "Job" => (
            &[
                ("Name", S, 0),
                ("Status", S, 0),
                ("Completions", S, 0),
                ("Duration", S, 0),
                ("Age", S, 0),
                ("Containers", S, 1),
                ("Images", S, 1),
                ("Selector", S, 1),
            ],
            job,
        ),
        "ServiceAccount" => (&[("Name", S, 0), ("Age", S, 0)], name_and_age),
        "Role" | "ClusterRole" | "CustomResourceDefinition" => {
            (&[("Name", S, 0), ("Created At", "date", 0)], created_at)
        }
        "RoleBinding" | "ClusterRoleBinding" => (
            &[
                ("Name", S, 0),
                ("Role", S, 0),
                ("Age", S, 0),
                ("Users", S, 1),
                ("Groups", S, 1),
                ("ServiceAccounts", S, 1),
            ],
            binding,
        ),
        _ => return None,
    })
}

fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = items(object, "/spec/ports").iter().map(service_port).collect();
    let external: Vec<&str> = items(object, "/spec/externalIPs").iter().filter_map(Value::as_str).collect();
    vec![
        text(object, "/metadata/name").into(),
        text(object, "/spec/type").into(),
        or_none(text(object, "/spec/clusterIP")).into(),
        or_none(&external.join(",")).into(),
        or_none(&ports.join(",")).into(),
        age(object, now).into(),
        or_none(&pairs(object, "/spec/selector")).into(),
    ]
}

fn service_port(port: &Value) -> String {
    let protocol = port["protocol"].as_str().unwrap_or("TCP");
    match port["nodePort"].as_i64() {
        Some(node_port) if node_port != 0 => format!("{}:{node_port}/{protocol}", port["port"]),
        _ => format!("{}/{protocol}", port["port"]),
    }
}

fn secret(object: &Value, now: Timestamp) -> Vec<Value> {
    let count = object["data"].as_object().map_or(0, |data| data.len());
    vec![text(object, "/metadata/name").into(), text(object, "/type").into(), count.into(), age(object, now).into()]
}

fn config_map(object: &Value, now: Timestamp) -> Vec<Value> {
    let count = |key: &str| object[key].as_object().map_or(0, |data| data.len());
    vec![text(object, "/metadata/name").into(), (count("data") + count("binaryData")).into(), age(object, now).into()]
}

fn claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let terminating = !text(object, "/metadata/deletionTimestamp").is_empty();
    let bound = !text(object, "/spec/volumeName").is_empty();
    let modes: Vec<&str> =
        items(object, "/status/accessModes").iter().filter_map(Value::as_str).map(short_mode).collect();
    let unset = |value: &str| if value.is_empty() { "<unset>".to_owned() } else { value.to_owned() };
    vec![
        text(object, "/metadata/name").into(),
        if terminating { "Terminating" } else { text(object, "/status/phase") }.into(),
        text(object, "/spec/volumeName").into(),
        if bound { text(object, "/status/capacity/storage") } else { "" }.into(),
        if bound { modes.join(",") } else { String::new() }.into(),
        text(object, "/spec/storageClassName").into(),
        unset(text(object, "/spec/volumeAttributesClassName")).into(),
        age(object, now).into(),
        unset(text(object, "/spec/volumeMode")).into(),
    ]
}

fn short_mode(mode: &str) -> &str {
    match mode {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        other => other,
    }
}

fn lease(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![text(object, "/metadata/name").into(), text(object, "/spec/holderIdentity").into(), age(object, now).into()]
}

/// Events of both groups: the core group's fields, and those that events.k8s.io calls otherwise.
fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let first = |pointers: &[&str]| {
        pointers.iter().map(|pointer| text(object, pointer)).find(|found| !found.is_empty()).unwrap_or_default()
    };
    let since = |time: &str| if time.is_empty() { "<unknown>".into() } else { super::age::age_of(time, now) };
    let kind = first(&["/involvedObject/kind", "/regarding/kind"]).to_lowercase();
    let name = first(&["/involvedObject/name", "/regarding/name"]);
    let source =
        first(&["/source/component", "/deprecatedSource/component", "/reportingComponent", "/reportingController"]);
    let host = first(&["/source/host", "/reportingInstance"]);
    let started = first(&["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime", "/metadata/creationTimestamp"]);
    let ended = first(&["/series/lastObservedTime", "/lastTimestamp", "/deprecatedLastTimestamp", "/eventTime"]);
    let count = ["/series/count", "/count", "/deprecatedCount"]
        .iter()
        .find_map(|pointer| object.pointer(pointer)?.as_i64())
        .unwrap_or(1);
    vec![
        since(ended).into(),
        text(object, "/type").into(),
        text(object, "/reason").into(),
        format!("{kind}/{name}").into(),
        first(&["/involvedObject/fieldPath", "/regarding/fieldPath"]).into(),
        if host.is_empty() { source.to_owned() } else { format!("{source}, {host}") }.into(),
        first(&["/message", "/note"]).trim().into(),
        since(started).into(),
        count.to_string().into(),
        text(object, "/metadata/name").into(),
    ]
}

fn endpoint_slice(object: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = items(object, "/ports").iter().map(|port| port["port"].to_string()).collect();
    let addresses: Vec<&str> =
        items(object, "/endpoints").iter().flat_map(|e| items(e, "/addresses")).filter_map(Value::as_str).collect();
    vec![
        text(object, "/metadata/name").into(),
        text(object, "/addressType").into(),
        some_of(&ports).into(),
        some_of(&addresses).into(),
        age(object, now).into(),
    ]
}

/// The first three, and how many more there are.
fn some_of<T: AsRef<str>>(all: &[T]) -> String {
    let shown: Vec<&str> = all.iter().take(3).map(AsRef::as_ref).collect();
    match all.len() {
        0 => "<unset>".into(),
        1..=3 => shown.join(","),
        more => format!("{} + {} more...", shown.join(","), more - 3),
    }
}

fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let ready = items(object, "/status/conditions")
        .iter()
        .find(|condition| condition["type"] == "Ready")
        .map(|c| c["status"] == "True");
    let mut status = match ready {
        Some(true) => "Ready".to_owned(),
        Some(false) => "NotReady".into(),
        None => "Unknown".into(),
    };
    if object.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let roles: Vec<&str> = labels
        .into_iter()
        .flat_map(|labels| labels.keys())
        .filter_map(|key| key.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    let address = |kind: &str| {
        let found = items(object, "/status/addresses").iter().find(|address| address["type"] == kind);
        or_none(found.and_then(|address| address["address"].as_str()).unwrap_or_default())
    };
    let info = |key: &str| or_unknown(text(object, &format!("/status/nodeInfo/{key}")));
    vec![
        text(object, "/metadata/name").into(),
        status.into(),
        or_none(&roles.join(",")).into(),
        age(object, now).into(),
        text(object, "/status/nodeInfo/kubeletVersion").into(),
        address("InternalIP").into(),
        address("ExternalIP").into(),
        info("osImage").into(),
        info("kernelVersion").into(),
        info("containerRuntimeVersion").into(),
    ]
}

fn namespace(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![text(object, "/metadata/name").into(), text(object, "/status/phase").into(), age(object, now).into()]
}

fn disruption_budget(object: &Value, now: Timestamp) -> Vec<Value> {
    let number = |key: &str| match object.pointer(&format!("/spec/{key}")) {
        Some(Value::String(percent)) => percent.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => "N/A".into(),
    };
    vec![
        text(object, "/metadata/name").into(),
        number("minAvailable").into(),
        number("maxUnavailable").into(),
        object.pointer("/status/disruptionsAllowed").and_then(Value::as_i64).unwrap_or_default().into(),
        age(object, now).into(),
    ]
}

fn job(object: &Value, now: Timestamp) -> Vec<Value> {
    let succeeded = object.pointer("/status/succeeded").and_then(Value::as_i64).unwrap_or_default();
    let wanted = object.pointer("/spec/completions").and_then(Value::as_i64).unwrap_or(1);
    let time = |pointer: &str| text(object, pointer).parse::<Timestamp>().ok();
    let duration = time("/status/startTime")
        .map(|start| super::human_duration(time("/status/completionTime").unwrap_or(now).duration_since(start)))
        .unwrap_or_default();
    let of_containers = |key: &str| {
        let containers = items(object, "/spec/template/spec/containers");
        containers.iter().filter_map(|container| container[key].as_str()).collect::<Vec<_>>().join(",")
    };
    vec![
        text(object, "/metadata/name").into(),
        job_status(object).into(),
        format!("{succeeded}/{wanted}").into(),
        duration.into(),
        age(object, now).into(),
        of_containers("name").into(),
        of_containers("image").into(),
        or_none(&pairs(object, "/spec/selector/matchLabels")).into(),
    ]
}

fn job_status(object: &Value) -> &'static str {
    let holds =
        |kind: &str| items(object, "/status/conditions").iter().any(|c| c["type"] == kind && c["status"] == "True");
    match () {
        () if holds("Complete") => "Complete",
        () if holds("Failed") => "Failed",
        () if !text(object, "/metadata/deletionTimestamp").is_empty() => "Terminating",
        () if holds("Suspended") => "Suspended",
        () if holds("FailureTarget") => "FailureTarget",
        () if holds("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let of_kind = |kind: &str| {
        let subjects = items(object, "/subjects").iter().filter(|subject| subject["kind"] == kind);
        let names = subjects.map(|subject| match text(subject, "/namespace") {
            "" => text(subject, "/name").to_owned(),
            namespace => format!("{namespace}/{}", text(subject, "/name")),
        });
        names.collect::<Vec<_>>().join(", ")
    };
    vec![
        text(object, "/metadata/name").into(),
        format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name")).into(),
        age(object, now).into(),
        of_kind("User").into(),
        of_kind("Group").into(),
        of_kind("ServiceAccount").into(),
    ]
}

fn name_and_age(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![text(object, "/metadata/name").into(), age(object, now).into()]
}

fn created_at(object: &Value, _now: Timestamp) -> Vec<Value> {
    vec![text(object, "/metadata/name").into(), text(object, "/metadata/creationTimestamp").into()]
}

pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn age(object: &Value, now: Timestamp) -> String {
    match text(object, "/metadata/creationTimestamp") {
        "" => "<unknown>".into(),
        created => super::age::age_of(created, now),
    }
}

pub(super) fn or_none(text: &str) -> String {
    if text.is_empty() { "<none>".into() } else { text.into() }
}

fn or_unknown(text: &str) -> String {
    if text.is_empty() { "<unknown>".into() } else { text.into() }
}

fn pairs(object: &Value, pointer: &str) -> String {
    let pairs = object.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KINDS: [&str; 18] = [
        "Pod",
        "Service",
        "Secret",
        "ConfigMap",
        "PersistentVolumeClaim",
        "Lease",
        "Event",
        "EndpointSlice",
        "Node",
        "Namespace",
        "PodDisruptionBudget",
        "Job",
        "ServiceAccount",
        "Role",
        "ClusterRole",
        "CustomResourceDefinition",
        "RoleBinding",
        "ClusterRoleBinding",
    ];

    #[test]
    fn every_row_has_as_many_cells_as_columns_even_for_an_empty_object() {
        for kind in KINDS {
            let (columns, cells) = columns_of(kind).unwrap();
            assert_eq!(cells(&json!({}), Timestamp::UNIX_EPOCH).len(), columns.len(), "{kind}");
        }
    }

    #[test]
    fn a_service_shows_its_ports() {
        let service = json!({"metadata": {"name": "orders-rw"}, "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1",
            "ports": [{"port": 5432}, {"port": 80, "nodePort": 30080, "protocol": "UDP"}]}});
        let (_, cells) = columns_of("Service").unwrap();
        assert_eq!(cells(&service, Timestamp::UNIX_EPOCH)[4], "5432/TCP,80:30080/UDP");
    }

    #[test]
    fn many_endpoints_are_counted() {
        let slice = json!({"endpoints": [{"addresses": ["a"]}, {"addresses": ["b"]}, {"addresses": ["c"]}, {"addresses": ["d"]}]});
        let (_, cells) = columns_of("EndpointSlice").unwrap();
        assert_eq!(cells(&slice, Timestamp::UNIX_EPOCH)[3], "a,b,c + 1 more...");
    }
}
