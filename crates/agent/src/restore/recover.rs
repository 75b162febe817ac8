//! Has PostgreSQL recover what was unpacked, apart from the network, until it has promoted; and sees to it that it got as far as it should.
//!
//! From its log, and from where the new timeline begins. PostgreSQL itself ends with an error where the log does not have the target; that it went as far as the log goes is seen by where it ended.
//! A store that is away stops it, and it goes on from there when it is started again. Never: a recovery that stopped short called done.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether_backup::SegmentName;
use bellwether_backup::restore::recovery::{Including, Target};
use bellwether_core::contract::POSTGRES_PORT;
use bellwether_core::election::Deadline;
use bellwether_core::wal::{Lsn, Timeline};
use bellwether_postgres::sql::{POSTGRES_DATABASE, Session};
use bellwether_postgres::{control, pidfile, wal};
use tokio::io::AsyncBufReadExt as _;
use tokio::time::{Instant, MissedTickBehavior};

use super::{Chosen, Unrestored, part};
use crate::archive::restore_wal;
use crate::guard::orders::{End, Order};
use crate::instance::{Instance, SQL_DEADLINE, TICK};
use crate::postmaster::{Launch, Postmaster};
use crate::trouble::Trouble;

/// How often is looked how far it is.
const LOOK: Duration = Duration::from_millis(100);
/// Between two starts of one whose store was away.
const PAUSE: Duration = Duration::from_secs(5);
/// How long a database that has recovered may take to stop: its last checkpoint writes what recovery left in memory.
const STOPS_WITHIN: Duration = Duration::from_secs(3600);
/// How often it is begun again when it ended and did not say why: something killed it.
const ATTEMPTS: u32 = 3;
/// How many of its last lines are kept.
const KEPT_LINES: usize = 12;

/// What PostgreSQL said while it recovered. Clones share it.
#[derive(Clone, Debug, Default)]
struct Heard(Arc<Mutex<Log>>);

#[derive(Debug, Default)]
struct Log {
    /// The last lines.
    lines: VecDeque<String>,
    /// Those of them that say why it ended.
    fatal: Option<String>,
    /// The last segment that it got.
    segment: Option<SegmentName>,
    /// What was said last of a store that does not answer.
    away: Option<String>,
}

impl Heard {
    fn lock(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, line: &str) {
        let mut log = self.lock();
        if let Some(name) = line.split_once("restored log file \"").and_then(|(_, rest)| rest.split('"').next()) {
            log.segment = name.parse().ok().or(log.segment);
            log.away = None;
        }
        if line.starts_with(&format!("bellwether {}:", restore_wal::ROLE)) {
            log.away = Some(line.to_owned());
        }
        // A connection that came too early is nobody's reason to end.
        if line.contains("FATAL:") && !line.contains("database system is") {
            log.fatal.get_or_insert_with(|| line.to_owned());
        }
        log.lines.push_back(line.to_owned());
        if log.lines.len() > KEPT_LINES {
            log.lines.pop_front();
        }
    }

    /// Why it ended, for people.
    fn why(&self, end: End) -> String {
        let log = self.lock();
        let last = log.lines.iter().filter(|line| {
            ["last completed transaction", "restore-wal:", "DETAIL:"].iter().any(|part| line.contains(part))
        });
        let said: Vec<_> = log.fatal.iter().chain(last).cloned().collect();
        match said.is_empty() {
            true => format!("{end}: {}", log.lines.iter().cloned().collect::<Vec<_>>().join("; ")),
            false => said.join("; "),
        }
    }

    /// Whether the store was away for longer than PostgreSQL waits.
    fn store_was_away(&self) -> bool {
        let code = format!("child process exited with exit code {}", restore_wal::AWAY);
        self.lock().lines.iter().any(|line| line.contains(&code))
    }

    /// Whether it says by itself why it ended: it would again.
    fn ended_for_a_reason(&self) -> bool {
        self.lock().fatal.is_some()
    }
}

impl Instance {
    /// Recovers what is in `data`, and leaves it stopped. Answers the timeline that it is on then.
    pub(super) async fn recover(&mut self, chosen: &Chosen, data: &Path) -> Result<Timeline, Unrestored> {
        let mut attempts = 0;
        loop {
            let heard = Heard::default();
            let mut server = self.start_recovery(data, &heard).await?;
            let end = match self.until_promoted(chosen, data, &mut server, &heard).await? {
                Ok(session) => {
                    let timeline = reached(chosen, data, session.state().await?.timeline)?;
                    drop(session);
                    self.part_in_database().await?;
                    self.stop_recovered(data, server, &heard).await?;
                    return Ok(timeline);
                }
                Err(end) => end,
            };
            let why = heard.why(end);
            if heard.store_was_away() {
                self.say_restoring(&format!("recovering, and waiting for the store: {why}"));
                self.wait_and_object(PAUSE).await?;
                continue;
            }
            attempts += 1;
            if heard.ended_for_a_reason() || attempts == ATTEMPTS {
                return Err(Unrestored::Failed(format!(
                    "backup {} did not recover to its target, and nothing of it is used: {why}",
                    chosen.commit.id
                )));
            }
            tracing::warn!(why, attempts, "recovery ended, and is begun again");
        }
    }

    /// A machine that is too busy to answer is no reason to fetch all of it again.
    async fn part_in_database(&mut self) -> Result<(), Unrestored> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match part::in_database(self.places.socket.path()).await {
                Ok(()) => return Ok(()),
                Err(error) if attempts == ATTEMPTS => {
                    return Err(Unrestored::Failed(format!(
                        "the restored database can't be parted from its original: {error}"
                    )));
                }
                Err(error) => tracing::warn!(%error, "parting the database from its original is tried again"),
            }
            self.wait_and_object(TICK).await?;
        }
    }

    async fn start_recovery(&mut self, data: &Path, heard: &Heard) -> Result<Postmaster, Unrestored> {
        let launch = Launch {
            guard: self.guard.clone(),
            lock: self.volume.lock(),
            program: self.installation.program("postgres"),
            arguments: vec!["-D".into(), data.into()],
            // What it says is read.
            environment: &[("LC_ALL", "C")],
        };
        let heard = heard.clone();
        let log = |stderr: tokio::io::BufReader<tokio::process::ChildStderr>| {
            tokio::spawn(async move {
                let mut lines = stderr.lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    let line = line.trim();
                    tracing::info!(line, "recovery");
                    heard.hear(line);
                }
            });
        };
        let started = Postmaster::start_until(&launch, Deadline::Never, &self.children, log).await;
        Ok(started.map_err(|cause| Trouble::Io { what: "start PostgreSQL", cause })?)
    }

    /// Until it accepts writes: a session; or until it has ended: how.
    async fn until_promoted(
        &mut self,
        chosen: &Chosen,
        data: &Path,
        server: &mut Postmaster,
        heard: &Heard,
    ) -> Result<Result<Session, End>, Unrestored> {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut due = Instant::now();
        let mut session: Option<Session> = None;
        loop {
            tokio::select! {
                end = server.ended() => return Ok(Err(end)),
                _ = look.tick() => {}
            }
            self.board.beat();
            if due <= Instant::now() {
                due = Instant::now() + TICK;
                if let Some(trouble) = self.not_restored_any_more() {
                    server.order(Order::Kill).await;
                    server.ended().await;
                    return Err(trouble.into());
                }
                self.say_restoring(&progress(chosen, &heard.lock()));
            }
            // A connection before that is refused, and a line in its log each time.
            let file = pidfile::read(data).ok().flatten().filter(|file| Some(file.pid) == server.pid());
            if file.and_then(|file| file.status) != Some(pidfile::Status::Ready) {
                continue;
            }
            if session.as_ref().is_none_or(|session| !session.is_usable()) {
                let socket = self.places.socket.path();
                session = Session::local(socket, POSTGRES_PORT, POSTGRES_DATABASE, SQL_DEADLINE).await.ok();
            }
            if let Some(usable) = session.take() {
                match usable.in_recovery().await {
                    Ok(false) => return Ok(Ok(usable)),
                    _ => session = Some(usable),
                }
            }
        }
    }

    async fn stop_recovered(&mut self, data: &Path, mut server: Postmaster, heard: &Heard) -> Result<(), Unrestored> {
        server.order(Order::StopFast).await;
        let ended = Self::keep_turning(&self.board, tokio::time::timeout(STOPS_WITHIN, server.ended())).await;
        let clean = {
            let _pause = self.children.pause();
            control::read(&self.installation, data).await?.state.is_shut_down()
        };
        match ended {
            Ok(End::Code(0)) if clean => Ok(()),
            Ok(end) => Err(Unrestored::Away(format!(
                "PostgreSQL did not stop in order after its recovery: {}",
                heard.why(end)
            ))),
            Err(_) => {
                server.order(Order::Kill).await;
                server.ended().await;
                Err(Unrestored::Away("PostgreSQL did not stop after its recovery".to_owned()))
            }
        }
    }

    async fn wait_and_object(&mut self, limit: Duration) -> Result<(), Unrestored> {
        self.wait_for_want(limit).await;
        self.not_restored_any_more().map_or(Ok(()), |trouble| Err(trouble.into()))
    }
}

/// How far it is: in tens of per cent, because each change is a write to the API.
fn progress(chosen: &Chosen, log: &Log) -> String {
    let id = &chosen.commit.id;
    if let Some(away) = &log.away {
        return format!("recovering from backup {id}: {away}");
    }
    let size = chosen.commit.segment_size;
    let whole = chosen.window.to.ahead_of(chosen.commit.start);
    let done = log.segment.map_or(0, |segment| segment.start(size).ahead_of(chosen.commit.start));
    let tens = done.saturating_mul(10).checked_div(whole).unwrap_or(0).min(10) * 10;
    format!("recovering from backup {id}: {tens} % of its log")
}

/// The timeline that it promoted to, if that begins where it should.
fn reached(chosen: &Chosen, data: &Path, timeline: Timeline) -> Result<Timeline, Unrestored> {
    let failed = |why: String| Unrestored::Failed(format!("{why}; nothing of it is used"));
    let forks = wal::forks(data, timeline).map_err(|error| failed(error.to_string()))?;
    let (from, end) = forks.last().copied().unwrap_or((Timeline(0), Lsn(0)));
    let least = least(chosen);
    if from != chosen.window.timeline || end < least {
        let (id, on) = (&chosen.commit.id, chosen.window.timeline);
        return Err(failed(format!(
            "recovery from backup {id} ended at {end} on timeline {from}, and had to get to {least} on timeline {on} at least"
        )));
    }
    Ok(timeline)
}

/// Where recovery must have got to. For a moment, a name and a transaction PostgreSQL has the word: it ends with an error where it has not met them.
fn least(chosen: &Chosen) -> Lsn {
    let end_of_backup = chosen.commit.stop;
    match &chosen.target {
        // Into the last segment that there is. What it holds, nobody knows before.
        Target::Latest => end_of_backup.max(Lsn(chosen.window.to.0.saturating_sub(chosen.commit.segment_size))),
        Target::Lsn(at, Including::Target) => end_of_backup.max(*at),
        _ => end_of_backup,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_log_says_how_far_it_is_and_why_it_ended() {
        let heard = Heard::default();
        for line in [
            "2026-11-19 02:00:00.000 UTC [7] LOG:  restored log file \"000000010000000000000004\" from archive",
            "2026-11-19 02:00:00.000 UTC [8] FATAL:  the database system is starting up",
            "2026-11-19 02:00:01.000 UTC [7] LOG:  last completed transaction was at log time 2026-11-19 01:00:00+00",
            "2026-11-19 02:00:01.000 UTC [7] FATAL:  recovery ended before configured recovery target was reached",
        ] {
            heard.hear(line);
        }
        assert_eq!(heard.lock().segment.map(|segment| segment.part), Some(4));
        let why = heard.why(End::Code(1));
        assert!(
            why.contains("recovery target") && why.contains("last completed") && !why.contains("starting"),
            "{why}"
        );
        assert!(heard.ended_for_a_reason() && !heard.store_was_away());
    }

    #[test]
    fn a_store_that_was_away_is_told_from_a_log_that_is_damaged() {
        let of = |code: u8| {
            let heard = Heard::default();
            heard.hear(&format!(
                "FATAL:  could not restore file \"000000010000000000000004\" from archive: child process exited with exit code {code}"
            ));
            heard
        };
        assert!(of(restore_wal::AWAY).store_was_away());
        assert!(!of(restore_wal::DAMAGED).store_was_away() && of(restore_wal::DAMAGED).ended_for_a_reason());
    }
}
