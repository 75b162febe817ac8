//! How fast segments of the log get away: PostgreSQL itself calls each archive command, for the same segments, and is timed.

use std::path::Path;
use std::time::{Duration, Instant};

use super::database::Database;
use super::machine::PATIENCE;
use super::s3::{BUCKET, S3};
use crate::{BenchError, failed};

/// So often is looked whether it is done: often enough for a figure, seldom enough to cost nothing.
const LOOK: Duration = Duration::from_millis(10);

/// Makes so many whole segments of what updates write, which nobody archives yet.
pub async fn make_segments(database: &Database<'_>, segments: usize) -> Result<Vec<String>, BenchError> {
    database.set_archive_command("").await?;
    database.sql("alter system set wal_keep_size = '16GB'").await?;
    database.sql("select pg_reload_conf()").await?;
    let rows: u64 = database.sql("select count(*) from pgbench_accounts").await?.parse().unwrap_or(1);
    let mut from = 0;
    while database.files_that_wait()?.len() < segments {
        let to = from + 20_000;
        database
            .sql(&format!("update pgbench_accounts set abalance = abalance + 1 where aid > {from} and aid <= {to}"))
            .await?;
        from = if to >= rows { 0 } else { to };
    }
    let mut names = database.files_that_wait()?;
    names.truncate(segments);
    Ok(names)
}

/// Has these archived by a command, although they may have been by another; segments a second.
pub async fn push(database: &Database<'_>, names: &[String], command: &str) -> Result<f64, BenchError> {
    let status = database.status_directory();
    for name in names {
        let (ready, done) = (marked(&status, name, "ready"), marked(&status, name, "done"));
        if done.exists() {
            std::fs::rename(done, ready).map_err(|error| failed(name, error))?;
        }
    }
    let began = Instant::now();
    database.set_archive_command(command).await?;
    // The archiver sleeps until there is something new.
    database.sql("select pg_switch_wal()").await?;
    let mut left: Vec<_> = names.iter().collect();
    while !left.is_empty() {
        if began.elapsed() > PATIENCE {
            return Err(failed(command, "the log does not get archived"));
        }
        tokio::time::sleep(LOOK).await;
        left.retain(|name| marked(&status, name, "ready").exists());
    }
    let took = began.elapsed();
    // What came after them is the next one's.
    database.set_archive_command("").await?;
    Ok(names.len() as f64 / took.as_secs_f64())
}

fn marked(status: &Path, name: &str, mark: &str) -> std::path::PathBuf {
    status.join(format!("{name}.{mark}"))
}

/// barman-cloud's, uncompressed, which is its default and the least work; it gets in by the environment that PostgreSQL was started in.
pub fn barman_cloud(s3: &S3) -> String {
    format!("barman-cloud-wal-archive --endpoint-url {} s3://{BUCKET}/barman bench %p", s3.endpoint())
}
