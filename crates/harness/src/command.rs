//! Running a program to its end, and waiting for a condition: both with a deadline, both with something to read when it fails.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, tail};

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(50);

/// A program to run once.
pub struct Run {
    command: Command,
    shown: String,
    input: Option<String>,
    deadline: Duration,
}

impl Run {
    /// `program arguments…`, with ten seconds to finish.
    pub fn new<I, A>(program: impl AsRef<std::ffi::OsStr>, arguments: I) -> Run
    where
        I: IntoIterator<Item = A>,
        A: AsRef<std::ffi::OsStr>,
    {
        let mut command = Command::new(program.as_ref());
        command.args(arguments).stdin(Stdio::null());
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let shown = words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ");
        Run { command, shown, input: None, deadline: Duration::from_secs(10) }
    }

    /// The same, from one line without quoting: for commands whose words have no spaces.
    pub fn line(line: &str) -> Run {
        let mut words = line.split_whitespace();
        Run::new(words.next().unwrap_or_default(), words)
    }

    /// The time it has.
    pub fn within(mut self, deadline: Duration) -> Run {
        self.deadline = deadline;
        self
    }

    /// What it reads.
    pub fn input(mut self, text: impl Into<String>) -> Run {
        self.input = Some(text.into());
        self
    }

    /// An environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Run {
        self.command.env(name, value);
        self
    }

    /// Where it runs.
    pub fn directory(mut self, path: &Path) -> Run {
        self.command.current_dir(path);
        self
    }

    /// Runs it; its standard output if it succeeds.
    pub fn output(mut self) -> Result<String, Error> {
        let failed = |outcome: String, output: String| Error::Command { command: self.shown.clone(), outcome, output };
        if self.input.is_some() {
            self.command.stdin(Stdio::piped());
        }
        let mut child = self
            .command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(format!("can't be started: {error}"), String::new()))?;
        let writer = self.input.take().zip(child.stdin.take()).map(|(text, mut pipe)| {
            // The reader may end before it has read all; its exit status says more than the broken pipe.
            thread::spawn(move || drop(pipe.write_all(text.as_bytes())))
        });
        let out = child.stdout.take().map(collect);
        let err = child.stderr.take().map(collect);
        let ended = wait_for_exit(&mut child, self.deadline);
        if ended.is_none() {
            // An error means that it has ended by itself this very moment.
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(writer) = writer {
            let _ = writer.join();
        }
        let Some(status) = ended else {
            return Err(failed(format!("still running after {} s", self.deadline.as_secs()), String::new()));
        };
        let read = |thread: Option<thread::JoinHandle<String>>| thread.and_then(|t| t.join().ok()).unwrap_or_default();
        let (out, err) = (read(out), read(err));
        if status.success() { Ok(out) } else { Err(failed(status.to_string(), tail(&format!("{out}{err}"), 25))) }
    }

    /// Starts it and leaves it running; its input is written line by line.
    pub fn start(mut self) -> Result<Started, Error> {
        let failed = |why: String| Error::Command { command: self.shown.clone(), outcome: why, output: String::new() };
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().map_err(|error| failed(format!("can't be started: {error}")))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (input, Some(out), Some(err)) = pipes else { return Err(failed("has no pipes".to_owned())) };
        Ok(Started { shown: self.shown, input, out: Some(collect(out)), err: Some(collect(err)), child })
    }

    /// Runs it for its effect.
    pub fn go(self) -> Result<(), Error> {
        self.output().map(drop)
    }
}

/// A program that runs until its input ends. Dropped, it is killed.
pub struct Started {
    child: std::process::Child,
    shown: String,
    input: Option<std::process::ChildStdin>,
    out: Option<thread::JoinHandle<String>>,
    err: Option<thread::JoinHandle<String>>,
}

impl Started {
    /// Writes a line to its input.
    pub fn tell(&mut self, line: &str) -> Result<(), Error> {
        let written = self.input.as_mut().map(|pipe| writeln!(pipe, "{line}").and_then(|()| pipe.flush()));
        match written {
            Some(Ok(())) => Ok(()),
            _ => Err(self.failed("no longer reads".to_owned(), String::new())),
        }
    }

    /// Ends its input, and gives what it printed if it then ends well and in time.
    pub fn finish(mut self, deadline: Duration) -> Result<String, Error> {
        drop(self.input.take());
        let Some(status) = wait_for_exit(&mut self.child, deadline) else {
            return Err(
                self.failed(format!("still running {} s after its input ended", deadline.as_secs()), String::new())
            );
        };
        let read = |thread: Option<thread::JoinHandle<String>>| thread.and_then(|t| t.join().ok()).unwrap_or_default();
        let (out, err) = (read(self.out.take()), read(self.err.take()));
        if status.success() { Ok(out) } else { Err(self.failed(status.to_string(), tail(&format!("{out}{err}"), 25))) }
    }

    fn failed(&self, outcome: String, output: String) -> Error {
        Error::Command { command: self.shown.clone(), outcome, output }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read until the error is still the best that can be shown.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn wait_for_exit(child: &mut std::process::Child, deadline: Duration) -> Option<std::process::ExitStatus> {
    let until = Instant::now() + deadline;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            _ if Instant::now() > until => return None,
            _ => thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Looks at a condition until it holds. `look` says what it sees while it does not.
pub fn until<T>(
    what: &str,
    deadline: Duration,
    mut look: impl FnMut() -> Result<Result<T, String>, Error>,
) -> Result<T, Error> {
    let started = Instant::now();
    loop {
        let last = match look()? {
            Ok(value) => return Ok(value),
            Err(seen) => seen,
        };
        if started.elapsed() > deadline {
            return Err(Error::Deadline { what: what.to_owned(), waited: started.elapsed(), last });
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_ended_at_its_deadline() {
        let started = Instant::now();
        let error = Run::line("sleep 60").within(Duration::from_millis(100)).output().unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(10), "waited for it");
        assert!(error.to_string().contains("sleep 60: still running"), "{error}");
    }

    #[test]
    fn a_failure_shows_what_the_program_printed() {
        let error = Run::new("sh", ["-c", "echo one; echo two >&2; exit 3"]).output().unwrap_err().to_string();
        assert!(error.contains("one") && error.contains("two") && error.contains('3'), "{error}");
    }

    #[test]
    fn a_started_program_reads_lines_until_its_input_ends() {
        let mut cat = Run::line("cat").start().unwrap();
        cat.tell("one").unwrap();
        cat.tell("two").unwrap();
        assert_eq!(cat.finish(Duration::from_secs(10)).unwrap(), "one\ntwo\n");
        let deaf = Run::line("sleep 60").start().unwrap();
        let error = deaf.finish(Duration::from_millis(100)).unwrap_err();
        assert!(error.to_string().contains("still running"), "{error}");
    }

    #[test]
    fn a_condition_that_never_holds_ends_with_what_was_seen_last() {
        let error = until::<()>("the moon", Duration::from_millis(60), || Ok(Err("clouds".into()))).unwrap_err();
        assert!(error.to_string().contains("still waiting for the moon: clouds"), "{error}");
    }
}
