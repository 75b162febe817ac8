//! Says whether a backup is one: restores it apart from everything, and has PostgreSQL itself look at what came of it.
//!
//! From the archive alone. In order: unpack; read the log from the backup's beginning to its end; `pg_verifybackup` over every file and that log;
//! recover, and see that it went far enough on the right timeline; promote; `pg_amcheck` over every database; the user's own queries; stop cleanly, and
//! check every page. The server has no network, no archive, and no worker that would act for its original ([`server`]).
//!
//! Never: a backup called good of which one of these was not done and not said so; anything left running or lying about, whatever the outcome.

mod blame;
mod log;
mod program;
mod record;
mod scratch;
mod server;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bellwether_core::contract::SUPERUSER;
use bellwether_core::wal::{Lsn, SystemIdentifier, Timeline};
use bellwether_postgres::Installation;
use bellwether_postgres::control::{self, ControlError, State};
use bellwether_postgres::sql::POSTGRES_DATABASE;
use bellwether_postgres::wal::WalError;
use jiff::Timestamp;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::Instant;

use super::files::TABLESPACE_MAP;
use super::{Options, Progress, RestoreError, unpack};
use crate::base::protocol::{ProtocolError, Row};
use crate::record::{Commit, FORMAT, Took, Verified};
use crate::store::Store;
use crate::wal;
use program::run;
use scratch::Scratch;

pub use super::owner::RunAs;
pub use record::record;

/// What a backup is checked with.
#[derive(Clone, Debug)]
pub struct Check<'a> {
    /// The PostgreSQL: of the backup's major version.
    pub installation: &'a Installation,
    /// A directory that is made, and removed. Room for the whole database is needed there. What an earlier verification left in it is removed.
    pub scratch: &'a Path,
    /// The directory of the server's socket, if `scratch` is too long a path for one. It is made, and removed.
    pub socket_dir: Option<PathBuf>,
    /// Who PostgreSQL runs as, if not whoever we are. It refuses to run as root.
    pub run_as: Option<RunAs>,
    /// How many packs, and tables, are looked at side by side.
    pub workers: usize,
    /// The shell command that fetches `%f` of the log to `%p`. Without one, recovery has what the backup needs, and no more.
    pub restore_command: Option<String>,
    /// How far to recover: to the end of the backup, or further.
    pub reach: Option<(Timeline, Lsn)>,
    /// Settings that the server needs in addition, such as libraries of extensions that take part in recovery.
    pub parameters: BTreeMap<String, String>,
    /// What must be so in the restored database.
    pub queries: Vec<Query>,
    /// How long any phase may take.
    pub patience: Duration,
}

/// A query of the user's, and what it has to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// In which database.
    pub database: String,
    /// The statement.
    pub sql: String,
    /// The rows.
    pub expected: Vec<Row>,
}

/// What a verification consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Fetching and unpacking the packs.
    Unpack,
    /// Fetching the log.
    Log,
    /// `pg_verifybackup`.
    Manifest,
    /// From the start of PostgreSQL to the end of recovery.
    Recovery,
    /// `pg_amcheck`.
    Structure,
    /// The user's queries.
    Queries,
    /// Stopping, and `pg_checksums`.
    Pages,
}

/// Whether something was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// It was, and nothing is wrong with it.
    Good,
    /// It could not be.
    NotPossible(String),
}

/// A backup that was restored, recovered and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// How long each phase took.
    pub phases: Vec<(Phase, Duration)>,
    /// Where recovery ended.
    pub reached: Lsn,
    /// On which timeline.
    pub timeline: Timeline,
    /// Tables and indexes (`pg_amcheck`).
    pub structure: Looked,
    /// Checksums of pages.
    pub pages: Looked,
    /// How many queries of the user's answered as expected.
    pub queries: usize,
}

impl Verification {
    /// How long a phase took.
    pub fn took(&self, phase: Phase) -> Duration {
        self.phases.iter().filter(|(of, _)| *of == phase).map(|(_, took)| *took).sum()
    }

    /// What is written beside the backup's commit.
    pub fn record(&self, commit: &Commit, verified: Timestamp, agent_version: &str) -> Verified {
        let took = |(phase, took): &(Phase, Duration)| {
            let milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            Took { phase: phase.to_string(), milliseconds }
        };
        let not_looked_at = [("structure", &self.structure), ("pages", &self.pages)];
        let why = |(what, looked): (&str, &Looked)| match looked {
            Looked::Good => None,
            Looked::NotPossible(why) => Some(format!("{what}: {why}")),
        };
        Verified {
            format: FORMAT,
            id: commit.id.clone(),
            verified,
            agent_version: agent_version.to_owned(),
            timeline: self.timeline,
            reached: self.reached,
            phases: self.phases.iter().map(took).collect(),
            not_looked_at: not_looked_at.into_iter().filter_map(why).collect(),
            queries: self.queries as u64,
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unpack => "unpack",
            Self::Log => "log",
            Self::Manifest => "manifest",
            Self::Recovery => "recovery",
            Self::Structure => "structure",
            Self::Queries => "queries",
            Self::Pages => "pages",
        })
    }
}

/// Why a backup is not known to be one. Not each of these is the backup's fault.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// It can't be unpacked.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// A file of the log that the backup needs is of no use.
    #[error("{key}: {cause}")]
    Archive {
        /// Its key.
        key: String,
        /// What is wrong.
        cause: wal::WalError,
    },
    /// PostgreSQL's own program says no.
    #[error("{program} finds: {finding}")]
    Finding {
        /// The program.
        program: &'static str,
        /// What it said.
        finding: String,
    },
    /// The server ended before recovery did.
    #[error("PostgreSQL did not recover: {finding}")]
    NotRecovered {
        /// The end of its log.
        finding: String,
    },
    /// Recovery ended too early.
    #[error(
        "recovery ended at {reached} on timeline {timeline}, and {expected} on timeline {on} was expected: {finding}"
    )]
    NotReached {
        /// Where it ended.
        reached: Lsn,
        /// On which timeline.
        timeline: Timeline,
        /// Where it should, at least.
        expected: Lsn,
        /// On which timeline.
        on: Timeline,
        /// The end of its log.
        finding: String,
    },
    /// What was unpacked is another database.
    #[error("what was unpacked is database {found}, and the commit says {expected}")]
    OtherDatabase {
        /// What the commit says.
        expected: SystemIdentifier,
        /// What the control file says.
        found: SystemIdentifier,
    },
    /// The server did not stop cleanly.
    #[error("PostgreSQL did not stop cleanly: {finding}")]
    NotStopped {
        /// The end of its log, or what its control file says.
        finding: String,
    },
    /// A query answers something else.
    #[error("{sql:?} in database {database} answers {found:?}, and {expected:?} was expected")]
    Query {
        /// The database.
        database: String,
        /// The statement.
        sql: String,
        /// What was expected.
        expected: Vec<Row>,
        /// What it answers.
        found: Vec<Row>,
    },
    /// The server does not answer as it should.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// Its control file can't be read.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// Its log can't be read.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// The system does not let us.
    #[error("{what}: {cause}")]
    Io {
        /// What was tried.
        what: String,
        /// What came back.
        cause: io::Error,
    },
    /// A phase took too long.
    #[error("{phase} was not done after {after:?}")]
    Deadline {
        /// The phase.
        phase: Phase,
        /// How long it was given.
        after: Duration,
    },
}

/// Verifies a backup of the archive whose root `store` is. Dropped, it stops and removes everything all the same.
pub async fn verify(
    commit: &Commit,
    store: &Store,
    check: &Check<'_>,
    progress: &watch::Sender<Progress>,
) -> Result<Verification, VerifyError> {
    let mut scratch = Scratch::make(check.scratch, check.socket_dir.as_deref()).await?;
    let outcome = all(commit, store, check, &mut scratch, progress).await;
    scratch.close().await;
    outcome
}

async fn all(
    commit: &Commit,
    store: &Store,
    check: &Check<'_>,
    scratch: &mut Scratch,
    progress: &watch::Sender<Progress>,
) -> Result<Verification, VerifyError> {
    let mut clock = Clock { patience: check.patience, phases: vec![] };
    let (data, wal) = (scratch.data(), scratch.wal());
    let options = Options { workers: check.workers, ..Options::default() };
    let unpacked = async { Ok(unpack(commit, store, &data, &options, progress).await?) };
    clock.time(Phase::Unpack, unpacked).await?;
    clock.time(Phase::Log, log::fetch(commit, store, &wal)).await?;
    clock.time(Phase::Manifest, manifest(commit, check, scratch)).await?;
    let (timeline, reached) = clock.time(Phase::Recovery, server::recover(commit, check, scratch)).await?;
    let structure = clock.time(Phase::Structure, structure(check, scratch)).await?;
    clock.time(Phase::Queries, queries(check, scratch)).await?;
    let pages = clock.time(Phase::Pages, pages(check, scratch)).await?;
    Ok(Verification { phases: clock.phases, reached, timeline, structure, pages, queries: check.queries.len() })
}

/// Times phases, and ends those that take too long.
struct Clock {
    patience: Duration,
    phases: Vec<(Phase, Duration)>,
}

impl Clock {
    async fn time<T>(
        &mut self,
        phase: Phase,
        work: impl Future<Output = Result<T, VerifyError>>,
    ) -> Result<T, VerifyError> {
        let (started, after) = (Instant::now(), self.patience);
        let done = tokio::time::timeout(after, work).await.map_err(|_| VerifyError::Deadline { phase, after })??;
        self.phases.push((phase, started.elapsed()));
        Ok(done)
    }
}

/// Every file against PostgreSQL's manifest, the log that it names, and whose data it is.
async fn manifest(commit: &Commit, check: &Check<'_>, scratch: &Scratch) -> Result<(), VerifyError> {
    scratch.give_to(check.run_as).await?;
    let data = scratch.data();
    let mut command = program(check, "pg_verifybackup");
    // Where tablespaces were: the links are made already, and the file that PostgreSQL would make them from is left out.
    command.arg(format!("--ignore={TABLESPACE_MAP}")).arg("--wal-directory").arg(scratch.wal()).arg(&data);
    run("pg_verifybackup", command).await?;
    let found = control::read(check.installation, &data).await?.system_identifier;
    if found == commit.system_identifier {
        Ok(())
    } else {
        Err(VerifyError::OtherDatabase { expected: commit.system_identifier, found })
    }
}

/// Tables and indexes of every database.
async fn structure(check: &Check<'_>, scratch: &Scratch) -> Result<Looked, VerifyError> {
    if !check.installation.program("pg_amcheck").is_file() {
        return Ok(Looked::NotPossible("this installation has no pg_amcheck".to_owned()));
    }
    let sql = "select 1 from pg_available_extensions where name = 'amcheck'";
    if server::connect(scratch, POSTGRES_DATABASE).await?.query("look for amcheck", sql).await?.is_empty() {
        return Ok(Looked::NotPossible("this installation has no extension amcheck".to_owned()));
    }
    let mut command = program(check, "pg_amcheck");
    command.args(["--all", "--install-missing", "--no-password", "--username", SUPERUSER]);
    command.arg("--host").arg(scratch.socket_dir()).args(["--port", &server::PORT.to_string()]);
    command.args(["--jobs", &check.workers.max(1).to_string()]);
    run("pg_amcheck", command).await?;
    Ok(Looked::Good)
}

/// The user's queries.
async fn queries(check: &Check<'_>, scratch: &Scratch) -> Result<(), VerifyError> {
    for Query { database, sql, expected } in &check.queries {
        let found = server::connect(scratch, database).await?.query("query of the verification", sql).await?;
        if found != *expected {
            let (database, sql, expected) = (database.clone(), sql.clone(), expected.clone());
            return Err(VerifyError::Query { database, sql, expected, found });
        }
    }
    Ok(())
}

/// Every page, once the server has stopped cleanly.
async fn pages(check: &Check<'_>, scratch: &mut Scratch) -> Result<Looked, VerifyError> {
    scratch.stop().await?;
    let data = scratch.data();
    let control = control::read(check.installation, &data).await?;
    if control.state != State::ShutDown {
        return Err(VerifyError::NotStopped { finding: format!("its control file says {:?}", control.state) });
    }
    if !control.data_checksums {
        return Ok(Looked::NotPossible("the database has no checksums of its pages".to_owned()));
    }
    let mut command = program(check, "pg_checksums");
    command.args(["--check", "--pgdata"]).arg(&data);
    run("pg_checksums", command).await?;
    Ok(Looked::Good)
}

fn program(check: &Check<'_>, name: &str) -> Command {
    let mut command = Command::new(check.installation.program(name));
    scratch::run_as(&mut command, check.run_as);
    command
}
