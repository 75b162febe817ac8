//! Answers PostgreSQL for each file of its log: it is in the store, or why not.
//!
//! PostgreSQL asks for one file after the other. So those that come next are put into the store at the same time, and what is known of them is the answer
//! when they are asked for. A standby gives its primary a moment to be first: the files are the same.
//!
//! While the store is left alone PostgreSQL is kept waiting: after three failures it would not ask for a minute, and the store may be back in a second. What is
//! wrong is said at once to whoever looks at the cluster.
//!
//! Never: an answer before the store's; a file called archived because it once was asked for; a PostgreSQL that can't stop because it waits for us.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bellwether_backup::WalFile;
use bellwether_backup::wal::{self, WalError};
use bellwether_postgres::pidfile::{self, Pidfile, Status};
use k8s_openapi::jiff::Timestamp;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, MissedTickBehavior};

use super::SOCKET;
use super::command::DONE;
use super::process::{LEVEL, Open, Parts};

/// How long an attempt may take.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long PostgreSQL is kept waiting while the store is left alone. With one attempt more this is less than its command waits for us.
const HELD: Duration = Duration::from_secs(300);
/// How often is looked meanwhile whether PostgreSQL is being stopped: it does not end before its command has.
const STOPPING: Duration = Duration::from_millis(500);
/// How long a standby gives its primary.
const PRIMARY_FIRST: Duration = Duration::from_secs(20);
/// How often it looks meanwhile.
const LOOK: Duration = Duration::from_secs(2);
/// How often is looked for files that wait in spite of everything, and after how long that is said.
const STOCKTAKING: Duration = Duration::from_secs(10);
const WAITS: Duration = Duration::from_secs(150);
/// No name of a file is as long as this.
const LONGEST: u64 = 128;

/// Listens, for as long as the process lives.
pub(super) fn listen(parts: Parts) -> io::Result<()> {
    let path = parts.setup.sockets.join(SOCKET);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    // The directory is closed to others already.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))?;
    tokio::spawn(take_stock(parts.clone()));
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(answer(stream, parts.clone()))),
                Err(error) => {
                    tracing::warn!(%error, "can't be asked for files");
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
    });
    Ok(())
}

async fn answer(stream: UnixStream, parts: Parts) {
    let mut stream = BufReader::new(stream);
    let mut asked = String::new();
    let mut line = (&mut stream).take(LONGEST);
    if !matches!(tokio::time::timeout(PATIENCE, line.read_line(&mut asked)).await, Ok(Ok(_))) {
        return;
    }
    let failing = match asked.trim_end().parse::<WalFile>() {
        Err(error) => Some(error.to_string()),
        Ok(file) => {
            let until = written(&parts, file);
            let held = hold(&parts, file).await;
            if held.is_ok() && until > *parts.until.borrow() {
                parts.until.send_replace(until);
            }
            held.err()
        }
    };
    if let Some(why) = &failing {
        tracing::warn!(error = why, "not archived");
    }
    let line = format!("{}\n", failing.as_deref().unwrap_or(DONE).replace('\n', " "));
    parts.say_archiving(failing);
    // Whoever asked and is gone comes again.
    let _ = stream.get_mut().write_all(line.as_bytes()).await;
}

/// When a segment was written last: what was committed before that is in it, or in one before it, which PostgreSQL has had archived. A second less: of two that commit at
/// once, the first by its own word may be the second in the log.
fn written(parts: &Parts, file: WalFile) -> Option<Timestamp> {
    let path = matches!(file, WalFile::Segment(_)).then(|| wal_directory(parts).join(file.to_string()))?;
    let modified = Timestamp::try_from(std::fs::metadata(path).ok()?.modified().ok()?).ok()?;
    Timestamp::from_second(modified.as_second() - 1).ok()
}

/// Until the file is in the store, or it is of no use to wait for that.
async fn hold(parts: &Parts, file: WalFile) -> Result<(), String> {
    let late = || format!("{file} did not get into the store within {} s", PATIENCE.as_secs());
    let mut opened = parts.archive.clone();
    let open = match tokio::time::timeout(PATIENCE, opened.wait_for(Option::is_some)).await {
        Ok(open) => open.ok().and_then(|open| open.clone()).ok_or_else(|| "the archiver ends".to_owned())?,
        Err(_) => return Err(late()),
    };
    let until = Instant::now() + HELD;
    loop {
        let error = match tokio::time::timeout(PATIENCE, archived(parts, &open, file)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => return Err(late()),
        };
        // Anything else PostgreSQL tries again by itself.
        let Some(rest) = open.archive.store().rest().filter(|_| error.is_transient()) else {
            return Err(format!("{file}: {error}"));
        };
        let why = format!("{file}: {}: {rest}", open.archive.store());
        parts.say_archiving(Some(why.clone()));
        tokio::select! {
            () = open.archive.store().rested() => {}
            () = stopping(&parts.setup.pgdata) => return Err(why),
            () = tokio::time::sleep_until(until) => return Err(why),
        }
    }
}

/// Until PostgreSQL is being stopped.
async fn stopping(pgdata: &Path) {
    let stops = || matches!(pidfile::read(pgdata), Ok(Some(Pidfile { status: Some(Status::Stopping), .. })));
    while !stops() {
        tokio::time::sleep(STOPPING).await;
    }
}

/// Until the file is in the store.
async fn archived(parts: &Parts, open: &Open, file: WalFile) -> Result<(), WalError> {
    let follows = parts.follows.borrow().clone();
    // Who leads, or does not know, waits for nobody; and whoever leads is asked for one file after the other.
    let pushed = match follows.flatten() {
        Some(_) if there(open, file).await => return Ok(()),
        Some(_) => {
            let path = wal_directory(parts).join(file.to_string());
            wal::push(&open.archive, file, &path, open.segment_size, LEVEL).await
        }
        None => open.uploader.archive_file(file).await,
    };
    pushed.map(drop)
}

/// Whether the primary put it there in time. What is there under a name was created by somebody who has this very file: it is never replaced.
async fn there(open: &Open, file: WalFile) -> bool {
    let until = Instant::now() + PRIMARY_FIRST;
    while Instant::now() < until {
        if matches!(open.archive.store().size(&file.key()).await, Ok(Some(_))) {
            return true;
        }
        tokio::time::sleep(LOOK).await;
    }
    false
}

pub(super) fn wal_directory(parts: &Parts) -> PathBuf {
    parts.setup.pgdata.join("pg_wal")
}

/// Since when the oldest file waits that PostgreSQL has marked to be archived.
fn oldest(parts: &Parts) -> Option<(WalFile, SystemTime)> {
    let directory = wal_directory(parts).join("archive_status");
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let file = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        let file = name.to_str()?.strip_suffix(".ready")?.parse().ok()?;
        Some((file, entry.metadata().ok()?.modified().ok()?))
    };
    entries.filter_map(file).min_by_key(|(_, since)| *since)
}

/// Says it when files wait for too long, whatever the reason: PostgreSQL may not be asking at all.
async fn take_stock(parts: Parts) {
    let mut tick = tokio::time::interval(STOCKTAKING);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut late = false;
    loop {
        tick.tick().await;
        let waits = oldest(&parts).filter(|(_, since)| since.elapsed().is_ok_and(|waited| waited > WAITS));
        match &waits {
            // Once: each change is a write to the API.
            Some((file, _)) if !late => {
                let why = format!("{file} has waited for more than {} s to be archived", WAITS.as_secs());
                parts.say_archiving(Some(why));
            }
            None if late => parts.say_archiving(None),
            _ => {}
        }
        late = waits.is_some();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn postgresql_is_kept_waiting_as_long_as_it_runs_and_is_let_go_when_it_is_being_stopped() {
        let pgdata = tempfile::tempdir().unwrap();
        let says = |status: &str| {
            let text = format!("4711\n/data\n1763560800\n5432\n/run\n127.0.0.1\n  1234 5\n{status}\n");
            std::fs::write(pgdata.path().join(pidfile::NAME), text).unwrap();
        };
        says("ready   ");
        assert!(tokio::time::timeout(HELD, stopping(pgdata.path())).await.is_err());
        says("stopping");
        assert!(tokio::time::timeout(HELD, stopping(pgdata.path())).await.is_ok());
    }
}
