//! The writers: each writes one row after another, at its pace, and records what became of it.
//!
//! A kept session that misses a deadline is not closed: on a server that was frozen or cut off it is exactly the session that
//! may commit what it should not, later. It is set aside and held on to (one for each writer, or a server without standbys
//! would run out of connections), and writes again as soon as it can; the writer itself goes on with a new one.
//!
//! Never: an id used twice, whatever happens to the session, so that a row that is there twice is somebody else's doing.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::access::{Access, Target};
use crate::clock::{Micros, wall};
use crate::history::{Event, Kind, KnownBy, Late, Opened, Outcome, Server, Write, Writer, WriterId};
use crate::session::{After, Deadlines, Pending, Row, Session, Tried};

/// What all writers of a run share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) access: Access,
    pub(crate) deadlines: Deadlines,
    pub(crate) run: String,
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) acknowledged: watch::Sender<u64>,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) next: AtomicU32,
}

impl Shared {
    /// Writes to the history. The recorder outlives all writers, unless its disk is full: then [`crate::Probe::stop`] says so.
    pub(crate) fn record(&self, event: Event) {
        let _recorder_failed = self.events.send(event);
    }

    /// A writer's number and line.
    fn enrol(&self, kind: Kind, target: &Target, of: Option<WriterId>) -> WriterId {
        let writer = WriterId(self.next.fetch_add(1, Ordering::Relaxed));
        self.record(Event::Writer(Writer { writer, kind, target: target.to_string(), of }));
        writer
    }

    async fn stopped(&self) {
        let mut stop = self.stop.clone();
        // The sender is dropped only when the run is over.
        let _over = stop.wait_for(|stop| *stop).await;
    }
}

/// One writer's own.
struct Desk {
    shared: Arc<Shared>,
    writer: WriterId,
    target: Target,
    every: Duration,
    seq: u64,
    sessions: u32,
}

/// What a write was tried on.
struct On {
    session: Option<u32>,
    opened: Option<Micros>,
    server: Option<Server>,
}

impl Desk {
    fn new(shared: &Arc<Shared>, kind: Kind, target: Target, every: Duration, of: Option<WriterId>) -> Self {
        let writer = shared.enrol(kind, &target, of);
        Self { shared: Arc::clone(shared), writer, target, every, seq: 0, sessions: 0 }
    }

    /// Beats at the writer's pace. A beat that came late moves the later ones: a burst would be load that nobody asked for.
    fn beats(&self) -> tokio::time::Interval {
        let mut beats = tokio::time::interval(self.every);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        beats
    }

    /// Waits for the next beat. False when the run is over: a writer stops between two rows, never within one, so that each id it
    /// used is in the history.
    async fn goes_on(&self, beats: &mut tokio::time::Interval) -> bool {
        tokio::select! {
            biased;
            () = self.shared.stopped() => false,
            _ = beats.tick() => true,
        }
    }

    async fn open(&mut self) -> Result<Session, String> {
        let opened = Session::open(&self.shared.access, &self.target, self.shared.deadlines).await;
        self.sessions += 1;
        opened.map_err(|error| error.to_string())
    }

    async fn open_to_keep(&mut self) -> Result<Session, String> {
        let mut session = self.open().await?;
        session.introduce().await.map_err(|error| format!("ask who it is: {error}"))?;
        let opened =
            Opened { writer: self.writer, session: self.sessions, at: session.opened, server: session.server.clone() };
        self.shared.record(Event::Opened(opened));
        Ok(session)
    }

    /// Tries the next id on a session.
    async fn write(&mut self, session: &mut Session) -> After {
        let (sent, at) = (Micros::now(), wall());
        self.seq += 1;
        let row = Row { run: &self.shared.run, writer: self.writer, seq: self.seq };
        let tried = session.write(&row).await;
        let on = On { session: Some(self.sessions), opened: Some(session.opened), server: session.server.clone() };
        self.recorded(sent, at, tried, on)
    }

    /// The next id could not even be tried.
    fn not_tried(&mut self, sent: Micros, at: jiff::Timestamp, why: String) {
        self.seq += 1;
        let tried = Tried { committing: None, outcome: Outcome::Refused { why }, server: None, after: After::Gone };
        self.recorded(sent, at, tried, On { session: None, opened: None, server: None });
    }

    fn recorded(&self, sent: Micros, at: jiff::Timestamp, tried: Tried, on: On) -> After {
        let known_by = match (&tried.server, &on.server) {
            (Some(_), _) => Some(KnownBy::Write),
            (None, Some(_)) => Some(KnownBy::Session),
            (None, None) => None,
        };
        if tried.outcome.is_acknowledged() {
            self.shared.acknowledged.send_modify(|count| *count += 1);
        }
        self.shared.record(Event::Write(Write {
            writer: self.writer,
            seq: self.seq,
            session: on.session,
            opened: on.opened,
            sent,
            committing: tried.committing,
            answered: Micros::now(),
            wall: at,
            outcome: tried.outcome,
            server: tried.server.or(on.server),
            known_by,
        }));
        tried.after
    }
}

/// A writer that connects anew for each row.
pub(crate) async fn anew(shared: Arc<Shared>, target: Target, every: Duration) {
    let mut desk = Desk::new(&shared, Kind::New, target, every, None);
    let mut beats = desk.beats();
    while desk.goes_on(&mut beats).await {
        let (sent, at) = (Micros::now(), wall());
        match desk.open().await {
            Err(why) => desk.not_tried(sent, at, why),
            Ok(mut session) => match desk.write(&mut session).await {
                After::Usable => session.close(),
                After::Waiting(_) | After::Gone => drop(session),
            },
        }
    }
}

/// A writer that keeps its session.
pub(crate) async fn keeping(shared: Arc<Shared>, kind: Kind, target: Target, every: Duration) {
    let mut desk = Desk::new(&shared, kind, target, every, None);
    let mut beats = desk.beats();
    let held = Arc::new(AtomicBool::new(false));
    let mut lingering = JoinSet::new();
    let mut session = None;
    while desk.goes_on(&mut beats).await {
        let (sent, at) = (Micros::now(), wall());
        let mut open = match session.take() {
            Some(open) => open,
            None => match desk.open_to_keep().await {
                Ok(open) => open,
                Err(why) => {
                    desk.not_tried(sent, at, why);
                    continue;
                }
            },
        };
        match desk.write(&mut open).await {
            After::Usable => session = Some(open),
            After::Gone => drop(open),
            After::Waiting(pending) => {
                if !held.swap(true, Ordering::Relaxed) {
                    let old = Old { session: open, pending, of: desk.writer, seq: desk.seq };
                    lingering.spawn(linger(Arc::clone(&shared), desk.target.clone(), every, old, Arc::clone(&held)));
                }
            }
        }
    }
    if let Some(session) = session {
        session.close();
    }
    lingering.join_all().await;
}

/// A session that waits for an answer that is late, and whose write that is.
struct Old {
    session: Session,
    pending: Pending,
    of: WriterId,
    seq: u64,
}

/// Holds on to a session until its answer comes, then writes on it for as long as it lives.
async fn linger(shared: Arc<Shared>, target: Target, every: Duration, old: Old, held: Arc<AtomicBool>) {
    let mut desk = Desk::new(&shared, Kind::Lingering, target, every, Some(old.of));
    let Old { mut session, pending, of, seq } = old;
    desk.sessions = 1;
    let mut beats = desk.beats();
    let mut after = After::Waiting(pending);
    let mut late = (of, seq);
    loop {
        after = match after {
            After::Gone => break,
            After::Usable if !desk.goes_on(&mut beats).await => break,
            After::Usable => {
                let after = desk.write(&mut session).await;
                late = (desk.writer, desk.seq);
                after
            }
            After::Waiting(pending) => tokio::select! {
                (outcome, after) = session.resume(pending) => {
                    if let Some(outcome) = outcome {
                        let (writer, seq) = late;
                        desk.shared.record(Event::Late(Late { writer, seq, answered: Micros::now(), outcome }));
                    }
                    after
                }
                () = shared.stopped() => break,
            },
        };
    }
    held.store(false, Ordering::Relaxed);
}
