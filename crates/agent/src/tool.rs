//! Runs a program of PostgreSQL's that works on the volume: under a guard, as PostgreSQL itself, so that it ends with the agent and has a
//! deadline.
//!
//! Never: two at once on a volume, or one beside PostgreSQL (the guard holds the volume's lock); a process of it left when this
//! answers.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether_core::election::{Deadline, Moment, Span};
use tokio::io::AsyncBufReadExt as _;
use tokio::time::{Instant, MissedTickBehavior};

use crate::clock;
use crate::guard::orders::{End, Order};
use crate::instance::Instance;
use crate::postmaster::{Launch, Postmaster};
use crate::trouble::Trouble;

/// How many of its last lines are kept for the error: the cause, and a little of what led to it.
const KEPT_LINES: usize = 8;
/// How often it is asked whether it should go on.
const LOOK: Duration = Duration::from_millis(100);

/// A program, and until when it may run.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) within: Option<Duration>,
}

/// What becomes of a line that it prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// It goes into the log, and into the error if there is one.
    Said,
    /// It was understood: progress.
    Understood,
}

impl Instance {
    /// Runs it to its end; `goes_on` is asked all the while, told for how long nothing was printed, and ends it with the trouble that it
    /// answers.
    pub(crate) async fn run_tool(
        &mut self,
        tool: Tool,
        mut understand: impl FnMut(&str) -> Line + Send + 'static,
        mut objection: impl FnMut(&mut Self, Duration) -> Option<Trouble>,
    ) -> Result<(), Trouble> {
        let said = Said::default();
        let heard = said.clone();
        let Tool { name, program, arguments, within } = tool;
        let launch = Launch {
            guard: self.guard.clone(),
            lock: self.volume.lock(),
            program,
            arguments,
            // What it says is read.
            environment: &[("LC_ALL", "C")],
        };
        let deadline = match within {
            Some(within) => Deadline::At(after(within)?),
            None => Deadline::Never,
        };
        let log = |stderr: tokio::io::BufReader<tokio::process::ChildStderr>| {
            tokio::spawn(async move {
                let mut lines = stderr.lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    let line = line.trim();
                    match understand(line) {
                        Line::Understood => heard.beat(),
                        Line::Said => {
                            tracing::info!(line, "{name}");
                            heard.push(line.to_owned());
                        }
                    }
                }
            });
        };
        let started = Postmaster::start_until(&launch, deadline, &self.children, log).await;
        let mut process = started.map_err(|cause| Trouble::Io { what: name, cause })?;
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let end = loop {
            tokio::select! {
                end = process.ended() => break end,
                _ = look.tick() => {}
            }
            self.board.beat();
            if let Some(trouble) = objection(self, said.silent()) {
                process.order(Order::Kill).await;
                process.ended().await;
                return Err(trouble);
            }
        };
        match end {
            End::Code(0) => Ok(()),
            _ if process.expired() => Err(Trouble::Tool { name, said: "it took too long".to_owned() }),
            end => Err(Trouble::Tool { name, said: said.last_or(end) }),
        }
    }
}

fn after(span: Duration) -> Result<Moment, Trouble> {
    let now = clock::now().map_err(|cause| Trouble::Io { what: "CLOCK_BOOTTIME", cause })?;
    Ok(now.plus(Span(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))))
}

/// What it said last, and when. Clones share it.
#[derive(Clone, Debug)]
struct Said(Arc<Mutex<(VecDeque<String>, Instant)>>);

impl Default for Said {
    fn default() -> Self {
        Self(Arc::new(Mutex::new((VecDeque::new(), Instant::now()))))
    }
}

impl Said {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<String>, Instant)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beat(&self) {
        self.lock().1 = Instant::now();
    }

    fn silent(&self) -> Duration {
        self.lock().1.elapsed()
    }

    fn push(&self, line: String) {
        self.beat();
        let lines = &mut self.lock().0;
        lines.push_back(line);
        if lines.len() > KEPT_LINES {
            lines.pop_front();
        }
    }

    fn last_or(&self, end: End) -> String {
        let lines = &self.lock().0;
        if lines.is_empty() {
            return format!("{end:?}");
        }
        lines.iter().cloned().collect::<Vec<_>>().join("; ")
    }
}
