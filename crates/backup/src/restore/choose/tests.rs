//! What is chosen is compared with what can be recovered, and every refusal says where there is a way.

use bellwether_core::wal::Lsn;
use rstest::rstest;

use super::*;
use crate::gaps::History;
use crate::restore::recovery::Including;
use crate::testing::commit;

const SIZE: u64 = 16 << 20;
const FIRST: &str = "20261118T020000Z";
const SECOND: &str = "20261119T020000Z";

/// Two backups a day apart, on timeline 1, in segments 2 and 20.
fn catalog(segments: &[(u32, std::ops::Range<u64>)]) -> Catalog {
    let backup = |id: &str, number: u64| {
        let commit = commit(id, 1, number * SIZE + 40, number * SIZE + 80);
        Backup { commit, verified: None, objects: vec![] }
    };
    let mut catalog = Catalog { backups: vec![backup(FIRST, 2), backup(SECOND, 20)], ..Catalog::default() };
    for (timeline, numbers) in segments {
        for number in numbers.clone() {
            catalog.wal.insert(WalFile::Segment(SegmentName::numbered(Timeline(*timeline), number, SIZE)), 1);
        }
    }
    catalog
}

fn fork(mut catalog: Catalog, timeline: u32, at: u64) -> Catalog {
    let timeline = Timeline(timeline);
    catalog.wal.insert(WalFile::History(timeline), 1);
    catalog.histories.insert(timeline, History { timeline, forks: vec![(Timeline(1), Lsn(at))] });
    catalog
}

fn wanted(target: Target) -> Wanted {
    let now = "2026-11-20T00:00:00Z".parse().unwrap();
    Wanted { target, way: Way::Latest, at_gap: AtGap::Refuse, backup: None, now }
}

fn time(text: &str) -> Target {
    Target::Time(text.parse().unwrap(), Including::Target)
}

fn lsn(at: u64) -> Target {
    Target::Lsn(Lsn(at), Including::Target)
}

fn chosen(catalog: &Catalog, wanted: &Wanted) -> Result<(String, u32), String> {
    let chosen = choose(catalog, wanted).map_err(|error| error.to_string())?;
    Ok((chosen.backup.commit.id.to_string(), chosen.window.timeline.0))
}

#[rstest]
#[case::as_far_as_it_goes(Target::Latest, SECOND)]
#[case::after_the_second(time("2026-11-19T02:00:00Z"), SECOND)]
#[case::right_before_the_second_ended(time("2026-11-19T01:59:59Z"), FIRST)]
#[case::where_the_second_ended(lsn(20 * SIZE + 80), SECOND)]
#[case::right_before_that(lsn(20 * SIZE + 79), FIRST)]
#[case::in_the_last_segment(lsn(25 * SIZE - 1), SECOND)]
#[case::nobody_knows_where(Target::Name("before-drop".to_owned()), SECOND)]
fn it_begins_with_the_newest_backup_that_leads_there(#[case] target: Target, #[case] expected: &str) {
    assert_eq!(chosen(&catalog(&[(1, 2..25)]), &wanted(target)), Ok((expected.to_owned(), 1)));
}

#[rstest]
#[case::before_the_oldest(time("2026-11-18T01:59:59Z"), "it ended at 2026-11-18T02:00:00Z, after that")]
#[case::in_the_future(time("2026-11-20T00:00:01Z"), "is in the future")]
#[case::before_the_oldest_ended(lsn(2 * SIZE + 79), "it ended at 0/2000050, after that")]
#[case::behind_the_log(lsn(25 * SIZE), "its log ends at 0/19000000")]
fn what_can_not_be_reached_is_refused_with_what_can(#[case] target: Target, #[case] why: &str) {
    let error = chosen(&catalog(&[(1, 2..25)]), &wanted(target)).unwrap_err();
    assert!(error.contains(why) && error.contains("nothing was touched"), "{error}");
    let window =
        "from 20261118T020000Z, on timeline 1: 2026-11-18T02:00:00Z (0/2000050) to the end of its log (0/19000000)";
    assert!(error.contains(window), "{error}");
}

#[test]
fn a_gap_is_not_passed_over_in_silence() {
    let catalog = catalog(&[(1, 2..22), (1, 23..25)]);
    let error = chosen(&catalog, &wanted(Target::Latest)).unwrap_err();
    assert!(error.contains("000000010000000000000016 is missing and the log goes on behind it"), "{error}");
    let up_to = Wanted { at_gap: AtGap::Stop, ..wanted(Target::Latest) };
    assert_eq!(chosen(&catalog, &up_to), Ok((SECOND.to_owned(), 1)));
    let behind = chosen(&catalog, &wanted(lsn(23 * SIZE))).unwrap_err();
    assert!(
        behind.contains("000000010000000000000016 is missing, and the log before it ends at 0/16000000"),
        "{behind}"
    );
}

#[test]
fn a_backup_that_lacks_its_own_log_is_none_and_an_older_one_may_do() {
    let catalog = catalog(&[(1, 2..20)]);
    assert_eq!(chosen(&catalog, &wanted(Target::Latest)), Ok((FIRST.to_owned(), 1)));
    let of_it = Wanted { backup: Some(SECOND.parse().unwrap()), ..wanted(Target::Latest) };
    let error = chosen(&catalog, &of_it).unwrap_err();
    assert!(error.contains("not from 20261119T020000Z: 000000010000000000000014 is missing"), "{error}");
}

#[test]
fn the_newest_timeline_is_the_one_that_postgresql_would_find() {
    let catalog = fork(catalog(&[(1, 2..25), (2, 22..30)]), 2, 22 * SIZE + 5);
    assert_eq!(chosen(&catalog, &wanted(Target::Latest)), Ok((SECOND.to_owned(), 2)));
    let along = |way| Wanted { way, ..wanted(Target::Latest) };
    assert_eq!(chosen(&catalog, &along(Way::Current)), Ok((SECOND.to_owned(), 1)));
    assert_eq!(chosen(&catalog, &along(Way::Timeline(Timeline(1)))), Ok((SECOND.to_owned(), 1)));
    let error = chosen(&catalog, &along(Way::Timeline(Timeline(3)))).unwrap_err();
    assert!(error.contains("there is no history of timeline 3"), "{error}");
    // Without the second there is no third for whoever counts.
    let lonely = fork(catalog, 4, 22 * SIZE + 5);
    assert_eq!(chosen(&lonely, &wanted(Target::Latest)), Ok((SECOND.to_owned(), 2)));
}

#[test]
fn a_timeline_that_left_before_a_backup_ended_is_reached_from_an_older_one() {
    let catalog = fork(catalog(&[(1, 2..25), (2, 10..30)]), 2, 10 * SIZE + 5);
    assert_eq!(chosen(&catalog, &wanted(Target::Latest)), Ok((FIRST.to_owned(), 2)));
}

#[test]
fn without_a_backup_that_is_said() {
    let none = chosen(&Catalog::default(), &wanted(Target::Latest)).unwrap_err();
    assert!(none.contains("there is no whole backup here") && none.ends_with("nothing can be reached"), "{none}");
    let unknown = Wanted { backup: Some("20261101T000000Z".parse().unwrap()), ..wanted(Target::Latest) };
    let error = chosen(&catalog(&[(1, 2..25)]), &unknown).unwrap_err();
    assert!(error.contains("there is no backup 20261101T000000Z"), "{error}");
}

#[rstest]
#[case::from_the_oldest(catalog(&[(1, 2..25)]), Some("2026-11-18T02:00:00Z"))]
#[case::from_the_second_when_the_first_does_not_lead_to_it(catalog(&[(1, 2..10), (1, 11..25)]), Some("2026-11-19T02:00:00Z"))]
#[case::what_is_on_its_way_is_no_gap(catalog(&[(1, 2..25), (1, 26..27)]), Some("2026-11-18T02:00:00Z"))]
#[case::one_that_is_none_does_not_count(catalog(&[(1, 2..20)]), Some("2026-11-18T02:00:00Z"))]
#[case::of_nothing(Catalog::default(), None)]
#[case::without_the_log(catalog(&[]), None)]
#[case::over_a_fork(fork(catalog(&[(1, 2..23), (2, 22..30)]), 2, 22 * SIZE + 9), Some("2026-11-18T02:00:00Z"))]
#[case::the_second_was_taken_where_nobody_goes(fork(catalog(&[(1, 2..25), (2, 10..30)]), 2, 10 * SIZE + 9), Some("2026-11-18T02:00:00Z"))]
fn every_moment_since_can_be_reached(#[case] catalog: Catalog, #[case] since: Option<&str>) {
    assert_eq!(super::since(&catalog, |_| true).map(|at| at.to_string()).as_deref(), since);
}

#[test]
fn what_is_about_to_go_does_not_count() {
    let catalog = catalog(&[(1, 2..25)]);
    let found = since(&catalog, |id| id.to_string() == SECOND);
    assert_eq!(found, Some("2026-11-19T02:00:00Z".parse().unwrap()));
}
