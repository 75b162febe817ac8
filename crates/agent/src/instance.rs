//! The agent's loop: look at volume, Lease and configuration, ask `core` what to do, do it, and look again when
//! PostgreSQL has ended or something has changed.
//!
//! Never: two things at once. There is one loop and one PostgreSQL, and a turn ends only when its PostgreSQL is gone.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bellwether_api::v1::InstanceState;
use bellwether_core::contract::POSTGRES_PORT;
use bellwether_core::fact::Fact;
use bellwether_core::instance::start::{LeaseView, Start, start};
use bellwether_postgres::sql::{POSTGRES_DATABASE, Session, SqlError};
use bellwether_postgres::{Installation, pidfile};
use rustls::ServerConfig;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::board::Board;
use crate::environment::Environment;
use crate::guard::orders::{End, Order};
use crate::inputs::Inputs;
use crate::kubernetes::endpoint::Endpoint;
use crate::kubernetes::lease::Leases;
use crate::logs::{self, Complaints};
use crate::postmaster::{Launch, Postmaster};
use crate::process::reaper::Children;
use crate::settings::Places;
use crate::synchronous::Memory;
use crate::trouble::Trouble;
use crate::volume::Volume;

/// How often the loop turns: fast enough that `Ready` falls within ten seconds of a reason, slow enough to cost nothing.
pub const TICK: Duration = Duration::from_secs(1);
/// How long PostgreSQL may take to answer one question of ours.
pub const SQL_DEADLINE: Duration = Duration::from_secs(3);
/// Waiting for others: looked at again after this, or when the Lease or the configuration changes.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Refused: only a person can help, but a fixed volume or configuration is noticed.
const LOOK_AGAIN_REFUSED: Duration = Duration::from_secs(10);
/// After a failure, twice as long each time …
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// … and from the beginning again after a turn that went well for this long.
const GOOD_RUN: Duration = Duration::from_secs(60);

/// Everything a turn needs.
#[derive(Debug)]
pub struct Instance {
    /// Who we are.
    pub environment: Environment,
    /// PostgreSQL's programs.
    pub installation: Installation,
    /// Our own binary.
    pub guard: PathBuf,
    /// Processes.
    pub children: Children,
    /// The volumes.
    pub volume: Volume,
    /// The synchronous replication in force.
    pub memory: Memory,
    /// The Lease.
    pub leases: Leases,
    /// The Lease as last seen.
    pub lease: watch::Receiver<Option<LeaseView>>,
    /// The `rw` endpoint.
    pub endpoint: Endpoint,
    /// What we know of ourselves.
    pub board: Board,
    /// Generated files.
    pub places: Places,
    /// What is mounted.
    pub inputs: Inputs,
    /// The HTTPS server's certificate.
    pub server_tls: watch::Sender<Arc<ServerConfig>>,
    /// PostgreSQL's last words.
    pub complaints: Complaints,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Look again at once.
    Again,
    /// Look again when something changes, or after this.
    Wait(Duration),
}

impl Instance {
    /// Lives until the future is dropped. What runs then is in `postmaster`.
    pub async fn live(&mut self, postmaster: &mut Option<Postmaster>) -> Infallible {
        let mut backoff = Backoff::new(RETRY.0, RETRY.1);
        loop {
            self.board.beat();
            self.refresh();
            let began = Instant::now();
            let turn = self.turn(postmaster).await;
            self.end(postmaster).await;
            if turn.is_ok() || began.elapsed() > GOOD_RUN {
                backoff.reset();
            }
            match turn {
                Ok(Turn::Again) => {}
                Ok(Turn::Wait(limit)) => self.wait_for_change(limit).await,
                Err(trouble) => {
                    tracing::error!(error = %trouble, "trying again");
                    self.board.report(|report| {
                        report.accepts_sql = false;
                        report.message = Some(trouble.to_string());
                        if matches!(trouble, Trouble::Ended { .. }) {
                            report.state = InstanceState::Down;
                        }
                    });
                    self.wait(backoff.next_wait()).await;
                }
            }
        }
    }

    async fn turn(&mut self, postmaster: &mut Option<Postmaster>) -> Result<Turn, Trouble> {
        let state = {
            let _pause = self.children.pause();
            self.volume.inspect(&self.installation).await
        };
        let lease = self.leases.read().await;
        let view = lease.clone().map(|read| read.view);
        let decision = start(&state, &view, &self.inputs.config, &self.environment.instance);
        tracing::info!(volume = ?state, ?decision, "looked");
        match (decision, lease) {
            (Start::Initialise, _) => self.initialise(&state).await,
            (Start::Join { from }, Fact::Known(lease)) => self.join(&from, &lease.view, &state).await,
            (Start::Lead, Fact::Known(lease)) => self.lead(lease, &state, postmaster).await,
            (Start::Follow { from }, Fact::Known(lease)) => self.follow(from, &lease.view, postmaster).await,
            (Start::Wait(why), _) => Ok(self.idle(InstanceState::Pending, why.to_string(), LOOK_AGAIN)),
            (Start::Refuse(why), _) => Ok(self.idle(InstanceState::Down, why.to_string(), LOOK_AGAIN_REFUSED)),
            // Nothing is joined, led or followed on a Lease that was not read.
            (_, Fact::Absent | Fact::Unknown) => Ok(Turn::Wait(LOOK_AGAIN)),
        }
    }

    fn idle(&self, state: InstanceState, why: String, limit: Duration) -> Turn {
        self.board.report(|report| {
            report.state = state;
            report.accepts_sql = false;
            report.message = Some(why);
        });
        Turn::Wait(limit)
    }

    /// Reads what is mounted. Answers whether anything is new.
    pub fn refresh(&mut self) -> bool {
        let inputs = match Inputs::read(&self.environment) {
            Ok(inputs) if inputs == self.inputs => return false,
            Ok(inputs) => inputs,
            Err(error) => {
                // Swapped this very moment, or broken; what we have still holds.
                tracing::warn!(%error, "the mounted files can't be read");
                return false;
            }
        };
        tracing::info!("the mounted files have changed");
        self.inputs = inputs;
        if let Err(error) = self.places.stage(&self.inputs) {
            tracing::error!(%error, "certificates can't be staged");
        }
        match crate::http::server_config(&self.places.server_tls) {
            Ok(config) => drop(self.server_tls.send_replace(config)),
            Err(error) => tracing::error!(%error, "the old certificate is kept"),
        }
        true
    }

    /// Starts PostgreSQL and waits until it answers.
    pub async fn launch(&mut self, slot: &mut Option<Postmaster>) -> Result<Session, Trouble> {
        self.complaints.forget();
        let launch = Launch {
            guard: self.guard.clone(),
            lock: self.volume.lock(),
            program: self.installation.program("postgres"),
            arguments: vec!["-D".into(), self.volume.pgdata().into()],
        };
        let complaints = self.complaints.clone();
        let log = |stderr| drop(tokio::spawn(logs::forward(stderr, complaints)));
        let started = Postmaster::start(&launch, &self.children, log).await;
        let postmaster = slot.insert(started.map_err(|cause| Trouble::Io { what: "start PostgreSQL", cause })?);
        let mut tick = tokio::time::interval(Duration::from_millis(50));
        loop {
            tokio::select! {
                end = postmaster.ended() => return Err(self.ended(end)),
                _ = tick.tick() => {}
            }
            self.board.beat();
            // A connection before that is refused, and a line in the log each time.
            let file = pidfile::read(&self.volume.pgdata()).ok().flatten();
            let ours = file.filter(|file| Some(file.pid) == postmaster.pid());
            if ours.and_then(|file| file.status) == Some(pidfile::Status::Ready) {
                match self.session().await {
                    Ok(session) => {
                        self.board.set_started();
                        return Ok(session);
                    }
                    Err(error) => tracing::debug!(%error, "not yet"),
                }
            }
            // A standby that can't reach its primary may wait here for long, and the log knows why.
            if let Some(why) = self.complaints.streaming() {
                self.board.report(|report| report.message = Some(why));
            }
        }
    }

    /// A session as superuser.
    pub async fn session(&self) -> Result<Session, SqlError> {
        Session::local(self.places.socket.path(), POSTGRES_PORT, POSTGRES_DATABASE, SQL_DEADLINE).await
    }

    /// What to say when PostgreSQL has ended by itself.
    pub fn ended(&self, end: End) -> Trouble {
        Trouble::Ended { end, complaint: self.complaints.fatal() }
    }

    /// Nothing of this turn's PostgreSQL is left when the next turn begins.
    async fn end(&mut self, slot: &mut Option<Postmaster>) {
        if let Some(mut postmaster) = slot.take() {
            self.board.report(|report| report.accepts_sql = false);
            postmaster.order(Order::Kill).await;
            postmaster.ended().await;
        }
        self.children.kill_orphans().await;
    }

    /// Waits, but keeps turning.
    pub async fn wait(&mut self, limit: Duration) {
        let until = Instant::now() + limit;
        while Instant::now() < until {
            self.board.beat();
            tokio::time::sleep_until(until.min(Instant::now() + TICK)).await;
        }
    }

    async fn wait_for_change(&mut self, limit: Duration) {
        let until = Instant::now() + limit;
        while Instant::now() < until {
            self.board.beat();
            if self.refresh() {
                return;
            }
            tokio::select! {
                Ok(()) = self.lease.changed() => return,
                () = tokio::time::sleep_until(until.min(Instant::now() + TICK)) => {}
            }
        }
    }

    /// Runs something long, turning meanwhile.
    pub async fn keep_turning<T>(board: &Board, work: impl Future<Output = T>) -> T {
        let mut tick = tokio::time::interval(TICK);
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = tick.tick() => board.beat(),
            }
        }
    }
}
