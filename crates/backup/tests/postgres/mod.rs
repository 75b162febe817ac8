//! A real PostgreSQL to back up: in a directory of its own, on a Unix socket only, stopped and removed when the test ends, however it ends.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod restored;

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bellwether_backup::base::protocol::{Connection, ProtocolError, Purpose, Row};
use bellwether_backup::base::{self, Options, Progress, Taken, objects::Effort};
use bellwether_backup::layout::{BackupId, OWNER, WalFile};
use bellwether_backup::record::{Commit, FORMAT, Owner};
use bellwether_backup::{Location, Store, wal};
use bellwether_core::wal::SystemIdentifier;
use bellwether_postgres::{Installation, installation};
use bytes::Bytes;
use jiff::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};
use tempfile::TempDir;
use tokio::sync::watch;

/// How long anything may take on a busy machine before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const PORT: u16 = 5432;
/// Of every database that is made here.
const SEGMENT: u64 = 16 << 20;

/// A data directory with its surroundings, and the server on it while it runs.
pub struct Server {
    pub installation: Installation,
    child: Option<Child>,
    dir: TempDir,
}

/// The installation that the tests run on: the newest here. There is always one: `make test` installs it.
pub fn installed() -> Installation {
    installation::find_all().pop().expect("PostgreSQL is installed")
}

impl Server {
    fn place(installation: Installation) -> Self {
        let server = Self { installation, child: None, dir: place("bw-backup-") };
        for name in ["socket", "archive"] {
            std::fs::create_dir(server.dir.path().join(name)).unwrap();
            give_to_postgres(&server.dir.path().join(name));
        }
        server
    }

    /// A new database with checksums of its pages, and an archive beside it.
    pub async fn initdb(installation: Installation) -> Self {
        Self::initdb_with(installation, &["--data-checksums"])
    }

    fn initdb_with(installation: Installation, arguments: &[&str]) -> Self {
        let server = Self::place(installation);
        let mut initdb = server.program("initdb");
        initdb.arg("--pgdata").arg(server.data());
        initdb.args(["--username=postgres", "--auth=trust", "--no-sync", "--locale=C"]).args(arguments);
        run(&mut initdb);
        let archive = server.archive();
        server.configure(&format!(
            "fsync = off\nshared_buffers = 16MB\narchive_mode = on\nmax_wal_size = 512MB\n\
             archive_command = 'cp %p {0}/%f.part && mv {0}/%f.part {0}/%f'\n",
            archive.display()
        ));
        server
    }

    /// The same, and started.
    pub async fn new() -> Self {
        let mut server = Self::initdb(installed()).await;
        server.start().await;
        server
    }

    /// The same without checksums: PostgreSQL itself does not notice when a page breaks.
    pub async fn without_checksums() -> Self {
        // The newest has them unless told otherwise.
        let installation = installed();
        let off: &[&str] = if installation.at_least(18) { &["--no-data-checksums"] } else { &[] };
        let mut server = Self::initdb_with(installation, off);
        server.start().await;
        server
    }

    /// A standby of this one, started and streaming.
    pub async fn standby(&self) -> Self {
        let mut standby = Self::place(self.installation.clone());
        let mut clone = standby.program("pg_basebackup");
        clone.arg("--pgdata").arg(standby.data()).arg("--host").arg(self.socket_dir());
        clone.args(["--username=postgres", "--checkpoint=fast", "--no-sync", "--write-recovery-conf"]);
        run(&mut clone);
        standby.start().await;
        eventually("the standby streams", || async {
            self.sql("select 1 from pg_stat_replication where state = 'streaming'").await.len() == 1
        })
        .await;
        standby
    }

    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.installation.program(name));
        as_postgres(&mut command);
        command
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }
    pub fn socket_dir(&self) -> PathBuf {
        self.dir.path().join("socket")
    }
    /// Where its log is archived to, as it is.
    pub fn archive(&self) -> PathBuf {
        self.dir.path().join("archive")
    }

    /// Adds to the configuration.
    pub fn configure(&self, lines: &str) {
        let path = self.data().join("postgresql.conf");
        std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + lines).unwrap();
    }

    pub async fn start(&mut self) {
        let mut postgres = self.program("postgres");
        postgres.arg("-D").arg(self.data()).args(["-c", "listen_addresses=", "-c"]);
        postgres.arg(format!("unix_socket_directories={}", self.socket_dir().display()));
        let log = std::fs::File::create(self.dir.path().join("log")).unwrap();
        self.child = Some(postgres.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap());
        eventually("the server answers", || async { self.try_sql("select 1").await.is_ok() }).await;
    }

    /// Where a table or index is in the data directory.
    pub async fn file_of(&self, relation: &str) -> PathBuf {
        self.data().join(self.value(&format!("select pg_relation_filepath('{relation}')")).await)
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.as_ref().unwrap().id()).unwrap())
    }

    /// Stops it cleanly.
    pub fn stop(&mut self) {
        let mut child = self.child.take().unwrap();
        signal(&child, Signal::SIGINT);
        child.wait().unwrap();
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    pub async fn connect(&self, purpose: Purpose<'_>) -> Result<Connection, ProtocolError> {
        Connection::open(&self.socket_dir(), PORT, purpose, PATIENCE).await
    }

    pub async fn try_sql(&self, sql: &str) -> Result<Vec<Row>, ProtocolError> {
        self.connect(Purpose::Database("postgres")).await?.query("test", sql).await
    }

    pub async fn sql(&self, sql: &str) -> Vec<Row> {
        self.try_sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The only value that a query answers with.
    pub async fn value(&self, sql: &str) -> String {
        self.sql(sql).await[0][0].clone().unwrap()
    }

    pub async fn identity(&self) -> SystemIdentifier {
        self.connect(Purpose::Replication).await.unwrap().identify_system().await.unwrap().system_identifier
    }

    /// Takes a backup with small packs, so that there are several.
    pub async fn take(&self, store: &Store) -> Result<Taken, base::BaseError> {
        let socket_dir = self.socket_dir();
        let options = quick(&socket_dir, self.identity().await);
        base::take(&options, store, &watch::Sender::new(Progress::default())).await
    }

    /// Has everything archived that was written until now, and puts it into the store as a backup's log.
    pub async fn archive_into(&self, store: &Store) {
        let last = self.value("select pg_walfile_name(pg_switch_wal())").await;
        eventually("the log is archived", || async { self.archive().join(&last).exists() }).await;
        let owner = Owner {
            format: FORMAT,
            system_identifier: self.identity().await,
            incarnation: "1".to_owned(),
            namespace: "shop".to_owned(),
            cluster: "orders".to_owned(),
        };
        store.put_new(OWNER, serde_json::to_vec(&owner).unwrap().into()).await.unwrap();
        let archive = wal::Archive::open(store.clone()).await.unwrap();
        for entry in std::fs::read_dir(self.archive()).unwrap() {
            let path = entry.unwrap().path();
            let Ok(file) = path.file_name().unwrap().to_str().unwrap().parse::<WalFile>() else { continue };
            wal::push(&archive, file, &path, SEGMENT, 1).await.unwrap();
        }
    }

    /// Takes a whole backup: its log is in the store too.
    pub async fn backup(&self, store: &Store) -> Commit {
        let taken = self.take(store).await.unwrap();
        self.archive_into(store).await;
        taken.read_back(store, PATIENCE).await.unwrap();
        taken.commit(store).await.unwrap()
    }
}

/// A backup in small packs.
pub fn quick(socket_dir: &Path, system_identifier: SystemIdentifier) -> Options<'_> {
    let id = BackupId::at(Timestamp::now());
    let effort = Effort { level: 1, ..Effort::default() };
    Options { instance: "test-1", pack_bytes: 4 << 20, effort, ..Options::new(id, socket_dir, PORT, system_identifier) }
}

/// A store in a directory of its own.
pub struct Archive {
    pub store: Store,
    dir: TempDir,
}

impl Archive {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { store: Store::open(&Location::directory(dir.path())).unwrap(), dir }
    }

    /// Changes an object behind the store's back.
    pub fn tamper(&self, key: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let path = self.dir.path().join(key);
        let mut body = std::fs::read(&path).unwrap();
        change(&mut body);
        std::fs::write(&path, body).unwrap();
    }

    pub fn remove(&self, key: &str) {
        std::fs::remove_file(self.dir.path().join(key)).unwrap();
    }

    pub async fn keys(&self) -> Vec<String> {
        self.store.list("").await.unwrap().into_iter().map(|entry| entry.key).collect()
    }

    /// Puts an object of other content in the place of one.
    pub async fn replace(&self, key: &str, body: Vec<u8>) {
        self.remove(key);
        self.store.put_new(key, Bytes::from(body)).await.unwrap();
    }
}

impl Server {
    /// A server on a data directory that was restored into `dir`/data.
    pub async fn on_restored(dir: TempDir, installation: Installation, settings: &str) -> Self {
        let mut server = Self { installation, child: None, dir };
        std::fs::create_dir(server.socket_dir()).unwrap();
        server.configure(&format!("archive_mode = off\nfsync = off\n{settings}"));
        give_all_to_postgres(server.dir.path());
        server.start().await;
        server
    }
}

/// A directory that PostgreSQL's user may enter.
pub fn place(prefix: &str) -> TempDir {
    let dir = tempfile::Builder::new().prefix(prefix).tempdir_in("/tmp").unwrap();
    give_to_postgres(dir.path());
    dir
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        signal(&child, Signal::SIGQUIT);
        let started = Instant::now();
        while matches!(child.try_wait(), Ok(None)) {
            if started.elapsed() > Duration::from_secs(10) {
                signal(&child, Signal::SIGKILL);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
}

/// Asks again until it is so.
pub async fn eventually<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    let started = Instant::now();
    while !is_so().await {
        assert!(started.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// PostgreSQL refuses to run as root, so a test that does drops to PostgreSQL's own user for it.
pub fn postgres_user() -> Option<User> {
    geteuid().is_root().then(|| User::from_name("postgres").unwrap().expect("there is a user postgres"))
}

pub fn as_postgres(command: &mut Command) {
    use std::os::unix::process::CommandExt as _;
    if let Some(user) = postgres_user() {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    command.current_dir("/").env("LC_ALL", "C");
}

pub fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub fn give_to_postgres(path: &Path) {
    let Some(user) = postgres_user() else { return };
    chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
}

pub fn give_all_to_postgres(path: &Path) {
    give_to_postgres(path);
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_symlink() {
                give_all_to_postgres(&std::fs::read_link(entry.path()).unwrap());
            } else {
                give_all_to_postgres(&entry.path());
            }
        }
    }
}
