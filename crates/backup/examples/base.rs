//! How fast a base backup is, and how much memory it takes: `base SOCKET_DIR STORE_DIR [TARGET]`.
//!
//! Backs up the server on that socket (port 5432) into a directory, without its log, and restores that into `TARGET` if one is given. Compare with
//! `tar -C $PGDATA -c . | zstd -3 -T2 > /dev/null`, with everything in the page cache.

use std::error::Error;
use std::io::{Write as _, stdout};
use std::path::Path;
use std::time::{Duration, Instant};

use bellwether_backup::base::protocol::{Connection, Purpose};
use bellwether_backup::base::{self, Options, take};
use bellwether_backup::layout::BackupId;
use bellwether_backup::restore::{self, unpack};
use bellwether_backup::{Location, Store};
use jiff::Timestamp;
use tokio::sync::watch;

const PORT: u16 = 5432;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [socket_dir, store_dir, target @ ..] = arguments.as_slice() else {
        return Err("base SOCKET_DIR STORE_DIR [TARGET]".into());
    };
    let (socket_dir, store) = (Path::new(socket_dir), Store::open(&Location::directory(Path::new(store_dir)))?);
    let mut server = Connection::open(socket_dir, PORT, Purpose::Replication, Duration::from_secs(10)).await?;
    let system = server.identify_system().await?.system_identifier;
    drop(server);

    let started = Instant::now();
    let options = Options::new(BackupId::at(Timestamp::now()), socket_dir, PORT, system);
    let taken = take(&options, &store, &watch::Sender::new(base::Progress::default())).await?;
    let commit = taken.commit(&store).await?;
    report("backup", commit.bytes, started)?;
    writeln!(stdout(), "stored {} MB in {} packs", commit.stored() / 1_000_000, commit.packs.len())?;

    if let [target] = target {
        let started = Instant::now();
        let progress = watch::Sender::new(restore::Progress::default());
        unpack(&commit, &store, Path::new(target), &restore::Options::default(), &progress).await?;
        report("restore", commit.bytes, started)?;
    }
    Ok(())
}

fn report(what: &str, bytes: u64, started: Instant) -> Result<(), Box<dyn Error>> {
    let (took, megabytes) = (started.elapsed(), bytes as f64 / 1e6);
    let speed = megabytes / took.as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("unknown");
    writeln!(stdout(), "{what}: {megabytes:.0} MB in {took:.1?}, {speed:.0} MB/s; peak memory {}", peak.trim())?;
    Ok(())
}
