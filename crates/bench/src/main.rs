//! Prints the figures that Bellwether is held to, measured on the shipped binary: size, start-up, apply → Ready, memory at
//! rest, API writes at idle; after the word `backup`, what backups cost beside their peers. Figures are printed against their goals, never asserted: machines
//! differ.

mod backup;
mod idle;
mod process;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// How often start-up is measured.
const STARTS: usize = 25;
/// How often a cluster is created.
const TRIALS: usize = 5;
/// How long API writes are counted for unless `IDLE` says otherwise.
const IDLE_SECONDS: u64 = 600;

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The call is wrong.
    #[error(
        "usage: bellwether-bench [backup] PATH-OF-THE-BINARY (IDLE=seconds in the environment; of backups see hack/bench-backup)"
    )]
    Usage,
    /// A program did not do its work.
    #[error("{what}: {why}")]
    Failed {
        /// What was tried.
        what: String,
        /// What happened instead.
        why: String,
    },
}

/// The error for something that went wrong while `what` was tried.
pub fn failed(what: &str, why: impl std::fmt::Display) -> BenchError {
    BenchError::Failed { what: what.to_owned(), why: why.to_string() }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "bench: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), BenchError> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let backups = arguments.next_if(|first| first == "backup").is_some();
    let binary = arguments.next().map(PathBuf::from).ok_or(BenchError::Usage)?;
    if backups {
        return backup::measure(&binary).await;
    }
    let idle = match std::env::var("IDLE") {
        Ok(text) => text.parse().map_err(|_| failed("IDLE", format!("{text:?} is not a number of seconds")))?,
        Err(_) => IDLE_SECONDS,
    };
    let size = std::fs::metadata(&binary).map_err(|error| failed("binary", error))?.len();
    figure("binary size", format!("{:.1} MiB", mebibytes(size)), "");
    figure("start-up (`version`)", format!("{:.1} ms p50 of {STARTS}", start_up(&binary)?), "");
    let mut ready = apply_to_ready(&binary)?;
    ready.sort_by(f64::total_cmp);
    let range = format!("{:.2} s p50, {:.2} s max of {TRIALS}", ready[ready.len() / 2], ready[ready.len() - 1]);
    figure("apply → Ready, 3 instances", range, "< 8 s");
    idle::measure(&binary, Duration::from_secs(idle)).await
}

/// Prints one line of the table.
#[expect(clippy::print_stdout, reason = "the table is what this program is for")]
pub fn figure(what: &str, measured: impl std::fmt::Display, goal: &str) {
    let goal = if goal.is_empty() { String::new() } else { format!("(goal {goal})") };
    println!("{what:<34} {measured:<32} {goal}");
}

/// For people.
pub fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn start_up(binary: &Path) -> Result<f64, BenchError> {
    let mut taken = vec![];
    for _ in 0..STARTS {
        let began = Instant::now();
        let status = Command::new(binary).arg("version").stdout(Stdio::null()).status();
        let status = status.map_err(|error| failed("bellwether version", error))?;
        if !status.success() {
            return Err(failed("bellwether version", status));
        }
        taken.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    taken.sort_by(f64::total_cmp);
    Ok(taken[STARTS / 2])
}

fn apply_to_ready(binary: &Path) -> Result<Vec<f64>, BenchError> {
    let trial = || {
        let output = Command::new(binary).args(["try", "--json"]).stdin(Stdio::null()).output();
        let output = output.map_err(|error| failed("bellwether try", error))?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            return Err(failed("bellwether try", text));
        }
        let answer: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| failed("the answer of bellwether try", error))?;
        let seconds = answer["figures"]["applyToReadySeconds"].as_f64();
        seconds.ok_or_else(|| failed("bellwether try", "no figures.applyToReadySeconds in its answer"))
    };
    (0..TRIALS).map(|_| trial()).collect()
}
