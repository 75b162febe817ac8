//! Decides what is wrong with a cluster, how bad that is, and which runbook is for it. Pure.
//!
//! Never: fine, of what could not be looked at; or the same trouble under two names.

use std::collections::BTreeSet;

use bellwether_api::reason::Reason;
use bellwether_api::v1::InstanceState;
use bellwether_core::observed::Observed;
use bellwether_core::words;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::operator::Operator;
use crate::ask::Answer;
use crate::events::News;
use crate::output::page::Mark;
use crate::status::page::{lag, mark};
use crate::status::report::{ClusterReport, InstanceReport};
use crate::why::{Case, cause};

/// An operator renews every few seconds; one that has not for so long does not lead any more.
const RENEWED_WITHIN: SignedDuration = SignedDuration::from_secs(60);
/// What an operator has to do is begun within seconds; retries wait for five minutes at most.
const BEGUN_WITHIN: SignedDuration = SignedDuration::from_mins(6);
/// A certificate is renewed when a third of its year is left. One with less than this was not, although it was tried for weeks.
const RENEWAL_LATE: SignedDuration = SignedDuration::from_hours(24 * 60);
/// Clients will be cut off while somebody is on holiday.
const ENDS_SOON: SignedDuration = SignedDuration::from_hours(24 * 14);
/// A standby that is further behind takes a while to take over.
const FAR_BEHIND: u64 = 256 << 20;
/// The same, in time.
const LONG_BEHIND: f64 = 60.0;
/// What is recent.
const RECENT: SignedDuration = SignedDuration::from_mins(30);

/// How bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As it should be.
    Fine,
    /// It could not be looked at, or means nothing by itself.
    Unknown,
    /// To look after.
    Warning,
    /// To be mended now.
    Critical,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// What was looked at.
    pub about: &'static str,
    /// A sentence.
    pub text: String,
    /// The name of a runbook.
    pub runbook: Option<String>,
}

/// What findings are made from.
pub struct Evidence<'a> {
    /// What is said of the cluster.
    pub report: &'a ClusterReport,
    /// Each instance.
    pub cases: Vec<Case<'a>>,
    /// What is around it.
    pub observed: &'a Observed,
    /// What the operator would do now.
    pub planned: Vec<String>,
    /// Who leads among the operators.
    pub operator: &'a Operator,
    /// What happened; or why that is not known.
    pub news: Result<&'a [News], String>,
    /// When.
    pub at: Timestamp,
}

fn finding(severity: Severity, about: &'static str, text: impl Into<String>, runbook: Option<String>) -> Finding {
    Finding { severity, about, text: text.into(), runbook }
}

/// All of them, in the order of the checklist.
pub fn findings(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut all = vec![leader(evidence.report)];
    all.extend(operator(evidence));
    all.extend(instances(evidence));
    all.extend(replication(evidence.report));
    all.extend(certificates(evidence));
    all.extend(volumes(evidence));
    all.extend(backups(evidence.report));
    let told: BTreeSet<_> = all.iter().filter_map(|finding| finding.runbook.clone()).collect();
    all.extend(conditions(evidence.report, &told));
    all.extend(news(evidence));
    all.extend(evidence.report.unseen.iter().map(|what| finding(Severity::Unknown, "not seen", what, None)));
    all
}

fn leader(report: &ClusterReport) -> Finding {
    let ready = &report.ready;
    let primary = report.primary.as_deref().unwrap_or("nobody");
    let why = ready.why.clone().unwrap_or_default();
    match (ready.ready, ready.confirmed) {
        (true, true) => {
            let term = report.term.map(|term| format!(" in term {term}")).unwrap_or_default();
            finding(
                Severity::Fine,
                "leader",
                format!("{primary} leads{term} and accepts writes, by its own word"),
                None,
            )
        }
        (true, false) => finding(
            Severity::Unknown,
            "leader",
            format!("{primary} leads by the operator's last word; it could not be asked: {why}"),
            None,
        ),
        (false, _) => finding(Severity::Critical, "leader", why, ready.runbook.clone()),
    }
}

fn operator(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut all = vec![];
    match evidence.operator {
        Operator::Leads { namespace, holder, renewed } => {
            let age = renewed.map(|renewed| evidence.at.duration_since(renewed));
            let ago = age.map_or_else(|| "at no time".to_owned(), |age| format!("{} ago", words::duration(age)));
            let late = age.is_none_or(|age| age > RENEWED_WITHIN);
            let text = format!("{holder} in namespace {namespace} leads, renewed {ago}");
            all.push(match late {
                false => finding(Severity::Fine, "operator", text, None),
                true => finding(
                    Severity::Critical,
                    "operator",
                    format!(
                        "no operator leads: {holder} in namespace {namespace} did, and renewed that {ago}. \
                         Elections go on without it; look at its pods"
                    ),
                    None,
                ),
            });
        }
        Operator::NoElection => {
            let text = "no Lease says who leads: there is none, or one that runs alone, as in `bellwether up`";
            all.push(finding(Severity::Unknown, "operator", text, None));
        }
        Operator::Unseen(why) => {
            all.push(finding(Severity::Unknown, "operator", format!("who leads can't be seen: {why}"), None));
        }
    }
    // What it has to do and does not says more than any Lease.
    let idle = evidence.report.status.written.is_some_and(|at| evidence.at.duration_since(at) > BEGUN_WITHIN);
    if idle && evidence.report.unseen.is_empty() && !evidence.planned.is_empty() {
        let text = format!(
            "it would do this, and has said nothing for minutes: does one run? {}",
            evidence.planned.join("; ")
        );
        all.push(finding(Severity::Warning, "operator", text, None));
    }
    all
}

fn instances(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut all = vec![];
    for case in &evidence.cases {
        let InstanceReport { name, ready, .. } = case.instance;
        let said = case.instance.message.as_deref().map(|said| format!(" ({said})")).unwrap_or_default();
        match (cause(*case), case.answer) {
            (_, Some(Answer::Silent(why))) => {
                let runbook = cause(*case).map(|(reason, _)| reason);
                all.push(finding(
                    Severity::Critical,
                    "instance",
                    format!("{name}: its agent does not answer: {why}"),
                    runbook,
                ));
            }
            (Some((reason, why)), _) => {
                let full = reason == Reason::VolumeFull.to_string();
                let severity = if full { Severity::Critical } else { Severity::Warning };
                let said = if why == said.trim_matches([' ', '(', ')']) { String::new() } else { said };
                all.push(finding(severity, "instance", format!("{name}: {why}{said}"), Some(reason)));
            }
            (None, Some(Answer::NotAsked(why))) => {
                all.push(finding(Severity::Unknown, "instance", format!("{name} could not be asked: {why}"), None));
            }
            (None, None) => all.push(finding(
                Severity::Warning,
                "instance",
                format!("{name}: {}", case.instance.unasked.clone().unwrap_or_default()),
                None,
            )),
            (None, _) if !ready => {
                all.push(finding(Severity::Warning, "instance", format!("{name} is not ready{said}"), None));
            }
            (None, _) => {}
        }
    }
    let missing = i64::from(evidence.report.replicas.wanted) - i64::try_from(evidence.cases.len()).unwrap_or(i64::MAX);
    if missing > 0 {
        let text = format!("{missing} of {} instances are not there", evidence.report.replicas.wanted);
        all.push(finding(Severity::Warning, "instance", text, None));
    }
    if all.is_empty() {
        all.push(finding(
            Severity::Fine,
            "instances",
            format!("all {} are as they should be", evidence.cases.len()),
            None,
        ));
    }
    all
}

fn replication(report: &ClusterReport) -> Vec<Finding> {
    let streams = |one: &&InstanceReport| matches!(one.state, InstanceState::Streaming | InstanceState::CatchingUp);
    let far = |one: &&InstanceReport| {
        one.lag_bytes.is_some_and(|bytes| bytes > FAR_BEHIND)
            || one.lag_seconds.is_some_and(|seconds| seconds > LONG_BEHIND)
    };
    let mut all: Vec<_> = report
        .instances
        .iter()
        .filter(streams)
        .filter(far)
        .map(|one| finding(Severity::Warning, "replication", format!("{} is {} behind", one.name, lag(one)), None))
        .collect();
    let heard: Vec<_> = report.instances.iter().filter(streams).filter(|one| one.lag_bytes.is_some()).collect();
    if all.is_empty() && !heard.is_empty() {
        let worst = heard.iter().max_by_key(|one| one.lag_bytes).map(|one| lag(one)).unwrap_or_default();
        let streaming = words::counted(heard.len() as u64, "standby");
        all.push(finding(
            Severity::Fine,
            "replication",
            format!("{streaming} streaming, none more than {worst} behind"),
            None,
        ));
    }
    all
}

fn certificates(evidence: &Evidence<'_>) -> Vec<Finding> {
    let secrets = &evidence.observed.secrets;
    let mut ends: Vec<_> = secrets.items.iter().filter_map(|(name, secret)| Some((secret.not_after?, name))).collect();
    ends.sort();
    let Some((first, name)) = ends.first() else {
        let why = if secrets.complete { "no certificate says when it ends" } else { "when they end can't be seen" };
        return vec![finding(Severity::Unknown, "certificates", why, None)];
    };
    let left = first.duration_since(evidence.at);
    let text = match left.is_positive() {
        true => format!("the first to end is that of {name}, in {}", words::duration(left)),
        false => format!("that of {name} ended at {first}"),
    };
    let severity = match left {
        left if left < ENDS_SOON => Severity::Critical,
        left if left < RENEWAL_LATE => Severity::Warning,
        _ => Severity::Fine,
    };
    let late =
        if severity == Severity::Fine { "" } else { "; the operator renews it four months before that, and did not" };
    vec![finding(severity, "certificates", format!("{text}{late}"), None)]
}

fn volumes(evidence: &Evidence<'_>) -> Vec<Finding> {
    let volumes = &evidence.observed.volumes;
    let lost = volumes.items.values().filter(|volume| volume.lost);
    let mut all: Vec<_> = lost
        .map(|volume| {
            let text = format!("there is nothing behind the claim {} any more", volume.name);
            finding(Severity::Critical, "disk", text, Some(Reason::VolumeLost.to_string()))
        })
        .collect();
    let heard = evidence.cases.iter().filter(|case| case.answer.and_then(Answer::said).is_some()).count();
    let full = evidence
        .cases
        .iter()
        .any(|case| case.answer.and_then(Answer::said).is_some_and(|detail| !detail.report.full.is_empty()));
    if all.is_empty() && !full && heard > 0 {
        all.push(finding(
            Severity::Fine,
            "disk",
            format!("no volume is full, by the word of {}", words::counted(heard as u64, "agent")),
            None,
        ));
    }
    all
}

fn backups(report: &ClusterReport) -> Vec<Finding> {
    let backups = &report.backups;
    if !backups.store {
        let text = "there are none, and the log is not archived: spec.backup.store names no store";
        return vec![finding(Severity::Warning, "backups", text, None)];
    }
    let ago = |at: Timestamp| words::duration(report.at.duration_since(at));
    match (backups.last_verified, backups.last) {
        (Some(verified), _) => {
            let text = format!("the newest that was restored and found good is {} old", ago(verified));
            vec![finding(Severity::Fine, "backups", text, None)]
        }
        (None, Some(last)) => {
            let text =
                format!("the last is {} old, and none has been restored yet to see whether it is one", ago(last));
            vec![finding(Severity::Warning, "backups", text, Some(Reason::NoVerifiedBackup.to_string()))]
        }
        (None, None) => {
            vec![finding(Severity::Warning, "backups", "there is none yet", Some(Reason::NoBackup.to_string()))]
        }
    }
}

/// What the operator says and nothing above has said.
fn conditions(report: &ClusterReport, told: &BTreeSet<String>) -> Vec<Finding> {
    let others = report.conditions.iter().filter(|one| !matches!(one.type_.as_str(), "Ready" | "Degraded"));
    let mut all = vec![];
    for condition in others.filter(|one| !told.contains(&one.reason)) {
        let severity = match mark(condition) {
            Mark::Good | Mark::Plain => continue,
            // Work under way is none of a doctor's business by itself.
            _ if condition.type_ == "Progressing" => Severity::Unknown,
            Mark::Bad => Severity::Critical,
            Mark::Busy | Mark::Stopped => Severity::Warning,
        };
        let text = format!("{}={}: {}", condition.type_, condition.status, condition.message);
        all.push(finding(severity, "condition", text, Some(condition.reason.clone())));
    }
    all
}

fn news(evidence: &Evidence<'_>) -> Vec<Finding> {
    let news = match &evidence.news {
        Ok(news) => *news,
        Err(why) => return vec![finding(Severity::Unknown, "events", format!("they can't be seen: {why}"), None)],
    };
    let recent: Vec<_> =
        news.iter().filter(|one| one.warning && evidence.at.duration_since(one.last) < RECENT).collect();
    let Some(last) = recent.last() else {
        return vec![finding(Severity::Fine, "events", "no warning in the last half hour", None)];
    };
    let warnings = words::counted(recent.len() as u64, "warning");
    let text = format!(
        "{warnings} in the last half hour, the last {} ago: {}: {} (`bellwether events {}`)",
        words::duration(evidence.at.duration_since(last.last)),
        last.reason,
        last.message,
        evidence.report.name
    );
    // What is wrong now is told above; this is how it came to that.
    vec![finding(Severity::Unknown, "events", text, None)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::{Stage, condition, hurt};
    use bellwether_core::object::Kind;
    use bellwether_core::observed::Listing;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    struct Patient {
        stage: Stage,
        operator: Operator,
        planned: Vec<String>,
    }

    impl Patient {
        fn of(stage: Stage) -> Self {
            let renewed = Some(stage.at - SignedDuration::from_secs(3));
            let operator =
                Operator::Leads { namespace: "bellwether-system".into(), holder: "operator-a".into(), renewed };
            Self { stage, operator, planned: vec![] }
        }

        fn found(&self) -> Vec<Finding> {
            let (observed, report) = (self.stage.observed(), self.stage.report());
            findings(&Evidence {
                report: &report,
                cases: report
                    .instances
                    .iter()
                    .map(|instance| Case {
                        report: &report,
                        instance,
                        pod: observed.pods.items.get(&instance.name),
                        answer: self.stage.answers.get(&instance.name),
                        at: self.stage.at,
                    })
                    .collect(),
                observed: &observed,
                planned: self.planned.clone(),
                operator: &self.operator,
                news: Ok(&[]),
                at: self.stage.at,
            })
        }

        fn wrong(&self) -> Vec<(Severity, &'static str, Option<String>)> {
            let all = self.found().into_iter().filter(|finding| finding.severity >= Severity::Warning);
            all.map(|finding| (finding.severity, finding.about, finding.runbook)).collect()
        }
    }

    fn with_certificate(end: &str) -> Stage {
        let mut stage = Stage::healthy();
        let secret: Value = json!({"metadata": {
            "name": "orders-server", "namespace": "shop", "uid": "s", "resourceVersion": "1",
            "annotations": {"bellwether.dev/not-after": end},
        }});
        let items = BTreeMap::from([("orders-server".to_owned(), Arc::new(secret))]);
        stage.more.insert(Kind::Secret, Listing { complete: true, items });
        stage
    }

    #[test]
    fn nothing_is_wrong_with_a_healthy_cluster() {
        let patient = Patient::of(with_certificate("2027-02-01T00:00:00Z"));
        assert_eq!(patient.wrong(), []);
        assert!(patient.found().iter().all(|finding| finding.severity == Severity::Fine), "{:?}", patient.found());
    }

    #[test]
    fn a_fenced_and_a_silent_instance_are_found_once_each() {
        let wrong = Patient::of(hurt()).wrong();
        assert_eq!(
            wrong,
            [
                (Severity::Warning, "instance", Some("Fenced".to_owned())),
                (Severity::Critical, "instance", Some("ReplicaUnhealthy".to_owned())),
            ]
        );
    }

    #[test]
    fn a_certificate_that_was_not_renewed_is_found_before_it_ends() {
        let severity = |end| Patient::of(with_certificate(end)).wrong().first().map(|found| found.0);
        assert_eq!(severity("2026-04-20T00:00:00Z"), Some(Severity::Warning));
        assert_eq!(severity("2026-03-10T00:00:00Z"), Some(Severity::Critical));
        assert_eq!(severity("2026-02-10T00:00:00Z"), Some(Severity::Critical));
    }

    #[test]
    fn an_operator_that_is_gone_is_found_and_one_that_can_t_be_seen_is_not_called_gone() {
        let mut patient = Patient::of(Stage::healthy());
        patient.operator = Operator::Leads {
            namespace: "bellwether-system".into(),
            holder: "operator-a".into(),
            renewed: Some(patient.stage.at - SignedDuration::from_mins(5)),
        };
        assert_eq!(patient.wrong(), [(Severity::Critical, "operator", None)]);
        patient.operator = Operator::Unseen("leases is forbidden".into());
        assert_eq!(patient.wrong(), []);
        patient.planned = vec!["create Pod orders-2: the cluster needs it".into()];
        assert_eq!(patient.wrong(), [(Severity::Warning, "operator", None)], "nobody does it");
    }

    #[test]
    fn archive_and_backups_are_looked_at() {
        let mut stage = Stage::healthy();
        stage.status()["conditions"][3] = condition("Archiving", "False", "ArchiveFailing", "the store refuses");
        stage.status()["lastVerifiedBackup"] = Value::Null;
        assert_eq!(
            Patient::of(stage).wrong(),
            [
                (Severity::Warning, "backups", Some("NoVerifiedBackup".to_owned())),
                (Severity::Critical, "condition", Some("ArchiveFailing".to_owned())),
            ]
        );
    }

    #[test]
    fn a_standby_that_is_far_behind_is_found() {
        let mut stage = Stage::healthy();
        stage.says("orders-2", json!({}), json!({"lagSeconds": 90.0}));
        assert_eq!(Patient::of(stage).wrong(), [(Severity::Warning, "replication", None)]);
    }
}
