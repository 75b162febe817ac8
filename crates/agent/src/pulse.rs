//! Feels a primary's pulse, beside the instance's loop: a session that is kept open, and one that is opened each time. When it is
//! stuck ([`bellwether_core::instance::pulse`]), the election is told as of a crash: it is killed, and another leads.
//!
//! Never: waits for an answer before the next beat; writes anything.

use std::path::PathBuf;
use std::time::Duration;

use bellwether_core::contract::POSTGRES_PORT;
use bellwether_core::election::Moment;
use bellwether_core::instance::pulse::{BEAT, Heard, Pulse, Seen};
use bellwether_core::wal::Lsn;
use bellwether_postgres::sql::{POSTGRES_DATABASE, Session, SqlError};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::clock;
use crate::election::News;
use crate::logs::Complaints;
use crate::process::doing::Sight;

/// Between an answer and the next question.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Between two sessions that are only opened: each costs the server a process.
const KNOCK_AGAIN: Duration = Duration::from_secs(2);
/// After an attempt that failed without an answer.
const TRY_AGAIN: Duration = Duration::from_millis(250);
/// Longer than any silence that is waited out: the beats decide, not this.
const GIVE_UP: Duration = Duration::from_secs(60);

/// What a task has heard so far.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    answers: u64,
    /// Since when a question is open.
    open: Option<Moment>,
    /// The process that is asked, where it is known.
    backend: Option<i32>,
    recovers: bool,
    flush_awaited: Option<Lsn>,
}

/// The tasks. They end when this is dropped.
#[derive(Debug)]
pub struct Watch([JoinHandle<()>; 3]);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// A primary to be watched.
#[derive(Debug)]
pub struct Patient {
    /// Where its socket is.
    pub socket: PathBuf,
    /// Its postmaster, where it is known.
    pub postmaster: Option<i32>,
    /// Whether others may be able to lead.
    pub replaceable: bool,
    /// Who is told when it is stuck.
    pub news: mpsc::UnboundedSender<News>,
    /// What a person is told then.
    pub complaints: Complaints,
}

impl Watch {
    /// From now on, of a server that answers.
    pub fn over(patient: Patient) -> Self {
        let (session, session_told) = watch::channel(Told::default());
        let (door, door_told) = watch::channel(Told::default());
        Self([
            tokio::spawn(ask(patient.socket.clone(), session)),
            tokio::spawn(knock(patient.socket.clone(), door)),
            tokio::spawn(judge(patient, session_told, door_told)),
        ])
    }
}

async fn judge(patient: Patient, session: watch::Receiver<Told>, door: watch::Receiver<Told>) {
    let mut pulse = Pulse::new(patient.replaceable);
    let mut before = (0, 0);
    let mut sight = Sight::default();
    let mut beat = tokio::time::interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        let (session, door) = (*session.borrow(), *door.borrow());
        let mut seen = Seen {
            session: heard(&session, before.0),
            door: heard(&door, before.1),
            recovers: door.recovers,
            flush_awaited: session.flush_awaited,
            flush_starved: false,
        };
        let doubted = seen.session == Heard::Nothing || seen.door == Heard::Nothing || pulse.doubts_disk();
        // A server that answers is not looked at: that is a file for each process of the machine.
        if let (true, Some(postmaster), Ok(now)) = (doubted, patient.postmaster, clock::now()) {
            let doing = sight.look(postmaster, session.backend, door.open, now);
            seen.session = if seen.session == Heard::Nothing { doing.session() } else { seen.session };
            seen.door = if seen.door == Heard::Nothing { doing.door() } else { seen.door };
            seen.flush_starved = doing.flush_starves();
        }
        before = (session.answers, door.answers);
        if let Some(stuck) = pulse.beat(seen) {
            tracing::error!(why = %stuck, "PostgreSQL is stuck: it is killed");
            patient.complaints.say(stuck.to_string());
            let _ = patient.news.send(News::Crashed);
            return;
        }
    }
}

fn heard(told: &Told, before: u64) -> Heard {
    match told.answers > before {
        true => Heard::Answer,
        false if told.open.is_some() => Heard::Nothing,
        false => Heard::NotAsked,
    }
}

/// Asks in a session that stays. One that was closed is opened anew.
async fn ask(socket: PathBuf, told: watch::Sender<Told>) {
    loop {
        if let Ok(session) = open(&socket).await {
            told.send_modify(|told| (told.open, told.backend) = (clock::now().ok(), None));
            let backend = session.backend().await.ok();
            loop {
                told.send_modify(|told| (told.open, told.backend) = (clock::now().ok(), backend));
                let answer = session.flush_awaited().await;
                let closed = answer.is_err() && !session.is_usable();
                told.send_modify(|told| {
                    told.open = None;
                    told.flush_awaited = answer.ok().flatten();
                    told.answers += u64::from(!closed);
                });
                if closed {
                    break;
                }
                tokio::time::sleep(ASK_AGAIN).await;
            }
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

/// Opens a session and closes it. To be refused is an answer too: too many are connected, but the postmaster lives.
async fn knock(socket: PathBuf, told: watch::Sender<Told>) {
    loop {
        told.send_modify(|told| told.open = told.open.or(clock::now().ok()));
        let (answers, recovers) = match open(&socket).await {
            Ok(_) | Err(SqlError::Refused { .. }) => (true, false),
            Err(SqlError::NotReady { .. }) => (true, true),
            Err(_) => (false, false),
        };
        told.send_modify(|told| {
            told.recovers = recovers;
            told.open = told.open.filter(|_| !answers);
            told.answers += u64::from(answers);
        });
        tokio::time::sleep(if answers && !recovers { KNOCK_AGAIN } else { TRY_AGAIN }).await;
    }
}

async fn open(socket: &std::path::Path) -> Result<Session, SqlError> {
    Session::local(socket, POSTGRES_PORT, POSTGRES_DATABASE, GIVE_UP).await
}
