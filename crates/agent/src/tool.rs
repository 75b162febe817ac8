//! Runs a program of PostgreSQL's that works on the volume: under a guard, as PostgreSQL itself, so that it ends with the agent and has a
//! deadline.
//!
//! Never: two at once on a volume, or one beside PostgreSQL (the guard holds the volume's lock); a process of it left when this
//! answers.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bellwether_core::election::{Deadline, Span};
use tokio::io::AsyncBufReadExt as _;
use tokio::time::MissedTickBehavior;

use crate::clock;
use crate::guard::orders::{End, Order};
use crate::instance::Instance;
use crate::postmaster::{Launch, Postmaster};
use crate::trouble::Trouble;

/// How many of its last lines are kept for the error: the cause, and a little of what led to it.
const KEPT_LINES: usize = 8;
/// How often it is asked whether it should go on.
const LOOK: Duration = Duration::from_millis(100);

/// A program, and for how long it may run.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) within: Duration,
}

impl Instance {
    /// Runs it to its end; `goes_on` is asked all the while, and ends it by saying no.
    pub(crate) async fn run_tool(
        &mut self,
        tool: Tool,
        mut goes_on: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), Trouble> {
        let said = Said::default();
        let heard = said.clone();
        let Tool { name, program, arguments, within } = tool;
        let launch = Launch { guard: self.guard.clone(), lock: self.volume.lock(), program, arguments };
        let now = clock::now().map_err(|cause| Trouble::Io { what: "CLOCK_BOOTTIME", cause })?;
        let span = Span(u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
        let log = |stderr: tokio::io::BufReader<tokio::process::ChildStderr>| {
            tokio::spawn(async move {
                let mut lines = stderr.lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    tracing::info!(line, "{name}");
                    heard.push(line);
                }
            });
        };
        let started = Postmaster::start_until(&launch, Deadline::At(now.plus(span)), &self.children, log).await;
        let mut process = started.map_err(|cause| Trouble::Io { what: name, cause })?;
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let end = loop {
            tokio::select! {
                end = process.ended() => break end,
                _ = look.tick() => {}
            }
            self.board.beat();
            if !goes_on(self) {
                process.order(Order::Kill).await;
                process.ended().await;
                return Err(Trouble::NotWanted);
            }
        };
        match end {
            End::Code(0) => Ok(()),
            _ if process.expired() => Err(Trouble::Tool { name, end, said: format!("not within {within:?}") }),
            end => Err(Trouble::Tool { name, end, said: said.last() }),
        }
    }
}

/// What it said last. Clones share it.
#[derive(Clone, Debug, Default)]
struct Said(Arc<Mutex<VecDeque<String>>>);

impl Said {
    fn push(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push_back(line);
        if lines.len() > KEPT_LINES {
            lines.pop_front();
        }
    }

    fn last(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join("; ")
    }
}
