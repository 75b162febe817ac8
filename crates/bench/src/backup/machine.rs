//! Running programs as PostgreSQL's own user, for no longer than they may take.
//!
//! Never: a program of the benchmark's that outlives it; root for PostgreSQL, or for whatever reads its files.

use std::ffi::OsStr;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::unistd::{User, geteuid};
use tokio::process::Command;
use tokio::time::timeout;

use crate::{BenchError, failed};

/// Nothing that is measured takes as long as this, with data that fit on a disk.
pub const PATIENCE: Duration = Duration::from_secs(3600);

/// Where everything happens: a directory of PostgreSQL's own, and his user.
pub struct Machine {
    dir: PathBuf,
    user: Option<User>,
}

impl Machine {
    /// In this directory, which is there and is empty.
    pub fn new(dir: &Path) -> Result<Self, BenchError> {
        let user = if geteuid().is_root() {
            let found = User::from_name("postgres").map_err(|error| failed("the user postgres", error))?;
            Some(found.ok_or_else(|| failed("the user postgres", "there is none, and PostgreSQL refuses root"))?)
        } else {
            None
        };
        let machine = Self { dir: dir.to_owned(), user };
        machine.give(dir)?;
        Ok(machine)
    }

    /// Something in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A new directory, in the place of what was there.
    pub fn fresh(&self, name: &str) -> Result<PathBuf, BenchError> {
        let path = self.path(name);
        self.remove(name)?;
        std::fs::create_dir_all(&path).map_err(|error| failed(name, error))?;
        self.give(&path)?;
        Ok(path)
    }

    /// Removes what is there, if it is.
    pub fn remove(&self, name: &str) -> Result<(), BenchError> {
        match std::fs::remove_dir_all(self.path(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(name, error)),
            _ => Ok(()),
        }
    }

    /// A file that PostgreSQL's user alone reads.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, BenchError> {
        use std::io::Write as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        let path = self.path(name);
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        let written = file.as_mut().map_err(|error| failed(name, error))?.write_all(text.as_bytes());
        written.map_err(|error| failed(name, error))?;
        self.give(&path)?;
        Ok(path)
    }

    fn give(&self, path: &Path) -> Result<(), BenchError> {
        let Some(user) = &self.user else { return Ok(()) };
        let given = chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()));
        given.map_err(|error| failed(&path.display().to_string(), error))
    }

    /// A program, as PostgreSQL's user. It ends with whoever started it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        if let Some(user) = &self.user {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command
            .current_dir(&self.dir)
            .env("LC_ALL", "C")
            .env("HOME", &self.dir)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Waits until what is below here is on disk, whoever left it in memory.
    pub async fn settle(&self) -> Result<(), BenchError> {
        run(self.command("sync").arg("-f").arg(&self.dir)).await.map(drop)
    }
}

/// Runs a program to its end: what it said, and how long it took.
pub async fn run(command: &mut Command) -> Result<(String, Duration), BenchError> {
    let what = command.as_std().get_program().to_string_lossy().into_owned();
    let began = Instant::now();
    let ended = timeout(PATIENCE, command.output()).await.map_err(|_| failed(&what, "it does not end"))?;
    let output = ended.map_err(|error| failed(&what, error))?;
    let took = began.elapsed();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok((said, took));
    }
    let complained = String::from_utf8_lossy(&output.stderr);
    Err(failed(&what, format!("{}: {said}{complained}", output.status)))
}
