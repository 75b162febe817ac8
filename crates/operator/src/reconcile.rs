//! One pass over one cluster: observe, plan, check, act, say.

use std::time::Duration;

use bellwether_api::v1::PostgresCluster;
use bellwether_core::check::check;
use bellwether_core::fact::Fact;
use bellwether_core::plan::{self, Action, Effect, Plan, plan_keeping};
use bellwether_runtime::queue::Outcome;
use bellwether_runtime::watch::Key;
use jiff::Timestamp;

use crate::act::Actor;
use crate::caches::Caches;
use crate::events::Events;
use crate::failure::Failure;
use crate::familiar::Familiars;
use crate::metrics::Corrections;
use crate::observe::{namespace_ends, observe};
use crate::port::Port;
use crate::settings::Settings;
use crate::status;

/// What every pass needs. One for each operator process: what was told is remembered across passes.
pub struct Reconciler<P> {
    /// The way to the API server, to time and to chance.
    pub port: P,
    /// What is watched.
    pub caches: Caches,
    /// Settings.
    pub settings: Settings,
    /// What was told.
    pub events: Events,
    /// What earlier passes worked out.
    pub familiars: Familiars,
    /// What was put right.
    pub corrections: Corrections,
}

impl<P: Port> Reconciler<P> {
    /// One pass. The outcome says when to come back.
    pub async fn reconcile(&self, key: &Key) -> Outcome {
        self.outcome(&self.pass(key).await)
    }

    /// When to come back after a pass that ended so.
    pub fn outcome(&self, ended: &Result<Option<Duration>, Failure>) -> Outcome {
        match ended {
            Ok(again) => Outcome::Done(*again),
            Err(Failure::Overtaken { doing, cause }) => {
                tracing::debug!(doing, cause, "overtaken, looking again");
                // The watch is about to deliver what overtook us; a moment later it is here even if that event was coalesced.
                Outcome::Done(Some(Duration::from_secs(1)))
            }
            Err(failure) => {
                tracing::warn!(error = %failure, "reconcile failed");
                Outcome::Retry { jitter: self.port.fraction() }
            }
        }
    }

    /// One pass: after how long to come back even if nothing changes, or why it did not get to its end.
    pub async fn pass(&self, key: &Key) -> Result<Option<Duration>, Failure> {
        let now = self.port.now();
        let familiar = self.familiars.of(key);
        let observed = observe(&self.port, &self.caches, key, &familiar.readings).await?;
        for unreadable in &observed.unreadable {
            tracing::warn!(object = unreadable, "object can't be read");
            // It begins with the kind.
            self.caches.count_unreadable(unreadable.split(' ').next().unwrap_or_default());
        }
        let plan = plan_keeping(&observed, now, &self.settings.objects, &familiar.kept);
        check(&plan, &observed).map_err(Failure::Forbidden)?;
        let acts = !plan.actions.is_empty() || !plan.events.is_empty();
        if acts && namespace_ends(&self.port, &key.namespace).await {
            tracing::info!("the namespace is being deleted, and everything in it: nothing more is done");
            return Ok(self.again(&observed.cluster, &plan));
        }
        let cluster = observed.cluster.known();
        let actor = Actor { port: &self.port, caches: &self.caches, key, observed: &observed };
        let acted = self.act(&actor, &plan, cluster, now).await;
        let said = self.say(key, cluster, &plan, acted.as_ref().err(), now).await;
        acted?;
        said?;
        Ok(self.again(&observed.cluster, &plan))
    }

    /// Action by action, up to the first that fails: what follows may depend on it. Nothing depends on one that stands alone and is refused.
    async fn act(
        &self,
        actor: &Actor<'_, P>,
        plan: &Plan,
        cluster: Option<&PostgresCluster>,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let mut refusals = Refusals::default();
        for action in &plan.actions {
            match actor.carry_out(action, now).await {
                Ok(()) => {}
                Err(Failure::Refused { cause, .. }) if action.effect.stands_alone() => {
                    refusals.note(action, cause);
                    continue;
                }
                Err(failure) => return Err(failure),
            }
            tracing::info!(%action, "done");
            if let Some(kind) = action.corrects() {
                self.corrections.count(kind);
            }
            if let (Some(note), Some(cluster)) = (action.note(), cluster) {
                self.events.publish(&self.port, actor.key, cluster, &note, now).await;
            }
        }
        refusals.end()
    }

    async fn say(
        &self,
        key: &Key,
        cluster: Option<&PostgresCluster>,
        plan: &Plan,
        failure: Option<&Failure>,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let (Some(cluster), Some(status)) = (cluster, plan.status.clone()) else { return Ok(()) };
        let status = match failure {
            Some(failure @ (Failure::Refused { .. } | Failure::Secret { .. })) => {
                plan::refused(status, cluster.status.as_ref(), failure.to_string(), now)
            }
            Some(failure @ Failure::NotGrown(_)) => {
                plan::not_grown(status, cluster.status.as_ref(), failure.to_string(), now)
            }
            _ => status,
        };
        let of_growth = plan::of_growth(cluster.status.as_ref(), &status);
        if status::write(&self.port, &self.caches, key, cluster, &status).await? {
            for note in plan.events.iter().chain(&of_growth) {
                self.events.publish(&self.port, key, cluster, note, now).await;
            }
        }
        Ok(())
    }

    fn again(&self, cluster: &Fact<PostgresCluster>, plan: &Plan) -> Option<Duration> {
        if cluster.is_absent() && plan.waiting_on.is_empty() {
            return None;
        }
        let resync = self.settings.resync.mul_f64(1.0 - 0.1 * self.port.fraction());
        let wanted = plan.requeue.and_then(|after| Duration::try_from(after).ok());
        Some(wanted.map_or(resync, |wanted| wanted.min(resync)))
    }
}

/// What was refused and held nothing up. Volumes that can't grow are no fault of anything that runs, so they are told apart.
#[derive(Default)]
struct Refusals {
    not_grown: Vec<String>,
    other: Option<Failure>,
}

impl Refusals {
    fn note(&mut self, action: &Action, cause: String) {
        let doing = action.to_string();
        tracing::warn!(action = doing, cause, "refused; nothing else waits for it");
        match action.effect {
            Effect::GrowVolume { .. } => self.not_grown.push(format!("{doing}: {cause}")),
            _ => {
                self.other.get_or_insert(Failure::Refused { doing, cause });
            }
        }
    }

    fn end(self) -> Result<(), Failure> {
        match self.other {
            Some(failure) => Err(failure),
            None if self.not_grown.is_empty() => Ok(()),
            None => Err(Failure::NotGrown(self.not_grown)),
        }
    }
}
