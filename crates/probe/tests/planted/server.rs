//! A real PostgreSQL for a test: in a directory and on a loopback address of its own, ended with the test, however it ends.

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use bellwether_postgres::Installation;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};
use probe::check::{Rules, Verdict};
use probe::{Access, Deadlines, History, Settings, Target, check, finals};
use tempfile::TempDir;
use tokio_postgres::NoTls;

/// How long anything may take on a busy machine before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(90);
const PORT: u16 = 5432;

/// A server with a database `app` that belongs to the role `app`, which may do nothing else.
pub struct Server {
    dir: TempDir,
    name: String,
    address: IpAddr,
    installation: Installation,
    process: Option<Child>,
}

impl Server {
    /// A new one, running.
    pub async fn start(name: &str) -> Self {
        let mut server = Self::place(name);
        let data = server.data();
        server.run("initdb", |command| command.arg("-D").arg(&data).args(["-U", "postgres", "-A", "trust", "-N"]));
        server.trust_loopback();
        server.launch().await;
        server.admin("create role app login; create database app owner app").await;
        server
    }

    /// A standby of this one, running and streaming.
    pub async fn standby(&self, name: &str) -> Self {
        let mut standby = Self::place(name);
        let data = standby.data();
        let source = self.address.to_string();
        standby.run("pg_basebackup", |command| {
            command.args(["-R", "-c", "fast", "-X", "stream", "-U", "postgres", "-h", &source]).arg("-D").arg(&data)
        });
        standby.launch().await;
        standby
    }

    fn place(name: &str) -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let installation = bellwether_postgres::installation::find_all().pop().expect("PostgreSQL is installed");
        let dir = tempfile::Builder::new().prefix("bw-probe-").tempdir_in("/tmp").unwrap();
        if let Some(user) = postgres_user() {
            chown(dir.path(), Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        }
        let [high, low] = (std::process::id() as u16).to_be_bytes();
        let address = Ipv4Addr::new(127, high.max(1), low, NEXT.fetch_add(1, Ordering::Relaxed)).into();
        Self { dir, name: name.to_owned(), address, installation, process: None }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }
    pub fn address(&self) -> IpAddr {
        self.address
    }
    pub fn target(&self) -> Target {
        Target::at(&self.name, self.address, PORT)
    }
    pub fn uri(&self) -> String {
        format!("postgresql://app@{}:{PORT}/app?sslmode=disable&hostaddr={}", self.name, self.address)
    }
    pub fn access(&self) -> Access {
        Access::from_uri(&self.uri(), None, None).unwrap()
    }

    fn trust_loopback(&self) {
        let path = self.data().join("pg_hba.conf");
        let rules = "local all all trust\nhost all all 127.0.0.0/8 trust\nhost replication all 127.0.0.0/8 trust\n";
        std::fs::write(path, rules).unwrap();
    }

    fn run(&self, program: &str, arguments: impl FnOnce(&mut Command) -> &mut Command) {
        let mut command = Command::new(self.installation.program(program));
        arguments(&mut command);
        let output = as_postgres(&mut command).output().unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Starts the postmaster and waits until it answers.
    async fn launch(&mut self) {
        let settings = [
            ("listen_addresses", self.address.to_string()),
            ("unix_socket_directories", self.dir.path().display().to_string()),
            ("cluster_name", self.name.clone()),
            ("fsync", "off".to_owned()),
            ("wal_retrieve_retry_interval", "100ms".to_owned()),
            ("bellwether.term", "3".to_owned()),
        ];
        let log = std::fs::File::create(self.dir.path().join("log")).unwrap();
        let mut command = Command::new(self.installation.program("postgres"));
        command.arg("-D").arg(self.data()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        for (name, value) in settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        self.process = Some(as_postgres(&mut command).spawn().unwrap());
        eventually("the server answers", async || self.try_admin("select 1").await.is_ok()).await;
    }

    /// Runs SQL as superuser in the database `postgres`.
    pub async fn admin(&self, sql: &str) {
        for statement in sql.split(';').filter(|statement| !statement.trim().is_empty()) {
            self.try_admin(statement).await.unwrap();
        }
    }

    pub async fn try_admin(&self, sql: &str) -> Result<Vec<String>, tokio_postgres::Error> {
        self.query("postgres", sql).await
    }

    /// The first column of a query as superuser in a database.
    pub async fn query(&self, database: &str, sql: &str) -> Result<Vec<String>, tokio_postgres::Error> {
        let mut config = tokio_postgres::Config::new();
        config.host(self.address.to_string()).port(PORT).user("postgres").dbname(database);
        let (client, connection) = config.connect(NoTls).await?;
        let driver = tokio::spawn(connection);
        let answer = client.simple_query(sql).await?;
        drop(client);
        let _ended = driver.await;
        let first = answer.iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        Ok(first.collect())
    }

    /// Changes a setting and makes the server take it over.
    pub async fn set(&self, setting: &str, value: &str) {
        self.admin(&format!("alter system set {setting} = '{value}'; select pg_reload_conf()")).await;
    }

    /// Stops every process of the server where it is, as a frozen node does.
    pub fn freeze(&self) {
        self.signal_all(Signal::SIGSTOP);
    }
    pub fn thaw(&self) {
        self.signal_all(Signal::SIGCONT);
    }

    fn signal_all(&self, signal: Signal) {
        let postmaster = i32::try_from(self.process.as_ref().unwrap().id()).unwrap();
        // The postmaster first: it must not start another in the meantime.
        for pid in std::iter::once(postmaster).chain(children(postmaster)) {
            let _ended_meanwhile = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Reads this server's table and judges, whatever the load was.
    pub async fn judge(&self, history: &History) -> Verdict {
        judge(&self.access(), history, &[self.target()], PATIENCE).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let pid = i32::try_from(process.id()).unwrap();
        for child in std::iter::once(pid).chain(children(pid)) {
            let _gone = kill(Pid::from_raw(child), Signal::SIGCONT);
        }
        let _gone = kill(Pid::from_raw(pid), Signal::SIGQUIT);
        let started = Instant::now();
        while matches!(process.try_wait(), Ok(None)) {
            if started.elapsed() > Duration::from_secs(10) {
                let _gone = process.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A probe that looks often and gives up soon.
pub fn settings(access: Access) -> Settings {
    let deadlines =
        Deadlines { statement: Duration::from_secs(1), commit: Duration::from_secs(1), ..Deadlines::default() };
    Settings { sessions: 2, new: 1, deadlines, ready_within: PATIENCE, ..Settings::new(access) }
}

/// Reads the tables and judges. Machines that run tests are busy: how thin the load was is not the question.
pub async fn judge(access: &Access, history: &History, instances: &[Target], within: Duration) -> Verdict {
    let tables = finals(access, &[history.run().to_owned()], instances, Deadlines::default(), within).await;
    let rules = Rules { least_rate: 0.0, least_time: Duration::ZERO };
    check(std::slice::from_ref(history), &tables, &rules).unwrap()
}

/// Asks again until it is so.
pub async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
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

fn as_postgres(command: &mut Command) -> &mut Command {
    use std::os::unix::process::CommandExt as _;
    if let Some(user) = postgres_user() {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    command.current_dir("/").env("LC_ALL", "C")
}

/// The processes whose parent this is.
fn children(parent: i32) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| parent_of(Path::new(&format!("/proc/{pid}/stat"))) == Some(parent)).collect()
}

/// The fourth field, counted after the name, which may hold anything.
fn parent_of(stat: &Path) -> Option<i32> {
    let text = std::fs::read_to_string(stat).ok()?;
    text.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}
