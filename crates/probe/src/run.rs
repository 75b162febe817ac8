//! A run: starts the writers, takes marks, stops them, and hands over the history.

use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::access::{Access, Target};
use crate::clock::{Micros, boot_id, wall};
use crate::history::{Begin, End, Event, FORMAT, History, HistoryError, Kind, Mark, Recorder};
use crate::session::{Deadlines, Session};
use crate::table;
use crate::writer::{self, Shared};

/// How often the table's creation is tried.
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// What to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The way in; its host is where sessions and new connections go.
    pub access: Access,
    /// Writers that keep their session.
    pub sessions: u32,
    /// Writers that connect anew for each row.
    pub new: u32,
    /// Servers at which a session is opened by their own address, and kept.
    pub direct: Vec<Target>,
    /// How often a writer with a session writes.
    pub every: Duration,
    /// How often one that connects anew does.
    pub every_new: Duration,
    /// When to give up.
    pub deadlines: Deadlines,
    /// For how long to try to create the table.
    pub ready_within: Duration,
    /// Where the history goes, as it happens.
    pub history: Option<PathBuf>,
}

impl Settings {
    /// Four sessions with a write each 20 ms and two connections anew each 50 ms: 240 writes a second where nothing is in the way,
    /// so that the 100 that a verdict needs are there on a busy machine too, and a gap is seen to within 5 ms.
    pub fn new(access: Access) -> Self {
        Self {
            access,
            sessions: 4,
            new: 2,
            direct: vec![],
            every: Duration::from_millis(20),
            every_new: Duration::from_millis(50),
            deadlines: Deadlines::default(),
            ready_within: Duration::from_secs(30),
            history: None,
        }
    }
}

/// Why a probe did not run, or has no history.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The table could not be created.
    #[error("{target}: the table {} could not be created within {within:?}: {problem}", table::NAME)]
    NotReady {
        /// Where.
        target: String,
        /// For how long it was tried.
        within: Duration,
        /// What came last.
        problem: String,
    },
    /// The history.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// A writer panicked: its history is not to be trusted.
    #[error("a writer ended before its time: {0}")]
    Writer(tokio::task::JoinError),
}

/// A probe that runs.
#[derive(Debug)]
pub struct Probe {
    run: String,
    stop: watch::Sender<bool>,
    acknowledged: watch::Receiver<u64>,
    marks: Mutex<mpsc::Sender<Event>>,
    writers: JoinSet<()>,
    recorder: Recorder,
}

/// Runs a probe until `until` is done.
pub async fn run(settings: Settings, until: impl Future<Output = ()>) -> Result<History, RunError> {
    let probe = Probe::start(settings).await?;
    until.await;
    probe.stop().await
}

impl Probe {
    /// Creates the table, and starts the writers.
    pub async fn start(settings: Settings) -> Result<Self, RunError> {
        create_table(&settings).await?;
        let recorder = Recorder::start(settings.history.as_deref())?;
        let run = uuid::Uuid::new_v4().simple().to_string();
        let (stop, stopped) = watch::channel(false);
        let (count, acknowledged) = watch::channel(0);
        let shared = Arc::new(Shared {
            access: settings.access.clone(),
            deadlines: settings.deadlines,
            run: run.clone(),
            events: recorder.sender(),
            acknowledged: count,
            stop: stopped,
            next: AtomicU32::new(1),
        });
        let table = table::NAME.to_owned();
        let begin = Begin { format: FORMAT, run: run.clone(), at: Micros::now(), wall: wall(), boot: boot_id(), table };
        shared.record(Event::Begin(begin));
        let marks = Mutex::new(recorder.sender());
        let writers = start_writers(&settings, &shared);
        Ok(Self { run, stop, acknowledged, marks, writers, recorder })
    }

    /// The run's name: its rows carry it.
    pub fn name(&self) -> &str {
        &self.run
    }

    /// Notes what is being done to the servers. The first mark separates "before" from "after".
    pub fn mark(&self, what: impl Into<String>) {
        let mark = Event::Mark(Mark { at: Micros::now(), wall: wall(), what: what.into() });
        let _recorder_failed = self.marks.lock().unwrap_or_else(PoisonError::into_inner).send(mark);
    }

    /// How many writes were acknowledged so far.
    pub fn acknowledged(&self) -> u64 {
        *self.acknowledged.borrow()
    }

    /// Waits until so many more writes are acknowledged. False when they are not within the time.
    pub async fn more_acknowledged(&self, more: u64, within: Duration) -> bool {
        let mut acknowledged = self.acknowledged.clone();
        let wanted = *acknowledged.borrow() + more;
        matches!(timeout(within, acknowledged.wait_for(|count| *count >= wanted)).await, Ok(Ok(_)))
    }

    /// Stops the writers, each after its row, and hands over what was seen.
    pub async fn stop(mut self) -> Result<History, RunError> {
        let _all_ended_already = self.stop.send(true);
        while let Some(ended) = self.writers.join_next().await {
            ended.map_err(RunError::Writer)?;
        }
        let sender = self.marks.into_inner().unwrap_or_else(PoisonError::into_inner);
        let _recorder_failed = sender.send(Event::End(End { at: Micros::now() }));
        drop(sender);
        Ok(self.recorder.finish()?)
    }
}

/// Starts the writers, spread over their interval: together they look more often than each does.
fn start_writers(settings: &Settings, shared: &Arc<Shared>) -> JoinSet<()> {
    let mut writers = JoinSet::new();
    let service = &settings.access.service;
    let share = |of: Duration, index: u32, count: u32| of * index / count.max(1);
    for index in 0..settings.sessions {
        let writer = writer::keeping(Arc::clone(shared), Kind::Kept, service.clone(), settings.every);
        writers.spawn(delayed(share(settings.every, index, settings.sessions), writer));
    }
    for target in &settings.direct {
        writers.spawn(writer::keeping(Arc::clone(shared), Kind::Direct, target.clone(), settings.every));
    }
    for index in 0..settings.new {
        let writer = writer::anew(Arc::clone(shared), service.clone(), settings.every_new);
        writers.spawn(delayed(share(settings.every_new, index, settings.new), writer));
    }
    writers
}

async fn delayed(by: Duration, writer: impl Future<Output = ()>) {
    tokio::time::sleep(by).await;
    writer.await;
}

async fn create_table(settings: &Settings) -> Result<(), RunError> {
    let started = Instant::now();
    let target = &settings.access.service;
    loop {
        let created = async {
            let session = Session::open(&settings.access, target, settings.deadlines).await;
            let session = session.map_err(|error| error.to_string())?;
            // Where it is there already, it need not be created: a standby could not.
            if session.ask(table::look()).await?.is_empty() {
                session.ask(table::create()).await?;
            }
            session.close();
            Ok::<_, String>(())
        };
        let Err(problem) = created.await else { return Ok(()) };
        if started.elapsed() >= settings.ready_within {
            let (target, within) = (target.to_string(), settings.ready_within);
            return Err(RunError::NotReady { target, within, problem });
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}
