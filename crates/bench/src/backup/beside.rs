//! What a backup costs those who use the database meanwhile: pgbench beside it, transactions a second.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;
use tokio::task::JoinHandle;

use super::database::Database;
use crate::{BenchError, failed};

/// pgbench, running. It ends when this does.
pub struct Pgbench {
    _child: Child,
    reading: JoinHandle<()>,
    seconds: Arc<Mutex<Vec<(Instant, f64)>>>,
}

impl Pgbench {
    /// Four sessions that read and write as fast as they can.
    pub fn start(database: &Database<'_>) -> Result<Self, BenchError> {
        let mut pgbench = database.client("pgbench");
        pgbench.args(["--no-vacuum", "--client=4", "--jobs=2", "--progress=1", "--time=86400"]);
        let spawned = pgbench.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|error| failed("pgbench", error))?;
        let said = child.stderr.take().ok_or_else(|| failed("pgbench", "it has no pipe"))?;
        let seconds = Arc::new(Mutex::new(vec![]));
        let seen = seconds.clone();
        let reading = tokio::spawn(async move {
            let mut lines = BufReader::new(said).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(tps) = tps(&line) {
                    seen.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), tps));
                }
            }
        });
        Ok(Self { _child: child, reading, seconds })
    }

    /// Transactions a second since then, of the whole seconds in it.
    pub fn since(&self, began: Instant) -> Result<f64, BenchError> {
        let seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        let of: Vec<_> = seconds
            .iter()
            .filter(|(at, _)| at.checked_duration_since(began).is_some_and(|after| after.as_secs_f64() >= 1.0))
            .map(|(_, tps)| *tps)
            .collect();
        if of.is_empty() {
            return Err(failed("pgbench", "not one whole second of it: take a larger SIZE"));
        }
        Ok(of.iter().sum::<f64>() / of.len() as f64)
    }
}

impl Drop for Pgbench {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

fn tps(line: &str) -> Option<f64> {
    let (_, rest) = line.strip_prefix("progress: ")?.split_once(" s, ")?;
    rest.split_once(" tps")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_says_each_second_is_understood() {
        assert_eq!(tps("progress: 3.0 s, 1234.5 tps, lat 0.8 ms stddev 0.2, 0 failed"), Some(1234.5));
        assert_eq!(tps("pgbench (15.18)"), None);
    }
}
