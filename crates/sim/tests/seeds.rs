//! Seeds that always run, seeds that never ran before, and the proof that a seed is a run.

#![expect(clippy::print_stdout, reason = "a fresh seed must be known to whoever reads a failure")]

use bellwether_core::election::Plant;
use bellwether_sim::fault::Kind;
use bellwether_sim::options::Options;
use bellwether_sim::run::run;
use bellwether_sim::sweep::{Sum, Until, sweep};

/// Five simulated minutes: a hundred seconds of faults, and the time to come back from them.
const MINUTES: u64 = 5;

fn runs(seeds: std::ops::Range<u64>, plant: Option<Plant>) -> Sum {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let until = if plant.is_some() { Until::FirstFailure } else { Until::All };
    sweep(seeds, &Options { minutes: MINUTES, plant, ..Options::seed(0) }, threads, until, &|_| {})
}

fn all_pass(sum: &Sum) {
    let broken: Vec<_> = sum
        .failed
        .values()
        .filter_map(|outcome| outcome.violation.as_ref().map(|violation| (outcome.seed, violation)))
        .map(|(seed, violation)| {
            format!(
                "{}: {}; replay: bellwether-sim --trace {seed} --minutes {MINUTES}",
                violation.property, violation.how
            )
        })
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Unoptimised, the same seeds take ten times as long: then fewer run, and the suite that counts is the optimised one.
fn scaled(seeds: u64) -> u64 {
    if cfg!(debug_assertions) { seeds / 25 } else { seeds }
}

#[test]
fn the_same_seeds_as_ever_keep_every_promise_under_every_fault() {
    let sum = runs(0..scaled(300), None);
    all_pass(&sum);
    println!("{} passed", sum.passed);
    let fired = |kind: &Kind| sum.coverage.keys().any(|(fired, _)| fired == kind);
    let silent: Vec<_> = Kind::ALL.iter().map(|(kind, _)| kind).filter(|kind| !fired(kind)).collect();
    assert!(silent.is_empty() || cfg!(debug_assertions), "these faults never fired: {silent:?}");
}

#[test]
fn seeds_that_never_ran_before_keep_every_promise() {
    // The only use of a real clock: it chooses which seeds, and says so.
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let first = since.as_secs() * 1_000;
    println!("seeds from {first}");
    all_pass(&runs(first..first + scaled(200), None));
}

/// What each of them showed is in `docs/proof/simulation.md`.
#[test]
fn seeds_that_once_broke_a_promise_keep_it() {
    for seed in [
        152, 1017, 1859, 2001, 2097, 7_532, 7_925, 14_730, 15_053, 15_371, 15_704, 22_023, 41_834, 47_183, 52_197,
        61_578, 72_242, 80_243, 81_849, 82_786,
    ] {
        all_pass(&runs(seed..seed + 1, None));
    }
}

#[test]
fn a_seed_is_a_run_byte_for_byte() {
    for seed in 0..scaled(100).max(3) {
        let options = Options { minutes: MINUTES, trace: true, ..Options::seed(seed) };
        let (one, two) = (run(&options), run(&options));
        assert_eq!(one.lines, two.lines, "seed {seed}");
        assert_eq!((one.digest, one.events), (two.digest, two.events), "seed {seed}");
    }
}

#[test]
fn a_planted_bug_breaks_a_promise() {
    for plant in [Plant::CampaignWithoutWait, Plant::QuorumIgnored] {
        // From where on a few are enough to show both.
        let sum = runs(120..120 + scaled(500).max(40), Some(plant));
        assert!(!sum.failed.is_empty(), "{plant:?} was not caught");
    }
}

/// Mistakes that we made in the shell, which the exploration does not have, each with a seed that shows it. What a seed shows changes with every request that
/// operator and agents make; `bellwether-sim --plant` finds another.
#[test]
fn our_own_bugs_planted_again_break_the_promise_that_they_broke() {
    let shown = [
        (Plant::SameLeaderNotCompared, 17),
        (Plant::EarlierFollowerCounted, 33),
        (Plant::HistoryOfEarlierTerm, 83),
        (Plant::LaterTermNotKept, 939),
    ];
    for (plant, seed) in shown {
        let sum = runs(seed..seed + 1, Some(plant));
        assert_eq!(sum.failed.len(), 1, "{plant:?} was not caught");
    }
}
