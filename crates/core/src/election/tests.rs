//! The rules, each as a sentence.

mod drained;
mod edition;
mod fence;
mod forced;
mod room;

use super::*;
use crate::fact::Fact;
use crate::instance::space::Space;
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
            sync: Sync::only(Voters::new(1, [ME].into_iter().collect())),
            duration: settings().lease,
            edition: Edition(0),
        },
    }
}

/// Timings for these tests, whatever the defaults are.
fn settings() -> Settings {
    Settings {
        ask_every: Span(1_000),
        promise: Span(4_000),
        renew_after: Span(1_500),
        lease: Span(6_000),
        ..Settings::default()
    }
}

fn started() -> State {
    State::new(settings(), ME, Incarnation(1), Memory::default())
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
    answer_with(effects, term, lsn, Space::Ample)
}

fn answer_with(effects: &[Effect], term: u64, lsn: u64, space: Space) -> Event {
    let poll = effects.iter().find_map(|effect| match effect {
        Effect::Send { message: Message::Poll(poll), .. } => Some(*poll),
        _ => None,
    });
    let poll = poll.expect("a poll");
    let position = Some(Position { term: Term(term), timeline: Timeline(1), lsn: Lsn(lsn) });
    let (request, incarnation) = (poll.request, poll.incarnation);
    let members = Members::default();
    let answer = Answer { request, incarnation, term: Some(Term(term)), members, position, space };
    Event::Received { from: OTHER, message: Message::Answer(answer) }
}

fn cut_at(lsn: u64) -> Event {
    Event::ReceiverCut { position: Some(Position { term: Term(3), timeline: Timeline(1), lsn: Lsn(lsn) }) }
}

/// The holder named in the Lease, after its first own write, sent at 100 and answered at 300.
fn leader() -> State {
    leading().0
}

/// The same, with what it did at 300: its first round of requests is among it.
fn leading() -> (State, Vec<Effect>) {
    let mut state = started();
    let read = read_of(&step(&mut state, Event::Tick, Moment(100)));
    let sight = Fact::Known(lease(5, ME, 3));
    let asked = step(&mut state, Event::Lease { read, sight }, Moment(100));
    step(&mut state, cut_at(10), Moment(100));
    let (request, write) = write_of(&step(&mut state, answer_to(&asked, 3, 10), Moment(100))).expect("a write");
    let view = LeaseView { uid: write.uid, version: LeaseVersion(6), content: write.content };
    let effects = step(&mut state, Event::Written { request, outcome: Outcome::Committed(view) }, Moment(300));
    (state, effects)
}

fn asked_in(effects: &[Effect]) -> Ask {
    let ask = effects.iter().find_map(|effect| match effect {
        Effect::Send { message: Message::Ask(ask), .. } => Some(*ask),
        _ => None,
    });
    ask.expect("a request for a promise")
}

fn grant(ask: Ask, from: MemberId, streaming: bool) -> Event {
    let grant = Grant { request: ask.request, term: ask.term, incarnation: ask.incarnation, streaming };
    Event::Received { from, message: Message::Grant(grant) }
}

/// A leader that has held office by promises alone for long: its last request was sent and granted at 8300.
fn leader_by_promises() -> State {
    let (mut state, mut effects) = leading();
    for at in 0..=8 {
        let now = Moment(300 + at * 1_000);
        if at > 0 {
            effects = step(&mut state, Event::Tick, now);
        }
        step(&mut state, grant(asked_in(&effects), OTHER, false), now);
    }
    state
}

fn committed(version: u64, write: LeaseWrite) -> Outcome {
    Outcome::Committed(LeaseView { uid: write.uid, version: LeaseVersion(version), content: write.content })
}

fn until(state: &State, now: u64) -> Option<Deadline> {
    state.tenure(Moment(now)).map(|tenure| tenure.until)
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
    let unsound = Settings { lease: Span(2_999), ..Settings::default() };
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
    let rules: Vec<_> = view.content.sync.rules().map(|rule| rule.voters.clone()).collect();
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

#[test]
fn e1_after_a_write_without_an_answer_comes_a_read_not_another_write() {
    let mut state = leader();
    let (request, _) = write_of(&step(&mut state, Event::Tick, Moment(2_100))).expect("a renewal");
    let effects = step(&mut state, Event::Written { request, outcome: Outcome::Ambiguous }, Moment(3_600));
    assert!(read_of(&effects).is_some() && write_of(&effects).is_none());
}

#[test]
fn e4_a_holder_by_name_asks_for_a_later_term_before_it_writes() {
    let mut state = started();
    let read = read_of(&step(&mut state, Event::Tick, Moment(100)));
    let sight = Fact::Known(lease(5, ME, 3));
    let asked = step(&mut state, Event::Lease { read, sight }, Moment(100));
    assert_eq!(write_of(&step(&mut state, cut_at(10), Moment(100))), None);
    assert_eq!(write_of(&step(&mut state, answer_to(&asked, 4, 10), Moment(200))), None);
    assert_eq!(state.term(), Some(Term(4)), "the Lease was put back: somebody knows of a later term");
}

#[test]
fn e5_and_e15_a_newcomer_promises_before_its_admission_is_sent_and_is_needed_from_then_on() {
    const NEW: MemberId = MemberId(3);
    let mut state = leader_by_promises();
    let effects = step(&mut state, Event::Received { from: NEW, message: Message::Knock }, Moment(8_400));
    assert_eq!(write_of(&effects), None, "it has not promised yet");
    let round = asked_in(&effects);
    step(&mut state, grant(round, OTHER, false), Moment(8_400));
    let (_, write) = write_of(&step(&mut state, grant(round, NEW, false), Moment(8_400))).expect("an admission");
    assert!(write.content.members.contains(NEW));
    let round = asked_in(&step(&mut state, Event::Tick, Moment(9_400)));
    step(&mut state, grant(round, OTHER, false), Moment(9_400));
    assert_eq!(until(&state, 9_400), Some(Deadline::At(Moment(8_400 + 3_900))), "the newcomer's promise is missing");
    step(&mut state, grant(round, NEW, false), Moment(9_500));
    assert_eq!(until(&state, 9_500), Some(Deadline::At(Moment(9_400 + 3_900))));
}

#[test]
fn e7_an_ok_after_stepping_down_gives_nothing() {
    let mut state = leader();
    let (request, write) = write_of(&step(&mut state, Event::Tick, Moment(2_100))).expect("a renewal");
    step(&mut state, Event::Tick, Moment(5_500));
    step(&mut state, Event::Written { request, outcome: committed(7, write) }, Moment(5_600));
    assert_eq!(state.tenure(Moment(5_600)), None);
}

#[test]
fn e8_a_promise_counts_from_the_sending_of_the_very_request_it_answers() {
    let mut state = leader_by_promises();
    let round = asked_in(&step(&mut state, Event::Tick, Moment(9_300)));
    let another_life = Ask { incarnation: Incarnation(2), ..round };
    step(&mut state, grant(another_life, OTHER, false), Moment(9_400));
    assert_eq!(until(&state, 9_400), Some(Deadline::At(Moment(8_300 + 3_900))));
    step(&mut state, grant(round, OTHER, false), Moment(9_900));
    assert_eq!(until(&state, 9_900), Some(Deadline::At(Moment(9_300 + 3_900))));
}

fn stopped_at(lsn: u64) -> Event {
    Event::PostgresStopped { position: Some(Position { term: Term(3), timeline: Timeline(1), lsn: Lsn(lsn) }) }
}

fn consents(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Send { message: Message::Consent(_), .. }))
}

#[test]
fn e10_a_hand_over_stops_first_then_chooses_and_keeps_no_tenure_beside_its_consent() {
    let mut state = leader();
    let effects = step(&mut state, Event::Switchover { target: None }, Moment(400));
    assert!(effects.contains(&Effect::StopPostgres) && !consents(&effects));
    let polled = step(&mut state, stopped_at(10), Moment(500));
    assert!(!consents(&polled));
    assert!(consents(&step(&mut state, answer_to(&polled, 3, 10), Moment(600))));
    assert_eq!(state.tenure(Moment(600)), None);
}

#[test]
fn nobody_is_asked_for_a_promise_while_it_is_polled_or_it_would_follow_again_and_not_answer() {
    let mut state = leader();
    let asks = |effects: &[Effect]| {
        effects.iter().any(|effect| matches!(effect, Effect::Send { message: Message::Ask(_), .. }))
    };
    step(&mut state, Event::PostgresCrashed, Moment(1_200));
    step(&mut state, stopped_at(10), Moment(1_290));
    assert!(!asks(&step(&mut state, Event::Tick, Moment(1_310))), "a round would be due");
    assert!(!asks(&step(&mut state, Event::Tick, Moment(3_280))));
    assert!(asks(&step(&mut state, Event::Tick, Moment(3_290))), "nobody answered: it resumes, and asks");
}

#[test]
fn a_hand_over_to_one_that_lacks_the_end_of_the_log_is_not_made_and_the_primary_resumes() {
    let mut state = leader();
    step(&mut state, Event::Switchover { target: Some(OTHER) }, Moment(400));
    let polled = step(&mut state, stopped_at(10), Moment(500));
    let effects = step(&mut state, answer_to(&polled, 3, 9), Moment(600));
    assert!(!consents(&effects) && effects.iter().any(|effect| matches!(effect, Effect::Lead { .. })));
}

#[test]
fn a_hand_over_does_not_wait_for_ever_for_a_write_that_nobody_answers() {
    let mut state = leader();
    let (request, write) = write_of(&step(&mut state, Event::Tick, Moment(2_100))).expect("a renewal");
    let effects = step(&mut state, Event::Written { request, outcome: Outcome::Ambiguous }, Moment(2_600));
    let unchanged = LeaseView { uid: write.uid, version: LeaseVersion(6), content: write.content };
    step(&mut state, Event::Lease { read: read_of(&effects), sight: Fact::Known(unchanged) }, Moment(2_650));
    step(&mut state, Event::PostgresCrashed, Moment(2_700));
    let polled = step(&mut state, stopped_at(10), Moment(2_800));
    assert!(!consents(&step(&mut state, answer_to(&polled, 3, 10), Moment(2_900))), "the write may take the version");
    let effects = step(&mut state, Event::Tick, Moment(4_900));
    assert!(!consents(&effects) && effects.iter().any(|effect| matches!(effect, Effect::Lead { .. })));
    assert_eq!(state.phase(), Phase::Leader);
}

#[test]
fn what_can_t_be_stopped_does_not_hold_the_lead_and_consents_to_nobody() {
    let mut state = leader();
    step(&mut state, Event::PostgresCrashed, Moment(400));
    step(&mut state, Event::Tick, Moment(3_399));
    assert_eq!(state.phase(), Phase::HandingOver);
    let effects = step(&mut state, Event::Tick, Moment(3_400));
    assert_eq!(state.phase(), Phase::Member);
    assert_eq!(state.tenure(Moment(3_400)), None);
    assert!(!consents(&effects));
    assert!(!consents(&step(&mut state, stopped_at(10), Moment(3_500))), "too late");
}

#[test]
fn e11_a_restarted_member_waits_longer_than_any_promise_it_may_have_forgotten() {
    let mut state = started();
    step(&mut state, seen(5, OTHER, 3), Moment(100));
    let settings = settings();
    assert_eq!(read_of(&step(&mut state, Event::Tick, Moment(100).plus(settings.promise))), None);
}

#[test]
fn e13_a_pod_made_again_on_its_volume_is_the_same_member_restarted() {
    let mut before = started();
    step(&mut before, seen(5, OTHER, 3), Moment(100));
    let mut state = State::new(settings(), ME, Incarnation(2), before.memory().clone());
    step(&mut state, seen(5, OTHER, 3), Moment(50));
    assert_eq!(read_of(&step(&mut state, Event::Tick, Moment(6_049))), None, "it may have promised, and waits");
    assert!(read_of(&step(&mut state, Event::Tick, Moment(6_050))).is_some(), "then it campaigns");
}

#[test]
fn e13_one_with_another_volume_is_no_member_so_it_knocks_and_does_not_campaign() {
    let mut state = State::new(settings(), MemberId(0x11), Incarnation(1), Memory::default());
    step(&mut state, seen(5, OTHER, 3), Moment(100));
    let effects = step(&mut state, Event::Tick, Moment(60_000));
    assert_eq!(read_of(&effects), None);
    assert!(effects.contains(&Effect::Send { to: OTHER, message: Message::Knock }));
}

#[test]
fn voters_change_in_a_joint_step_that_ends_when_the_new_ones_are_in_force() {
    let (mut state, effects) = leading();
    let effects = step(&mut state, grant(asked_in(&effects), OTHER, true), Moment(400));
    let (request, write) = write_of(&effects).expect("old and new are recorded");
    assert!(write.content.sync.is_joint());
    let voters = write.content.sync.newest().cloned();
    let effects = step(&mut state, Event::Written { request, outcome: committed(7, write) }, Moment(500));
    assert!(effects.contains(&Effect::SetVoters { voters: voters.clone() }) && write_of(&effects).is_none());
    let effects = step(&mut state, Event::VotersInForce { voters: voters.clone() }, Moment(600));
    assert_eq!(write_of(&effects).map(|(_, write)| write.content.sync), Some(Sync::only(voters)));
}

#[test]
fn a_leader_with_unbroken_tenure_writes_a_lease_made_again_in_a_higher_term() {
    let mut state = leader();
    step(&mut state, Event::Lease { read: None, sight: Fact::Absent }, Moment(400));
    assert!(state.tenure(Moment(400)).is_some(), "a deleted Lease ends no tenure");
    let nobody = LeaseContent { holder: None, term: None, sync: Sync::default(), ..lease(9, ME, 3).content };
    let again = LeaseView { uid: LeaseUid(8), version: LeaseVersion(9), content: nobody };
    let effects = step(&mut state, Event::Lease { read: None, sight: Fact::Known(again) }, Moment(2_500));
    let (_, write) = write_of(&effects).expect("a write");
    assert_eq!((write.uid, write.content.holder, write.content.term), (LeaseUid(8), Some(ME), Some(Term(4))));
}

#[test]
fn without_a_leader_a_damaged_lease_needs_the_word_of_everybody() {
    let mut state = started();
    step(&mut state, seen(5, OTHER, 3), Moment(100));
    step(&mut state, seen(6, OTHER, 2), Moment(200));
    let read = read_of(&step(&mut state, Event::Tick, Moment(300))).or(Some(RequestId(1)));
    let asked = step(&mut state, Event::Lease { read, sight: Fact::Known(lease(6, OTHER, 2)) }, Moment(300));
    assert_eq!(write_of(&step(&mut state, cut_at(10), Moment(300))), None, "the other has not yielded");
    let (_, write) = write_of(&step(&mut state, answer_to(&asked, 3, 9), Moment(400))).expect("a write");
    assert_eq!(write.content.term, Some(Term(4)));
}

#[test]
fn e14_whoever_stands_back_is_not_kept_back_by_the_next_who_asks() {
    let mut state = started();
    step(&mut state, seen(5, OTHER, 3), Moment(0));
    step(&mut state, Event::Lease { read: None, sight: Fact::Absent }, Moment(10_000));
    step(&mut state, yield_to(OTHER), Moment(20_000));
    let first = state.stand_back_until;
    step(&mut state, yield_to(MemberId(77)), Moment(21_000));
    assert!(first.is_some());
    assert_eq!(state.stand_back_until, first);
}

fn yield_to(from: MemberId) -> Event {
    let (request, incarnation) = (RequestId(1), Incarnation(9));
    let poll = Poll { request, incarnation, question: Question::Yield, term: Some(Term(3)) };
    Event::Received { from, message: Message::Poll(poll) }
}

fn answers(effects: &[Effect], whom: MemberId) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::CutAndAnswer { to, .. } if *to == whom))
}

#[test]
fn e14_to_yield_is_no_promise_so_that_one_of_three_can_have_the_word_of_everybody() {
    let mut state = started();
    step(&mut state, seen(5, OTHER, 3), Moment(0));
    step(&mut state, Event::Lease { read: None, sight: Fact::Absent }, Moment(10_000));
    assert!(answers(&step(&mut state, yield_to(OTHER), Moment(20_000)), OTHER));
    assert!(answers(&step(&mut state, yield_to(THIRD), Moment(20_100)), THIRD));
}

#[test]
fn e14_one_that_asked_in_vain_asks_again_only_after_those_who_yielded_may_have_asked() {
    let mut state = started();
    step(&mut state, seen(5, OTHER, 3), Moment(100));
    step(&mut state, seen(6, OTHER, 2), Moment(200));
    let read = read_of(&step(&mut state, Event::Tick, Moment(300))).or(Some(RequestId(1)));
    let asked = step(&mut state, Event::Lease { read, sight: Fact::Known(lease(6, OTHER, 2)) }, Moment(300));
    step(&mut state, cut_at(10), Moment(300));
    assert_eq!(write_of(&step(&mut state, answer_to(&asked, 3, 11), Moment(400))), None, "the other has more");
    let settings = settings();
    let longest = settings.promise.0 + 4 * settings.defer.0;
    for now in (400..=400 + longest).step_by(100).map(Moment) {
        assert_eq!(read_of(&step(&mut state, Event::Tick, now)), None, "the other stands back at {now:?}");
    }
}

#[test]
fn a_leader_whose_voter_is_gone_does_not_stand_back_while_another_streams() {
    const GONE: MemberId = MemberId(3);
    let mut state = leader();
    let mut view = lease(7, ME, 3);
    view.content.members = view.content.members.with(GONE);
    view.content.sync = Sync::only(Voters::new(1, [GONE].into_iter().collect()));
    step(&mut state, Event::Lease { read: None, sight: Fact::Known(view.clone()) }, Moment(400));
    for now in (500..12_000).step_by(250).map(Moment) {
        let late = now >= Moment(10_000);
        for effect in step(&mut state, Event::Tick, now) {
            match effect {
                Effect::Send { to: OTHER, message: Message::Ask(ask) } => {
                    step(&mut state, grant(ask, OTHER, late), now);
                }
                Effect::WriteLease { request, write } if !late => {
                    view.version = LeaseVersion(view.version.0 + 1);
                    view.content = write.content;
                    step(&mut state, Event::Written { request, outcome: Outcome::Committed(view.clone()) }, now);
                }
                _ => {}
            }
        }
        assert_eq!(state.phase(), Phase::Leader, "at {now:?}");
    }
}

const THIRD: MemberId = MemberId(3);

/// Whether `ME` takes the Lease of a third one, which is gone, when `OTHER` answers with this copy.
fn succeeds(sync: Sync, copy: Option<Position>) -> bool {
    let mut state = started();
    let mut view = lease(5, THIRD, 3);
    view.content.members = view.content.members.with(THIRD);
    view.content.sync = sync;
    let sight = Fact::Known(view);
    step(&mut state, Event::Lease { read: None, sight: sight.clone() }, Moment(100));
    let read = read_of(&step(&mut state, Event::Tick, Moment(7_000)));
    let polled = step(&mut state, Event::Lease { read, sight }, Moment(7_000));
    step(&mut state, cut_at(10), Moment(7_010));
    let mut event = answer_to(&polled, 3, 10);
    if let Event::Received { message: Message::Answer(answer), .. } = &mut event {
        answer.position = copy;
    }
    step(&mut state, event, Moment(7_020));
    write_of(&step(&mut state, Event::Tick, Moment(7_400))).is_some()
}

const COPY: Position = Position { term: Term(3), timeline: Timeline(1), lsn: Lsn(9) };

fn any(needed: usize, of: &[MemberId]) -> Option<Voters> {
    Voters::new(needed, of.iter().copied().collect())
}

#[test]
fn a_voter_without_a_copy_vouches_for_nothing() {
    let sync = Sync::only(any(1, &[ME, OTHER]));
    assert_eq!((succeeds(sync.clone(), Some(COPY)), succeeds(sync, None)), (true, false));
}

#[test]
fn a_former_leader_with_its_copy_answers_for_what_it_acknowledged_though_a_voter_of_its_is_gone() {
    let led_by = |former| Sync::only(any(1, &[ME, THIRD])).left_by(Some(former)).joined_by(any(1, &[ME, OTHER]));
    assert!(succeeds(led_by(OTHER), Some(COPY)));
    assert!(!succeeds(led_by(OTHER), None), "its copy is not intact");
    assert!(!succeeds(led_by(MemberId(4)), Some(COPY)), "another one led");
    let alone = Sync::only(None).left_by(Some(OTHER)).joined_by(any(1, &[ME, OTHER]));
    assert!(succeeds(alone, Some(COPY)), "what it acknowledged alone is on its own volume");
}

#[test]
fn a_former_leader_answers_for_what_was_before_it_and_not_for_what_came_after() {
    const GONE: MemberId = MemberId(4);
    let (sound, lost) = (any(1, &[ME, OTHER]), any(1, &[ME, GONE]));
    let before = Sync::only(lost.clone()).left_by(Some(GONE)).joined_by(any(1, &[GONE, THIRD]));
    let before = before.left_by(Some(OTHER)).joined_by(sound.clone());
    assert!(succeeds(before, Some(COPY)), "it had everything when it began");
    let after = Sync::only(sound).left_by(Some(OTHER)).joined_by(lost);
    assert!(!succeeds(after, Some(COPY)), "what came after it may be on one that was not heard");
}

#[test]
fn who_takes_over_records_whose_rules_it_found() {
    let of_other = Sync::only(any(1, &[ME])).left_by(Some(OTHER)).joined_by(any(1, &[OTHER]));
    let taken = state::succession(
        &LeaseContent { sync: of_other, ..lease(5, THIRD, 3).content },
        ME,
        Term(4),
        any(2, &[OTHER, THIRD]),
        &settings(),
    );
    let leaders: Vec<_> = taken.sync.rules().map(|rule| rule.former).collect();
    assert_eq!(leaders, [Some(OTHER), Some(THIRD), None]);
}

#[test]
fn one_without_a_usable_log_takes_no_lease() {
    let mut state = started();
    step(&mut state, seen(5, OTHER, 3), Moment(100));
    let read = read_of(&step(&mut state, Event::Tick, Moment(7_000)));
    step(&mut state, Event::Lease { read, sight: Fact::Known(lease(5, OTHER, 3)) }, Moment(7_000));
    step(&mut state, Event::ReceiverCut { position: None }, Moment(7_010));
    for now in (7_020..9_000).step_by(20).map(Moment) {
        assert_eq!(write_of(&step(&mut state, Event::Tick, now)), None);
    }
}

#[test]
fn under_quorum_nobody_succeeds_a_leader_that_acknowledged_alone() {
    let mut state = started();
    let mut view = lease(5, OTHER, 3);
    view.content.sync = Sync::only(None);
    let sight = |view: &LeaseView| Fact::Known(view.clone());
    step(&mut state, Event::Lease { read: None, sight: sight(&view) }, Moment(100));
    let read = read_of(&step(&mut state, Event::Tick, Moment(7_000)));
    step(&mut state, Event::Lease { read, sight: sight(&view) }, Moment(7_000));
    step(&mut state, cut_at(10), Moment(7_010));
    for now in (7_020..9_000).step_by(20).map(Moment) {
        assert_eq!(write_of(&step(&mut state, Event::Tick, now)), None);
    }
}

#[test]
fn under_quorum_a_hand_over_goes_to_nobody_who_may_lack_what_was_acknowledged_alone() {
    let mut state = leader();
    let mut view = lease(7, ME, 3);
    view.content.sync = Sync::only(None).joined_by(any(1, &[OTHER]));
    step(&mut state, Event::Lease { read: None, sight: Fact::Known(view) }, Moment(400));
    step(&mut state, Event::PostgresCrashed, Moment(500));
    let polled = step(&mut state, stopped_at(10), Moment(600));
    let effects = step(&mut state, answer_to(&polled, 3, 9), Moment(700));
    assert!(!consents(&effects) && effects.iter().any(|effect| matches!(effect, Effect::Lead { .. })));
}

/// Others may have led meanwhile: the shell compares the logs again, and until it streams by that nobody counts on it.
#[test]
fn the_same_leader_in_a_later_term_is_followed_anew() {
    let ask = |term: u64| {
        let ask = Ask { request: RequestId(term), term: Term(term), incarnation: Incarnation(9), promise: Span(4_000) };
        Event::Received { from: OTHER, message: Message::Ask(ask) }
    };
    let streaming_of = |effects: &[Effect]| {
        effects.iter().find_map(|effect| match effect {
            Effect::Send { message: Message::Grant(grant), .. } => Some(grant.streaming),
            _ => None,
        })
    };
    let mut state = started();
    let follow = |term| Effect::Follow { leader: OTHER, term: Term(term) };
    assert!(step(&mut state, ask(3), Moment(100)).contains(&follow(3)));
    step(&mut state, Event::Streaming { from: Some(OTHER) }, Moment(200));
    let again = step(&mut state, ask(3), Moment(1_100));
    assert_eq!((streaming_of(&again), again.contains(&follow(3))), (Some(true), false));
    let later = step(&mut state, ask(5), Moment(2_100));
    assert_eq!((streaming_of(&later), later.contains(&follow(5))), (Some(false), true));
}
