//! The agent's end: runs the archiver while there is an archive, tells it what it needs to know, and reports what it says.
//!
//! From: the mounted configuration, the Secret that it names, the Lease, and the agent's own report. Never: waits for the archiver (the loop that
//! holds tenure runs on the same thread); an archiver whose store, database or credentials are no longer those that are wanted; a backup reported
//! as anything but what the archiver said, or that it is no longer being taken.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use bellwether_api::v1::InstanceRole;
use bellwether_core::contract::{Archive, Archiving, BackupOrder, BackupReport, BackupState, Leader, Retained};
use bellwether_core::fact::Fact;
use bellwether_runtime::telemetry;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::message::{Archived, Said, Setup, Tell};
use super::{place, process};
use crate::backoff::Backoff;
use crate::board::Board;
use crate::environment::Environment;
use crate::guard;
use crate::kubernetes::{ApiError, lease, secret};
use crate::process::reaper::{Children, Known};
use crate::settings::Places;

/// How often the Secret is read again: who renews credentials waits no longer than this …
const CREDENTIALS: Duration = Duration::from_secs(60);
/// … and who corrects them, because nothing gets into the store, no longer than this.
const CREDENTIALS_FAILING: Duration = Duration::from_secs(5);
/// How often is looked whether what the archiver was told still holds.
const LOOK: Duration = Duration::from_secs(1);
/// After a failure, twice as long each time.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// After so long a run, a failure is the first again.
const GOOD_RUN: Duration = Duration::from_secs(120);

/// What the keeper goes by.
#[derive(Debug)]
pub struct Keeper {
    /// Who we are.
    pub environment: Environment,
    /// Our own binary.
    pub program: PathBuf,
    /// Where generated files are.
    pub places: Places,
    /// The directory of PostgreSQL's programs.
    pub programs: PathBuf,
    /// Where its data is.
    pub pgdata: PathBuf,
    /// What the configuration says of an archive.
    pub wanted: watch::Receiver<Option<Archive>>,
    /// Who leads.
    pub lease: watch::Receiver<Fact<Value>>,
    /// The report.
    pub board: Board,
    /// Processes of ours.
    pub children: Children,
    /// Where Secrets are read.
    pub secrets: Api<Secret>,
    /// What was said last of the archive.
    pub archived: Option<Archived>,
    /// What was said last of retention.
    pub retained: Option<Retained>,
}

/// Why the archiver does not run.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error("spec.backup.store.credentials: {0}")]
    Credentials(#[from] ApiError),
    #[error("the archiver can't be started: {0}")]
    Start(io::Error),
    #[error("the archiver ended")]
    Ended,
    /// It is not wanted as it was.
    #[error("the archiver is set up anew")]
    Another,
}

/// An archiver that runs. It ends when this is dropped.
struct Archiver {
    child: Child,
    _known: Option<Known>,
    tell: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
}

/// What an archiver has been told.
#[derive(Default, PartialEq)]
struct Told {
    follows: Option<Option<Leader>>,
    order: Option<BackupOrder>,
    /// All that is known of the archive, if this instance removes what is not to be kept there. Whatever of it changes is a reason to look: an order that is gone
    /// is a backup that is over.
    retain: Option<Archive>,
}

impl Keeper {
    /// For ever.
    pub async fn keep(mut self) {
        let mut backoff = Backoff::new(RETRY.0, RETRY.1);
        loop {
            if self.archive().is_none() {
                self.nothing_to_say();
                if self.wanted.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let began = Instant::now();
            let stopped = match self.run().await {
                Ok(never) => match never {},
                Err(stopped) => stopped,
            };
            // Whoever comes after it looks for itself, perhaps at another store.
            self.retained = None;
            if matches!(stopped, Stopped::Another) {
                continue;
            }
            tracing::warn!(error = %stopped, "no archiver runs");
            // What it had said of the store is still there.
            let until = self.archived.take().and_then(|archived| archived.until);
            self.archived = Some(Archived { until, ..Archived::failing(stopped.to_string()) });
            self.report_archiving();
            self.say_broken_off(&stopped);
            if began.elapsed() > GOOD_RUN {
                backoff.reset();
            }
            tokio::time::sleep(backoff.next_wait()).await;
        }
    }

    fn archive(&mut self) -> Option<Archive> {
        self.wanted.borrow_and_update().clone()
    }

    /// One archiver's life.
    async fn run(&mut self) -> Result<std::convert::Infallible, Stopped> {
        let Some(setup) = self.setup().await? else {
            // Nobody knows yet whose database it is.
            tokio::time::sleep(LOOK).await;
            return Err(Stopped::Another);
        };
        tracing::info!(?setup, "starting the archiver");
        let mut archiver = self.start().map_err(Stopped::Start)?;
        archiver.tell(&Tell::Setup(Box::new(setup.clone()))).await.map_err(Stopped::Start)?;
        let mut told = Told::default();
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looked = Instant::now();
        loop {
            tokio::select! {
                line = archiver.said.next_line() => match line {
                    Ok(Some(line)) => self.hear(&line),
                    Ok(None) | Err(_) => return Err(Stopped::Ended),
                },
                _ = archiver.child.wait() => return Err(Stopped::Ended),
                Ok(()) = self.wanted.changed() => {}
                Ok(()) = self.lease.changed() => {}
                _ = look.tick() => {}
            }
            self.report_archiving();
            let Some(archive) = self.archive() else { return Err(Stopped::Another) };
            if !self.still_holds(&setup, &archive) {
                return Err(Stopped::Another);
            }
            let fails = self.archived.as_ref().is_some_and(|archived| archived.failing.is_some());
            if looked.elapsed() > if fails { CREDENTIALS_FAILING } else { CREDENTIALS } {
                looked = Instant::now();
                match self.setup().await {
                    Ok(Some(again)) if again != setup => return Err(Stopped::Another),
                    Ok(_) => {}
                    // What it has still holds.
                    Err(error) => tracing::warn!(%error, "credentials can't be read again"),
                }
            }
            let now = self.to_tell(&archive);
            if now.follows != told.follows {
                archiver.tell(&Tell::Follows(now.follows.clone().flatten())).await.map_err(|_| Stopped::Ended)?;
            }
            if now.order != told.order {
                if now.order.is_none() {
                    self.board.report(|report| report.backup = None);
                }
                // How hard is asked for the next one: what is being taken goes on as it began.
                let order = now.order.clone().map(|order| (order, archive.effort));
                archiver.tell(&Tell::Take(order)).await.map_err(|_| Stopped::Ended)?;
            }
            if now.retain != told.retain {
                // What became of it when it led before is old.
                self.retained.take_if(|_| now.retain.is_some() != told.retain.is_some());
                let policy = now.retain.as_ref().map(|archive| archive.retention.clone());
                let policy = policy.filter(|policy| !policy.is_empty());
                archiver.tell(&Tell::Retain(policy)).await.map_err(|_| Stopped::Ended)?;
            }
            told = now;
        }
    }

    /// What an archiver is told now. Whom it follows is nobody's business before this instance is something.
    fn to_tell(&self, archive: &Archive) -> Told {
        let leader = || lease::view(self.lease.borrow().known()?).ok()?.leader;
        let follows = match self.board.current().role {
            Some(InstanceRole::Primary) => Some(None),
            Some(InstanceRole::Standby) => leader().map(Some),
            None => None,
        };
        let mine = |order: &&BackupOrder| order.instance == self.environment.instance;
        let order = archive.order.as_ref().filter(mine).cloned();
        // One at a time removes: who leads, and no longer than that is certain.
        let retain = (follows == Some(None)).then(|| archive.clone());
        Told { follows, order, retain }
    }

    fn still_holds(&self, setup: &Setup, archive: &Archive) -> bool {
        let system = self.board.current().system_identifier;
        let place = place::settings(&archive.store);
        archive.incarnation == setup.incarnation
            && archive.store.url == setup.url
            && place.iter().all(|(key, value)| setup.settings.get(key) == Some(value))
            && system.is_none_or(|system| system == setup.system_identifier)
    }

    /// What the archiver needs to know; nothing while the database is not known.
    async fn setup(&mut self) -> Result<Option<Setup>, Stopped> {
        let Some(archive) = self.archive() else { return Ok(None) };
        let Some(system_identifier) = self.board.current().system_identifier else { return Ok(None) };
        let mut settings = place::settings(&archive.store);
        let mut ca = None;
        if let Some(name) = &archive.store.credentials {
            let mut contents: BTreeMap<String, String> = secret::read(&self.secrets, &name.name).await?;
            ca = contents.remove(place::AUTHORITY);
            settings.extend(contents);
        }
        let environment = &self.environment;
        Ok(Some(Setup {
            url: archive.store.url,
            settings,
            ca,
            system_identifier,
            incarnation: archive.incarnation,
            namespace: environment.namespace.clone(),
            cluster: environment.names.cluster().to_owned(),
            instance: environment.instance.clone(),
            programs: self.programs.clone(),
            pgdata: self.pgdata.clone(),
            sockets: self.places.socket.path().to_owned(),
            replication_tls: self.places.replication_tls.clone(),
        }))
    }

    /// It dies with us, and yields to PostgreSQL and to us.
    fn start(&self) -> io::Result<Archiver> {
        let mut command = Command::new(&self.program);
        command.arg(guard::exec::ROLE).arg(std::process::id().to_string()).arg(&self.program).arg(process::ROLE);
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let known = child.id().and_then(|pid| i32::try_from(pid).ok()).map(|pid| self.children.own(pid));
        let missing = || io::Error::other("it has no pipes");
        let tell = child.stdin.take().ok_or_else(missing)?;
        let said = BufReader::new(child.stdout.take().ok_or_else(missing)?).lines();
        let mut log = BufReader::new(child.stderr.take().ok_or_else(missing)?).lines();
        tokio::spawn(async move {
            while let Ok(Some(line)) = log.next_line().await {
                telemetry::line(&line);
            }
        });
        Ok(Archiver { child, _known: known, tell, said })
    }

    fn hear(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(Said::Archiving(archived)) => self.archived = Some(archived),
            Ok(Said::Retained(retained)) => self.retained = Some(*retained),
            Ok(Said::Backup(backup)) => self.board.report(|report| report.backup = Some(*backup)),
            Err(error) => tracing::error!(%error, line, "the archiver says what nobody understands"),
        }
    }

    /// Only a primary speaks of the archive: one voice.
    fn report_archiving(&self) {
        self.board.report(|report| {
            let leads = report.role == Some(InstanceRole::Primary);
            let said = self.archived.clone().filter(|_| leads);
            let retention = || self.retained.clone();
            report.archiving =
                said.map(|Archived { failing, until }| Archiving { failing, until, retention: retention() });
        });
    }

    /// A backup that was under way ended with its archiver.
    fn say_broken_off(&self, why: &Stopped) {
        self.board.report(|report| match &mut report.backup {
            Some(BackupReport { state, message, ended, .. }) if *state == BackupState::Running => {
                *state = BackupState::Failed;
                *message = Some(why.to_string());
                *ended = Some(Timestamp::now());
            }
            _ => {}
        });
    }

    fn nothing_to_say(&mut self) {
        (self.archived, self.retained) = (None, None);
        self.board.report(|report| {
            report.archiving = None;
            report.backup = None;
        });
    }
}

impl Archiver {
    async fn tell(&mut self, what: &Tell) -> io::Result<()> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        self.tell.write_all(&line).await?;
        self.tell.flush().await
    }
}
