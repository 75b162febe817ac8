//! Leads: takes the Lease, runs PostgreSQL as primary, and keeps roles, slots, synchronous replication and the `rw` endpoint
//! as they should be.
//!
//! Never: PostgreSQL accepting clients before the Lease names this pod; the endpoint published before SQL was answered over
//! TLS as the application's user; another term's holder beside a running primary.

use std::time::Duration;

use bellwether_api::v1::{InstanceRole, InstanceState};
use bellwether_core::contract::Leader;
use bellwether_core::instance::start::{LeaseView, VolumeState};
use bellwether_core::wal::Term;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tokio::time::{Instant, MissedTickBehavior};

use crate::board::Vitals;
use crate::guard::orders::Order;
use crate::instance::{Instance, TICK, Turn};
use crate::kubernetes::lease::Read;
use crate::postmaster::Postmaster;
use crate::primary::Primary;
use crate::settings::{self, RunAs};
use crate::trouble::Trouble;

/// How often the endpoint is looked at when all is well: somebody may have changed it, and a read is cheap.
const ENDPOINT_CHECK: Duration = Duration::from_secs(60);
/// How often a failing primary is asked whether it accepts SQL before that is withdrawn: once more, a tick later.
const FAILURES_TOLERATED: u32 = 1;
/// Somebody else leads: how long to look at the Lease before deciding anew.
const AFTER_STEPPING_DOWN: Duration = Duration::from_secs(5);

impl Instance {
    /// One life as primary: until PostgreSQL ends, or another term begins.
    pub(crate) async fn lead(
        &mut self,
        lease: Read,
        state: &VolumeState,
        slot: &mut Option<Postmaster>,
    ) -> Result<Turn, Trouble> {
        let (VolumeState::Data(system) | VolumeState::Unannounced(system)) = state else { return Ok(Turn::Again) };
        let me = Leader { instance: self.environment.instance.clone(), address: self.environment.address.to_string() };
        let now = MicroTime(k8s_openapi::jiff::Timestamp::now());
        let taken = self.leases.take(lease, &me, &self.environment.pod_uid, *system, now).await?;
        let term = taken.view.term;
        tracing::info!(?term, %system, "took the Lease");
        self.volume.announced()?;
        let in_force = self.memory.recall().map_err(|cause| Trouble::Io { what: "recall durability", cause })?;
        self.write_settings(RunAs::Primary(in_force.as_ref(), term))?;
        self.board.report(|report| {
            report.role = Some(InstanceRole::Primary);
            report.state = InstanceState::Starting;
            report.term = term.map(|term| term.0);
            report.system_identifier = Some(*system);
            report.message = None;
        });
        let session = self.launch(slot).await?;
        let Some(postmaster) = slot.as_mut() else { return Ok(Turn::Again) };
        self.serve_as_primary(postmaster, Primary::new(session, in_force, term)).await
    }

    async fn serve_as_primary(&mut self, postmaster: &mut Postmaster, mut primary: Primary) -> Result<Turn, Trouble> {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut failures, term) = (0, primary.term);
        let mut endpoint_due = Instant::now();
        loop {
            tokio::select! {
                end = postmaster.ended() => return Err(self.ended(end)),
                _ = tick.tick() => {}
                Ok(()) = self.lease.changed() => {}
            }
            self.board.beat();
            if let Some(newer) = superseded(self.lease.borrow_and_update().as_ref(), term) {
                tracing::error!(?term, ?newer, "another term has begun; stopping PostgreSQL");
                postmaster.order(Order::StopImmediate).await;
                postmaster.ended().await;
                return Ok(Turn::Wait(AFTER_STEPPING_DOWN));
            }
            if self.refresh() {
                primary.inputs_changed();
            }
            let looked = match self.tend(&mut primary, postmaster).await {
                Ok(()) if Instant::now() >= endpoint_due => {
                    let published = self.endpoint.publish().await;
                    if published.is_ok() {
                        endpoint_due = Instant::now() + ENDPOINT_CHECK;
                    }
                    published.map_err(Trouble::from)
                }
                looked => looked,
            };
            failures = if looked.is_ok() { 0 } else { failures + 1 };
            self.report_primary(&primary, looked, failures);
        }
    }

    fn report_primary(&self, primary: &Primary, looked: Result<(), Trouble>, failures: u32) {
        let notes = primary.notes(&self.inputs.config, &self.environment.instance);
        self.board.report(|report| match looked {
            Ok(()) => {
                report.state = InstanceState::Leading;
                report.accepts_sql = true;
                report.pending_restart = primary.configuration.pending().to_vec();
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
    async fn tend(&mut self, primary: &mut Primary, postmaster: &mut Postmaster) -> Result<(), Trouble> {
        if !primary.session.is_usable() {
            primary.session = self.session().await?;
        }
        let state = primary.session.state().await?;
        self.board.set_vitals(Vitals {
            lsn: state.written.or(state.replayed),
            lag_bytes: None,
            lag_seconds: None,
            postmaster_pid: postmaster.pid(),
            postmaster_started: Some(state.started),
        });
        self.board.report(|report| {
            report.timeline = Some(state.timeline);
            report.postgres_version = Some(state.version);
        });
        if state.in_recovery {
            // An adopted volume may have been a standby's.
            tracing::info!("promoting what was a standby");
            primary.session.promote().await?;
            return Err(Trouble::BeingPromoted);
        }
        if primary.take_reload_due() && self.write_settings(RunAs::Primary(primary.in_force.as_ref(), primary.term))? {
            postmaster.order(Order::Reload).await;
        }
        self.keep_roles(primary).await?;
        self.keep_slots(primary).await?;
        if let Some(quorum) = primary.changed_quorum(&self.inputs.config, &self.environment.instance).await? {
            self.memory
                .remember(quorum.as_ref())
                .map_err(|cause| Trouble::Io { what: "remember durability", cause })?;
            tracing::info!(?quorum, "changing whom commits wait for");
            self.write_settings(RunAs::Primary(quorum.as_ref(), primary.term))?;
            postmaster.order(Order::Reload).await;
            primary.in_force = quorum;
        }
        primary.configuration.look(&primary.session).await?;
        self.check_acceptance(primary).await
    }

    /// Writes PostgreSQL's configuration. Certificates are reloaded with it, so new ones count as a change.
    pub(crate) fn write_settings(&self, run_as: RunAs<'_>) -> Result<bool, Trouble> {
        let staged = self.places.stage(&self.inputs)?;
        let pgdata = self.volume.pgdata();
        let written =
            settings::write(&self.environment, &self.installation, &self.inputs, &self.places, &pgdata, run_as)?;
        Ok(staged || written)
    }
}

/// The term that ended ours, if the Lease shows one. An older view is only late.
fn superseded(view: Option<&LeaseView>, own: Option<Term>) -> Option<Term> {
    view.and_then(|view| view.term).filter(|term| Some(*term) > own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(term: u64) -> LeaseView {
        LeaseView { term: Some(Term(term)), ..LeaseView::default() }
    }

    #[test]
    fn only_a_higher_term_ends_ours() {
        assert_eq!(superseded(Some(&term(3)), Some(Term(2))), Some(Term(3)));
        assert_eq!(superseded(Some(&term(2)), Some(Term(2))), None);
        assert_eq!(superseded(Some(&term(1)), Some(Term(2))), None);
        assert_eq!(superseded(None, Some(Term(2))), None);
    }
}
