//! What is known of an instance's pod: what the kubelet says, and what the agent says about itself.

use bellwether_api::labels;
use bellwether_api::reason::Reason;
use bellwether_api::v1::{InstanceRole, InstanceState};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{self as core, ContainerStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use crate::contract::{RecoveryState, Report};
use crate::fact::Fact;
use crate::instance::space::VolumeKind;

/// `status.phase`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodPhase {
    /// Not all containers run yet.
    #[default]
    Pending,
    /// At least one container runs, or is being restarted.
    Running,
    /// Its containers ended and will not be restarted: evicted, or its node shut down.
    Ended,
    /// The node does not answer.
    Unknown,
}

/// Something that keeps an instance from running, in the kubelet's or the scheduler's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Which kind of trouble.
    pub reason: Reason,
    /// For people.
    pub message: String,
}

/// An instance's pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its name: the instance's.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
    /// The UID of its controller.
    pub owner: Option<String>,
    /// It is being deleted.
    pub terminating: bool,
    /// When it is to be gone, once it is being deleted.
    pub gone_by: Option<Timestamp>,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Its address.
    pub ip: Option<String>,
    /// The node it runs on.
    pub node: Option<String>,
    /// `status.phase`.
    pub phase: PodPhase,
    /// The kubelet's word that the readiness probe succeeds.
    pub ready: bool,
    /// The hash of what it was made from.
    pub hash: Option<String>,
    /// The hash of the configuration that its kubelet was told of.
    pub config_hash: Option<String>,
    /// The agent's report; absent when there is none yet, unknown when it can't be read.
    pub report: Fact<Report>,
    /// What keeps it from running.
    pub trouble: Option<Trouble>,
    /// Its PostgreSQL container has never been started: by the kubelet's account, and no agent has ever reported.
    pub never_ran: bool,
}

/// A pod as far as it is looked at.
#[derive(Deserialize)]
pub(crate) struct Given {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Option<GivenSpec>,
    #[serde(default)]
    status: Option<core::PodStatus>,
}

#[derive(Deserialize)]
struct GivenSpec {
    #[serde(default, rename = "nodeName")]
    node: Option<String>,
}

impl Given {
    pub(super) fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
    pub(super) fn status(&self) -> Option<&core::PodStatus> {
        self.status.as_ref()
    }
}

impl PodPhase {
    /// As a kubelet says it.
    pub(super) fn of(status: Option<&core::PodStatus>) -> Self {
        match status.and_then(|status| status.phase.as_deref()) {
            Some("Running") => Self::Running,
            Some("Succeeded" | "Failed") => Self::Ended,
            Some("Unknown") => Self::Unknown,
            _ => Self::Pending,
        }
    }
}

impl Pod {
    /// Reads a pod.
    pub(crate) fn read(pod: Given) -> Option<Self> {
        let phase = PodPhase::of(pod.status());
        let metadata = &pod.metadata;
        let annotation = |key: &str| metadata.annotations.as_ref()?.get(key).cloned();
        let status = pod.status.unwrap_or_default();
        Some(Self {
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
            resource_version: metadata.resource_version.clone()?,
            owner: super::read::controller(metadata),
            terminating: metadata.deletion_timestamp.is_some(),
            gone_by: metadata.deletion_timestamp.as_ref().map(|at| at.0),
            created: metadata.creation_timestamp.as_ref().map(|at| at.0),
            ip: status.pod_ip.clone().filter(|ip| !ip.is_empty()),
            node: pod.spec.and_then(|spec| spec.node),
            phase,
            ready: condition(&status, "Ready").is_some_and(|ready| ready.status == "True"),
            hash: annotation(labels::POD_HASH),
            config_hash: annotation(labels::CONFIG_HASH),
            report: match annotation(labels::REPORT) {
                None => Fact::Absent,
                Some(text) => serde_json::from_str(&text).map_or(Fact::Unknown, Fact::Known),
            },
            trouble: trouble(&status),
            never_ran: annotation(labels::REPORT).is_none() && never_ran(&status),
        })
    }

    /// What it does by its own account. Pending when it never said, or when it is no longer in a state to say: a report
    /// outlives the process that wrote it.
    pub fn state(&self) -> InstanceState {
        match (self.phase, self.report.known()) {
            (PodPhase::Running, Some(report)) if !self.terminating => report.state,
            (PodPhase::Ended, _) => InstanceState::Down,
            _ => InstanceState::Pending,
        }
    }

    /// The role it reported last.
    pub fn role(&self) -> Option<InstanceRole> {
        self.report.known()?.role
    }

    /// It answers SQL: by its own account, and by the kubelet's, which goes on looking when the agent no longer can.
    pub fn answers(&self) -> bool {
        self.ready && !self.terminating && self.report.known().is_some_and(|report| report.accepts_sql)
    }

    /// Its volumes that are full, by its own account.
    pub fn full(&self) -> &[VolumeKind] {
        let runs = self.phase == PodPhase::Running && !self.terminating;
        self.report.known().filter(|_| runs).map_or(&[], |report| &report.full)
    }

    /// How the restore of the cluster's database goes, by its own account. Nothing of one that restores nothing.
    pub fn recovery(&self) -> Option<RecoveryState> {
        let runs = self.phase == PodPhase::Running && !self.terminating;
        self.report.known().filter(|_| runs)?.recovery
    }

    /// It streams from the primary and answers.
    pub fn streams(&self) -> bool {
        self.answers() && self.state() == InstanceState::Streaming
    }

    /// It is the primary and accepts writes.
    pub fn leads(&self) -> bool {
        self.answers() && self.state() == InstanceState::Leading
    }
}

fn condition<'a>(status: &'a core::PodStatus, kind: &str) -> Option<&'a core::PodCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

/// A pod whose sandbox is made anew is pending again, but its container's status remembers that it ran.
fn never_ran(status: &core::PodStatus) -> bool {
    let started = |container: &ContainerStatus| {
        let at_some_time = |state: Option<&core::ContainerState>| {
            state.is_some_and(|state| state.running.is_some() || state.terminated.is_some())
        };
        container.restart_count > 0
            || at_some_time(container.state.as_ref())
            || at_some_time(container.last_state.as_ref())
    };
    matches!(status.phase.as_deref(), None | Some("Pending"))
        && !status.container_statuses.iter().flatten().any(started)
}

pub(super) fn trouble(status: &core::PodStatus) -> Option<Trouble> {
    let unschedulable = condition(status, "PodScheduled")
        .filter(|scheduled| scheduled.status == "False" && scheduled.reason.as_deref() == Some("Unschedulable"));
    if let Some(scheduled) = unschedulable {
        let message = scheduled.message.clone().unwrap_or_else(|| "no node fits".to_owned());
        return Some(Trouble { reason: Reason::Unschedulable, message });
    }
    let init = status.init_container_statuses.iter().flatten();
    init.chain(status.container_statuses.iter().flatten()).find_map(container_trouble)
}

fn container_trouble(container: &ContainerStatus) -> Option<Trouble> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let why = waiting.reason.as_deref()?;
    let told = waiting.message.clone().unwrap_or_default();
    match why {
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" | "ImageInspectError" => {
            let message = format!("image {}: {}", container.image, pull_failure(why, &told));
            Some(Trouble { reason: Reason::ImageUnavailable, message })
        }
        // The kubelet's message here counts its back-off up; how the container ended is what helps, and it stands still.
        "CrashLoopBackOff" => {
            let last = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
            let ended = last.map_or(told, |end| {
                let words = end.message.as_deref().or(end.reason.as_deref()).unwrap_or("no message");
                format!("exit code {}: {}", end.exit_code, words.trim())
            });
            let message = format!("container {} keeps failing: {ended}", container.name);
            Some(Trouble { reason: Reason::InstanceCrashing, message })
        }
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
            let message = format!("container {}: {why}: {told}", container.name);
            Some(Trouble { reason: Reason::InstanceCrashing, message })
        }
        _ => None,
    }
}

/// Why an image can't be had, in words that stay the same from one attempt to the next: a status that changes with every attempt of a
/// kubelet would be written with every attempt. A kubelet that waits for the next attempt repeats what the last one said behind words
/// of its own; and what networks say has the port in it that the attempt came from, or a number that a registry gave it.
fn pull_failure(why: &str, told: &str) -> String {
    let waits = why == "ImagePullBackOff";
    let (why, told) = match told.split_once(": ErrImagePull: ").filter(|_| waits) {
        Some((_, told)) => ("ErrImagePull", told),
        // Kubelets that don't repeat it have nothing but the image's name to say.
        None if waits => return "ErrImagePull".to_owned(),
        None => (why, told),
    };
    let words: Vec<_> = told.split_whitespace().map(lasting).collect();
    if words.is_empty() { why.to_owned() } else { format!("{why}: {}", words.join(" ")) }
}

/// A word without what is another one next time.
fn lasting(word: &str) -> String {
    // `10.0.0.7:51234->10.0.0.10:53`
    if let Some((from, to)) = word.split_once("->") {
        let from = from.rsplit_once(':').map_or(from, |(address, _)| address);
        return format!("{from}->{to}");
    }
    // A request's number: digits and letters up to f, perhaps in groups, and nothing that names a digest.
    let number = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let hexadecimal = number.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    let digits = number.chars().filter(char::is_ascii_digit).count();
    if hexadecimal && number.len() >= 16 && digits >= 4 { word.replace(number, "…") } else { word.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(status: serde_json::Value) -> Pod {
        let report = json!({"state": "Leading", "acceptsSql": true}).to_string();
        let mut pod = json!({
            "metadata": {"name": "a-1", "uid": "u", "resourceVersion": "1", "annotations": {labels::REPORT: report}},
        });
        pod["status"] = status;
        Pod::read(serde_json::from_value(pod).unwrap()).unwrap()
    }
    fn waiting(reason: &str, message: &str) -> serde_json::Value {
        json!({"containerStatuses": [{
            "name": "postgres", "image": "postgres:99", "imageID": "", "ready": false, "restartCount": 3,
            "state": {"waiting": {"reason": reason, "message": message}},
            "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": "disk full"}},
        }]})
    }

    #[test]
    fn a_report_outlives_its_process_but_is_not_believed_without_the_kubelet() {
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        assert!(pod(ready).leads());
        assert!(!pod(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]})).leads());
        assert_eq!(pod(json!({"phase": "Failed"})).state(), InstanceState::Down);
    }

    #[test]
    fn an_image_that_cannot_be_had_is_named_with_the_kubelets_words() {
        let trouble = pod(waiting("ErrImagePull", "not found")).trouble.unwrap();
        assert_eq!(trouble.reason, Reason::ImageUnavailable);
        assert!(
            trouble.message.contains("postgres:99") && trouble.message.contains("not found"),
            "{}",
            trouble.message
        );
    }

    #[test]
    fn an_image_that_cannot_be_had_is_said_in_the_same_words_at_every_attempt() {
        let said = |reason: &str, message: &str| pod(waiting(reason, message)).trouble.unwrap().message;
        let attempt = |port: u16, request: &str| {
            format!(
                "failed to pull \"postgres:99\": dial tcp: lookup r on 10.0.0.10:53: read udp 10.0.0.7:{port}->10.0.0.10:53: \
                 i/o timeout (request {request})"
            )
        };
        let first = attempt(51234, "8f14e45f-ceea-467f-9575-1234567890ab");
        let other = attempt(40001, "0f14e45f-ceea-467f-9575-1234567890ab");
        let backing_off = format!("Back-off pulling image \"postgres:99\": ErrImagePull: {other}");
        let words = said("ErrImagePull", &first);
        assert_eq!(said("ErrImagePull", &other), words);
        assert_eq!(said("ImagePullBackOff", &backing_off), words);
        assert!(words.contains("read udp 10.0.0.7->10.0.0.10:53: i/o timeout"), "{words}");
        let digest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 not found";
        assert!(said("ErrImagePull", digest).contains(digest), "what a user wrote stays");
    }

    #[test]
    fn a_pod_never_ran_when_neither_kubelet_nor_agent_know_otherwise() {
        let bare = |status: serde_json::Value| {
            let mut pod = json!({"metadata": {"name": "a-1", "uid": "u", "resourceVersion": "1"}});
            pod["status"] = status;
            Pod::read(serde_json::from_value(pod).unwrap()).unwrap()
        };
        let mut pulling = waiting("ErrImagePull", "not found");
        pulling["phase"] = "Pending".into();
        assert!(!bare(pulling.clone()).never_ran, "it ended once");
        pulling["containerStatuses"][0]["restartCount"] = 0.into();
        pulling["containerStatuses"][0]["lastState"] = json!({});
        assert!(bare(pulling.clone()).never_ran);
        assert!(!pod(pulling).never_ran, "its agent reported");
        assert!(bare(json!({"phase": "Pending"})).never_ran, "it has no node");
        assert!(!bare(json!({"phase": "Running"})).never_ran);
        assert!(!bare(json!({"phase": "Unknown"})).never_ran);
    }

    #[test]
    fn a_crash_says_how_it_ended_and_not_how_long_the_kubelet_waits() {
        let trouble = pod(waiting("CrashLoopBackOff", "back-off 40s restarting")).trouble.unwrap();
        assert_eq!(trouble.reason, Reason::InstanceCrashing);
        assert!(trouble.message.contains("disk full") && !trouble.message.contains("40s"), "{}", trouble.message);
    }

    #[test]
    fn a_pod_that_fits_nowhere_says_so() {
        let scheduled = json!({"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"},
        ]});
        assert_eq!(pod(scheduled).trouble.unwrap().message, "0/3 nodes");
    }
}
