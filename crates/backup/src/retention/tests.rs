//! The rules, one by one; and for random archives, that a plan removes nothing that they protect.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;

use bellwether_core::wal::{Lsn, Timeline};
use proptest::prelude::*;

use super::*;
use crate::catalog::{Incomplete, Unreadable};
use crate::gaps::{self, History};
use crate::layout::SegmentName;
use crate::testing;

const SIZE: u64 = 16 << 20;

fn now() -> Timestamp {
    "2026-11-18T12:00:00Z".parse().unwrap()
}

fn days(days: i64) -> SignedDuration {
    SignedDuration::from_hours(24 * days)
}

/// A backup that was begun so many days ago, on timeline 1, in the segment of this number.
fn backup(days_ago: i64, segment: u64) -> Backup {
    on_timeline(1, days_ago * 24, segment)
}

fn on_timeline(timeline: u32, hours_ago: i64, segment: u64) -> Backup {
    let id = BackupId::at(now() - SignedDuration::from_hours(hours_ago));
    let commit = testing::commit(id.as_str(), timeline, segment * SIZE + 40, segment * SIZE + 4000);
    let objects = ["backup_manifest.zst", "commit.json", "pack-00000.tar.zst", "verified.json"];
    Backup { objects: objects.iter().map(|name| id.key(name)).collect(), commit, verified: None }
}

fn good(backup: Backup) -> Backup {
    Backup { verified: Some(testing::verified(&backup.commit)), ..backup }
}

fn catalog(mut backups: Vec<Backup>, segments: &[(u32, std::ops::Range<u64>)]) -> Catalog {
    backups.sort_by(|a, b| a.commit.id.cmp(&b.commit.id));
    let segments = segments.iter().flat_map(|(timeline, numbers)| {
        numbers.clone().map(|number| WalFile::Segment(SegmentName::numbered(Timeline(*timeline), number, SIZE)))
    });
    Catalog { backups, wal: segments.map(|file| (file, 1000)).collect(), ..Catalog::default() }
}

fn count(count: usize) -> Policy {
    Policy::Count(NonZeroUsize::new(count).unwrap())
}

/// How many days ago those were begun that go.
fn gone(catalog: &Catalog, plan: &Plan) -> Vec<i64> {
    let age = |removal: &Removal| now().duration_since(testing::begun(&removal.id)).as_hours() / 24;
    let ages = plan.backups.iter().map(age).collect();
    assert_eq!(plan.kept.len() + plan.backups.len(), catalog.backups.len());
    ages
}

#[test]
fn within_the_window_all_is_kept_and_one_before_it_for_its_first_moments() {
    let backups: Vec<_> = (0..12).map(|age| good(backup(age, 100 - age as u64))).collect();
    let catalog = catalog(backups, &[(1, 80..101)]);
    let plan = plan(&catalog, Policy::Window(days(7)), now());
    assert_eq!(gone(&catalog, &plan), [11, 10, 9, 8]);
    assert_eq!(plan.kept[&BackupId::at(now() - days(7))], Keep::BeforeWindow);
    let first = plan.log.last().unwrap().to_string();
    assert_eq!((plan.log.len(), first.as_str()), (13, "00000001000000000000005C"), "what day 7 begins with stays");
    assert_eq!(plan.alarms, []);
}

#[test]
fn a_count_keeps_the_newest_and_both_keep_what_either_does() {
    let backups: Vec<_> = (0..9).map(|age| good(backup(age, 100 - age as u64))).collect();
    let catalog = catalog(backups, &[]);
    assert_eq!(gone(&catalog, &plan(&catalog, count(6), now())), [8, 7, 6]);
    let both = |window, count| plan(&catalog, Policy::Both(days(window), NonZeroUsize::new(count).unwrap()), now());
    assert_eq!(gone(&catalog, &both(2, 6)), [8, 7, 6]);
    assert_eq!(gone(&catalog, &both(6, 2)), [8, 7]);
}

#[test]
fn the_newest_verified_backup_stays_however_old_and_so_does_its_log() {
    let mut backups: Vec<_> = (0..10).map(|age| backup(age, 100 - age as u64)).collect();
    backups.push(good(backup(300, 5)));
    backups.push(good(backup(301, 3)));
    let catalog = catalog(backups, &[(1, 2..101)]);
    let plan = plan(&catalog, count(1), now());
    assert_eq!(gone(&catalog, &plan), [301, 9, 8, 7]);
    assert_eq!(plan.kept[&BackupId::at(now() - days(300))], Keep::NewestVerified);
    assert_eq!(plan.log.len(), 3, "segments 2 to 4");
    let newest = BackupId::at(now() - days(300));
    assert_eq!(plan.alarms, [Alarm::VerificationBehind { newest, newer: 10 }]);
}

#[test]
fn where_nothing_was_verified_the_newest_are_kept_within_bounds_and_somebody_is_told() {
    let catalog = catalog((20..40).map(|age| backup(age, 100 - age as u64)).collect(), &[(1, 0..101)]);
    let plan = plan(&catalog, Policy::Window(days(7)), now());
    assert_eq!(plan.kept.keys().map(BackupId::as_str).next(), Some("20261023T120000Z"), "of 26 days ago");
    assert_eq!(plan.kept.len(), UNVERIFIED);
    assert_eq!(plan.alarms, [Alarm::NothingVerified { completed: 20 }]);
    assert!(plan.alarms[0].to_string().contains("nobody knows"), "{}", plan.alarms[0]);
}

#[test]
fn a_window_begins_with_a_verified_backup_too() {
    let mut backups: Vec<_> = (0..3).map(|age| good(backup(age, 100 - age as u64))).collect();
    backups.extend([backup(8, 92), backup(9, 91), good(backup(12, 88)), good(backup(13, 87))]);
    let catalog = catalog(backups, &[]);
    assert_eq!(gone(&catalog, &plan(&catalog, Policy::Window(days(7)), now())), [13, 9]);
}

#[test]
fn histories_and_segments_stay_while_an_older_timeline_is_kept() {
    let backups = vec![good(on_timeline(1, 48, 10)), good(on_timeline(3, 24, 9)), good(on_timeline(3, 1, 30))];
    let mut catalog = catalog(backups, &[(1, 5..12), (2, 11..14), (3, 8..40)]);
    for name in [
        "00000002.history",
        "00000003.history",
        "000000010000000000000009.partial",
        "000000010000000000000004.00000028.backup",
    ] {
        catalog.wal.insert(name.parse().unwrap(), 100);
    }
    let names = |plan: Plan| plan.log.iter().map(WalFile::to_string).collect::<Vec<_>>();
    let all = names(plan(&catalog, count(3), now()));
    let before_nine: Vec<_> = (5..9).map(|number| format!("0000000100000000{number:08X}")).collect();
    let mut expected = before_nine.clone();
    expected.extend(["000000030000000000000008", "000000010000000000000004.00000028.backup"].map(str::to_owned));
    assert_eq!(all, expected, "the third begins before the first, on another timeline");
    let last = names(plan(&catalog, count(1), now()));
    assert!(
        last.contains(&"00000002.history".to_owned()) && !last.contains(&"00000003.history".to_owned()),
        "{last:?}"
    );
    assert!(last.contains(&"000000010000000000000009.partial".to_owned()), "{last:?}");
}

#[test]
fn nothing_of_the_log_goes_while_something_needs_who_knows_what() {
    let whole = catalog(vec![good(backup(3, 50)), good(backup(1, 90))], &[(1, 0..100)]);
    assert_eq!(plan(&whole, count(1), now()).log.len(), 90);
    let mut unknown = whole.clone();
    let problem = "its format is 2".to_owned();
    unknown.unreadable.push(Unreadable { key: "base/20261101T020000Z/commit.json".to_owned(), problem });
    let seen = plan(&unknown, count(1), now());
    assert_eq!((seen.log.len(), seen.backups.len(), seen.alarms.len()), (0, 1, 1));
    let mut running = whole.clone();
    let id = BackupId::at(now() - days(2));
    running.incomplete.push(Incomplete {
        id,
        objects: vec![],
        bytes: 0,
        newest: now() - SignedDuration::from_hours(1),
    });
    assert_eq!(plan(&running, count(1), now()).log.len(), 0, "it began before the one that is kept");
    let mut resized = whole;
    resized.backups[0].commit.segment_size = 64 << 20;
    assert_eq!(plan(&resized, count(2), now()).log.len(), 0);
    assert_eq!(
        plan(&catalog(vec![], &[(1, 0..100)]), count(1), now()).log.len(),
        0,
        "the first backup is still to come"
    );
}

#[test]
fn what_was_broken_off_goes_after_a_day_and_not_while_it_may_be_under_way() {
    let mut catalog = catalog(vec![good(backup(1, 90))], &[]);
    for (hours, name) in [(25, "a"), (23, "b")] {
        let id = BackupId::at(now() - SignedDuration::from_hours(hours + 5));
        let newest = now() - SignedDuration::from_hours(hours);
        catalog.incomplete.push(Incomplete { objects: vec![id.key(name)], id, bytes: 1, newest });
    }
    let plan = plan(&catalog, count(1), now());
    assert_eq!(plan.incomplete.len(), 1);
    assert!(plan.incomplete[0].objects[0].ends_with("/a"));
}

#[test]
fn the_commit_goes_first_and_the_log_last() {
    let catalog = catalog(vec![good(backup(3, 50)), good(backup(1, 90))], &[(1, 49..100)]);
    let plan = plan(&catalog, count(1), now());
    assert!(plan.backups[0].objects[0].ends_with("/commit.json"), "{:?}", plan.backups[0]);
    let [commits, objects, log] = plan.stages();
    assert_eq!((commits.len(), objects.len(), log.len()), (1, 3, 41));
    assert!(commits[0].ends_with("/commit.json") && log[0].starts_with("wal/"));
}

/// Archives with failovers: each timeline forks off one before it, and backups are taken on any of them as time goes on.
fn archives() -> impl Strategy<Value = Catalog> {
    let timelines = prop::collection::vec((any::<prop::sample::Index>(), 0u64..60), 0..4);
    let backups = prop::collection::btree_map(
        1i64..1000,
        (any::<prop::sample::Index>(), 0u64..60, 0u64..3, any::<bool>()),
        0..30,
    );
    let lost = prop::collection::btree_set(0u64..80, 0..3);
    let runs = prop::collection::btree_map(1001i64..2000, 0i64..72, 0..3);
    (timelines, backups, lost, runs, prop::bool::weighted(0.1), prop::bool::weighted(0.8)).prop_map(
        |(timelines, backups, lost, runs, unknown, verifies)| {
            let mut histories: BTreeMap<Timeline, History> = BTreeMap::new();
            let mut begins = vec![0];
            for (at, (parent, by)) in timelines.into_iter().enumerate() {
                let (timeline, parent) = (Timeline(at as u32 + 2), parent.index(at + 1));
                let fork = begins[parent] + by * SIZE + 100;
                let of = Timeline(parent as u32 + 1);
                let mut forks = histories.get(&of).map_or(vec![], |history| history.forks.clone());
                forks.push((of, Lsn(fork)));
                histories.insert(timeline, History { timeline, forks });
                begins.push(fork);
            }
            let segments: Vec<_> = begins
                .iter()
                .enumerate()
                .flat_map(|(at, begin)| {
                    (begin / SIZE..80)
                        .filter(|number| !lost.contains(number))
                        .map(move |number| (at as u32 + 1, number..number + 1))
                })
                .collect();
            let backups = backups.into_iter().map(|(hours, (on, segment, length, verified))| {
                let on = on.index(begins.len());
                let mut backup = on_timeline(on as u32 + 1, hours, segment.max(begins[on] / SIZE + 1));
                backup.commit.stop = Lsn(backup.commit.stop.0 + length * SIZE);
                if verified && verifies { good(backup) } else { backup }
            });
            let mut catalog = catalog(backups.collect(), &segments);
            for timeline in histories.keys() {
                catalog.wal.insert(WalFile::History(*timeline), 100);
            }
            catalog.histories = histories;
            for (begun, newest) in runs {
                let id = BackupId::at(now() - SignedDuration::from_hours(begun));
                let newest = now() - SignedDuration::from_hours(newest);
                catalog.incomplete.push(Incomplete {
                    objects: vec![id.key("pack-00000.tar.zst")],
                    id,
                    bytes: 1,
                    newest,
                });
            }
            if unknown {
                let key = "base/20200101T000000Z/commit.json".to_owned();
                catalog.unreadable.push(Unreadable { key, problem: "newer".to_owned() });
            }
            catalog
        },
    )
}

fn policies() -> impl Strategy<Value = Policy> {
    let (window, number) = (1i64..1200, 1usize..12);
    (window, number, 0..3).prop_map(|(window, number, kind)| {
        let (window, number) = (SignedDuration::from_hours(window), NonZeroUsize::new(number).unwrap());
        match kind {
            0 => Policy::Window(window),
            1 => Policy::Count(number),
            _ => Policy::Both(window, number),
        }
    })
}

/// The archive without what has gone.
fn without(catalog: &Catalog, plan: &Plan) -> Catalog {
    let gone: BTreeSet<_> = plan.stages().concat().into_iter().collect();
    let mut left = catalog.clone();
    left.backups.retain(|backup| !backup.objects.iter().any(|key| gone.contains(key)));
    left.incomplete.retain(|run| !run.objects.iter().any(|key| gone.contains(key)));
    left.wal.retain(|file, _| !gone.contains(&file.key()));
    left.histories.retain(|timeline, _| left.wal.contains_key(&WalFile::History(*timeline)));
    left
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn nothing_goes_that_the_rules_protect(before in archives(), policy in policies()) {
        let plan = plan(&before, policy, now());
        let after = without(&before, &plan);
        let finished = |backups: &[Backup]| backups.iter().map(|backup| backup.commit.finished).collect::<Vec<_>>();

        prop_assert_eq!(before.newest_verified(), after.newest_verified());
        prop_assert_eq!(before.backups.last(), after.backups.last());
        prop_assert!(after.backups.len() >= policy.count().min(before.backups.len()));

        // Every moment of the window is reached from what is left, and from a verified one if it was before.
        if let Some(window) = policy.window() {
            let start = now() - window;
            for moment in finished(&before.backups).into_iter().chain([start, now()]).filter(|moment| *moment >= start) {
                let reached = |catalog: &Catalog, good: bool| {
                    catalog.backups.iter().any(|backup| backup.commit.finished <= moment && (backup.verified.is_some() || !good))
                };
                for good in [false, true] {
                    prop_assert!(!reached(&before, good) || reached(&after, good), "{moment}, verified {good}");
                }
            }
            let within = |backups: &[Backup]| finished(backups).into_iter().filter(|at| *at > start).collect::<Vec<_>>();
            prop_assert_eq!(within(&before.backups), within(&after.backups));
        }

        // Whatever could be reached from a backup that is left, on whatever timeline, can still be.
        for backup in &after.backups {
            let reach = |catalog: &Catalog| gaps::windows(&backup.commit, &catalog.segments(), &catalog.histories);
            prop_assert_eq!(reach(&before), reach(&after));
        }

        // What is kept beyond the policy is bounded, and where nothing was verified somebody is told.
        let by_policy = plan.kept.values().filter(|why| matches!(why, Keep::InWindow | Keep::Count)).count();
        prop_assert!(plan.kept.len() <= by_policy + UNVERIFIED + 3);
        let nothing = before.newest_verified().is_none() && !before.backups.is_empty();
        prop_assert_eq!(nothing, plan.alarms.iter().any(|alarm| matches!(alarm, Alarm::NothingVerified { .. })));
        if nothing {
            prop_assert!(after.backups.len() >= UNVERIFIED.min(before.backups.len()));
        }

        // Done is done.
        let again = super::plan(&after, policy, now());
        prop_assert!(again.is_empty(), "{again:?}");
        prop_assert_eq!(again.kept, plan.kept);
    }
}
