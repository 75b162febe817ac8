use bellwether_core::election::LeaseUid;
use proptest::prelude::*;
use rstest::rstest;

use super::*;

const FIRST: &str = "11111111-2222-3333-4444-555555555555";
const SECOND: &str = "99999999-2222-3333-4444-555555555555";

fn new() -> (tempfile::TempDir, VolumeMemory) {
    let dir = tempfile::tempdir().unwrap();
    let memory = VolumeMemory::open(dir.path(), FIRST, None).unwrap();
    (dir, memory)
}

fn entry(term: u64, above: u32) -> WrittenBy {
    WrittenBy { term: Term(term), above: Timeline(above) }
}

#[test]
fn the_identity_is_the_first_pods_and_stays() {
    let (dir, memory) = new();
    assert_eq!(memory.identity().to_string(), FIRST);
    assert!(memory.usable());
    assert_eq!(VolumeMemory::open(dir.path(), SECOND, None).unwrap().identity().to_string(), FIRST);
}

/// A snapshot, a clone or a backup of a volume is none of the instance that it was taken of.
#[test]
fn the_identity_stays_with_the_claim_and_the_log_with_the_volume() {
    let dir = tempfile::tempdir().unwrap();
    let open = |pod: &str, claim: Option<&str>| VolumeMemory::open(dir.path(), pod, claim).unwrap();
    // Made before the operator told the claim, which it does from then on.
    open(FIRST, None).will_receive(Term(3), Timeline(0)).unwrap();
    assert_eq!(open(SECOND, Some("claim-1")).identity().to_string(), FIRST);
    for claim in [Some("claim-1"), None] {
        assert_eq!(open(SECOND, claim).identity().to_string(), FIRST);
    }
    let copied = open(SECOND, Some("claim-2"));
    assert_eq!((copied.identity().to_string().as_str(), copied.usable()), (SECOND, true));
    assert_eq!(copied.term_of(Timeline(1)), Some(Term(3)));
    assert_eq!(open(FIRST, Some("claim-2")).identity().to_string(), SECOND, "and it is durable");
}

#[test]
fn a_volume_without_a_record_needs_a_proper_uid() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(VolumeMemory::open(dir.path(), "orders-1", None), Err(MemoryError::PodUid(_))));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn everything_is_there_again_after_a_restart() {
    let (dir, mut memory) = new();
    let seen = Memory {
        term: Some(Term(u64::MAX)),
        uid: Some(LeaseUid(u128::MAX - 7)),
        lease_term: Some(Term(3)),
        members: [MemberId(1), MemberId(u128::MAX)].into_iter().collect(),
        edition: Edition(8),
    };
    memory.remember(&seen).unwrap();
    memory.restart_log(Term(4)).unwrap();
    memory.will_receive(Term(5), Timeline(2)).unwrap();
    let again = VolumeMemory::open(dir.path(), SECOND, None).unwrap();
    assert_eq!(again.memory(), &seen);
    assert_eq!(again.log(), [entry(4, 0), entry(5, 2)]);
    assert!(!again.usable());
}

#[test]
fn a_copy_is_no_log_from_before_it_is_replaced_until_it_is_whole() {
    let (dir, mut memory) = new();
    memory.will_receive(Term(1), Timeline(0)).unwrap();
    memory.will_receive(Term(2), Timeline(1)).unwrap();
    memory.restart_log(Term(7)).unwrap();
    assert!(!VolumeMemory::open(dir.path(), FIRST, None).unwrap().usable());
    memory.copy_complete().unwrap();
    let again = VolumeMemory::open(dir.path(), FIRST, None).unwrap();
    assert!(again.usable());
    assert_eq!(again.term_of(Timeline(1)), Some(Term(7)));
}

#[test]
fn a_leader_that_is_followed_but_has_sent_nothing_does_not_raise_the_rank() {
    let (_dir, mut memory) = new();
    memory.will_receive(Term(1), Timeline(0)).unwrap();
    memory.will_receive(Term(5), Timeline(1)).unwrap();
    assert_eq!(memory.term_of(Timeline(1)), Some(Term(1)));
    assert_eq!(memory.term_of(Timeline(2)), Some(Term(5)));
}

#[test]
fn the_leaders_list_says_who_wrote_what_was_missed() {
    let (_dir, mut memory) = new();
    memory.will_receive(Term(1), Timeline(0)).unwrap();
    memory.adopt_log(&[entry(1, 0), entry(4, 1), entry(6, 2)]).unwrap();
    assert_eq!([1, 2, 3].map(|timeline| memory.term_of(Timeline(timeline))), [1, 4, 6].map(|term| Some(Term(term))));
}

#[test]
fn a_leaders_list_out_of_order_is_put_in_order() {
    let (dir, mut memory) = new();
    memory.adopt_log(&[entry(1, 0), entry(9, 4), entry(2, 2), entry(3, 2)]).unwrap();
    assert_eq!(memory.log(), [entry(1, 0), entry(3, 2)]);
    VolumeMemory::open(dir.path(), FIRST, None).unwrap();
}

#[test]
fn without_an_entry_there_is_no_term() {
    let (_dir, mut memory) = new();
    assert_eq!(memory.term_of(Timeline(1)), None);
    memory.will_receive(Term(3), Timeline(4)).unwrap();
    assert_eq!(memory.term_of(Timeline(4)), None);
}

#[test]
fn the_list_stays_short_and_keeps_the_newest() {
    let (_dir, mut memory) = new();
    for timeline in 0..100 {
        memory.will_receive(Term(u64::from(timeline) + 1), Timeline(timeline)).unwrap();
    }
    assert!(memory.log().len() < 100);
    assert_eq!(memory.term_of(Timeline(100)), Some(Term(100)));
    assert_eq!(memory.term_of(Timeline(1)), None, "forgotten, and not another's");
}

const GOOD: &str = r#"{"format":1,"identity":"11111111-2222-3333-4444-555555555555",
    "memory":{"term":null,"uid":null,"leaseTerm":null,"members":[]},"log":[],"copy":"whole"}"#;

#[rstest]
#[case::empty(String::new())]
#[case::half(GOOD[..60].to_owned())]
#[case::another_format(GOOD.replace("\"format\":1", "\"format\":2"))]
#[case::no_format(GOOD.replace("\"format\":1,", ""))]
#[case::no_identity(GOOD.replace("11111111", ""))]
#[case::an_unknown_field(GOOD.replace("\"copy\"", "\"claim\":1,\"copy\""))]
#[case::an_unknown_field_inside(GOOD.replace("\"term\":null", "\"term\":null,\"x\":1"))]
#[case::a_missing_field(GOOD.replace(",\"copy\":\"whole\"", ""))]
#[case::out_of_order(GOOD.replace("\"log\":[]", r#""log":[{"term":1,"above":1},{"term":2,"above":1}]"#))]
#[case::negative(GOOD.replace("\"log\":[]", r#""log":[{"term":-1,"above":1}]"#))]
fn a_file_that_is_not_understood_is_named_and_left_alone(#[case] text: String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    std::fs::write(&path, GOOD).unwrap();
    VolumeMemory::open(dir.path(), FIRST, None).unwrap();
    std::fs::write(&path, &text).unwrap();
    let error = VolumeMemory::open(dir.path(), FIRST, None).unwrap_err().to_string();
    assert!(error.contains(&path.display().to_string()), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn what_could_not_be_written_is_said_and_written_with_the_next() {
    let (dir, mut memory) = new();
    let in_the_way = dir.path().join(UNFINISHED);
    std::fs::create_dir(&in_the_way).unwrap();
    assert!(memory.will_receive(Term(1), Timeline(0)).is_err());
    std::fs::remove_dir(&in_the_way).unwrap();
    memory.will_receive(Term(1), Timeline(0)).unwrap();
    assert_eq!(VolumeMemory::open(dir.path(), FIRST, None).unwrap().log(), [entry(1, 0)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Each announcement speaks for every timeline above, and for no other.
    #[test]
    fn the_term_of_a_timeline_is_the_last_announced_for_it(
        announced in prop::collection::vec((1u64..1000, 0u32..20), 0..24),
    ) {
        let (dir, mut memory) = new();
        let mut expected = [None; 24];
        for (term, above) in announced {
            memory.will_receive(Term(term), Timeline(above)).unwrap();
            expected[above as usize + 1..].fill(Some(Term(term)));
        }
        let again = VolumeMemory::open(dir.path(), SECOND, None).unwrap();
        for (timeline, term) in expected.into_iter().enumerate() {
            prop_assert_eq!(memory.term_of(Timeline(timeline as u32)), term);
            prop_assert_eq!(again.term_of(Timeline(timeline as u32)), term);
        }
    }
}
