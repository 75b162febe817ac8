//! What the operator gives the agent through mounted files: configuration, passwords, certificates.
//!
//! Read again every few seconds and compared by content: a kubelet swaps whole directories by a symbolic link, which
//! modification times and inotify both miss in their own ways. Never: half of a change. A Secret in the middle of being
//! swapped fails to read or differs again at the next look; and no password ever prints.

use std::fs;
use std::path::{Path, PathBuf};

use bellwether_api::names::CONFIG_KEY;
use bellwether_core::contract::{InstanceConfig, key};
use bellwether_postgres::{Secret, file};

use crate::environment::Environment;

/// Everything that is mounted.
#[derive(Clone, Debug, PartialEq)]
pub struct Inputs {
    /// `instance.json`.
    pub config: InstanceConfig,
    /// The superuser's password.
    pub superuser: Secret,
    /// The application's role and database.
    pub app: App,
    /// The server certificate.
    pub server_tls: Pem,
    /// The replication certificate.
    pub replication_tls: Pem,
}

/// The application's role and database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct App {
    /// The role.
    pub user: String,
    /// Its password.
    pub password: Secret,
    /// The database.
    pub database: String,
}

/// A certificate, its key, and the authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pem {
    certificate: String,
    key: Secret,
    authority: String,
}

/// Why the mounted files can't be used.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// A file can't be read.
    #[error("{}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What came back.
        cause: std::io::Error,
    },
    /// The configuration can't be understood.
    #[error("{}: {cause}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: serde_json::Error,
    },
}

impl Inputs {
    /// Reads everything.
    pub fn read(environment: &Environment) -> Result<Self, InputError> {
        let path = environment.config_dir.join(CONFIG_KEY);
        let config = serde_json::from_str(&text(&path)?).map_err(|cause| InputError::Config { path, cause })?;
        let app = &environment.app_dir;
        Ok(Self {
            config,
            superuser: secret(&environment.superuser_dir.join(key::PASSWORD))?,
            app: App {
                user: text(&app.join(key::USERNAME))?,
                password: secret(&app.join(key::PASSWORD))?,
                database: text(&app.join(key::DBNAME))?,
            },
            server_tls: Pem::read(&environment.server_tls_dir)?,
            replication_tls: Pem::read(&environment.replication_tls_dir)?,
        })
    }
}

impl Pem {
    fn read(dir: &Path) -> Result<Self, InputError> {
        Ok(Self {
            certificate: text(&dir.join(key::TLS_CRT))?,
            key: secret(&dir.join(key::TLS_KEY))?,
            authority: text(&dir.join(key::CA_CRT))?,
        })
    }

    /// Writes the three as files that only we can read: PostgreSQL refuses keys that a volume's mode shows to a group.
    pub fn stage(&self, dir: &Path) -> std::io::Result<file::Written> {
        crate::volume::private_dir(dir)?;
        let mut changed = file::Written::Unchanged;
        for (name, content) in [
            (key::CA_CRT, self.authority.as_str()),
            (key::TLS_CRT, &self.certificate),
            (key::TLS_KEY, self.key.expose()),
        ] {
            // `Secret` drops a final newline, which some readers of PEM insist on.
            let content = format!("{}\n", content.trim_end());
            if file::rewrite(&dir.join(name), content.as_bytes())?.changed() {
                changed = file::Written::Changed;
            }
        }
        Ok(changed)
    }
}

fn text(path: &Path) -> Result<String, InputError> {
    fs::read_to_string(path)
        .map(|text| text.trim_end_matches('\n').to_owned())
        .map_err(|cause| InputError::Unreadable { path: path.to_owned(), cause })
}

fn secret(path: &Path) -> Result<Secret, InputError> {
    Secret::read(path).map_err(|cause| InputError::Unreadable { path: path.to_owned(), cause })
}
