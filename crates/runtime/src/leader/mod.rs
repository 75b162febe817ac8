//! One of several operators leads: a Lease, read and replaced by [`campaign`] as [`rules`] decides.
//!
//! A watch tells of changes early: a Lease that its holder released is taken within a round trip, and a stolen one ends tenure as
//! soon as anybody can know. It is a hint and nothing depends on it; without it everything is found out by the next look.
//!
//! Never: a write that is sent twice by the client, or released while anybody still acts (the caller says when).

mod news;
mod office;
pub mod rules;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use office::{Keeper, Office};
pub use rules::Timing;

use news::News;
use rules::{Candidate, Next, Seen};

/// Which Lease, and who we are in it.
#[derive(Clone, Debug)]
pub struct Election {
    /// The Lease's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Our name in it, this process's alone.
    pub identity: String,
    /// How long things take.
    pub timing: Timing,
}

/// Somebody else leads who should not: this process has to end, because what it knows may be old by now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another one leads: the Lease {lease} is held by {holder}")]
pub struct Lost {
    /// The Lease, with its namespace.
    pub lease: String,
    /// Who holds it.
    pub holder: String,
}

/// A pod's name and eight hexadecimal digits. A container that restarts keeps its pod's name, and must not take the Lease of its
/// former self for its own.
pub fn identity(pod: &str) -> String {
    let mut bytes = [0u8; 4];
    // Two restarts of one container within the Lease's duration, both without randomness: the Lease is just taken earlier.
    let _ = getrandom::fill(&mut bytes);
    format!("{pod}_{:08x}", u32::from_le_bytes(bytes))
}

/// Tries to lead, and goes on leading, until `release`; then gives the Lease back. Ends early only when the Lease was lost.
pub async fn campaign(
    client: Client,
    election: Election,
    keeper: Keeper,
    release: CancellationToken,
) -> Result<(), Lost> {
    let candidate = Candidate::new(election.identity.clone(), election.timing);
    let api = Api::namespaced(client, &election.namespace);
    let mut campaigner = Campaigner { api, election, candidate, keeper, late: 0, news: News::default(), leads: false };
    tokio::select! {
        lost = campaigner.run() => return Err(lost),
        () = release.cancelled() => {}
    }
    campaigner.release().await;
    Ok(())
}

struct Campaigner {
    api: Api<Lease>,
    election: Election,
    candidate: Candidate,
    keeper: Keeper,
    /// How many answers in a row came too late.
    late: u32,
    news: News,
    /// What was last said about who leads.
    leads: bool,
}

/// Whether the next round waits for its time.
enum Rest {
    UntilRetry,
    /// Somebody was faster: what they wrote is there to be read.
    No,
}

impl Campaigner {
    async fn run(&mut self) -> Lost {
        loop {
            let began = Instant::now();
            if self.candidate.next(began) == Next::Look {
                self.look().await;
            }
            let rest = match self.candidate.next(Instant::now()) {
                Next::Create => self.write(None, 0).await,
                Next::Take { version, transitions } => self.write(Some(version), transitions).await,
                Next::Renew { version } => self.write(Some(version), self.candidate.transitions()).await,
                Next::Look | Next::Wait => Rest::UntilRetry,
                Next::Lost { holder } => {
                    self.keeper.until(None);
                    return Lost { lease: format!("{}/{}", self.election.namespace, self.election.name), holder };
                }
            };
            self.publish();
            if matches!(rest, Rest::UntilRetry) {
                self.rest(began + self.election.timing.retry).await;
            }
        }
    }

    /// Reads the Lease. If that fails, what was known stays unknown.
    async fn look(&mut self) {
        let request = self.api.get_opt(&self.election.name);
        match tokio::time::timeout(self.election.timing.patience(self.late), request).await {
            Ok(Ok(lease)) => {
                self.late = 0;
                self.candidate.saw(lease.as_ref().map(seen), Instant::now());
            }
            Ok(Err(error)) => tracing::warn!(%error, "the leader's Lease can't be read"),
            Err(_) => self.late += 1,
        }
    }

    /// Writes our name, in place of the version given or into a new Lease.
    async fn write(&mut self, version: Option<String>, transitions: i32) -> Rest {
        let sent = Instant::now();
        let lease = self.lease(version, Some(&self.election.identity), self.election.timing.lease, transitions);
        let patience = self.election.timing.patience(self.late);
        match self.send(&lease, patience).await {
            Some(Ok(lease)) => {
                self.late = 0;
                self.candidate.wrote(seen(&lease), sent);
                Rest::UntilRetry
            }
            Some(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {
                self.candidate.unsure();
                Rest::No
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "the leader's Lease can't be written");
                self.candidate.unsure();
                Rest::UntilRetry
            }
            None => {
                self.late += 1;
                self.candidate.unsure();
                Rest::UntilRetry
            }
        }
    }

    async fn send(&mut self, lease: &Lease, patience: Duration) -> Option<kube::Result<Lease>> {
        let params = PostParams::default();
        let request = async {
            match lease.metadata.resource_version {
                Some(_) => self.api.replace(&self.election.name, &params, lease).await,
                None => self.api.create(&params, lease).await,
            }
        };
        tokio::time::timeout(patience, request).await.ok()
    }

    fn lease(&self, version: Option<String>, holder: Option<&str>, duration: Duration, transitions: i32) -> Lease {
        let now = MicroTime(Timestamp::now());
        // In whole seconds, and never less than it is: a shorter Lease would be taken too early.
        let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
        Lease {
            metadata: ObjectMeta {
                name: Some(self.election.name.clone()),
                resource_version: version,
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: holder.map(str::to_owned),
                lease_duration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
                acquire_time: Some(self.candidate.acquired().map_or_else(|| now.clone(), MicroTime)),
                renew_time: Some(now),
                lease_transitions: Some(transitions),
                ..LeaseSpec::default()
            }),
        }
    }

    /// Says until when we lead.
    fn publish(&mut self) {
        let until = self.candidate.tenure();
        self.keeper.until(until);
        let leads = until.is_some_and(|end| Instant::now() < end);
        if std::mem::replace(&mut self.leads, leads) != leads {
            let lease = format!("{}/{}", self.election.namespace, self.election.name);
            if leads {
                tracing::info!(%lease, identity = self.election.identity, "leading");
            } else {
                tracing::warn!(%lease, "the Lease was not renewed in time; pausing until it is, or is somebody else's");
            }
        }
    }

    /// Waits for the next round: until its time, or until somebody changes the Lease.
    async fn rest(&mut self, until: Instant) {
        let known = self.candidate.version().map(str::to_owned);
        tokio::select! {
            () = tokio::time::sleep_until(until) => {
                // Our own Lease is renewed as we know it; of anybody else's we want to know what became of it.
                if !matches!(self.candidate.next(Instant::now()), Next::Renew { .. }) {
                    self.candidate.unsure();
                }
            }
            lease = self.news.next(&self.api, &self.election.name, known) => {
                self.candidate.saw(lease.as_ref().map(seen), Instant::now());
            }
        }
    }

    /// Gives the Lease back, so that the next one need not wait for its end. If that fails, it ends by itself.
    async fn release(&mut self) {
        self.keeper.until(None);
        // After that it is free anyway.
        let limit = self.election.timing.lease;
        match tokio::time::timeout(limit, self.give_back()).await {
            Ok(Ok(true)) => tracing::info!("the Lease is released"),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the Lease could not be released; it ends by itself"),
            Err(_) => tracing::warn!("the Lease could not be released in time; it ends by itself"),
        }
    }

    /// Says whether there was anything to give back. A renewal may have been under way when we were told to stop, and commit after
    /// we have looked: then its version is the one to replace.
    async fn give_back(&mut self) -> kube::Result<bool> {
        loop {
            if self.candidate.next(Instant::now()) == Next::Look {
                let lease = self.api.get_opt(&self.election.name).await?;
                self.candidate.saw(lease.as_ref().map(seen), Instant::now());
            }
            let Next::Renew { version } = self.candidate.next(Instant::now()) else { return Ok(false) };
            let election = &self.election;
            let asked = may_write(self.api.clone().into_client(), election.namespace.clone(), election.name.clone());
            if !asked.await {
                tracing::info!("the right to the Lease is gone: this operator is being removed");
                return Ok(false);
            }
            // A second is the shortest that a Lease can say; without a holder it means nothing.
            let lease = self.lease(Some(version), None, Duration::from_secs(1), self.candidate.transitions());
            match self.api.replace(&self.election.name, &PostParams::default(), &lease).await {
                Ok(_) => return Ok(true),
                Err(kube::Error::Api(status)) if status.code == 409 => self.candidate.unsure(),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether we still have the right to write the Lease: whoever removes an operator removes its rights before its pods are told.
/// Everybody may ask. Without an answer it is tried as ever.
async fn may_write(client: Client, namespace: String, name: String) -> bool {
    let attributes = ResourceAttributes {
        group: Some("coordination.k8s.io".to_owned()),
        resource: Some("leases".to_owned()),
        verb: Some("update".to_owned()),
        namespace: Some(namespace),
        name: Some(name),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let answer = Api::<SelfSubjectAccessReview>::all(client).create(&PostParams::default(), &review).await;
    answer.map_or(true, |review| review.status.is_none_or(|status| status.allowed))
}

fn seen(lease: &Lease) -> Seen {
    let spec = lease.spec.clone().unwrap_or_default();
    Seen {
        holder: spec.holder_identity.unwrap_or_default(),
        duration: Duration::from_secs(spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(0)),
        transitions: spec.lease_transitions.unwrap_or(0),
        acquired: spec.acquire_time.map(|time| time.0),
        renewed: spec.renew_time.map(|time| time.0),
        version: lease.resource_version().unwrap_or_default(),
    }
}
