//! A Lease that is put back within its term (E14).

use super::*;

fn edition(version: u64, edition: u64) -> Event {
    let mut view = lease(version, OTHER, 3);
    view.content.edition = Edition(edition);
    Event::Lease { read: None, sight: Fact::Known(view) }
}

#[test]
fn e14_a_lease_that_was_put_back_within_its_term_is_damaged_also_for_one_that_restarts() {
    let mut state = started();
    step(&mut state, edition(1, 4), Moment(0));
    step(&mut state, edition(2, 5), Moment(10));
    let kept = state.memory.clone();
    assert_eq!(kept.edition, Edition(5));
    let mut again = State::new(Settings::default(), ME, Incarnation(2), kept);
    for state in [&mut state, &mut again] {
        step(state, edition(3, 4), Moment(20));
        assert!(state.known.damage().is_some() && state.memory.edition == Edition(5));
        // What is of a later term was written by somebody who was elected.
        step(state, seen(4, OTHER, 4), Moment(30));
        assert!(state.known.damage().is_none());
    }
}

#[test]
fn e14_a_renewal_is_no_new_edition_and_whatever_else_is_written_is_above_all_that_was_seen() {
    let state = leader();
    let base = state.known.newest().unwrap().content.clone();
    assert_eq!(state.edition_of(&base, &base), base.edition);
    let fewer = LeaseContent { members: base.members.without(OTHER), ..base.clone() };
    assert!(state.edition_of(&fewer, &base) > base.edition);
    let put_back = LeaseContent { edition: Edition(0), ..fewer.clone() };
    assert!(state.edition_of(&base, &put_back) > base.edition);
}
