//! What a person's word overrides, and what it does not (E16).

use super::*;

const LOST: MemberId = MemberId(3);

/// A Lease of LOST's, by which one that is alone knows too little: a commit may be with OTHER and not here.
fn quorum(version: u64) -> LeaseView {
    let mut view = lease(version, LOST, 3);
    view.content.members = [ME, OTHER, LOST].into_iter().collect();
    view.content.sync = Sync::only(Voters::new(1, [ME, OTHER].into_iter().collect()));
    view
}

fn wish(version: u64, term: u64, whom: Whom) -> Event {
    Event::Forced(Force { version: LeaseVersion(version), term: Some(Term(term)), whom })
}

/// Something happens, and whatever is read because of it has no answer: what is begun is begun by [`attempt`].
fn tell(state: &mut State, event: Event, now: u64) {
    if let Some(read) = read_of(&step(state, event, Moment(now))) {
        step(state, Event::Lease { read: Some(read), sight: Fact::Unknown }, Moment(now));
    }
}

fn sees(state: &mut State, view: &LeaseView, now: u64) {
    tell(state, Event::Lease { read: None, sight: Fact::Known(view.clone()) }, now);
}

/// One attempt to lead, begun at `now`: the read finds `view`, the own log ends at 10, and OTHER says what it has, if anything.
fn attempt(state: &mut State, view: &LeaseView, now: u64, other: Option<u64>) -> Option<LeaseWrite> {
    let read = Some(read_of(&step(state, Event::Tick, Moment(now)))?);
    let asked = step(state, Event::Lease { read, sight: Fact::Known(view.clone()) }, Moment(now));
    step(state, cut_at(10), Moment(now));
    let answer = other.map(|lsn| step(state, answer_to(&asked, 3, lsn), Moment(now)));
    let decided = step(state, Event::Tick, Moment(now + 2_000));
    write_of(&answer.unwrap_or_default()).or(write_of(&decided)).map(|(_, write)| write)
}

#[test]
fn e16_one_that_is_alone_waits_for_ever_and_leads_by_a_persons_word() {
    let mut state = started();
    sees(&mut state, &quorum(5), 100);
    assert_eq!(attempt(&mut state, &quorum(5), 6_100, None), None, "OTHER may have what is not here");
    tell(&mut state, wish(6, 3, Whom::Best), 9_000);
    sees(&mut state, &quorum(6), 9_000);
    let write = attempt(&mut state, &quorum(6), 15_000, None).expect("a write");
    assert_eq!((write.base, write.content.term), (LeaseVersion(6), Some(Term(4))));
    assert_eq!(write.forced, Some([OTHER, LOST].into_iter().collect()), "whose word it did without");
}

#[test]
fn e16_every_wait_of_e9_stays() {
    let mut state = started();
    tell(&mut state, wish(6, 3, Whom::Me), 9_000);
    sees(&mut state, &quorum(6), 9_000);
    assert_eq!(read_of(&step(&mut state, Event::Tick, Moment(14_999))), None, "the version is younger than L");
    let holder = Ask { request: RequestId(1), term: Term(3), incarnation: Incarnation(9), promise: Span(4_000) };
    step(&mut state, Event::Received { from: LOST, message: Message::Ask(holder) }, Moment(14_999));
    assert_eq!(read_of(&step(&mut state, Event::Tick, Moment(18_998))), None, "it promised the holder");
    assert!(read_of(&step(&mut state, Event::Tick, Moment(18_999))).is_some());
}

#[test]
fn e16_a_word_counts_for_its_version_and_its_term_only() {
    for (version, term) in [(5, 3), (7, 3), (6, 2), (6, 4)] {
        let mut state = started();
        tell(&mut state, wish(version, term, Whom::Me), 100);
        sees(&mut state, &quorum(6), 100);
        assert_eq!(attempt(&mut state, &quorum(6), 6_100, None), None, "version {version}, term {term}");
    }
    let mut state = started();
    tell(&mut state, wish(6, 3, Whom::Another), 100);
    sees(&mut state, &quorum(6), 100);
    assert_eq!(attempt(&mut state, &quorum(6), 6_100, None), None, "it is for another");
}

#[test]
fn e16_the_one_that_was_named_leads_though_another_has_more_and_whoever_is_best_does_not() {
    for (whom, leads) in [(Whom::Me, true), (Whom::Best, false)] {
        let mut state = started();
        tell(&mut state, wish(6, 3, whom), 100);
        sees(&mut state, &quorum(6), 100);
        assert_eq!(attempt(&mut state, &quorum(6), 6_100, Some(11)).is_some(), leads, "{whom:?}");
    }
}

#[test]
fn e16_nothing_is_called_forced_that_an_election_allows() {
    let mut state = started();
    tell(&mut state, wish(6, 3, Whom::Me), 100);
    sees(&mut state, &quorum(6), 100);
    let write = attempt(&mut state, &quorum(6), 6_100, Some(9)).expect("a write");
    assert_eq!(write.forced, None, "both voters were heard, and this one has more");
}

#[test]
fn e16_a_leader_removes_a_wish_lest_it_be_followed_when_this_one_is_lost() {
    let mut state = leader_by_promises();
    assert_eq!(write_of(&step(&mut state, Event::Tick, Moment(8_400))), None, "nothing to write");
    tell(&mut state, wish(7, 3, Whom::Another), 8_500);
    let mut view = lease(7, ME, 3);
    view.content = state.lease().expect("a Lease").content.clone();
    let effects = step(&mut state, Event::Lease { read: None, sight: Fact::Known(view) }, Moment(8_500));
    assert_eq!(write_of(&effects).expect("a write").1.base, LeaseVersion(7));
}

/// A Lease that was made again, after one in which OTHER and LOST were members too.
fn made_again() -> (State, LeaseView) {
    let mut state = started();
    sees(&mut state, &quorum(5), 100);
    let mut view = quorum(9);
    view.uid = LeaseUid(8);
    view.content = LeaseContent { holder: None, term: None, sync: Sync::default(), ..view.content };
    (state, view)
}

#[test]
fn e16_of_a_lease_made_again_silence_counts_as_a_yes_once_it_was_unchanged_for_its_duration() {
    let (mut state, view) = made_again();
    tell(&mut state, wish(9, 3, Whom::Best), 1_000);
    sees(&mut state, &view, 1_000);
    let early = attempt(&mut state, &view, 2_000, None);
    assert_eq!(early, None);
    let write = attempt(&mut state, &view, 20_000, None).expect("a write");
    assert_eq!((write.uid, write.content.term), (LeaseUid(8), Some(Term(4))));
    assert_eq!(write.forced, Some([OTHER, LOST].into_iter().collect()));
    let (mut state, view) = made_again();
    sees(&mut state, &view, 1_000);
    assert_eq!(attempt(&mut state, &view, 20_000, None), None, "without a person's word everybody's is needed");
}

#[test]
fn e16_one_that_was_removed_leads_by_a_persons_word_once_the_lease_was_made_again_and_not_before() {
    let alone = |version, uid| {
        let mut view = lease(version, LOST, 3);
        view.uid = uid;
        view.content.members = [LOST].into_iter().collect();
        view
    };
    let mut state = started();
    let mut view = alone(6, lease(6, LOST, 3).uid);
    tell(&mut state, wish(6, 3, Whom::Me), 100);
    sees(&mut state, &view, 100);
    assert_eq!(
        attempt(&mut state, &view, 20_000, None),
        None,
        "LOST holds office without its promise, and without the Lease"
    );
    view = alone(9, LeaseUid(8));
    view.content = LeaseContent { holder: None, term: None, members: Members::default(), ..view.content };
    tell(&mut state, wish(9, 3, Whom::Me), 30_000);
    sees(&mut state, &view, 30_000);
    let write = attempt(&mut state, &view, 40_000, None).expect("a write");
    assert_eq!((write.content.term, write.forced), (Some(Term(4)), Some([LOST].into_iter().collect())));
}

#[test]
fn e16_who_refuses_is_not_silent_and_can_t_be_overridden() {
    let (mut state, view) = made_again();
    tell(&mut state, wish(9, 3, Whom::Me), 1_000);
    sees(&mut state, &view, 1_000);
    let read = read_of(&step(&mut state, Event::Tick, Moment(20_000)));
    step(&mut state, Event::Lease { read, sight: Fact::Known(view) }, Moment(20_000));
    step(&mut state, cut_at(10), Moment(20_000));
    step(&mut state, Event::Received { from: OTHER, message: Message::Refuse(Some(Term(3))) }, Moment(21_900));
    assert_eq!(
        write_of(&step(&mut state, Event::Tick, Moment(22_000))),
        None,
        "it may lead, or keep another in office"
    );
}
