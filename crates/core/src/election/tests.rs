//! The rules, each as a sentence.

use super::*;
use crate::fact::Fact;
use crate::wal::{Lsn, Term, Timeline};

const ME: MemberId = MemberId(1);
const OTHER: MemberId = MemberId(2);

fn lease(version: u64, holder: MemberId, term: u64) -> LeaseView {
    LeaseView {
        uid: LeaseUid(7),
        version: LeaseVersion(version),
        content: LeaseContent {
            holder: Some(holder),
            term: Some(Term(term)),
            members: [ME, OTHER].into_iter().collect(),
            sync: Sync::only(None),
            duration: Settings::default().lease,
        },
    }
}

fn started() -> State {
    State::new(Settings::default(), ME, Incarnation(1), Memory::default())
}

fn seen(version: u64, holder: MemberId, term: u64) -> Event {
    Event::Lease { read: None, sight: Fact::Known(lease(version, holder, term)) }
}

fn write_of(effects: &[Effect]) -> Option<(RequestId, LeaseWrite)> {
    effects.iter().find_map(|effect| match effect {
        Effect::WriteLease { request, write } => Some((*request, write.clone())),
        _ => None,
    })
}

fn read_of(effects: &[Effect]) -> Option<RequestId> {
    effects.iter().find_map(|effect| match effect {
        Effect::ReadLease { request } => Some(*request),
        _ => None,
    })
}

/// What the other one says to a poll: how far its log reaches, and that it knows of no higher term.
fn answer_to(effects: &[Effect], term: u64, lsn: u64) -> Event {
    let poll = effects.iter().find_map(|effect| match effect {
        Effect::Send { message: Message::Poll(poll), .. } => Some(*poll),
        _ => None,
    });
    let poll = poll.expect("a poll");
    let position = Some(Position { term: Term(term), timeline: Timeline(1), lsn: Lsn(lsn) });
    let (request, incarnation) = (poll.request, poll.incarnation);
    let members = Members::default();
    let answer = Answer { request, incarnation, term: Some(Term(term)), members, position };
    Event::Received { from: OTHER, message: Message::Answer(answer) }
}

fn cut_at(lsn: u64) -> Event {
    Event::ReceiverCut { position: Some(Position { term: Term(3), timeline: Timeline(1), lsn: Lsn(lsn) }) }
}

/// The holder named in the Lease, after its first own write, sent at 100 and answered at 300.
fn leader() -> State {
    let mut state = started();
    let read = read_of(&step(&mut state, Event::Tick, Moment(100)));
    let sight = Fact::Known(lease(5, ME, 3));
    let asked = step(&mut state, Event::Lease { read, sight }, Moment(100));
    step(&mut state, cut_at(10), Moment(100));
    let (request, write) = write_of(&step(&mut state, answer_to(&asked, 3, 10), Moment(100))).expect("a write");
    let view = LeaseView { uid: write.uid, version: LeaseVersion(6), content: write.content };
    step(&mut state, Event::Written { request, outcome: Outcome::Committed(view) }, Moment(300));
    state
}

fn ask(term: u64) -> Event {
    let ask = Ask { request: RequestId(1), term: Term(term), incarnation: Incarnation(9), promise: Span(4_000) };
    Event::Received { from: OTHER, message: Message::Ask(ask) }
}

fn grants(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Send { message: Message::Grant(_), .. }))
}

#[test]
fn e2_tenure_by_the_lease_counts_from_the_sending_of_the_write() {
    let until = leader().tenure(Moment(300)).expect("tenure").until;
    assert_eq!(until, Deadline::At(Moment(100 + 6_000 - 100)));
}

#[test]
fn e3_tenure_that_lapsed_is_not_revived_by_a_promise() {
    let mut state = leader();
    let effects = step(&mut state, Event::Tick, Moment(5_500));
    assert!(effects.contains(&Effect::StopPostgres), "it stops half a second before the end");
    let grant = Grant { request: RequestId(3), term: Term(3), incarnation: Incarnation(1), streaming: true };
    step(&mut state, Event::Received { from: OTHER, message: Message::Grant(grant) }, Moment(5_600));
    assert_eq!(state.tenure(Moment(5_600)), None);
}

#[test]
fn e4_the_own_name_in_the_lease_is_no_tenure() {
    let mut state = started();
    step(&mut state, seen(5, ME, 3), Moment(100));
    assert_eq!(state.tenure(Moment(100)), None);
}

#[test]
fn e6_an_older_version_changes_nothing() {
    let mut state = started();
    step(&mut state, seen(5, OTHER, 3), Moment(100));
    step(&mut state, seen(4, ME, 2), Moment(200));
    assert_eq!(state.lease().map(|view| view.version), Some(LeaseVersion(5)));
}

#[test]
fn e9_nobody_campaigns_before_the_lease_was_unchanged_for_its_duration() {
    let mut state = started();
    step(&mut state, seen(5, OTHER, 3), Moment(100));
    let early = step(&mut state, Event::Tick, Moment(6_099));
    let due = step(&mut state, Event::Tick, Moment(6_100));
    assert_eq!((read_of(&early).is_some(), read_of(&due).is_some()), (false, true));
}

#[test]
fn e12_a_lower_term_gets_no_promise_and_a_higher_one_ends_the_own() {
    let mut state = leader();
    assert!(!grants(&step(&mut state, ask(2), Moment(400))));
    assert!(state.tenure(Moment(400)).is_some());
    let effects = step(&mut state, ask(4), Moment(500));
    assert!(grants(&effects) && effects.contains(&Effect::StopPostgres));
    assert_eq!(state.tenure(Moment(500)), None);
}

#[test]
fn e14_a_term_that_went_backwards_is_damage_and_nobody_campaigns_on_it() {
    let mut state = started();
    step(&mut state, seen(5, OTHER, 3), Moment(100));
    step(&mut state, seen(6, OTHER, 2), Moment(200));
    assert_eq!(state.phase(), Phase::Recovering);
    assert_eq!(write_of(&step(&mut state, Event::Tick, Moment(9_000))), None);
}

#[test]
fn every_set_of_voters_that_can_acknowledge_meets_those_a_candidate_must_hear() {
    let of = |ids: &[u128]| ids.iter().map(|id| MemberId(*id)).collect::<Members>();
    let voters = Voters::new(1, of(&[1, 2])).expect("voters");
    assert!(!voters.covered_by(&of(&[1])) && voters.covered_by(&of(&[1, 2])));
}

#[test]
fn settings_under_which_a_restart_would_break_a_promise_are_refused() {
    assert_eq!(Settings::default().check(), Ok(()));
    let unsound = Settings { lease: Span(3_000), ..Settings::default() };
    assert!(matches!(unsound.check(), Err(Unsound::LeaseShorterThanPromise { .. })));
}

#[test]
fn a_joint_step_towards_a_voter_that_died_is_left_by_another_which_forgets_nothing() {
    const GONE: MemberId = MemberId(3);
    let both: Members = [OTHER, GONE].into_iter().collect();
    let mut state = leader();
    let mut view = lease(7, ME, 3);
    view.content.members = both.with(ME);
    view.content.sync = Sync::only(Voters::new(1, both.clone())).joined_by(Voters::new(2, both.clone()));
    step(&mut state, Event::Lease { read: None, sight: Fact::Known(view.clone()) }, Moment(400));
    for now in (500..20_000).step_by(250).map(Moment) {
        for effect in step(&mut state, Event::Tick, now) {
            match effect {
                Effect::Send { to: OTHER, message: Message::Ask(ask) } => {
                    let Ask { request, term, incarnation, .. } = ask;
                    let message = Message::Grant(Grant { request, term, incarnation, streaming: true });
                    step(&mut state, Event::Received { from: OTHER, message }, now);
                }
                Effect::WriteLease { request, write } => {
                    view.version = LeaseVersion(view.version.0 + 1);
                    view.content = write.content;
                    step(&mut state, Event::Written { request, outcome: Outcome::Committed(view.clone()) }, now);
                }
                _ => {}
            }
        }
    }
    let other: Members = [OTHER].into_iter().collect();
    let rules: Vec<_> = view.content.sync.rules().map(|rule| rule.cloned()).collect();
    assert_eq!(rules, [Voters::new(1, both.clone()), Voters::new(2, both), Voters::new(1, other)]);
}

#[test]
fn e14_a_lease_made_anew_counts_though_its_leader_was_heard_before_it_was_seen() {
    let mut state = started();
    step(&mut state, seen(5, OTHER, 3), Moment(100));
    step(&mut state, ask(4), Moment(200));
    let anew = LeaseView { uid: LeaseUid(8), ..lease(9, OTHER, 4) };
    step(&mut state, Event::Lease { read: None, sight: Fact::Known(anew.clone()) }, Moment(300));
    assert_eq!((state.phase(), state.lease()), (Phase::Member, Some(&anew)));
}
