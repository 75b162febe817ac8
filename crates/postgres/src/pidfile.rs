//! Reads `postmaster.pid`: which postmaster claims a data directory, and how far it has come.
//!
//! The file is written in steps while the server starts, so that later lines may be missing: those are `None`, never a guess.
//! Must never happen: that garbage is taken for a pid (somebody would be signalled).

use std::io;
use std::path::{Path, PathBuf};

/// The file's name in the data directory.
pub const NAME: &str = "postmaster.pid";

/// What the postmaster has written of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pidfile {
    /// Its process id.
    pub pid: i32,
    /// The data directory it serves.
    pub data_dir: PathBuf,
    /// When it started, seconds since 1970.
    pub started: i64,
    /// Its port, once it is known.
    pub port: Option<u16>,
    /// Its first socket directory, once there is one.
    pub socket_dir: Option<PathBuf>,
    /// Its first listen address, once it listens.
    pub listen_address: Option<String>,
    /// How far it has come, once it says so.
    pub status: Option<Status>,
}

/// What a postmaster says it is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not ready for connections yet.
    Starting,
    /// Going down.
    Stopping,
    /// Ready for connections.
    Ready,
    /// Up, in recovery, without accepting connections.
    Standby,
}

/// Why there is nothing to say about the postmaster.
#[derive(Debug, thiserror::Error)]
pub enum PidfileError {
    /// The file can't be read.
    #[error("{path:?}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is not what a postmaster writes. An empty one is left by a full disk.
    #[error("{path:?}, line {line}: {text:?} is not {expected}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What stands there.
        text: String,
        /// What should.
        expected: &'static str,
    },
}

/// Reads the file of a data directory; `None` when there is none, that is when no postmaster claims the directory.
pub fn read(data_dir: &Path) -> Result<Option<Pidfile>, PidfileError> {
    let path = data_dir.join(NAME);
    match std::fs::read_to_string(&path) {
        Ok(text) => parse(&path, &text).map(Some),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PidfileError::Io { path, source }),
    }
}

fn parse(path: &Path, text: &str) -> Result<Pidfile, PidfileError> {
    let lines: Vec<&str> = text.lines().collect();
    let line = |n: usize| lines.get(n - 1).map_or("", |line| line.trim_end());
    let bad =
        |n, expected| PidfileError::Malformed { path: path.to_owned(), line: n, text: line(n).to_owned(), expected };
    let given = |n: usize| Some(line(n)).filter(|text| !text.is_empty());

    // A standalone backend writes its pid negated; it is a process all the same.
    let pid: i32 = line(1).parse().map_err(|_| bad(1, "a process id"))?;
    let pid = pid.checked_abs().filter(|pid| *pid > 1).ok_or_else(|| bad(1, "a process id"))?;
    let status = given(8).map(|text| match text {
        "starting" => Ok(Status::Starting),
        "stopping" => Ok(Status::Stopping),
        "ready" => Ok(Status::Ready),
        "standby" => Ok(Status::Standby),
        _ => Err(bad(8, "a postmaster's status")),
    });
    Ok(Pidfile {
        pid,
        data_dir: given(2).map(PathBuf::from).ok_or_else(|| bad(2, "a data directory"))?,
        started: line(3).parse().map_err(|_| bad(3, "a start time"))?,
        port: given(4).map(|text| text.parse().map_err(|_| bad(4, "a port"))).transpose()?,
        socket_dir: given(5).map(PathBuf::from),
        listen_address: given(6).map(str::to_owned),
        status: status.transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Pidfile, PidfileError> {
        parse(Path::new("/data/postmaster.pid"), text)
    }

    const READY: &str = "4242\n/data\n1763249000\n5432\n/run/s\n127.0.0.2\n  5432001     32768\nready   \n";

    #[test]
    fn a_running_server_says_everything() {
        assert_eq!(
            read_text(READY).unwrap(),
            Pidfile {
                pid: 4242,
                data_dir: "/data".into(),
                started: 1_763_249_000,
                port: Some(5432),
                socket_dir: Some("/run/s".into()),
                listen_address: Some("127.0.0.2".into()),
                status: Some(Status::Ready),
            }
        );
    }

    #[test]
    fn what_is_not_written_yet_is_not_known() {
        let early = read_text("4242\n/data\n1763249000\n5432\n").unwrap();
        assert_eq!((early.port, early.socket_dir, early.status), (Some(5432), None, None));
    }

    #[test]
    fn garbage_is_never_a_pid() {
        for text in ["", "\n", "x\n/data\n1\n", "0\n/data\n1\n", "1\n/data\n1\n", "-2147483648\n/data\n1\n", "12\n"] {
            assert!(read_text(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn no_file_is_no_postmaster() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path()).unwrap().is_none());
    }
}
