//! The instance's loop: looks at the volume, the Lease and the configuration, and makes of PostgreSQL what the election wants.
//!
//! Never: two things at once. There is one loop and one PostgreSQL; a want is pursued until it is replaced by the next.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bellwether_api::v1::InstanceState;
use bellwether_core::contract::{Archive, Leader, POSTGRES_PORT};
use bellwether_core::election::{Deadline, MemberId, Position};
use bellwether_core::fact::Fact;
use bellwether_core::instance::copying::Failed;
use bellwether_core::instance::leaving;
use bellwether_core::instance::start::{LeaseView, Start, VolumeState, start};
use bellwether_core::wal::{Lsn, SystemIdentifier, Term, Timeline};
use bellwether_postgres::sql::{POSTGRES_DATABASE, Session, SqlError};
use bellwether_postgres::{Installation, pidfile};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use rustls::ServerConfig;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::board::Board;
use crate::election::driver::{Fence, Wish};
use crate::election::peers::Peers;
use crate::election::record::Record;
use crate::election::steward::Steward;
use crate::election::tls::PeerTls;
use crate::election::{Known, Log, News, Role, Want};
use crate::environment::Environment;
use crate::guard::orders::{End, Order};
use crate::inputs::Inputs;
use crate::kubernetes::endpoint::Endpoint;
use crate::kubernetes::lease;
use crate::logs::{self, Complaints};
use crate::postmaster::{Launch, Postmaster};
use crate::process::reaper::Children;
use crate::restore::Restoring;
use crate::settings::{Followed, Places};
use crate::space::{Spaces, Volumes};
use crate::trouble::Trouble;
use crate::volume::{LastCopy, Volume};

/// How often the loop turns: fast enough that `Ready` falls within ten seconds of a reason, slow enough to cost nothing.
pub const TICK: Duration = Duration::from_secs(1);
/// How long PostgreSQL may take to answer one question of ours.
pub const SQL_DEADLINE: Duration = Duration::from_secs(3);
/// How long a standby may take to replay what it has, before it is asked again.
const KNOWS_ITS_END: Duration = Duration::from_secs(10);
/// Waiting for others: looked at again after this, or when the Lease or the configuration changes.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Refused: only a person can help, but a fixed volume or configuration is noticed.
pub const LOOK_AGAIN_REFUSED: Duration = Duration::from_secs(10);
/// After a failure, twice as long each time …
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));
/// The same for one that leads; the first time nearly at once.
const LEAD_RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));
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
    /// Held as long as this agent works on the volume.
    pub _lock: std::fs::File,
    /// What the volume remembers of the election.
    pub record: Record,
    /// What the election wants.
    pub want: watch::Receiver<Want>,
    /// Until when PostgreSQL may accept writes; the guard follows it.
    pub deadline: watch::Receiver<Deadline>,
    /// What it is told.
    pub news: mpsc::UnboundedSender<News>,
    /// The own log, for the others.
    pub log: watch::Sender<Log>,
    /// Whose database is on the volume.
    pub copy: watch::Sender<Option<SystemIdentifier>>,
    /// How far a primary has written, for the others.
    pub written: watch::Sender<Option<Lsn>>,
    /// What is known of the others.
    pub others: watch::Receiver<BTreeMap<MemberId, Known>>,
    /// The other agents.
    pub peers: Peers,
    /// What is wanted of the election.
    pub wishes: mpsc::UnboundedSender<Wish>,
    /// The certificates for the other agents.
    pub peer_tls: watch::Sender<Arc<PeerTls>>,
    /// What a standby's settings must not be below.
    pub least: BTreeMap<String, u64>,
    /// Since when it has had nobody to follow.
    pub stands_since: Option<Instant>,
    /// A former primary that is to follow: since when, and since when the new one is known to lead.
    pub held_back: Option<(Instant, Option<Instant>)>,
    /// Onto whose timeline the log was rewound last.
    pub rewound: Option<(MemberId, Timeline)>,
    /// What became of the last attempt at a copy.
    pub last_copy: LastCopy,
    /// How many failed.
    pub failed_copies: Failed,
    /// What is known of a restore.
    pub restoring: Restoring,
    /// Where the Secret is read that says how to get into the store that is restored from.
    pub secrets: Api<Secret>,
    /// Not before this does it try to start as a primary again.
    pub lead_after: Instant,
    /// Where the log ends of a standby that was stopped because it is fenced. Nothing once PostgreSQL has run again.
    pub fenced_end: Option<(Timeline, Lsn)>,
    /// Not before this does it hand over again because its volume is full.
    pub hand_over_after: Instant,
    /// Where the volumes are.
    pub volumes: Volumes,
    /// How much room they have.
    pub spaces: watch::Receiver<Spaces>,
    /// The Lease as last seen.
    pub lease: watch::Receiver<Fact<Value>>,
    /// The `rw` endpoint.
    pub endpoint: Endpoint,
    /// What we know of ourselves.
    pub board: Board,
    /// Generated files.
    pub places: Places,
    /// What the archiver goes by.
    pub archive: watch::Sender<Option<Archive>>,
    /// What is mounted.
    pub inputs: Inputs,
    /// The HTTPS server's certificate.
    pub server_tls: watch::Sender<Arc<ServerConfig>>,
    /// Certificates are in their place that PostgreSQL was not told of yet.
    pub unread_certificates: bool,
    /// PostgreSQL's last words.
    pub complaints: Complaints,
}

/// PostgreSQL, and what it runs as.
#[derive(Debug)]
pub struct Running {
    /// Its processes.
    pub postmaster: Postmaster,
    /// A session of the superuser's.
    pub session: Session,
    /// As what.
    pub runs_as: As,
    /// Where the log ends of a standby that was cut off for certain, and follows nobody since.
    pub end: Option<(Timeline, Lsn)>,
    /// Who holds the reins while it leads.
    pub steward: Option<Steward>,
}

/// What PostgreSQL runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum As {
    /// A standby of that leader, or of nobody.
    Standby(Option<Followed>),
    /// The primary of a term.
    Primary(Term),
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
    /// Lives until the future is dropped. What runs then is in `running`.
    pub async fn live(&mut self, running: &mut Option<Running>) -> Infallible {
        let mut backoff = Backoff::new(RETRY.0, RETRY.1);
        let mut lead_backoff = Backoff::new(LEAD_RETRY.0, LEAD_RETRY.1);
        loop {
            self.board.beat();
            self.refresh();
            let began = Instant::now();
            let want = self.want.borrow_and_update().clone();
            let turn = self.pursue(&want, running).await;
            if turn.is_ok() || began.elapsed() > GOOD_RUN {
                backoff.reset();
            }
            match turn {
                Ok(Turn::Again) => {}
                Ok(Turn::Wait(limit)) => self.wait_for_change(limit).await,
                Err(trouble) => {
                    tracing::error!(error = %trouble, "trying again");
                    self.end(running).await;
                    self.board.report(|report| {
                        report.accepts_sql = false;
                        report.message = Some(trouble.to_string());
                        if matches!(trouble, Trouble::Ended { .. } | Trouble::NoRoom { .. }) {
                            report.state = InstanceState::Down;
                        }
                    });
                    // A primary that ended is the election's to decide about, at once.
                    if matches!(want.role, Role::Lead { .. }) {
                        if began.elapsed() > GOOD_RUN {
                            lead_backoff.reset();
                        }
                        self.lead_after = Instant::now() + lead_backoff.next_wait();
                        if !self.superseded() {
                            let _ = self.news.send(News::Crashed);
                        }
                    }
                    self.wait_for_want(backoff.next_wait()).await;
                }
            }
        }
    }

    /// One attempt at what is wanted: until PostgreSQL ends or something else is wanted.
    async fn pursue(&mut self, want: &Want, running: &mut Option<Running>) -> Result<Turn, Trouble> {
        if let Role::Stop(manner) = want.role {
            let position = self.stop(want.number, running, manner).await;
            let _ = self.news.send(News::Stopped(want.number, position));
            return Ok(Turn::Wait(LOOK_AGAIN_REFUSED));
        }
        // One that is wanted to lead has not been told yet, and hands over when it is.
        if self.fence() == Fence::Up && !matches!(want.role, Role::Lead { .. }) {
            return Ok(self.stay_fenced(want, running).await);
        }
        if running.is_none() {
            match self.prepare(want).await? {
                None => {}
                Some(turn) => return Ok(turn),
            }
        }
        match &want.role {
            Role::Stand => self.stand(want.number, running).await,
            Role::Follow { .. } if self.has_left() => self.stay_out(running).await,
            Role::Follow { leader, term } => self.follow(*leader, *term, running).await,
            Role::Lead { term, voters } => self.lead(*term, voters.clone(), running).await,
            Role::Stop(_) => Ok(Turn::Again),
        }
    }

    /// Makes sure that the cluster's database is on the volume. Answers nothing when it is.
    async fn prepare(&mut self, want: &Want) -> Result<Option<Turn>, Trouble> {
        let state = {
            let _pause = self.children.pause();
            self.volume.inspect(&self.installation).await
        };
        let view = match self.lease.borrow_and_update().clone() {
            Fact::Known(object) => Fact::Known(lease::view(&object)?),
            Fact::Absent => Fact::Absent,
            Fact::Unknown => Fact::Unknown,
        };
        let decision = start(&state, &view, &self.inputs.config, &self.environment.instance);
        tracing::info!(volume = ?state, ?decision, wanted = ?want.role, "looked");
        if !matches!(decision, Start::Restore(_)) {
            self.board.report(|report| report.recovery = None);
        }
        let usable = self.record.lock().usable();
        if !matches!(decision, Start::Run { .. }) || !usable {
            // Whoever asks is told that there is no log here.
            self.copy.send_replace(None);
            if want.role == Role::Stand {
                let _ = self.news.send(News::Standing(want.number, None));
            }
        }
        match (decision, view) {
            (Start::Initialise, _) => self.initialise(&state).await.map(Some),
            (Start::Restore(order), _) => self.restore(&order, &state).await.map(Some),
            (Start::Join { from }, Fact::Known(view)) => self.join(&from, &view, &state).await.map(Some),
            // A copy or rewind was interrupted after the database was in place: it is not to be trusted.
            (Start::SetAside, _) => {
                self.volume.set_aside()?;
                Ok(Some(Turn::Again))
            }
            (Start::Run { .. }, _) if !usable => {
                self.volume.set_aside()?;
                Ok(Some(Turn::Again))
            }
            (Start::Run { first }, _) => {
                if let VolumeState::Data(system)
                | VolumeState::Unannounced(system)
                | VolumeState::Restored { system, .. } = state
                {
                    self.copy.send_replace(Some(system));
                    self.board.report(|report| report.system_identifier = Some(system));
                }
                if first {
                    let _ = self.news.send(News::Initialised);
                }
                Ok(None)
            }
            (Start::Wait(why), _) => Ok(Some(self.idle(InstanceState::Pending, why.to_string(), LOOK_AGAIN))),
            (Start::Refuse(why), _) => Ok(Some(self.idle(InstanceState::Down, why.to_string(), LOOK_AGAIN_REFUSED))),
            // Nothing is copied on a Lease that was not read.
            (Start::Join { .. }, Fact::Absent | Fact::Unknown) => Ok(Some(Turn::Wait(LOOK_AGAIN))),
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

    /// Where `leader` is: as it says itself, or as the Lease says.
    pub(crate) fn place_of(&self, leader: MemberId) -> Option<Leader> {
        let named = self.lease_view().filter(|view| view.holder.as_deref() == Some(&leader.to_string()));
        if let Some(place) = named.and_then(|view| view.leader) {
            return Some(place);
        }
        let (_, instance, address) = self.peers.who().into_iter().find(|(id, ..)| *id == leader)?;
        Some(Leader { instance, address: address.to_string() })
    }

    /// What the Lease said last, if it can be understood.
    pub(crate) fn lease_view(&self) -> Option<LeaseView> {
        self.lease.borrow().known().and_then(|object| lease::view(object).ok())
    }

    /// Whether something else is wanted by now.
    pub(crate) fn superseded(&self) -> bool {
        self.want.has_changed().unwrap_or(true)
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
        let _ = self.wishes.send(Wish::Settings(crate::agent::settings(&self.inputs)));
        let _ = self.wishes.send(Wish::Fence(self.fence()));
        if self.fence() == Fence::Down {
            self.report_fence_lifted();
        }
        let _ = self.wishes.send(Wish::Leaving(leaving::leaving(&self.inputs.config)));
        self.peers.set_instances(&self.inputs.config.everybody());
        let archive = &self.inputs.config.archive;
        self.archive.send_if_modified(|known| {
            known != archive && {
                known.clone_from(archive);
                true
            }
        });
        match self.places.stage(&self.inputs) {
            Ok(staged) => self.unread_certificates |= staged,
            Err(error) => tracing::error!(%error, "certificates can't be staged"),
        }
        match crate::http::server_config(&self.places.server_tls) {
            Ok(config) => drop(self.server_tls.send_replace(config)),
            Err(error) => tracing::error!(%error, "the old certificate is kept"),
        }
        match PeerTls::read(&self.places.server_tls, &self.places.replication_tls) {
            Ok(tls) => drop(self.peer_tls.send_replace(Arc::new(tls))),
            Err(error) => tracing::error!(%error, "the old certificate for peers is kept"),
        }
        true
    }

    /// Starts PostgreSQL and waits until it answers, or until it is not wanted to run any more.
    pub async fn launch(&mut self, runs_as: As, running: &mut Option<Running>) -> Result<(), Trouble> {
        self.launch_unless(runs_as, running, |_| None).await
    }

    /// The same, for as long as nothing speaks against it.
    pub(crate) async fn launch_unless(
        &mut self,
        runs_as: As,
        running: &mut Option<Running>,
        objection: impl FnMut(&mut Self) -> Option<Trouble>,
    ) -> Result<(), Trouble> {
        self.complaints.forget();
        self.fenced_end = None;
        // What its last run lacked, this one has.
        self.board.report(|report| {
            report.pending_restart.clear();
            report.lowered.clear();
            report.parameters = None;
        });
        let launch = Launch {
            guard: self.guard.clone(),
            lock: self.volume.lock(),
            program: self.installation.program("postgres"),
            arguments: vec!["-D".into(), self.volume.pgdata().into()],
            environment: &[],
        };
        let complaints = self.complaints.clone();
        let log = |stderr| drop(tokio::spawn(logs::forward(stderr, complaints)));
        let deadline = match runs_as {
            As::Primary(_) => *self.deadline.borrow(),
            As::Standby(_) => Deadline::Never,
        };
        let started = Postmaster::start_until(&launch, deadline, &self.children, log).await;
        let mut postmaster = started.map_err(|cause| Trouble::Io { what: "start PostgreSQL", cause })?;
        let steward = match runs_as {
            As::Primary(_) => Some(self.hold(&postmaster).await),
            As::Standby(_) => None,
        };
        let session = self.answering(&mut postmaster, objection).await;
        match session {
            Ok(session) => {
                self.board.set_started();
                *running = Some(Running { postmaster, session, runs_as, end: None, steward });
                Ok(())
            }
            Err(trouble) => {
                postmaster.order(Order::Kill).await;
                postmaster.ended().await;
                Err(trouble)
            }
        }
    }

    /// Lets the guard have the end of tenure, and the order to kill, past this loop.
    pub(crate) async fn hold(&self, postmaster: &Postmaster) -> Steward {
        Steward::hold(postmaster.reins(), self.deadline.clone(), self.want.clone()).await
    }

    async fn answering(
        &mut self,
        postmaster: &mut Postmaster,
        mut objection: impl FnMut(&mut Self) -> Option<Trouble>,
    ) -> Result<Session, Trouble> {
        let mut tick = tokio::time::interval(Duration::from_millis(20));
        // Recovery may take long, and a person may not want it.
        let mut look_again = Instant::now() + TICK;
        loop {
            tokio::select! {
                end = postmaster.ended() => return Err(self.ended(end)),
                _ = tick.tick() => {}
            }
            self.board.beat();
            let fenced = look_again <= Instant::now() && {
                look_again = Instant::now() + TICK;
                self.refresh() && self.fence() == Fence::Up
            };
            if fenced || matches!(self.want.borrow().role, Role::Stop(_)) {
                return Err(Trouble::NotWanted);
            }
            if let Some(trouble) = objection(self) {
                return Err(trouble);
            }
            // A connection before that is refused, and a line in the log each time.
            let file = pidfile::read(&self.volume.pgdata()).ok().flatten();
            let ours = file.filter(|file| Some(file.pid) == postmaster.pid());
            if ours.and_then(|file| file.status) == Some(pidfile::Status::Ready) {
                match self.session().await {
                    Ok(session) => return Ok(session),
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

    /// Nothing of PostgreSQL is left after this.
    pub(crate) async fn end(&mut self, running: &mut Option<Running>) {
        if let Some(mut running) = running.take() {
            self.board.report(|report| {
                report.accepts_sql = false;
                report.commits_wait = false;
            });
            running.postmaster.order(Order::Kill).await;
            running.postmaster.ended().await;
            let _ = self.news.send(News::Streaming(None));
        }
        self.children.kill_orphans().await;
    }

    /// Where the log of a running standby ends, which receives from nobody.
    pub(crate) async fn end_of_log(&self, session: &Session) -> Result<(Timeline, Lsn), Trouble> {
        Ok(session.end_of_log(&self.volume.pgdata(), KNOWS_ITS_END).await?)
    }

    /// The same, as the election compares it. A log of which nobody knows who wrote it is none.
    pub(crate) fn positioned(&self, (timeline, lsn): (Timeline, Lsn)) -> Option<Position> {
        let term = self.record.lock().term_of(timeline)?;
        Some(Position { term, timeline, lsn })
    }

    /// Waits, but keeps turning, and no longer than until something else is wanted.
    pub async fn wait_for_want(&mut self, limit: Duration) {
        let until = Instant::now() + limit;
        while Instant::now() < until {
            self.board.beat();
            tokio::select! {
                Ok(()) = self.want.changed() => {
                    self.want.mark_changed();
                    return;
                }
                () = tokio::time::sleep_until(until.min(Instant::now() + TICK)) => {}
            }
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
                Ok(()) = self.want.changed() => {
                    self.want.mark_changed();
                    return;
                }
                Ok(()) = self.lease.changed() => return,
                Ok(()) = self.others.changed() => return,
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
