//! Which synchronous replication is in force, remembered on the data volume.
//!
//! Never: a primary that restarts and accepts its first commit before it requires again what it required before. So the file
//! is durable before PostgreSQL is told, and read before PostgreSQL starts.

use std::io;
use std::path::{Path, PathBuf};

use bellwether_core::instance::durability::Quorum;
use bellwether_postgres::conf::Synchronous;
use bellwether_postgres::file;

/// Its name on the data volume.
pub const FILE: &str = "synchronous.json";

/// The memory of one volume.
#[derive(Clone, Debug)]
pub struct Memory {
    path: PathBuf,
}

impl Memory {
    /// On the volume mounted at `data`.
    pub fn on(data: &Path) -> Self {
        Self { path: data.join(FILE) }
    }

    /// What is in force. A file that can't be read is an error: "nothing" would be a guess against durability.
    pub fn recall(&self) -> io::Result<Option<Quorum>> {
        match std::fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Remembers what is about to be in force.
    pub fn remember(&self, quorum: Option<&Quorum>) -> io::Result<()> {
        file::replace(&self.path, &serde_json::to_vec(&quorum)?).map(|_| ())
    }
}

/// As PostgreSQL's configuration has it.
pub fn setting(quorum: Option<&Quorum>) -> Synchronous {
    match quorum {
        None => Synchronous::Off,
        Some(quorum) => Synchronous::Any { quorum: quorum.needed, voters: quorum.voters.iter().cloned().collect() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_in_force_is_recalled() {
        let dir = tempfile::tempdir().unwrap();
        let memory = Memory::on(dir.path());
        assert_eq!(memory.recall().unwrap(), None);
        let quorum = Quorum { needed: 1, voters: ["o-2".to_owned(), "o-3".to_owned()].into() };
        memory.remember(Some(&quorum)).unwrap();
        assert_eq!(memory.recall().unwrap(), Some(quorum));
        memory.remember(None).unwrap();
        assert_eq!(memory.recall().unwrap(), None);
    }

    #[test]
    fn a_damaged_memory_is_not_taken_for_nothing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), b"{").unwrap();
        assert!(Memory::on(dir.path()).recall().is_err());
    }
}
