//! What agent and archiver say to each other: a line of JSON each, through the archiver's standard input and output.
//!
//! Both are the same binary, so nothing of this has versions. Never: credentials in what a message shows of itself.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use bellwether_core::contract::{BackupOrder, BackupReport, Effort, Leader, Retained};
use bellwether_core::wal::SystemIdentifier;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What the agent tells.
#[derive(Debug, Serialize, Deserialize)]
pub enum Tell {
    /// Where everything is and goes. In the place of what was told before.
    Setup(Box<Setup>),
    /// Whom this instance follows; nobody when it leads.
    Follows(Option<Leader>),
    /// The backup that is to be taken, and how; nothing ends one that is being taken.
    Take(Option<(BackupOrder, Effort)>),
    /// What is kept in the store, if this instance is the one that removes the rest: it leads. Told again whenever something about backups may be new.
    Retain(Option<String>),
}

/// What the archiver says.
#[derive(Debug, Serialize, Deserialize)]
pub enum Said {
    /// Whether the log gets into the store.
    Archiving(Archived),
    /// How far a backup is.
    Backup(Box<BackupReport>),
    /// What became of retention.
    Retained(Box<Retained>),
}

/// Whether the log gets into the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archived {
    /// Why not.
    pub failing: Option<String>,
    /// Up to when it is there; nothing when it gets there, or nobody knows.
    pub until: Option<Timestamp>,
}

impl Archived {
    /// It can't be got there, and nobody knows what is.
    pub fn failing(why: String) -> Self {
        Self { failing: Some(why), until: None }
    }
}

/// Where everything is and goes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The store's address.
    pub url: String,
    /// What else there is to say about it; credentials are among it.
    pub settings: BTreeMap<String, String>,
    /// The authority of its certificate, in PEM.
    pub ca: Option<String>,
    /// Whose database it is.
    pub system_identifier: SystemIdentifier,
    /// Which life of it.
    pub incarnation: String,
    /// The cluster's namespace.
    pub namespace: String,
    /// The cluster.
    pub cluster: String,
    /// This instance.
    pub instance: String,
    /// The directory of PostgreSQL's programs.
    pub programs: PathBuf,
    /// PostgreSQL's data directory.
    pub pgdata: PathBuf,
    /// The directory of its socket.
    pub sockets: PathBuf,
    /// The certificate for talking to other instances.
    pub replication_tls: PathBuf,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (url, system) = (&self.url, self.system_identifier);
        f.debug_struct("Setup").field("url", url).field("system", &system).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_not_shown() {
        let setup = Setup {
            url: "s3://backups/orders".into(),
            settings: BTreeMap::from([("AWS_SECRET_ACCESS_KEY".to_owned(), "hunter2".to_owned())]),
            ca: None,
            system_identifier: SystemIdentifier(7),
            incarnation: "1".into(),
            namespace: "shop".into(),
            cluster: "orders".into(),
            instance: "orders-1".into(),
            programs: "/usr/bin".into(),
            pgdata: "/data".into(),
            sockets: "/run".into(),
            replication_tls: "/tls".into(),
        };
        let shown = format!("{:?}", Tell::Setup(Box::new(setup)));
        assert!(shown.contains("s3://backups/orders") && !shown.contains("hunter2"), "{shown}");
    }
}
