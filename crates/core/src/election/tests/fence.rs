//! What a fenced instance does, and what it never does.

use super::*;

fn leads(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Lead { .. }))
}

/// A member that has seen the Lease, and would campaign once it was unchanged for L.
fn fenced_member() -> State {
    let mut state = started();
    step(&mut state, Event::Fenced, Moment(50));
    step(&mut state, seen(5, OTHER, 3), Moment(100));
    state
}

#[test]
fn a_fenced_leader_stops_and_hands_over_to_one_that_has_everything() {
    let mut state = leader();
    let effects = step(&mut state, Event::Fenced, Moment(400));
    assert!(effects.contains(&Effect::StopPostgres) && !consents(&effects));
    let polled = step(&mut state, stopped_at(10), Moment(500));
    assert!(consents(&step(&mut state, answer_to(&polled, 3, 10), Moment(600))));
    assert_eq!(state.tenure(Moment(600)), None);
    let later = step(&mut state, Event::Tick, Moment(30_000));
    assert_eq!(read_of(&later), None, "should the target fail, it does not resume");
}

#[test]
fn a_fenced_leader_that_nobody_can_replace_gives_up_its_tenure_and_stays_stopped() {
    let mut state = leader();
    step(&mut state, Event::Fenced, Moment(400));
    let polled = step(&mut state, stopped_at(10), Moment(500));
    let effects = step(&mut state, answer_to(&polled, 3, 9), Moment(600));
    assert!(!consents(&effects) && !leads(&effects));
    assert_eq!(state.tenure(Moment(600)), None);
    assert_eq!(read_of(&step(&mut state, Event::Tick, Moment(30_000))), None);
    assert!(read_of(&step(&mut state, Event::FenceLifted, Moment(30_100))).is_some(), "then it asks, as at any start");
}

#[test]
fn a_fenced_member_never_campaigns_and_takes_no_consent() {
    let mut state = fenced_member();
    assert_eq!(read_of(&step(&mut state, Event::Tick, Moment(60_000))), None);
    let at_least = Position { term: Term(3), timeline: Timeline(1), lsn: Lsn(1) };
    let consent = Consent { uid: LeaseUid(7), version: LeaseVersion(5), term: Term(3), at_least };
    let effects = step(&mut state, Event::Received { from: OTHER, message: Message::Consent(consent) }, Moment(60_100));
    assert_eq!(read_of(&effects), None);
}

#[test]
fn a_fenced_member_promises_and_its_log_is_still_an_answer() {
    let mut state = fenced_member();
    assert!(grants(&step(&mut state, ask(3), Moment(200))));
    let poll = Poll { request: RequestId(9), incarnation: Incarnation(9), question: Question::Position, term: None };
    let effects = step(&mut state, Event::Received { from: OTHER, message: Message::Poll(poll) }, Moment(300));
    assert!(effects.iter().any(|effect| matches!(effect, Effect::CutAndAnswer { .. })));
}

#[test]
fn a_campaign_that_was_sent_before_the_fence_wins_nothing() {
    let mut state = started();
    let read = read_of(&step(&mut state, Event::Tick, Moment(100)));
    let sight = Fact::Known(lease(5, ME, 3));
    let asked = step(&mut state, Event::Lease { read, sight }, Moment(100));
    step(&mut state, cut_at(10), Moment(100));
    let (request, write) = write_of(&step(&mut state, answer_to(&asked, 3, 10), Moment(100))).expect("a write");
    step(&mut state, Event::Fenced, Moment(200));
    let effects = step(&mut state, Event::Written { request, outcome: committed(6, write) }, Moment(300));
    assert!(!leads(&effects));
    assert_eq!(state.tenure(Moment(300)), None);
}

#[test]
fn one_that_is_no_member_does_not_knock_while_it_is_fenced() {
    let mut state = started();
    step(&mut state, Event::Fenced, Moment(50));
    let mut view = lease(5, OTHER, 3);
    view.content.members = view.content.members.without(ME);
    step(&mut state, Event::Lease { read: None, sight: Fact::Known(view) }, Moment(100));
    let knocks = |effects: &[Effect]| {
        effects.iter().any(|effect| matches!(effect, Effect::Send { message: Message::Knock, .. }))
    };
    assert!(!knocks(&step(&mut state, Event::Tick, Moment(5_000))));
    assert!(knocks(&step(&mut state, Event::FenceLifted, Moment(5_100))));
}
