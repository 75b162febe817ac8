//! Parts a restored database from its original: what would act in that one's name goes, before anybody can connect.
//!
//! | what | what it would do |
//! |---|---|
//! | replication slots | keep log for somebody who never comes |
//! | subscriptions | take changes from their publishers that the original then never gets |
//! | settings, and what recovery was told | everything that [`bellwether_backup::restore::apart`] says |
//!
//! The history of its new timeline is marked to be archived: it began while nothing was archived, and no backup of it could be recovered without. What there is of earlier timelines is marked as done: it is the original's, which
//! archived it, or never wrote it to its end.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use bellwether_backup::WalFile;
use bellwether_backup::restore::apart::ORIGINAL;
use bellwether_core::contract::POSTGRES_PORT;
use bellwether_core::wal::Timeline;
use bellwether_postgres::sql::{POSTGRES_DATABASE, Session, SqlError};

use super::Unrestored;
use crate::archive::restore_wal::AHEAD;
use crate::trouble::Trouble;

/// How long a statement may take that parts it.
const STATEMENT: Duration = Duration::from_secs(60);
/// What PostgreSQL leaves of a backup and its recovery.
const LEFT: [&str; 3] = ["backup_label.old", "tablespace_map.old", "recovery.done"];
/// What says how it recovers, in place of the original's. Ours is written before each start.
const CONF: &str = "postgresql.conf";

/// What is in the database itself.
pub(super) async fn in_database(socket: &Path) -> Result<(), SqlError> {
    let session = Session::local(socket, POSTGRES_PORT, POSTGRES_DATABASE, STATEMENT).await?;
    let slots = session.drop_slots_of_original().await?;
    let mut disabled = vec![];
    for database in session.databases_with_subscriptions().await? {
        let there = Session::local(socket, POSTGRES_PORT, &database, STATEMENT).await?;
        disabled.extend(there.disable_subscriptions().await?.into_iter().map(|name| format!("{database}.{name}")));
    }
    if !slots.is_empty() || !disabled.is_empty() {
        tracing::warn!(?slots, ?disabled, "slots of the original's were dropped, and subscriptions disabled");
    }
    Ok(())
}

/// What is beside it, once it has stopped.
pub(super) fn on_disk(data: &Path, timeline: Timeline) -> Result<(), Unrestored> {
    let parted = || -> io::Result<()> {
        for entry in fs::read_dir(data)? {
            let path = entry?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if name.ends_with(ORIGINAL) || LEFT.contains(&name.as_str()) {
                fs::remove_file(&path)?;
            }
        }
        fs::write(data.join(CONF), "")?;
        let wal = data.join("pg_wal");
        match fs::remove_dir_all(wal.join(AHEAD)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let status = wal.join("archive_status");
        for entry in fs::read_dir(&wal)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.parse::<WalFile>().is_ok_and(|file| file.timeline() != timeline) {
                fs::write(status.join(format!("{name}.done")), "")?;
            }
        }
        fs::write(status.join(format!("{}.ready", WalFile::History(timeline))), "")?;
        for dir in [data, &wal, &status] {
            nix::unistd::syncfs(fs::File::open(dir)?)?;
        }
        Ok(())
    };
    Ok(parted().map_err(|cause| Trouble::Io { what: "part the database from its original", cause })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_original_is_left_and_the_history_is_to_be_archived() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path();
        fs::create_dir_all(data.join("pg_wal/archive_status")).unwrap();
        fs::create_dir_all(data.join("pg_wal").join(AHEAD)).unwrap();
        for name in ["postgresql.conf.original", "pg_hba.conf.original", "backup_label.old", "PG_VERSION"] {
            fs::write(data.join(name), "x").unwrap();
        }
        fs::write(data.join(CONF), "restore_command = 'x'").unwrap();
        let (of_original, own) = ("000000010000000000000007", "000000030000000000000007");
        for name in [of_original, own] {
            fs::write(data.join("pg_wal").join(name), "").unwrap();
        }
        on_disk(data, Timeline(3)).unwrap();
        let mut left: Vec<_> = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["PG_VERSION", "pg_wal", "postgresql.conf"]);
        assert_eq!(fs::read_to_string(data.join(CONF)).unwrap(), "");
        let status = data.join("pg_wal/archive_status");
        assert!(status.join("00000003.history.ready").exists());
        assert!(status.join(format!("{of_original}.done")).exists() && !status.join(format!("{own}.done")).exists());
        assert!(!data.join("pg_wal").join(AHEAD).exists());
    }
}
