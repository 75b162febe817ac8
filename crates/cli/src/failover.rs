//! `bellwether failover --force --accept-data-loss`: makes an instance lead although those are gone who would know the last commits.
//!
//! For the night when nobody may lead because too many are lost for good. The wish is an annotation on the cluster's Lease, for the version and
//! the term at which it is made; the agents decide, and keep every wait that keeps two from leading. Never: asked for without a
//! person's word, or while somebody leads; a wish left behind that nobody followed.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bellwether_api::v1::{InstanceState, PostgresClusterStatus};
use bellwether_core::force::{self, Record, Wish};
use bellwether_core::instance::switchover::ANY;
use bellwether_core::wal::Term;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::args::Failover;
use crate::cluster::{self, Cluster, ClusterError, Space, told};
use crate::consent::{self, NoConsent, Word};

/// How long somebody may take to lead: the Lease must stand unchanged for six seconds, and a candidate may have to wait for a better one.
const WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Why it did not come to that.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    NoConsent(#[from] NoConsent),
    #[error(
        "this command does nothing but lose data: it makes an instance lead that may lack acknowledged commits, and takes both --force and \
         --accept-data-loss. To let another lead and lose nothing: `bellwether switchover {0}`. A primary that is lost is \
         replaced without your doing, within seconds, as long as enough are left who know what it acknowledged"
    )]
    NotForced(String),
    #[error(
        "{leader} leads {cluster} and accepts writes: there is nothing to force. `bellwether switchover {cluster}` lets another lead and loses \
         nothing; `bellwether fence {leader}` stops this one"
    )]
    Leads { cluster: String, leader: String },
    #[error("{cluster} has no instance {wanted:?}; there are {}", there.join(", "))]
    NoInstance { cluster: String, wanted: String, there: Vec<String> },
    #[error("{0} is fenced: it does not lead before `bellwether unfence {0}`")]
    Fenced(String),
    #[error("{0} has no Lease: nobody ever led it, or an operator has yet to make it again")]
    NoLease(String),
    #[error("the Lease of {0} changed while you were asked: somebody may lead. Nothing was done; look again")]
    Changed(String),
    #[error("nobody led within {} s, and the wish is withdrawn: {why}", WITHIN.as_secs())]
    NotFollowed { why: String },
}

/// Runs it.
pub fn run(options: &Failover) -> ExitCode {
    told(failover(options))
}

async fn failover(options: &Failover) -> Result<String, Refused> {
    if !(options.force && options.accept_data_loss) {
        return Err(Refused::NotForced(options.cluster.clone()));
    }
    let cluster = Space::at(&options.place).await?.cluster(&options.cluster);
    let status = cluster.status().await?;
    possible(&cluster.name, &status, options.to.as_deref())?;
    let lease = cluster.lease().await?.ok_or_else(|| Refused::NoLease(cluster.name.clone()))?;
    let what = what_will_happen(&cluster.name, &status, options.to.as_deref());
    consent::ask(&what, Word::Name(&cluster.name), options.yes)?;
    let before = term(&lease);
    let wish = Wish {
        to: options.to.clone().unwrap_or_else(|| ANY.to_owned()),
        term: before.max(status.term.and_then(|term| u64::try_from(term).ok()).map(Term)),
        at: Some(Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
    };
    ask(&cluster, &lease, &wish).await?;
    let began = Instant::now();
    loop {
        if let Some(lease) = cluster.lease().await?
            && term(&lease) > before
        {
            return Ok(outcome(&cluster.name, &lease));
        }
        if began.elapsed() > WITHIN {
            cluster.patch_lease(annotated(None, &Value::Null)).await?;
            let why = nobody_led(&cluster.status().await?);
            return Err(Refused::NotFollowed { why });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Whether there is anything to force.
fn possible(name: &str, status: &PostgresClusterStatus, to: Option<&str>) -> Result<(), Refused> {
    if let Some(leader) = status.instances.iter().find(|other| other.state == InstanceState::Leading && other.ready) {
        return Err(Refused::Leads { cluster: name.to_owned(), leader: leader.name.clone() });
    }
    let Some(wanted) = to else { return Ok(()) };
    match cluster::instance(status, wanted) {
        None => {
            let there = status.instances.iter().map(|instance| instance.name.clone()).collect();
            Err(Refused::NoInstance { cluster: name.to_owned(), wanted: wanted.to_owned(), there })
        }
        Some(instance) if instance.state == InstanceState::Fenced => Err(Refused::Fenced(wanted.to_owned())),
        Some(_) => Ok(()),
    }
}

/// The Lease as it was shown, and no later one.
async fn ask(cluster: &Cluster, seen: &Lease, wish: &Wish) -> Result<(), Refused> {
    let text = serde_json::to_string(wish).unwrap_or_default();
    let patch = annotated(seen.resource_version(), &text.into());
    match cluster.patch_lease(patch).await {
        Err(ClusterError::Api(kube::Error::Api(status))) if status.code == 409 => {
            Err(Refused::Changed(cluster.name.clone()))
        }
        done => Ok(done?),
    }
}

fn annotated(version: Option<String>, wish: &Value) -> Value {
    let mut patch = json!({"metadata": {"annotations": {force::WISH: wish}}});
    if let Some(version) = version {
        patch["metadata"]["resourceVersion"] = version.into();
    }
    patch
}

fn term(lease: &Lease) -> Option<Term> {
    lease.spec.as_ref()?.lease_transitions.and_then(|term| u64::try_from(term).ok()).map(Term)
}

/// Somebody took the Lease: by force, or because an election was possible after all.
fn outcome(name: &str, lease: &Lease) -> String {
    let leader = cluster::leader(lease).unwrap_or_else(|| "somebody".to_owned());
    let record = lease.annotations().get(force::RECORD).and_then(|text| Record::read(text));
    match record.filter(|record| Some(record.term) == term(lease)) {
        Some(record) => format!(
            "{record}. It is recorded on the Lease of {name} and in its status. Instances that come back with more than {leader} has set that \
             aside, and copy the data anew"
        ),
        None => format!(
            "{leader} leads by an election: enough were left who know what was acknowledged, and nothing is lost"
        ),
    }
}

/// What is known, and what it means.
fn what_will_happen(name: &str, status: &PostgresClusterStatus, to: Option<&str>) -> String {
    let mut lines = vec![format!("Nobody leads {name}: {}", cluster::why_not_ready(status))];
    for instance in &status.instances {
        let answers =
            if instance.ready || instance.state == InstanceState::NotStreaming { "answers" } else { "missing" };
        let said = instance.message.as_ref().map(|said| format!(": {said}")).unwrap_or_default();
        let led = if status.primary.as_deref() == Some(&instance.name) { ", led last" } else { "" };
        lines.push(format!("  {}  {answers}{led}, {:?}{said}", instance.name, instance.state));
    }
    let who = to.map_or_else(|| "The one with the longest log of those who answer".to_owned(), str::to_owned);
    lines.push(format!(
        "{who} will lead, as if it had everything. Every commit that was acknowledged and that it does not have is LOST FOR GOOD: whoever comes \
         back later gives up what it has beyond that. If a missing instance can be brought back, do that instead: the cluster goes on by \
         itself, and loses nothing. Make sure that those that are missing are off."
    ));
    lines.join("\n")
}

fn nobody_led(status: &PostgresClusterStatus) -> String {
    let said = |instance: &bellwether_api::v1::InstanceStatus| {
        let message = instance.message.as_deref().unwrap_or("it says nothing");
        format!("{} is {:?} ({message})", instance.name, instance.state)
    };
    status.instances.iter().map(said).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(states: &[(&str, bool)]) -> PostgresClusterStatus {
        let instance = |(index, (state, ready)): (usize, &(&str, bool))| json!({"name": format!("demo-{}", index + 1), "state": state, "ready": ready});
        let instances: Vec<_> = states.iter().enumerate().map(instance).collect();
        serde_json::from_value(json!({"instances": instances, "primary": "demo-1"})).unwrap()
    }

    #[test]
    fn nothing_is_forced_while_somebody_leads_and_nobody_who_is_fenced_or_not_there() {
        let lost = status(&[("Down", false), ("Pending", false), ("NotStreaming", false)]);
        assert!(possible("demo", &lost, None).is_ok());
        assert!(possible("demo", &lost, Some("demo-3")).is_ok());
        assert!(matches!(possible("demo", &lost, Some("demo-9")), Err(Refused::NoInstance { .. })));
        let led = status(&[("Leading", true), ("Pending", false)]);
        assert!(matches!(possible("demo", &led, None), Err(Refused::Leads { leader, .. }) if leader == "demo-1"));
        let cut_off = status(&[("Leading", false), ("NotStreaming", false)]);
        assert!(possible("demo", &cut_off, None).is_ok(), "its kubelet does not vouch for it any more");
        let fenced = status(&[("Fenced", false)]);
        assert!(matches!(possible("demo", &fenced, Some("demo-1")), Err(Refused::Fenced(_))));
    }

    #[test]
    fn what_may_be_lost_is_said_with_who_is_missing() {
        let said = what_will_happen("demo", &status(&[("Down", false), ("NotStreaming", false)]), None);
        assert!(said.contains("demo-1  missing, led last") && said.contains("demo-2  answers"), "{said}");
        assert!(said.contains("LOST FOR GOOD"), "{said}");
    }
}
