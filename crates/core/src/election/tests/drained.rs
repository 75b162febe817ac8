//! A primary that is drained before it is reaped (E10).

use super::*;

#[test]
fn e10_standbys_of_a_drained_primary_are_asked_while_it_is_reaped_and_the_consent_waits_for_that() {
    let mut state = leader();
    step(&mut state, Event::Switchover { target: None }, Moment(400));
    let position = Some(Position { term: Term(3), timeline: Timeline(1), lsn: Lsn(10) });
    let polled = step(&mut state, Event::PostgresDrained { position }, Moment(450));
    assert!(!consents(&step(&mut state, answer_to(&polled, 3, 10), Moment(460))), "a process of its may be there");
    assert!(!consents(&step(&mut state, Event::Tick, Moment(480))));
    // Gone, and where its log ends was told before.
    assert!(consents(&step(&mut state, Event::PostgresStopped { position: None }, Moment(500))));
    assert_eq!(state.tenure(Moment(500)), None);
}

#[test]
fn one_that_was_drained_and_can_not_be_reaped_gives_no_consent() {
    let mut state = leader();
    step(&mut state, Event::Switchover { target: None }, Moment(400));
    let polled = step(&mut state, Event::PostgresDrained { position: None }, Moment(450));
    step(&mut state, answer_to(&polled, 3, 10), Moment(460));
    let within = Settings::default().shut_down_within.0;
    let late = step(&mut state, Event::Tick, Moment(400 + within));
    assert!(!consents(&late) && state.tenure(Moment(400 + within)).is_none());
    assert!(!consents(&step(&mut state, stopped_at(10), Moment(410 + within))));
}

#[test]
fn a_crashed_primary_is_not_drained() {
    let mut state = leader();
    step(&mut state, Event::PostgresCrashed, Moment(400));
    assert_eq!(step(&mut state, Event::PostgresDrained { position: None }, Moment(450)), []);
}
