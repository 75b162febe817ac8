//! Writes PostgreSQL's configuration for this instance, in the role that it is about to have or has.
//!
//! Never: a standby's configuration without its upstream while there is room, or a primary's with another synchronous replication
//! than the election wants.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use bellwether_core::contract::{Leader, POSTGRES_PORT, REPLICATION_USER};
use bellwether_core::election::{MemberId, Voters};
use bellwether_core::instance::space::{Space, WalRoom};
use bellwether_core::wal::Term;
use bellwether_postgres::conf::{self, ConfError, ServerSettings, ServerTls, Upstream, Writes};
use bellwether_postgres::conninfo::{ClientTls, ConnInfo};
use bellwether_postgres::socket::{SocketDir, SocketDirError};
use bellwether_postgres::{Installation, SlotName, file, hba};

use crate::archive;
use crate::environment::Environment;
use crate::inputs::Inputs;
use crate::synchronous;

/// The role that the configuration is for.
#[derive(Clone, Copy, Debug)]
pub enum RunAs<'a> {
    /// Whose commits wait for these, in this term.
    Primary(Option<&'a Voters>, Term),
    /// Of this leader, or of nobody.
    Standby(Option<&'a Followed>),
    /// Of this leader until its copy is whole: nobody's commits may count on it before.
    Joining(&'a Leader),
}

/// A leader that is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    /// Where it is.
    pub place: Leader,
    /// Which term it leads.
    pub term: Term,
}

/// Why the configuration can't be written.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// `postgresql.conf`.
    #[error(transparent)]
    Conf(#[from] ConfError),
    /// `pg_hba.conf`.
    #[error(transparent)]
    Hba(#[from] hba::BadLine),
    /// The socket's directory.
    #[error(transparent)]
    Socket(#[from] SocketDirError),
    /// The slot's name.
    #[error(transparent)]
    Slot(#[from] bellwether_postgres::slot::NoSlotName),
    /// The leader's address.
    #[error("the Lease gives {address:?} as the leader's address, which is none")]
    Address {
        /// What the Lease gives.
        address: String,
    },
    /// A file.
    #[error("{}: {cause}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What came back.
        cause: std::io::Error,
    },
}

/// Where generated files are, and the socket.
#[derive(Clone, Debug)]
pub struct Places {
    /// The socket's directory.
    pub socket: SocketDir,
    /// The server certificate, staged.
    pub server_tls: PathBuf,
    /// The replication certificate, staged.
    pub replication_tls: PathBuf,
    /// Our own binary, which PostgreSQL calls for each file of its log.
    pub program: PathBuf,
}

impl Places {
    /// Below the run directory.
    pub fn prepare(environment: &Environment) -> Result<Self, SettingsError> {
        let run = &environment.run_dir;
        Ok(Self {
            socket: SocketDir::ensure(&run.join("socket"), POSTGRES_PORT)?,
            server_tls: run.join("server-tls"),
            replication_tls: run.join("replication-tls"),
            program: std::env::current_exe()
                .map_err(|cause| SettingsError::Io { path: "/proc/self/exe".into(), cause })?,
        })
    }

    /// Stages the certificates. Answers whether any is new.
    pub fn stage(&self, inputs: &Inputs) -> Result<bool, SettingsError> {
        let stage = |pem: &crate::inputs::Pem, dir: &Path| {
            pem.stage(dir).map_err(|cause| SettingsError::Io { path: dir.to_owned(), cause })
        };
        let server = stage(&inputs.server_tls, &self.server_tls)?;
        let replication = stage(&inputs.replication_tls, &self.replication_tls)?;
        Ok(server.changed() || replication.changed())
    }

    /// How this instance reaches `leader`, and what it calls itself there.
    fn upstream(
        &self,
        environment: &Environment,
        leader: &Leader,
        application_name: String,
    ) -> Result<Upstream, SettingsError> {
        let address: IpAddr =
            leader.address.parse().map_err(|_| SettingsError::Address { address: leader.address.clone() })?;
        Ok(Upstream {
            conninfo: ConnInfo {
                host: environment.names.host(&leader.instance, &environment.namespace),
                address,
                port: POSTGRES_PORT,
                user: REPLICATION_USER.to_owned(),
                application_name,
                tls: ClientTls::in_dir(&self.replication_tls),
            },
            slot: SlotName::of_instance(&environment.instance)?,
        })
    }

    /// How one does whose copy is not whole yet. Not by its identity: it confirms WAL too, and commits would count on a copy that may
    /// fail yet.
    pub fn joining(&self, environment: &Environment, leader: &Leader) -> Result<Upstream, SettingsError> {
        self.upstream(environment, leader, format!("{}-joining", environment.instance))
    }
}

/// What the configuration has to go by that is on the volume.
#[derive(Clone, Copy, Debug)]
pub struct OnVolume<'a> {
    /// PostgreSQL's data directory.
    pub pgdata: &'a Path,
    /// Who this instance is: a standby goes by it.
    pub identity: MemberId,
    /// What a standby's settings must not be below.
    pub least: &'a BTreeMap<String, u64>,
    /// How much room there is. On a full volume a primary refuses writes, and a standby receives nothing.
    pub space: Space,
}

/// Writes the files. Answers whether any is new, that is whether a running server must read them again.
pub fn write(
    environment: &Environment,
    installation: &Installation,
    inputs: &Inputs,
    places: &Places,
    volume: &OnVolume<'_>,
    run_as: RunAs<'_>,
) -> Result<bool, SettingsError> {
    let full = volume.space == Space::Full;
    let (upstream, synchronous, term) = match run_as {
        RunAs::Primary(voters, term) => (None, synchronous::setting(voters, term), Some(term)),
        // WAL that nobody has room for would end the standby in the middle of its replay.
        RunAs::Standby(Some(_)) if full => (None, synchronous::of_standby(), None),
        RunAs::Standby(None) => (None, synchronous::of_standby(), None),
        RunAs::Joining(leader) => (Some(places.joining(environment, leader)?), synchronous::of_standby(), None),
        RunAs::Standby(Some(Followed { place, term })) => {
            let name = synchronous::name(volume.identity, *term);
            (Some(places.upstream(environment, place, name)?), synchronous::of_standby(), None)
        }
    };
    let settings = ServerSettings {
        instance: environment.instance.clone(),
        listen: environment.listen(),
        port: POSTGRES_PORT,
        socket_dir: places.socket.clone(),
        tls: Some(ServerTls::in_dir(&places.server_tls)),
        upstream,
        synchronous,
        term: term.map(|term| term.0),
        writes: match run_as {
            RunAs::Primary(..) if full => Writes::Refused,
            _ => Writes::Accepted,
        },
        wal_room: wal_room(environment),
        least: match run_as {
            RunAs::Primary(..) => BTreeMap::new(),
            RunAs::Standby(_) | RunAs::Joining(_) => volume.least.clone(),
        },
        archive_command: inputs
            .config
            .archive
            .as_ref()
            .map(|_| archive::command::line(&places.program, &places.socket.path().join(archive::SOCKET))),
    };
    let text = conf::render(installation, &settings, &inputs.config.parameters)?;
    let installed = conf::install(volume.pgdata, &text)?;
    if !installed.discarded.is_empty() {
        tracing::warn!(parameters = ?installed.discarded, "ALTER SYSTEM was undone; use spec.parameters");
    }
    let mut changed = installed.written.changed();
    for (name, text) in [(hba::NAME, hba::render(&inputs.config.pg_hba)?), (hba::IDENT_NAME, hba::IDENT.to_owned())] {
        let path = volume.pgdata.join(name);
        let written = file::rewrite(&path, text.as_bytes()).map_err(|cause| SettingsError::Io { path, cause })?;
        changed |= written.changed();
    }
    Ok(changed)
}

/// How much of its volume the log may take.
fn wal_room(environment: &Environment) -> Option<WalRoom> {
    let volume = environment.wal_dir.as_ref().unwrap_or(&environment.data_dir);
    let found = nix::sys::statvfs::statvfs(volume).ok()?;
    Some(WalRoom::on(found.blocks() as u64 * found.fragment_size() as u64))
}
