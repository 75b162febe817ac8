//! The exploration with one fault closes without a violation where there are no commits, finds none in the first states where
//! there are (those scenarios have not been closed yet: `docs/proof/model.md`), and finds a planted bug.

use bellwether_core::election::Plant;
use bellwether_model::explore::{Limits, Report, explore};
use bellwether_model::scenario::{SCENARIOS, Scenario, begin};

/// Of a scenario with commits: some seconds of it.
const BEGINNING: u64 = 20_000;

fn run(scenario: &Scenario, plant: Option<Plant>) -> Report {
    let states = if scenario.commits > 0 { BEGINNING } else { u64::MAX };
    let scenario = Scenario { faults: 1, ..*scenario };
    let rules = scenario.rules(plant);
    let world = begin(&scenario, &rules).expect("a run without faults keeps every promise");
    explore(&world, &rules, Limits { states, traces: plant.is_some(), threads: 2 })
}

#[test]
fn one_fault_breaks_no_promise_and_there_are_no_more_states() {
    for scenario in SCENARIOS.iter().filter(|scenario| scenario.commits == 0) {
        let report = run(scenario, None);
        assert!(report.closed && report.violation.is_none(), "{}: {:?}", scenario.name, report.violation);
        assert!(report.highest_term > 1, "{}: without a change of leader it proves nothing", scenario.name);
    }
}

#[test]
fn one_fault_breaks_no_promise_in_the_first_states_with_commits() {
    for scenario in SCENARIOS.iter().filter(|scenario| scenario.commits > 0) {
        let report = run(scenario, None);
        assert!(report.violation.is_none(), "{}: {:?}", scenario.name, report.violation);
    }
}

#[test]
fn a_primary_that_ignores_the_end_of_its_tenure_is_found_with_its_trace() {
    let report = run(&SCENARIOS[0], Some(Plant::LapseIgnored));
    let (violation, steps) = report.violation.expect("found");
    assert!(violation.0.starts_with("INV-3"), "{}", violation.0);
    assert_eq!(steps.len(), report.depth as usize);
}
