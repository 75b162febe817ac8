//! A real PostgreSQL for a test: in a directory of its own, on a loopback address of its own, stopped and removed when the
//! test ends, however it ends.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bellwether_api::v1::Initdb;
use bellwether_core::contract::{REPLICATION_USER, SUPERUSER};
use bellwether_core::instance::space::WalRoom;
use bellwether_postgres::basebackup::BaseBackup;
use bellwether_postgres::conf::{self, ServerSettings, ServerTls, Synchronous, Upstream};
use bellwether_postgres::conninfo::{ClientTls, ConnInfo};
use bellwether_postgres::initdb::{InitdbError, NewCluster, PasswordFile};
use bellwether_postgres::log::{self, Record};
use bellwether_postgres::socket::SocketDir;
use bellwether_postgres::sql::{POSTGRES_DATABASE, Session, SqlError};
use bellwether_postgres::{Installation, Secret, file, hba, installation};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// How long anything may take on a busy machine before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The deadline of the sessions.
pub const DEADLINE: Duration = Duration::from_secs(20);
pub const PORT: u16 = 5432;

/// A data directory with its surroundings, and the server on it while it runs.
pub struct Server {
    pub installation: Installation,
    pub settings: ServerSettings,
    pub parameters: BTreeMap<String, String>,
    pub hba: Vec<String>,
    pub records: Arc<Mutex<Vec<Record>>>,
    child: Option<Child>,
    dir: TempDir,
}

/// A certificate authority with what it has issued, on disk.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// The installation that the tests run on: the newest here. There is always one: `make test` installs it.
pub fn installed() -> Installation {
    installation::find_all().pop().expect("PostgreSQL is installed")
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    /// Writes `tls.crt`, `tls.key` and `ca.crt` into `dir`, as a mounted Secret has them.
    pub fn issue(&self, dir: &Path, common_name: &str, hosts: &[&str]) {
        let hosts: Vec<_> = hosts.iter().map(|&host| host.to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::create_dir_all(dir).unwrap();
        file::replace(&dir.join("tls.crt"), cert.pem().as_bytes()).unwrap();
        file::replace(&dir.join("tls.key"), key.serialize_pem().as_bytes()).unwrap();
        file::replace(&dir.join("ca.crt"), self.issuer.pem().as_bytes()).unwrap();
    }
}

impl Server {
    /// A place for an instance, without data yet.
    pub fn place(instance: &str, authority: &Authority) -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let installation = installed();
        let dir = tempfile::Builder::new().prefix("bw-pg-").tempdir_in("/tmp").unwrap();
        let tls = dir.path().join("tls");
        authority.issue(&tls, instance, &[&host_of(instance)]);
        authority.issue(&dir.path().join("replication"), REPLICATION_USER, &[]);
        let [high, low] = (std::process::id() as u16).to_be_bytes();
        let address = Ipv4Addr::new(127, high.max(1), low, NEXT.fetch_add(1, Ordering::Relaxed));
        let settings = ServerSettings {
            term: None,
            instance: instance.to_owned(),
            listen: vec![IpAddr::V4(address)],
            port: PORT,
            socket_dir: SocketDir::ensure(&dir.path().join("s"), PORT).unwrap(),
            tls: Some(ServerTls::in_dir(&tls)),
            upstream: None,
            synchronous: Synchronous::Off,
            writes: Default::default(),
            wal_room: Some(WalRoom::on(1 << 30)),
            least: BTreeMap::new(),
            archive_command: None,
        };
        let (parameters, hba, records) = (BTreeMap::new(), vec![], Arc::default());
        let server = Self { installation, settings, parameters, hba, records, child: None, dir };
        give_to_postgres(server.dir.path());
        server
    }

    /// An instance with a new database.
    pub async fn initdb(instance: &str, authority: &Authority, password: &Secret) -> Self {
        let server = Self::place(instance, authority);
        server.try_initdb(&Initdb::default(), password).await.unwrap();
        server
    }

    pub async fn try_initdb(&self, spec: &Initdb, password: &Secret) -> Result<(), InitdbError> {
        let data_dir = self.data_dir();
        let new = NewCluster { spec, data_dir: &data_dir, wal_dir: None, superuser: SUPERUSER };
        let password = PasswordFile::create(self.dir.path(), password)?;
        give_to_postgres(password.path());
        let mut command = new.command(&self.installation, &password);
        as_postgres(&mut command);
        new.run_command(command).await
    }

    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }
    pub fn address(&self) -> IpAddr {
        self.settings.listen[0]
    }
    pub fn host(&self) -> String {
        host_of(&self.settings.instance)
    }
    pub fn ca(&self) -> PathBuf {
        self.dir.path().join("tls/ca.crt")
    }
    pub fn replication_tls(&self) -> ClientTls {
        ClientTls::in_dir(&self.dir.path().join("replication"))
    }

    /// How `follower` reaches this server.
    pub fn conninfo_for(&self, follower: &Self) -> ConnInfo {
        ConnInfo {
            host: self.host(),
            address: self.address(),
            port: PORT,
            user: REPLICATION_USER.to_owned(),
            application_name: follower.settings.instance.clone(),
            tls: follower.replication_tls(),
        }
    }

    pub fn follow(&mut self, leader: &Self) {
        let slot = bellwether_postgres::SlotName::of_instance(&self.settings.instance).unwrap();
        self.settings.upstream = Some(Upstream { conninfo: leader.conninfo_for(self), slot });
    }

    /// Writes the configuration as it should be now.
    pub fn configure(&self) {
        let text = conf::render(&self.installation, &self.settings, &self.parameters).unwrap();
        conf::install(&self.data_dir(), &text).unwrap();
        let rules = hba::render(&self.hba).unwrap();
        file::replace(&self.data_dir().join(hba::NAME), rules.as_bytes()).unwrap();
        file::replace(&self.data_dir().join(hba::IDENT_NAME), hba::IDENT.as_bytes()).unwrap();
        give_to_postgres(&self.data_dir());
    }

    /// Starts the server and waits until it answers.
    pub async fn start(&mut self) {
        self.configure();
        let mut command = Command::new(self.installation.program("postgres"));
        command.arg("-D").arg(self.data_dir()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        as_postgres(&mut command);
        let mut child = command.spawn().unwrap();
        let records = Arc::clone(&self.records);
        tokio::spawn(log::pump(child.stderr.take().unwrap(), move |record| records.lock().unwrap().push(record)));
        self.child = Some(child);
        eventually("the server answers", || async { self.try_session(POSTGRES_DATABASE).await.is_ok() }).await;
    }

    /// Stops it cleanly and waits for its end.
    pub async fn stop(&mut self) {
        let mut child = self.child.take().unwrap();
        signal(&child, Signal::SIGINT);
        tokio::time::timeout(PATIENCE, child.wait()).await.expect("the server stops").unwrap();
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.as_ref().and_then(Child::id).unwrap()).unwrap()
    }

    pub async fn session(&self) -> Session {
        self.try_session(POSTGRES_DATABASE).await.unwrap()
    }

    pub async fn try_session(&self, database: &str) -> Result<Session, SqlError> {
        Session::local(self.settings.socket_dir.path(), PORT, database, DEADLINE).await
    }

    /// Waits for a log record.
    pub async fn logged(&self, what: &str, wanted: impl Fn(&Record) -> bool) -> Record {
        let found = || self.records.lock().unwrap().iter().find(|record| wanted(record)).cloned();
        eventually(what, || async { found().is_some() }).await;
        found().unwrap()
    }
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
    if let Some(pid) = child.id() {
        kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
    }
}

fn host_of(instance: &str) -> String {
    format!("{instance}.orders-pods.shop.svc")
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
fn postgres_user() -> Option<User> {
    geteuid().is_root().then(|| User::from_name("postgres").unwrap().expect("there is a user postgres"))
}

pub fn as_postgres(command: &mut Command) {
    if let Some(user) = postgres_user() {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    // It complains when it can't go back to where the test was started.
    command.current_dir("/");
}

/// Runs `pg_basebackup` to its end; answers what it said, and whether it succeeded.
pub async fn clone(backup: &BaseBackup<'_>, installation: &Installation) -> Result<String, String> {
    let mut command = Command::new(backup.program(installation));
    command.args(backup.arguments()).env("LC_ALL", "C").stdin(Stdio::null());
    as_postgres(&mut command);
    let output = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(said) } else { Err(said) }
}

fn give_to_postgres(path: &Path) {
    let Some(user) = postgres_user() else { return };
    chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            // What PostgreSQL made below is its own already.
            if kind.is_file() || (kind.is_dir() && !path.ends_with("data")) {
                give_to_postgres(&entry.path());
            }
        }
    }
}
