//! `bellwether try`: a cluster in a temporary directory, checked, measured and gone again.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bellwether_api::v1::PostgresCluster;
use bellwether_embedded::home::{Home, OperatorChoice, Step};
use bellwether_embedded::manifest;
use bellwether_embedded::trial::{Answer, Check, Figures, Trial};
use bellwether_embedded::view::ClusterView;
use kube::Api;
use tokio_util::sync::CancellationToken;

use crate::args::Try;
use crate::bring_up::{self, StartError};
use crate::exit::Exit;
use crate::output::{self, Tone, paint, table};

const NAME: &str = "demo";

/// Runs it.
pub fn run(options: &Try) -> ExitCode {
    bring_up::block_on(attempt(options))
}

async fn attempt(options: &Try) -> Result<Exit, StartError> {
    let version = options.postgres_version.clone().map_or_else(bring_up::newest_version, Ok)?;
    let directory = tempfile::Builder::new().prefix("bellwether-try-").tempdir();
    let directory = directory.map_err(|source| StartError::Io { what: "a temporary directory".to_owned(), source })?;
    let site = bring_up::open(Some(directory.path()), &options.place)?;
    let report = Report { json: options.json };
    let home = Home::start(site, bring_up::home_options(&options.place, OperatorChoice::Run), |step| report.step(step))
        .await?;
    let scope = home.scope();
    let (mut answers, mut figures) = (vec![], Figures::default());
    let asked = examine(&home, options, &version, &mut figures, |answer| {
        report.answer(&answer);
        answers.push(answer);
    });
    tokio::select! {
        result = asked => result?,
        () = output::signal() => output::error("interrupted; stopping"),
    }
    report.table(&home).await;
    home.stop(CancellationToken::new(), |step| report.step(step)).await;
    let left = scope.processes().len();
    let seen = if left == 0 { "no process is left".to_owned() } else { format!("{left} processes are left") };
    let answer = Answer { check: Check::CleanStop, passed: left == 0, seen };
    report.answer(&answer);
    answers.push(answer);
    let passed = answers.len() == Check::ALL.len() && answers.iter().all(|answer| answer.passed);
    report.end(passed, &answers, &figures);
    if !passed || options.keep {
        let kept = directory.keep();
        report.note(&format!("everything is kept in {}", kept.display()));
    }
    Ok(if passed { Exit::Ok } else { Exit::Failed })
}

/// Applies the cluster and asks the questions.
async fn examine(
    home: &Home,
    options: &Try,
    version: &str,
    figures: &mut Figures,
    tell: impl FnMut(Answer),
) -> Result<(), StartError> {
    let applied = Instant::now();
    manifest::apply(&home.client, &manifest::default_cluster(NAME, version, options.replicas)).await?;
    let trial = Trial {
        client: home.client.clone(),
        directory: home.directory().root().to_owned(),
        namespace: manifest::NAMESPACE.to_owned(),
        cluster: NAME.to_owned(),
        applied,
        deadline: Duration::from_secs(options.within),
    };
    trial.run(figures, tell).await;
    Ok(())
}

/// What is printed: words, or one JSON object at the end.
struct Report {
    json: bool,
}

impl Report {
    fn step(&self, step: Step) {
        if !self.json {
            bring_up::say(step);
        }
    }

    fn note(&self, text: &str) {
        if !self.json {
            output::line(text);
        }
    }

    fn answer(&self, answer: &Answer) {
        let (sign, tone) = if answer.passed { ("✓", Tone::Good) } else { ("✗", Tone::Bad) };
        let seen = paint(&answer.seen, Tone::Faint);
        self.note(&format!("{} {}\n    {seen}", paint(sign, tone), answer.check.question()));
    }

    async fn table(&self, home: &Home) {
        let api: Api<PostgresCluster> = Api::namespaced(home.client.clone(), manifest::NAMESPACE);
        if let Ok(cluster) = api.get(NAME).await {
            let lines = table::lines(&ClusterView::of(&cluster));
            self.note(&format!("\n{}\n", lines.join("\n")));
        }
    }

    fn end(&self, passed: bool, answers: &[Answer], figures: &Figures) {
        if self.json {
            let report = serde_json::json!({"passed": passed, "checks": answers, "figures": figures});
            return output::line(&report.to_string());
        }
        if let Some(seconds) = figures.apply_to_ready_seconds {
            output::line(&format!("\napply → Ready    {seconds:.2} s"));
        }
        for lag in &figures.replication {
            output::line(&format!(
                "commit → seen   p50 {:.1} ms, max {:.1} ms on {} ({} rows)",
                lag.p50_milliseconds, lag.max_milliseconds, lag.instance, lag.samples
            ));
        }
        if let Some(failover) = &figures.failover {
            output::line(&format!(
                "failover        {:.0} ms without an acknowledged row, from {} to {}",
                failover.gap_seconds * 1000.0,
                failover.from,
                failover.to
            ));
        }
        let failed: Vec<_> =
            answers.iter().filter(|answer| !answer.passed).map(|answer| answer.check.question()).collect();
        match (passed, failed.is_empty()) {
            (true, _) => output::line(&paint("\nall checks passed", Tone::Good)),
            (false, true) => output::error("not every check was made"),
            (false, false) => output::error(&format!("this does not hold: {}", failed.join("; "))),
        }
    }
}
