use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_api::labels;
use bellwether_core::contract::Detail;
use bellwether_core::fact::Fact;
use bellwether_core::object::Kind;
use bellwether_core::observed::{self, Listing, Observed, Raw, RawSource};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::page::{list, page};
use super::report::{ClusterReport, ListReport, Source, VERSION};
use super::tell::{Seen, tell};
use crate::ask::Answer;
use crate::output::page::Screen;

const IDENTITIES: [&str; 3] = [
    "11111111-0000-0000-0000-000000000000",
    "22222222-0000-0000-0000-000000000000",
    "33333333-0000-0000-0000-000000000000",
];

/// A cluster of three, `orders` in `shop`, that a test then hurts.
pub struct Stage {
    pub at: Timestamp,
    pub cluster: Value,
    pub pods: BTreeMap<String, Value>,
    pub lease: Value,
    pub unseen: BTreeMap<Kind, String>,
    pub answers: BTreeMap<String, Answer>,
    pub more: BTreeMap<Kind, Listing<Arc<Value>>>,
}

pub fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": message,
           "lastTransitionTime": "2026-03-01T10:00:00Z"})
}

impl Stage {
    pub fn healthy() -> Self {
        let names = ["orders-1", "orders-2", "orders-3"];
        let instances: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(index, name)| {
                let (role, state) = if index == 0 { ("primary", "Leading") } else { ("standby", "Streaming") };
                json!({"name": name, "role": role, "state": state, "ready": true, "timeline": 2})
            })
            .collect();
        let cluster = json!({
            "apiVersion": "bellwether.dev/v1", "kind": "PostgresCluster",
            "metadata": {
                "name": "orders", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 2,
                "managedFields": [{"manager": labels::STATUS_MANAGER, "time": "2026-03-01T11:20:00Z"}],
            },
            "spec": {"version": "17", "replicas": 3, "backup": {"store": {"url": "s3://backups/shop"}}},
            "status": {
                "observedGeneration": 2, "phase": "Ready", "primary": "orders-1", "term": 4, "replicas": 3, "readyReplicas": 3,
                "durability": "quorum", "instances": instances,
                "lastBackup": "2026-03-01T02:00:09Z", "lastVerifiedBackup": "2026-03-01T02:00:09Z",
                "recoverableFrom": "2026-03-01T02:00:09Z",
                "conditions": [
                    condition("Ready", "True", "AsSpecified", "orders-1 accepts writes"),
                    condition("Progressing", "False", "AsSpecified", "nothing is under way"),
                    condition("Degraded", "False", "AsSpecified", "all instances are healthy"),
                    condition("Archiving", "True", "AsSpecified", "the log gets into the store"),
                ],
            },
        });
        let pod = |name: &&str| {
            let index = name.trim_start_matches("orders-");
            let pod = json!({
                "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "3",
                             "annotations": {labels::REPORT: json!({"identity": IDENTITIES[index.parse::<usize>().unwrap() - 1]}).to_string()},
                             "labels": {labels::CLUSTER: "orders", labels::INSTANCE: name}},
                "spec": {"nodeName": format!("ip-10-0-{index}-17.eu-west-1.compute.internal")},
                "status": {"phase": "Running", "podIP": "10.0.0.7"},
            });
            ((*name).to_owned(), pod)
        };
        let lease = json!({
            "metadata": {
                "name": "orders", "uid": "44444444-0000-0000-0000-000000000000", "resourceVersion": "9",
                "annotations": {"bellwether.dev/sync": json!([{"needed": 1, "members": &IDENTITIES[1..]}]).to_string()},
            },
            "spec": {"holderIdentity": IDENTITIES[0], "leaseTransitions": 4},
        });
        let mut stage = Self {
            at: "2026-03-01T12:00:00Z".parse().unwrap(),
            cluster,
            pods: names.iter().map(pod).collect(),
            lease,
            unseen: BTreeMap::new(),
            answers: BTreeMap::new(),
            more: BTreeMap::new(),
        };
        for (index, name) in names.iter().enumerate() {
            stage.says(name, json!({"identity": IDENTITIES[index]}), json!({}));
        }
        stage
    }

    /// What an agent says, but for what is as it should be.
    pub fn says(&mut self, name: &str, report: Value, rest: Value) {
        let leads = name == "orders-1";
        let (role, state) = if leads { ("primary", "Leading") } else { ("standby", "Streaming") };
        let index: usize = name.trim_start_matches("orders-").parse().unwrap();
        let mut detail = json!({
            "report": {"role": role, "state": state, "term": 4, "timeline": 2, "acceptsSql": true, "postgresVersion": "17.6",
                       "identity": IDENTITIES[index - 1]},
            "lsn": "0/5000000", "ageSeconds": 0.4,
        });
        if !leads {
            (detail["lagBytes"], detail["lagSeconds"]) = (0.into(), 0.0.into());
        }
        let merge = |into: &mut Value, from: Value| {
            for (field, value) in from.as_object().unwrap() {
                into[field] = value.clone();
            }
        };
        merge(&mut detail["report"], report);
        merge(&mut detail, rest);
        let detail: Detail = serde_json::from_value(detail).unwrap();
        self.answers.insert(name.to_owned(), Answer::Said(Box::new(detail)));
    }

    pub fn silent(&mut self, name: &str, why: &str) {
        self.answers.insert(name.to_owned(), Answer::Silent(why.to_owned()));
    }

    pub fn observed(&self) -> Observed {
        let items = |all: &BTreeMap<String, Value>| {
            all.iter().map(|(name, value)| (name.clone(), Arc::new(value.clone()))).collect::<BTreeMap<_, _>>()
        };
        let mut children = self.more.clone();
        children
            .insert(Kind::Pod, Listing { complete: !self.unseen.contains_key(&Kind::Pod), items: items(&self.pods) });
        let lease = BTreeMap::from([("orders".to_owned(), Arc::new(self.lease.clone()))]);
        children.insert(Kind::Lease, Listing { complete: true, items: lease });
        let cluster = Fact::Known(Arc::new(self.cluster.clone()));
        observed::observe(
            "shop",
            "orders",
            Raw { cluster, children, owner_password: Fact::Unknown, source: RawSource::default() },
        )
    }

    pub fn report(&self) -> ClusterReport {
        let observed = self.observed();
        let cluster = observed.cluster.known().unwrap();
        let lease = (!self.unseen.contains_key(&Kind::Lease)).then_some(&self.lease);
        tell(Seen { at: self.at, cluster, observed: &observed, lease, unseen: &self.unseen, answers: &self.answers })
    }

    pub fn status(&mut self) -> &mut Value {
        &mut self.cluster["status"]
    }
}

/// A standby that is fenced, one that does not answer, and a rollout under way.
pub fn hurt() -> Stage {
    let mut stage = Stage::healthy();
    stage.says("orders-2", json!({"state": "Fenced", "acceptsSql": false, "message": "PostgreSQL is stopped, because bellwether.dev/fenced names this instance"}), json!({}));
    stage.silent("orders-3", "10.0.3.17:8008: no route to host");
    let status = stage.status();
    status["phase"] = "Degraded".into();
    status["observedGeneration"] = 1.into();
    status["conditions"][2] = condition(
        "Degraded",
        "True",
        "ReplicaUnhealthy",
        "orders-3 is down: its node does not answer; fenced: orders-2",
    );
    status["operation"] = json!({"kind": "Rollout", "step": "Standbys", "since": "2026-03-01T11:58:20Z",
                                 "waitingOn": "the fence on orders-2 to be lifted"});
    stage
}

fn at(width: usize, report: &ClusterReport) -> String {
    let text = page(Screen::plain(width), report);
    let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= width, "a line of {widest} columns:\n{text}");
    text
}

#[test]
fn a_healthy_cluster_at_80_and_at_200_columns() {
    let report = Stage::healthy().report();
    insta::assert_snapshot!("healthy_80", at(80, &report));
    insta::assert_snapshot!("healthy_200", at(200, &report));
}

#[test]
fn a_cluster_in_trouble_at_80_and_at_200_columns() {
    let report = hurt().report();
    insta::assert_snapshot!("hurt_80", at(80, &report));
    insta::assert_snapshot!("hurt_200", at(200, &report));
}

#[test]
fn a_line_for_each_cluster_at_80_and_at_200_columns() {
    let mut down = Stage::healthy();
    down.cluster["metadata"]["name"] = "payments".into();
    down.status()["conditions"][0] = condition("Ready", "False", "NoPrimary", "no instance accepts writes");
    down.status()["phase"] = "Unavailable".into();
    let items = vec![Stage::healthy().report(), hurt().report(), down.report()];
    let report = ListReport { kind: "ClusterStatusList", version: VERSION, items };
    insta::assert_snapshot!("list_80", list(Screen::plain(80), &report));
    insta::assert_snapshot!("list_200", list(Screen::plain(200), &report));
}

#[test]
fn what_programs_read_does_not_change_by_accident() {
    insta::assert_json_snapshot!("hurt_json", hurt().report());
}

#[test]
fn ready_is_what_the_operator_says_and_the_primary_confirms() {
    let ready = Stage::healthy().report().ready;
    assert!(ready.ready && ready.confirmed);
    let mut refused = Stage::healthy();
    for name in ["orders-1", "orders-2", "orders-3"] {
        refused
            .answers
            .insert(name.to_owned(), Answer::NotAsked("you may not read Secret orders-replication".to_owned()));
    }
    let ready = refused.report().ready;
    assert!(ready.ready && !ready.confirmed && ready.why.unwrap().contains("may not"));
}

#[test]
fn a_stale_ready_is_not_believed() {
    let mut dead = Stage::healthy();
    dead.silent("orders-1", "connection refused");
    let report = dead.report();
    assert!(!report.ready.ready && report.ready.why.unwrap().contains("connection refused"));
    assert_eq!(report.instances[0].source, Source::Status);

    let mut fenced = Stage::healthy();
    fenced.says("orders-1", json!({"role": null, "state": "Fenced", "acceptsSql": false}), json!({}));
    let ready = fenced.report().ready;
    assert!(!ready.ready && ready.why.unwrap().contains("its agent says that it is Fenced"));

    let mut waiting = Stage::healthy();
    waiting.says("orders-1", json!({"commitsWait": true}), json!({}));
    assert_eq!(waiting.report().ready.runbook.as_deref(), Some("NoSynchronousStandby"));

    let mut gone = Stage::healthy();
    gone.pods.remove("orders-1");
    gone.answers.remove("orders-1");
    assert!(!gone.report().ready.ready, "its pod is gone, and the operator has yet to say so");
}

#[test]
fn a_leader_that_the_operator_has_yet_to_see_is_said_and_not_believed_alone() {
    let mut early = Stage::healthy();
    early.status()["conditions"][0] = condition("Ready", "False", "NoPrimary", "no instance accepts writes");
    let ready = early.report().ready;
    assert!(!ready.ready && ready.why.unwrap().contains("orders-1 says that it leads and answers"));
}

#[test]
fn who_leads_by_its_own_word_is_the_primary_before_the_operator_says_so() {
    let mut moved = Stage::healthy();
    moved.silent("orders-1", "connection refused");
    moved.says("orders-2", json!({"role": "primary", "state": "Leading", "term": 5}), json!({}));
    let report = moved.report();
    assert!(report.ready.ready && report.ready.confirmed, "{:?}", report.ready);
    assert_eq!((report.primary.as_deref(), report.term), (Some("orders-2"), Some(5)));
    assert!(at(80, &report).contains("the operator's last word is Streaming"));
}

#[test]
fn lag_is_what_the_primary_has_written_and_the_standby_has_not_replayed() {
    let mut behind = Stage::healthy();
    behind.says("orders-1", json!({}), json!({"lsn": "0/5300000"}));
    behind.says("orders-2", json!({"state": "CatchingUp"}), json!({"lagBytes": 0, "lagSeconds": 75.2}));
    behind.says("orders-3", json!({"state": "NotStreaming"}), json!({"lagSeconds": 0.0}));
    let report = behind.report();
    assert_eq!(report.instances[1].lag_bytes, Some(3 * 1024 * 1024));
    assert_eq!(super::page::lag(&report.instances[1]), "3.0 MiB, 1m 15s");
    // One that receives nothing has replayed all that it received.
    assert_eq!(super::page::lag(&report.instances[2]), "3.0 MiB");
}

#[test]
fn positions_of_a_server_that_has_not_answered_for_long_are_said_to_be_old() {
    let mut frozen = Stage::healthy();
    frozen.says("orders-2", json!({}), json!({"ageSeconds": 42.0}));
    assert!(at(80, &frozen.report()).contains("has not told its position for 42 s"));
}

#[test]
fn what_could_not_be_looked_at_is_said() {
    let mut blind = Stage::healthy();
    blind.pods.clear();
    blind.answers.clear();
    blind.unseen.insert(Kind::Pod, "pods is forbidden".to_owned());
    blind.unseen.insert(Kind::Lease, "leases is forbidden".to_owned());
    let text = at(80, &blind.report());
    assert!(text.contains("pods is forbidden") && text.contains("can't be seen"), "{text}");
    assert!(!text.contains("wait for no standby"), "{text}");
}

#[test]
fn a_backup_is_no_promise_while_the_log_is_not_archived() {
    let mut failing = Stage::healthy();
    failing.status()["conditions"][3] = condition("Archiving", "False", "ArchiveFailing", "the store refuses");
    assert!(at(200, &failing.report()).contains("up to when is not known"));
    failing.status()["recoverableTo"] = json!("2026-03-01T11:00:00Z");
    let report = failing.report();
    assert!(at(200, &report).contains("from 2026-03-01T02:00:09Z to 2026-03-01T11:00:00Z: the log does not get into"));
    let age = report.at.duration_since(report.backups.last.unwrap());
    assert!(age > SignedDuration::from_hours(9));
}
