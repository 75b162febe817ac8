//! Decides whether the volumes under a cluster's name are its own, are to be adopted, or forbid the cluster to start.
//!
//! From: the volumes' annotations, the Lease, and the cluster's status. Never: a new database beside an old one, a database
//! mixed from two, or a guess which of several copies led last (the wrong one lacks commits that were acknowledged).

use std::collections::BTreeSet;

use bellwether_api::reason::Reason;

use super::action::WaitingOn;
use super::orphans;
use crate::build::Parent;
use crate::observed::{Observed, Volume, VolumeRole};
use crate::wal::SystemIdentifier;

/// What the volumes mean for the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// Go on.
    Settled(Identity),
    /// Not now.
    Wait(WaitingOn),
    /// Not at all, until a person decides.
    Refused {
        /// Why.
        reason: Reason,
        /// What was found, and what can be done.
        message: String,
    },
}

/// Which database the cluster is, as far as anybody knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Its identifier; nothing before the first initialisation.
    pub system: Option<SystemIdentifier>,
    /// The instance that led last.
    pub primary: Option<String>,
}

/// Looks at the volumes.
pub fn adopt(observed: &Observed, parent: &Parent<'_>) -> Adoption {
    if !observed.volumes.complete || observed.lease.is_unknown() {
        return Adoption::Wait(WaitingOn::Sight(observed.unseen()));
    }
    let doomed: Vec<_> =
        orphans::doomed(observed, Some(&parent.uid)).iter().map(|volume| volume.name.clone()).collect();
    if !doomed.is_empty() {
        return Adoption::Wait(WaitingOn::Volumes(doomed));
    }
    let shared: Vec<_> = observed.volumes.items.values().filter(|volume| volume.shared).collect();
    if !shared.is_empty() {
        return refuse_shared(&shared);
    }
    let recorded = parent.cluster.status.as_ref();
    let systems = systems(observed, parent);
    if systems.len() > 1 {
        return mismatch(observed, &systems);
    }
    let system = systems.into_iter().next();
    let leader = observed.leader().map(str::to_owned);
    if leader.is_none()
        && parent.cluster.spec.bootstrap.recovery.is_some()
        && recorded.is_none_or(|status| status.system_identifier.is_none())
        && !all_own(observed, parent)
    {
        return in_the_way(observed, parent);
    }
    match leader.or_else(|| recorded.and_then(|status| status.primary.clone())) {
        Some(primary) => Adoption::Settled(Identity { system, primary: Some(primary) }),
        None if system.is_none() => Adoption::Settled(Identity::default()),
        // Its own volumes need not be adopted: nobody has seen it led yet, or the Lease was put back to before that. Who leads is the agents' to
        // decide, by their logs, and for that each of them has to run.
        None if all_own(observed, parent) => Adoption::Settled(Identity { system, primary: None }),
        None => last_primary(observed, system),
    }
}

/// Every identifier that anybody recorded for this name.
fn systems(observed: &Observed, parent: &Parent<'_>) -> BTreeSet<SystemIdentifier> {
    let status = parent.cluster.status.as_ref().and_then(|status| status.system_identifier.as_ref()?.parse().ok());
    let lease = observed.own_lease().and_then(|lease| lease.system_identifier);
    let volumes = observed.volumes.items.values().filter_map(|volume| volume.system_identifier);
    status.into_iter().chain(lease).chain(volumes).collect()
}

/// Whether all that holds data was made for this very cluster.
fn all_own(observed: &Observed, parent: &Parent<'_>) -> bool {
    let with_data = |volume: &&Volume| volume.system_identifier.is_some();
    observed.volumes.items.values().filter(with_data).all(|volume| volume.cluster_uid.as_deref() == Some(&parent.uid))
}

/// The cluster is new, the data is not: who led last is only known from the volumes.
fn last_primary(observed: &Observed, system: Option<SystemIdentifier>) -> Adoption {
    let data: Vec<&Volume> = observed
        .volumes
        .items
        .values()
        .filter(|v| v.role == Some(VolumeRole::Data) && v.system_identifier.is_some())
        .collect();
    let led: Vec<&Volume> = data.iter().filter(|volume| volume.was_primary == Some(true)).copied().collect();
    match (led.as_slice(), data.as_slice()) {
        ([only], _) | ([], [only]) => Adoption::Settled(Identity { system, primary: Some(only.instance.clone()) }),
        _ => Adoption::Refused {
            reason: Reason::AdoptionAmbiguous,
            message: format!(
                "volumes {} hold one database, but {} of them are marked as last primary, so which copy is newest can't be told; \
                 keep the volumes of one instance under this name and delete or rename the others, or use another cluster name",
                listed(&data),
                led.len(),
            ),
        },
    }
}

fn mismatch(observed: &Observed, systems: &BTreeSet<SystemIdentifier>) -> Adoption {
    let found: Vec<_> = observed
        .volumes
        .items
        .values()
        .filter_map(|volume| Some(format!("{} holds {}", volume.name, volume.system_identifier?)))
        .collect();
    Adoption::Refused {
        reason: Reason::SystemIdentifierMismatch,
        message: format!(
            "{} databases are recorded under this name ({}); delete the volumes that don't belong to it, or use another \
             cluster name",
            systems.len(),
            found.join(", "),
        ),
    }
}

/// To adopt them would leave out what was asked for, and nobody would notice.
fn in_the_way(observed: &Observed, parent: &Parent<'_>) -> Adoption {
    let others = observed
        .volumes
        .items
        .values()
        .filter(|volume| volume.system_identifier.is_some() && volume.cluster_uid.as_deref() != Some(&parent.uid));
    let others: Vec<_> = others.collect();
    Adoption::Refused {
        reason: Reason::VolumesInTheWay,
        message: format!(
            "spec.bootstrap.recovery: nothing is restored over volumes {}, which hold the database of an earlier cluster of this name; to have that one \
             back, create the cluster without spec.bootstrap.recovery; to restore in its place, delete these volumes, or use another cluster name",
            listed(&others),
        ),
    }
}

/// Who an instance is goes with its volume, to one process at a time: a lock that two nodes don't share keeps nobody away.
fn refuse_shared(shared: &[&Volume]) -> Adoption {
    Adoption::Refused {
        reason: Reason::SharedVolume,
        message: format!(
            "claims {} allow several nodes to write (ReadWriteMany), and a database must never be written by two; delete them, or claim \
             the same volumes with ReadWriteOnce or ReadWriteOncePod",
            listed(shared),
        ),
    }
}

fn listed(volumes: &[&Volume]) -> String {
    volumes.iter().map(|volume| volume.name.as_str()).collect::<Vec<_>>().join(", ")
}
