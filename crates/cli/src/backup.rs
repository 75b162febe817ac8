//! `bellwether backup now` and `bellwether backups`: takes a backup and follows it, and lists those that there are.
//!
//! The list comes from the API, or with `--from` from the store alone, which needs no Kubernetes. Never: a backup called taken that the operator
//! does not call completed.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bellwether_api::v1::{Backup, BackupPhase, BackupSpec, BackupStatus};
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};

use crate::args::{BackupNow, Backups};
use crate::cluster::{ClusterError, Space, told};
use crate::output::progress::Progress;
use crate::output::{Tone, paint};

/// How often a backup is looked at while it is followed.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Why it did not come to that.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error(
        "{cluster} has no spec.backup.store, so there is nowhere to put a backup: name one, such as s3://bucket/path"
    )]
    NoStore { cluster: String },
    #[error("backup {name} failed: {why}")]
    Failed { name: String, why: String },
    #[error("backup {name} was deleted before it was completed")]
    Deleted { name: String },
}

/// Takes one, and waits for its end unless that is not wanted.
pub fn now(options: &BackupNow) -> ExitCode {
    told(take(options))
}

/// Lists those that there are.
pub fn list(options: &Backups) -> ExitCode {
    match &options.from {
        Some(from) => crate::store::list(from, options.cluster.as_deref()),
        None => told(listed(options)),
    }
}

async fn take(options: &BackupNow) -> Result<String, Refused> {
    let space = Space::at(&options.place).await?;
    let backups = space.backups.clone();
    let cluster = space.cluster(&options.cluster).get().await?;
    if cluster.spec.backup.store.is_none() {
        return Err(Refused::NoStore { cluster: options.cluster.clone() });
    }
    let name = format!("{}-{}", options.cluster, Timestamp::now().strftime("%Y%m%d-%H%M%S"));
    let verify = options.verify.then_some(true);
    let backup = Backup::new(&name, BackupSpec { cluster: options.cluster.clone(), verify });
    backups.create(&PostParams::default(), &backup).await?;
    if options.no_wait {
        return Ok(format!("backup {name} is asked for; `kubectl get backup {name} -w` follows it"));
    }
    follow(&backups, &name, options.verify).await
}

async fn follow(backups: &Api<Backup>, name: &str, to_the_proof: bool) -> Result<String, Refused> {
    let began = Instant::now();
    let mut progress = Progress::new();
    loop {
        let Some(backup) = backups.get_opt(name).await? else {
            return Err(Refused::Deleted { name: name.to_owned() });
        };
        let status = backup.status.unwrap_or_default();
        match status.phase {
            Some(BackupPhase::Completed | BackupPhase::Verifying) if !to_the_proof => {
                progress.end();
                return Ok(completed(name, &status, began.elapsed()));
            }
            Some(BackupPhase::Verified) => {
                progress.end();
                let verified = verified(&status).unwrap_or_default();
                return Ok(format!("{}{verified}", completed(name, &status, began.elapsed())));
            }
            Some(BackupPhase::Failed) => {
                progress.end();
                let why = status.message.unwrap_or_else(|| "it does not say why".to_owned());
                return Err(Refused::Failed { name: name.to_owned(), why });
            }
            phase => {
                let phase = phase.map_or_else(|| "asked for".to_owned(), |phase| format!("{phase:?}"));
                let on = status.instance.map(|instance| format!(" on {instance}")).unwrap_or_default();
                let message = status.message.map(|message| format!(": {message}")).unwrap_or_default();
                progress.show(&format!("{name}: {phase}{on}{message}"));
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn completed(name: &str, status: &BackupStatus, took: Duration) -> String {
    let (size, stored) = (status.size.as_deref().unwrap_or("?"), status.stored.as_deref().unwrap_or("?"));
    let instance = status.instance.as_deref().unwrap_or("?");
    let id = status.id.as_deref().unwrap_or("?");
    format!(
        "backup {name} is complete: {size} from {instance}, {stored} in the store as {id}, {:.1} s",
        took.as_secs_f64()
    )
}

/// What its verification showed.
fn verified(status: &BackupStatus) -> Option<String> {
    let found = status.verification.as_ref()?;
    let (restored, reached) = (found.restore_time.as_deref()?, found.reached_lsn.as_deref()?);
    let mut text = format!("\nit was restored in {restored}, recovered to {reached}, and nothing is wrong with it");
    text.extend(found.not_looked_at.iter().map(|what| format!("\nnot looked at: {what}")));
    text.extend(status.message.iter().map(|message| format!("\n{message}")));
    Some(text)
}

async fn listed(options: &Backups) -> Result<String, Refused> {
    let space = Space::at(&options.place).await?;
    let mut all = space.backups.list(&ListParams::default()).await?.items;
    all.retain(|backup| options.cluster.as_ref().is_none_or(|cluster| backup.spec.cluster == *cluster));
    if all.is_empty() {
        let of = options.cluster.as_ref().map(|cluster| format!(" of {cluster}")).unwrap_or_default();
        return Ok(format!(
            "there is no backup{of} in namespace {}; `bellwether backup now CLUSTER` takes one",
            space.namespace
        ));
    }
    all.sort_by_key(|backup| backup.creation_timestamp());
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_header(["BACKUP", "CLUSTER", "PHASE", "INSTANCE", "SIZE", "STORED", "DURATION", "RTO", "MESSAGE"]);
    for backup in &all {
        table.add_row(row(backup));
    }
    let phases: Vec<_> = all.iter().map(|backup| backup.status.as_ref().and_then(|status| status.phase)).collect();
    let lines =
        table.lines().enumerate().map(|(index, line)| match index.checked_sub(1).and_then(|row| phases.get(row)) {
            Some(phase) => format!("{} {}", mark(*phase), line.trim_end()),
            None => format!("  {}", paint(line.trim_end(), Tone::Faint)),
        });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

fn row(backup: &Backup) -> [String; 9] {
    let status = backup.status.clone().unwrap_or_default();
    let text = |field: Option<String>| field.unwrap_or_else(|| "-".to_owned());
    let message = match status.phase {
        Some(BackupPhase::Completed) => String::new(),
        _ => status.message.unwrap_or_default(),
    };
    [
        backup.name_any(),
        backup.spec.cluster.clone(),
        status.phase.map_or_else(|| "-".to_owned(), |phase| format!("{phase:?}")),
        text(status.instance),
        text(status.size),
        text(status.stored),
        text(status.duration),
        text(status.verification.and_then(|verification| verification.restore_time)),
        message,
    ]
}

fn mark(phase: Option<BackupPhase>) -> String {
    match phase {
        Some(BackupPhase::Verified) => paint("●", Tone::Good),
        Some(BackupPhase::Failed) => paint("●", Tone::Bad),
        // It is in the store, and nobody has seen yet that it can be restored.
        Some(BackupPhase::Completed) => "●".to_owned(),
        Some(BackupPhase::Pending | BackupPhase::Running | BackupPhase::Verifying) | None => paint("○", Tone::Busy),
    }
}
