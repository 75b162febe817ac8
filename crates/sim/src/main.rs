//! The command: runs seeds, replays one, or looks which planted bugs are caught.

use std::process::ExitCode;
use std::time::Instant;

use bellwether_core::election::Plant;
use bellwether_sim::options::Options;
use bellwether_sim::output;
use bellwether_sim::run::run;
use bellwether_sim::sweep::{Until, sweep};
use clap::Parser;

/// A third of a run is allocation: objects of the API are trees of small pieces.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Simulates operator and agents, with faults, one seed after another.
#[derive(Parser)]
struct Arguments {
    /// The seeds, such as `0..1000`; the last is not included.
    #[arg(long, default_value = "0..1000", value_parser = seeds)]
    seeds: (u64, u64),
    /// Simulated minutes of each.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(5..=600))]
    minutes: u64,
    /// Threads.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Replays this seed and prints every line.
    #[arg(long)]
    trace: Option<u64>,
    /// Plants this bug.
    #[arg(long, value_parser = plant)]
    plant: Option<Plant>,
    /// Plants each bug in turn and looks whether it is caught.
    #[arg(long)]
    all_plants: bool,
    /// Seeds for each planted bug.
    #[arg(long, default_value_t = 1_000)]
    budget: u64,
    /// Stop after so many failures.
    #[arg(long, default_value_t = 5)]
    failures: usize,
}

fn seeds(text: &str) -> Result<(u64, u64), String> {
    let range = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    range.filter(|(from, to)| from < to).ok_or_else(|| format!("{text:?} is not a range of seeds such as 0..1000"))
}

fn plant(name: &str) -> Result<Plant, String> {
    Plant::named(name).ok_or_else(|| {
        let all: Vec<_> = Plant::ALL.iter().map(|(plant, _)| plant.name()).collect();
        format!("there is no bug called {name:?}; there are {}", all.join(", "))
    })
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A panic is reported with its seed; the default message on every thread would only interrupt.
    std::panic::set_hook(Box::new(|_| {}));
    let options = Options { seed: 0, minutes: arguments.minutes, plant: arguments.plant, trace: false };
    if let Some(seed) = arguments.trace {
        let outcome = run(&Options { seed, trace: true, ..options });
        output::lines(&outcome);
        return if outcome.violation.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if arguments.all_plants {
        return all_plants(&arguments, &options);
    }
    let began = Instant::now();
    let told = |outcome: &bellwether_sim::run::Outcome| {
        // Again, with its lines this time.
        let outcome = run(&Options { seed: outcome.seed, trace: true, ..options });
        output::failure(&outcome, &replay(outcome.seed, &options));
    };
    let range = arguments.seeds.0..arguments.seeds.1;
    let sum = sweep(range, &options, arguments.threads, Until::Failures(arguments.failures), &told);
    output::summary(&sum, began.elapsed(), options.minutes, arguments.threads);
    if sum.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn replay(seed: u64, options: &Options) -> String {
    let plant = options.plant.map(|plant| format!(" --plant {}", plant.name())).unwrap_or_default();
    format!("bellwether-sim --trace {seed} --minutes {}{plant}", options.minutes)
}

fn all_plants(arguments: &Arguments, options: &Options) -> ExitCode {
    let mut missed = 0;
    for (plant, what) in Plant::ALL {
        let options = Options { plant: Some(*plant), ..*options };
        let seeds = arguments.seeds.0..arguments.seeds.0 + arguments.budget;
        let sum = sweep(seeds, &options, arguments.threads, Until::FirstFailure, &|_| {});
        let caught = sum.failed.values().next();
        missed += usize::from(caught.is_none());
        output::plant(*plant, what, caught, arguments.budget);
    }
    output::plants(Plant::ALL.len() - missed, missed);
    ExitCode::SUCCESS
}
