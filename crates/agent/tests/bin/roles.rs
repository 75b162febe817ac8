//! The agent's roles by themselves, so that the tests of this crate can start (and kill) them as processes; and one more,
//! `supervise <grace seconds> <program> <arguments…>`: the part of an agent that has PostgreSQL under it, without Kubernetes. It
//! takes deadlines from standard input: lines of milliseconds from now, or `never`.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use bellwether_agent::guard::orders::End;
use bellwether_agent::postmaster::{Launch, Postmaster};
use bellwether_agent::process::reaper::{self, Children};
use bellwether_agent::signals::Signals;
use bellwether_agent::{agent, archive, clock, guard, restore};
use bellwether_core::election::{Deadline, Span};
use tokio::io::AsyncBufReadExt as _;
use tokio::sync::{mpsc, watch};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        Some((role, rest)) if role == guard::ROLE => guard::main(rest),
        Some((role, rest)) if role == guard::exec::ROLE => guard::exec::main(rest),
        Some((role, rest)) if role == archive::command::ROLE => archive::command::main(rest),
        Some((role, rest)) if role == archive::restore_wal::ROLE => archive::restore_wal::main(rest),
        Some((role, rest)) if role == restore::unpack::ROLE => restore::unpack::main(rest),
        Some((role, _)) if role == archive::process::ROLE => archive::process::main(),
        Some((role, rest)) if role == "supervise" => supervise(rest),
        _ => agent::main(),
    }
}

fn supervise(args: &[String]) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let end = runtime.block_on(run(args));
    say(&format!("end {end:?}"));
    if end == End::Code(0) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run(args: &[String]) -> End {
    let [grace, program, arguments @ ..] = args else { panic!("supervise <grace> <program> …") };
    nix::sys::prctl::set_child_subreaper(true).expect("a subreaper");
    let grace = Duration::from_secs(grace.parse().expect("seconds"));
    let (stop, mut stopping) = watch::channel(None);
    tokio::spawn(Signals::catch().expect("signals").publish(grace, stop));
    let children = Children::default();
    tokio::spawn(reaper::reap_for_ever(children.clone()));
    let launch = Launch {
        guard: std::env::current_exe().expect("ourselves"),
        lock: "postgres.lock".into(),
        program: program.into(),
        arguments: arguments.iter().map(Into::into).collect(),
        environment: &[],
    };
    let log = |stderr: tokio::io::BufReader<tokio::process::ChildStderr>| {
        tokio::spawn(async move {
            let mut lines = stderr.lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let _ = writeln!(std::io::stderr(), "{line}");
            }
        });
    };
    let mut postmaster = Postmaster::start(&launch, &children, log).await.expect("a guard");
    let mut deadlines = deadlines();
    say("running");
    let request = loop {
        tokio::select! {
            end = postmaster.ended() => {
                if postmaster.expired() {
                    say("expired");
                }
                return end;
            }
            Some(deadline) = deadlines.recv() => {
                postmaster.guard_until(deadline).await;
                say("noted");
            }
            Ok(request) = stopping.wait_for(Option::is_some) => break *request,
        }
    };
    postmaster.stop(&mut stopping, request.expect("a request")).await
}

fn deadlines() -> mpsc::Receiver<Deadline> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let deadline = match line.as_str() {
                "never" => Deadline::Never,
                span => Deadline::At(clock::now().expect("a clock").plus(Span(span.parse().expect("milliseconds")))),
            };
            let _ = sender.blocking_send(deadline);
        }
    });
    receiver
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("standard output");
}
