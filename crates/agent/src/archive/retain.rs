//! Carries retention out: removes from the store what the policy does not keep.
//!
//! From: the policy, which only the instance that leads is told, and what is in the store. It begins a little after the instance began to lead, and looks again
//! whenever it is told the policy (the agent does that when something about backups may be new), every quarter of an hour whether there is another backup or
//! verification, and at all once a day. What goes is decided by [`retention::plan`].
//!
//! Never: by an instance that does not lead, as far as it knows (two that believe it do each other no harm: what one removes, nobody's plan keeps, unless they were
//! told different policies); in the way of the log, which has a state of its own; a word that changes while nothing does.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use bellwether_backup::catalog::{Catalog, Newest};
use bellwether_backup::restore::choose;
use bellwether_backup::retention::{self, Alarm, Plan, Policy};
use bellwether_backup::{Store, StoreError};
use bellwether_core::contract::{Removed, Retained};
use k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use super::message::Said;
use super::process::Parts;
use crate::backoff::Backoff;

/// How long an instance leads before it removes anything: right after a failover it has better things to do, and the store no less.
const SETTLE: Duration = Duration::from_secs(30);
/// How often the store is asked whether something is new. Some ten requests each time.
const LOOK: Duration = Duration::from_secs(15 * 60);
/// Within what it is done, or it is said why not, and gone on with later: what is gone by then is gone.
const DEADLINE: Duration = Duration::from_secs(30 * 60);
/// After a failure, twice as long each time.
const RETRY: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(30 * 60));
/// What grows old without anything new happening is found once in this time, give or take …
const DAY: Duration = Duration::from_secs(23 * 3600);
/// … as much as keeps clusters that were made together from reading all of one store at the same time.
const SPREAD: u64 = 2 * 3600;

/// Why it was not carried out.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("spec.backup.retention: {0}")]
    Policy(#[from] retention::BadPolicy),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("it was not done within {} min, and goes on later", DEADLINE.as_secs() / 60)]
    Late,
}

/// The last time that it was carried out.
#[derive(Clone, Debug)]
struct Last {
    policy: String,
    newest: Newest,
    at: Instant,
}

/// That it was carried out.
struct Done {
    newest: Newest,
    plan: Plan,
    since: Option<Timestamp>,
    removed: Option<Removed>,
}

/// Why it is time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// It was never done, or failed.
    NotDone,
    /// Something else is to be kept.
    Policy,
    /// There is another backup, or another was found good.
    Backup,
    /// Everything is older by a day.
    Day,
}

/// Whenever this instance is told to.
pub(super) async fn retain(parts: Parts) {
    let mut told = parts.retain.clone();
    loop {
        if told.wait_for(Option::is_some).await.is_err() {
            return;
        }
        let mut lead = told.clone();
        let over = async { lead.wait_for(Option::is_none).await.map(drop) };
        tokio::select! {
            // Broken off in the middle, it leaves nothing that looks whole and isn't.
            over = over => if over.is_err() { return },
            () = keep_on(&parts, told.clone()) => return,
        }
    }
}

/// As long as this instance leads, and may be dropped at any time.
async fn keep_on(parts: &Parts, mut told: watch::Receiver<Option<String>>) {
    let mut opened = parts.archive.clone();
    let open = opened.wait_for(Option::is_some).await.ok().and_then(|open| open.clone());
    let Some(open) = open else { return };
    tokio::time::sleep(SETTLE).await;
    let (store, day) = (open.archive.store(), day(&parts.setup.incarnation));
    let mut backoff = Backoff::new(RETRY.0, RETRY.1);
    let mut last: Option<Last> = None;
    let mut report = Retained::default();
    loop {
        let Some(policy) = told.borrow_and_update().clone() else { return };
        let looked = tokio::time::timeout(DEADLINE, look(store, &policy, last.as_ref(), day)).await;
        let before = report.clone();
        let wait = match looked.unwrap_or(Err(Failed::Late)) {
            Ok(None) => LOOK,
            Ok(Some(Done { newest, plan, since, removed })) => {
                backoff.reset();
                report.policy.clone_from(&policy);
                report.failing = None;
                report.since = since;
                report.alarm = alarm(&plan);
                report.removed = removed.or(report.removed.take());
                last = Some(Last { policy, newest, at: Instant::now() });
                LOOK
            }
            Err(error) => {
                tracing::warn!(%error, "retention is not carried out");
                report.policy = policy;
                report.failing = Some(error.to_string());
                // It is all done again.
                last = None;
                backoff.next_wait()
            }
        };
        if report != before {
            let _ = parts.said.send(Said::Retained(Box::new(report.clone())));
        }
        tokio::select! {
            changed = told.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Carries it out if it is time; nothing if not.
async fn look(store: &Store, policy: &str, last: Option<&Last>, day: Duration) -> Result<Option<Done>, Failed> {
    let what: Policy = policy.parse()?;
    let newest = Newest::of(store).await?;
    let Some(why) = due(last, policy, &newest, Instant::now(), day) else { return Ok(None) };
    let catalog = Catalog::read(store).await?;
    let plan = retention::plan(&catalog, what, Timestamp::now());
    tracing::info!(
        ?why,
        policy,
        kept = plan.kept.len(),
        backups = plan.backups.len() + plan.incomplete.len(),
        log = plan.log.len(),
        "retention"
    );
    retention::apply(store, &plan).await?;
    let removed = removed(&plan, &catalog, Timestamp::now());
    let since = choose::since(&catalog, |backup| plan.kept.contains_key(backup));
    Ok(Some(Done { newest, plan, since: since.and_then(|at| Timestamp::from_second(at.as_second()).ok()), removed }))
}

/// Whether there is anything to look at.
fn due(last: Option<&Last>, policy: &str, newest: &Newest, now: Instant, day: Duration) -> Option<Due> {
    let Some(last) = last else { return Some(Due::NotDone) };
    if last.policy != policy {
        return Some(Due::Policy);
    }
    if last.newest != *newest {
        return Some(Due::Backup);
    }
    (now.duration_since(last.at) >= day).then_some(Due::Day)
}

/// A day, for this cluster.
fn day(incarnation: &str) -> Duration {
    let mut hasher = DefaultHasher::new();
    incarnation.hash(&mut hasher);
    DAY + Duration::from_secs(hasher.finish() % SPREAD)
}

/// What somebody must know.
fn alarm(plan: &Plan) -> Option<String> {
    // Verification comes after the backup: a single one is not late yet.
    let late = |alarm: &&Alarm| !matches!(alarm, Alarm::NothingVerified { completed: 1 });
    let alarms: Vec<_> = plan.alarms.iter().filter(late).map(Alarm::to_string).collect();
    (!alarms.is_empty()).then(|| alarms.join("; "))
}

/// What went; nothing if nothing did.
fn removed(plan: &Plan, catalog: &Catalog, now: Timestamp) -> Option<Removed> {
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let removed = Removed {
        at: Timestamp::from_second(now.as_second()).ok(),
        backups: count(plan.backups.len() + plan.incomplete.len()),
        log: count(plan.log.len()),
        bytes: plan.bytes(catalog),
    };
    (!plan.is_empty()).then_some(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn newest(whole: &str, verified: Option<&str>) -> Newest {
        let id = |text: &str| text.parse().unwrap();
        Newest { whole: Some(id(whole)), verified: verified.map(id) }
    }

    #[tokio::test]
    async fn it_is_time_at_the_start_for_another_policy_a_new_backup_a_verified_one_and_once_a_day() {
        let (now, first) = (Instant::now(), newest("20261118T020000Z", None));
        let last = Last { policy: "7d".to_owned(), newest: first.clone(), at: now };
        let due =
            |policy: &str, newest: &Newest, later: Duration| due(Some(&last), policy, newest, now + later, day("u-1"));
        assert_eq!(super::due(None, "7d", &first, now, day("u-1")), Some(Due::NotDone));
        assert_eq!(due("7d", &first, HOUR), None, "nothing is new");
        assert_eq!(due("7d and 3 backups", &first, HOUR), Some(Due::Policy));
        assert_eq!(due("7d", &newest("20261119T020000Z", None), HOUR), Some(Due::Backup));
        assert_eq!(due("7d", &newest("20261118T020000Z", Some("20261118T020000Z")), HOUR), Some(Due::Backup));
        assert_eq!(due("7d", &first, 26 * HOUR), Some(Due::Day));
    }

    #[test]
    fn clusters_made_together_do_not_look_together() {
        let days: std::collections::BTreeSet<_> = (0..50).map(|one| day(&format!("u-{one}"))).collect();
        assert!(days.len() > 40, "{days:?}");
        assert!(days.iter().all(|day| (23 * HOUR..25 * HOUR).contains(day)), "{days:?}");
    }

    #[test]
    fn one_backup_that_nobody_has_verified_yet_is_no_reason_for_alarm_and_two_are() {
        let plan = |completed| Plan { alarms: vec![Alarm::NothingVerified { completed }], ..Plan::default() };
        assert_eq!(alarm(&plan(1)), None);
        assert!(alarm(&plan(2)).unwrap().contains("none of 2 backups"));
    }

    #[test]
    fn what_was_removed_is_said_only_if_something_was() {
        let (catalog, now) = (Catalog::default(), "2026-11-18T02:00:00.7Z".parse().unwrap());
        assert_eq!(removed(&Plan::default(), &catalog, now), None);
        let log = vec!["000000010000000000000002".parse().unwrap()];
        let said = removed(&Plan { log, ..Plan::default() }, &catalog, now).unwrap();
        assert_eq!((said.backups, said.log, said.at), (0, 1, Some("2026-11-18T02:00:00Z".parse().unwrap())));
    }
}
