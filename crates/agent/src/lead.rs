//! Leads: makes PostgreSQL the primary of a term, and keeps roles, slots, synchronous replication and the `rw` endpoint as
//! they should be.
//!
//! Never: a primary that the election doesn't want; commits that wait for fewer than it said, from the first client on. A standby's own
//! configuration lets commits wait for somebody who never comes, so a promoted one acknowledges nothing before it has read whom to
//! wait for.

use std::time::Duration;

use bellwether_api::v1::{InstanceRole, InstanceState};
use bellwether_core::election::Voters;
use bellwether_core::instance::history::{Told, leads_on};
use bellwether_core::wal::{Term, Timeline};
use bellwether_postgres::signal::{self, StartAs};
use bellwether_postgres::wal;
use tokio::time::{Instant, MissedTickBehavior};

use crate::board::Vitals;
use crate::election::{Log, News, Role};
use crate::follow::GENTLE_STOP;
use crate::guard::orders::Order;
use crate::instance::{As, Instance, Running, TICK, Turn};
use crate::primary::Primary;
use crate::pulse;
use crate::settings::{self, OnVolume, RunAs};
use crate::trouble::Trouble;

/// How often the endpoint is looked at when all is well: somebody may have changed it, and a read is cheap.
const ENDPOINT_CHECK: Duration = Duration::from_secs(60);
/// … and how often by one that has led for less than this.
const ENDPOINT_CHECK_YOUNG: Duration = Duration::from_secs(3);
const YOUNG: Duration = Duration::from_secs(60);
/// How often a failing primary is asked whether it accepts SQL before that is withdrawn: once more, a tick later.
const FAILURES_TOLERATED: u32 = 1;
/// How often a promoted server is asked whether it is out of recovery.
const PROMOTED: Duration = Duration::from_millis(2);
/// How long a promotion may take before another is let try. It takes a tenth of a second, and what is left to replay.
const PROMOTE_WITHIN: Duration = Duration::from_secs(30);
/// While voters are on their way into force, and right after a promotion: how often is looked.
const SOON: Duration = Duration::from_millis(100);

impl Instance {
    /// One life as primary: until PostgreSQL ends, or something else is wanted.
    pub(crate) async fn lead(
        &mut self,
        term: Term,
        voters: Option<Voters>,
        running: &mut Option<Running>,
    ) -> Result<Turn, Trouble> {
        self.volume.announced()?;
        self.board.report(|report| {
            report.role = Some(InstanceRole::Primary);
            report.term = Some(term.0);
            report.message = None;
        });
        match running.as_ref().map(|running| running.runs_as.clone()) {
            Some(As::Primary(_)) => {}
            Some(As::Standby(_)) => self.promote(term, voters.as_ref(), running).await?,
            None => self.start_leading(term, voters.as_ref(), running).await?,
        }
        if self.superseded() {
            return Ok(Turn::Again);
        }
        let Some(now) = running.as_mut() else { return Ok(Turn::Again) };
        now.runs_as = As::Primary(term);
        self.stands_since = None;
        self.held_back = None;
        let session = self.session().await?;
        self.tell_log(session.state().await?.timeline, term);
        let mut primary = Primary::new(session, term);
        primary.will_wait_for(term, voters);
        self.configure(&mut primary, running).await;
        self.serve_as_primary(running, primary).await
    }

    /// Lets the server read what it is to go by, if that is new. A volume that can't be written to is tried again: PostgreSQL goes on by
    /// what it has.
    pub(crate) async fn configure(&mut self, primary: &mut Primary, running: &mut Option<Running>) {
        let voters = primary.voters.as_ref();
        match self.write_settings(RunAs::Primary(voters, primary.term)) {
            Ok(true) => {
                tracing::info!(?voters, term = primary.term.0, "reading the configuration again");
                if let Some(running) = running.as_mut() {
                    running.postmaster.order(Order::Reload).await;
                }
                primary.configuration.written();
            }
            Ok(false) => {}
            Err(error) => {
                tracing::error!(%error, "the configuration can't be written");
                primary.reload_later();
            }
        }
    }

    /// A standby becomes the primary. What it writes from here on is of this term.
    async fn promote(
        &mut self,
        term: Term,
        voters: Option<&Voters>,
        running: &mut Option<Running>,
    ) -> Result<(), Trouble> {
        let Some(now) = running.as_mut() else { return Ok(()) };
        let began = Instant::now();
        if !now.session.is_usable() {
            now.session = self.session().await?;
        }
        let (timeline, end) = match now.end.take() {
            Some(end) => end,
            None => self.end_of_log(&now.session).await?,
        };
        self.remember_log(term, timeline)?;
        // Whoever has no more than this may connect already: the first commit waits for one of them.
        let told = Told::promoting(end, self.record.lock().log().to_vec());
        self.log.send_replace(Log { told, ..Log::default() });
        self.write_settings(RunAs::Primary(voters, term))?;
        now.steward = Some(self.hold(&now.postmaster).await);
        now.postmaster.order(Order::Reload).await;
        now.session.promote().await?;
        while now.session.in_recovery().await? {
            self.board.beat();
            if began.elapsed() > PROMOTE_WITHIN {
                return Err(Trouble::NotWritable(format!("not promoted within {PROMOTE_WITHIN:?}")));
            }
            tokio::time::sleep(PROMOTED).await;
        }
        tracing::info!(term = term.0, millis = began.elapsed().as_millis() as u64, "promoted");
        self.publish_at_once();
        Ok(())
    }

    /// PostgreSQL is down: it starts again as the primary that it was in this very term, or as a standby that is promoted.
    async fn start_leading(
        &mut self,
        term: Term,
        voters: Option<&Voters>,
        running: &mut Option<Running>,
    ) -> Result<(), Trouble> {
        // What failed a moment ago fails again: a server that can't start must not be tried without a pause.
        self.wait_for_want(self.lead_after.saturating_duration_since(Instant::now())).await;
        if self.superseded() {
            return Ok(());
        }
        self.make_room_to_start(true)?;
        let pgdata = self.volume.pgdata();
        let signal = |start_as| {
            signal::set(&pgdata, start_as).map_err(|cause| Trouble::Io { what: "write standby.signal", cause })
        };
        let was = signal::read(&pgdata).map_err(|cause| Trouble::Io { what: "read standby.signal", cause })?;
        let newest = self.record.lock().log().last().map(|entry| entry.term);
        if was == StartAs::Primary && newest.is_none_or(|newest| newest == term) {
            if newest.is_none() {
                self.remember_log(term, Timeline(0))?;
            }
            self.write_settings(RunAs::Primary(voters, term))?;
            self.launch(As::Primary(term), running).await?;
            return Ok(());
        }
        signal(StartAs::Standby)?;
        self.look_at_settings().await?;
        self.write_settings(RunAs::Standby(None))?;
        self.launch(As::Standby(None), running).await?;
        self.promote(term, voters, running).await
    }

    /// WAL above this timeline will be of this term. Durable before any of it is there.
    pub(crate) fn remember_log(&self, term: Term, above: Timeline) -> Result<(), Trouble> {
        self.record.lock().will_receive(term, above).map_err(Trouble::from)
    }

    /// Before anything else a promoted primary has to do.
    fn publish_at_once(&self) {
        let endpoint = self.endpoint.clone();
        tokio::spawn(async move {
            if let Err(error) = endpoint.take_over().await {
                tracing::warn!(%error, "the read-write endpoint doesn't lead here yet");
            }
        });
    }

    async fn serve_as_primary(&mut self, running: &mut Option<Running>, mut primary: Primary) -> Result<Turn, Trouble> {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut soon = tokio::time::interval(SOON);
        soon.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failures = 0;
        let began = Instant::now();
        let _watch = pulse::Watch::over(pulse::Patient {
            socket: self.places.socket.path().to_owned(),
            postmaster: running.as_ref().and_then(|now| now.postmaster.pid()),
            replaceable: self.inputs.config.instances.len() > 1,
            news: self.news.clone(),
            complaints: self.complaints.clone(),
        });
        let mut endpoint_due = began;
        loop {
            let Some(now) = running.as_mut() else { return Ok(Turn::Again) };
            tokio::select! {
                end = now.postmaster.ended() => {
                    *running = None;
                    return Err(self.ended(end));
                }
                Ok(()) = self.want.changed() => {
                    let want = self.want.borrow().clone();
                    match want.role {
                        Role::Lead { term, voters } => {
                            primary.will_wait_for(term, voters);
                            self.configure(&mut primary, running).await;
                            continue;
                        }
                        _ => {
                            self.want.mark_changed();
                            return Ok(Turn::Again);
                        }
                    }
                }
                _ = soon.tick(), if !primary.in_force => {
                    // A server that is too busy to answer is not down.
                    match primary.look_in_force().await {
                        Ok(None) => {}
                        Ok(Some(voters)) => drop(self.news.send(News::InForce(voters))),
                        Err(error) => tracing::debug!(%error, "can't look whether the voters are in force"),
                    }
                    continue;
                }
                Ok(()) = self.lease.changed() => {
                    if let Err(error) = self.look_for_request(&mut primary).await {
                        tracing::warn!(%error, "can't look whether a switchover is possible");
                    }
                    continue;
                }
                Ok(()) = self.spaces.changed() => {}
                _ = tick.tick() => {}
            }
            self.board.beat();
            self.mind_space(&mut primary, running).await;
            // What could not be looked at when it came, because the server was too busy to answer, is looked at again.
            if let Err(error) = self.look_for_request(&mut primary).await {
                tracing::warn!(%error, "can't look whether a switchover is possible");
            }
            if self.refresh() {
                primary.inputs_changed();
            }
            let looked = match self.tend(&mut primary, running).await {
                Ok(()) if Instant::now() >= endpoint_due => {
                    let published = self.endpoint.publish().await;
                    if published.is_ok() {
                        // A late write of a former leader's comes soon after a change, if it comes.
                        let young = began.elapsed() < YOUNG;
                        endpoint_due = Instant::now() + if young { ENDPOINT_CHECK_YOUNG } else { ENDPOINT_CHECK };
                    }
                    published.map_err(Trouble::from)
                }
                looked => looked,
            };
            failures = if looked.is_ok() { 0 } else { failures + 1 };
            self.report_primary(&primary, looked, failures);
            if failures == 0 && self.is_to_restart(&mut primary) {
                return Ok(self.restart_in_place(running).await);
            }
        }
    }

    /// Stops PostgreSQL in order; the next turn starts it as the primary of the same term. The election goes on meanwhile, and the guard
    /// follows it past this: whoever is to lead instead does not wait for this.
    async fn restart_in_place(&mut self, running: &mut Option<Running>) -> Turn {
        if let Some(now) = running.as_mut() {
            self.board.report(|report| {
                report.accepts_sql = false;
                report.message = Some("restarting in place with lower values".to_owned());
            });
            now.postmaster.order(Order::StopFast).await;
            if tokio::time::timeout(GENTLE_STOP, now.postmaster.ended()).await.is_ok() {
                *running = None;
            }
        }
        self.end(running).await;
        Turn::Again
    }

    fn report_primary(&self, primary: &Primary, looked: Result<(), Trouble>, failures: u32) {
        let refused = self.full_volumes().map(|full| format!("writes are refused: the {full} is full"));
        let notes = primary.notes(&self.inputs.config, &self.environment.instance);
        let notes = refused.into_iter().chain(notes).reduce(|first, rest| format!("{first}; {rest}"));
        self.board.report(|report| match looked {
            Ok(()) => {
                report.role = Some(InstanceRole::Primary);
                report.state = InstanceState::Leading;
                report.term = Some(primary.term.0);
                report.accepts_sql = true;
                report.pending_restart = primary.configuration.pending().to_vec();
                report.lowered = primary.configuration.lowered().to_vec();
                report.parameters = primary.configuration.of();
                report.commits_wait = primary.commits_wait();
                report.message = notes;
            }
            // The API being away is no reason to call a primary that answers broken, once it is published.
            Err(Trouble::Api(_)) if report.accepts_sql => {}
            Err(trouble) if failures > FAILURES_TOLERATED || !report.accepts_sql => {
                report.accepts_sql = false;
                report.message = Some(trouble.to_string());
            }
            Err(_) => {}
        });
    }

    /// Everything that a primary needs done, and whether it accepts SQL. What is as it should be costs a question, no write.
    async fn tend(&mut self, primary: &mut Primary, running: &mut Option<Running>) -> Result<(), Trouble> {
        let Some(now) = running.as_ref() else { return Ok(()) };
        let pid = now.postmaster.pid();
        if !primary.session.is_usable() {
            primary.session = self.session().await?;
        }
        let state = primary.session.state().await?;
        self.written.send_replace(state.written);
        self.board.set_vitals(Vitals {
            lsn: state.written.or(state.replayed),
            lag_bytes: None,
            lag_seconds: None,
            postmaster_pid: pid,
            postmaster_started: Some(state.started),
        });
        self.board.report(|report| {
            report.timeline = Some(state.timeline);
            report.postgres_version = Some(state.version);
        });
        self.tell_log(state.timeline, primary.term);
        self.keep_slots_when_due(primary).await?;
        if primary.take_reload_due() {
            self.configure(primary, running).await;
        }
        self.keep_roles(primary).await?;
        primary.look_who_streams().await?;
        if primary.is_configured() {
            primary.configuration.look(&primary.session, &self.inputs.config.parameters).await?;
        }
        self.check_acceptance(primary).await
    }

    /// Lets the others know which history this primary writes.
    fn tell_log(&self, timeline: Timeline, term: Term) {
        let told = self.log.borrow().told.clone();
        if (told.timeline, told.term) == (Some(timeline), Some(term)) {
            return;
        }
        let leads_on = leads_on(self.record.lock().log(), term);
        if leads_on && let Err(error) = self.remember_log(term, timeline) {
            tracing::error!(%error, term = term.0, "it can't be kept that this term leads on: nobody is told yet");
            return;
        }
        match wal::forks(&self.volume.pgdata(), timeline) {
            Ok(forks) => {
                let told = Told::leader(term, timeline, &forks, self.record.lock().log().to_vec());
                self.log.send_replace(Log { told, ..Log::default() });
            }
            Err(error) => tracing::error!(%error, "the timeline's history can't be read"),
        }
    }

    /// Writes PostgreSQL's configuration. Certificates are reloaded with it, so new ones count as a change.
    pub(crate) fn write_settings(&mut self, run_as: RunAs<'_>) -> Result<bool, Trouble> {
        let staged = self.places.stage(&self.inputs)?;
        let pgdata = self.volume.pgdata();
        let identity = self.record.lock().identity();
        let volume = OnVolume { pgdata: &pgdata, identity, least: &self.least, space: self.space() };
        let written =
            settings::write(&self.environment, &self.installation, &self.inputs, &self.places, &volume, run_as)?;
        Ok(std::mem::take(&mut self.unread_certificates) || staged || written)
    }
}
