//! The database that is backed up: made for it, filled to a size, with checksums, and everything else as PostgreSQL has it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use super::machine::{Machine, run};
use crate::{BenchError, failed};

/// pgbench's own measure: so many rows, which are some fifteen megabytes.
const MEGABYTES_OF_A_SCALE: u64 = 15;
/// Rows of a hundred bytes that hardly compress, in a megabyte.
const ROWS_OF_A_MEGABYTE: u64 = 7_000;
const STARTS_WITHIN: Duration = Duration::from_secs(60);
const SETTLES_WITHIN: Duration = Duration::from_secs(600);

/// It, running.
pub struct Database<'a> {
    machine: &'a Machine,
    programs: PathBuf,
    server: Child,
}

impl<'a> Database<'a> {
    /// Makes one of so many megabytes: one half pgbench's tables, which compress well, the other a table that does not.
    pub async fn make(
        machine: &'a Machine,
        programs: &Path,
        megabytes: u64,
        environment: &[(&str, String)],
    ) -> Result<Self, BenchError> {
        let data = machine.path("data");
        machine.fresh("sockets")?;
        let mut initdb = machine.command(programs.join("initdb"));
        initdb.args(["--data-checksums", "--username=postgres", "--auth=trust", "--locale=C", "--pgdata"]).arg(&data);
        run(&mut initdb).await?;
        let settings = format!(
            "listen_addresses = ''\nunix_socket_directories = '{}'\narchive_mode = on\narchive_command = ''\n\
             shared_buffers = 256MB\nmax_wal_size = 4GB\ncheckpoint_timeout = 30min\n",
            machine.path("sockets").display()
        );
        let path = data.join("postgresql.conf");
        let original = std::fs::read_to_string(&path).map_err(|error| failed("postgresql.conf", error))?;
        std::fs::write(&path, original + &settings).map_err(|error| failed("postgresql.conf", error))?;
        let log = std::fs::File::create(machine.path("postgresql.log")).map_err(|error| failed("the log", error))?;
        let mut postgres = machine.command(programs.join("postgres"));
        postgres.arg("-D").arg(&data).stdout(Stdio::null()).stderr(log);
        postgres.envs(environment.iter().map(|(name, value)| (name, value)));
        let server = postgres.spawn().map_err(|error| failed("postgres", error))?;
        let database = Self { machine, programs: programs.to_owned(), server };
        database.until_it_answers().await?;
        database.fill(megabytes).await?;
        Ok(database)
    }

    async fn until_it_answers(&self) -> Result<(), BenchError> {
        let began = Instant::now();
        while let Err(error) = self.sql("select 1").await {
            if began.elapsed() > STARTS_WITHIN {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    async fn fill(&self, megabytes: u64) -> Result<(), BenchError> {
        let scale = (megabytes / 2 / MEGABYTES_OF_A_SCALE).max(1);
        run(self.client("pgbench").args(["--initialize", "--quiet", &format!("--scale={scale}")])).await?;
        let rows = megabytes / 2 * ROWS_OF_A_MEGABYTE;
        self.sql(&format!(
            "create table document as select n, md5(n::text) || md5((n + 1)::text) || md5((n + 2)::text) as text \
             from generate_series(1, {rows}) as n"
        ))
        .await?;
        self.sql("vacuum analyze").await.map(drop)
    }

    /// A program of PostgreSQL's that connects to it.
    pub fn client(&self, program: &str) -> Command {
        let mut command = self.machine.command(self.programs.join(program));
        command.env("PGHOST", self.machine.path("sockets")).env("PGUSER", "postgres").env("PGDATABASE", "postgres");
        command
    }

    /// The answer to a statement.
    pub async fn sql(&self, sql: &str) -> Result<String, BenchError> {
        let mut psql = self.client("psql");
        psql.args(["--no-psqlrc", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", "--command", sql]);
        Ok(run(&mut psql).await?.0.trim().to_owned())
    }

    /// Its data directory.
    pub fn data(&self) -> PathBuf {
        self.machine.path("data")
    }

    /// Has its log archived by another command from now on, and waits until nothing waits.
    pub async fn archive_with(&self, command: &str) -> Result<(), BenchError> {
        self.set_archive_command(command).await?;
        self.sql("select pg_switch_wal()").await?;
        let began = Instant::now();
        while !self.files_that_wait()?.is_empty() {
            if began.elapsed() > SETTLES_WITHIN {
                return Err(failed(command, "the log does not get archived"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.sql("checkpoint").await.map(drop)
    }

    /// Only says who archives, from now on.
    pub async fn set_archive_command(&self, command: &str) -> Result<(), BenchError> {
        self.sql(&format!("alter system set archive_command = '{}'", command.replace('\'', "''"))).await?;
        self.sql("select pg_reload_conf()").await.map(drop)
    }

    /// What PostgreSQL has marked to be archived.
    pub fn files_that_wait(&self) -> Result<Vec<String>, BenchError> {
        let entries = std::fs::read_dir(self.status_directory()).map_err(|error| failed("archive_status", error))?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter_map(|name| name.strip_suffix(".ready").map(str::to_owned)).collect();
        names.sort();
        Ok(names)
    }

    /// Where it marks them.
    pub fn status_directory(&self) -> PathBuf {
        self.data().join("pg_wal/archive_status")
    }

    /// Which database it is.
    pub async fn system_identifier(&self) -> Result<u64, BenchError> {
        let text = self.sql("select system_identifier from pg_control_system()").await?;
        text.parse().map_err(|error| failed("the system identifier", error))
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        let Some(pid) = self.server.id().and_then(|pid| i32::try_from(pid).ok()) else { return };
        // Killed, it would leave its children behind.
        let _gone = kill(Pid::from_raw(pid), Signal::SIGQUIT);
        let began = Instant::now();
        while matches!(self.server.try_wait(), Ok(None)) && began.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
