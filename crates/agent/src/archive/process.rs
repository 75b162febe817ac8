//! The archiver: what the agent told it, a socket for PostgreSQL, and a backup now and then.
//!
//! Never: goes on for an agent that is gone (its standard input ends with it, and the kernel kills it with its parent).

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bellwether_backup::record::{FORMAT, Owner};
use bellwether_backup::wal::{Archive, Uploader};
use bellwether_backup::{Location, Store};
use bellwether_core::contract::{BackupOrder, Effort, Leader};
use bellwether_postgres::{Installation, control};
use bellwether_runtime::client;
use bellwether_runtime::telemetry::{self, Format, Sink};
use k8s_openapi::jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::message::{Archived, Said, Setup, Tell};
use super::{retain, serve, take};

/// The hidden role's name.
pub const ROLE: &str = "archiver";
/// How often a store that can't be reached is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// How hard segments are compressed: they are written once, and read when somebody waits.
pub(super) const LEVEL: i32 = 3;
/// So many segments are on their way at once: there are two cores, and each is held in memory.
const AHEAD: usize = 3;
/// When memory is short, this goes first: PostgreSQL and its agent must not.
const FIRST_TO_GO: &[u8] = b"900";

/// What the parts of an archiver share.
#[derive(Clone)]
pub(super) struct Parts {
    /// Where everything is.
    pub setup: Arc<Setup>,
    /// Where everything goes, once it could be opened.
    pub archive: watch::Receiver<Option<Arc<Open>>>,
    /// Whom this instance follows; nothing while nobody said.
    pub follows: watch::Receiver<Option<Option<Leader>>>,
    /// What is kept in the store, if this instance is to remove the rest.
    pub retain: watch::Receiver<Option<String>>,
    /// Up to when the log is in the store, as far as this process has seen it get there.
    pub until: watch::Sender<Option<Timestamp>>,
    /// What the agent is told.
    pub said: mpsc::UnboundedSender<Said>,
}

impl Parts {
    /// Says that the log gets into the store, or why not.
    pub fn say_archiving(&self, failing: Option<String>) {
        let until = failing.as_ref().and_then(|_| *self.until.borrow());
        let _ = self.said.send(Said::Archiving(Archived { failing, until }));
    }
}

/// An archive that is open.
pub(super) struct Open {
    /// It.
    pub archive: Archive,
    /// What puts segments there.
    pub uploader: Uploader,
    /// Bytes in one.
    pub segment_size: u64,
}

/// Runs until the agent is gone.
pub fn main() -> ExitCode {
    if let Err(error) = telemetry::init_with(ROLE, Format::Json, Sink::Stderr) {
        let _ = writeln!(std::io::stderr(), "bellwether {ROLE}: {error}");
        return ExitCode::FAILURE;
    }
    // Where it can't be had, the kernel chooses.
    let _ = std::fs::write("/proc/self/oom_score_adj", FIRST_TO_GO);
    client::install_crypto();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "no runtime");
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(run());
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the archiver can't go on");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> std::io::Result<()> {
    let mut told = listen_to_agent()?;
    let (said, saying) = mpsc::unbounded_channel();
    tokio::spawn(speak(saying));
    let (follows, followed) = watch::channel(None);
    let (retain, retained) = watch::channel(None);
    let until = watch::Sender::new(None);
    let mut parts = None;
    let mut backup: Option<JoinHandle<()>> = None;
    while let Some(tell) = told.recv().await {
        match tell {
            Tell::Setup(setup) => {
                let (opened, archive) = watch::channel(None);
                let setup = Arc::new(*setup);
                let (follows, retain) = (followed.clone(), retained.clone());
                let now = Parts { setup, archive, follows, retain, until: until.clone(), said: said.clone() };
                tokio::spawn(open(now.clone(), opened));
                tokio::spawn(retain::retain(now.clone()));
                serve::listen(now.clone())?;
                parts = Some(now);
            }
            Tell::Follows(leader) => drop(follows.send_replace(Some(leader))),
            Tell::Retain(policy) => drop(retain.send_replace(policy)),
            Tell::Take(order) => {
                if let Some(earlier) = backup.take() {
                    earlier.abort();
                }
                backup = parts.as_ref().zip(order).map(|(parts, (order, effort))| begin(parts.clone(), order, effort));
            }
        }
    }
    Ok(())
}

fn begin(parts: Parts, order: BackupOrder, effort: Effort) -> JoinHandle<()> {
    tracing::info!(backup = order.backup, attempt = order.attempt, ?effort, "a backup is to be taken");
    tokio::spawn(take::take(parts, order, effort))
}

/// What comes on standard input, until it ends. A thread waits for it: there is no other way that works for a pipe and never blocks the rest.
fn listen_to_agent() -> std::io::Result<mpsc::UnboundedReceiver<Tell>> {
    let (heard, told) = mpsc::unbounded_channel();
    std::thread::Builder::new().name("told".to_owned()).spawn(move || {
        for line in std::io::stdin().lines() {
            let tell = line.ok().and_then(|line| serde_json::from_str(&line).ok());
            // What can't be understood ends us: the agent starts another, and says why.
            if tell.is_none_or(|tell| heard.send(tell).is_err()) {
                return;
            }
        }
    })?;
    Ok(told)
}

/// One line for each thing, on standard output.
async fn speak(mut saying: mpsc::UnboundedReceiver<Said>) {
    while let Some(said) = saying.recv().await {
        let Ok(line) = serde_json::to_string(&said) else { continue };
        let mut out = std::io::stdout().lock();
        if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

/// Opens the archive, for as long as it takes. One that is somebody else's, or a store that can't refuse to overwrite, is never used; a person can
/// change what is wrong, so it is looked at again.
async fn open(parts: Parts, opened: watch::Sender<Option<Arc<Open>>>) {
    let setup = &parts.setup;
    // One for all attempts: it knows since when the store fails.
    let mut store = None;
    loop {
        match try_to_open(setup, &mut store).await {
            Ok(open) => {
                tracing::info!(store = setup.url, "the archive is open");
                opened.send_replace(Some(Arc::new(open)));
                parts.say_archiving(None);
                return;
            }
            Err(why) => {
                tracing::warn!(error = why, "the archive can't be opened");
                parts.say_archiving(Some(why));
            }
        }
        tokio::time::sleep(AGAIN).await;
        if let Some(store) = &store {
            store.rested().await;
        }
    }
}

async fn try_to_open(setup: &Setup, opened: &mut Option<Store>) -> Result<Open, String> {
    let segment_size = segment_size(setup).await?;
    let store = match opened {
        Some(store) => store.clone(),
        None => {
            let location = Location::new(&setup.url, setup.settings.clone(), setup.ca.as_deref());
            opened.insert(Store::open(&location.map_err(said)?).map_err(said)?).clone()
        }
    };
    if let Some(why) = store.probe().await.map_err(said)?.unfit() {
        return Err(format!("{store}: {why}"));
    }
    let owner = Owner {
        format: FORMAT,
        system_identifier: setup.system_identifier,
        incarnation: setup.incarnation.clone(),
        namespace: setup.namespace.clone(),
        cluster: setup.cluster.clone(),
    };
    let archive = Archive::open_or_create(&store, owner).await.map_err(said)?;
    let uploader = Uploader::new(archive.clone(), &setup.pgdata.join("pg_wal"), segment_size, LEVEL, AHEAD);
    Ok(Open { archive, uploader, segment_size })
}

/// Bytes in a segment of this database's log, which is chosen when it is made. Nothing else is on the volume that was said to be.
async fn segment_size(setup: &Setup) -> Result<u64, String> {
    let programs = setup.programs.clone();
    let installation = tokio::task::spawn_blocking(move || Installation::at(&programs)).await.ok().flatten();
    let installation = installation.ok_or_else(|| format!("{}: PostgreSQL is gone", setup.programs.display()))?;
    let control = control::read(&installation, &setup.pgdata).await.map_err(said)?;
    match control.system_identifier == setup.system_identifier {
        true => Ok(control.layout.segment),
        false => Err(format!("the volume has database {} by now", control.system_identifier)),
    }
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
