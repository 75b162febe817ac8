//! The place of a verification, and the server that runs in it: both are gone when it ends, however it ends.
//!
//! Never: a server without a place, or a place that is left because nobody waited; a directory removed that is not ours ([`OURS`] says whose it is).

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use bellwether_postgres::file::is_absent_or_empty;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use super::{RestoreError, VerifyError};
use crate::restore::io_error;
use crate::restore::owner::{RunAs, give};

/// What tells a place of ours from a directory that somebody named by mistake.
const OURS: &str = "bellwether.scratch";
/// How much of the server's log is told.
const TAIL: u64 = 4 << 10;
/// How long a server that is of no use any more may take to end before it is killed.
const FAREWELL: Duration = Duration::from_secs(10);

/// How often it is tried to remove a directory in which somebody still writes.
const ATTEMPTS: u32 = 20;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);

/// Makes a program of PostgreSQL's run as somebody, from where everybody may be.
pub(super) fn run_as(command: &mut Command, who: Option<RunAs>) {
    if let Some(RunAs { uid, gid }) = who {
        command.uid(uid).gid(gid);
    }
    command.current_dir("/").env("LC_ALL", "C");
}

/// The place of a verification.
pub(super) struct Scratch {
    dir: PathBuf,
    socket_dir: PathBuf,
    server: Option<Child>,
    /// Whether there is still something to be removed.
    is_there: bool,
}

impl Scratch {
    /// Makes it anew.
    pub(super) async fn make(dir: &Path, socket_dir: Option<&Path>) -> Result<Self, VerifyError> {
        let (dir, apart) = (dir.to_owned(), socket_dir.map(Path::to_owned));
        let made = tokio::task::spawn_blocking(move || {
            if dir.join(OURS).exists() {
                fs::remove_dir_all(&dir).map_err(|cause| io_error("remove", &dir, cause))?;
            }
            if !is_absent_or_empty(&dir).map_err(|cause| io_error("look into", &dir, cause))? {
                return Err(RestoreError::NotEmpty { dir, half: false });
            }
            let private = |dir: &Path| DirBuilder::new().recursive(true).mode(0o700).create(dir);
            let socket_dir = apart.unwrap_or_else(|| dir.join("socket"));
            let scratch = Self { dir, socket_dir, server: None, is_there: true };
            private(&scratch.dir)
                .and_then(|()| File::create(scratch.dir.join(OURS)).map(drop))
                .and_then(|()| private(&scratch.socket_dir))
                .map_err(|cause| io_error("make", &scratch.dir, cause))?;
            Ok(scratch)
        });
        Ok(made.await.unwrap_or_else(|_| Err(RestoreError::Aborted { key: "the scratch directory".to_owned() }))?)
    }

    /// The data directory. Tablespaces are beside it.
    pub(super) fn data(&self) -> PathBuf {
        self.dir.join("data")
    }
    /// The log that the backup needs.
    pub(super) fn wal(&self) -> PathBuf {
        self.dir.join("wal")
    }
    /// The directory of the server's socket.
    pub(super) fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }
    fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Gives everything in it to whoever PostgreSQL runs as.
    pub(super) async fn give_to(&self, who: Option<RunAs>) -> Result<(), VerifyError> {
        let Some(who) = who else { return Ok(()) };
        let roots = [self.dir.clone(), self.socket_dir.clone()];
        let given = tokio::task::spawn_blocking(move || roots.iter().try_for_each(|root| give(root, who)));
        given.await.unwrap_or_else(|_| Err(RestoreError::Aborted { key: "the scratch directory".to_owned() }))?;
        Ok(())
    }

    /// Starts the server, and lives as long as it.
    pub(super) fn start(&mut self, mut command: Command) -> Result<(), VerifyError> {
        let log = File::create(self.log()).map_err(|cause| io_error("create", &self.log(), cause))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        let server = command.spawn().map_err(|cause| VerifyError::Io { what: "run postgres".to_owned(), cause })?;
        self.server = Some(server);
        Ok(())
    }

    /// Whether the server has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        self.server.as_mut().is_none_or(|server| !matches!(server.try_wait(), Ok(None)))
    }

    /// The end of the server's log, in one line for each of its own.
    pub(super) fn finding(&self) -> String {
        let tail = File::open(self.log()).and_then(|mut log| {
            let length = log.metadata()?.len();
            log.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
            let mut tail = vec![];
            log.take(TAIL).read_to_end(&mut tail)?;
            Ok(String::from_utf8_lossy(&tail).trim().to_owned())
        });
        tail.unwrap_or_else(|error| format!("its log can't be read: {error}"))
    }

    /// Stops the server cleanly.
    pub(super) async fn stop(&mut self) -> Result<(), VerifyError> {
        let Some(server) = &mut self.server else { return Ok(()) };
        signal(server, Signal::SIGINT);
        let ended = server.wait().await;
        self.server = None;
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(VerifyError::NotStopped { finding: format!("{status}: {}", self.finding()) }),
            Err(cause) => Err(VerifyError::Io { what: "wait for postgres".to_owned(), cause }),
        }
    }

    /// Stops the server if it still runs, and removes everything.
    pub(super) async fn close(mut self) {
        if let Some(mut server) = self.server.take() {
            signal(&server, Signal::SIGQUIT);
            if tokio::time::timeout(FAREWELL, server.wait()).await.is_err() {
                // Whatever comes of it, there is no more that could be done.
                drop(server.kill().await);
            }
        }
        self.is_there = false;
        let places = [self.dir.clone(), self.socket_dir.clone()];
        drop(tokio::task::spawn_blocking(move || remove(&places)).await);
    }
}

impl Drop for Scratch {
    /// Nobody waits: a thread of its own does what [`Scratch::close`] does.
    fn drop(&mut self) {
        if !self.is_there {
            return;
        }
        let (server, places) = (self.server.take(), [self.dir.clone(), self.socket_dir.clone()]);
        std::thread::spawn(move || {
            if let Some(mut server) = server {
                signal(&server, Signal::SIGQUIT);
                let started = Instant::now();
                while matches!(server.try_wait(), Ok(None)) {
                    if started.elapsed() > FAREWELL {
                        signal(&server, Signal::SIGKILL);
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            remove(&places);
        });
    }
}

fn signal(server: &Child, signal: Signal) {
    if let Some(pid) = server.id().and_then(|pid| i32::try_from(pid).ok()) {
        // One that has ended needs none.
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

fn remove(places: &[PathBuf]) {
    for place in places {
        // A server that was killed may have left processes that write for another moment, and so may threads that unpack.
        let removed = (0..ATTEMPTS).find_map(|_| match fs::remove_dir_all(place) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                std::thread::sleep(BETWEEN_ATTEMPTS);
                None
            }
            done => Some(done),
        });
        match removed {
            Some(Ok(())) => {}
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Some(Err(error)) => tracing::warn!(%error, place = %place.display(), "a verification left something"),
            None => tracing::warn!(place = %place.display(), "a verification left something that still grows"),
        }
    }
}
