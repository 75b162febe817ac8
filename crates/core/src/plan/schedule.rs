//! Decides when the schedule creates a backup, and for which of its times.
//!
//! From: `spec.backup.schedule`, the backups that there are, and for which time one was created last. Only the latest time that has come counts, and
//! only if no backup was created since: however many were missed, because the operator or the cluster was down, one is made up for. A new cluster
//! has missed the time at which it was created, so its first backup is taken as soon as it is ready. Clusters with the same schedule begin at
//! moments of their own, by their UIDs: a thousand of them would ask the store at once. Never: a backup without a store to put it in; a second one
//! for the same time, also when somebody deleted the first; or one more while one that the schedule created has yet to be taken.

use std::collections::BTreeMap;

use bellwether_api::labels;
use bellwether_api::schedule::Schedule;
use bellwether_api::v1::{Backup, BackupSpec};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::action::{Action, Effect};
use super::backup::is_older_than;
use super::certificates::whole_seconds;
use crate::build::Parent;
use crate::object::{self, Desired, Kind};
use crate::observed::{self, Observed};

/// Nobody begins later than so long after the time that the user wrote.
const SPREAD_OVER: SignedDuration = SignedDuration::from_secs(60);

/// How far the cluster is: what a backup needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cluster {
    /// As it should be.
    Ready,
    /// Somebody accepts writes.
    Led,
    /// Nobody does.
    Down,
}

/// What the schedule does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Due {
    /// A backup to create.
    pub action: Option<Action>,
    /// When the next one may fall due.
    pub requeue: Option<SignedDuration>,
}

/// Looks at the schedule.
pub fn due(observed: &Observed, parent: &Parent<'_>, cluster: Cluster, now: Timestamp) -> Due {
    look(observed, parent, cluster, now).unwrap_or_default()
}

/// The time for which a backup was created last.
pub fn last(observed: &Observed, parent: &Parent<'_>) -> Option<Timestamp> {
    let before = parent.cluster.status.as_ref().and_then(|status| status.last_scheduled_backup.as_ref()).map(|at| at.0);
    let seen = own(observed, parent).filter_map(|backup| backup.scheduled);
    before.into_iter().chain(seen).max()
}

fn look(observed: &Observed, parent: &Parent<'_>, cluster: Cluster, now: Timestamp) -> Option<Due> {
    let policy = &parent.cluster.spec.backup;
    policy.store.as_ref().filter(|_| observed.backups.complete)?;
    // One that can't be acted on is said in a condition.
    let times = Times { schedule: Schedule::read(&policy.schedule, &policy.time_zone).ok()?, uid: &parent.uid };
    let (latest, next) = times.around(now)?;
    let requeue = Some(next.duration_since(now).max(SignedDuration::from_secs(1)));
    let born = parent.cluster.metadata.creation_timestamp.as_ref().map(|at| at.0);
    let time = born.map_or(latest, |born| whole_seconds(born).max(latest));
    let name = name(parent, time);
    let made = last(observed, parent).is_some_and(|last| last >= time)
        || own(observed, parent).any(|backup| backup.created.is_some_and(|created| created >= time))
        || observed.backups.items.contains_key(&name);
    let waits = own(observed, parent).any(|backup| backup.scheduled.is_some() && backup.is_open());
    let first = own(observed, parent).next().is_none() && last(observed, parent).is_none();
    let able = if first { cluster == Cluster::Ready } else { cluster != Cluster::Down };
    let action = (able && !made && !waits).then(|| Action {
        effect: Effect::Create(backup(parent, &name, time)),
        why: if first { "the cluster has none yet" } else { "its time has come" }.to_owned(),
    });
    Some(Due { action, requeue })
}

/// Backups of this cluster, and not of an earlier one of its name.
fn own<'a>(observed: &'a Observed, parent: &Parent<'_>) -> impl Iterator<Item = &'a observed::Backup> {
    observed.backups.items.values().filter(|backup| !is_older_than(backup, parent))
}

/// The times of a schedule at which this cluster begins.
struct Times<'a> {
    schedule: Schedule,
    uid: &'a str,
}

impl Times<'_> {
    /// The last time whose moment has come, and the moment of the next.
    fn around(&self, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let last = self.schedule.last(now)?;
        let moment = last + self.delay(last)?;
        if moment <= now {
            let next = self.schedule.next(last)?;
            return Some((last, next + self.delay(next)?));
        }
        Some((self.schedule.last(last - SignedDuration::from_secs(1))?, moment))
    }

    /// How long after a time this cluster begins: by its UID, within a minute and a tenth of the time until the next.
    fn delay(&self, time: Timestamp) -> Option<SignedDuration> {
        let until_next = self.schedule.next(time)?.duration_since(time);
        let most = SPREAD_OVER.min(until_next / 10).as_secs();
        let place = u64::from_str_radix(&object::hash(&self.uid.into()), 16).unwrap_or(0);
        let most = u64::try_from(most).unwrap_or(0);
        i64::try_from(place % (most + 1)).ok().map(SignedDuration::from_secs)
    }
}

/// `orders-20260101-0200`, in UTC.
fn name(parent: &Parent<'_>, time: Timestamp) -> String {
    format!("{}-{}", parent.names.cluster(), time.strftime("%Y%m%d-%H%M"))
}

/// It has no owner: it speaks of what is in the store, which stays there when the cluster is gone, and whoever restores the cluster looks for it.
fn backup(parent: &Parent<'_>, name: &str, time: Timestamp) -> Desired {
    let why = format!("schedule {} of PostgresCluster {}", parent.cluster.spec.backup.schedule, parent.names.cluster());
    let annotations =
        BTreeMap::from([(labels::SCHEDULED.to_owned(), time.to_string()), (labels::CREATED_BECAUSE.to_owned(), why)]);
    let mut backup =
        Backup::new(name, BackupSpec { cluster: parent.names.cluster().to_owned(), ..BackupSpec::default() });
    backup.metadata = ObjectMeta { annotations: Some(annotations), ..parent.unowned(name) };
    Desired::of(Kind::Backup, name, &backup)
}
