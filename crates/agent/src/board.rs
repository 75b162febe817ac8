//! What the agent currently knows of itself: one place that everything writes to, and the report, the probes and the
//! detail page read from.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether_core::contract::{Detail, Report};
use bellwether_core::wal::Lsn;
use tokio::sync::watch;
use tokio::time::Instant;

/// What moves too fast for a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vitals {
    /// The write position on a primary, the replayed one on a standby.
    pub lsn: Option<Lsn>,
    /// Bytes not replayed yet.
    pub lag_bytes: Option<u64>,
    /// Seconds behind.
    pub lag_seconds: Option<f64>,
    /// The postmaster.
    pub postmaster_pid: Option<i32>,
    /// When it started.
    pub postmaster_started: Option<String>,
}

/// The board. Clones share it.
#[derive(Clone, Debug)]
pub struct Board {
    report: watch::Sender<Report>,
    rest: Arc<Mutex<Rest>>,
}

#[derive(Debug)]
struct Rest {
    vitals: Vitals,
    /// When they were taken. PostgreSQL may not answer since.
    taken: Option<Instant>,
    started: bool,
    last_beat: Instant,
}

impl Board {
    /// An empty board.
    pub fn new(report: Report) -> Self {
        let rest = Rest { vitals: Vitals::default(), taken: None, started: false, last_beat: Instant::now() };
        Self { report: watch::Sender::new(report), rest: Arc::new(Mutex::new(rest)) }
    }

    /// Changes the report. Whoever writes it to the API is woken only if it is another one then.
    pub fn report(&self, change: impl FnOnce(&mut Report)) {
        self.report.send_if_modified(|current| {
            let before = current.clone();
            change(current);
            *current != before
        });
    }
    /// The report as it stands.
    pub fn current(&self) -> Report {
        self.report.borrow().clone()
    }
    /// Each new report.
    pub fn subscribe(&self) -> watch::Receiver<Report> {
        self.report.subscribe()
    }
    /// Replaces the vitals.
    pub fn set_vitals(&self, vitals: Vitals) {
        let mut rest = self.rest();
        (rest.vitals, rest.taken) = (vitals, Some(Instant::now()));
    }
    /// PostgreSQL has started once.
    pub fn set_started(&self) {
        self.rest().started = true;
    }
    /// Whether it has.
    pub fn started(&self) -> bool {
        self.rest().started
    }
    /// The main loop has turned.
    pub fn beat(&self) {
        self.rest().last_beat = Instant::now();
    }
    /// How long ago.
    pub fn since_beat(&self) -> Duration {
        self.rest().last_beat.elapsed()
    }
    /// Everything, for the detail page.
    pub fn detail(&self) -> Detail {
        let (vitals, taken) = {
            let rest = self.rest();
            (rest.vitals.clone(), rest.taken)
        };
        Detail {
            report: self.current(),
            lsn: vitals.lsn,
            lag_bytes: vitals.lag_bytes,
            lag_seconds: vitals.lag_seconds,
            postmaster_pid: vitals.postmaster_pid,
            postmaster_started: vitals.postmaster_started,
            age_seconds: taken.map(|taken| taken.elapsed().as_secs_f64()),
        }
    }

    fn rest(&self) -> MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
