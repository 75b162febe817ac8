//! A database with an archive on a server that speaks S3, and what `bellwether restore` makes of it: for tests that get a database back.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bellwether_backup::base::protocol::{Connection, Purpose};
use bellwether_backup::record::Commit;
use bellwether_backup::{Store, WalFile};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::home::BELLWETHER;
use crate::postgres::{self, PATIENCE, PORT, Server, as_postgres, place};
use crate::store::proxy::Proxy;
use crate::store::s3;

/// The original, and its archive behind a proxy that fails on demand.
pub struct Original {
    pub server: Server,
    pub s3: s3::Server,
    pub proxy: Proxy,
    /// The archive.
    pub archive: Store,
    /// The built program where PostgreSQL's user may execute it.
    program: TempDir,
}

/// What a command said, and how it ended.
pub struct Said {
    pub code: Option<i32>,
    pub text: String,
}

impl Original {
    /// A database with these settings, of which nothing is archived yet.
    pub async fn with(settings: &str) -> Self {
        let mut server = Server::initdb(postgres::installed()).await;
        server.configure(settings);
        server.start().await;
        let s3 = s3::Server::start().await;
        let proxy = Proxy::before(s3.address).await;
        let archive = s3.store().below(&format!("{}-1", server.identity().await));
        let program = place("bw-program-");
        let there = program.path().join("bellwether");
        std::fs::hard_link(BELLWETHER, &there).or_else(|_| std::fs::copy(BELLWETHER, &there).map(drop)).unwrap();
        Self { server, s3, proxy, archive, program }
    }

    /// Takes a backup, in a second of its own: that is its name.
    pub async fn backup(&self) -> Commit {
        let now = || bellwether_backup::BackupId::at(jiff::Timestamp::now());
        let before = now();
        postgres::eventually("another second begins", || async { now() > before }).await;
        self.server.backup(&self.archive).await
    }

    /// Has all that was written archived.
    pub async fn archived(&self) {
        self.server.archive_into(&self.archive).await;
    }

    /// Where a file of the log is on the server's disk.
    pub fn object(&self, file: WalFile) -> PathBuf {
        let archive = self.archive.to_string();
        self.s3.file(&format!("{}/{}", archive.rsplit('/').next().unwrap(), file.key()))
    }

    /// The built program, with the way into the store in its environment.
    pub async fn says(&self, arguments: &[&str]) -> Said {
        let mut command = tokio::process::Command::new(self.program.path().join("bellwether"));
        command.args(arguments).args(["--from", "s3://backups/prod"]);
        command.env("AWS_ACCESS_KEY_ID", s3::KEY).env("AWS_SECRET_ACCESS_KEY", s3::SECRET);
        command.env("AWS_ENDPOINT", format!("http://{}", self.proxy.address));
        let output = command.stdin(Stdio::null()).output().await.unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(!text.contains(s3::SECRET), "a secret is told: {text}");
        Said { code: output.status.code(), text }
    }

    /// A restored database, not started yet.
    pub async fn restored(&self, arguments: &[&str]) -> Restored {
        let place = place("bw-restored-");
        let data = place.path().join("data");
        let said = self.says(&[&["restore", "--to", data.to_str().unwrap()], arguments].concat()).await;
        assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.text);
        Restored { place, child: None, said: said.text }
    }

    /// What is said of a restore that is refused; nothing was made.
    pub async fn refused(&self, arguments: &[&str]) -> String {
        let place = place("bw-restored-");
        let data = place.path().join("data");
        let said = self.says(&[&["restore", "--to", data.to_str().unwrap()], arguments].concat()).await;
        assert_eq!(said.code, Some(1), "{arguments:?}: {}", said.text);
        assert!(!data.exists(), "{arguments:?}: something was made");
        said.text
    }

    /// The rows of a table, once a database was restored, started, and has recovered.
    pub async fn rows_at(&self, arguments: &[&str]) -> String {
        let mut restored = self.restored(arguments).await;
        restored.start();
        restored.recovered().await;
        restored.rows().await
    }
}

/// A restored database.
pub struct Restored {
    place: TempDir,
    child: Option<Child>,
    /// What the command said.
    pub said: String,
}

impl Restored {
    pub fn data(&self) -> PathBuf {
        self.place.path().join("data")
    }

    /// Where its log comes from.
    pub fn access(&self) -> PathBuf {
        self.data().join("bellwether.restore.json")
    }

    /// Starts PostgreSQL on it.
    pub fn start(&mut self) {
        let mut command = std::process::Command::new(postgres::installed().program("postgres"));
        as_postgres(&mut command);
        // Several tests have one at the same time.
        command.arg("-D").arg(self.data()).args(["-c", "listen_addresses=", "-c", "fsync=off"]);
        let log = std::fs::File::create(self.place.path().join("log")).unwrap();
        self.child = Some(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap());
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.place.path().join("log")).unwrap_or_default()
    }

    pub async fn try_value(&self, sql: &str) -> Option<String> {
        let data = self.data();
        let mut session = Connection::open(&data, PORT, Purpose::Database("postgres"), PATIENCE).await.ok()?;
        session.query("test", sql).await.ok()?.first()?.first()?.clone()
    }

    pub async fn value(&self, sql: &str) -> String {
        self.try_value(sql).await.unwrap_or_else(|| panic!("no answer: {sql}"))
    }

    /// The numbers in table `item`.
    pub async fn rows(&self) -> String {
        self.value("select coalesce(string_agg(n::text, ' ' order by n), 'none') from item").await
    }

    fn ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Until it has recovered.
    pub async fn recovered(&mut self) {
        let started = Instant::now();
        while self.try_value("select pg_is_in_recovery()").await.as_deref() != Some("f") {
            assert!(!self.ended(), "PostgreSQL ended: {}", self.log());
            assert!(started.elapsed() < PATIENCE, "not recovered: {}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Until PostgreSQL has ended by itself: its log.
    pub async fn broke_off(&mut self) -> String {
        let started = Instant::now();
        while !self.ended() {
            let recovered = self.try_value("select pg_is_in_recovery()").await.as_deref() == Some("f");
            assert!(!recovered, "it called itself recovered: {}", self.log());
            assert!(started.elapsed() < PATIENCE, "it goes on: {}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.child = None;
        self.log()
    }

    /// Changes the file that says where its log comes from.
    pub fn change_access(&self, change: impl FnOnce(&mut serde_json::Value)) {
        let mut access = serde_json::from_slice(&std::fs::read(self.access()).unwrap()).unwrap();
        change(&mut access);
        std::fs::write(self.access(), access.to_string()).unwrap();
    }
}

impl Drop for Restored {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGQUIT).unwrap();
        child.wait().unwrap();
        // The helper of its recovery looks twice a second whether it is still needed.
        let (ahead, started) = (self.data().join("pg_wal/bellwether.ahead"), Instant::now());
        while ahead.exists() && started.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Whether a file is there, by its name in a directory.
pub fn has(directory: &Path, name: &str) -> bool {
    directory.join(name).exists()
}
