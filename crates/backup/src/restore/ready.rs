//! Makes what was unpacked recover by itself when PostgreSQL is started on it: as a database of its own, which does nothing for its original ([`super::apart`]).
//!
//! Never: a server that listens beyond this machine, or lets somebody in without a password who could not read the files anyway.

use std::path::{Path, PathBuf};

use bellwether_core::contract::SUPERUSER;
use bellwether_core::wal::SystemIdentifier;
use bellwether_postgres::Installation;
use bellwether_postgres::control::{self, ControlError};

use super::apart::{self, ORIGINAL};
use super::owner::{RunAs, give};
use super::recovery::Recovery;
use super::{RestoreError, io_error};
use crate::record::Commit;

/// What a system takes as the path of a socket, less its name there and the closing zero.
const LONGEST_SOCKET_DIR: usize = 107 - "/.s.PGSQL.65535".len();

/// Who reaches the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Door {
    /// Whoever is on this machine and has a password; and by a socket in its directory, whoever may enter that.
    Machine,
    /// Whoever may enter this directory, by the socket there. It has no network.
    Directory(PathBuf),
}

/// How the database stands there.
#[derive(Clone, Debug)]
pub struct Standing<'a> {
    /// The PostgreSQL that will be started on it: of the backup's major version.
    pub installation: &'a Installation,
    /// Its port.
    pub port: u16,
    /// Who reaches it there.
    pub door: Door,
    /// Where the log comes from, and how far to go.
    pub recovery: Recovery,
    /// The shell command that PostgreSQL runs once when it has recovered.
    pub end_command: String,
    /// Who PostgreSQL runs as, if not whoever we are.
    pub run_as: Option<RunAs>,
    /// Other directories that belong to it: of the log, and of tablespaces.
    pub outside: Vec<PathBuf>,
}

/// Why it can't be made ready.
#[derive(Debug, thiserror::Error)]
pub enum ReadyError {
    /// The system does not let us.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// Its control file can't be read.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// What was unpacked is another database.
    #[error("what was unpacked is database {found}, and the commit says {expected}")]
    OtherDatabase {
        /// What the commit says.
        expected: SystemIdentifier,
        /// What the control file says.
        found: SystemIdentifier,
    },
}

/// The directory of its socket: the data directory, which only its owner can enter. Nothing where that is too long a path for one.
pub fn socket_dir(data: &Path) -> Option<&Path> {
    (data.as_os_str().len() <= LONGEST_SOCKET_DIR).then_some(data)
}

/// Writes all that PostgreSQL needs to recover there, where a backup was unpacked with its configuration aside ([`super::Configuration`]), and gives it to whoever will run it.
pub async fn make_ready(commit: &Commit, data: &Path, standing: &Standing<'_>) -> Result<(), ReadyError> {
    let control = control::read(standing.installation, data).await?;
    if control.system_identifier != commit.system_identifier {
        return Err(ReadyError::OtherDatabase { expected: commit.system_identifier, found: control.system_identifier });
    }
    let mut lines = format!(
        "# Restored from backup {}. Nothing of the original's settings is in effect; they are in files that end in {ORIGINAL}.\n\
         # These keep this copy from acting for its original: who wants it in its place changes them.\n",
        commit.id
    );
    let (listen, sockets) = match &standing.door {
        Door::Machine => ("127.0.0.1", socket_dir(data)),
        Door::Directory(directory) => ("", Some(directory.as_path())),
    };
    let socket = sockets.map(|dir| dir.display().to_string()).unwrap_or_default();
    let placed = [
        ("listen_addresses", listen.to_owned()),
        ("port", standing.port.to_string()),
        ("unix_socket_directories", socket),
    ];
    lines.extend(apart::owned().chain(placed).map(|(name, value)| apart::line(name, &value)));
    lines.push_str("# The log was written with these; less is not enough to read it.\n");
    lines.extend(apart::least(&control).map(|(name, value)| apart::line(&name, &value)));
    lines.push_str("# The recovery. Of no effect once it is over.\n");
    lines.push_str(&apart::line("recovery_end_command", &standing.end_command));
    // Whoever reaches the socket has entered a directory that only PostgreSQL's own user can enter, and could change this file.
    let hba =
        format!("local all {SUPERUSER} trust\nlocal all all scram-sha-256\nhost all all 127.0.0.1/32 scram-sha-256\n");
    apart::write(data, &lines, &standing.recovery, &hba)?;
    if let Some(who) = standing.run_as {
        let roots = [data.to_owned()].into_iter().chain(standing.outside.iter().cloned());
        roots.into_iter().try_for_each(|root| give(&root, who))?;
    }
    // What PostgreSQL starts from survives a crash from here on, as what was unpacked does.
    let synced = std::fs::File::open(data).and_then(|dir| nix::unistd::syncfs(dir).map_err(std::io::Error::from));
    Ok(synced.map_err(|cause| io_error("sync the file system of", data, cause))?)
}
