//! Decides what an instance does with its volume when its agent starts, and whenever PostgreSQL is not running.
//!
//! From: what is on the volume, what the Lease says, the configuration, and the instance's own name. Never: initialises a
//! database when any was ever initialised for this cluster, or when the cluster's is to be restored; leads with another database than
//! the cluster's, or with one that was restored for another cluster; acts on a Lease
//! that could not be read, or lets anything be deleted that isn't marked as our own unfinished work.

use std::fmt;

use crate::contract::{InstanceConfig, Leader, RecoveryOrder};
use crate::fact::Fact;
use crate::wal::{SystemIdentifier, Term};

/// What is on the data volume (and on the WAL volume, where there is one).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeState {
    /// Nothing.
    Empty,
    /// An `initdb` of ours that did not finish; its marker is there, so what it left can go.
    UnfinishedInitdb,
    /// A restore of ours that did not finish; its marker is there, so what it left can go.
    UnfinishedRestore,
    /// A base backup of ours that did not finish; its marker is there, so what it left can go.
    UnfinishedClone,
    /// A database that a rewind of ours left half-way. It must never be started, and is kept until there is something better.
    UnfinishedRewind,
    /// A database that we initialised but never announced in the Lease. No client has ever seen it.
    Unannounced(SystemIdentifier),
    /// A database that we restored but never announced in the Lease. No client has ever seen it.
    Restored {
        /// Which.
        system: SystemIdentifier,
        /// The cluster that it was restored for, by its UID.
        incarnation: String,
    },
    /// A database.
    Data(SystemIdentifier),
    /// Something that we did not put there, or can't read. It stays.
    Foreign(String),
}

/// What the Lease says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseView {
    /// Who leads, and where.
    pub leader: Option<Leader>,
    /// The cluster's system identifier; there once somebody has initialised it.
    pub system: Option<SystemIdentifier>,
    /// The term.
    pub term: Option<Term>,
    /// The UID of the leader's pod.
    pub holder: Option<String>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// Run `initdb`, removing what an unfinished one left.
    Initialise,
    /// Restore the database, removing what an unfinished restore left.
    Restore(Box<RecoveryOrder>),
    /// The cluster's database is here: run it. The election says as what.
    Run {
        /// Nobody has ever led, and this instance is the one that may be the first.
        first: bool,
    },
    /// Set aside what is on the volume: a leader is known from whom a whole copy can come.
    SetAside,
    /// Copy the database from the leader, removing what an unfinished copy left.
    Join {
        /// Whom to copy from.
        from: Leader,
    },
    /// Nothing yet.
    Wait(Waiting),
    /// Nothing, until a person looks. Nothing is deleted.
    Refuse(Refusal),
}

/// What has to happen first. Shown to users word for word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The Lease could not be read.
    ApiUnreachable,
    /// The operator has not created the Lease.
    NoLease,
    /// Nobody leads yet.
    NoLeader,
    /// The cluster's database exists, but not here, and nobody leads whom it could be copied from.
    NoLeaderToCopyFrom,
}

/// Why this volume must not be used. Shown to users word for word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// What is on the volume isn't ours.
    Foreign(String),
    /// The volume holds another database than the cluster's.
    SystemIdentifierMismatch {
        /// On the volume.
        volume: SystemIdentifier,
        /// The cluster's.
        cluster: SystemIdentifier,
    },
    /// The Lease and the configuration speak of different databases.
    ClusterAmbiguous {
        /// In the Lease.
        lease: SystemIdentifier,
        /// In the configuration.
        config: SystemIdentifier,
    },
    /// The volume holds a database that nobody knows of.
    UnknownDatabase(SystemIdentifier),
    /// The Lease names this instance as leader, but the database isn't on its volume.
    LeaderWithoutData,
    /// The Lease names a leader, but no system identifier.
    LeaseIncomplete,
}

/// What `me` does next.
pub fn start(volume: &VolumeState, lease: &Fact<LeaseView>, config: &InstanceConfig, me: &str) -> Start {
    if let VolumeState::Foreign(what) = volume {
        return Start::Refuse(Refusal::Foreign(what.clone()));
    }
    let lease = match lease {
        Fact::Known(lease) => lease,
        Fact::Absent => return Start::Wait(Waiting::NoLease),
        Fact::Unknown => return Start::Wait(Waiting::ApiUnreachable),
    };
    let cluster = match (lease.system, config.system_identifier) {
        (Some(lease), Some(config)) if lease != config => {
            return Start::Refuse(Refusal::ClusterAmbiguous { lease, config });
        }
        (lease, config) => lease.or(config),
    };
    match &lease.leader {
        None => without_leader(volume, cluster, config.bootstrap_instance == me, config.recovery.as_ref()),
        Some(_) if lease.system.is_none() => Start::Refuse(Refusal::LeaseIncomplete),
        Some(leader) if leader.instance == me => as_leader(volume, cluster),
        Some(leader) => as_standby(volume, cluster, leader),
    }
}

/// The only place where a cluster begins: no leader, and no trace of a database anywhere.
fn without_leader(
    volume: &VolumeState,
    cluster: Option<SystemIdentifier>,
    chosen: bool,
    recovery: Option<&RecoveryOrder>,
) -> Start {
    let Some(cluster) = cluster else {
        return if chosen { begin(volume, recovery) } else { Start::Wait(Waiting::NoLeader) };
    };
    match volume {
        // Adoption: the cluster was deleted and created again, its volumes stayed.
        volume if database(volume) == Some(cluster) => Start::Run { first: chosen },
        VolumeState::Data(volume) => mismatch(*volume, cluster),
        _ => Start::Wait(Waiting::NoLeaderToCopyFrom),
    }
}

/// No trace of a database anywhere but perhaps on this volume, and this instance is the one that may begin.
fn begin(volume: &VolumeState, recovery: Option<&RecoveryOrder>) -> Start {
    use VolumeState::{Data, Empty, Restored, Unannounced, UnfinishedInitdb, UnfinishedRestore};
    match (volume, recovery) {
        (Empty | UnfinishedInitdb | UnfinishedRestore, None) => Start::Initialise,
        (Empty | UnfinishedInitdb | UnfinishedRestore, Some(order)) => Start::Restore(Box::new(order.clone())),
        // The agent died between the end of its work and the Lease: go on from there.
        (Unannounced(_), None) => Start::Run { first: true },
        (Restored { incarnation, .. }, Some(order)) if *incarnation == order.incarnation => Start::Run { first: true },
        // An empty database where a restored one is wanted, the other way round, or one that was restored for another cluster.
        (Data(system) | Unannounced(system) | Restored { system, .. }, _) => {
            Start::Refuse(Refusal::UnknownDatabase(*system))
        }
        _ => Start::Wait(Waiting::NoLeader),
    }
}

/// The database on a volume.
fn database(volume: &VolumeState) -> Option<SystemIdentifier> {
    match volume {
        VolumeState::Data(system) | VolumeState::Unannounced(system) | VolumeState::Restored { system, .. } => {
            Some(*system)
        }
        _ => None,
    }
}

fn as_leader(volume: &VolumeState, cluster: Option<SystemIdentifier>) -> Start {
    match (database(volume), cluster) {
        (Some(volume), Some(cluster)) if volume == cluster => Start::Run { first: false },
        (Some(volume), Some(cluster)) => mismatch(volume, cluster),
        _ => Start::Refuse(Refusal::LeaderWithoutData),
    }
}

fn as_standby(volume: &VolumeState, cluster: Option<SystemIdentifier>, leader: &Leader) -> Start {
    let from = leader.clone();
    match (volume, cluster) {
        (VolumeState::Data(volume) | VolumeState::Unannounced(volume), Some(cluster)) if *volume == cluster => {
            Start::Run { first: false }
        }
        (VolumeState::Data(volume), Some(cluster)) => mismatch(*volume, cluster),
        (VolumeState::UnfinishedRewind, _) => Start::SetAside,
        // Somebody else's database became the cluster's while ours was unannounced: no client has seen ours. One that was restored has its original's
        // identifier, which says nothing about its log.
        _ => Start::Join { from },
    }
}

fn mismatch(volume: SystemIdentifier, cluster: SystemIdentifier) -> Start {
    Start::Refuse(Refusal::SystemIdentifierMismatch { volume, cluster })
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ApiUnreachable => "waiting for the Kubernetes API: the cluster's Lease could not be read",
            Self::NoLease => "waiting for the operator to create the cluster's Lease",
            Self::NoLeader => "waiting for the first instance to lead",
            Self::NoLeaderToCopyFrom => "waiting for an instance that holds the cluster's database to lead",
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign(what) => {
                write!(f, "the volume holds something that is not ours ({what}); nothing was changed")
            }
            Self::SystemIdentifierMismatch { volume, cluster } => write!(
                f,
                "the volume holds database {volume}, but the cluster's is {cluster}; nothing was changed: \
                 delete this instance's volume if its data is not needed"
            ),
            Self::ClusterAmbiguous { lease, config } => write!(
                f,
                "the Lease speaks of database {lease}, the configuration of {config}; nothing was changed: \
                 remove the wrong one"
            ),
            Self::UnknownDatabase(volume) => write!(
                f,
                "the volume holds database {volume}, which neither the Lease nor the configuration knows; nothing was \
                 changed: delete the volume, or let the cluster adopt it"
            ),
            Self::LeaderWithoutData => f.write_str(
                "the Lease names this instance as leader, but its volume does not hold the cluster's database; \
                 nothing was initialised",
            ),
            Self::LeaseIncomplete => f.write_str("the Lease names a leader but no system identifier"),
        }
    }
}

#[cfg(test)]
mod tests {
    use bellwether_api::v1::BackupStore;

    use super::*;
    use crate::contract::{RecoveryTarget, RecoveryWay};

    const OURS: SystemIdentifier = SystemIdentifier(7);
    const OTHER: SystemIdentifier = SystemIdentifier(8);

    fn leader(instance: &str) -> Leader {
        Leader { instance: instance.to_owned(), address: "10.0.0.1".to_owned() }
    }
    fn config(system_identifier: Option<SystemIdentifier>) -> InstanceConfig {
        InstanceConfig { bootstrap_instance: "a".to_owned(), system_identifier, ..InstanceConfig::default() }
    }
    fn order() -> RecoveryOrder {
        RecoveryOrder {
            incarnation: "this".to_owned(),
            store: BackupStore::default(),
            archive: "shop/orders".to_owned(),
            backup: None,
            target: RecoveryTarget::Latest,
            way: RecoveryWay::Latest,
        }
    }
    fn restored(incarnation: &str) -> VolumeState {
        VolumeState::Restored { system: OURS, incarnation: incarnation.to_owned() }
    }
    fn restoring(system_identifier: Option<SystemIdentifier>) -> InstanceConfig {
        InstanceConfig { recovery: Some(order()), ..config(system_identifier) }
    }
    fn lease(leader: Option<Leader>, system: Option<SystemIdentifier>) -> Fact<LeaseView> {
        Fact::Known(LeaseView { leader, system, ..LeaseView::default() })
    }
    fn volumes() -> Vec<VolumeState> {
        vec![
            VolumeState::Empty,
            VolumeState::UnfinishedInitdb,
            VolumeState::UnfinishedRestore,
            VolumeState::UnfinishedClone,
            VolumeState::UnfinishedRewind,
            VolumeState::Unannounced(OURS),
            VolumeState::Unannounced(OTHER),
            restored("this"),
            restored("another"),
            VolumeState::Data(OURS),
            VolumeState::Data(OTHER),
            VolumeState::Foreign("lost+found".to_owned()),
        ]
    }
    fn leases() -> Vec<Fact<LeaseView>> {
        let mut all = vec![Fact::Unknown, Fact::Absent];
        for named in [None, Some(leader("a")), Some(leader("b"))] {
            for system in [None, Some(OURS), Some(OTHER)] {
                all.push(lease(named.clone(), system));
            }
        }
        all
    }
    /// Every combination there is.
    fn table() -> Vec<(VolumeState, Fact<LeaseView>, InstanceConfig, &'static str, Start)> {
        let mut rows = vec![];
        for volume in volumes() {
            for lease in leases() {
                for known in [None, Some(OURS), Some(OTHER)] {
                    for config in [config(known), restoring(known)] {
                        for me in ["a", "b"] {
                            let start = start(&volume, &lease, &config, me);
                            rows.push((volume.clone(), lease.clone(), config.clone(), me, start));
                        }
                    }
                }
            }
        }
        rows
    }

    #[test]
    fn a_cluster_is_initialised_or_restored_only_where_nothing_was_ever_initialised_and_never_the_one_for_the_other() {
        use VolumeState::{Empty, UnfinishedInitdb, UnfinishedRestore};
        for (volume, lease, config, me, start) in table() {
            let blank = lease.known().is_some_and(|lease| lease.leader.is_none() && lease.system.is_none());
            let may = matches!(volume, Empty | UnfinishedInitdb | UnfinishedRestore)
                && blank
                && config.system_identifier.is_none()
                && me == config.bootstrap_instance;
            let wanted = config.recovery.as_ref();
            assert_eq!(start == Start::Initialise, may && wanted.is_none(), "{volume:?} {lease:?} {config:?} {me}");
            let restores = matches!(&start, Start::Restore(order) if Some(&**order) == wanted);
            assert_eq!(restores, may && wanted.is_some(), "{volume:?} {lease:?} {config:?} {me}");
        }
    }

    #[test]
    fn the_first_to_lead_has_what_was_asked_for_an_empty_database_is_none_that_was_restored() {
        for (volume, lease, config, me, start) in table() {
            let known = lease.known().and_then(|lease| lease.system).or(config.system_identifier);
            if start != (Start::Run { first: true }) || known.is_some() {
                continue;
            }
            match &config.recovery {
                None => assert!(matches!(volume, VolumeState::Unannounced(_)), "{me}: {volume:?}"),
                Some(_) => assert_eq!(volume, restored("this"), "{me}"),
            }
        }
    }

    #[test]
    fn nothing_is_done_on_a_lease_that_could_not_be_read() {
        for (volume, lease, _, me, start) in table() {
            if lease.known().is_none() {
                assert!(matches!(start, Start::Wait(_) | Start::Refuse(_)), "{volume:?} {lease:?} {me}: {start:?}");
            }
        }
    }

    #[test]
    fn whoever_leads_or_follows_holds_the_clusters_database() {
        for (volume, lease, config, me, start) in table() {
            if !matches!(start, Start::Run { .. }) {
                continue;
            }
            let Some(on_volume) = database(&volume) else { panic!("{me} would run PostgreSQL on {volume:?}") };
            for known in [lease.known().unwrap().system, config.system_identifier].into_iter().flatten() {
                assert_eq!(on_volume, known, "{lease:?} {:?} {me}", config.system_identifier);
            }
        }
    }

    #[test]
    fn a_database_is_never_overwritten_by_a_copy() {
        for (volume, _, _, me, start) in table() {
            if matches!(start, Start::Join { .. }) {
                let kept = [VolumeState::Data(OURS), VolumeState::Data(OTHER), VolumeState::UnfinishedRewind];
                assert!(!kept.contains(&volume) && !matches!(volume, VolumeState::Foreign(_)), "{me}: {volume:?}");
            }
        }
    }

    #[test]
    fn what_a_rewind_left_half_way_is_only_ever_set_aside_and_only_for_a_leaders_copy() {
        for (volume, lease, _, me, start) in table() {
            let another_leads =
                lease.known().and_then(|lease| lease.leader.as_ref()).is_some_and(|it| it.instance != me);
            if volume == VolumeState::UnfinishedRewind {
                assert!(matches!(start, Start::SetAside | Start::Wait(_) | Start::Refuse(_)), "{me}: {start:?}");
            }
            if start == Start::SetAside {
                assert!(volume == VolumeState::UnfinishedRewind && another_leads, "{me}: {volume:?} {lease:?}");
            }
        }
    }

    #[test]
    fn only_the_chosen_instance_may_be_the_first_to_lead() {
        for (volume, lease, config, me, start) in table() {
            if start == (Start::Run { first: true }) {
                assert_eq!(config.bootstrap_instance, me, "{volume:?} {lease:?}");
                assert_eq!(lease.known().unwrap().leader, None, "{volume:?} {lease:?}");
            }
        }
    }

    #[test]
    fn what_is_not_ours_is_refused_and_named() {
        let start = start(&VolumeState::Foreign("notes.txt".into()), &Fact::Unknown, &config(None), "a");
        let Start::Refuse(why) = start else { panic!("{start:?}") };
        assert!(why.to_string().contains("notes.txt"), "{why}");
    }

    #[test]
    fn a_volume_with_another_database_is_refused_naming_both() {
        let start = start(&VolumeState::Data(OTHER), &lease(Some(leader("b")), Some(OURS)), &config(None), "a");
        let Start::Refuse(why) = start else { panic!("{start:?}") };
        assert!(why.to_string().contains('7') && why.to_string().contains('8'), "{why}");
    }

    #[test]
    fn a_leader_whose_volume_is_empty_does_not_begin_anew() {
        let start = start(&VolumeState::Empty, &lease(Some(leader("a")), Some(OURS)), &config(None), "a");
        assert_eq!(start, Start::Refuse(Refusal::LeaderWithoutData));
    }

    #[test]
    fn an_initdb_that_was_never_announced_is_announced_after_a_restart() {
        let start = start(&VolumeState::Unannounced(OURS), &lease(None, None), &config(None), "a");
        assert_eq!(start, Start::Run { first: true });
    }

    #[test]
    fn retained_volumes_are_adopted_by_the_chosen_instance() {
        let start_as = |me| start(&VolumeState::Data(OURS), &lease(None, None), &config(Some(OURS)), me);
        assert_eq!(start_as("a"), Start::Run { first: true });
        assert_eq!(start_as("b"), Start::Run { first: false });
    }
}
