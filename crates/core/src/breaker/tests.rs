use proptest::prelude::*;

use super::*;

const LONGEST: Random = Random(u64::MAX);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn limits() -> Limits {
    Limits { failures: 3, first: seconds(1), longest: seconds(15), trial: seconds(60) }
}

/// One that has just been found out to be down, at this time.
fn resting_from(now: Duration) -> Breaker {
    let mut breaker = Breaker::new(limits());
    for _ in 0..3 {
        breaker.ended(Turn::Usual, Ended::Failed, now, LONGEST);
    }
    breaker
}

#[test]
fn it_is_left_alone_after_three_failures_and_not_before() {
    let mut breaker = Breaker::new(limits());
    for _ in 0..2 {
        assert_eq!(breaker.ended(Turn::Usual, Ended::Failed, seconds(7), LONGEST), None);
        assert_eq!(breaker.turn(seconds(7)), Ok(Turn::Usual));
    }
    let change = breaker.ended(Turn::Usual, Ended::Failed, seconds(7), LONGEST);
    assert_eq!(change, Some(Change::Rests(seconds(1))));
    assert_eq!(breaker.turn(seconds(7)), Err(Resting { until: seconds(8) }));
    assert!(!breaker.works() && breaker.resting(seconds(8)).is_none(), "somebody may try, and nobody knows yet");
}

#[test]
fn one_that_is_read_from_and_takes_no_writes_is_left_alone_too() {
    let mut breaker = Breaker::new(limits());
    let writes = (1..100).find(|_| {
        let failed = breaker.ended(Turn::Usual, Ended::Failed, seconds(0), LONGEST);
        failed.is_some() || breaker.ended(Turn::Usual, Ended::Served, seconds(0), LONGEST).is_some()
    });
    assert_eq!(writes, Some(5));
}

#[test]
fn a_failure_in_three_is_put_up_with() {
    let mut breaker = Breaker::new(limits());
    for number in 0..1000 {
        let ended = if number % 3 == 0 { Ended::Failed } else { Ended::Served };
        assert_eq!(breaker.ended(Turn::Usual, ended, seconds(number), LONGEST), None);
    }
}

#[test]
fn after_its_rest_one_may_try_and_who_fails_makes_the_next_rest_longer() {
    let mut breaker = resting_from(seconds(0));
    let (mut now, mut rests) = (seconds(1), vec![]);
    for _ in 0..6 {
        let turn = breaker.turn(now).unwrap();
        assert!(matches!(turn, Turn::Trial(_)) && breaker.turn(now).is_err(), "and no second");
        let Some(Change::RestsOn(rest)) = breaker.ended(turn, Ended::Failed, now, LONGEST) else { panic!("it rests") };
        rests.push(rest.as_secs());
        now += rest;
    }
    assert_eq!(rests, [2, 4, 8, 15, 15, 15]);
}

#[test]
fn one_success_is_enough_and_after_it_one_failure_too_until_it_is_in_good_standing() {
    let mut breaker = resting_from(seconds(0));
    let turn = breaker.turn(seconds(1)).unwrap();
    assert_eq!(breaker.ended(turn, Ended::Served, seconds(1), LONGEST), Some(Change::Works));
    assert_eq!(breaker.turn(seconds(1)), Ok(Turn::Usual));
    let again = breaker.ended(Turn::Usual, Ended::Failed, seconds(2), LONGEST);
    assert_eq!(again, Some(Change::Rests(seconds(2))), "it is not as if nothing had been");

    let turn = breaker.turn(seconds(4)).unwrap();
    breaker.ended(turn, Ended::Served, seconds(4), LONGEST);
    for _ in 0..4 {
        breaker.ended(Turn::Usual, Ended::Served, seconds(5), LONGEST);
    }
    let failures = (1..10).find(|_| breaker.ended(Turn::Usual, Ended::Failed, seconds(6), LONGEST).is_some());
    assert_eq!(failures, Some(3), "and now it is");
    assert_eq!(breaker.resting(seconds(6)), Some(Resting { until: seconds(7) }), "with a short rest");
}

#[test]
fn one_who_was_sent_before_and_is_served_ends_the_rest_and_one_who_fails_changes_nothing() {
    let mut breaker = resting_from(seconds(0));
    assert_eq!(breaker.ended(Turn::Usual, Ended::Failed, seconds(0), LONGEST), None);
    assert_eq!(breaker.resting(seconds(0)), Some(Resting { until: seconds(1) }));
    assert_eq!(breaker.ended(Turn::Usual, Ended::Served, seconds(0), LONGEST), Some(Change::Works));
    assert_eq!(breaker.resting(seconds(0)), None);
}

#[test]
fn whoever_tries_and_gives_up_shows_nothing_and_whoever_is_never_heard_of_is_not_waited_for() {
    let mut breaker = resting_from(seconds(0));
    let turn = breaker.turn(seconds(1)).unwrap();
    assert_eq!(breaker.ended(turn, Ended::Unknown, seconds(1), LONGEST), Some(Change::RestsOn(seconds(1))));
    let lost = breaker.turn(seconds(2)).unwrap();
    assert_eq!(breaker.turn(seconds(61)), Err(Resting { until: seconds(62) }));
    let next = breaker.turn(seconds(62)).unwrap();
    assert_ne!(lost, next);
    assert_eq!(breaker.ended(lost, Ended::Failed, seconds(63), LONGEST), None, "it speaks of another time");
    assert_eq!(breaker.ended(next, Ended::Served, seconds(63), LONGEST), Some(Change::Works));
}

#[test]
fn limits_without_end_never_leave_it_alone() {
    let mut breaker = Breaker::new(Limits { failures: u32::MAX, ..limits() });
    for number in 0..1000 {
        assert_eq!(breaker.ended(Turn::Usual, Ended::Failed, seconds(number), LONGEST), None);
    }
}

/// What happens to a breaker: somebody asks, somebody who was let ends, time passes.
#[derive(Clone, Debug)]
enum Step {
    Ask,
    End(usize, Ended, u64),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ended = prop_oneof![1 => Just(Ended::Served), 3 => Just(Ended::Failed), 1 => Just(Ended::Unknown)];
    let step = prop_oneof![
        3 => Just(Step::Ask),
        3 => (0usize..8, ended, any::<u64>()).prop_map(|(who, ended, random)| Step::End(who, ended, random)),
        2 => (0u64..20_000).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn one_tries_at_a_time_no_rest_is_too_long_or_too_short_and_what_is_said_holds(steps in steps()) {
        let limits = limits();
        let (mut breaker, mut now) = (Breaker::new(limits), Duration::ZERO);
        // Those under way, and since when.
        let mut out: Vec<(Turn, Duration)> = vec![];
        for step in steps {
            match step {
                Step::Pass(millis) => now += Duration::from_millis(millis),
                Step::Ask => {
                    let said = breaker.resting(now);
                    match breaker.turn(now) {
                        Ok(turn) => {
                            prop_assert_eq!(said, None);
                            if matches!(turn, Turn::Trial(_)) {
                                let other = out.iter().find(|(other, since)| {
                                    matches!(other, Turn::Trial(_)) && now < *since + limits.trial && still_tries(&breaker, *other)
                                });
                                prop_assert!(other.is_none(), "{other:?} tries already");
                            }
                            out.push((turn, now));
                        }
                        Err(resting) => {
                            prop_assert_eq!(said, Some(resting));
                            prop_assert!(resting.until > now && resting.until <= now + limits.longest.max(limits.trial));
                        }
                    }
                }
                Step::End(who, ended, random) if !out.is_empty() => {
                    let (turn, _) = out.remove(who % out.len());
                    let change = breaker.ended(turn, ended, now, Random(random));
                    match change {
                        Some(Change::Rests(rest) | Change::RestsOn(rest)) => {
                            prop_assert!(rest >= limits.first / 2 && rest <= limits.longest, "{rest:?}");
                            prop_assert_eq!(breaker.resting(now), Some(Resting { until: now + rest }));
                            prop_assert_ne!(ended, Ended::Served);
                        }
                        Some(Change::Works) => prop_assert_eq!((ended, breaker.resting(now)), (Ended::Served, None)),
                        None => {}
                    }
                    if ended == Ended::Served {
                        prop_assert_eq!(breaker.resting(now), None, "whoever was served shows that it works");
                    }
                }
                Step::End(..) => {}
            }
        }
    }

    /// However long it was down and whatever was tried, one request is let through soon, and when that is served so is everybody.
    #[test]
    fn when_it_is_back_that_is_found_out_within_the_longest_rest(steps in steps()) {
        let limits = limits();
        let (mut breaker, mut now, mut out) = (Breaker::new(limits), Duration::ZERO, vec![]);
        for step in steps {
            match step {
                Step::Pass(millis) => now += Duration::from_millis(millis),
                Step::Ask => out.extend(breaker.turn(now)),
                Step::End(who, ended, random) if !out.is_empty() => {
                    let turn = out.remove(who % out.len());
                    breaker.ended(turn, ended, now, Random(random));
                }
                Step::End(..) => {}
            }
        }
        // Those that are under way end in some way.
        for turn in out {
            breaker.ended(turn, Ended::Unknown, now, LONGEST);
        }
        if let Some(resting) = breaker.resting(now) {
            prop_assert!(resting.until <= now + limits.longest);
            now = resting.until;
        }
        let turn = breaker.turn(now);
        prop_assert!(turn.is_ok());
        breaker.ended(turn.unwrap(), Ended::Served, now, LONGEST);
        prop_assert_eq!(breaker.turn(now), Ok(Turn::Usual));
    }
}

fn still_tries(breaker: &Breaker, turn: Turn) -> bool {
    matches!(breaker.state, State::Trying { number, .. } if turn == Turn::Trial(number))
}
