//! Runs scenarios one after another, says how each went and how long it took, and counts.
//!
//! One after another, because they share an operator, and because two cores are slow enough with one at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Instant;

use crate::evidence;
use crate::failure::{Failure, Outcome};
use crate::output::say;
use crate::target::Home;
use crate::world::World;

/// What a scenario needs beyond a cluster to talk to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: it runs anywhere.
    Api,
    /// Our own cluster: its audit log, its nodes, its processes.
    Harness,
    /// A second image to upgrade to.
    NextImage,
    /// The probe, built for the cluster's nodes.
    Probe,
}

/// Whether the operator is to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// Installed from the chart with its defaults.
    Chart,
    /// The scenario installs it itself.
    Own,
}

/// One scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name, by which it is chosen.
    pub name: &'static str,
    /// What it needs.
    pub needs: Needs,
    /// What it finds.
    pub operator: Operator,
    /// What it does.
    pub run: fn(&World) -> Outcome,
}

/// How many went how.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// As it should.
    pub passed: usize,
    /// Not as it should.
    pub failed: usize,
    /// Not at all.
    pub skipped: usize,
}

/// Runs those whose name contains one of `filters` (all, if there is none).
pub fn run(world: &World, scenarios: &[Scenario], filters: &[String], evidence: &Path) -> Count {
    let mut count = Count::default();
    for scenario in scenarios.iter().filter(|scenario| chosen(scenario, filters)) {
        if let Some(why) = missing(world, scenario.needs) {
            say(&format!("SKIPPED  {}: {why}", scenario.name));
            count.skipped += 1;
            continue;
        }
        let began = Instant::now();
        let outcome = one(world, scenario);
        let took = began.elapsed().as_secs_f64();
        let namespaces = world.take_made();
        match outcome {
            Ok(()) => {
                say(&format!("ok       {} ({took:.1} s)", scenario.name));
                count.passed += 1;
                remove(world, &namespaces);
            }
            Err(failure) => {
                let kept = evidence::collect(&world.target, evidence, scenario.name, &namespaces);
                say(&format!(
                    "FAILED   {} ({took:.1} s): {failure}\n         kept in {}",
                    scenario.name,
                    kept.display()
                ));
                count.failed += 1;
                // Whatever it was in the middle of, the next one starts from a known state.
                world.without_chart();
            }
        }
    }
    count
}

/// A scenario that is chosen by name.
pub fn chosen(scenario: &Scenario, filters: &[String]) -> bool {
    filters.is_empty() || filters.iter().any(|filter| scenario.name.contains(filter.as_str()))
}

fn missing(world: &World, needs: Needs) -> Option<&'static str> {
    match needs {
        Needs::Harness if world.target.home == Home::Foreign => Some("needs the harness's own cluster"),
        Needs::NextImage if world.target.images.next.is_none() => Some("needs E2E_IMAGE_NEXT"),
        Needs::Probe if world.target.probe.is_none() => Some("needs E2E_PROBE"),
        Needs::Api | Needs::Harness | Needs::NextImage | Needs::Probe => None,
    }
}

fn one(world: &World, scenario: &Scenario) -> Outcome {
    match scenario.operator {
        Operator::Chart => world.with_chart()?,
        Operator::Own => world.without_chart(),
    }
    // An index out of bounds in a scenario is a failure of that scenario, and not the end of the run.
    catch_unwind(AssertUnwindSafe(|| (scenario.run)(world)))
        .unwrap_or_else(|_| Err(Failure::Wrong("it panicked; the message is above".to_owned())))
}

/// Nobody waits for it: that namespaces end, and how soon, are scenarios of their own.
fn remove(world: &World, namespaces: &[String]) {
    for name in namespaces {
        let gone = ["delete", "namespace", name, "--wait=false", "--ignore-not-found"];
        if let Err(error) = world.target.kubectl(gone).go() {
            say(&format!("         namespace {name} stays: {error}"));
        }
    }
}
