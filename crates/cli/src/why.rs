//! `bellwether why`: what one instance is doing, why, what it waits on, what the operator would do about it, and which runbook is for that.
//!
//! From its agent's word, its pod, the cluster's conditions and the operator's plan. Never: a cause that nobody named; where there is none to be
//! found, that is said.

use std::process::ExitCode;

use bellwether_api::names::Names;
use bellwether_api::reason::Reason;
use bellwether_api::v1::{InstanceRole, InstanceState, OperationKind, PostgresCluster};
use bellwether_core::object::Kind;
use bellwether_core::observed::{Pod, PodPhase};
use bellwether_core::words;
use bellwether_runtime::watch::Key;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ListParams;

use crate::args::Why;
use crate::ask::Answer;
use crate::cluster::{ClusterError, Space, told};
use crate::events::{self, News};
use crate::output::page::{Mark, Screen};
use crate::status::page::{instance_mark, lag, mark};
use crate::status::report::{ClusterReport, InstanceReport, Source};
use crate::status::{Refused, View};

/// So much news is recent.
const RECENT: usize = 8;

/// Runs it.
pub fn run(options: &Why) -> ExitCode {
    told(why(options))
}

async fn why(options: &Why) -> Result<String, Refused> {
    let space = Space::at(&options.place).await?;
    let clusters = space.clusters.list(&ListParams::default()).await.map_err(ClusterError::from)?.items;
    let there = || clusters.iter().filter_map(|cluster| cluster.status.as_ref()).flat_map(|status| &status.instances);
    let missing = || ClusterError::NoInstance {
        instance: options.instance.clone(),
        namespace: space.namespace.clone(),
        there: there().map(|instance| instance.name.clone()).collect(),
    };
    let name = owner(&clusters, &options.instance).ok_or_else(missing)?;
    let key = Key { namespace: space.namespace.clone(), name: name.clone() };
    let view = View::of(&space.client, &key, &Kind::ALL).await?.ok_or_else(missing)?;
    let report = view.report();
    let instance = report.instances.iter().find(|one| one.name == options.instance).ok_or_else(missing)?;
    let news = events::of(&space.client, &key.namespace, &name).await.unwrap_or_default();
    let own = |news: &News| news.about.1 == instance.name || mentions(&news.message, &instance.name);
    let mut news: Vec<_> = news.into_iter().filter(own).collect();
    news.drain(..news.len().saturating_sub(RECENT));
    let planned = view.look.outlook().plan.actions.into_iter().filter(|action| {
        let target = action.effect.target().1;
        target == instance.name || mentions(target, &instance.name)
    });
    let told = Told {
        case: view.case(&report, instance),
        planned: planned.map(|action| action.to_string()).collect(),
        news: &news,
    };
    Ok(page(Screen::here(), &told))
}

/// The cluster that an instance belongs to: one that says so, else one of whose names it is.
fn owner(clusters: &[PostgresCluster], instance: &str) -> Option<String> {
    let says = |cluster: &&PostgresCluster| {
        let status = cluster.status.as_ref();
        status.is_some_and(|status| status.instances.iter().any(|one| one.name == instance))
    };
    let named = |cluster: &&PostgresCluster| Names::of(cluster.name_any()).serial(instance).is_some();
    clusters.iter().find(says).or_else(|| clusters.iter().find(named)).map(ResourceExt::name_any)
}

/// Whether a text names an instance, and not one whose name only begins alike.
fn mentions(text: &str, instance: &str) -> bool {
    text.match_indices(instance).any(|(at, _)| {
        let part = |c: char| c.is_ascii_alphanumeric();
        let before = text[..at].chars().next_back();
        let after = text[at + instance.len()..].chars().next();
        !before.is_some_and(|c| part(c) || c == '-') && !after.is_some_and(part)
    })
}

/// One instance, as far as it was looked at.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    /// What is said of its cluster.
    pub report: &'a ClusterReport,
    /// What is said of it.
    pub instance: &'a InstanceReport,
    /// Its pod.
    pub pod: Option<&'a Pod>,
    /// What its agent said.
    pub answer: Option<&'a Answer>,
    /// When.
    pub at: Timestamp,
}

/// What is told.
struct Told<'a> {
    case: Case<'a>,
    planned: Vec<String>,
    news: &'a [News],
}

/// Why an instance is not as it should be: the runbook for it, and a sentence.
pub fn cause(case: Case<'_>) -> Option<(String, String)> {
    let (instance, name) = (case.instance, case.instance.name.as_str());
    let named = |reason: Reason, why: &str| Some((reason.to_string(), why.to_owned()));
    let said = instance.message.clone().unwrap_or_default();
    if let Some(trouble) = case.pod.and_then(|pod| pod.trouble.as_ref()) {
        return Some((trouble.reason.to_string(), trouble.message.clone()));
    }
    if case.pod.and_then(|pod| pod.gone_by).is_some_and(|by| by < case.at) {
        return named(Reason::NodeLost, "its pod is to be gone, and its node does not say that it is");
    }
    let detail = case.answer.and_then(Answer::said);
    if detail.is_some_and(|detail| !detail.report.full.is_empty()) {
        return named(Reason::VolumeFull, &said);
    }
    if detail.is_some_and(|detail| detail.report.commits_wait) {
        return named(
            Reason::NoSynchronousStandby,
            "commits wait, because too few standbys stream to acknowledge them",
        );
    }
    let rolls = case.report.operation.as_ref().is_some_and(|operation| operation.kind == OperationKind::Rollout);
    let by_state = match instance.state {
        InstanceState::Fenced => named(Reason::Fenced, "a person wants PostgreSQL stopped on it"),
        InstanceState::Bootstrapping => named(Reason::Bootstrapping, "it initialises the database"),
        InstanceState::Joining => named(Reason::Joining, "it copies the data"),
        InstanceState::CatchingUp => named(Reason::Joining, "it replays what it has missed"),
        InstanceState::Starting | InstanceState::Pending if rolls => {
            named(Reason::RollingOut, "it restarts for a change that is being rolled out")
        }
        InstanceState::Starting => named(Reason::Restarting, "PostgreSQL starts or recovers"),
        InstanceState::NotStreaming => named(Reason::ReplicaUnhealthy, "it does not stream"),
        InstanceState::Down => named(Reason::ReplicaUnhealthy, "PostgreSQL is down on it"),
        InstanceState::Leading | InstanceState::Streaming if instance.ready => None,
        InstanceState::Leading => named(Reason::NoPrimary, "it leads, and does not answer SQL"),
        InstanceState::Streaming | InstanceState::Pending => None,
    };
    let of_conditions = || {
        let unlike = case.report.conditions.iter().filter(|condition| mark(condition) != Mark::Good);
        unlike
            .filter(|condition| mentions(&condition.message, name))
            .map(|found| (found.reason.clone(), found.message.clone()))
            .next()
    };
    let silent = || match case.answer {
        Some(Answer::Silent(_)) => named(Reason::ReplicaUnhealthy, "its agent does not answer"),
        _ => None,
    };
    by_state.or_else(of_conditions).or_else(silent)
}

fn page(screen: Screen, told: &Told<'_>) -> String {
    let Case { report, instance, .. } = told.case;
    let who = match instance.role {
        Some(InstanceRole::Primary) => "the primary",
        Some(InstanceRole::Standby) => "a standby",
        None => "an instance",
    };
    let now = if instance.source == Source::Agent { "" } else { " by the operator's last word" };
    let head = format!("{} is {who} of {}/{}: {:?}{now}", instance.name, report.namespace, report.name, instance.state);
    let mut lines = vec![screen.marked(instance_mark(instance), &head), String::new()];
    lines.extend(facts(told).iter().map(|(what, text)| screen.fact(what, text)));
    if !told.news.is_empty() {
        lines.push(String::new());
        lines.extend(events::lines(screen, told.case.at, told.news));
    }
    lines.join("\n")
}

fn facts(told: &Told<'_>) -> Vec<(&'static str, String)> {
    let Case { report, instance, .. } = told.case;
    let mut facts = vec![];
    let cause = cause(told.case);
    facts.push((
        "because",
        match &cause {
            Some((_, why)) => why.clone(),
            None if instance.ready => "it is as it should be".to_owned(),
            None => "nobody has said why; its log may (`kubectl logs`)".to_owned(),
        },
    ));
    facts.extend(
        instance
            .message
            .clone()
            .filter(|said| cause.as_ref().is_none_or(|(_, why)| why != said))
            .map(|said| ("it says", said)),
    );
    facts.extend(instance.unasked.clone().map(|why| ("not heard", why)));
    facts.extend(instance.status_says.map(|says| ("status", format!("the operator's last word is {says:?}"))));
    let position = instance.lsn.as_ref().map(|lsn| match lag(instance).as_str() {
        "" => lsn.clone(),
        behind => format!("{lsn}, {behind} behind"),
    });
    facts.extend(position.map(|position| ("position", position)));
    facts.push(("pod", pod(told)));
    let operation = report.operation.as_ref().filter(|operation| mentions(&operation.waiting_on, &instance.name));
    facts.extend(operation.map(|operation| {
        let since = words::duration(report.at.duration_since(operation.since));
        (
            "waited on",
            format!("{:?}, at {:?} for {since}, waits for {}", operation.kind, operation.step, operation.waiting_on),
        )
    }));
    facts.push((
        "operator",
        match told.planned.as_slice() {
            [] => "would do nothing about it now".to_owned(),
            planned => format!("would {}", planned.join("; then ")),
        },
    ));
    facts.extend(cause.map(|(reason, _)| ("what to do", format!("docs/runbooks/{reason}.md"))));
    facts.extend(report.unseen.iter().map(|what| ("not seen", what.clone())));
    facts
}

fn pod(told: &Told<'_>) -> String {
    let Some(pod) = told.case.pod else { return "there is none, or it can't be seen".to_owned() };
    let phase = match pod.phase {
        PodPhase::Pending => "is pending",
        PodPhase::Running => "runs",
        PodPhase::Ended => "has ended",
        PodPhase::Unknown => "is unknown, because its node does not answer",
    };
    let node = pod.node.as_deref().map_or_else(|| ", on no node yet".to_owned(), |node| format!(" on {node}"));
    let since = pod
        .created
        .map(|at| format!(", made {} ago", words::duration(told.case.at.duration_since(at))))
        .unwrap_or_default();
    let ends = if pod.terminating { ", and is being deleted" } else { "" };
    let ready = if pod.ready { "ready" } else { "not ready" };
    format!("{phase}{node}, {ready} by its kubelet{since}{ends}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::{Stage, hurt};
    use bellwether_core::observed::Observed;
    use serde_json::json;

    struct Patient {
        stage: Stage,
        observed: Observed,
        report: ClusterReport,
    }

    impl Patient {
        fn of(stage: Stage) -> Self {
            let (observed, report) = (stage.observed(), stage.report());
            Self { stage, observed, report }
        }

        fn told(&self, name: &str) -> Told<'_> {
            Told {
                case: Case {
                    report: &self.report,
                    instance: self.report.instances.iter().find(|one| one.name == name).unwrap(),
                    pod: self.observed.pods.items.get(name),
                    answer: self.stage.answers.get(name),
                    at: self.stage.at,
                },
                planned: vec![],
                news: &[],
            }
        }

        fn runbook(&self, name: &str) -> Option<String> {
            cause(self.told(name).case).map(|(reason, _)| reason)
        }
    }

    #[test]
    fn every_trouble_has_its_runbook() {
        let hurt = Patient::of(hurt());
        assert_eq!(hurt.runbook("orders-1"), None);
        assert_eq!(hurt.runbook("orders-2").as_deref(), Some("Fenced"));
        assert_eq!(hurt.runbook("orders-3").as_deref(), Some("ReplicaUnhealthy"), "a condition names it");
        let mut full = Stage::healthy();
        full.says("orders-2", json!({"state": "NotStreaming", "full": ["data"]}), json!({}));
        assert_eq!(Patient::of(full).runbook("orders-2").as_deref(), Some("VolumeFull"));
        let mut waits = Stage::healthy();
        waits.says("orders-1", json!({"commitsWait": true}), json!({}));
        assert_eq!(Patient::of(waits).runbook("orders-1").as_deref(), Some("NoSynchronousStandby"));
        let mut unplaced = Stage::healthy();
        unplaced.silent("orders-2", "its pod has no address yet");
        unplaced.pods.get_mut("orders-2").unwrap()["status"] = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"},
        ]});
        assert_eq!(Patient::of(unplaced).runbook("orders-2").as_deref(), Some("Unschedulable"));
    }

    #[test]
    fn every_runbook_that_is_named_is_there() {
        let hurt = Patient::of(hurt());
        for name in ["orders-2", "orders-3"] {
            let path = format!("docs/runbooks/{}.md", hurt.runbook(name).unwrap());
            let path = std::path::Path::new(env!("BELLWETHER_ROOT")).join(path);
            assert!(path.is_file(), "{path:?}");
        }
    }

    #[test]
    fn an_instance_is_not_one_whose_name_begins_alike() {
        assert!(mentions("orders-1 is down", "orders-1") && mentions("fenced: orders-1", "orders-1"));
        assert!(!mentions("orders-10 is down", "orders-1") && !mentions("my-orders-1", "orders-1"));
        assert!(mentions("orders-1-data", "orders-1"), "its volume");
    }

    #[test]
    fn a_fenced_instance_at_80_and_at_200_columns() {
        let case = Patient::of(hurt());
        let told = case.told("orders-2");
        insta::assert_snapshot!("why_80", page(Screen::plain(80), &told));
        insta::assert_snapshot!("why_200", page(Screen::plain(200), &told));
    }
}
