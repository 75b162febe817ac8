//! Follows, stands and stops: PostgreSQL as a standby of a leader or of nobody, and not at all.
//!
//! Never: starts writable (`standby.signal` is durable before PostgreSQL starts); receives from a leader whose history parts from the own
//! log; says that nobody is received from before that is certain.

use std::time::Duration;

use bellwether_api::v1::{InstanceRole, InstanceState};
use bellwether_core::contract::key;
use bellwether_core::election::{MemberId, Position, Span};
use bellwether_core::instance::history::{self, Told};
use bellwether_core::instance::missing::Missing;
use bellwether_core::instance::rejoin::{Own, Rejoin, rejoin};
use bellwether_core::instance::space::Space;
use bellwether_core::instance::standby::{RECONNECT_GRACE, Sample, Standby};
use bellwether_core::lease_object;
use bellwether_core::wal::{Lsn, Term, Timeline};
use bellwether_postgres::conf;
use bellwether_postgres::control;
use bellwether_postgres::signal::{self, StartAs};
use bellwether_postgres::sql::{Cut, ServerState};
use bellwether_postgres::wal;
use tokio::time::{Instant, MissedTickBehavior};

use crate::board::Vitals;
use crate::configuration::Configuration;
use crate::drain::drain;
use crate::election::driver::Fence;
use crate::election::{Log, Manner, News};
use crate::guard::orders::Order;
use crate::instance::{As, Instance, Running, TICK, Turn};
use crate::primary::SLOTS_CHECK;
use crate::rewind::Onto;
use crate::settings::{Followed, RunAs};
use crate::trouble::Trouble;

/// How long a shutdown may take before everything is killed, when another is to lead or it is to lead again.
pub(crate) const GENTLE_STOP: Duration = Duration::from_secs(10);
/// How long cutting the receiver may take, before it is tried again.
const CUT: Duration = Duration::from_secs(5);
/// How often a standby that doesn't stream yet is looked at.
const SOON: Duration = Duration::from_millis(100);
/// How long it takes until a new primary's endpoint is known on every node.
const ENDPOINT_MOVES: Duration = Duration::from_millis(1_500);
/// … and for how long a former primary waits for one.
const HELD_BACK: Duration = Duration::from_secs(10);
/// How often a standby that has more than the spec says looks whether it must.
const LEAST_CHECK: Duration = Duration::from_secs(3);
/// How often it is asked where a leader is, and which history it has, while that is not known.
const LEADER_KNOWN: Duration = Duration::from_millis(200);

impl Instance {
    /// Nothing of PostgreSQL is left after this. Where the log ends can be told only of one that was drained, or shut down in order.
    pub(crate) async fn stop(
        &mut self,
        number: u64,
        running: &mut Option<Running>,
        manner: Manner,
    ) -> Option<Position> {
        let drained = match manner {
            Manner::Drained => self.drain(running).await,
            Manner::AtOnce | Manner::Gently => None,
        };
        if let Some(end) = drained {
            // The others are asked while the last processes are reaped.
            let _ = self.news.send(News::Drained(number, self.positioned(end)));
        }
        if manner != Manner::AtOnce
            && drained.is_none()
            && let Some(now) = running.as_mut()
        {
            now.postmaster.order(Order::StopFast).await;
            if tokio::time::timeout(GENTLE_STOP, now.postmaster.ended()).await.is_ok() {
                *running = None;
            }
        }
        self.end(running).await;
        // Also where nothing was left to end: a leader counts on whoever last said that it streams, and commits would wait for it.
        let _ = self.news.send(News::Streaming(None));
        self.tell_no_log();
        match self.fence() {
            Fence::Up => self.report_fenced(),
            Fence::Down => self.board.report(|report| {
                report.state = InstanceState::Down;
                report.accepts_sql = false;
                report.message = Some("stopped, so that another can lead".to_owned());
            }),
        }
        if let Some(end) = drained {
            return self.positioned(end);
        }
        let _pause = self.children.pause();
        let end = wal::end_of_shutdown(&self.installation, &self.volume.pgdata()).await;
        end.ok().flatten().and_then(|end| self.positioned(end))
    }

    /// Where the log of a primary ends that nobody can write to any more; nothing where it has to be shut down instead.
    async fn drain(&mut self, running: &mut Option<Running>) -> Option<(Timeline, Lsn)> {
        let now = running.as_mut().filter(|now| matches!(now.runs_as, As::Primary(_)))?;
        if !now.session.is_usable() {
            now.session = self.session().await.ok()?;
        }
        match drain(&now.session, now.postmaster.pid()?).await {
            Ok(end) => {
                tracing::info!(lsn = %end.1, timeline = end.0.0, "drained: the log ends here");
                Some(end)
            }
            Err(error) => {
                tracing::warn!(%error, "it can't be drained, and is shut down");
                None
            }
        }
    }

    /// A standby that receives from nobody, until something else is wanted.
    pub(crate) async fn stand(&mut self, number: u64, running: &mut Option<Running>) -> Result<Turn, Trouble> {
        if running.is_none() && self.record.lock().log().is_empty() {
            // A database that nobody has led yet begins as a primary. It is the beginning of every log, not none: its agent may have died right
            // after it took the Lease, and nobody else has anything to lead with.
            let _ = self.news.send(News::Standing(number, Some(history::BEGINNING)));
            return Ok(Turn::Wait(TICK));
        }
        self.be_standby(None, running).await?;
        if self.superseded() {
            return Ok(Turn::Again);
        }
        let Some(end) = self.cut(running).await? else { return Ok(Turn::Again) };
        let _ = self.news.send(News::Streaming(None));
        tracing::info!(lsn = %end.1, timeline = end.0.0, "the log ends here");
        let _ = self.news.send(News::Standing(number, self.positioned(end)));
        self.serve_as_standby(None, running).await
    }

    /// Whether this instance was to leave and is no member of the election any more: nobody counts on it, and its slot can go.
    pub(crate) fn has_left(&self) -> bool {
        if !self.inputs.config.is_leaving(&self.environment.instance) {
            return false;
        }
        let lease = self.lease.borrow();
        let view = lease.known().and_then(|object| lease_object::read(object, Span(0)).ok());
        view.is_some_and(|view| !view.content.members.contains(self.record.lock().identity()))
    }

    /// A standby that receives from nobody, until it is gone; or let in again.
    pub(crate) async fn stay_out(&mut self, running: &mut Option<Running>) -> Result<Turn, Trouble> {
        self.be_standby(None, running).await?;
        if self.superseded() || self.cut(running).await?.is_none() {
            return Ok(Turn::Again);
        }
        let _ = self.news.send(News::Streaming(None));
        tracing::info!("it has left the members of the election, and receives nothing any more");
        self.serve_as_standby(None, running).await
    }

    /// A standby of `leader`, until something else is wanted.
    pub(crate) async fn follow(
        &mut self,
        leader: MemberId,
        term: Term,
        running: &mut Option<Running>,
    ) -> Result<Turn, Trouble> {
        let Some(place) = self.place_of(leader) else {
            self.note("waiting for the leader's address".to_owned());
            return Ok(Turn::Wait(LEADER_KNOWN));
        };
        if running.is_none() && !self.may_return(leader, term)? {
            self.note(format!("waiting until clients find {}", place.instance));
            return Ok(Turn::Wait(LEADER_KNOWN));
        }
        // Nothing is received before the own end is known, and the leader's history in this very term.
        let followed = Followed { place, term };
        let place = &followed.place;
        let already = running.as_ref().is_some_and(|now| now.runs_as == As::Standby(Some(followed.clone())));
        if !already {
            self.be_standby(None, running).await?;
            if self.superseded() {
                return Ok(Turn::Again);
            }
            let Some(end) = self.cut(running).await? else { return Ok(Turn::Again) };
            let told = self.told_by(leader);
            let log = self.record.lock().log().to_vec();
            match rejoin(&Own { timeline: end.0, end: end.1, log: &log }, term, told.as_ref()) {
                Rejoin::Stream(log) => self.record.lock().adopt_log(log)?,
                Rejoin::Wait => {
                    self.note(format!("waiting for {} to accept writes", place.instance));
                    return Ok(Turn::Wait(LEADER_KNOWN));
                }
                parted @ Rejoin::Parted { .. } => {
                    tracing::warn!(?parted, ?end, leader = place.instance, "this log parts from the leader's");
                    let Some((timeline, history)) = self.history_of(leader, term) else { return Ok(Turn::Again) };
                    let onto = Onto { leader, place: place.clone(), term, timeline, history };
                    return self.bring_back(&onto, end, running).await;
                }
            }
        }
        self.be_standby(Some(&followed), running).await?;
        self.serve_as_standby(Some((leader, followed)), running).await
    }

    /// Whether clients may connect here again. A former primary that is back before the read-write endpoint has moved, on every node,
    /// would be connected to by who wants to write, and keep them.
    fn may_return(&mut self, leader: MemberId, term: Term) -> Result<bool, Trouble> {
        let was =
            signal::read(&self.volume.pgdata()).map_err(|cause| Trouble::Io { what: "read standby.signal", cause })?;
        let now = Instant::now();
        let (since, led) = self.held_back.unwrap_or((now, None));
        let led = led.or_else(|| self.history_of(leader, term).map(|_| now));
        let moved = led.is_some_and(|led| led.elapsed() >= ENDPOINT_MOVES);
        let may = was == StartAs::Standby || moved || since.elapsed() >= HELD_BACK;
        self.held_back = (!may).then_some((since, led));
        Ok(may)
    }

    /// What the leader last told of its log.
    fn told_by(&mut self, leader: MemberId) -> Option<Told> {
        self.others.borrow_and_update().get(&leader).map(|known| known.told.clone())
    }

    /// The history that the leader writes in this term, as it told it.
    pub(crate) fn history_of(&mut self, leader: MemberId, term: Term) -> Option<(Timeline, Told)> {
        let told = self.told_by(leader)?;
        Some((told.leads(term)?, told))
    }

    /// Nobody is received from after this, and the log ends here. The configuration names nobody already.
    pub(crate) async fn cut(&self, running: &mut Option<Running>) -> Result<Option<(Timeline, Lsn)>, Trouble> {
        let Some(now) = running.as_mut() else { return Ok(None) };
        if now.end.is_none() {
            let key = self.places.replication_tls.join(key::TLS_KEY);
            now.session = Cut { key: Some(&key), patience: CUT }.run(&now.session, || self.session()).await?;
            now.end = Some(self.end_of_log(&now.session).await?);
        }
        Ok(now.end)
    }

    /// Others are not to compare their logs with this one any more.
    fn tell_no_log(&self) {
        self.written.send_replace(None);
        self.log.send_if_modified(|log| std::mem::take(log) != Log::default());
    }

    pub(crate) fn note(&self, message: String) {
        self.board.report(|report| report.message = Some(message));
    }

    /// Runs PostgreSQL as a standby of `upstream`. A primary is stopped first: whoever is to follow has no tenure.
    pub(crate) async fn be_standby(
        &mut self,
        upstream: Option<&Followed>,
        running: &mut Option<Running>,
    ) -> Result<(), Trouble> {
        if running.as_ref().is_some_and(|now| matches!(now.runs_as, As::Primary(_))) {
            self.end(running).await;
        }
        self.tell_no_log();
        self.volume.announced()?;
        let wanted = As::Standby(upstream.cloned());
        match running.as_mut() {
            Some(now) if now.runs_as == wanted => Ok(()),
            Some(_) => {
                let changed = self.write_settings(RunAs::Standby(upstream))?;
                if let Some(now) = running.as_mut() {
                    if changed {
                        now.postmaster.order(Order::Reload).await;
                    }
                    now.end = None;
                    now.runs_as = wanted;
                }
                Ok(())
            }
            None => {
                self.make_room_to_start(false)?;
                signal::set(&self.volume.pgdata(), StartAs::Standby)
                    .map_err(|cause| Trouble::Io { what: "write standby.signal", cause })?;
                self.look_at_settings().await?;
                self.write_settings(RunAs::Standby(upstream))?;
                self.board.report(|report| {
                    report.role = Some(InstanceRole::Standby);
                    report.state = InstanceState::Starting;
                    report.slots = None;
                    report.message = None;
                });
                self.launch(wanted, running).await
            }
        }
    }

    /// What the WAL here was written with: a standby whose settings are below does not start.
    pub(crate) async fn look_at_settings(&mut self) -> Result<(), Trouble> {
        let _pause = self.children.pause();
        self.least = control::read(&self.installation, &self.volume.pgdata()).await?.written_with;
        Ok(())
    }

    /// Whether the WAL here asks for less by now than this standby is held to by it.
    async fn may_be_lower(&mut self) -> bool {
        if conf::above(&self.inputs.config.parameters, &self.least).is_empty() {
            return false;
        }
        let before = self.least.clone();
        if let Err(error) = self.look_at_settings().await {
            tracing::debug!(%error, "what the WAL was written with can't be looked at");
        }
        self.least != before
    }

    async fn serve_as_standby(
        &mut self,
        leader: Option<(MemberId, Followed)>,
        running: &mut Option<Running>,
    ) -> Result<Turn, Trouble> {
        let began = Instant::now();
        let mut standby = Standby::started(began.elapsed());
        let mut configuration = Configuration::unknown();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut soon = tokio::time::interval(SOON);
        soon.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut streams = false;
        // What is mounted may have changed while PostgreSQL started.
        let mut unwritten = true;
        let mut slots_due = began;
        let mut least_due = began + LEAST_CHECK;
        let mut missing = Missing::default();
        let left = leader.is_none() && self.has_left();
        loop {
            let full = self.space() == Space::Full;
            let Some(now) = running.as_mut() else { return Ok(Turn::Again) };
            tokio::select! {
                end = now.postmaster.ended() => {
                    *running = None;
                    let _ = self.news.send(News::Streaming(None));
                    return Err(self.ended(end));
                }
                Ok(()) = self.want.changed() => {
                    self.want.mark_changed();
                    return Ok(Turn::Again);
                }
                Ok(()) = self.spaces.changed() => unwritten = true,
                _ = soon.tick(), if leader.is_some() && !streams && !full => {}
                _ = tick.tick() => {}
            }
            self.board.beat();
            // The leader came back at another address.
            if let Some((id, followed)) = &leader
                && self.place_of(*id).is_some_and(|found| found != followed.place)
            {
                return Ok(Turn::Again);
            }
            if self.has_left() != left {
                return Ok(Turn::Again);
            }
            if Instant::now() >= least_due {
                least_due = Instant::now() + LEAST_CHECK;
                unwritten |= self.may_be_lower().await;
            }
            let Some(now) = running.as_mut() else { return Ok(Turn::Again) };
            if self.refresh() || unwritten {
                if self.fence() == Fence::Up {
                    return Ok(Turn::Again);
                }
                let written = self.write_settings(RunAs::Standby(leader.as_ref().map(|(_, followed)| followed)));
                // A volume that can't be written to is tried again: PostgreSQL goes on by what it has.
                unwritten = written.is_err();
                match written {
                    Ok(true) => {
                        now.postmaster.order(Order::Reload).await;
                        configuration.written();
                    }
                    Ok(false) => {}
                    Err(error) => tracing::error!(%error, "the configuration can't be written"),
                }
            }
            if !now.session.is_usable() {
                match self.session().await {
                    Ok(again) => now.session = again,
                    Err(error) => {
                        self.report_silence(error.to_string());
                        continue;
                    }
                }
            }
            match now.session.state().await {
                Ok(state) if !state.in_recovery => return Err(Trouble::PromotedByOthers),
                Ok(state) if left => self.report_out(&state, now.postmaster.pid()),
                Ok(state) if leader.is_none() => self.report_standing(&state, now.end, now.postmaster.pid()),
                Ok(state) => {
                    self.stands_since = None;
                    let receiving = state.receiver.as_ref().is_some_and(|receiver| receiver.streaming);
                    if receiving != streams {
                        streams = receiving;
                        let from = leader.as_ref().filter(|_| streams).map(|(id, _)| *id);
                        let _ = self.news.send(News::Streaming(from));
                        if streams && let Err(error) = self.volume.forget_aside() {
                            tracing::warn!(%error, "what was set aside is still there");
                        }
                    }
                    if let Some((id, Followed { place, .. })) = &leader
                        && streams
                        && Instant::now() >= slots_due
                    {
                        slots_due = Instant::now() + SLOTS_CHECK;
                        if let Err(error) = self.keep_slots_as_standby(&now.session, (*id, place)).await {
                            tracing::warn!(%error, "slots for the others can't be kept");
                        }
                    }
                    let parameters = &self.inputs.config.parameters;
                    if !unwritten && let Err(error) = configuration.look(&now.session, parameters).await {
                        tracing::debug!(%error, "the configuration can't be asked for");
                    }
                    let removed = self.complaints.removed().map(|at| at.saturating_duration_since(began));
                    if let Some((_, followed)) = &leader
                        && missing.observe(state.replayed, removed, began.elapsed())
                    {
                        return self.start_over(followed, running).await;
                    }
                    let written = leader.as_ref().and_then(|(id, _)| self.others.borrow().get(id)?.written);
                    let name = standby.observe(&sample(&state, written), began.elapsed());
                    let notes = self.standby_notes(name, &configuration);
                    self.board.set_vitals(vitals(&state, now.postmaster.pid()));
                    let held = conf::above(&self.inputs.config.parameters, &self.least);
                    self.board.report(|report| {
                        report.pending_restart = configuration.pending().to_vec();
                        report.lowered = held;
                        report.parameters = configuration.of();
                    });
                    self.report_standby(state, name, notes);
                }
                Err(error) => self.report_silence(error.to_string()),
            }
        }
    }

    /// The leader has removed what this log goes on with.
    async fn start_over(&mut self, followed: &Followed, running: &mut Option<Running>) -> Result<Turn, Trouble> {
        self.end(running).await;
        let _ = self.news.send(News::Streaming(None));
        // Somebody may want to know where it ends by now, and then it is a log like any other.
        if self.superseded() {
            return Ok(Turn::Again);
        }
        let leader = &followed.place.instance;
        tracing::warn!(
            leader,
            "the leader has removed the WAL that goes on here: this is set aside, and its is copied"
        );
        self.copy_anew(&followed.place, followed.term, "it has removed the WAL that goes on here")
    }

    fn report_silence(&self, why: String) {
        self.board.report(|report| {
            report.accepts_sql = false;
            report.message = Some(why);
        });
    }

    /// An election takes a second or two, and many attempts when somebody is missing: only what lasts is said, and once.
    fn report_standing(&mut self, state: &ServerState, end: Option<(Timeline, Lsn)>, postmaster_pid: Option<i32>) {
        self.board.set_vitals(vitals(state, postmaster_pid));
        let since = *self.stands_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= RECONNECT_GRACE {
            // It stands still, so this is said once; and it is what a person needs who has to choose.
            let end = end.and_then(|end| self.positioned(end));
            let end =
                end.map(|end| format!("; its log ends at {} of term {}", end.lsn, end.term.0)).unwrap_or_default();
            self.board.report(|report| {
                report.role = Some(InstanceRole::Standby);
                report.state = InstanceState::NotStreaming;
                report.accepts_sql = true;
                report.message = Some(format!("there is no leader to follow{end}"));
            });
        }
    }

    /// That it is out is said at once: its pod waits for it.
    fn report_out(&mut self, state: &ServerState, postmaster_pid: Option<i32>) {
        self.board.set_vitals(vitals(state, postmaster_pid));
        self.board.report(|report| {
            report.role = Some(InstanceRole::Standby);
            report.state = InstanceState::NotStreaming;
            report.accepts_sql = true;
            report.message = Some("it has left the cluster, and its pod is to go".to_owned());
        });
    }

    fn standby_notes(&self, name: InstanceState, configuration: &Configuration) -> Option<String> {
        let mut notes = vec![];
        match self.full_volumes() {
            Some(full) => notes.push(format!("nothing is received: the {full} is full")),
            None if name == InstanceState::NotStreaming => {
                notes.push(self.complaints.streaming().unwrap_or("no connection to the primary".into()));
            }
            None => {}
        }
        notes.extend(configuration.complaints().iter().cloned());
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    fn report_standby(&self, state: ServerState, name: InstanceState, message: Option<String>) {
        let term = self.lease_view().and_then(|view| view.term);
        self.board.report(|report| {
            report.role = Some(InstanceRole::Standby);
            report.state = name;
            report.accepts_sql = true;
            report.message = message;
            report.timeline = Some(state.timeline);
            report.postgres_version = Some(state.version);
            if let Some(term) = term {
                report.term = Some(term.0);
            }
        });
    }
}

fn vitals(state: &ServerState, postmaster_pid: Option<i32>) -> Vitals {
    Vitals {
        lsn: state.replayed,
        lag_bytes: state.received.zip(state.replayed).map(|(received, replayed)| received.ahead_of(replayed)),
        lag_seconds: state.lag_seconds,
        postmaster_pid,
        postmaster_started: Some(state.started.clone()),
    }
}

/// `written` is what the leader's agent told, each second; what its PostgreSQL sends says how far it is by now.
fn sample(state: &ServerState, written: Option<Lsn>) -> Sample {
    let sent = state.receiver.as_ref().and_then(|receiver| receiver.sender_end);
    Sample {
        leader: written.max(sent),
        receiving: state.receiver.as_ref().is_some_and(|receiver| receiver.streaming),
        received: state.received,
        replayed: state.replayed,
        lag_seconds: state.lag_seconds,
    }
}
