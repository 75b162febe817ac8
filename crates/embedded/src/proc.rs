//! The machine's processes, read from `/proc`: whose they are, and how to end a tree of them for certain.
//!
//! Every process of a home carries its data directory in the environment ([`HOME_MARKER`]); PostgreSQL's backends, which
//! write their title over that, are known by their program and by the volume that they work in. Nothing is remembered
//! between runs: a list of pids on disk is stale after a crash, and misses grandchildren. Never: a signal to a process that
//! doesn't carry the mark at the moment of killing.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The environment variable that names the data directory of a process's home.
pub const HOME_MARKER: &str = "BELLWETHER_UP_DIRECTORY";
/// The environment variable with the UID of a process's pod.
pub const POD_MARKER: &str = bellwether_core::contract::env::POD_UID;

/// A process at one moment. The start time tells it from a later one with the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// Its parent's id.
    pub parent: i32,
    start_time: u64,
    zombie: bool,
}

impl Process {
    /// The process with this id, if there is one.
    pub fn find(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the program's name in parentheses, and may itself hold spaces and parentheses.
        let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
        let zombie = matches!(fields.next()?, "Z" | "X");
        let parent = fields.next()?.parse().ok()?;
        let start_time = fields.nth(17)?.parse().ok()?;
        Some(Self { pid, parent, start_time, zombie })
    }

    fn all() -> Vec<Self> {
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        pids.filter_map(|entry| Self::find(entry.file_name().to_str()?.parse().ok()?)).collect()
    }

    fn environment(self, name: &str) -> Option<String> {
        let environ = fs::read(format!("/proc/{}/environ", self.pid)).ok()?;
        let prefix = format!("{name}=");
        let value = environ.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(prefix.as_bytes()))?;
        Some(String::from_utf8_lossy(value).into_owned())
    }

    fn program(self) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/exe", self.pid)).ok()
    }

    fn is_alive(self) -> bool {
        !self.zombie && Self::find(self.pid).is_some_and(|now| now.start_time == self.start_time && !now.zombie)
    }

    /// Signals the process if it is still the one that was found.
    fn signal(self, signal: Signal) {
        if self.is_alive() {
            let _gone_meanwhile = kill(Pid::from_raw(self.pid), signal);
        }
    }
}

/// Whose processes are meant.
#[derive(Clone, Debug)]
pub enum Scope {
    /// Everything that the home with this data directory started.
    Home(PathBuf),
    /// Everything of one pod: its UID, and the directories of its volumes.
    Pod {
        /// The home's data directory.
        home: PathBuf,
        /// The pod's UID.
        uid: String,
        /// The local directories of its volumes.
        volumes: Vec<PathBuf>,
    },
}

impl Scope {
    fn holds(&self, process: Process) -> bool {
        let (home, volumes) = match self {
            Self::Home(home) => (home, vec![home.join("volumes")]),
            Self::Pod { home, volumes, .. } => (home, volumes.clone()),
        };
        let marked = process.environment(HOME_MARKER).is_some_and(|marker| Path::new(&marker) == home);
        let of_pod = match self {
            Self::Home(_) => true,
            Self::Pod { uid, .. } => process.environment(POD_MARKER).as_ref() == Some(uid),
        };
        (marked && of_pod) || is_backend_in(process, &volumes)
    }

    /// The processes in this scope, ourselves apart.
    pub fn processes(&self) -> Vec<Process> {
        let own = std::process::id();
        let candidates = Process::all().into_iter().filter(|p| !p.zombie && p.pid.cast_unsigned() != own);
        candidates.filter(|process| self.holds(*process)).collect()
    }
}

/// A PostgreSQL process works in its data directory; a person's shell or `ls` there isn't one.
fn is_backend_in(process: Process, volumes: &[PathBuf]) -> bool {
    let is_postgres = process.program().is_some_and(|path| path.file_name().is_some_and(|name| name == "postgres"));
    let directory = || fs::read_link(format!("/proc/{}/cwd", process.pid)).ok();
    is_postgres && directory().is_some_and(|cwd| volumes.iter().any(|volume| cwd.starts_with(volume)))
}

/// Kills everything in the scope, and what these have started, until nothing is left. A process that forks while we look
/// is found by the next look.
pub async fn kill_all(scope: &Scope) {
    loop {
        let found = with_descendants(scope.processes());
        if found.is_empty() {
            return;
        }
        for process in &found {
            process.signal(Signal::SIGKILL);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Asks the topmost processes of the scope to end, waits up to `patience`, then kills what is left. Returns how many there
/// were.
pub async fn stop_all(scope: &Scope, patience: Duration) -> usize {
    let found = scope.processes();
    let pids: BTreeSet<i32> = found.iter().map(|process| process.pid).collect();
    for process in found.iter().filter(|process| !pids.contains(&process.parent)) {
        process.signal(Signal::SIGTERM);
    }
    let deadline = tokio::time::Instant::now() + patience;
    while found.iter().any(|process| process.is_alive()) && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    kill_all(scope).await;
    found.len()
}

fn with_descendants(roots: Vec<Process>) -> BTreeSet<Process> {
    let mut found: BTreeSet<Process> = roots.into_iter().collect();
    if found.is_empty() {
        return found;
    }
    let all = Process::all();
    loop {
        let pids: BTreeSet<i32> = found.iter().map(|process| process.pid).collect();
        let before = found.len();
        found.extend(all.iter().filter(|p| pids.contains(&p.parent) && !p.zombie));
        if found.len() == before {
            return found;
        }
    }
}

/// Who listens on an address (or on all addresses, at that port): pid and program.
pub fn listener(address: SocketAddr) -> Option<(i32, String)> {
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let table6 = fs::read_to_string("/proc/net/tcp6").unwrap_or_default();
    let inode = table.lines().chain(table6.lines()).find_map(|line| listening_inode(line, address))?;
    let wanted = format!("socket:[{inode}]");
    Process::all().into_iter().find_map(|process| {
        let mut fds = fs::read_dir(format!("/proc/{}/fd", process.pid)).ok()?.flatten();
        fds.find(|fd| fs::read_link(fd.path()).is_ok_and(|link| link.to_str() == Some(&wanted)))?;
        let name = fs::read_to_string(format!("/proc/{}/comm", process.pid)).ok()?;
        Some((process.pid, name.trim().to_owned()))
    })
}

/// The inode in a line of `/proc/net/tcp` whose socket listens where `address` would.
fn listening_inode(line: &str, address: SocketAddr) -> Option<&str> {
    const LISTEN: &str = "0A";
    let mut fields = line.split_whitespace().skip(1);
    let (local, _remote, state) = (fields.next()?, fields.next()?, fields.next()?);
    let (ip, port) = local.split_once(':')?;
    let is_everywhere = ip.bytes().all(|digit| digit == b'0');
    let is_it = match address {
        SocketAddr::V4(v4) => ip == format!("{:08X}", u32::from_le_bytes(v4.ip().octets())),
        SocketAddr::V6(_) => false,
    };
    let port = u16::from_str_radix(port, 16).ok()?;
    if state != LISTEN || port != address.port() || !(is_everywhere || is_it) {
        return None;
    }
    fields.nth(5)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    struct Sleeper(Child);
    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _gone = self.0.kill();
            let _reaped = self.0.wait();
        }
    }

    fn sleeper(home: &Path) -> Sleeper {
        Sleeper(Command::new("sleep").arg("600").env(HOME_MARKER, home).env(POD_MARKER, "u1").spawn().unwrap())
    }

    #[tokio::test]
    async fn only_marked_processes_are_killed() {
        let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (mut our_process, mut stranger) = (sleeper(ours.path()), sleeper(theirs.path()));
        let scope = Scope::Home(ours.path().to_owned());
        // The mark is in place once the child has replaced our image by its own.
        while scope.processes().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(stop_all(&scope, Duration::from_secs(5)).await, 1);
        assert!(our_process.0.wait().is_ok());
        assert!(stranger.0.try_wait().unwrap().is_none(), "the stranger lives");
    }

    #[tokio::test]
    async fn another_pods_processes_are_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let mut process = sleeper(home.path());
        let scope = |uid: &str| Scope::Pod { home: home.path().to_owned(), uid: uid.to_owned(), volumes: vec![] };
        while scope("u1").processes().is_empty() {
            tokio::task::yield_now().await;
        }
        kill_all(&scope("u2")).await;
        assert!(process.0.try_wait().unwrap().is_none());
    }

    #[test]
    fn the_listener_of_a_busy_port_is_named() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (pid, _) = listener(socket.local_addr().unwrap()).unwrap();
        assert_eq!(pid.cast_unsigned(), std::process::id());
    }
}
