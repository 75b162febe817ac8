//! The command line of what works from an object store alone: `restore`, `backup verify`, `wal gaps`.

use std::path::PathBuf;
use std::str::FromStr;

use bellwether_backup::BackupId;
use bellwether_backup::restore::choose::Way;
use bellwether_core::wal::{Lsn, Timeline};
use clap::{Args, Subcommand};
use k8s_openapi::jiff::Timestamp;

/// An archive in an object store.
#[derive(Clone, Debug, Args)]
pub struct Source {
    /// The store, such as s3://bucket/path; credentials come from the environment (AWS_*, GOOGLE_*, AZURE_*)
    #[arg(long, value_name = "URL")]
    pub from: String,
    /// The cluster: its name, namespace/name, or the archive's directory as `bellwether backups --from` prints it [default: the only one there]
    pub cluster: Option<String>,
}

/// Options of `restore`.
#[derive(Clone, Debug, Args)]
pub struct Restore {
    /// Where from.
    #[command(flatten)]
    pub source: Source,
    /// The data directory: absent, or empty
    #[arg(long, value_name = "DIRECTORY")]
    pub to: PathBuf,
    /// From this backup [default: the newest that leads to the target]
    #[arg(long, value_name = "ID|latest", default_value = "latest", hide_default_value = true)]
    pub backup: Which,
    /// How far.
    #[command(flatten)]
    pub target: Target,
    /// Which way where the history forks: `latest`, `current` (the backup's own) or a number
    #[arg(long, value_name = "N|latest|current", default_value = "latest")]
    pub timeline: Along,
    /// Recover up to the first gap of the log, though the log goes on behind it
    #[arg(long)]
    pub up_to_gap: bool,
    /// The log's own directory: absent, or empty [default: in the data directory]
    #[arg(long, value_name = "DIRECTORY")]
    pub wal_directory: Option<PathBuf>,
    /// The port, on loopback, of the restored server
    #[arg(long, default_value_t = 5432)]
    pub port: u16,
    /// The account that PostgreSQL will run as when you are root [default: postgres, else nobody]
    #[arg(long, value_name = "USER")]
    pub postgres_user: Option<String>,
}

/// How far to go. Without any of these, to the end of the log.
#[derive(Clone, Debug, Default, Args)]
#[group(multiple = true)]
pub struct Target {
    /// To what was committed at this time, such as 2026-11-18T14:30:00Z or 2026-11-18T15:30:00.5+01:00
    #[arg(long, value_name = "TIME", group = "target", value_parser = time)]
    pub target_time: Option<Timestamp>,
    /// To this position in the log, such as 16/B374D848
    #[arg(long, value_name = "LSN", group = "target")]
    pub target_lsn: Option<Lsn>,
    /// To the restore point of this name (pg_create_restore_point)
    #[arg(long, value_name = "NAME", group = "target")]
    pub target_name: Option<String>,
    /// To the commit of this transaction
    #[arg(long, value_name = "XID", group = "target")]
    pub target_xid: Option<u64>,
    /// Right before the target, without what lies exactly there
    #[arg(long, conflicts_with = "target_name")]
    pub exclusive: bool,
}

/// Options of `backup verify`.
#[derive(Clone, Debug, Args)]
pub struct Verify {
    /// Where from.
    #[command(flatten)]
    pub source: Source,
    /// Which one
    #[arg(long, value_name = "ID|latest", default_value = "latest")]
    pub backup: Which,
    /// Where it is restored to, with room for the whole database; made, and removed [default: one in the directory for temporary files]
    #[arg(long, value_name = "DIRECTORY")]
    pub scratch: Option<PathBuf>,
    /// Don't write into the store that it was found good
    #[arg(long)]
    pub no_record: bool,
    /// The account that PostgreSQL runs as when you are root [default: postgres, else nobody]
    #[arg(long, value_name = "USER")]
    pub postgres_user: Option<String>,
}

/// What can be asked about the log.
#[derive(Debug, Subcommand)]
pub enum Wal {
    /// Say what is missing of the log in a store, for each backup and timeline; exits with 5 when something is
    Gaps(Gaps),
}

/// Options of `wal gaps`.
#[derive(Clone, Debug, Args)]
pub struct Gaps {
    /// Where from.
    #[command(flatten)]
    pub source: Source,
}

/// A backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The newest.
    Latest,
    /// This one.
    Id(BackupId),
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "latest" => Ok(Self::Latest),
            id => id.parse().map(Self::Id).map_err(|error| format!("{error}, or `latest`")),
        }
    }
}

/// A way through the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Along(pub Way);

impl FromStr for Along {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "latest" => Ok(Self(Way::Latest)),
            "current" => Ok(Self(Way::Current)),
            number => match number.parse() {
                Ok(number @ 1..) => Ok(Self(Way::Timeline(Timeline(number)))),
                _ => Err("neither the number of a timeline, nor `latest`, nor `current`".to_owned()),
            },
        }
    }
}

fn time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "no time with its offset from UTC, such as 2026-11-18T14:30:00Z".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::args::{Cli, Role};

    fn parse(line: &[&str]) -> Result<Role, String> {
        let start = ["bellwether", "restore", "--from", "s3://b", "--to", "/srv/pg"];
        Cli::try_parse_from([&start, line].concat()).map(|cli| cli.role).map_err(|error| error.to_string())
    }

    #[test]
    fn there_is_one_target_at_most_and_it_says_what_it_is() {
        assert!(parse(&["orders", "--target-time", "2026-11-18T14:30:00+01:00", "--exclusive"]).is_ok());
        assert!(parse(&["--target-lsn", "16/B374D848", "--timeline", "3", "--backup", "20261118T020000Z"]).is_ok());
        assert!(parse(&["--target-xid", "751", "--timeline", "current", "--backup", "latest"]).is_ok());
        assert!(parse(&["--target-xid", "751", "--target-name", "x"]).is_err());
        assert!(parse(&["--target-name", "x", "--exclusive"]).is_err(), "PostgreSQL knows no such thing");
        for (bad, said) in [
            (["--target-time", "2026-11-18 14:30:00"], "offset from UTC"),
            (["--target-lsn", "16"], "an LSN such as"),
            (["--timeline", "0"], "number of a timeline"),
            (["--backup", "yesterday"], "or `latest`"),
        ] {
            let error = parse(&bad).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
