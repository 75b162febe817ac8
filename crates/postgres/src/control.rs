//! Reads a data directory's control file through `pg_controldata`: whose data it is, and where in history it stands.
//!
//! The server need not run. Must never happen: that a missing or unreadable line is taken for a zero; a volume would be
//! called empty, or another cluster's. Whatever is not exactly as PostgreSQL writes it is an error.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::str::FromStr;

use bellwether_core::wal::{Lsn, SystemIdentifier, Timeline};
use tokio::process::Command;

use crate::installation::Installation;
use crate::wal::Layout;

/// What the control file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlData {
    /// Whose data it is.
    pub system_identifier: SystemIdentifier,
    /// What the server was doing when it last wrote the file.
    pub state: State,
    /// The timeline of the latest checkpoint.
    pub timeline: Timeline,
    /// Where the latest checkpoint is.
    pub checkpoint: Lsn,
    /// Where replay would begin.
    pub redo: Lsn,
    /// How far a standby must replay before it is consistent; `None` where it doesn't matter (on a primary).
    pub min_recovery: Option<Lsn>,
    /// The timeline of [`ControlData::min_recovery`].
    pub min_recovery_timeline: Option<Timeline>,
    /// Whether pages have checksums.
    pub data_checksums: bool,
    /// Whether hint bits are logged, so that `pg_rewind` works without checksums.
    pub wal_log_hints: bool,
    /// How its WAL is laid out.
    pub layout: Layout,
    /// Settings that its WAL was written with: a standby whose own are below these refuses to start.
    pub written_with: BTreeMap<String, u64>,
}

/// What a server was doing when it last wrote its control file. After a crash this is what it did before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Starting.
    StartingUp,
    /// Stopped cleanly, as primary.
    ShutDown,
    /// Stopped cleanly, as standby.
    ShutDownInRecovery,
    /// Stopping.
    ShuttingDown,
    /// Replaying after a crash.
    InCrashRecovery,
    /// Replaying as a standby or from an archive.
    InArchiveRecovery,
    /// Accepting writes.
    InProduction,
}

impl State {
    /// Whether the server stopped cleanly: nothing in memory was lost.
    pub fn is_shut_down(self) -> bool {
        matches!(self, Self::ShutDown | Self::ShutDownInRecovery)
    }
}

/// Why the control file could not be understood.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The program did not run.
    #[error("pg_controldata did not run: {0}")]
    Spawn(io::Error),
    /// It ran and refused.
    #[error("pg_controldata: {0}")]
    Failed(String),
    /// Its checksum is wrong: nothing in it can be believed.
    #[error("the control file is corrupt: {0}")]
    Corrupt(String),
    /// A line is missing.
    #[error("pg_controldata printed no line {0:?}")]
    Missing(&'static str),
    /// A line stands twice.
    #[error("pg_controldata printed the line {0:?} twice")]
    Twice(String),
    /// A line says something else.
    #[error("pg_controldata: {label:?} is {value:?}, which is not {expected}")]
    Malformed {
        /// The line.
        label: &'static str,
        /// What it says.
        value: String,
        /// What it should.
        expected: &'static str,
    },
}

/// Reads the control file of a data directory.
pub async fn read(installation: &Installation, data_dir: &Path) -> Result<ControlData, ControlError> {
    let output = Command::new(installation.program("pg_controldata"))
        .arg("-D")
        .arg(data_dir)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(ControlError::Spawn)?;
    let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if !output.status.success() {
        return Err(ControlError::Failed(complaint));
    }
    // It warns of a wrong checksum and prints the garbage all the same, with success.
    if !complaint.is_empty() {
        return Err(ControlError::Corrupt(complaint));
    }
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// Understands what `pg_controldata` prints under `LC_ALL=C`.
pub fn parse(text: &str) -> Result<ControlData, ControlError> {
    if let Some(warning) = text.lines().find(|line| line.starts_with("WARNING")) {
        return Err(ControlError::Corrupt(warning.to_owned()));
    }
    let lines = Lines::of(text)?;
    let min_recovery: Lsn = lines.parsed("Minimum recovery ending location", "an LSN")?;
    let min_recovery_timeline: u32 = lines.parsed("Min recovery ending loc's timeline", "a timeline")?;
    let checksums: u32 = lines.parsed("Data page checksum version", "a number")?;
    let timeline: u32 = lines.parsed("Latest checkpoint's TimeLineID", "a timeline")?;
    if timeline == 0 {
        return Err(lines.malformed("Latest checkpoint's TimeLineID", "a timeline"));
    }
    Ok(ControlData {
        system_identifier: lines.parsed("Database system identifier", "a system identifier")?,
        state: lines.state()?,
        timeline: Timeline(timeline),
        checkpoint: lines.parsed("Latest checkpoint location", "an LSN")?,
        redo: lines.parsed("Latest checkpoint's REDO location", "an LSN")?,
        // PostgreSQL itself writes zero for "does not matter" here.
        min_recovery: Some(min_recovery).filter(|lsn| lsn.0 != 0),
        min_recovery_timeline: Some(Timeline(min_recovery_timeline)).filter(|timeline| timeline.0 != 0),
        data_checksums: checksums != 0,
        wal_log_hints: lines.switch("wal_log_hints setting")?,
        layout: Layout {
            segment: lines.power_of_two("Bytes per WAL segment")?,
            page: lines.power_of_two("WAL block size")?,
        },
        written_with: WRITTEN_WITH
            .iter()
            .map(|(label, name)| Ok(((*name).to_owned(), lines.parsed(label, "a number")?)))
            .collect::<Result<_, ControlError>>()?,
    })
}

/// As the control file and as the configuration calls them. What we set ourselves, the same everywhere, is not among them.
const WRITTEN_WITH: [(&str, &str); 4] = [
    ("max_connections setting", "max_connections"),
    ("max_worker_processes setting", "max_worker_processes"),
    ("max_prepared_xacts setting", "max_prepared_transactions"),
    ("max_locks_per_xact setting", "max_locks_per_transaction"),
];

struct Lines<'a>(HashMap<&'a str, &'a str>);

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Result<Self, ControlError> {
        let mut lines = HashMap::new();
        for (label, value) in text.lines().filter_map(|line| line.split_once(':')) {
            if lines.insert(label.trim(), value.trim()).is_some() {
                return Err(ControlError::Twice(label.trim().to_owned()));
            }
        }
        Ok(Self(lines))
    }

    fn value(&self, label: &'static str) -> Result<&'a str, ControlError> {
        self.0.get(label).copied().ok_or(ControlError::Missing(label))
    }

    fn malformed(&self, label: &'static str, expected: &'static str) -> ControlError {
        ControlError::Malformed { label, value: self.0.get(label).copied().unwrap_or_default().to_owned(), expected }
    }

    fn parsed<T: FromStr>(&self, label: &'static str, expected: &'static str) -> Result<T, ControlError> {
        self.value(label)?.parse().map_err(|_| self.malformed(label, expected))
    }

    fn power_of_two(&self, label: &'static str) -> Result<u64, ControlError> {
        let number: u64 = self.parsed(label, "a number")?;
        if number.is_power_of_two() { Ok(number) } else { Err(self.malformed(label, "a power of two")) }
    }

    fn switch(&self, label: &'static str) -> Result<bool, ControlError> {
        match self.value(label)? {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(self.malformed(label, "on or off")),
        }
    }

    fn state(&self) -> Result<State, ControlError> {
        const LABEL: &str = "Database cluster state";
        Ok(match self.value(LABEL)? {
            "starting up" => State::StartingUp,
            "shut down" => State::ShutDown,
            "shut down in recovery" => State::ShutDownInRecovery,
            "shutting down" => State::ShuttingDown,
            "in crash recovery" => State::InCrashRecovery,
            "in archive recovery" => State::InArchiveRecovery,
            "in production" => State::InProduction,
            _ => return Err(self.malformed(LABEL, "a state that PostgreSQL has")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As a standby of PostgreSQL 15 printed it, less the lines that nobody reads.
    const STANDBY: &str = "\
pg_control version number:            1300
Database system identifier:           7573012345678901234
Database cluster state:               in archive recovery
pg_control last modified:             Sat 15 Nov 2025 10:00:00 AM UTC
Latest checkpoint location:           16/B374D848
Latest checkpoint's REDO location:    16/B374D810
Latest checkpoint's REDO WAL file:    0000000300000016000000B3
Latest checkpoint's TimeLineID:       3
Minimum recovery ending location:     16/B3800000
Min recovery ending loc's timeline:   3
wal_log_hints setting:                on
max_connections setting:              120
max_worker_processes setting:         8
max_prepared_xacts setting:           0
max_locks_per_xact setting:           64
WAL block size:                       8192
Bytes per WAL segment:                16777216
Data page checksum version:           1
";

    #[test]
    fn a_standbys_control_file_reads() {
        assert_eq!(
            parse(STANDBY).unwrap(),
            ControlData {
                system_identifier: SystemIdentifier(7_573_012_345_678_901_234),
                state: State::InArchiveRecovery,
                timeline: Timeline(3),
                checkpoint: Lsn(0x16_B374_D848),
                redo: Lsn(0x16_B374_D810),
                min_recovery: Some(Lsn(0x16_B380_0000)),
                min_recovery_timeline: Some(Timeline(3)),
                data_checksums: true,
                wal_log_hints: true,
                layout: Layout { segment: 16 * 1024 * 1024, page: 8192 },
                written_with: [
                    ("max_connections", 120),
                    ("max_worker_processes", 8),
                    ("max_prepared_transactions", 0),
                    ("max_locks_per_transaction", 64),
                ]
                .map(|(name, value)| (name.to_owned(), value))
                .into(),
            }
        );
    }

    #[test]
    fn a_line_that_is_missing_is_not_a_zero() {
        for line in STANDBY.lines().filter(|line| !line.starts_with("pg_control") && !line.contains("WAL file")) {
            let without: String =
                STANDBY.lines().filter(|other| *other != line).map(|line| format!("{line}\n")).collect();
            assert!(matches!(parse(&without), Err(ControlError::Missing(_))), "without {line:?}");
        }
    }

    #[test]
    fn a_line_that_says_something_else_is_an_error() {
        for (from, to) in [
            ("7573012345678901234", "0"),
            ("7573012345678901234", "-5"),
            ("in archive recovery", "on fire"),
            ("16/B374D848", "16"),
            ("TimeLineID:       3", "TimeLineID:       0"),
            ("TimeLineID:       3", "TimeLineID:       "),
            ("setting:                on", "setting:                maybe"),
            ("16777216", "0"),
            ("8192", "8191"),
        ] {
            let text = STANDBY.replace(from, to);
            assert_ne!(text, STANDBY);
            assert!(matches!(parse(&text), Err(ControlError::Malformed { .. })), "{to}");
        }
    }

    #[test]
    fn a_corrupt_file_is_not_believed() {
        let warning = "WARNING: Calculated CRC checksum does not match value stored in file.\n";
        assert!(matches!(parse(&format!("{warning}{STANDBY}")), Err(ControlError::Corrupt(_))));
        assert!(matches!(parse(&format!("{STANDBY}{STANDBY}")), Err(ControlError::Twice(_))));
    }

    proptest! {
        #[test]
        fn garbage_never_reads_and_never_panics(text in "(?s).{0,400}") {
            prop_assert!(parse(&text).is_err());
        }
    }
}
