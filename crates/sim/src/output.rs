//! What the command prints.
#![expect(clippy::print_stdout, reason = "this is the output module of a binary")]

use std::time::Duration;

use bellwether_core::election::Plant;

use crate::fault::{Coverage, During, Kind};
use crate::run::Outcome;
use crate::sweep::Sum;

/// How many lines before a broken promise are shown.
const LINES: usize = 40;

/// A broken promise: which, what came before, and how to see it again.
pub fn failure(outcome: &Outcome, replay: &str) {
    let Some(violation) = &outcome.violation else { return };
    println!("seed {}: {} is broken: {}", outcome.seed, violation.property, violation.how);
    let from = outcome.lines.len().saturating_sub(LINES);
    for line in &outcome.lines[from..] {
        println!("    {line}");
    }
    println!("  replay: {replay}");
}

/// Every line of a run.
pub fn lines(outcome: &Outcome) {
    for line in &outcome.lines {
        println!("{line}");
    }
}

/// How many passed, how fast, and what was covered.
pub fn summary(sum: &Sum, took: Duration, minutes: u64, threads: usize) {
    table(&sum.coverage);
    let inside: Vec<_> = sum.inside.iter().map(|(what, count)| format!("{what} {count}")).collect();
    println!("inside the API: {}", inside.join(", "));
    let seconds = took.as_secs_f64().max(0.001);
    let seeds = (sum.passed + sum.failed.len() as u64).max(1);
    println!(
        "{:.1} seeds/s on {threads} thread(s), {minutes} simulated minutes each; a seed: {} events, {} acknowledged commits, {} \
         leaders, {} writes, {} passes of the operator; {} commits lost where durability allows it; ready at most {:.1} s after the faults",
        seeds as f64 / seconds,
        sum.events / seeds,
        sum.commits / seeds,
        sum.reigns / seeds,
        sum.writes / seeds,
        sum.passes / seeds,
        sum.lost,
        sum.slowest_ready as f64 / 1_000.0,
    );
    let silent: Vec<_> = Kind::ALL
        .iter()
        .filter(|(kind, _)| !sum.coverage.keys().any(|(fired, _)| fired == kind))
        .map(|(kind, _)| kind.name())
        .collect();
    if !silent.is_empty() {
        println!("never fired: {}", silent.join(", "));
    }
    println!("{} passed, {} failed", sum.passed, sum.failed.len());
}

fn table(coverage: &Coverage) {
    print!("{:<18}", "fault");
    for during in During::ALL {
        print!("{:>11}", format!("{during:?}"));
    }
    println!();
    for (kind, _) in Kind::ALL {
        print!("{:<18}", kind.name());
        for during in During::ALL {
            print!("{:>11}", coverage.get(&(*kind, during)).copied().unwrap_or(0));
        }
        println!();
    }
}

/// Whether a planted bug was caught, and by what.
pub fn plant(plant: Plant, what: &str, caught: Option<&Outcome>, budget: u64) {
    match caught.and_then(|outcome| Some((outcome.seed, outcome.violation.as_ref()?))) {
        Some((seed, violation)) => {
            println!("caught  {:<26} seed {seed:<6} {:<12} {what}", plant.name(), violation.property);
        }
        None => println!("missed  {:<26} {budget} seeds{:>13} {what}", plant.name(), ""),
    }
}

/// How many were caught.
pub fn plants(caught: usize, missed: usize) {
    println!("{caught} caught, {missed} missed");
}
