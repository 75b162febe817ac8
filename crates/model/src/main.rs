//! `bellwether-model`: explores the election, or finds planted bugs in it.

#![allow(clippy::print_stdout, reason = "this is the program's output module")]

use std::process::ExitCode;
use std::time::Instant;

use bellwether_core::election::{Durability, Plant};
use bellwether_model::act::{Arrival, Rules};
use bellwether_model::explore::{Limits, Report, explore};
use bellwether_model::scenario::{Beginning, Bounds, STEADY, begin, settings};
use bellwether_model::trace::tell;
use clap::Parser;

/// Explores the election exhaustively within bounds.
#[derive(Parser)]
struct Arguments {
    /// Faults in one run.
    #[arg(long, default_value_t = 1)]
    faults: u8,
    /// Ticks.
    #[arg(long, default_value_t = 12)]
    horizon: u8,
    /// Commits of clients in one run.
    #[arg(long, default_value_t = 1)]
    commits: u8,
    /// End after so many states.
    #[arg(long, default_value_t = u64::MAX)]
    states: u64,
    /// Plant this bug.
    #[arg(long)]
    plant: Option<String>,
    /// Plant every bug in turn, and say which are found.
    #[arg(long)]
    all_plants: bool,
    /// Begin with an instance that joins, instead of a settled cluster.
    #[arg(long)]
    joining: bool,
    /// Packets of different senders arrive in a fixed order; to overtake costs a fault.
    #[arg(long)]
    fixed: bool,
    /// Replicate asynchronously.
    #[arg(long)]
    asynchronous: bool,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Keep the way to each state, so that a violation comes with its trace. Needs twice the memory.
    #[arg(long)]
    traces: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.all_plants {
        return all_plants(&arguments);
    }
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
    let began = Instant::now();
    let report = run(&arguments, plant, arguments.faults);
    print(&report, began);
    match &report.violation {
        Some((violation, steps)) => {
            println!("{}", tell(violation, steps));
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

fn run(arguments: &Arguments, plant: Option<Plant>, faults: u8) -> Report {
    let durability = if arguments.asynchronous { Durability::Async } else { Durability::Quorum };
    let arrival = if arguments.fixed { Arrival::Fixed } else { Arrival::Free };
    let rules = Rules { settings: settings(durability, plant), arrival };
    let bounds = Bounds { horizon: arguments.horizon, faults, commits: arguments.commits };
    let beginning = if arguments.joining { Beginning::Joining } else { Beginning::Settled };
    let limits =
        Limits { states: arguments.states, traces: arguments.traces || plant.is_some(), threads: arguments.threads };
    match begin(beginning, bounds, &rules) {
        Ok(world) => explore(&world, STEADY + bounds.horizon, &rules, limits),
        Err(violation) => Report { violation: Some((violation, vec![])), ..Report::default() },
    }
}

fn print(report: &Report, began: Instant) {
    println!(
        "{} states, {} moves, depth {}, {:.1} s, {} MiB; highest term {}, {} states after a failover; {}",
        report.states,
        report.moves,
        report.depth,
        began.elapsed().as_secs_f64(),
        peak_memory(),
        report.highest_term,
        report.failovers,
        match (&report.violation, report.closed) {
            (Some(_), _) => "VIOLATED",
            (None, true) => "closed: no violation",
            (None, false) => "not closed: the limit of states was reached without a violation",
        }
    );
}

fn all_plants(arguments: &Arguments) -> ExitCode {
    let mut missed = 0;
    for (plant, what) in Plant::ALL {
        let began = Instant::now();
        let report = run(arguments, Some(*plant), arguments.faults);
        match &report.violation {
            Some((violation, _)) => println!(
                "found      {:26} {:3} steps {:9} states {:5.1} s  {}  ({what})",
                plant.name(),
                report.depth,
                report.states,
                began.elapsed().as_secs_f64(),
                violation.0
            ),
            None => {
                missed += 1;
                println!(
                    "NOT FOUND  {:26}           {:9} states {:5.1} s  {}  ({what})",
                    plant.name(),
                    report.states,
                    began.elapsed().as_secs_f64(),
                    if report.closed { "closed" } else { "not closed" }
                );
            }
        }
    }
    println!("{} found, {missed} not found", Plant::ALL.len() - missed);
    ExitCode::SUCCESS
}

/// The most memory this process has had, in MiB; zero where the system doesn't say.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}
