//! `bellwether doctor`: the checklist of an incident, gone through by a program.
//!
//! Reads and asks, and changes nothing. The exit code says whether something is wrong.

mod findings;
mod operator;

use std::process::ExitCode;

use bellwether_core::object::Kind;
use bellwether_runtime::watch::Key;
use kube::ResourceExt;
use kube::api::ListParams;

use crate::args::Doctor;
use crate::cluster::{ClusterError, Space, concluded};
use crate::events;
use crate::exit::Exit;
use crate::output::Tone;
use crate::output::page::{Mark, Screen};
use crate::status::{Refused, View};
use findings::{Evidence, Finding, Severity, findings};

/// Runs it.
pub fn run(options: &Doctor) -> ExitCode {
    concluded(doctor(options))
}

async fn doctor(options: &Doctor) -> Result<(String, Exit), Refused> {
    let space = Space::at(&options.place).await?;
    let names = match &options.cluster {
        Some(name) => vec![name.clone()],
        None => {
            let listed = space.clusters.list(&ListParams::default()).await.map_err(ClusterError::from)?;
            listed.items.iter().map(ResourceExt::name_any).collect()
        }
    };
    if names.is_empty() {
        return Ok((format!("there is no cluster in namespace {}", space.namespace), Exit::Ok));
    }
    let screen = Screen::here();
    let operator = operator::look(&space.client).await;
    let (mut pages, mut exit) = (vec![], Exit::Ok);
    for name in names {
        let key = Key { namespace: space.namespace.clone(), name };
        let missing = || ClusterError::NoCluster { cluster: key.name.clone(), namespace: key.namespace.clone() };
        let view = View::of(&space.client, &key, &Kind::ALL).await?.ok_or_else(missing)?;
        let news = events::of(&space.client, &key.namespace, &key.name).await;
        let report = view.report();
        let found = findings(&Evidence {
            report: &report,
            cases: report.instances.iter().map(|instance| view.case(&report, instance)).collect(),
            observed: &view.look.observed,
            planned: view.look.outlook().plan.actions.iter().map(ToString::to_string).collect(),
            operator: &operator,
            news: news.as_deref().map_err(ToString::to_string),
            at: view.look.at,
        });
        if found.iter().any(|finding| finding.severity >= Severity::Warning) {
            exit = Exit::Findings;
        }
        pages.push(page(screen, &format!("{}/{}", key.namespace, key.name), &found));
    }
    Ok((pages.join("\n\n"), exit))
}

/// The worst first.
fn page(screen: Screen, cluster: &str, found: &[Finding]) -> String {
    let count = |severity| found.iter().filter(|finding| finding.severity == severity).count();
    let said = match (count(Severity::Critical), count(Severity::Warning)) {
        (0, 0) => "nothing is wrong".to_owned(),
        (critical, warning) => format!("{critical} critical, {warning} to look after"),
    };
    let mut lines = vec![format!("{}  {said}", screen.paint(cluster, Tone::Strong)), String::new()];
    let mut sorted: Vec<_> = found.iter().collect();
    sorted.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    for finding in sorted {
        let mark = match finding.severity {
            Severity::Critical => Mark::Bad,
            Severity::Warning => Mark::Busy,
            Severity::Unknown => Mark::Plain,
            Severity::Fine => Mark::Good,
        };
        let runbook = finding.runbook.as_ref().map(|name| format!(" → docs/runbooks/{name}.md")).unwrap_or_default();
        lines.push(screen.marked(mark, &format!("{}: {}{runbook}", finding.about, finding.text)));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_at_80_and_at_200_columns() {
        let finding = |severity, about, text: &str, runbook: Option<&str>| Finding {
            severity,
            about,
            text: text.to_owned(),
            runbook: runbook.map(str::to_owned),
        };
        let found = [
            finding(Severity::Fine, "leader", "orders-1 leads in term 4 and accepts writes", None),
            finding(Severity::Warning, "instance", "orders-2: a person wants PostgreSQL stopped on it", Some("Fenced")),
            finding(
                Severity::Critical,
                "archive",
                "the log has not got into the store since 2026-03-01T09:00:00Z: the store refuses every request",
                Some("ArchiveFailing"),
            ),
            finding(Severity::Unknown, "operator", "who leads can't be seen: leases is forbidden", None),
        ];
        insta::assert_snapshot!("doctor_80", page(Screen::plain(80), "shop/orders", &found));
        insta::assert_snapshot!("doctor_200", page(Screen::plain(200), "shop/orders", &found));
    }
}
