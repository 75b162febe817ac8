//! Takes one backup, from the order to its end, and says how far it is.
//!
//! From: the order, the archive, the server behind the local socket. Never: says that it is complete before every segment of the log that it needs was read
//! back from the store, and its commit was acknowledged.

use std::time::Duration;

use bellwether_api::names::Names;
use bellwether_backup::base::{self, BaseError, Options, Progress, ReadBackError, Taken};
use bellwether_backup::record::Commit;
use bellwether_backup::wal;
use bellwether_backup::{BackupId, Store};
use bellwether_core::contract::{BackupOrder, BackupReport, BackupState, Effort, POSTGRES_PORT, REPLICATION_USER};
use bellwether_postgres::conninfo::ClientTls;
use bellwether_postgres::sql::{POSTGRES_DATABASE, Remote, Session, SqlError, TlsClient, TlsError};
use k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use super::message::Said;
use super::process::Parts;

/// How long the end of the log may take to get into the store. A segment that nobody ends is ended by the server after five minutes.
const ARCHIVED_WITHIN: Duration = Duration::from_secs(600);
/// How long the server may take to answer.
const SQL: Duration = Duration::from_secs(10);
/// How long it is tried to have the segment ended that a backup ends in, and how often.
const END_SEGMENT: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(1));
/// How long it is tried to have a backup that begins and ends on one timeline, and how often; and how long a checkpoint may take.
const NEW_TIMELINE: (Duration, Duration) = (Duration::from_secs(120), Duration::from_secs(2));
const CHECKPOINT: Duration = Duration::from_secs(60);
/// Progress is said in steps of so many per cent: each is a write to the API.
const STEP: u64 = 10;

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Base(#[from] BaseError),
    #[error(transparent)]
    ReadBack(#[from] ReadBackError),
    #[error("the archive is not open")]
    Closed,
}

/// Why the leader did not do what a backup needs.
#[derive(Debug, thiserror::Error)]
enum NotEnded {
    #[error(transparent)]
    Sql(#[from] SqlError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("the leader's address {0:?} is none")]
    Address(String),
    #[error("nobody has said who leads")]
    Unknown,
}

/// Takes it. Dropped, it is broken off, and nobody is told.
pub(super) async fn take(parts: Parts, order: BackupOrder, effort: Effort) {
    let mut report = BackupReport {
        uid: order.uid.clone(),
        attempt: order.attempt,
        started: Some(Timestamp::now()),
        message: Some("waiting for the store".to_owned()),
        ..BackupReport::default()
    };
    say(&parts, &report);
    match run(&parts, effort, &mut report).await {
        Ok(commit) => {
            tracing::info!(backup = order.backup, id = %commit.id, bytes = commit.bytes, "the backup is complete");
            report.state = BackupState::Completed;
            report.message = None;
        }
        Err(error) => {
            tracing::warn!(backup = order.backup, %error, "the backup failed");
            report.state = BackupState::Failed;
            report.message = Some(error.to_string());
        }
    }
    report.ended = Some(Timestamp::now());
    say(&parts, &report);
}

fn say(parts: &Parts, report: &BackupReport) {
    let _ = parts.said.send(Said::Backup(Box::new(report.clone())));
}

async fn run(parts: &Parts, effort: Effort, report: &mut BackupReport) -> Result<Commit, Failed> {
    let mut open = parts.archive.clone();
    let open = open.wait_for(Option::is_some).await.map_err(|_| Failed::Closed)?.clone().ok_or(Failed::Closed)?;
    let archive = &open.archive;
    // Hours of copying are not lost to a store that is left alone for seconds.
    let store = archive.store().patient();
    report.archive = wal::root(archive.owner()).ok();
    report.message = Some("waiting for a checkpoint".to_owned());
    say(parts, report);
    let taken = copy_on_one_timeline(parts, &store, effort, report).await?;
    let commit = taken.commit_to_be();
    report.bytes = Some(commit.bytes);
    report.stored = Some(commit.stored());
    (report.timeline, report.start, report.stop) = (Some(commit.timeline), Some(commit.start), Some(commit.stop));
    report.message = Some("waiting for the end of its log to be archived".to_owned());
    say(parts, report);
    if let Err(error) = end_segment(parts).await {
        tracing::info!(%error, "the last segment is not ended: it is when it is full, or after five minutes");
    }
    match taken.read_back(&store, ARCHIVED_WITHIN).await {
        Ok(()) => Ok(taken.commit(&store).await?),
        Err(error) => {
            taken.discard(&store).await;
            Err(error.into())
        }
    }
}

/// Right after a failover a standby's last restart point is on the timeline before: it begins there, and ends on this one. It has a newer one once the
/// leader has made a checkpoint, which is asked for; left alone that takes minutes.
async fn copy_on_one_timeline(
    parts: &Parts,
    store: &Store,
    effort: Effort,
    report: &mut BackupReport,
) -> Result<Taken, Failed> {
    let until = Instant::now() + NEW_TIMELINE.0;
    loop {
        // What one that was broken off has left is another's.
        let id = BackupId::at(Timestamp::now());
        report.id = Some(id.to_string());
        match copy(parts, store, id, effort, report).await {
            Err(Failed::Base(error @ BaseError::TimelineChanged { .. })) if Instant::now() < until => {
                tracing::info!(%error, "asking the leader for a checkpoint, and beginning again");
                if let Err(error) = checkpoint(parts).await {
                    tracing::info!(%error, "no checkpoint yet");
                }
                tokio::time::sleep(NEW_TIMELINE.1).await;
            }
            copied => return copied,
        }
    }
}

async fn checkpoint(parts: &Parts) -> Result<(), NotEnded> {
    Ok(leader(parts, CHECKPOINT).await?.checkpoint().await?)
}

async fn copy(
    parts: &Parts,
    store: &Store,
    id: BackupId,
    effort: Effort,
    report: &mut BackupReport,
) -> Result<Taken, Failed> {
    let setup = &parts.setup;
    let mut options = Options::new(id, &setup.sockets, POSTGRES_PORT, setup.system_identifier);
    options.instance = &setup.instance;
    options.agent_version = env!("CARGO_PKG_VERSION");
    options.max_rate = effort.max_rate;
    options.effort.level = effort.level.unwrap_or(options.effort.level);
    let workers = effort.workers.and_then(|workers| usize::try_from(workers).ok());
    options.effort.workers = workers.unwrap_or(options.effort.workers);
    let (progress, mut seen) = watch::channel(Progress::default());
    let copied = base::take(&options, store, &progress);
    tokio::pin!(copied);
    let mut said = None;
    loop {
        tokio::select! {
            taken = &mut copied => return Ok(taken?),
            Ok(()) = seen.changed() => {}
        }
        let now = *seen.borrow_and_update();
        let step = now.done.saturating_mul(100).checked_div(now.total).map(|percent| percent.min(100) / STEP * STEP);
        if step.is_some() && step != said {
            said = step;
            report.message = step.map(|step| format!("copied {step} %"));
            report.bytes = Some(now.total);
            say(parts, report);
        }
    }
}

/// Ends the segment of the log that the backup ends in, so that it is archived now. Only a primary can: a standby asks the one that it follows.
async fn end_segment(parts: &Parts) -> Result<(), NotEnded> {
    let until = Instant::now() + END_SEGMENT.0;
    loop {
        match end_of_segment(parts).await {
            Err(error) if Instant::now() < until => {
                tracing::debug!(%error, "the segment can't be ended yet");
                tokio::time::sleep(END_SEGMENT.1).await;
            }
            ended => return ended,
        }
    }
}

async fn end_of_segment(parts: &Parts) -> Result<(), NotEnded> {
    Ok(leader(parts, SQL).await?.end_segment().await?)
}

/// A session with whoever leads: this very server, or the one that it follows.
async fn leader(parts: &Parts, deadline: Duration) -> Result<Session, NotEnded> {
    let setup = &parts.setup;
    let follows = parts.follows.borrow().clone();
    let Some(leader) = follows.ok_or(NotEnded::Unknown)? else {
        return Ok(Session::local(&setup.sockets, POSTGRES_PORT, POSTGRES_DATABASE, deadline).await?);
    };
    let host = Names::of(&setup.cluster).host(&leader.instance, &setup.namespace);
    let remote = Remote {
        host: &host,
        address: leader.address.parse().map_err(|_| NotEnded::Address(leader.address.clone()))?,
        port: POSTGRES_PORT,
        user: REPLICATION_USER,
        password: None,
        database: POSTGRES_DATABASE,
    };
    let tls = TlsClient::with_certificate(&ClientTls::in_dir(&setup.replication_tls))?;
    Ok(Session::tls(&remote, tls, deadline).await?)
}
