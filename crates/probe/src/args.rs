//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use probe::{Access, Deadlines, Settings, Target};

use crate::failure::Failure;

/// Exit codes, in the help: scripts depend on them.
pub const EXIT_CODES: &str = "Exit codes:
  0  truthful, or the run ended in order
  1  a lie is proven
  2  the command line can't be understood
  3  inconclusive: something was not seen, or the load was too thin
  4  the probe itself could not do its work";

/// Writes unique rows to a PostgreSQL while somebody hurts it, and catches every lie it told.
#[derive(Debug, Parser)]
#[command(name = "bellwether-probe", version, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write until told to stop; the history goes to a file as it happens.
    Run(Run),
    /// Read the table of every instance, and judge.
    Check(Check),
    /// Tell what the histories alone say: gaps, takeovers, overlaps.
    Report(Report),
}

/// The way in.
#[derive(Clone, Debug, Args)]
pub struct Way {
    /// postgresql://user:password@host:port/database?sslmode=verify-full&sslrootcert=ca.crt
    #[arg(long, env = "BELLWETHER_PROBE_URI", hide_env_values = true, required_unless_present = "secret")]
    uri: Option<String>,
    /// The directory where an `-app` Secret is mounted, instead of a URI.
    #[arg(long, value_name = "DIR", conflicts_with = "uri")]
    secret: Option<PathBuf>,
    /// Where the Secret's host is to be found, when its name can't be looked up from here.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "secret")]
    address: Option<SocketAddr>,
    /// The authority that must have issued the server's certificate, unless the URI says (sslrootcert).
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The password, unless the URI has it.
    #[arg(long, env = "PGPASSWORD", hide_env_values = true, hide = true)]
    password: Option<String>,
    /// Deadline for the name's lookup and the TCP connection.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    connect_within: Duration,
    /// Deadline for TLS and logging in.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time)]
    login_within: Duration,
    /// Deadline for a statement.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time)]
    statement_within: Duration,
    /// Deadline for COMMIT.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time)]
    commit_within: Duration,
}

impl Way {
    /// Who we are and whom we believe.
    pub fn access(&self) -> Result<Access, Failure> {
        if let Some(dir) = &self.secret {
            return Ok(Access::from_secret(dir, self.address)?);
        }
        let password = self.password.clone().map(bellwether_postgres::Secret::new);
        Ok(Access::from_uri(self.uri.as_deref().unwrap_or_default(), self.ca.as_deref(), password)?)
    }

    /// When to give up.
    pub fn deadlines(&self) -> Deadlines {
        Deadlines {
            connect: self.connect_within,
            login: self.login_within,
            statement: self.statement_within,
            commit: self.commit_within,
        }
    }
}

/// `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// The way in.
    #[command(flatten)]
    pub way: Way,
    /// Writers that keep their session.
    #[arg(long, default_value_t = 4)]
    sessions: u32,
    /// Writers that connect anew for each row.
    #[arg(long, default_value_t = 2)]
    new: u32,
    /// A server at which a session is opened by its own address, and kept: NAME@ADDRESS[:PORT] or ADDRESS[:PORT]. May be repeated.
    #[arg(long, value_name = "SERVER")]
    direct: Vec<String>,
    /// How often a writer with a session writes.
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = time)]
    every: Duration,
    /// How often one that connects anew does.
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = time)]
    every_new: Duration,
    /// Where the history goes. The file must not exist.
    #[arg(long, value_name = "FILE")]
    history: PathBuf,
    /// For how long to write.
    #[arg(long, value_name = "TIME", value_parser = time, required_unless_present = "until_stdin_closes")]
    pub duration: Option<Duration>,
    /// Write until standard input ends. Each line of it is noted in the history, as what was done at that moment.
    #[arg(long, conflicts_with = "duration")]
    pub until_stdin_closes: bool,
}

impl Run {
    /// What to run.
    pub fn settings(&self) -> Result<Settings, Failure> {
        let access = self.way.access()?;
        let direct = targets(&access, &self.direct)?;
        Ok(Settings {
            sessions: self.sessions,
            new: self.new,
            direct,
            every: self.every,
            every_new: self.every_new,
            deadlines: self.way.deadlines(),
            history: Some(self.history.clone()),
            ..Settings::new(access)
        })
    }
}

/// `check`.
#[derive(Debug, Args)]
pub struct Check {
    /// The histories to judge together. They must be of one machine.
    #[arg(required = true)]
    pub histories: Vec<PathBuf>,
    /// The way in.
    #[command(flatten)]
    pub way: Way,
    /// An instance whose table is read: NAME@ADDRESS[:PORT] or ADDRESS[:PORT]. Repeat it for each.
    #[arg(long = "instance", value_name = "SERVER", required = true)]
    instances: Vec<String>,
    /// How long to wait for a primary, and for standbys to catch up with it.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    pub wait: Duration,
    /// How the verdict looks.
    #[command(flatten)]
    pub form: Form,
}

impl Check {
    /// The instances.
    pub fn instances(&self, access: &Access) -> Result<Vec<Target>, Failure> {
        targets(access, &self.instances)
    }
}

/// `report`.
#[derive(Debug, Args)]
pub struct Report {
    /// The histories to tell from. They must be of one machine.
    #[arg(required = true)]
    pub histories: Vec<PathBuf>,
    /// How the verdict looks.
    #[command(flatten)]
    pub form: Form,
}

/// How the verdict looks.
#[derive(Clone, Copy, Debug, Args)]
pub struct Form {
    /// JSON instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Acknowledged writes a second, before and after the fault, below which nothing is concluded.
    #[arg(long, value_name = "RATE", default_value_t = 100.0)]
    pub least_rate: f64,
}

fn targets(access: &Access, texts: &[String]) -> Result<Vec<Target>, Failure> {
    texts.iter().map(|text| access.target(text).map_err(Failure::from)).collect()
}

/// A time: `500ms`, `2s`, `5m`.
fn time(text: &str) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let malformed = || format!("{text:?} is no time; write 500ms, 2s or 5m");
    let number: u64 = text[..digits].parse().map_err(|_| malformed())?;
    let milliseconds = match &text[digits..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        _ => return Err(malformed()),
    };
    match number.checked_mul(milliseconds) {
        Some(milliseconds) if milliseconds > 0 => Ok(Duration::from_millis(milliseconds)),
        _ => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn times_have_units_and_are_not_zero() {
        assert_eq!(time("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(time("2m").unwrap(), Duration::from_secs(120));
        for text in ["", "5", "s", "0s", "-1s", "1h", "99999999999999999999s"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_run_needs_an_end() {
        let run = ["bellwether-probe", "run", "--uri", "postgresql://a@b/c?sslmode=disable", "--history", "h"];
        assert!(Cli::try_parse_from(run).is_err());
        assert!(Cli::try_parse_from(run.into_iter().chain(["--duration", "1s"])).is_ok());
        assert!(Cli::try_parse_from(run.into_iter().chain(["--until-stdin-closes"])).is_ok());
    }
}
