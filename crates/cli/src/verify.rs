//! `bellwether backup verify`: restores a backup apart from everything, has PostgreSQL look at it, and writes into the store that it was found good.
//!
//! From the store alone. Never: success, or a record, where one of the checks was not made; anything left of the restored copy.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bellwether_backup::catalog::Catalog;
use bellwether_backup::layout::BackupId;
use bellwether_backup::restore::Progress;
use bellwether_backup::restore::verify::{self, Check, Looked, RunAs, Verification, VerifyError};
use bellwether_backup::store::StoreError;
use bellwether_core::words;
use bellwether_embedded::run_as::{self, RunAsError};
use k8s_openapi::jiff::Timestamp;
use tempfile::TempDir;
use tokio::sync::watch;

use crate::archive::{Archive, ArchiveError, NotInstalled, installed};
use crate::args::{self, Which};
use crate::cluster::told;
use crate::output::{self, transfer};

/// How long a phase may take: what a person watches, a person ends.
const PATIENCE: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long the scratch directory may take to go when it is broken off.
const FAREWELL: Duration = Duration::from_secs(20);

/// Why it is not verified.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error(transparent)]
    NotInstalled(#[from] NotInstalled),
    #[error(transparent)]
    RunAs(#[from] RunAsError),
    #[error("there is no whole backup of {cluster} to verify")]
    NoBackup { cluster: String },
    #[error("a directory for temporary files: {0}")]
    Temporary(std::io::Error),
    #[error("backup {id} is not verified: {cause}")]
    Verify { id: BackupId, cause: VerifyError },
    #[error("backup {id} was found good, and that could not be written down: {cause}")]
    Record { id: BackupId, cause: StoreError },
    #[error("broken off; nothing is left in {}", .0.display())]
    BrokenOff(PathBuf),
}

/// Verifies one.
pub fn run(options: &args::Verify) -> ExitCode {
    told(verified(options))
}

async fn verified(options: &args::Verify) -> Result<String, Refused> {
    let archive = Archive::find(&options.source).await?;
    let id = match &options.backup {
        Which::Id(id) => id.clone(),
        Which::Latest => {
            newest(&archive.catalog().await?).ok_or_else(|| Refused::NoBackup { cluster: archive.cluster() })?
        }
    };
    let commit = archive.commit(&id).await?;
    let installation = installed(&commit)?;
    let user = run_as::RunAs::choose(options.postgres_user.as_deref())?;
    // In /tmp, where a socket's path is short enough and PostgreSQL's user may enter.
    let place = TempDir::with_prefix("bellwether-verify-").map_err(Refused::Temporary)?;
    let enter = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    std::fs::set_permissions(place.path(), enter).map_err(Refused::Temporary)?;
    let scratch = options.scratch.clone().unwrap_or_else(|| place.path().join("scratch"));
    let scratch = std::path::absolute(scratch).map_err(Refused::Temporary)?;
    let check = Check {
        installation: &installation,
        scratch: &scratch,
        socket_dir: Some(place.path().join("socket")),
        run_as: user.switch.then_some(RunAs { uid: user.uid, gid: user.gid }),
        workers: std::thread::available_parallelism().map_or(1, usize::from),
        restore_command: None,
        reach: None,
        parameters: [].into(),
        queries: vec![],
        patience: PATIENCE,
    };
    let size = words::size(commit.bytes);
    output::line(&format!("backup {id} of {}: {size}, restored to {}", archive.cluster(), scratch.display()));
    let progress = watch::Sender::new(Progress::default());
    let checking = verify::verify(&commit, &archive.store, &check, &progress);
    let outcome = tokio::select! {
        outcome = transfer::shown(checking, &progress, "unpacked; PostgreSQL looks at it") => outcome,
        () = output::signal() => return Err(broken_off(scratch).await),
    };
    let verification = outcome.map_err(|cause| Refused::Verify { id: id.clone(), cause })?;
    let mut lines = phases(&verification);
    let verified = verification.record(&commit, Timestamp::now(), env!("CARGO_PKG_VERSION"));
    if options.no_record {
        lines.push("not recorded in the store, as you asked".to_owned());
    } else {
        verify::record(&archive.store, &verified).await.map_err(|cause| Refused::Record { id: id.clone(), cause })?;
        lines.push("recorded in the store, beside its commit".to_owned());
    }
    Ok(lines.join("\n"))
}

fn newest(catalog: &Catalog) -> Option<BackupId> {
    catalog.backups.last().map(|backup| backup.commit.id.clone())
}

/// Whoever was let go ends the server and removes everything on a thread of its own: it is waited for.
async fn broken_off(scratch: PathBuf) -> Refused {
    let gone = async {
        while scratch.exists() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let _still_there = tokio::time::timeout(FAREWELL, gone).await;
    Refused::BrokenOff(scratch)
}

/// What was done, and how long it took.
fn phases(verification: &Verification) -> Vec<String> {
    let mut lines: Vec<_> = verification
        .phases
        .iter()
        .map(|(phase, took)| format!("  {:<10} {:>8.1} s", phase.to_string(), took.as_secs_f64()))
        .collect();
    let all: Duration = verification.phases.iter().map(|(_, took)| *took).sum();
    for (what, looked) in [("structure", &verification.structure), ("pages", &verification.pages)] {
        if let Looked::NotPossible(why) = looked {
            lines.push(format!("  not looked at: {what}: {why}"));
        }
    }
    let (reached, timeline) = (verification.reached, verification.timeline);
    lines.push(format!("good: recovered to {reached} on timeline {timeline}, {:.1} s in all", all.as_secs_f64()));
    lines
}
