//! Rewinds a data directory onto another instance's history with `pg_rewind`: what it has beyond the fork is undone, in place.
//!
//! Must never happen: that it starts a server on the directory by itself (`--no-ensure-shutdown`: it would write, and nobody elected it); or
//! that its success is taken for proof. Where it thinks that nothing has to be done it succeeds too, and leaves everything as it is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bellwether_core::wal::{Lsn, SystemIdentifier, Timeline};

use crate::conninfo::ConnInfo;
use crate::control::{ControlData, State};
use crate::installation::Installation;
use crate::sql::POSTGRES_DATABASE;

/// Its program.
const PROGRAM: &str = "pg_rewind";
/// What says from where on a rewound directory is replayed.
const LABEL: &str = "backup_label";

/// A rewind of a directory whose server was shut down.
#[derive(Clone, Copy, Debug)]
pub struct Rewind<'a> {
    /// Onto whose history.
    pub source: &'a ConnInfo,
    /// What is rewound.
    pub data_dir: &'a Path,
}

/// Whether this installation has it: some images leave it out.
pub fn is_installed(installation: &Installation) -> bool {
    installation.program(PROGRAM).is_file()
}

impl Rewind<'_> {
    /// The program. Who runs it makes sure that it ends with its agent.
    pub fn program(&self, installation: &Installation) -> PathBuf {
        installation.program(PROGRAM)
    }

    /// Its arguments.
    pub fn arguments(&self) -> Vec<OsString> {
        vec![
            "--target-pgdata".into(),
            self.data_dir.into(),
            // It asks by functions, so it needs a database; what it may call was granted in this one.
            format!("--source-server={} dbname={POSTGRES_DATABASE}", self.source).into(),
            "--no-ensure-shutdown".into(),
        ]
    }
}

/// The timeline that `pg_rewind` of this version takes for that of a directory.
pub fn timeline_of(installation: &Installation, control: &ControlData) -> Timeline {
    match control.min_recovery_timeline {
        Some(replayed) if installation.at_least(16) => replayed.max(control.timeline),
        _ => control.timeline,
    }
}

/// Up to where a rewound directory has to be replayed before it is whole, on the leader's timeline. `None`: it was not rewound. The control
/// file is the last that `pg_rewind` writes, and only when everything before succeeded.
pub fn whole_at(data_dir: &Path, control: &ControlData, leader: Timeline, system: SystemIdentifier) -> Option<Lsn> {
    let written = control.state == State::InArchiveRecovery
        && control.min_recovery_timeline == Some(leader)
        && control.system_identifier == system
        && data_dir.join(LABEL).is_file();
    control.min_recovery.filter(|_| written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control;

    const REWOUND: &str = "\
Database system identifier:           7
Database cluster state:               in archive recovery
Latest checkpoint location:           0/5000028
Latest checkpoint's REDO location:    0/5000028
Latest checkpoint's TimeLineID:       2
Minimum recovery ending location:     0/5000150
Min recovery ending loc's timeline:   2
wal_log_hints setting:                on
max_connections setting:              100
max_worker_processes setting:         8
max_prepared_xacts setting:           0
max_locks_per_xact setting:           64
WAL block size:                       8192
Bytes per WAL segment:                16777216
Data page checksum version:           1
";

    fn looked_at(text: &str, label: bool) -> Option<Lsn> {
        let dir = tempfile::tempdir().unwrap();
        if label {
            std::fs::write(dir.path().join(LABEL), "").unwrap();
        }
        whole_at(dir.path(), &control::parse(text).unwrap(), Timeline(2), SystemIdentifier(7))
    }

    #[test]
    fn what_was_rewound_says_up_to_where_it_must_be_replayed() {
        assert_eq!(looked_at(REWOUND, true), Some(Lsn(0x0500_0150)));
    }

    #[test]
    fn what_was_not_rewound_is_known_whatever_the_program_said() {
        assert_eq!(looked_at(REWOUND, false), None, "no label");
        for (from, to) in [
            ("in archive recovery", "shut down in recovery"),
            ("identifier:           7", "identifier:           8"),
            ("loc's timeline:   2", "loc's timeline:   1"),
            ("0/5000150", "0/0"),
        ] {
            let text = REWOUND.replace(from, to);
            assert_ne!(text, REWOUND);
            assert_eq!(looked_at(&text, true), None, "{to}");
        }
    }
}
