//! Who goes first where volumes are full.

use super::*;
use crate::instance::space::Space;

fn leads(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Lead { .. }))
}

/// A leader whose PostgreSQL crashed, and the answer of the other one, whose log is as long and whose volume has this much room.
fn after_a_crash(space: Space) -> Vec<Effect> {
    after(Event::PostgresCrashed, space)
}

fn after(event: Event, space: Space) -> Vec<Effect> {
    let mut state = leader();
    step(&mut state, event, Moment(400));
    let polled = step(&mut state, stopped_at(10), Moment(500));
    step(&mut state, answer_with(&polled, 3, 10, space), Moment(600))
}

#[test]
fn a_crash_is_handed_over_to_one_with_room_and_to_nobody_who_is_full() {
    assert!(consents(&after_a_crash(Space::Ample)));
    assert!(consents(&after_a_crash(Space::Low)));
    let effects = after_a_crash(Space::Full);
    assert!(!consents(&effects) && leads(&effects), "it starts again in place: the other could not write either");
}

#[test]
fn a_switchover_is_not_made_to_one_who_was_full_when_it_was_asked() {
    let switchover = || Event::Switchover { target: Some(OTHER) };
    assert!(consents(&after(switchover(), Space::Low)));
    let effects = after(switchover(), Space::Full);
    assert!(!consents(&effects) && leads(&effects), "its leader knew of an earlier report, and goes on");
}

#[test]
fn a_fenced_leader_hands_over_to_one_who_is_full_rather_than_to_nobody() {
    assert!(consents(&after(Event::Fenced, Space::Ample)));
    assert!(consents(&after(Event::Fenced, Space::Full)));
}

/// What a candidate with this much room does about another with an equal log, a higher identity, and that much room.
fn among_equals(own: Space, other: Space) -> Option<(RequestId, LeaseWrite)> {
    let mut state = started();
    step(&mut state, seen(5, OTHER, 3), Moment(100));
    step(&mut state, Event::Space(own), Moment(100));
    let read = read_of(&step(&mut state, Event::Tick, Moment(6_200)));
    let sight = Fact::Known(lease(5, OTHER, 3));
    let asked = step(&mut state, Event::Lease { read, sight }, Moment(6_200));
    step(&mut state, cut_at(10), Moment(6_200));
    write_of(&step(&mut state, answer_with(&asked, 3, 10, other), Moment(6_200)))
}

#[test]
fn among_equals_the_one_with_more_room_goes_first() {
    assert_eq!(among_equals(Space::Ample, Space::Ample), None, "the higher identity has the first move");
    assert!(among_equals(Space::Ample, Space::Full).is_some());
    assert!(among_equals(Space::Low, Space::Full).is_some());
    assert_eq!(among_equals(Space::Full, Space::Low), None);
}

#[test]
fn a_full_one_with_the_longer_log_leads_all_the_same() {
    let mut state = started();
    step(&mut state, seen(5, OTHER, 3), Moment(100));
    step(&mut state, Event::Space(Space::Full), Moment(100));
    let read = read_of(&step(&mut state, Event::Tick, Moment(6_200)));
    let sight = Fact::Known(lease(5, OTHER, 3));
    let asked = step(&mut state, Event::Lease { read, sight }, Moment(6_200));
    step(&mut state, cut_at(11), Moment(6_200));
    let written = write_of(&step(&mut state, answer_with(&asked, 3, 10, Space::Ample), Moment(6_200)));
    assert!(written.is_some(), "what was acknowledged may be on its volume only");
}
