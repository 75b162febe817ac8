//! `bellwether-chaos`: hurts a cluster on this machine for some minutes, by seed, and prints what it cost.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use bellwether_core::election::Settings;
use chaos::embedded::{Outcome, PATIENCE, Site, SiteError};
use chaos::fault::Fault;
use chaos::record::{Record, Told};
use chaos::{overload, plan, record, report};
use clap::{Parser, Subcommand};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};

/// `bellwether up` stops three PostgreSQL in order within this.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// Hurts a running cluster at random, by seed, and counts what was lost and for how long nobody could write.
#[derive(Debug, Parser)]
#[command(name = "bellwether-chaos")]
struct Options {
    #[command(subcommand)]
    command: Chosen,
}

#[derive(Debug, Subcommand)]
enum Chosen {
    /// Starts a cluster on this machine, and hurts it.
    Embedded(Embedded),
    /// Starts a cluster on this machine, keeps everything busy, and says how close its primary came to losing its lead.
    Overload(Overload),
    /// Prints a table for each file of records.
    Table {
        /// Files with records.
        #[arg(required = true)]
        records: Vec<PathBuf>,
    },
}

#[derive(Debug, clap::Args)]
struct Embedded {
    /// The `bellwether` to try.
    #[arg(long, value_name = "FILE")]
    program: PathBuf,
    /// For how long. A round that has begun is ended.
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// No more rounds than this.
    #[arg(long)]
    rounds: Option<u64>,
    /// Chooses what is done. The same seed goes on where its records end.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Only these, in turn.
    #[arg(long, value_name = "FAULT", value_delimiter = ',', value_parser = known)]
    faults: Vec<Fault>,
    /// Where records are appended.
    #[arg(long, value_name = "FILE")]
    records: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Overload {
    /// The `bellwether` to try.
    #[arg(long, value_name = "FILE")]
    program: PathBuf,
    /// For how long.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Threads that compute, beside the server's own sessions.
    #[arg(long, default_value_t = 2)]
    busy: usize,
    /// Threads that write to the disk and flush it.
    #[arg(long, default_value_t = 2)]
    writers: usize,
}

fn known(name: &str) -> Result<Fault, String> {
    let all = || Fault::EMBEDDED.iter().map(|fault| fault.name()).collect::<Vec<_>>().join(", ");
    Fault::named(name).filter(|fault| Fault::EMBEDDED.contains(fault)).ok_or_else(|| format!("there are: {}", all()))
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Options::parse().command {
        Chosen::Embedded(options) => embedded(&options).await,
        Chosen::Overload(options) => overloaded(&options).await,
        Chosen::Table { records } => table(&records),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("error: {error}"));
            ExitCode::from(2)
        }
    }
}

fn table(files: &[PathBuf]) -> Result<bool, SiteError> {
    for file in files {
        say(&format!("`{}`:\n", file.display()));
        say(&report::table(&record::read(file)?));
    }
    Ok(true)
}

async fn embedded(options: &Embedded) -> Result<bool, SiteError> {
    let before = record::read(&options.records)?.into_iter().filter(|record| record.seed == options.seed);
    let first = before.map(|record| record.round + 1).max().unwrap_or(0);
    // Before anything is started that would outlive us.
    let ended = asked_to_end()?;
    let directory = tempfile::Builder::new().prefix("bellwether-chaos-").tempdir()?;
    let up = Up::start(&options.program, directory.path())?;
    let done = tokio::select! {
        done = rounds(options, first, &up, directory.path()) => done?,
        signal = ended => return Err(SiteError::Wrong(format!("ended by {signal}; the seed goes on where its records end"))),
    };
    // Nobody may write there any more when it is removed.
    drop(up);
    if done == Done::Stuck {
        say(&format!("everything is kept in {}", directory.keep().display()));
    }
    Ok(done == Done::Clean)
}

/// Whether it kept its lead.
async fn overloaded(options: &Overload) -> Result<bool, SiteError> {
    let ended = asked_to_end()?;
    let directory = tempfile::Builder::new().prefix("bellwether-overload-").tempdir()?;
    let up = Up::start(&options.program, directory.path())?;
    let lasting = Duration::from_secs(60 * options.minutes);
    let load = overload::Load { lasting, busy: options.busy, writers: options.writers };
    let run = async {
        let site = Site { client: up.client(directory.path()).await?, up: up.pid() };
        overload::run(&site, load, &directory.path().join("data").join("logs"), directory.path()).await
    };
    let told = tokio::select! {
        told = run => told?,
        signal = ended => return Err(SiteError::Wrong(format!("ended by {signal}"))),
    };
    let settings = Settings::default();
    let (minutes, moved, flushed) = (options.minutes, told.after - told.before, told.flushed);
    let killed = told.killed;
    say(&format!(
        "overloaded for {minutes} min, {flushed} MiB flushed beside it: the lead moved {moved} times, {killed} servers were killed as stuck"
    ));
    let promise = settings.promise.0;
    match told.least {
        Some(least) => say(&format!(
            "of tenure, {least} ms were left at least when it was extended: a promise of {} ms instead of {promise} ms would \
             have left nothing",
            promise - least.min(promise)
        )),
        None => say(&format!("tenure was always extended in time to spare (promise of {promise} ms)")),
    }
    Ok(moved == 0 && killed == 0)
}

/// How rounds ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    /// Nothing is proven against the cluster.
    Clean,
    /// Something is.
    Lied,
    /// A round did not come to its end.
    Stuck,
}

/// Rounds from this one on, until there were enough.
async fn rounds(options: &Embedded, first: u64, up: &Up, directory: &Path) -> Result<Done, SiteError> {
    let (began, limit) = (Instant::now(), Duration::from_secs(60 * options.minutes));
    let site = Site { client: up.client(directory).await?, up: up.pid() };
    say(&format!("seed {}, from round {first}", options.seed));
    let (mut done, mut clean) = (vec![], true);
    for number in first.. {
        if began.elapsed() > limit || options.rounds.is_some_and(|rounds| done.len() as u64 >= rounds) {
            break;
        }
        let round = match options.faults.get(usize::try_from(number).unwrap_or(0) % options.faults.len().max(1)) {
            Some(fault) => plan::Round { faults: vec![*fault], apart: Duration::ZERO },
            None => plan::round(options.seed, number, &Fault::EMBEDDED),
        };
        let at = jiff::Timestamp::now();
        let outcome = match site.round(&round.faults, round.apart).await {
            Ok(outcome) => outcome,
            Err(error) => {
                say(&format!("round {number}: {:?}: {error}", round.faults));
                return Ok(Done::Stuck);
            }
        };
        let record = recorded(options.seed, number, at, round.faults, &outcome)?;
        record.append(&options.records)?;
        say(&record.line());
        clean &= record.told.is_clean();
        done.push(record);
    }
    say(&report::table(&done));
    Ok(if clean { Done::Clean } else { Done::Lied })
}

/// What somebody sends who wants this to end. From here on it does not end the process by itself.
fn asked_to_end() -> std::io::Result<impl Future<Output = &'static str>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
        }
    })
}

fn recorded(
    seed: u64,
    round: u64,
    at: jiff::Timestamp,
    faults: Vec<Fault>,
    outcome: &Outcome,
) -> Result<Record, SiteError> {
    let verdict = serde_json::to_value(&outcome.verdict).map_err(std::io::Error::from)?;
    Ok(Record {
        home: "embedded".to_owned(),
        seed,
        round,
        at,
        faults,
        before: outcome.before.clone(),
        after: outcome.after.clone(),
        told: Told::read(&verdict),
        ready_seconds: outcome.ready.as_secs_f64(),
    })
}

/// `bellwether up`, which ends with this.
struct Up(Child);

impl Up {
    fn start(program: &Path, directory: &Path) -> Result<Self, SiteError> {
        let log = std::fs::File::create(directory.join("up.out"))?;
        let mut command = Command::new(program);
        command.arg("up").arg("--data-dir").arg(directory.join("data")).args(["--replicas", "3"]);
        command.stdin(Stdio::null()).stderr(log.try_clone()?).stdout(log);
        Ok(Self(command.spawn()?))
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap_or_default()
    }

    /// One that is gone already needs no signal.
    fn send(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.pid()), signal);
    }

    async fn client(&self, directory: &Path) -> Result<kube::Client, SiteError> {
        let began = Instant::now();
        loop {
            let kubeconfig = directory.join("data").join("kubeconfig");
            if let Ok(client) = bellwether_runtime::client::from_kubeconfig(&kubeconfig).await {
                return Ok(client);
            }
            if began.elapsed() > PATIENCE {
                return Err(SiteError::TooLate("the API answers".to_owned()));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // A round may have been left while it was frozen.
        self.send(Signal::SIGCONT);
        self.send(Signal::SIGTERM);
        let asked = Instant::now();
        while asked.elapsed() < ENDS_WITHIN {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        // Agents that were left frozen don't stop when they are asked; the second time nobody is waited for.
        self.send(Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

#[expect(clippy::print_stdout, reason = "a command's output")]
fn say(text: &str) {
    println!("{text}");
}
