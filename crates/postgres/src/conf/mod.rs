//! Writes `postgresql.conf`: our defaults, then the user's parameters, then what the product owns.
//!
//! PostgreSQL takes the last of several lines for one setting, so owned ones stand last; and a parameter that is owned
//! is refused before it comes to that. Must never happen: that a user's parameter, or `ALTER SYSTEM`, changes an
//! owned one (replication or fencing would rest on it).

mod ours;
mod value;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bellwether_api::owned;
use bellwether_core::instance::space::WalRoom;

use crate::conninfo::ConnInfo;
use crate::file::{self, Written};
use crate::installation::Installation;
use crate::slot::SlotName;
use crate::socket::SocketDir;

pub use ours::{MAX_SLOTS, MAX_WAL_SENDERS};
pub use value::BadSetting;

/// The file's name in the data directory.
pub const NAME: &str = "postgresql.conf";
/// The file that `ALTER SYSTEM` writes; PostgreSQL reads it after [`NAME`].
const AUTO: &str = "postgresql.auto.conf";

/// What the product decides about a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// The instance's name; it shows in `ps` and in the log.
    pub instance: String,
    /// Where it listens. Nowhere when empty: a server that is being set up accepts nobody but its agent.
    pub listen: Vec<IpAddr>,
    /// Its port.
    pub port: u16,
    /// The directory of its Unix socket.
    pub socket_dir: SocketDir,
    /// Its certificate. `None` only while it listens nowhere.
    pub tls: Option<ServerTls>,
    /// Whom it follows when it is a standby. A primary has it too, of no effect: the setting then needs no restart.
    pub upstream: Option<Upstream>,
    /// Which commits wait for which standbys.
    pub synchronous: Synchronous,
    /// Whether it accepts writes.
    pub writes: Writes,
    /// The term in which it leads, for whoever asks over SQL.
    pub term: Option<u64>,
    /// How much of its volume the log may take; PostgreSQL's defaults when the volume's size is not known.
    pub wal_room: Option<WalRoom>,
    /// What a setting must not be below: a standby's, of what its WAL was written with.
    pub least: BTreeMap<String, u64>,
    /// What PostgreSQL calls for each file of its log, where there is an archive.
    pub archive_command: Option<String>,
}

/// Whether a primary accepts writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// As it is.
    #[default]
    Accepted,
    /// Not from who doesn't say explicitly that it writes: there is no room.
    Refused,
}

/// The server's TLS files, PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTls {
    /// The certificate.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority that client certificates are checked against.
    pub ca: PathBuf,
}

impl ServerTls {
    /// The files of a mounted Secret.
    pub fn in_dir(dir: &Path) -> Self {
        use bellwether_core::contract::key;
        Self { cert: dir.join(key::TLS_CRT), key: dir.join(key::TLS_KEY), ca: dir.join(key::CA_CRT) }
    }
}

/// Whom a standby follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// How to reach it.
    pub conninfo: ConnInfo,
    /// The own slot there.
    pub slot: SlotName,
}

/// Which commits wait for which standbys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// None waits.
    #[default]
    Off,
    /// Each waits for this many of these.
    Any {
        /// How many must have it.
        quorum: usize,
        /// The instances that count.
        voters: Vec<String>,
    },
}

impl Synchronous {
    /// The value of `synchronous_standby_names`.
    pub fn names(&self) -> String {
        match self {
            Self::Off => String::new(),
            Self::Any { quorum, voters } => {
                let quoted: Vec<_> = voters.iter().map(|name| format!("\"{}\"", name.replace('"', "\"\""))).collect();
                format!("ANY {quorum} ({})", quoted.join(", "))
            }
        }
    }
}

/// Why the configuration was not written.
#[derive(Debug, thiserror::Error)]
pub enum ConfError {
    /// A parameter of the user's is to blame.
    #[error(transparent)]
    Setting(#[from] BadSetting),
    /// A server that listens must have a certificate.
    #[error("instance {instance}: asked to listen without a certificate")]
    ListensWithoutTls {
        /// The instance.
        instance: String,
    },
    /// The file can't be written.
    #[error("{path:?}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// PostgreSQL does not accept what was written.
    #[error("PostgreSQL does not accept the configuration: {message}")]
    Refused {
        /// What it said.
        message: String,
    },
}

/// The text of `postgresql.conf` for this version.
pub fn render(
    installation: &Installation,
    settings: &ServerSettings,
    parameters: &BTreeMap<String, String>,
) -> Result<String, ConfError> {
    if settings.tls.is_none() && !settings.listen.is_empty() {
        return Err(ConfError::ListensWithoutTls { instance: settings.instance.clone() });
    }
    let mut text = String::from("# Written by Bellwether; changes here are lost. Use spec.parameters.\n");
    text.push_str("\n# Defaults\n");
    for (name, value) in ours::defaults(settings.wal_room) {
        text.push_str(&value::line(name, &value)?);
    }
    text.push_str("\n# spec.parameters\n");
    for (name, value) in parameters {
        let line = value::line(name, value)?;
        if let Some(owner) = owned::owner_of(name) {
            return Err(BadSetting::Owned { name: name.clone(), value: value.clone(), owner }.into());
        }
        text.push_str(&line);
    }
    // Written after the user's, so it counts.
    for (name, least) in held(parameters, &settings.least) {
        text.push_str(&value::line(name, &least.to_string())?);
    }
    text.push_str("\n# Owned by Bellwether\n");
    for (name, value) in ours::owned(installation, settings) {
        text.push_str(&value::line(name, &value)?);
    }
    Ok(text)
}

/// Which of these parameters a standby has above the user's, for certain, because it must not be below the least.
pub fn above(parameters: &BTreeMap<String, String>, least: &BTreeMap<String, u64>) -> Vec<String> {
    let a_number = |name: &str| parameters.get(name).is_none_or(|value| value.trim().parse::<u64>().is_ok());
    let held = held(parameters, least).into_iter().map(|(name, _)| name);
    held.filter(|name| a_number(name)).map(str::to_owned).collect()
}

/// Which are written so. What can't be read as a number may be below.
fn held<'a>(parameters: &BTreeMap<String, String>, least: &'a BTreeMap<String, u64>) -> Vec<(&'a str, u64)> {
    let defaults: BTreeMap<_, _> = ours::defaults(None).into_iter().collect();
    let below = |(name, least): &(&'a String, &u64)| {
        let configured = parameters.get(*name).or_else(|| defaults.get(name.as_str()));
        configured.and_then(|value| value.trim().parse().ok()).is_none_or(|value: u64| value < **least)
    };
    least.iter().filter(below).map(|(name, least)| (name.as_str(), *least)).collect()
}

/// What [`install`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Whether PostgreSQL has to read its configuration again.
    pub written: Written,
    /// Settings of `ALTER SYSTEM` that were thrown away, by name.
    pub discarded: Vec<String>,
}

/// Puts the text in place. What `ALTER SYSTEM` has left is thrown away: it would override every line of ours. (From
/// PostgreSQL 17 on the server refuses the command itself; before, this is all that can be done.)
pub fn install(data_dir: &Path, text: &str) -> Result<Installed, ConfError> {
    let replace = |path: PathBuf, text: &str| {
        file::rewrite(&path, text.as_bytes()).map_err(|source| ConfError::Io { path, source })
    };
    let auto = data_dir.join(AUTO);
    let discarded = match std::fs::read_to_string(&auto) {
        Ok(text) => assigned_names(&text),
        Err(e) if e.kind() == io::ErrorKind::NotFound => vec![],
        Err(source) => return Err(ConfError::Io { path: auto, source }),
    };
    let emptied = replace(auto, "# Kept empty by Bellwether: use spec.parameters instead of ALTER SYSTEM.\n")?;
    let written = replace(data_dir.join(NAME), text)?;
    let written = if emptied.changed() && !discarded.is_empty() { Written::Changed } else { written };
    Ok(Installed { written, discarded })
}

fn assigned_names(text: &str) -> Vec<String> {
    let assignments = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    assignments.filter_map(|line| line.split(['=', ' ']).next()).map(str::to_owned).collect()
}

/// Asks PostgreSQL itself for a setting's value in this directory's configuration, without starting a server. It reads the
/// whole file for that, so any setting will do to find out whether the file is accepted.
pub fn effective(installation: &Installation, data_dir: &Path, name: &str) -> Result<String, ConfError> {
    let program = installation.program("postgres");
    let output = Command::new(&program)
        .args(["-C", name, "-D"])
        .arg(data_dir)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|source| ConfError::Io { path: program, source })?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(ConfError::Refused { message });
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

#[cfg(test)]
mod tests;
