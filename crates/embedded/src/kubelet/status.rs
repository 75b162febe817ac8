//! Decides what a pod's status says, from what we know of its processes: as a kubelet writes it.
//!
//! Never: a condition whose transition time moves although the condition didn't, or a pod that is Ready after its process
//! has ended.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    HostIP, Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::environment::Addresses;

/// What we know of a pod's main container.
#[derive(Clone, Debug, PartialEq)]
pub enum MainContainer {
    /// It doesn't run.
    Waiting {
        /// As a kubelet says it: `ContainerCreating`, `ErrImagePull`, `CrashLoopBackOff` …
        reason: &'static str,
        /// For people.
        message: Option<String>,
    },
    /// It runs.
    Running {
        /// Since when.
        since: Timestamp,
        /// Its startup probe has succeeded.
        started: bool,
        /// Its readiness probe succeeds.
        ready: bool,
    },
    /// It has ended and will not be started again.
    Ended(Exit),
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Exit {
    /// Its exit code; 128 + the signal when it was killed, as containers report it.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// When it had started.
    pub started: Timestamp,
    /// When it ended.
    pub finished: Timestamp,
    /// What it left where its container says that last words are.
    pub message: Option<String>,
}

/// What we know of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// Its addresses, once it has them.
    pub addresses: Option<Addresses>,
    /// When we took it on.
    pub start_time: Timestamp,
    /// Whether the init containers are done.
    pub initialized: bool,
    /// The main container.
    pub container: MainContainer,
    /// How often it was started again.
    pub restarts: i32,
    /// How it ended the last time.
    pub last_exit: Option<Exit>,
}

/// The status of a pod that we run. `previous` is the status as last written.
pub fn of_running(pod: &Pod, seen: &Observation, previous: &PodStatus, now: Timestamp) -> PodStatus {
    let spec = pod.spec.clone().unwrap_or_default();
    let ready = matches!(seen.container, MainContainer::Running { ready: true, .. });
    let not_ready = (!ready).then(|| format!("containers with unready status: [{}]", names(&spec.containers)));
    let not_initialized = (!seen.initialized).then(|| {
        format!("containers with incomplete status: [{}]", names(spec.init_containers.as_deref().unwrap_or_default()))
    });
    let conditions = [
        ("PodScheduled", None, None),
        ("Initialized", not_initialized.as_ref().map(|_| "ContainersNotInitialized"), not_initialized.as_ref()),
        ("ContainersReady", not_ready.as_ref().map(|_| "ContainersNotReady"), not_ready.as_ref()),
        ("Ready", not_ready.as_ref().map(|_| "ContainersNotReady"), not_ready.as_ref()),
    ];
    let addresses = seen.addresses.as_ref();
    PodStatus {
        phase: Some(phase(seen).to_owned()),
        conditions: Some(
            conditions.map(|(kind, reason, message)| condition(kind, reason, message, previous, now)).into(),
        ),
        host_ip: addresses.map(|a| a.host.clone()),
        host_ips: addresses.map(|a| vec![HostIP { ip: a.host.clone() }]),
        pod_ip: addresses.map(|a| a.pod.clone()),
        pod_ips: addresses.map(|a| vec![PodIP { ip: a.pod.clone() }]),
        start_time: Some(Time(seen.start_time)),
        init_container_statuses: spec
            .init_containers
            .as_ref()
            .map(|all| all.iter().map(|c| init_status(c, seen)).collect()),
        container_statuses: Some(spec.containers.iter().map(|c| container_status(c, seen)).collect()),
        qos_class: previous.qos_class.clone(),
        ..PodStatus::default()
    }
}

/// The status of a pod that fits on no node.
pub fn of_unschedulable(message: &str, previous: &PodStatus, now: Timestamp) -> PodStatus {
    let scheduled = condition("PodScheduled", Some("Unschedulable"), Some(&message.to_owned()), previous, now);
    PodStatus { phase: Some("Pending".to_owned()), conditions: Some(vec![scheduled]), ..PodStatus::default() }
}

fn phase(seen: &Observation) -> &'static str {
    match &seen.container {
        MainContainer::Ended(exit) if exit.code == 0 => "Succeeded",
        MainContainer::Ended(_) => "Failed",
        MainContainer::Running { .. } => "Running",
        // A kubelet calls a pod Running from its first start on, also between two attempts.
        MainContainer::Waiting { .. } if seen.last_exit.is_some() => "Running",
        MainContainer::Waiting { .. } => "Pending",
    }
}

fn condition(
    kind: &str,
    reason: Option<&'static str>,
    message: Option<&String>,
    previous: &PodStatus,
    now: Timestamp,
) -> PodCondition {
    let status = if reason.is_none() { "True" } else { "False" };
    let before = previous.conditions.iter().flatten().find(|c| c.type_ == kind && c.status == status);
    PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.map(str::to_owned),
        message: message.cloned(),
        last_transition_time: before.and_then(|c| c.last_transition_time.clone()).or(Some(Time(now))),
        ..PodCondition::default()
    }
}

fn names(containers: &[Container]) -> String {
    containers.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(" ")
}

fn init_status(container: &Container, seen: &Observation) -> ContainerStatus {
    let state = if seen.initialized {
        let at = Some(Time(seen.start_time));
        let done = ContainerStateTerminated {
            exit_code: 0,
            reason: Some("Completed".to_owned()),
            started_at: at.clone(),
            finished_at: at,
            ..ContainerStateTerminated::default()
        };
        ContainerState { terminated: Some(done), ..ContainerState::default() }
    } else {
        waiting("PodInitializing", None)
    };
    ContainerStatus { ready: seen.initialized, state: Some(state), ..blank(container) }
}

fn container_status(container: &Container, seen: &Observation) -> ContainerStatus {
    let last_state = seen.last_exit.as_ref().map(terminated);
    let (state, started, ready) = match &seen.container {
        MainContainer::Waiting { reason, message } => (waiting(reason, message.clone()), false, false),
        MainContainer::Ended(exit) => (terminated(exit), false, false),
        MainContainer::Running { since, started, ready } => {
            let running = ContainerStateRunning { started_at: Some(Time(*since)) };
            (ContainerState { running: Some(running), ..ContainerState::default() }, *started, *ready)
        }
    };
    ContainerStatus {
        ready,
        started: Some(started),
        restart_count: seen.restarts,
        state: Some(state),
        last_state,
        ..blank(container)
    }
}

fn blank(container: &Container) -> ContainerStatus {
    let image = container.image.clone().unwrap_or_default();
    ContainerStatus { name: container.name.clone(), image, image_id: String::new(), ..ContainerStatus::default() }
}

fn waiting(reason: &str, message: Option<String>) -> ContainerState {
    let waiting = ContainerStateWaiting { reason: Some(reason.to_owned()), message };
    ContainerState { waiting: Some(waiting), ..ContainerState::default() }
}

fn terminated(exit: &Exit) -> ContainerState {
    let reason = if exit.code == 0 { "Completed" } else { "Error" };
    let terminated = ContainerStateTerminated {
        exit_code: exit.code,
        signal: exit.signal,
        reason: Some(reason.to_owned()),
        message: exit.message.clone(),
        started_at: Some(Time(exit.started)),
        finished_at: Some(Time(exit.finished)),
        ..ContainerStateTerminated::default()
    };
    ContainerState { terminated: Some(terminated), ..ContainerState::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Pod {
        let spec =
            json!({"containers": [{"name": "postgres", "image": "postgres:15"}], "initContainers": [{"name": "i"}]});
        serde_json::from_value(json!({"metadata": {"name": "db-1"}, "spec": spec})).unwrap()
    }
    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }
    fn seen(container: MainContainer) -> Observation {
        let (addresses, last_exit) = (None, None);
        Observation { addresses, start_time: at(1), initialized: true, container, restarts: 0, last_exit }
    }
    fn is_ready(status: &PodStatus) -> bool {
        status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
    }

    #[test]
    fn a_pod_is_ready_exactly_while_its_container_is() {
        let running = |ready| seen(MainContainer::Running { since: at(2), started: true, ready });
        assert!(is_ready(&of_running(&pod(), &running(true), &PodStatus::default(), at(3))));
        assert!(!is_ready(&of_running(&pod(), &running(false), &PodStatus::default(), at(3))));
        let crashed = seen(MainContainer::Waiting { reason: "CrashLoopBackOff", message: None });
        assert!(!is_ready(&of_running(&pod(), &crashed, &PodStatus::default(), at(3))));
    }

    #[test]
    fn a_condition_keeps_its_time_until_it_flips() {
        let running = |ready| seen(MainContainer::Running { since: at(2), started: true, ready });
        let time = |status: &PodStatus| {
            status
                .conditions
                .iter()
                .flatten()
                .find(|c| c.type_ == "Ready")
                .unwrap()
                .last_transition_time
                .clone()
                .unwrap()
                .0
        };
        let first = of_running(&pod(), &running(true), &PodStatus::default(), at(10));
        let second = of_running(&pod(), &running(true), &first, at(20));
        assert_eq!(second, first);
        assert_eq!(time(&of_running(&pod(), &running(false), &second, at(30))), at(30));
    }

    #[test]
    fn between_two_attempts_a_pod_still_counts_as_running() {
        let exit = Exit { code: 1, signal: None, started: at(2), finished: at(3), message: None };
        let waiting = MainContainer::Waiting { reason: "CrashLoopBackOff", message: None };
        let status =
            of_running(&pod(), &Observation { last_exit: Some(exit), ..seen(waiting) }, &PodStatus::default(), at(4));
        assert_eq!(status.phase.as_deref(), Some("Running"));
    }
}
