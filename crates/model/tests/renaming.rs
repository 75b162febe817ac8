//! States that the exploration takes for one behave alike: the same walk, with everything merged and with nothing merged, goes through
//! states that are equal once both are merged, and each offers the same moves.
//!
//! It fails, and was seen to, when moments are merged that a rule tells apart (`Peer::heard` from an age of 1 on), and when logs are
//! shortened by what some volume lacks. It does not fail when `void_before` keeps no order: what that guards is guarded twice, see
//! `OksAfterSteppingDown` in `docs/proof/model.md`. A moment that is not aged at all it could not see, because neither walk would age
//! it; that does not compile, because `State::age` names every part.

use bellwether_core::election::Ages;
use bellwether_model::act::Rules;
use bellwether_model::fingerprint::fingerprint;
use bellwether_model::moves::{Move, apply, moves};
use bellwether_model::passing::{merged, positions_told};
use bellwether_model::scenario::{SCENARIOS, begin};
use bellwether_model::walk::Random;
use bellwether_model::world::World;

fn shape(world: &World, rules: &Rules) -> (u128, u128, u128, u128) {
    let merged = merged(world, rules);
    let nodes = merged.nodes.iter().fold(0_u128, |sum, node| sum.rotate_left(7) ^ fingerprint(&**node));
    (nodes, fingerprint(&*merged.net), fingerprint(&*merged.shared), fingerprint(&merged.env))
}

#[test]
fn merged_states_behave_like_those_they_stand_for() {
    let mut random = Random(20_261_116);
    let (mut compared, mut steps) = (0, 0);
    for scenario in SCENARIOS {
        let rules = scenario.rules(None);
        let exact = Rules { ages: Ages::Exact, ..rules };
        let start = begin(scenario, &rules).expect("a run without faults keeps every promise");
        for _ in 0..60 {
            let (mut one, mut other) = (start.clone(), start.clone());
            // Clocks stand still at 100, so that exact moments may be up to 100 ticks old.
            let mut ticks = 0;
            while ticks < 40 {
                let all = moves(&one, &rules);
                assert_eq!(all, moves(&other, &exact), "{}", scenario.name);
                let rare = random.below(25) > 0;
                let some: Vec<Move> =
                    all.iter().copied().filter(|which| !rare || !matches!(which, Move::Fault(_))).collect();
                // Which of several late packets is which depends on names.
                let several = one.net.late.len() > 1;
                let which = some[random.below(some.len())];
                if several {
                    break;
                }
                ticks += usize::from(matches!(which, Move::Tick | Move::CatchUp(_)));
                one = apply(&one, which, &rules).expect("no violation");
                other = apply(&other, which, &exact).expect("no violation");
                // While somebody remembers a position, the logs that it is of keep the length that they had.
                steps += 1;
                if !positions_told(&other) {
                    compared += 1;
                    assert_eq!(shape(&one, &rules), shape(&other, &exact), "{} after {which}", scenario.name);
                }
            }
        }
    }
    assert!(compared * 4 > steps * 3, "only {compared} of {steps} steps could be compared");
}
