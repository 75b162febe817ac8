//! `bellwether-model`: explores the election, or finds planted bugs in it.

#![allow(clippy::print_stdout, reason = "this is the program's output module")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bellwether_core::election::Plant;
use bellwether_model::explore::{Limits, Report, explore};
use bellwether_model::plants::{Expected, expected};
use bellwether_model::scenario::{SCENARIOS, Scenario, When, begin};
use bellwether_model::trace::tell;
use bellwether_model::walk::walk;
use clap::Parser;

/// A third of an exploration is allocation: each state is a few small pieces of its own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Explores the election exhaustively within bounds.
#[derive(Parser)]
struct Arguments {
    /// Only this scenario.
    #[arg(long)]
    scenario: Option<String>,
    /// Every scenario, also those that take minutes of their own.
    #[arg(long)]
    all: bool,
    /// Faults in one run, instead of the scenario's.
    #[arg(long)]
    faults: Option<u8>,
    /// Ticks, instead of the scenario's; 0: until there are no more states.
    #[arg(long)]
    horizon: Option<u8>,
    /// Commits of clients in one run, instead of the scenario's.
    #[arg(long)]
    commits: Option<u8>,
    /// End each exploration after so many states.
    #[arg(long, default_value_t = u64::MAX)]
    states: u64,
    /// Plant this bug.
    #[arg(long)]
    plant: Option<String>,
    /// Plant every bug in turn, and say which are found.
    #[arg(long)]
    all_plants: bool,
    /// Random walks instead of an exploration.
    #[arg(long)]
    walks: Option<u64>,
    /// The seed of the walks.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Keep the way to each state, so that a violation comes with its trace. Needs twice the memory.
    #[arg(long)]
    traces: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let plant = match arguments.plant.as_deref().map(|name| (name, Plant::named(name))) {
        None => None,
        Some((_, Some(plant))) => Some(plant),
        Some((name, None)) => {
            println!("there is no bug named {name:?}; there are:");
            for (plant, what) in Plant::ALL {
                println!("  {:26} {what}", plant.name());
            }
            return ExitCode::FAILURE;
        }
    };
    let scenarios: Vec<Scenario> = match arguments.scenario.as_deref() {
        None => SCENARIOS.iter().copied().filter(|one| arguments.all || one.when == When::Always).collect(),
        Some(name) => match Scenario::named(name) {
            Some(scenario) => vec![scenario],
            None => {
                println!("there is no scenario named {name:?}; there are:");
                SCENARIOS.iter().for_each(|one| println!("  {:16} {}", one.name, one.about));
                return ExitCode::FAILURE;
            }
        },
    };
    if arguments.all_plants {
        return all_plants(&arguments);
    }
    let mut ok = true;
    let chosen = arguments.faults.is_some() || arguments.commits.is_some() || plant.is_some();
    for scenario in scenarios.iter().flat_map(|one| if chosen { vec![*one] } else { one.explorations() }) {
        let began = Instant::now();
        let scenario = bounded(scenario, &arguments);
        let report = run(&scenario, &arguments, plant);
        print(&scenario, plant, &report, began);
        ok &= report.closed && report.violation.is_none();
        if let Some((violation, steps)) = &report.violation {
            println!("{}", tell(violation, steps));
        }
    }
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Every planted bug in the scenario that is to find it, or that it is harmless in.
fn all_plants(arguments: &Arguments) -> ExitCode {
    let mut unexpected = 0;
    for (plant, what) in Plant::ALL {
        let (name, harmless) = match expected(*plant) {
            Expected::FoundIn(name) => (name, false),
            Expected::Harmless(name) => (name, true),
            Expected::Simulated => {
                println!("{:26} in the shell: the simulator finds it", plant.name());
                continue;
            }
            Expected::Played => {
                println!("{:26} played in tests/counterexamples.rs", plant.name());
                continue;
            }
        };
        let Some(scenario) = Scenario::named(name) else { continue };
        let began = Instant::now();
        let scenario = bounded(scenario, arguments);
        let report = run(&scenario, arguments, Some(*plant));
        print(&scenario, Some(*plant), &report, began);
        if report.violation.is_none() != harmless || harmless && !report.closed {
            unexpected += 1;
            println!("  NOT AS EXPECTED: {what}");
        }
    }
    println!("{} planted, {unexpected} not as expected", Plant::ALL.len());
    if unexpected == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn bounded(scenario: Scenario, arguments: &Arguments) -> Scenario {
    Scenario {
        faults: arguments.faults.unwrap_or(scenario.faults),
        commits: arguments.commits.unwrap_or(scenario.commits),
        horizon: arguments.horizon.map_or(scenario.horizon, |ticks| Some(ticks).filter(|ticks| *ticks > 0)),
        ..scenario
    }
}

fn run(scenario: &Scenario, arguments: &Arguments, plant: Option<Plant>) -> Report {
    let rules = scenario.rules(plant);
    let limits = Limits {
        states: arguments.states,
        traces: arguments.traces || plant.is_some(),
        threads: arguments.threads,
        progress: Some(progress),
    };
    let world = match begin(scenario, &rules) {
        Ok(world) => world,
        Err(violation) => return Report { violation: Some((violation, vec![])), ..Report::default() },
    };
    match arguments.walks {
        Some(walks) => {
            let violation = walk(&world, &rules, walks, 200, arguments.seed);
            let depth = violation.as_ref().map_or(0, |(_, steps)| steps.len() as u32);
            Report { violation, depth, ..Report::default() }
        }
        None => explore(&world, &rules, limits),
    }
}

/// A line every few million states, for whoever waits.
#[allow(clippy::print_stderr, reason = "progress is for a person, the result is on standard output")]
fn progress(report: &Report, next: usize) {
    const EVERY: u64 = 2_000_000;
    static TOLD: AtomicU64 = AtomicU64::new(0);
    let now = report.states / EVERY;
    if now > 0 && TOLD.swap(now, Ordering::Relaxed) != now {
        eprintln!("  … {} states, depth {}, {next} at the next, {} MiB", report.states, report.depth, peak_memory());
    }
}

fn print(scenario: &Scenario, plant: Option<Plant>, report: &Report, began: Instant) {
    let plant = plant.map(|plant| format!("{:26} ", plant.name())).unwrap_or_default();
    println!(
        "{plant}{:12} {} faults, {} commits: {} states, {} moves, depth {}, {:.1} s, {} MiB; highest term {}; {}",
        scenario.name,
        scenario.faults,
        scenario.commits,
        report.states,
        report.moves,
        report.depth,
        began.elapsed().as_secs_f64(),
        peak_memory(),
        report.highest_term,
        match (&report.violation, report.closed) {
            (Some((violation, _)), _) => &violation.0,
            (None, true) => "closed: no violation",
            (None, false) => "not closed",
        }
    );
}

/// The most memory this process has had, in MiB; zero where the system doesn't say.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}
