//! The agent's report on its own Pod: an annotation and a label, applied on change only.
//!
//! Never: writes when nothing changed, or onto another pod that got the same name (the apply carries the UID).

use std::net::IpAddr;
use std::time::Duration;

use bellwether_api::labels;
use bellwether_api::v1::InstanceRole;
use bellwether_core::contract::Report;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{ApiError, call};
use crate::backoff::Backoff;
use crate::environment::Environment;

/// Between two writes at least this: a burst of changes (start-up) becomes one.
const PAUSE: Duration = Duration::from_millis(200);
/// A write without an answer may be committed later, over what was written since: for this long is looked, so often.
const DOUBT: Duration = Duration::from_secs(90);
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Writes each report that differs from the last written one, for ever.
pub async fn publish(client: kube::Client, environment: Environment, mut reports: watch::Receiver<Report>) {
    let api: Api<Pod> = Api::namespaced(client, &environment.namespace);
    // A container that was started again says nothing that is said already.
    let mut written = present(&api, &environment).await;
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(15));
    let mut doubt_until = None;
    loop {
        let report = reports.borrow_and_update().clone();
        if written.as_ref() == Some(&report) {
            let in_doubt = doubt_until.is_some_and(|until| Instant::now() < until);
            tokio::select! {
                changed = reports.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(LOOK_AGAIN), if in_doubt => written = present(&api, &environment).await.or(written),
            }
            continue;
        }
        match write(&api, &environment, &report).await {
            Ok(()) => {
                tracing::info!(state = ?report.state, message = report.message, "reported");
                written = Some(report);
                backoff.reset();
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => {
                tracing::warn!(%error, "the report can't be written");
                doubt_until = Some(Instant::now() + DOUBT);
                tokio::time::sleep(backoff.next_wait()).await;
            }
        }
    }
}

/// What this pod says of itself so far.
async fn present(api: &Api<Pod>, environment: &Environment) -> Option<Report> {
    let pod = call("read the report", api.get(&environment.instance)).await.ok()?;
    let own = pod.metadata.uid.as_deref() == Some(&environment.pod_uid);
    let text = pod.metadata.annotations.filter(|_| own)?.get(labels::REPORT)?.clone();
    serde_json::from_str(&text).ok()
}

/// For how long the kubelet lets this pod end, by what the pod says. A pod that is gone was deleted by force: there is no time at all.
/// Unknown where the API does not answer.
pub async fn grace(api: &Api<Pod>, environment: &Environment) -> Option<Duration> {
    let pod = call("look how long there is to end", api.get_opt(&environment.instance)).await.ok()?;
    let own = pod.filter(|pod| pod.metadata.uid.as_deref() == Some(&environment.pod_uid));
    let seconds = own.map_or(Some(0), |pod| pod.metadata.deletion_grace_period_seconds)?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Where an instance is: for homes without a name service, and for times when it is away.
pub async fn address(api: &Api<Pod>, instance: &str) -> Option<IpAddr> {
    let pod = call("look where an instance is", api.get(instance)).await.ok()?;
    pod.status?.pod_ip?.parse().ok()
}

/// Writes one report.
pub async fn write(api: &Api<Pod>, environment: &Environment, report: &Report) -> Result<(), ApiError> {
    let params = PatchParams::apply(labels::AGENT_MANAGER).force();
    let patch = Patch::Apply(applied(environment, report));
    call("write the report", api.patch(&environment.instance, &params, &patch)).await.map(|_| ())
}

fn applied(environment: &Environment, report: &Report) -> Value {
    let text = serde_json::to_value(report).map(|value| value.to_string()).unwrap_or_default();
    let mut labels = serde_json::Map::new();
    if let Some(role) = report.role {
        let role = match role {
            InstanceRole::Primary => "primary",
            InstanceRole::Standby => "standby",
        };
        labels.insert(labels::ROLE.to_owned(), role.into());
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": environment.instance,
            "namespace": environment.namespace,
            "uid": environment.pod_uid,
            "labels": labels,
            "annotations": { labels::REPORT: text },
        },
    })
}
