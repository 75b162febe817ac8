//! The columns of a Pod, which are a story of their own: its status is told by whatever container is worst off.

use jiff::Timestamp;
use serde_json::Value;

use super::builtin::{age, items, or_none, text};

/// The cells of a pod's row.
pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let statuses = items(pod, "/status/containerStatuses");
    let total = items(pod, "/spec/containers").len();
    let ready =
        statuses.iter().filter(|status| status["ready"] == true && status.pointer("/state/running").is_some()).count();
    let gates = items(pod, "/spec/readinessGates");
    let passed = gates
        .iter()
        .filter(|gate| condition(pod, gate["conditionType"].as_str().unwrap_or_default()) == Some("True"))
        .count();
    let gates = if gates.is_empty() { "<none>".into() } else { format!("{passed}/{}", gates.len()) };
    vec![
        text(pod, "/metadata/name").into(),
        format!("{ready}/{total}").into(),
        status(pod).into(),
        restarts(statuses, now).into(),
        age(pod, now).into(),
        or_none(text(pod, "/status/podIP")).into(),
        or_none(text(pod, "/spec/nodeName")).into(),
        or_none(text(pod, "/status/nominatedNodeName")).into(),
        gates.into(),
    ]
}

fn status(pod: &Value) -> String {
    let phase = text(pod, "/status/phase");
    let mut reason = match text(pod, "/status/reason") {
        "" => phase.to_owned(),
        reason => reason.to_owned(),
    };
    let initializing = initializing(pod);
    match &initializing {
        Some(of_init) => reason = of_init.clone(),
        None => reason = of_containers(pod).unwrap_or(reason),
    }
    if !text(pod, "/metadata/deletionTimestamp").is_empty() {
        return if text(pod, "/status/reason") == "NodeLost" { "Unknown".into() } else { "Terminating".into() };
    }
    reason
}

/// What init containers say, while they are not all done.
fn initializing(pod: &Value) -> Option<String> {
    let total = items(pod, "/spec/initContainers").len();
    for (index, container) in items(pod, "/status/initContainerStatuses").iter().enumerate() {
        if let Some(terminated) = container.pointer("/state/terminated") {
            if terminated["exitCode"] == 0 {
                continue;
            }
            return Some(format!("Init:{}", exit(terminated)));
        }
        match container.pointer("/state/waiting/reason").and_then(Value::as_str) {
            Some(reason) if !reason.is_empty() && reason != "PodInitializing" => return Some(format!("Init:{reason}")),
            _ => return Some(format!("Init:{index}/{total}")),
        }
    }
    None
}

/// The first container that waits or has ended speaks for all; one that runs does not hide another that failed.
fn of_containers(pod: &Value) -> Option<String> {
    let mut reason = None;
    let mut running = false;
    for container in items(pod, "/status/containerStatuses").iter().rev() {
        match (
            container.pointer("/state/waiting/reason").and_then(Value::as_str),
            container.pointer("/state/terminated"),
        ) {
            (Some(waiting), _) if !waiting.is_empty() => reason = Some(waiting.to_owned()),
            (_, Some(terminated)) => reason = Some(exit(terminated)),
            _ => running |= container["ready"] == true && container.pointer("/state/running").is_some(),
        }
    }
    if reason.as_deref() == Some("Completed") && running {
        return Some(if condition(pod, "Ready") == Some("True") { "Running".into() } else { "NotReady".into() });
    }
    reason
}

fn exit(terminated: &Value) -> String {
    match (text(terminated, "/reason"), terminated["signal"].as_i64().unwrap_or_default()) {
        ("", 0) => format!("ExitCode:{}", terminated["exitCode"]),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn restarts(statuses: &[Value], now: Timestamp) -> String {
    let total: i64 = statuses.iter().filter_map(|status| status["restartCount"].as_i64()).sum();
    let last = statuses
        .iter()
        .filter_map(|status| status.pointer("/lastState/terminated/finishedAt")?.as_str()?.parse::<Timestamp>().ok())
        .max();
    match last {
        Some(last) if total > 0 => format!("{total} ({} ago)", super::human_duration(now.duration_since(last))),
        _ => total.to_string(),
    }
}

fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a str> {
    items(pod, "/status/conditions").iter().find(|condition| condition["type"] == kind)?["status"].as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(pod: &Value) -> (String, String) {
        let cells = cells(pod, Timestamp::UNIX_EPOCH);
        (cells[1].as_str().unwrap().to_owned(), cells[2].as_str().unwrap().to_owned())
    }

    #[test]
    fn a_running_pod() {
        let pod = json!({"spec": {"containers": [{}]}, "status": {"phase": "Running",
            "containerStatuses": [{"ready": true, "state": {"running": {}}}]}});
        assert_eq!(row(&pod), ("1/1".into(), "Running".into()));
    }

    #[test]
    fn a_pod_that_initializes_says_how_far_it_is() {
        let pod = json!({"spec": {"containers": [{}], "initContainers": [{}, {}]}, "status": {"phase": "Pending",
            "initContainerStatuses": [{"state": {"terminated": {"exitCode": 0}}}, {"state": {"running": {}}}]}});
        assert_eq!(row(&pod), ("0/1".into(), "Init:1/2".into()));
    }

    #[test]
    fn a_crashing_container_is_what_the_pod_shows() {
        let pod = json!({"spec": {"containers": [{}]}, "status": {"phase": "Running",
            "containerStatuses": [{"ready": false, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}});
        assert_eq!(row(&pod).1, "CrashLoopBackOff");
    }

    #[test]
    fn a_pod_being_deleted_is_terminating_whatever_else() {
        let pod = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Running"}});
        assert_eq!(row(&pod).1, "Terminating");
    }
}
