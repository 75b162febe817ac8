//! Verifies one backup, in a pod of its own, and says at its end what came of it.
//!
//! From: its environment, a mounted Secret, and the store. It has no way to the cluster, and nothing of it: what is restored comes from the store alone. Its last
//! words ([`VerifyResult`]) are what the kubelet puts into the pod's status. Never: good without the whole verification; bad for a reason that is not the
//! backup's; more words than a kubelet keeps.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bellwether_backup::base::seal::{self, CommitError};
use bellwether_backup::record::Commit;
use bellwether_backup::restore::Progress;
use bellwether_backup::restore::verify::{self, Check, Phase, Query, Verification, VerifyError};
use bellwether_backup::store::{LocationError, StoreError};
use bellwether_backup::{BackupId, Location, Store};
use bellwether_core::contract::{VERIFY_ROLE, VerifyOrder, VerifyOutcome, VerifyQuery, VerifyResult, env};
use bellwether_postgres::installation::{self, NotInstalled};
use bellwether_runtime::client;
use bellwether_runtime::telemetry::{self, Format, Sink};
use k8s_openapi::jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::place;

/// A kubelet keeps 4096 bytes of a container's last words.
const LONGEST: usize = 4000;
/// How much of a finding is told: what is wrong stands at its beginning.
const FINDING: usize = 1500;
/// The exit code of a verification that says nothing of the backup.
const INCONCLUSIVE: u8 = 75;
/// How often it is said how far it is.
const REPORT: Duration = Duration::from_secs(30);

/// Why there was no verification.
#[derive(Debug, thiserror::Error)]
enum NotDone {
    #[error("{0} is not set: this runs in a pod that the operator made")]
    Missing(&'static str),
    #[error("{variable}: {cause}", variable = env::VERIFY)]
    Order { cause: serde_json::Error },
    #[error("{}: {cause}", directory.display())]
    Credentials { directory: PathBuf, cause: std::io::Error },
    #[error(transparent)]
    Location(#[from] LocationError),
    #[error("{0:?} is no name of a backup")]
    Id(String),
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error(transparent)]
    NotInstalled(#[from] NotInstalled),
    #[error(transparent)]
    Verify(#[from] VerifyError),
    #[error("it was told to stop")]
    Told,
}

impl NotDone {
    /// Whether the backup is what is wrong.
    fn outcome(&self) -> VerifyOutcome {
        let bad = match self {
            Self::Commit(CommitError::Damaged { .. } | CommitError::Store(StoreError::Missing { .. })) => true,
            Self::Verify(error) => error.is_the_backup_s(),
            _ => false,
        };
        if bad { VerifyOutcome::Bad } else { VerifyOutcome::Inconclusive }
    }
}

/// Runs until the backup is verified, or can't be.
pub fn main() -> ExitCode {
    if let Err(error) = telemetry::init_with(VERIFY_ROLE, Format::Json, Sink::Stderr) {
        let _ = writeln!(std::io::stderr(), "bellwether {VERIFY_ROLE}: {error}");
        return ExitCode::FAILURE;
    }
    client::install_crypto();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "no runtime");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(until_told(run()));
    runtime.shutdown_background();
    let result = result.unwrap_or_else(|error| VerifyResult {
        outcome: error.outcome(),
        finding: Some(error.to_string()),
        ended: Some(Timestamp::now()),
        ..VerifyResult::default()
    });
    match &result.finding {
        None => tracing::info!(reached = ?result.reached, "the backup was restored, and nothing is wrong with it"),
        Some(finding) => tracing::error!(finding, outcome = ?result.outcome, "the backup is not verified"),
    }
    telemetry::flush();
    if let Err(error) = say(&result) {
        let _ = writeln!(std::io::stderr(), "bellwether {VERIFY_ROLE}: the result can't be left: {error}");
    }
    match result.outcome {
        VerifyOutcome::Good => ExitCode::SUCCESS,
        VerifyOutcome::Bad => ExitCode::FAILURE,
        VerifyOutcome::Inconclusive => INCONCLUSIVE.into(),
    }
}

/// As the first process of a container, nothing ends us unless we listen.
async fn until_told(work: impl Future<Output = Result<VerifyResult, NotDone>>) -> Result<VerifyResult, NotDone> {
    let Ok(mut told) = signal(SignalKind::terminate()) else { return work.await };
    tokio::select! {
        result = work => result,
        _ = told.recv() => Err(NotDone::Told),
    }
}

async fn run() -> Result<VerifyResult, NotDone> {
    let needed = |name| std::env::var(name).ok().filter(|value| !value.is_empty()).ok_or(NotDone::Missing(name));
    let order: VerifyOrder = serde_json::from_str(&needed(env::VERIFY)?).map_err(|cause| NotDone::Order { cause })?;
    let (data_dir, run_dir) = (PathBuf::from(needed(env::DATA_DIR)?), PathBuf::from(needed(env::RUN_DIR)?));
    let store = open(&order, std::env::var_os(env::STORE_DIR).map(PathBuf::from).as_deref())?;
    let id: BackupId = order.id.parse().map_err(|_| NotDone::Id(order.id.clone()))?;
    let commit = seal::read(&store, &id).await?;
    let major = commit.postgres_version.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    let installation = installation::find(major)?;
    let check = Check {
        installation: &installation,
        scratch: &data_dir.join("verify"),
        socket_dir: Some(run_dir.join("v")),
        run_as: None,
        workers: std::thread::available_parallelism().map_or(1, usize::from),
        restore_command: None,
        reach: None,
        parameters: BTreeMap::new(),
        queries: order.queries.iter().map(query).collect(),
        patience: Duration::from_secs(order.patience_seconds),
    };
    tracing::info!(backup = %id, bytes = commit.bytes, "restoring");
    let progress = watch::Sender::new(Progress::default());
    let verification = tokio::select! {
        verification = verify::verify(&commit, &store, &check, &progress) => verification?,
        () = report(progress.subscribe()) => return Err(NotDone::Told),
    };
    let now = Timestamp::now();
    let record = verification.record(&commit, now, env!("CARGO_PKG_VERSION"));
    let not_recorded = verify::record(&store, &record).await.err().map(|error| error.to_string());
    Ok(VerifyResult { not_recorded, ..good(&verification, &commit, now) })
}

/// The archive, as the spec and the Secret say how to get there.
fn open(order: &VerifyOrder, credentials: Option<&Path>) -> Result<Store, NotDone> {
    let mut settings = place::settings(&order.store);
    let mut authority = None;
    if let Some(directory) = credentials {
        let read =
            place::mounted(directory).map_err(|cause| NotDone::Credentials { directory: directory.to_owned(), cause });
        let mut contents = read?;
        authority = contents.remove(place::AUTHORITY);
        settings.extend(contents);
    }
    let location = Location::new(&order.store.url, settings, authority.as_deref())?;
    Ok(Store::open(&location)?.below(&order.archive))
}

fn query(query: &VerifyQuery) -> Query {
    let row = |row: &Vec<String>| row.iter().cloned().map(Some).collect();
    let (database, sql) = (query.database.clone(), query.sql.clone());
    Query { database, sql, expected: query.expected.iter().map(row).collect() }
}

/// For whoever reads the log; for ever.
async fn report(progress: watch::Receiver<Progress>) {
    let mut tick = tokio::time::interval(REPORT);
    tick.tick().await;
    loop {
        tick.tick().await;
        let Progress { done, total } = *progress.borrow();
        tracing::info!(done, total, "restored so far");
    }
}

fn good(verification: &Verification, commit: &Commit, now: Timestamp) -> VerifyResult {
    let milliseconds = |took: Duration| u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let restored: Duration =
        [Phase::Unpack, Phase::Log, Phase::Recovery].iter().map(|phase| verification.took(*phase)).sum();
    let record = verification.record(commit, now, "");
    VerifyResult {
        outcome: VerifyOutcome::Good,
        finding: None,
        ended: Some(now),
        phases: record.phases.into_iter().map(|took| (took.phase, took.milliseconds)).collect(),
        restored_in: milliseconds(restored),
        reached: Some(verification.reached),
        timeline: Some(verification.timeline),
        data_of: Some(commit.finished),
        not_looked_at: record.not_looked_at.iter().map(|text| shortened(text, FINDING / 4)).collect(),
        queries: record.queries,
        not_recorded: None,
    }
}

fn say(result: &VerifyResult) -> std::io::Result<()> {
    let path =
        std::env::var_os(env::LAST_WORDS).ok_or_else(|| std::io::Error::other(NotDone::Missing(env::LAST_WORDS)))?;
    std::fs::write(path, last_words(result)?)
}

/// As JSON, never cut short: half of it would be no result at all.
fn last_words(result: &VerifyResult) -> serde_json::Result<String> {
    let mut result = result.clone();
    for longest in [FINDING, FINDING / 2, FINDING / 8, 0] {
        result.finding = result.finding.map(|finding| shortened(&finding, longest));
        result.not_recorded = result.not_recorded.map(|why| shortened(&why, longest));
        let words = serde_json::to_string(&result)?;
        if words.len() <= LONGEST || longest == 0 {
            return Ok(words);
        }
    }
    serde_json::to_string(&result)
}

fn shortened(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_are_whole_however_much_was_found() {
        for finding in ["x".repeat(100_000), "\u{1}\n\"".repeat(5_000), "ä".repeat(5_000)] {
            let result = VerifyResult {
                outcome: VerifyOutcome::Bad,
                finding: Some(finding.clone()),
                not_recorded: Some(finding),
                ..VerifyResult::default()
            };
            let words = last_words(&result).unwrap();
            assert!(words.len() <= LONGEST, "{}", words.len());
            let read: VerifyResult = serde_json::from_str(&words).unwrap();
            assert_eq!(read.outcome, VerifyOutcome::Bad);
        }
    }

    #[test]
    fn a_short_finding_is_told_as_it_is() {
        let finding = Some("base/x/pack-00000.tar.zst is damaged".to_owned());
        let result = VerifyResult { finding, ..VerifyResult::default() };
        assert_eq!(serde_json::from_str::<VerifyResult>(&last_words(&result).unwrap()).unwrap(), result);
    }

    #[test]
    fn what_is_not_there_is_bad_and_what_can_t_be_had_says_nothing() {
        let (store, key) = ("s3://b".to_owned(), "base/x/commit.json".to_owned());
        let missing = StoreError::Missing { store: store.clone(), key: key.clone() };
        assert_eq!(NotDone::from(CommitError::from(missing)).outcome(), VerifyOutcome::Bad);
        let failed = StoreError::Failed { store, what: "get", key, message: "timed out".to_owned() };
        assert_eq!(NotDone::from(CommitError::from(failed)).outcome(), VerifyOutcome::Inconclusive);
        assert_eq!(NotDone::Told.outcome(), VerifyOutcome::Inconclusive);
    }
}
