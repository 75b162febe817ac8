//! Decides what the cluster's database begins as: a new one, or one that is restored, and from where.
//!
//! From: the spec, the objects that it names as a source, and whether there is a database already. What was found once stays found: a source that goes away
//! while it is restored from is no reason to stop. Never: a new database where a restored one is wanted. There is no such [`Origin`]: one that is to be restored,
//! and whose source is not there, has none, and the cluster waits.

use bellwether_api::v1::{BackupPhase, BackupStore, PostgresCluster, Recovery, RecoveryTarget as Asked};
use kube::ResourceExt;

use super::action::WaitingOn;
use super::adopt::Identity;
use crate::build::Parent;
use crate::contract::{RecoveryOrder, RecoveryTarget, RecoveryWay};
use crate::fact::Fact;
use crate::observed::Observed;
use crate::wal::Timeline;

/// What the database begins as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A new, empty one.
    New,
    /// One that is restored.
    Restored(Box<RecoveryOrder>),
    /// It is there already.
    There,
}

impl Origin {
    /// What agents are told of it.
    pub fn order(&self) -> Option<&RecoveryOrder> {
        match self {
            Self::Restored(order) => Some(order),
            Self::New | Self::There => None,
        }
    }
}

/// What the database begins as, or what that waits for.
pub fn origin(observed: &Observed, parent: &Parent<'_>, identity: &Identity) -> Result<Origin, WaitingOn> {
    let Some(recovery) = &parent.cluster.spec.bootstrap.recovery else { return Ok(Origin::New) };
    if identity.system.is_some() {
        return Ok(Origin::There);
    }
    let told = observed.config.known().and_then(|config| config.recovery.as_ref());
    let told = told.filter(|told| told.incarnation == parent.uid);
    match (place(recovery, observed, parent), told) {
        (Ok(place), _) => match order(recovery, place, &parent.uid) {
            Some(order) => Ok(Origin::Restored(Box::new(order))),
            // The rules of the schema and our own refuse such a thing first.
            None => Err(WaitingOn::Source("spec.bootstrap.recovery can't be understood".to_owned())),
        },
        (Err(WaitingOn::Source(_)), Some(told)) => Ok(Origin::Restored(Box::new(told.clone()))),
        (Err(on), _) => Err(on),
    }
}

/// Where in which store.
struct Place {
    store: BackupStore,
    archive: String,
    backup: Option<String>,
}

fn place(recovery: &Recovery, observed: &Observed, parent: &Parent<'_>) -> Result<Place, WaitingOn> {
    let missing = |why: String| WaitingOn::Source(why);
    match (&recovery.backup, &recovery.cluster, &recovery.store, &recovery.archive) {
        (Some(backup), None, None, None) => of_backup(&backup.name, observed),
        (None, Some(cluster), None, None) if cluster.name == parent.names.cluster() => {
            let why = "spec.bootstrap.recovery.cluster.name is this cluster itself: name another, or store and archive";
            Err(missing(why.to_owned()))
        }
        (None, Some(named), None, None) => {
            let cluster = cluster_of(&named.name, observed, "spec.bootstrap.recovery.cluster.name")?;
            let system = cluster.status.as_ref().and_then(|status| status.system_identifier.as_deref());
            let (Some(system), Some(uid)) = (system, cluster.uid()) else {
                return Err(missing(format!("PostgresCluster {:?} has no database yet", named.name)));
            };
            let (archive, backup) = (format!("{system}-{uid}"), recovery.backup_id.clone());
            Ok(Place { store: store_of(cluster)?, archive, backup })
        }
        (None, None, Some(store), Some(archive)) => {
            Ok(Place { store: store.clone(), archive: archive.clone(), backup: recovery.backup_id.clone() })
        }
        _ => Err(missing("spec.bootstrap.recovery does not say from where".to_owned())),
    }
}

/// A backup is in the store of its cluster, and so is the log.
fn of_backup(name: &str, observed: &Observed) -> Result<Place, WaitingOn> {
    let field = "spec.bootstrap.recovery.backup.name";
    let backup = match &observed.source.backup {
        Fact::Known(backup) => backup,
        Fact::Unknown => return Err(WaitingOn::Sight(vec![format!("Backup {name}")])),
        Fact::Absent => {
            return Err(WaitingOn::Source(format!("{field}: there is no Backup {name:?} in this namespace")));
        }
    };
    let status = backup.status.clone().unwrap_or_default();
    let (Some(id), Some(archive), true) =
        (status.id, status.archive, status.phase.is_some_and(BackupPhase::is_complete))
    else {
        let phase = status.phase.map_or_else(|| "not begun".to_owned(), |phase| format!("{phase:?}"));
        let said = status.message.map(|message| format!(" ({message})")).unwrap_or_default();
        return Err(WaitingOn::Source(format!(
            "{field}: Backup {name:?} is {phase}{said}, and has to be Completed or Verified"
        )));
    };
    let of = &backup.spec.cluster;
    if observed.source.cluster.is_absent() {
        return Err(WaitingOn::Source(format!(
            "{field}: Backup {name:?} is of PostgresCluster {of:?}, which is gone, and with it the address of its store: create a cluster \
             with recovery: {{store: …, archive: {archive}, backupId: {id}}} instead"
        )));
    }
    let cluster = cluster_of(of, observed, field)?;
    Ok(Place { store: store_of(cluster)?, archive, backup: Some(id) })
}

fn cluster_of<'a>(name: &str, observed: &'a Observed, field: &str) -> Result<&'a PostgresCluster, WaitingOn> {
    match &observed.source.cluster {
        Fact::Known(cluster) => Ok(cluster),
        Fact::Unknown => Err(WaitingOn::Sight(vec![format!("PostgresCluster {name}")])),
        Fact::Absent => Err(WaitingOn::Source(format!(
            "{field}: there is no PostgresCluster {name:?} in this namespace; what it left in a store is restored with store and archive"
        ))),
    }
}

fn store_of(cluster: &PostgresCluster) -> Result<BackupStore, WaitingOn> {
    cluster.spec.backup.store.clone().ok_or_else(|| {
        let name = cluster.name_any();
        WaitingOn::Source(format!("PostgresCluster {name:?} names no object store in spec.backup.store"))
    })
}

fn order(recovery: &Recovery, place: Place, incarnation: &str) -> Option<RecoveryOrder> {
    let way = match recovery.timeline.as_str() {
        "latest" => RecoveryWay::Latest,
        "current" => RecoveryWay::Current,
        number => RecoveryWay::Timeline(Timeline(number.parse().ok()?)),
    };
    let target = match &recovery.target {
        None => RecoveryTarget::Latest,
        Some(asked) => target(asked)?,
    };
    let Place { store, archive, backup } = place;
    Some(RecoveryOrder { incarnation: incarnation.to_owned(), store, archive, backup, target, way })
}

fn target(asked: &Asked) -> Option<RecoveryTarget> {
    let exclusive = asked.exclusive;
    match (&asked.time, &asked.lsn, &asked.name, asked.transaction) {
        (Some(at), None, None, None) => Some(RecoveryTarget::Time { at: at.parse().ok()?, exclusive }),
        (None, Some(at), None, None) => Some(RecoveryTarget::Lsn { at: at.parse().ok()?, exclusive }),
        (None, None, Some(name), None) => Some(RecoveryTarget::Name(name.clone())),
        (None, None, None, Some(xid)) => Some(RecoveryTarget::Transaction { xid: xid.try_into().ok()?, exclusive }),
        _ => None,
    }
}
