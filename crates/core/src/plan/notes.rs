//! Decides what is worth a Kubernetes Event: what was done to instances and data, and where the cluster's life turned. Never:
//! something that repeats while nothing changes.

use bellwether_api::v1::{Phase, PostgresClusterStatus};

use super::action::{Action, Effect, Existing, Note};
use crate::object::Kind;

impl Action {
    /// What the action means to people, once it was carried out. Objects that only hold the cluster together are not mentioned.
    pub fn note(&self) -> Option<Note> {
        of_action(self)
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
        Effect::DeleteVolume(_) => note("VolumeRemoved", format!("removed volume {name}: {}", action.why)),
        Effect::GrowVolume { size, .. } => note("VolumeGrown", format!("asked for volume {name} to be {size}")),
        Effect::AnnotateVolume { annotations, .. } if annotations.contains_key(bellwether_api::labels::CLUSTER_UID) => {
            note("VolumeAdopted", format!("adopted volume {name}"))
        }
        Effect::Issue(order) if order.existing == Existing::Renew => {
            note("CertificateRenewed", format!("renewed {name}: {}", action.why))
        }
        Effect::Apply(_) if action.why == super::provision::DRIFTED => {
            note("DriftCorrected", format!("restored {kind} {name}, which somebody had changed"))
        }
        _ => None,
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
