//! The step between guard and PostgreSQL: asks the kernel to kill this process when its parent dies, then becomes the
//! program. `fork` and `exec` can't be told apart safely in one process that has threads; a process of its own can.
//!
//! Never: a program that runs without that promise. The guard may die between `fork` and the request, so it is checked after.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::sys::signal::Signal;

/// The hidden role's name: `bellwether guard-exec <pid of the guard> <program> <arguments…>`.
pub const ROLE: &str = "guard-exec";

/// PostgreSQL yields to the agent beside it in the container: with a hundred sessions that compute, one that wants to renew its tenure
/// is still next. Of what other containers get it takes nothing away: between them the CPU is divided before.
const YIELDING: i32 = 5;

/// Becomes the program given in `args`, after the pid of the guard.
pub fn main(args: &[String]) -> ExitCode {
    let why = match args {
        [guard, program, arguments @ ..] => match promise_to_die_with(guard) {
            Ok(()) => {
                // Where it can't be had, PostgreSQL runs as it is.
                let _ = rustix::process::nice(YIELDING);
                Command::new(program).args(arguments).exec().to_string()
            }
            Err(why) => why,
        },
        _ => "a guard and a program are needed".to_owned(),
    };
    let _ = writeln!(std::io::stderr(), "bellwether guard-exec: {why}");
    ExitCode::from(127)
}

fn promise_to_die_with(guard: &str) -> Result<(), String> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(|errno| format!("parent-death signal: {errno}"))?;
    let parent = nix::unistd::getppid();
    if parent.to_string() == guard { Ok(()) } else { Err(format!("the guard {guard} is gone; parent is {parent}")) }
}
