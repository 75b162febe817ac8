//! A home for tests with real PostgreSQL: a directory of its own, the unprivileged user, and processes that are gone when the
//! test is, however it ends.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use bellwether_agent::process::tree::{self, Process};
use bellwether_postgres::{Installation, installation};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User};

/// How long anything may take before a test calls it broken.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A PostgreSQL to test with: the newest that is installed.
pub fn postgresql() -> Installation {
    installation::find_all().pop().expect("PostgreSQL is installed: see `make test`")
}

/// A directory that PostgreSQL's user owns, short enough for a socket.
pub struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("bw").tempdir().expect("a directory");
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("its mode");
        give_away(dir.path());
        Self { dir }
    }
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
    /// A new database in `dir`.
    pub fn initdb(&self, dir: &Path) {
        let mut command = Command::new(postgresql().program("initdb"));
        command.args(["--no-sync", "--no-instructions", "-A", "trust", "-U", "postgres", "-D"]).arg(dir);
        let output = unprivileged(&mut command).output().expect("initdb runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    /// A PostgreSQL without a port, under a supervisor, that answers.
    pub fn supervised_postgres(&self, grace_seconds: u32) -> Supervised {
        let data = self.path().join("pgdata");
        self.initdb(&data);
        let socket = format!("unix_socket_directories={}", self.path().display());
        let supervised = self.supervise(
            grace_seconds,
            &postgresql().program("postgres"),
            &["-D", data.to_str().unwrap(), "-c", "listen_addresses=", "-c", &socket, "-c", "fsync=off"],
        );
        wait_for("PostgreSQL answers", || self.psql("select 1").output().is_ok_and(|output| output.status.success()));
        supervised
    }
    /// A program under a supervisor.
    pub fn supervise(&self, grace_seconds: u32, program: &Path, arguments: &[&str]) -> Supervised {
        let mut command = Command::new(self.roles());
        command.arg("supervise").arg(grace_seconds.to_string()).arg(program).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).current_dir(self.path());
        let mut child = unprivileged(&mut command).spawn().expect("the supervisor starts");
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        output.read_line(&mut line).expect("its first word");
        assert_eq!(line, "running\n");
        Supervised { child, output }
    }
    /// Where the roles' binary is, readable for everybody: the build directory need not be.
    pub fn roles(&self) -> PathBuf {
        let copy = self.path().join("roles");
        if !copy.exists() {
            std::fs::copy(env!("CARGO_BIN_EXE_bellwether-agent"), &copy).expect("a copy");
            std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).expect("its mode");
        }
        copy
    }
    pub fn psql(&self, sql: &str) -> Command {
        let mut command = Command::new(postgresql().program("psql"));
        command.arg("-h").arg(self.path()).args(["-U", "postgres", "-X", "-q", "-A", "-t", "-c", sql]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
    /// Everything that runs in this home.
    pub fn processes(&self) -> Vec<Process> {
        let here = self.path().to_str().expect("a plain path");
        let mine = |process: &Process| {
            let read = |file| std::fs::read(format!("/proc/{}/{file}", process.pid)).unwrap_or_default();
            let cwd = std::fs::read_link(format!("/proc/{}/cwd", process.pid)).unwrap_or_default();
            cwd.starts_with(here) || String::from_utf8_lossy(&read("cmdline")).contains(here)
        };
        tree::all().into_iter().filter(|process| !process.is_zombie() && mine(process)).collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        while !self.processes().is_empty() {
            for process in self.processes() {
                let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A supervisor with something under it.
pub struct Supervised {
    pub child: Child,
    output: BufReader<ChildStdout>,
}

impl Supervised {
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("it is there");
    }
    /// Guard, postmaster, backends: all below the supervisor, parents first.
    pub fn descendants(&self) -> Vec<i32> {
        tree::descendants(self.pid(), &tree::all()).into_iter().map(|process| process.pid).collect()
    }
    /// The one child: the guard.
    pub fn guard(&self) -> i32 {
        let pid = self.pid();
        tree::all().iter().find(|process| process.parent == pid).expect("a guard").pid
    }
    /// The guard's one child: the postmaster.
    pub fn postmaster(&self) -> i32 {
        let guard = self.guard();
        tree::all().iter().find(|process| process.parent == guard).expect("a postmaster").pid
    }
    /// Gives the guard a deadline, in milliseconds from now, or `never`, and waits until it is on its way.
    pub fn guard_until(&mut self, deadline: &str) {
        let input = self.child.stdin.as_mut().expect("its input");
        writeln!(input, "{deadline}").and_then(|()| input.flush()).expect("it listens");
        assert_eq!(self.line(), "noted");
    }
    /// The next line that it says.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }
    /// What the supervisor says in the end, and whether it calls that success.
    pub fn end(&mut self) -> (String, bool) {
        (self.line(), self.child.wait().expect("its end").success())
    }
}

/// Runs it as PostgreSQL's user when we are root: PostgreSQL refuses root.
pub fn unprivileged(command: &mut Command) -> &mut Command {
    match postgres_user() {
        Some(user) => command.uid(user.uid.as_raw()).gid(user.gid.as_raw()),
        None => command,
    }
}

pub fn give_away(path: &Path) {
    if let Some(user) = postgres_user() {
        chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("its owner");
    }
}

fn postgres_user() -> Option<User> {
    let root = nix::unistd::geteuid().is_root();
    root.then(|| User::from_name("postgres").expect("users can be looked up").expect("a user for PostgreSQL"))
}

pub fn is_alive(pid: i32) -> bool {
    tree::all().iter().any(|process| process.pid == pid && !process.is_zombie())
}

/// Waits until it is so.
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until something is so.
pub async fn eventually(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !so().await {
        assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
