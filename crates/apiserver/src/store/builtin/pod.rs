//! Pods: defaults, what has to be there, and that a pod is replaced rather than changed.

use serde_json::{Value, json};

use super::{each, set_default};
use crate::error::{FieldError, Problem};
use crate::store::names::{NameRule, name_problems};

/// The defaults of a pod's spec, also of one inside a Job.
pub(super) fn default_spec(spec: &mut Value) {
    if !spec.is_object() {
        return;
    }
    set_default(spec, "restartPolicy", "Always");
    set_default(spec, "terminationGracePeriodSeconds", 30);
    set_default(spec, "dnsPolicy", "ClusterFirst");
    set_default(spec, "securityContext", json!({}));
    set_default(spec, "schedulerName", "default-scheduler");
    // The old name of the field follows the new one.
    if let Some(name) = spec.get("serviceAccountName").or_else(|| spec.get("serviceAccount")).cloned() {
        spec["serviceAccountName"] = name.clone();
        spec["serviceAccount"] = name;
    }
    for list in ["initContainers", "containers"] {
        each(spec, list).for_each(default_container);
    }
    each(spec, "volumes").for_each(default_volume);
}

/// What the server puts into a new pod.
pub(super) fn prepare_create(pod: &mut Value) {
    set_default(&mut pod["spec"], "enableServiceLinks", true);
    pod["status"] = json!({"phase": "Pending", "qosClass": quality(&pod["spec"])});
}

/// The class that says who is evicted first.
fn quality(spec: &Value) -> &'static str {
    let containers: Vec<&Value> =
        ["containers", "initContainers"].iter().flat_map(|list| spec[*list].as_array().into_iter().flatten()).collect();
    let demands = |one: &Value, field: &str| one["resources"][field].as_object().is_some_and(|all| !all.is_empty());
    if containers.iter().all(|one| !demands(one, "requests") && !demands(one, "limits")) {
        return "BestEffort";
    }
    let guaranteed = containers.iter().all(|one| {
        ["cpu", "memory"].iter().all(|name| {
            let limit = &one["resources"]["limits"][*name];
            !limit.is_null() && one["resources"]["requests"][*name] == *limit
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}

fn default_container(container: &mut Value) {
    if !container.is_object() {
        return;
    }
    set_default(container, "resources", json!({}));
    set_default(container, "terminationMessagePath", "/dev/termination-log");
    set_default(container, "terminationMessagePolicy", "File");
    let image = container["image"].as_str().unwrap_or_default();
    let name = image.rsplit('/').next().unwrap_or_default();
    let latest = !image.contains('@') && name.split_once(':').is_none_or(|(_, tag)| tag == "latest");
    set_default(container, "imagePullPolicy", if latest { "Always" } else { "IfNotPresent" });
    each(container, "ports").for_each(|port| set_default(port, "protocol", "TCP"));
    for variable in each(container, "env") {
        if let Some(field) = variable.get_mut("valueFrom").and_then(|from| from.get_mut("fieldRef")) {
            set_default(field, "apiVersion", "v1");
        }
    }
    // What is limited is requested.
    if let Some(limits) = container["resources"].get("limits").and_then(Value::as_object).cloned() {
        set_default(&mut container["resources"], "requests", json!({}));
        for (name, limit) in limits {
            set_default(&mut container["resources"]["requests"], &name, limit);
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe) {
            default_probe(probe);
        }
    }
    for hook in ["postStart", "preStop"] {
        if let Some(hook) = container.get_mut("lifecycle").and_then(|all| all.get_mut(hook)) {
            default_http(hook);
        }
    }
}

fn default_probe(probe: &mut Value) {
    set_default(probe, "timeoutSeconds", 1);
    set_default(probe, "periodSeconds", 10);
    set_default(probe, "successThreshold", 1);
    set_default(probe, "failureThreshold", 3);
    default_http(probe);
    if let Some(grpc) = probe.get_mut("grpc") {
        set_default(grpc, "service", "");
    }
}

fn default_http(action: &mut Value) {
    if let Some(http) = action.get_mut("httpGet") {
        set_default(http, "path", "/");
        set_default(http, "scheme", "HTTP");
    }
}

fn default_volume(volume: &mut Value) {
    if volume.as_object().is_some_and(|map| map.len() == 1) {
        set_default(volume, "emptyDir", json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        let Some(source) = volume.get_mut(source) else { continue };
        set_default(source, "defaultMode", 0o644);
        let downward = |item: &mut Value| {
            if let Some(field) = item.get_mut("fieldRef") {
                set_default(field, "apiVersion", "v1");
            }
        };
        each(source, "items").for_each(downward);
        for projected in each(source, "sources") {
            if let Some(token) = projected.get_mut("serviceAccountToken") {
                set_default(token, "expirationSeconds", 3600);
            }
            if let Some(api) = projected.get_mut("downwardAPI") {
                each(api, "items").for_each(downward);
            }
        }
    }
    if let Some(host) = volume.get_mut("hostPath") {
        set_default(host, "type", "");
    }
}

/// What is wrong with a pod.
pub(super) fn validate(pod: &Value) -> Vec<FieldError> {
    validate_spec(&pod["spec"], "spec")
}

/// What is wrong with a pod's spec at a path.
pub(super) fn validate_spec(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let volumes: Vec<&str> =
        spec["volumes"].as_array().into_iter().flatten().filter_map(|one| one["name"].as_str()).collect();
    let mut names: Vec<&str> = Vec::new();
    if spec["containers"].as_array().is_none_or(Vec::is_empty) {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    for list in ["containers", "initContainers"] {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            let at = format!("{path}.{list}[{index}]");
            let name = container["name"].as_str().unwrap_or_default();
            if name.is_empty() {
                errors.push(FieldError::required(format!("{at}.name"), ""));
            } else {
                let problems = name_problems(NameRule::Label, name);
                errors.extend(
                    problems.iter().map(|problem| FieldError::invalid(format!("{at}.name"), &name.into(), problem)),
                );
                if names.contains(&name) {
                    errors.push(FieldError::duplicate(format!("{at}.name"), &name.into()));
                }
                names.push(name);
            }
            if container["image"].as_str().is_none_or(str::is_empty) {
                errors.push(FieldError::required(format!("{at}.image"), ""));
            }
            for (mount, volume) in container["volumeMounts"].as_array().into_iter().flatten().enumerate() {
                let name = volume["name"].as_str().unwrap_or_default();
                if !volumes.contains(&name) {
                    let field = format!("{at}.volumeMounts[{mount}].name");
                    errors.push(FieldError {
                        field,
                        problem: Problem::NotFound,
                        detail: Value::from(name).to_string(),
                    });
                }
            }
        }
    }
    let policies = ["Always", "OnFailure", "Never"];
    if !policies.iter().any(|policy| spec["restartPolicy"] == *policy) {
        let supported = policies.map(String::from);
        errors.push(FieldError::not_supported(format!("{path}.restartPolicy"), &spec["restartPolicy"], &supported));
    }
    errors
}

/// The few parts of a pod's spec that may change. Binding to a node is one of them here: our scheduler is a client without the
/// binding subresource.
pub(super) fn validate_update(pod: &Value, current: &Value) -> Vec<FieldError> {
    if pod["spec"] == current["spec"] {
        return Vec::new();
    }
    let unbound = current["spec"]["nodeName"].as_str().is_none_or(str::is_empty);
    if !frozen_differs(&pod["spec"], &current["spec"], unbound) {
        return Vec::new();
    }
    let detail = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
    vec![FieldError::forbidden("spec", detail)]
}

/// Whether two specs differ in a field that may not change.
fn frozen_differs(new: &Value, old: &Value, unbound: bool) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return new != old };
    let may_change = |field: &str| match field {
        "activeDeadlineSeconds" | "tolerations" | "schedulingGates" => true,
        "nodeName" => unbound,
        _ => false,
    };
    let same = |field: &String| match (new.get(field), old.get(field)) {
        (Some(Value::Array(new)), Some(Value::Array(old)))
            if matches!(field.as_str(), "containers" | "initContainers") =>
        {
            new.len() == old.len() && new.iter().zip(old).all(|(new, old)| same_but_for_image(new, old))
        }
        (new, old) => new == old,
    };
    new.keys().chain(old.keys()).any(|field| !may_change(field) && !same(field))
}

fn same_but_for_image(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return new == old };
    let others = |(field, _): &(&String, &Value)| *field != "image";
    new.iter().filter(others).eq(old.iter().filter(others))
}

/// How long a deleted pod has. One that no kubelet runs, or that has ended, goes at once.
pub(super) fn grace(pod: &Value, wanted: Option<i64>) -> i64 {
    let unbound = pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty);
    if unbound || ["Succeeded", "Failed"].iter().any(|phase| pod["status"]["phase"] == *phase) {
        return 0;
    }
    let grace = wanted.or_else(|| pod["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30);
    if grace < 0 { 1 } else { grace }
}
