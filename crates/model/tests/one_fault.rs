//! The exploration with one fault closes without a violation in every scenario, and finds a planted bug.

use bellwether_core::election::Plant;
use bellwether_model::explore::{Limits, Report, explore};
use bellwether_model::scenario::{SCENARIOS, Scenario, begin};

fn run(scenario: &Scenario, plant: Option<Plant>) -> Report {
    let scenario = Scenario { faults: 1, ..*scenario };
    let rules = scenario.rules(plant);
    let world = begin(&scenario, &rules).expect("a run without faults keeps every promise");
    explore(&world, &rules, Limits { states: u64::MAX, traces: plant.is_some(), threads: 2, progress: None })
}

#[test]
fn one_fault_breaks_no_promise_and_there_are_no_more_states() {
    // `given-up` has one fault by itself, and twice the states of all others: `make model` explores it.
    for scenario in SCENARIOS.iter().filter(|scenario| scenario.name != "given-up") {
        let report = run(scenario, None);
        assert!(report.closed && report.violation.is_none(), "{}: {:?}", scenario.name, report.violation);
        assert!(report.highest_term > 1, "{}: without a change of leader it proves nothing", scenario.name);
    }
}

#[test]
fn a_primary_that_ignores_the_end_of_its_tenure_is_found_with_its_trace() {
    let report = run(&SCENARIOS[0], Some(Plant::LapseIgnored));
    let (violation, steps) = report.violation.expect("found");
    assert!(violation.0.starts_with("INV-3"), "{}", violation.0);
    assert_eq!(steps.len(), report.depth as usize);
}
