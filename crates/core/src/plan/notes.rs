//! Decides what is worth a Kubernetes Event: what was done to instances and data, and where the cluster's life turned. Never:
//! something that repeats while nothing changes.

use bellwether_api::reason::Reason;
use bellwether_api::v1::{BackupPhase, BackupStatus, OperationKind, Phase, PostgresClusterStatus};

use super::action::{Action, Effect, Existing, Note};
use crate::object::Kind;

impl Action {
    /// What the action means to people, once it was carried out. Objects that only hold the cluster together are not mentioned.
    pub fn note(&self) -> Option<Note> {
        of_action(self)
    }

    /// What it puts right that somebody had changed.
    pub fn corrects(&self) -> Option<Kind> {
        match &self.effect {
            Effect::Apply(desired) if self.why == super::provision::DRIFTED => Some(desired.kind),
            _ => None,
        }
    }
}

fn of_action(action: &Action) -> Option<Note> {
    let (kind, name) = action.effect.target();
    let note = |reason: &str, message: String| Some(Note { warning: false, reason: reason.to_owned(), message });
    match &action.effect {
        Effect::Create(desired) if desired.kind == Kind::Pod => {
            note("InstanceCreated", format!("created instance {name}"))
        }
        Effect::DeletePod(_) => note("InstanceRemoved", format!("removed pod {name}: {}", action.why)),
        Effect::RestartPod(_) => note("InstanceRestarted", format!("restarts {name}: {}", action.why)),
        Effect::AskSwitchover { wish: Some(_), .. } => {
            note("SwitchoverAsked", format!("asked the primary to hand over: {}", action.why))
        }
        Effect::DeleteVolume(_) => note("VolumeRemoved", format!("removed volume {name}: {}", action.why)),
        Effect::GrowVolume { size, .. } => note("VolumeGrown", format!("asked for volume {name} to be {size}")),
        Effect::AnnotateVolume { annotations, .. } if annotations.contains_key(bellwether_api::labels::CLUSTER_UID) => {
            note("VolumeAdopted", format!("adopted volume {name}"))
        }
        Effect::Issue(order) if order.existing == Existing::Renew => {
            note("CertificateRenewed", format!("renewed {name}: {}", action.why))
        }
        Effect::Apply(_) if action.corrects().is_some() => {
            note("DriftCorrected", format!("restored {kind} {name}, which somebody had changed"))
        }
        Effect::BackupStatus { status, .. } => of_backup(name, status, &action.why),
        _ => None,
    }
}

/// Its beginning, each time that it is begun, and its end.
fn of_backup(name: &str, status: &BackupStatus, why: &str) -> Option<Note> {
    let note = |warning, reason: &str, message| Some(Note { warning, reason: reason.to_owned(), message });
    let instance = status.instance.as_deref().unwrap_or("an instance");
    match status.phase? {
        BackupPhase::Running if why == super::backup::BEGUN => {
            note(false, "BackupBegun", format!("{instance} began backup {name}"))
        }
        BackupPhase::Completed if why == super::backup::PUT_BACK => None,
        BackupPhase::Completed => {
            let size = status.size.as_ref().map(|size| format!(", {size}")).unwrap_or_default();
            let took = status.duration.as_ref().map(|took| format!(" in {took}")).unwrap_or_default();
            note(false, "BackupCompleted", format!("backup {name} from {instance} is complete{size}{took}"))
        }
        BackupPhase::Failed => {
            let why = status.message.as_deref().unwrap_or("it did not say why");
            note(true, "BackupFailed", format!("backup {name} failed: {why}"))
        }
        BackupPhase::Verified => {
            let verification = status.verification.as_ref();
            let took = verification.and_then(|found| found.restore_time.as_ref());
            let took = took.map(|took| format!(" in {took}")).unwrap_or_default();
            note(false, "BackupVerified", format!("backup {name} was restored{took}, and nothing is wrong with it"))
        }
        BackupPhase::Running | BackupPhase::Pending | BackupPhase::Verifying => None,
    }
}

fn said(status: &PostgresClusterStatus, condition: &str) -> Option<String> {
    status.conditions.iter().find(|found| found.type_ == condition).map(|found| found.message.clone())
}

/// Somebody leads by force.
pub fn of_force(before: Option<&PostgresClusterStatus>, after: &PostgresClusterStatus) -> Option<Note> {
    let said = |status| said(status, super::conditions::FORCED);
    let message = said(after)?;
    let news = before.and_then(said).as_ref() != Some(&message);
    news.then(|| Note { warning: true, reason: "ForcedFailover".to_owned(), message })
}

/// A rollout stopped, or came to its end.
pub fn of_rollout(before: Option<&PostgresClusterStatus>, after: &PostgresClusterStatus) -> Option<Note> {
    let synced = |status: &PostgresClusterStatus| {
        let found = status.conditions.iter().find(|found| found.type_ == super::conditions::SYNCED);
        found.map(|found| (found.reason.clone(), found.message.clone()))
    };
    let rolled = |status: &PostgresClusterStatus| {
        status.operation.as_ref().is_some_and(|operation| operation.kind == OperationKind::Rollout)
    };
    let (before, was_rolling) = (before.and_then(synced), before.is_some_and(rolled));
    let (reason, message) = synced(after)?;
    let stalled = Reason::RolloutStalled.to_string();
    if reason == stalled && before.is_none_or(|(before, _)| before != stalled) {
        return Some(Note { warning: true, reason, message });
    }
    let ended = was_rolling && !rolled(after) && reason == Reason::AsSpecified.to_string();
    ended.then(|| Note { warning: false, reason: "RolledOut".to_owned(), message })
}

/// A volume can't be as large as the spec asks for.
pub fn of_growth(before: Option<&PostgresClusterStatus>, after: &PostgresClusterStatus) -> Option<Note> {
    let refused = |status: &PostgresClusterStatus| {
        let synced = status.conditions.iter().find(|found| found.type_ == super::conditions::SYNCED)?;
        (synced.reason == Reason::VolumeNotGrown.to_string()).then(|| synced.message.clone())
    };
    let message = refused(after)?;
    let news = before.and_then(refused).as_ref() != Some(&message);
    news.then(|| Note { warning: true, reason: Reason::VolumeNotGrown.to_string(), message })
}

/// Instances are added or removed: each step, and the end.
pub fn of_scaling(before: Option<&PostgresClusterStatus>, after: &PostgresClusterStatus) -> Option<Note> {
    let scaling = |status: &PostgresClusterStatus| {
        let operation = status.operation.clone();
        operation.filter(|found| matches!(found.kind, OperationKind::ScaleUp | OperationKind::ScaleDown))
    };
    let note = |reason: String, message: String| Some(Note { warning: false, reason, message });
    match (before.and_then(scaling), scaling(after)) {
        (Some(was), Some(is)) if (was.kind, was.step) == (is.kind, is.step) => None,
        (_, Some(is)) => note(format!("{:?}", is.step), format!("waiting for {}", is.waiting_on)),
        (Some(was), None) if after.operation.is_none() && after.phase == Some(Phase::Ready) => {
            let ready = format!("{} of {} instances are ready", after.ready_replicas, after.replicas);
            note(if was.kind == OperationKind::ScaleUp { "ScaledUp" } else { "ScaledDown" }.to_owned(), ready)
        }
        _ => None,
    }
}

/// Somebody paused the cluster, or let it go on.
pub fn of_pause(before: Option<&PostgresClusterStatus>, after: &PostgresClusterStatus) -> Option<Note> {
    let paused = |status: &PostgresClusterStatus| {
        status.conditions.iter().any(|found| found.type_ == super::conditions::PAUSED && found.status == "True")
    };
    let note = |reason: &str, message: String| Some(Note { warning: false, reason: reason.to_owned(), message });
    match (before.is_some_and(paused), paused(after)) {
        (false, true) => note("Paused", said(after, super::conditions::PAUSED).unwrap_or_default()),
        (true, false) => note("Resumed", "rollouts and scale-downs go on".to_owned()),
        _ => None,
    }
}

/// Somebody fenced instances, or lifted that.
pub fn of_fences(before: Option<&PostgresClusterStatus>, after: &PostgresClusterStatus) -> Option<Note> {
    let said = |status| said(status, super::conditions::FENCED);
    let (before, after) = (before.and_then(said), said(after));
    if before == after {
        return None;
    }
    let note = |reason: &str, message| Note { warning: false, reason: reason.to_owned(), message };
    Some(match after {
        Some(message) => note("Fenced", message),
        None => note("FenceLifted", "no instance is fenced any more".to_owned()),
    })
}

/// The cluster entered another phase.
pub fn of_phase(before: Option<&PostgresClusterStatus>, after: &PostgresClusterStatus) -> Option<Note> {
    let phase = after.phase?;
    if before.and_then(|status| status.phase) == Some(phase) {
        return None;
    }
    let ready = after.conditions.iter().find(|condition| condition.type_ == super::conditions::READY)?;
    let degraded = after.conditions.iter().find(|condition| condition.type_ == super::conditions::DEGRADED);
    let told = match phase {
        Phase::Degraded => degraded.unwrap_or(ready),
        _ => ready,
    };
    let warning = matches!(phase, Phase::Degraded | Phase::Unavailable | Phase::Invalid);
    Some(Note { warning, reason: format!("{phase:?}"), message: told.message.clone() })
}
