//! A change that takes a restart reaches a running cluster: one instance at a time, and nothing that was acknowledged is lost.

use std::collections::BTreeMap;

use bellwether_api::v1::PostgresCluster;
use chaos::embedded::{Outcome, Site};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::home::{Home, eventually};

const INSTANCES: [&str; 3] = ["demo-1", "demo-2", "demo-3"];
const CONNECTIONS: &str = "select setting::bigint from pg_settings where name = 'max_connections'";
/// When its postmaster started.
const STARTED: &str = "select (extract(epoch from pg_postmaster_start_time()) * 1000)::bigint";

async fn each(home: &Home, sql: &str) -> Option<BTreeMap<&'static str, i64>> {
    let mut found = BTreeMap::new();
    for instance in INSTANCES {
        found.insert(instance, home.number("demo", instance, sql).await?);
    }
    Some(found)
}

async fn cluster(home: &Home) -> Option<PostgresCluster> {
    Api::<PostgresCluster>::default_namespaced(home.client().await).get_opt("demo").await.ok()?
}

/// Pods that are there, and are not about to go.
async fn there(home: &Home) -> usize {
    let pods = Api::<Pod>::default_namespaced(home.client().await).list(&Default::default()).await.unwrap();
    pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).count()
}

/// Sets `max_connections`, and waits until every instance has it and nothing is left to do.
async fn roll_out(home: &Home, value: i64) {
    let api: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
    let change = json!({"spec": {"parameters": {"max_connections": value.to_string()}}});
    let changed = api.patch("demo", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    let rolled_out = || async {
        assert!(there(home).await >= 2, "one at a time");
        let cluster = cluster(home).await?;
        let status = cluster.status.as_ref()?;
        let synced = status.conditions.iter().find(|condition| condition.type_ == "Synced")?;
        let done = synced.status == "True" && synced.observed_generation == changed.metadata.generation;
        if !done || status.operation.is_some() {
            return None;
        }
        each(home, CONNECTIONS).await?.values().all(|found| *found == value).then_some(())
    };
    eventually(&format!("every instance has {value}"), rolled_out).await;
}

async fn events(home: &Home, reason: &str) -> usize {
    let events = Api::<Event>::default_namespaced(home.client().await).list(&Default::default()).await.unwrap();
    let found = events.iter().filter(|event| event.reason.as_deref() == Some(reason));
    found.map(|event| usize::try_from(event.count.unwrap_or(1)).unwrap()).sum()
}

/// Nothing was lost, and how long nobody could write.
#[expect(clippy::print_stderr, reason = "the gaps are for whoever reads the test's output")]
fn judged(what: &str, outcome: &Outcome) {
    let verdict = &outcome.verdict;
    let gaps: Vec<_> = verdict.gaps.iter().map(|gap| format!("{:?} {:.3} s", gap.kind, gap.seconds)).collect();
    eprintln!("{what}: {} → {}: largest gaps: {}", outcome.before, outcome.after, gaps.join(", "));
    assert_eq!((verdict.lies.as_slice(), verdict.doubts.as_slice()), (&[][..], &[][..]), "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parameter_that_needs_a_restart_is_raised_on_standbys_first_and_lowered_on_the_primary_first() {
    let home = Home::up(&["--replicas", "3"]).await;
    home.ready("demo", 3).await;
    let uids = async || {
        let pods = Api::<Pod>::default_namespaced(home.client().await).list(&Default::default()).await.unwrap();
        pods.iter().map(|pod| (pod.name_any(), pod.uid().unwrap())).collect::<BTreeMap<_, _>>()
    };
    let before = uids().await;
    let site = Site { client: home.client().await, up: i32::try_from(home.pid()).unwrap() };

    let raised = site.during(async |_| {
        roll_out(&home, 150).await;
        Ok(())
    });
    let raised = raised.await.unwrap();
    judged("raised", &raised);
    assert_eq!(raised.before, "demo-1");
    assert_ne!(raised.after, "demo-1", "it handed over");
    let started = each(&home, STARTED).await.unwrap();
    assert!(started["demo-2"] < started["demo-3"] && started["demo-3"] < started["demo-1"], "{started:?}");
    let after = uids().await;
    assert!(before["demo-2"] != after["demo-2"] && before["demo-3"] != after["demo-3"], "made anew on their volumes");
    assert_eq!((events(&home, "InstanceRestarted").await, events(&home, "SwitchoverAsked").await), (2, 1));

    let term = cluster(&home).await.unwrap().status.unwrap().term;
    let lowered = site.during(async |_| {
        roll_out(&home, 80).await;
        Ok(())
    });
    let lowered = lowered.await.unwrap();
    judged("lowered", &lowered);
    assert_eq!(lowered.before, lowered.after, "it restarted in place");
    assert_eq!(cluster(&home).await.unwrap().status.unwrap().term, term, "and went on in its term");
    let restarted = each(&home, STARTED).await.unwrap();
    let primary = restarted[lowered.after.as_str()];
    assert!(started[lowered.after.as_str()] < primary, "{started:?} {restarted:?}");
    let later = restarted.iter().filter(|(name, at)| **name != lowered.after && **at > primary).count();
    assert_eq!(later, 2, "standbys after it: {restarted:?}");
    home.ready("demo", 3).await;
}
