//! The exploration with one fault closes without a violation, and finds a planted bug.

use bellwether_core::election::{Durability, Plant};
use bellwether_model::act::{Arrival, Rules};
use bellwether_model::explore::{Limits, Report, explore};
use bellwether_model::scenario::{Beginning, Bounds, STEADY, begin, settings};

fn run(beginning: Beginning, horizon: u8, plant: Option<Plant>) -> Report {
    let rules = Rules { settings: settings(Durability::Quorum, plant), arrival: Arrival::Fixed };
    let bounds = Bounds { horizon, faults: 1, commits: 0 };
    let world = begin(beginning, bounds, &rules).expect("a run without faults keeps every promise");
    explore(&world, STEADY + horizon, &rules, Limits { states: u64::MAX, traces: plant.is_some(), threads: 2 })
}

#[test]
fn one_fault_breaks_no_promise_in_a_settled_cluster() {
    let report = run(Beginning::Settled, 8, None);
    assert!(report.closed && report.violation.is_none(), "{:?}", report.violation);
    assert!(report.failovers > 0, "a model without a failover proves nothing");
}

#[test]
fn one_fault_breaks_no_promise_while_an_instance_joins() {
    let report = run(Beginning::Joining, 5, None);
    assert!(report.closed && report.violation.is_none(), "{:?}", report.violation);
}

#[test]
fn a_primary_that_ignores_the_end_of_its_tenure_is_found_with_its_trace() {
    let report = run(Beginning::Settled, 8, Some(Plant::LapseIgnored));
    let (violation, steps) = report.violation.expect("found");
    assert!(violation.0.starts_with("INV-3"), "{}", violation.0);
    assert_eq!(steps.len(), report.depth as usize);
}
