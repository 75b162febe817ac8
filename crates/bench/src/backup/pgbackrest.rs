//! pgBackRest, as its manual says to configure it, with our level of compression and as many processes as we have threads.
//!
//! Its page checksums and its look at the archive are on, as ours are; small files are bundled, which is to its advantage; old backups expire outside of
//! what is measured.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::database::Database;
use super::machine::{Machine, run};
use super::s3::{BUCKET, KEY, REGION, S3, SECRET};
use super::{LEVEL, Place};
use crate::BenchError;

const STANZA: &str = "bench";

/// It, with one repository.
pub struct PgBackRest<'a> {
    machine: &'a Machine,
    configuration: PathBuf,
}

impl<'a> PgBackRest<'a> {
    /// Writes its configuration and creates the stanza.
    pub async fn set_up(
        machine: &'a Machine,
        database: &Database<'_>,
        s3: &S3,
        place: Place,
        workers: usize,
    ) -> Result<Self, BenchError> {
        let repository = match place {
            Place::Directory => format!("repo1-path={}\n", machine.fresh("pgbackrest")?.display()),
            Place::S3 => format!(
                "repo1-type=s3\nrepo1-path=/pgbackrest\nrepo1-s3-bucket={BUCKET}\nrepo1-s3-endpoint=localhost\n\
                 repo1-s3-region={REGION}\nrepo1-s3-uri-style=path\nrepo1-s3-key={KEY}\nrepo1-s3-key-secret={SECRET}\n\
                 repo1-storage-host=localhost\nrepo1-storage-port={}\nrepo1-storage-ca-file={}\n",
                s3.address.port(),
                s3.certificate.display()
            ),
        };
        let dir = |name: &str| machine.fresh(name).map(|path| path.display().to_string());
        let text = format!(
            "[global]\n{repository}repo1-bundle=y\nrepo1-retention-full=1\ncompress-type=zst\ncompress-level={LEVEL}\n\
             process-max={workers}\nlog-level-file=off\nlog-level-console=warn\nlog-path={}\nlock-path={}\nspool-path={}\n\n\
             [global:backup]\nstart-fast=y\nexpire-auto=n\nchecksum-page=y\narchive-check=y\n\n\
             [{STANZA}]\npg1-path={}\npg1-socket-path={}\npg1-user=postgres\n",
            dir("pgbackrest-log")?,
            dir("pgbackrest-lock")?,
            dir("pgbackrest-spool")?,
            database.data().display(),
            machine.path("sockets").display(),
        );
        let configuration = machine.write(&format!("pgbackrest-{place}.conf"), &text)?;
        let pgbackrest = Self { machine, configuration };
        run(pgbackrest.command().arg("stanza-create")).await?;
        Ok(pgbackrest)
    }

    fn command(&self) -> tokio::process::Command {
        let mut command = self.machine.command("pgbackrest");
        command.arg(self.option()).arg(format!("--stanza={STANZA}"));
        command
    }

    fn option(&self) -> String {
        format!("--config={}", self.configuration.display())
    }

    /// What PostgreSQL calls for each file; synchronous, which is the default.
    pub fn archive_command(&self) -> String {
        format!("pgbackrest {} --stanza={STANZA} archive-push %p", self.option())
    }

    /// Takes a full backup.
    pub async fn back_up(&self) -> Result<Duration, BenchError> {
        let (_, took) = run(self.command().args(["--type=full", "backup"])).await?;
        run(self.command().arg("expire")).await?;
        Ok(took)
    }

    /// Restores the newest backup into a new directory.
    pub async fn restore(&self, to: &Path) -> Result<Duration, BenchError> {
        let began = Instant::now();
        run(self.command().arg(format!("--pg1-path={}", to.display())).arg("restore")).await?;
        self.machine.settle().await?;
        Ok(began.elapsed())
    }
}
