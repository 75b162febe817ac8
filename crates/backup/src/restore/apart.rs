//! Decides what a copy of a database is told, so that it does nothing in the name of its original, and writes that down.
//!
//! The configuration of the original counts for nothing: it would send the log to the original's archive, follow its primary, wait for its standbys, listen on its addresses and load
//! its libraries. What is in the database itself would act too once the copy accepts writes: subscriptions would take changes from their publishers that the original then never gets.
//! So everything is written anew, and what the original had is at most kept beside it, where PostgreSQL does not read it.
//!
//! Never: a setting of the original's in effect; a copy that follows somebody, or waits for standbys that it has not.

use std::fs;
use std::io;
use std::path::Path;

use bellwether_postgres::conf::MAX_WAL_SENDERS;
use bellwether_postgres::control::ControlData;

use super::recovery::{BadRecovery, LEFT_OVER, Recovery, SIGNAL, quoted};
use super::{RestoreError, io_error};

/// What stands behind the names of the original's files where they are kept.
pub const ORIGINAL: &str = ".original";

/// The files that PostgreSQL is configured by. It does not start without the first.
pub(super) const FILES: [&str; 4] = ["postgresql.conf", "postgresql.auto.conf", "pg_hba.conf", "pg_ident.conf"];

/// What keeps a copy apart. No parameter of anybody's changes these.
pub(super) fn owned() -> impl Iterator<Item = (&'static str, String)> {
    let fixed = [
        ("ssl", "off"),
        ("archive_mode", "off"),
        ("hot_standby", "on"),
        ("primary_conninfo", ""),
        ("primary_slot_name", ""),
        ("synchronous_standby_names", ""),
        // Without these, nothing takes anything from a publisher.
        ("max_logical_replication_workers", "0"),
        ("wal_level", "replica"),
        ("unix_socket_permissions", "0700"),
        ("logging_collector", "off"),
        ("log_destination", "stderr"),
    ];
    let senders = ("max_wal_senders", MAX_WAL_SENDERS.to_string());
    fixed.into_iter().map(|(name, value)| (name, value.to_owned())).chain([senders])
}

/// What must not be below what the log was written with: a copy that has less does not become readable.
pub(super) fn least(control: &ControlData) -> impl Iterator<Item = (String, String)> {
    control.written_with.iter().map(|(name, value)| (name.clone(), value.to_string()))
}

/// A line of `postgresql.conf`.
pub(super) fn line(name: &str, value: &str) -> String {
    format!("{name} = {}\n", quoted(value))
}

/// Writes the configuration of a copy: these lines and those of its recovery, who may connect, and that it is to recover at all. What PostgreSQL does not start without comes last.
pub(super) fn write(data: &Path, lines: &str, recovery: &Recovery, hba: &str) -> Result<(), RestoreError> {
    let [conf, auto, hba_file, ident] = FILES;
    let bad = |error: BadRecovery| {
        io_error("write", &data.join(conf), io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))
    };
    let text = format!("{lines}{}", recovery.lines().map_err(bad)?);
    for name in LEFT_OVER {
        match fs::remove_file(data.join(name)) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                return Err(io_error("remove", &data.join(name), cause));
            }
            _ => {}
        }
    }
    for (name, text) in [(SIGNAL, ""), (auto, ""), (hba_file, hba), (ident, ""), (conf, text.as_str())] {
        let path = data.join(name);
        fs::write(&path, text).map_err(|cause| io_error("write", &path, cause))?;
    }
    Ok(())
}
