//! Follows: runs PostgreSQL as a standby of whoever the Lease names, and says how well it follows.
//!
//! Never: starts writable (`standby.signal` is durable before PostgreSQL starts), or goes on following an address that the
//! Lease no longer names.

use bellwether_api::v1::{InstanceRole, InstanceState};
use bellwether_core::contract::Leader;
use bellwether_core::instance::standby::{Sample, Standby};
use bellwether_core::instance::start::LeaseView;
use bellwether_postgres::signal::{self, StartAs};
use bellwether_postgres::sql::{ServerState, Session};
use tokio::time::{Instant, MissedTickBehavior};

use crate::board::Vitals;
use crate::configuration::Configuration;
use crate::guard::orders::Order;
use crate::instance::{Instance, TICK, Turn};
use crate::postmaster::Postmaster;
use crate::settings::RunAs;
use crate::trouble::Trouble;

impl Instance {
    /// One life as standby: until PostgreSQL ends, or the Lease names us.
    pub(crate) async fn follow(
        &mut self,
        leader: Leader,
        lease: &LeaseView,
        slot: &mut Option<Postmaster>,
    ) -> Result<Turn, Trouble> {
        self.volume.announced()?;
        signal::set(&self.volume.pgdata(), StartAs::Standby)
            .map_err(|cause| Trouble::Io { what: "write standby.signal", cause })?;
        self.write_settings(RunAs::Standby(&leader))?;
        self.board.report(|report| {
            report.role = Some(InstanceRole::Standby);
            report.state = InstanceState::Starting;
            report.term = lease.term.map(|term| term.0);
            report.system_identifier = lease.system;
            report.message = None;
        });
        let session = self.launch(slot).await?;
        let Some(postmaster) = slot.as_mut() else { return Ok(Turn::Again) };
        self.serve_as_standby(postmaster, session, leader).await
    }

    async fn serve_as_standby(
        &mut self,
        postmaster: &mut Postmaster,
        mut session: Session,
        mut leader: Leader,
    ) -> Result<Turn, Trouble> {
        let began = Instant::now();
        let mut standby = Standby::started(began.elapsed());
        let mut configuration = Configuration::unknown();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                end = postmaster.ended() => return Err(self.ended(end)),
                _ = tick.tick() => {}
                Ok(()) = self.lease.changed() => {}
            }
            self.board.beat();
            let view = self.lease.borrow_and_update().clone();
            let moved = match view.as_ref().and_then(|view| view.leader.clone()) {
                Some(now) if now.instance == self.environment.instance => {
                    postmaster.order(Order::StopFast).await;
                    postmaster.ended().await;
                    return Ok(Turn::Again);
                }
                Some(now) if now != leader => {
                    tracing::info!(leader = now.instance, address = now.address, "following another address");
                    leader = now;
                    true
                }
                _ => false,
            };
            if (self.refresh() || moved) && self.write_settings(RunAs::Standby(&leader))? {
                postmaster.order(Order::Reload).await;
                configuration.written();
            }
            if !session.is_usable() {
                match self.session().await {
                    Ok(again) => session = again,
                    Err(error) => {
                        self.report_silence(error.to_string());
                        continue;
                    }
                }
            }
            match session.state().await {
                Ok(state) => {
                    if let Err(error) = configuration.look(&session).await {
                        tracing::debug!(%error, "the configuration can't be asked for");
                    }
                    let name = standby.observe(&sample(&state), began.elapsed());
                    let notes = self.standby_notes(name, &configuration);
                    self.board.set_vitals(vitals(&state, postmaster.pid()));
                    self.board.report(|report| report.pending_restart = configuration.pending().to_vec());
                    self.report_standby(state, name, notes, view.as_ref());
                }
                Err(error) => self.report_silence(error.to_string()),
            }
        }
    }

    fn report_silence(&self, why: String) {
        self.board.report(|report| {
            report.accepts_sql = false;
            report.message = Some(why);
        });
    }

    fn standby_notes(&self, name: InstanceState, configuration: &Configuration) -> Option<String> {
        let mut notes = vec![];
        if name == InstanceState::NotStreaming {
            notes.push(self.complaints.streaming().unwrap_or("no connection to the primary".into()));
        }
        notes.extend(configuration.complaints().iter().cloned());
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    fn report_standby(
        &self,
        state: ServerState,
        name: InstanceState,
        message: Option<String>,
        lease: Option<&LeaseView>,
    ) {
        self.board.report(|report| {
            report.state = name;
            report.accepts_sql = true;
            report.message = message;
            report.timeline = Some(state.timeline);
            report.postgres_version = Some(state.version);
            if let Some(term) = lease.and_then(|lease| lease.term) {
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

fn sample(state: &ServerState) -> Sample {
    Sample {
        receiving: state.receiver.as_ref().is_some_and(|receiver| receiver.streaming),
        received: state.received,
        replayed: state.replayed,
        lag_seconds: state.lag_seconds,
    }
}
