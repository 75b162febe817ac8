//! The shipped binary, as an agent runs it: the archiver for backups and the log, and `bellwether restore` for the way back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use bellwether_agent::archive::message::{Archived, Said, Setup, Tell};
use bellwether_agent::archive::{SOCKET, command, process};
use bellwether_core::contract::{BackupOrder, BackupReport, BackupState, Effort};
use bellwether_core::wal::SystemIdentifier;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::database::Database;
use super::machine::{Machine, PATIENCE, run};
use super::s3::{BUCKET, KEY, REGION, S3, SECRET};
use super::{Place, Stores};
use crate::{BenchError, failed};

const OPENS_WITHIN: Duration = Duration::from_secs(60);
const INSTANCE: &str = "bench-1";

/// Where it is, and where its store is.
pub struct Ours<'a> {
    pub machine: &'a Machine,
    /// Where PostgreSQL's user may run it.
    pub binary: PathBuf,
    /// PostgreSQL's.
    pub programs: PathBuf,
}

/// Which store, of how many before it: a new one for each backup.
#[derive(Clone, Copy)]
pub struct Edition(pub Place, pub usize);

impl Edition {
    fn url(self, machine: &Machine) -> String {
        match self.0 {
            Place::Directory => format!("file://{}", machine.path(&self.directory()).display()),
            Place::S3 => format!("s3://{BUCKET}/ours-{}", self.1),
        }
    }

    /// Where it is on disk.
    pub fn directory(self) -> String {
        match self.0 {
            Place::Directory => format!("ours-{}", self.1),
            Place::S3 => format!("s3/{BUCKET}/ours-{}", self.1),
        }
    }
}

impl Ours<'_> {
    /// Starts an archiver whose archive is open.
    pub async fn archiver(&self, edition: Edition, database: &Database<'_>, s3: &S3) -> Result<Archiver, BenchError> {
        let mut command = self.machine.command(&self.binary);
        command.arg(process::ROLE).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| failed("bellwether archiver", error))?;
        let (Some(tell), Some(said)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed("bellwether archiver", "it has no pipes"));
        };
        let mut archiver = Archiver { child, tell, said: BufReader::new(said).lines(), orders: 0 };
        let on_s3 = edition.0 == Place::S3;
        let ca = std::fs::read_to_string(&s3.certificate).map_err(|error| failed("cert.pem", error))?;
        let setup = Setup {
            url: edition.url(self.machine),
            settings: if on_s3 { settings(s3) } else { BTreeMap::new() },
            ca: on_s3.then_some(ca),
            system_identifier: SystemIdentifier(database.system_identifier().await?),
            incarnation: "1".to_owned(),
            namespace: "bench".to_owned(),
            cluster: "bench".to_owned(),
            instance: INSTANCE.to_owned(),
            programs: self.programs.clone(),
            pgdata: database.data(),
            sockets: self.machine.path("sockets"),
            replication_tls: self.machine.path("none"),
        };
        archiver.tell(&Tell::Setup(Box::new(setup))).await?;
        archiver.tell(&Tell::Follows(None)).await?;
        let opened = timeout(OPENS_WITHIN, archiver.until_open()).await;
        opened.map_err(|_| failed("bellwether archiver", "the archive does not open"))??;
        Ok(archiver)
    }

    /// What PostgreSQL calls for each file.
    pub fn archive_command(&self) -> String {
        command::line(&self.binary, &self.machine.path("sockets").join(SOCKET))
    }

    /// Restores the newest backup there into a new directory.
    pub async fn restore(&self, edition: Edition, to: &Path, s3: &S3) -> Result<Duration, BenchError> {
        let mut command = self.machine.command(&self.binary);
        command.args(["restore", "--from", &edition.url(self.machine), "--to"]).arg(to);
        if edition.0 == Place::S3 {
            command.envs(settings(s3)).env("SSL_CERT_FILE", &s3.certificate);
        }
        let began = Instant::now();
        run(&mut command).await?;
        self.machine.settle().await?;
        Ok(began.elapsed())
    }
}

fn settings(s3: &S3) -> BTreeMap<String, String> {
    let pairs = [
        ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ("AWS_REGION", REGION.to_owned()),
        ("AWS_ENDPOINT", s3.endpoint()),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value)).into()
}

/// An archiver. It ends when this does.
pub struct Archiver {
    child: Child,
    tell: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
    orders: i32,
}

impl Archiver {
    async fn tell(&mut self, what: &Tell) -> Result<(), BenchError> {
        let mut line = serde_json::to_vec(what).map_err(|error| failed("telling the archiver", error))?;
        line.push(b'\n');
        self.tell.write_all(&line).await.map_err(|error| failed("telling the archiver", error))
    }

    async fn hear(&mut self) -> Result<Said, BenchError> {
        let line = self.said.next_line().await.map_err(|error| failed("the archiver", error))?;
        let line = line.ok_or_else(|| failed("the archiver", "it ended"))?;
        serde_json::from_str(&line).map_err(|error| failed("the archiver", error))
    }

    async fn until_open(&mut self) -> Result<(), BenchError> {
        loop {
            match self.hear().await? {
                Said::Archiving(Archived { failing: None, .. }) => return Ok(()),
                Said::Archiving(Archived { failing: Some(why), .. }) => return Err(failed("opening the archive", why)),
                _ => {}
            }
        }
    }

    /// Takes a backup: what it says of it when all of it is in the store.
    pub async fn back_up(&mut self) -> Result<(BackupReport, Duration), BenchError> {
        self.orders += 1;
        let order = BackupOrder {
            backup: "bench".to_owned(),
            uid: "1".to_owned(),
            attempt: self.orders,
            instance: INSTANCE.to_owned(),
        };
        let began = Instant::now();
        self.tell(&Tell::Take(Some((order, Effort::default())))).await?;
        let completed = timeout(PATIENCE, self.until_completed(began)).await;
        completed.map_err(|_| failed("our backup", "it does not end"))?
    }

    async fn until_completed(&mut self, began: Instant) -> Result<(BackupReport, Duration), BenchError> {
        loop {
            let Said::Backup(report) = self.hear().await? else { continue };
            match report.state {
                BackupState::Running => {}
                BackupState::Completed => return Ok((*report, began.elapsed())),
                BackupState::Failed => return Err(failed("our backup", report.message.unwrap_or_default())),
            }
        }
    }

    /// The most memory that it has had, in bytes.
    pub fn peak_memory(&self) -> u64 {
        let status = self.child.id().and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/status")).ok());
        let line = status.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix("VmHWM:")));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
    }
}

/// The stores that are there are removed, so that no disk has to hold them all.
pub fn forget(stores: &mut Stores, machine: &Machine, keep: Edition) -> Result<(), BenchError> {
    for number in 0..stores.of(keep.0) {
        if number != keep.1 {
            machine.remove(&Edition(keep.0, number).directory())?;
        }
    }
    Ok(())
}
