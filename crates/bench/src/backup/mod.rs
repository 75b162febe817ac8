//! What backups cost, side by side with pgBackRest, `tar | zstd` and barman-cloud: one run, one database, one machine, equal levels of compression, as many
//! workers, equal checks. Rounds alternate, and the middle one counts.
//!
//! Never: a figure without its peer's of the same run; one that is better because more was left out.

mod beside;
mod database;
mod log;
mod machine;
mod ours;
mod pgbackrest;
mod s3;

use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use beside::Pgbench;
use database::Database;
use machine::{Machine, run};
use ours::{Edition, Ours};
use pgbackrest::PgBackRest;
use s3::S3;

use crate::{BenchError, failed, figure, mebibytes};

/// zstd's, which the archiver has.
const LEVEL: i32 = 3;
/// How long pgbench runs alone.
const ALONE: Duration = Duration::from_secs(15);

/// Where backups go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A directory on the same disk.
    Directory,
    /// versitygw on loopback, over TLS.
    S3,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Directory => "directory",
            Self::S3 => "S3",
        })
    }
}

/// How many stores of ours there have been.
#[derive(Default)]
pub struct Stores {
    directory: usize,
    s3: usize,
}

impl Stores {
    fn of(&mut self, place: Place) -> usize {
        *self.count(place)
    }

    fn count(&mut self, place: Place) -> &mut usize {
        match place {
            Place::Directory => &mut self.directory,
            Place::S3 => &mut self.s3,
        }
    }

    fn next(&mut self, place: Place) -> Edition {
        let count = self.count(place);
        *count += 1;
        Edition(place, *count - 1)
    }
}

/// How much, by the environment.
struct Plan {
    megabytes: u64,
    rounds: usize,
    segments: usize,
    workers: usize,
}

impl Plan {
    fn read() -> Result<Self, BenchError> {
        let number = |name: &str, default: u64| match std::env::var(name) {
            Ok(text) => text.parse().map_err(|_| failed(name, format!("{text:?} is not a number"))),
            Err(_) => Ok(default),
        };
        let count = |name: &str, default| number(name, default).map(|count| usize::try_from(count.max(1)).unwrap_or(1));
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            megabytes: number("SIZE", 2048)?,
            rounds: count("ROUNDS", 3)?,
            segments: count("SEGMENTS", 48)?,
            workers,
        })
    }
}

/// Figures of one thing, one of each round.
#[derive(Default)]
struct Rounds(Vec<f64>);

impl Rounds {
    fn took(&mut self, time: Duration) {
        self.0.push(time.as_secs_f64());
    }

    fn middle(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

/// Measures everything.
pub async fn measure(binary: &Path) -> Result<(), BenchError> {
    let plan = Plan::read()?;
    let store = std::env::var_os("S3_SERVER")
        .map(PathBuf::from)
        .ok_or_else(|| failed("S3_SERVER", "hack/bench-backup names it"))?;
    let programs = std::env::var_os("PG_PROGRAMS")
        .map(PathBuf::from)
        .ok_or_else(|| failed("PG_PROGRAMS", "hack/bench-backup names it"))?;
    let dir =
        tempfile::Builder::new().prefix("bellwether-bench-").tempdir().map_err(|error| failed("a directory", error))?;
    let machine = Machine::new(dir.path())?;
    let ours = Ours { machine: &machine, binary: for_everybody(&machine, binary)?, programs: programs.clone() };
    let s3 = S3::start(&machine, &store).await?;
    let environment = barman_s_way_in(&machine, &s3)?;
    let database = Database::make(&machine, &programs, plan.megabytes, &environment).await?;
    let bench = Bench { plan, machine: &machine, database: &database, ours: &ours, s3: &s3 };
    bench.all().await
}

/// PostgreSQL's user may not enter where it was built.
fn for_everybody(machine: &Machine, binary: &Path) -> Result<PathBuf, BenchError> {
    let copy = machine.path("bellwether");
    let copied = std::fs::copy(binary, &copy)
        .and_then(|_| std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)));
    copied.map(|()| copy).map_err(|error| failed(&binary.display().to_string(), error))
}

/// By files, because a command's arguments are for everybody to read.
fn barman_s_way_in(machine: &Machine, s3: &S3) -> Result<Vec<(&'static str, String)>, BenchError> {
    let text = format!("[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n", s3::KEY, s3::SECRET);
    let credentials = machine.write("credentials", &text)?;
    Ok(vec![
        ("AWS_SHARED_CREDENTIALS_FILE", credentials.display().to_string()),
        ("AWS_CA_BUNDLE", s3.certificate.display().to_string()),
        ("AWS_DEFAULT_REGION", s3::REGION.to_owned()),
    ])
}

struct Bench<'a> {
    plan: Plan,
    machine: &'a Machine,
    database: &'a Database<'a>,
    ours: &'a Ours<'a>,
    s3: &'a S3,
}

impl Bench<'_> {
    async fn all(&self) -> Result<(), BenchError> {
        let mut stores = Stores::default();
        let mut memory = 0;
        for place in [Place::Directory, Place::S3] {
            let theirs = PgBackRest::set_up(self.machine, self.database, self.s3, place, self.plan.workers).await?;
            let (last, bytes) = self.back_up(place, &theirs, &mut stores, &mut memory).await?;
            self.restore(last, bytes, &theirs).await?;
            if place == Place::Directory {
                self.beside(&theirs, &mut stores, &mut memory).await?;
            }
            self.push(place, &theirs, &mut stores).await?;
            self.machine.remove(&last.directory())?;
        }
        figure("peak memory of a backup", format!("{:.0} MiB", mebibytes(memory)), "< 256 MiB");
        Ok(())
    }

    /// Base backups, one after the other; the last of ours stays.
    async fn back_up(
        &self,
        place: Place,
        theirs: &PgBackRest<'_>,
        stores: &mut Stores,
        memory: &mut u64,
    ) -> Result<(Edition, u64), BenchError> {
        let (mut our_times, mut their_times, mut tar_times) = (Rounds::default(), Rounds::default(), Rounds::default());
        let (mut last, mut bytes) = (Edition(place, 0), 0);
        for _ in 0..self.plan.rounds {
            last = stores.next(place);
            ours::forget(stores, self.machine, last)?;
            let mut archiver = self.ours.archiver(last, self.database, self.s3).await?;
            self.database.archive_with(&self.ours.archive_command()).await?;
            let (report, took) = archiver.back_up().await?;
            our_times.took(took);
            bytes = report.bytes.unwrap_or(0);
            *memory = archiver.peak_memory().max(*memory);
            self.database.archive_with(&theirs.archive_command()).await?;
            drop(archiver);
            their_times.took(theirs.back_up().await?);
            if place == Place::Directory {
                tar_times.took(self.tar().await?);
            }
        }
        let speed = |times: &Rounds| bytes as f64 / 1e6 / times.middle();
        let (fast, peer) = (speed(&our_times), speed(&their_times));
        compare(&format!("base backup, {place}"), "MB/s", fast, ("pgBackRest", peer), "≥ 1.1 ×");
        if place == Place::Directory {
            compare("base backup, directory", "MB/s", fast, ("tar | zstd", speed(&tar_times)), "stretch ≥ 0.85 ×");
        }
        Ok((last, bytes))
    }

    /// What a disk and two processors can do without any care: no checks, no log, no manifest.
    async fn tar(&self) -> Result<Duration, BenchError> {
        let target = self.machine.path("data.tar.zst");
        let script = r#"set -o pipefail; tar -C "$1" --exclude=./pg_wal --warning=no-file-changed -c . | zstd -q -"$2" -T"$3" -o "$4"; sync "$4""#;
        let mut command = self.machine.command("bash");
        command.args(["-c", script, "tar"]).arg(self.database.data());
        command.args([LEVEL.to_string(), self.plan.workers.to_string()]).arg(&target);
        let (_, took) = run(&mut command).await?;
        std::fs::remove_file(&target).map_err(|error| failed("data.tar.zst", error))?;
        Ok(took)
    }

    async fn restore(&self, last: Edition, bytes: u64, theirs: &PgBackRest<'_>) -> Result<(), BenchError> {
        let (mut our_times, mut their_times) = (Rounds::default(), Rounds::default());
        for _ in 0..self.plan.rounds {
            self.machine.remove("restored")?;
            our_times.took(self.ours.restore(last, &self.machine.path("restored"), self.s3).await?);
            let target = self.machine.fresh("restored")?;
            their_times.took(theirs.restore(&target).await?);
        }
        self.machine.remove("restored")?;
        let speed = |times: &Rounds| bytes as f64 / 1e6 / times.middle();
        let what = format!("restore, {}", last.0);
        compare(&what, "MB/s", speed(&our_times), ("pgBackRest", speed(&their_times)), "≥ 1.2 ×");
        Ok(())
    }

    /// What those notice who use the database while it is backed up into a directory.
    async fn beside(&self, theirs: &PgBackRest<'_>, stores: &mut Stores, memory: &mut u64) -> Result<(), BenchError> {
        let edition = stores.next(Place::Directory);
        let mut archiver = self.ours.archiver(edition, self.database, self.s3).await?;
        let (mut alone, mut beside_ours, mut beside_theirs) = (Rounds::default(), Rounds::default(), Rounds::default());
        for _ in 0..self.plan.rounds {
            self.database.archive_with(&self.ours.archive_command()).await?;
            let pgbench = Pgbench::start(self.database)?;
            let began = Instant::now();
            tokio::time::sleep(ALONE).await;
            alone.0.push(pgbench.since(began)?);
            let began = Instant::now();
            archiver.back_up().await?;
            beside_ours.0.push(pgbench.since(began)?);
            self.database.set_archive_command(&theirs.archive_command()).await?;
            let began = Instant::now();
            theirs.back_up().await?;
            beside_theirs.0.push(pgbench.since(began)?);
            drop(pgbench);
            self.database.archive_with(&theirs.archive_command()).await?;
        }
        *memory = archiver.peak_memory().max(*memory);
        drop(archiver);
        self.machine.remove(&edition.directory())?;
        let alone = alone.middle();
        let fewer = |beside: &Rounds| (1.0 - beside.middle() / alone) * 100.0;
        let (ours, theirs) = (fewer(&beside_ours), fewer(&beside_theirs));
        let shown = format!("{ours:.0} % fewer (pgBackRest {theirs:.0} %), of {alone:.0} tps");
        figure("transactions beside a backup", shown, "≤ pgBackRest's");
        Ok(())
    }

    async fn push(&self, place: Place, theirs: &PgBackRest<'_>, stores: &mut Stores) -> Result<(), BenchError> {
        self.database.archive_with(&theirs.archive_command()).await?;
        let names = log::make_segments(self.database, self.plan.segments).await?;
        let edition = stores.next(place);
        let archiver = self.ours.archiver(edition, self.database, self.s3).await?;
        let fast = log::push(self.database, &names, &self.ours.archive_command()).await?;
        let peer = log::push(self.database, &names, &theirs.archive_command()).await?;
        let what = format!("WAL push, {place}");
        compare(&what, "segments/s", fast, ("pgBackRest, synchronous", peer), "≥ 2 ×");
        if place == Place::S3 {
            let barman = log::push(self.database, &names, &log::barman_cloud(self.s3)).await?;
            compare(&what, "segments/s", fast, ("barman-cloud", barman), "≥ 10 ×");
        }
        self.database.archive_with(&theirs.archive_command()).await?;
        drop(archiver);
        self.machine.remove(&edition.directory())
    }
}

fn compare(what: &str, unit: &str, ours: f64, (peer, theirs): (&str, f64), goal: &str) {
    figure(what, format!("{ours:.1} {unit}, {:.2} × {peer} ({theirs:.1})", ours / theirs), goal);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_round_counts() {
        let mut times = Rounds::default();
        for seconds in [9, 2, 3] {
            times.took(Duration::from_secs(seconds));
        }
        assert_eq!(times.middle(), 3.0);
    }
}
