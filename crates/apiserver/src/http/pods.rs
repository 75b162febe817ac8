//! Subresources that are more a verb than an object: a pod's log, eviction and binding, a service account's token.
//!
//! Never: an eviction that takes a pod from a disruption budget which has none to spare.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::serve::{App, Call, Outcome};
use super::{body, objects, options, refusal, respond};
use crate::error::ApiError;
use crate::registry::Resource;
use crate::request::{DeleteOptions, ListOptions, Subresource, Target, Write};
use crate::store::Store;

/// A token lives an hour unless its request says otherwise, as in a kube-apiserver.
const TOKEN_SECONDS: i64 = 3600;
/// Shorter than this is refused, as in a kube-apiserver.
const TOKEN_SECONDS_LEAST: i64 = 600;

/// Where the logs of containers come from; whoever runs the pods provides it.
pub trait PodLogs: Send + Sync {
    /// The log of one container. An error of the stream ends the answer.
    fn log(&self, pod: &Value, options: LogOptions) -> BoxFuture<'static, Result<LogStream, ApiError>>;
}

/// Chunks of a log.
pub type LogStream = BoxStream<'static, std::io::Result<Bytes>>;

/// Options of `kubectl logs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// The container; never empty.
    pub container: String,
    /// Goes on as the log grows.
    pub follow: bool,
    /// Only this many of the last lines.
    pub tail_lines: Option<u64>,
    /// Each line begins with its time.
    pub timestamps: bool,
    /// The log of the container's previous run.
    pub previous: bool,
    /// Only lines younger than this many seconds.
    pub since_seconds: Option<u64>,
    /// At most this many bytes.
    pub limit_bytes: Option<u64>,
}

/// Answers a call of one of these subresources.
pub(super) async fn subresource(
    app: &App,
    call: &Call,
    resource: &Arc<Resource>,
    name: &str,
    verb: &str,
) -> Result<Outcome, ApiError> {
    let target = Target {
        resource: resource.clone(),
        namespace: call.path.namespace.clone(),
        name: call.path.name.clone().unwrap_or_default(),
        subresource: Subresource::Main,
    };
    match (resource.group.as_str(), resource.plural.as_str(), name, verb) {
        ("", "pods", "log", "get") => log(app, call, &target).await,
        ("", "pods", "eviction", "create") => evict(app, call, &target).await,
        ("", "pods", "binding", "create") => bind(app, call, &target).await,
        ("", "serviceaccounts", "token", "create") => token(app, call, &target),
        ("", "pods", "log" | "eviction" | "binding", _) | ("", "serviceaccounts", "token", _) => {
            Err(refusal::method_not_allowed())
        }
        _ => Err(refusal::no_such_path()),
    }
}

async fn log(app: &App, call: &Call, target: &Target) -> Result<Outcome, ApiError> {
    let pod = app.shared.read(|store| store.get(target))?;
    let container = container(&pod, &target.name, call.query.get("container"))?;
    let number = |key: &str| {
        Ok::<_, ApiError>(options::integer(&call.query, key)?.and_then(|number| u64::try_from(number).ok()))
    };
    let options = LogOptions {
        container,
        follow: call.query.flag("follow"),
        tail_lines: number("tailLines")?,
        timestamps: call.query.flag("timestamps"),
        previous: call.query.flag("previous"),
        since_seconds: number("sinceSeconds")?,
        limit_bytes: number("limitBytes")?,
    };
    let provider = app.logs.read().ok().and_then(|logs| logs.clone());
    let provider = provider.ok_or_else(|| ApiError::internal("no kubelet runs pods here, so there are no logs"))?;
    let stream = provider.log(&pod, options).await?;
    // A follower must not hold up the server's shutdown.
    let stream = futures::StreamExt::take_until(stream, app.shutdown.clone().cancelled_owned());
    Ok(respond::bytes(200, "text/plain", Body::from_stream(stream)).into())
}

/// The container that is meant: the one named, or the only one there is.
fn container(pod: &Value, name: &str, asked: Option<&str>) -> Result<String, ApiError> {
    let of = |key: &str| {
        pod["spec"][key].as_array().into_iter().flatten().filter_map(|container| container["name"].as_str())
    };
    let (main, init): (Vec<&str>, Vec<&str>) = (of("containers").collect(), of("initContainers").collect());
    match (asked, main.as_slice()) {
        (Some(asked), _) if main.contains(&asked) || init.contains(&asked) => Ok(asked.to_owned()),
        (Some(asked), _) => Err(ApiError::bad_request(format!("container {asked} is not valid for pod {name}"))),
        (None, [only]) => Ok((*only).to_owned()),
        (None, _) => Err(ApiError::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            main.join(" ")
        ))),
    }
}

async fn evict(app: &App, call: &Call, target: &Target) -> Result<Outcome, ApiError> {
    let eviction = body::object(&call.headers, &call.body, "Eviction")?.object;
    let delete_options = eviction.get("deleteOptions").filter(|options| options.is_object()).cloned();
    let (options, dry_run) = options::delete(&call.query, delete_options)?;
    let write = Write { dry_run, ..options::write(&call.query, &call.agent, None, "CreateOptions", call.now)? };
    let changed = app.shared.write(|store| evict_in_store(store, target, options, &write)).await?;
    Ok(Outcome { answer: respond::success(201, None), changed, dry_run, name: None })
}

fn evict_in_store(
    store: &mut Store,
    target: &Target,
    mut options: DeleteOptions,
    write: &Write,
) -> Result<bool, ApiError> {
    let pod = store.get(target)?;
    let spare_others = !matches!(pod["status"]["phase"].as_str(), Some("Pending" | "Succeeded" | "Failed"))
        && pod["metadata"]["deletionTimestamp"].is_null();
    if spare_others {
        budget_allows(store, target, &pod)?;
    }
    // The pod that was judged, and no other of its name.
    options.uid = options.uid.or_else(|| pod["metadata"]["uid"].as_str().map(str::to_owned));
    let before = store.revision();
    store.delete(target, &options, write)?;
    Ok(store.revision() != before)
}

/// Whether the pod's disruption budget has a pod to spare, counted from the pods themselves (no controller keeps its status here).
fn budget_allows(store: &Store, target: &Target, pod: &Value) -> Result<(), ApiError> {
    let Some(budgets) = store.resource("policy", "v1", "poddisruptionbudgets") else { return Ok(()) };
    let namespace = target.namespace.as_deref();
    let budgets = store.list(&budgets, namespace, &ListOptions::default())?.items;
    let of_pod: Vec<_> =
        budgets.iter().filter(|budget| selects(&budget["spec"]["selector"], &pod["metadata"]["labels"])).collect();
    let budget = match of_pod.as_slice() {
        [] => return Ok(()),
        [budget] => budget,
        _ => {
            return Err(ApiError::internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    let pods = store.list(&target.resource, namespace, &ListOptions::default())?.items;
    let pods: Vec<_> =
        pods.iter().filter(|pod| selects(&budget["spec"]["selector"], &pod["metadata"]["labels"])).collect();
    let healthy = pods.iter().filter(|pod| is_healthy(pod)).count();
    let needed = needed(&budget["spec"], pods.len());
    let enough = if is_healthy(pod) { healthy > needed } else { healthy >= needed };
    if enough {
        return Ok(());
    }
    let name = budget["metadata"]["name"].as_str().unwrap_or_default();
    Err(refusal::budget_exhausted(&format!(
        "The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
    )))
}

fn is_healthy(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    ready && pod["metadata"]["deletionTimestamp"].is_null()
}

/// How many of `total` pods must be healthy. Percentages round up, so that they err on the side of the budget.
fn needed(spec: &Value, total: usize) -> usize {
    let of = |value: &Value| match value {
        Value::Number(number) => number.as_u64().and_then(|number| usize::try_from(number).ok()),
        Value::String(percent) => {
            percent.strip_suffix('%')?.parse::<usize>().ok().map(|percent| (total * percent).div_ceil(100))
        }
        _ => None,
    };
    match (of(&spec["minAvailable"]), of(&spec["maxUnavailable"])) {
        (Some(least), _) => least,
        (None, Some(most)) => total.saturating_sub(most),
        (None, None) => total,
    }
}

/// Whether a label selector object selects these labels. An empty selector selects all, none at all nothing.
fn selects(selector: &Value, labels: &Value) -> bool {
    if !selector.is_object() {
        return false;
    }
    let equal =
        selector["matchLabels"].as_object().into_iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let expressions = selector["matchExpressions"].as_array().into_iter().flatten().all(|expression| {
        let found = expression["key"].as_str().and_then(|key| labels.get(key));
        let listed =
            || expression["values"].as_array().is_some_and(|values| found.is_some_and(|value| values.contains(value)));
        match expression["operator"].as_str() {
            Some("In") => listed(),
            Some("NotIn") => !listed(),
            Some("Exists") => found.is_some(),
            Some("DoesNotExist") => found.is_none(),
            _ => false,
        }
    });
    equal && expressions
}

async fn bind(app: &App, call: &Call, target: &Target) -> Result<Outcome, ApiError> {
    let binding = body::object(&call.headers, &call.body, "Binding")?.object;
    let node = binding["target"]["name"].as_str().filter(|name| !name.is_empty());
    let node =
        node.ok_or_else(|| ApiError::bad_request("the target object reference of a binding must name a node"))?;
    let pod = app.shared.read(|store| store.get(target))?;
    if let Some(already) = pod["spec"]["nodeName"].as_str().filter(|name| !name.is_empty()) {
        let why = format!("pod {} is already assigned to node {already:?}", target.name);
        return Err(ApiError::conflict(&target.resource, &target.name, &why));
    }
    objects::merge(app, call, target, &json!({"spec": {"nodeName": node}})).await?;
    Ok(Outcome { answer: respond::success(201, None), changed: true, dry_run: false, name: None })
}

fn token(app: &App, call: &Call, target: &Target) -> Result<Outcome, ApiError> {
    let mut request = body::object(&call.headers, &call.body, "TokenRequest")?.object;
    let account = app.shared.read(|store| store.get(target))?;
    let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(TOKEN_SECONDS);
    if seconds < TOKEN_SECONDS_LEAST {
        return Err(ApiError::bad_request(
            "spec.expirationSeconds: Invalid value: may not specify a duration less than 10 minutes",
        ));
    }
    let (namespace, uid) =
        (target.namespace.as_deref().unwrap_or_default(), account["metadata"]["uid"].as_str().unwrap_or_default());
    let token = app.tokens.issue(namespace, &target.name, uid, call.now, Some(seconds));
    let expires = call.now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(call.now);
    request["kind"] = "TokenRequest".into();
    request["apiVersion"] = "authentication.k8s.io/v1".into();
    request["spec"]["expirationSeconds"] = seconds.into();
    request["status"] =
        json!({"token": token, "expirationTimestamp": expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()});
    Ok(respond::document(201, call.accepted.encoding, &request).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_needs_what_its_spec_says() {
        assert_eq!(needed(&json!({"minAvailable": 2}), 3), 2);
        assert_eq!(needed(&json!({"maxUnavailable": 1}), 3), 2);
        assert_eq!(needed(&json!({"minAvailable": "50%"}), 3), 2);
        assert_eq!(needed(&json!({}), 3), 3);
    }

    #[test]
    fn a_selector_needs_every_label_and_expression() {
        let labels = json!({"app": "pg", "role": "primary"});
        assert!(selects(&json!({"matchLabels": {"app": "pg"}}), &labels));
        assert!(!selects(&json!({"matchLabels": {"app": "pg", "x": "y"}}), &labels));
        assert!(selects(
            &json!({"matchExpressions": [{"key": "role", "operator": "In", "values": ["primary"]}]}),
            &labels
        ));
        assert!(!selects(&json!({"matchExpressions": [{"key": "role", "operator": "DoesNotExist"}]}), &labels));
        assert!(selects(&json!({}), &labels));
        assert!(!selects(&Value::Null, &labels));
    }

    #[test]
    fn the_only_container_need_not_be_named() {
        let one =
            json!({"spec": {"containers": [{"name": "postgres"}], "initContainers": [{"name": "install-agent"}]}});
        assert_eq!(container(&one, "p", None).unwrap(), "postgres");
        assert_eq!(container(&one, "p", Some("install-agent")).unwrap(), "install-agent");
        assert_eq!(container(&one, "p", Some("x")).unwrap_err().message, "container x is not valid for pod p");
        let two = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        assert_eq!(
            container(&two, "p", None).unwrap_err().message,
            "a container name must be specified for pod p, choose one of: [a b]"
        );
    }
}
