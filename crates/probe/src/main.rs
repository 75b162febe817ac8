//! `bellwether-probe`: run, check, report.

mod args;
mod failure;
mod output;

use std::io::BufRead as _;
use std::process::ExitCode;

use clap::Parser as _;
use probe::check::{Rules, Verdict};
use probe::history;
use probe::{History, Probe, check, finals};
use tokio::signal::unix::{SignalKind, signal};

use args::{Cli, Command, Form};
use failure::{FAILED, Failure, code_of};

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(run) => write(&run).await,
        Command::Check(check) => judge(&check).await,
        Command::Report(report) => tell(&report),
    };
    done.unwrap_or_else(|failure| {
        output::error(&failure.to_string());
        ExitCode::from(FAILED)
    })
}

async fn write(run: &args::Run) -> Result<ExitCode, Failure> {
    let probe = Probe::start(run.settings()?).await?;
    output::note(&format!("run {}", probe.name()));
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        () = over(run, &probe) => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    let history = probe.stop().await?;
    output::summary(&check(&[history], &[], &Rules::default())?);
    Ok(ExitCode::SUCCESS)
}

/// Waits for the run's end. What is said on standard input meanwhile is noted.
async fn over(run: &args::Run, probe: &Probe) {
    if let Some(duration) = run.duration {
        return tokio::time::sleep(duration).await;
    }
    // A thread of its own: nobody can wait for standard input and be called off, and the process ends without it.
    let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let mut said = std::io::stdin().lock().lines().map_while(Result::ok);
        said.all(|line| sender.send(line).is_ok())
    });
    while let Some(line) = lines.recv().await {
        probe.mark(line);
    }
}

async fn judge(asked: &args::Check) -> Result<ExitCode, Failure> {
    let histories = read(&asked.histories)?;
    let access = asked.way.access()?;
    let instances = asked.instances(&access)?;
    let runs: Vec<_> = histories.iter().map(|history| history.run().to_owned()).collect();
    let tables = finals(&access, &runs, &instances, asked.way.deadlines(), asked.wait).await;
    let verdict = check(&histories, &tables, &rules(asked.form))?;
    Ok(conclude(&verdict, asked.form))
}

fn tell(report: &args::Report) -> Result<ExitCode, Failure> {
    let verdict = check(&read(&report.histories)?, &[], &rules(report.form))?;
    Ok(conclude(&verdict, report.form))
}

fn conclude(verdict: &Verdict, form: Form) -> ExitCode {
    if form.json {
        output::json(verdict);
    } else {
        output::verdict(verdict);
    }
    code_of(verdict.conclusion)
}

fn rules(form: Form) -> Rules {
    Rules { least_rate: form.least_rate, ..Rules::default() }
}

fn read(paths: &[std::path::PathBuf]) -> Result<Vec<History>, Failure> {
    paths.iter().map(|path| history::read(path).map_err(Failure::from)).collect()
}
