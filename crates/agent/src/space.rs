//! Measures the volumes twice a second, and keeps a reserve on each: a file that is given back when PostgreSQL needs its room, and made
//! again when there is enough ([`bellwether_core::instance::space`] decides).
//!
//! ```text
//! <data>/reserve   as much as PostgreSQL needs to start, end its recovery and serve reads; the agent's own files, too
//! <wal>/reserve    the same, where the WAL has a volume of its own
//! ```
//!
//! Never: a reserve on a volume without a database; waits for a file system in the thread that holds tenure.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bellwether_core::instance::space::{Measured, Reserve, Space, VolumeKind};
use nix::fcntl::posix_fallocate;
use nix::sys::statvfs::statvfs;
use tokio::sync::watch;

use crate::board::Board;

/// The reserve's name at the root of a volume.
pub const RESERVE: &str = "reserve";
/// What `st_blocks` counts in.
const BLOCK: u64 = 512;
/// How often is looked. What is written meanwhile is what the guard is for.
const LOOK: Duration = Duration::from_millis(500);

/// How much room each volume has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spaces(BTreeMap<VolumeKind, Space>);

impl Spaces {
    /// As much as the one with the least.
    pub fn least(&self) -> Space {
        self.0.values().copied().min().unwrap_or_default()
    }
    /// Those that are full.
    pub fn full(&self) -> Vec<VolumeKind> {
        self.0.iter().filter(|(_, space)| **space == Space::Full).map(|(kind, _)| *kind).collect()
    }
}

/// Where the volumes are mounted.
#[derive(Clone, Debug)]
pub struct Volumes {
    data: PathBuf,
    wal: Option<PathBuf>,
}

impl Volumes {
    /// The volumes mounted at `data` and `wal`.
    pub fn new(data: PathBuf, wal: Option<PathBuf>) -> Self {
        Self { data, wal }
    }

    fn each(&self) -> impl Iterator<Item = (VolumeKind, &Path)> {
        let wal = self.wal.iter().map(|wal| (VolumeKind::Wal, wal.as_path()));
        [(VolumeKind::Data, self.data.as_path())].into_iter().chain(wal)
    }

    /// Measures each, and does about the reserves what is to be done. What can't be measured is as it was.
    pub fn look(&self, before: &Spaces) -> Spaces {
        let mut spaces = before.clone();
        for (kind, path) in self.each() {
            let measured = match measure(path) {
                Ok(measured) => measured,
                Err(error) => {
                    tracing::warn!(%error, volume = %kind, "can't be measured");
                    continue;
                }
            };
            let was = before.0.get(&kind).copied().unwrap_or_default();
            let space = measured.space(was);
            if space != was {
                let (mib, of) = (measured.free >> 20, measured.size >> 20);
                tracing::info!(volume = %kind, ?space, free_mib = mib, size_mib = of, "room");
            }
            spaces.0.insert(kind, space);
            match measured.reserve(space) {
                Reserve::Keep => {}
                Reserve::GiveBack => drop(give_back(path)),
                Reserve::Make(size) => self.make(path, size),
            }
        }
        spaces
    }

    fn make(&self, path: &Path, size: u64) {
        // What is copied or initialised comes first.
        if !self.data.join("pgdata").exists() {
            return;
        }
        if let Err(error) = allocate(&path.join(RESERVE), size) {
            tracing::debug!(%error, "no reserve");
            give_back(path);
        }
    }

    /// Makes room to start PostgreSQL, by giving the reserve back if need be. Answers the volume that has none even so.
    pub fn make_room_to_start(&self, writes: bool) -> Result<(), VolumeKind> {
        for (kind, path) in self.each() {
            let holds_wal = kind == VolumeKind::Wal || self.wal.is_none();
            let room = || measure(path).is_ok_and(|measured| measured.can_start(writes && holds_wal));
            if room() || give_back(path) && room() {
                continue;
            }
            return Err(kind);
        }
        Ok(())
    }
}

/// Looks for ever, and says what is new.
pub async fn watch(volumes: Volumes, spaces: watch::Sender<Spaces>, board: Board) {
    loop {
        tokio::time::sleep(LOOK).await;
        let before = spaces.borrow().clone();
        let volumes = volumes.clone();
        // A file system that hangs must not hang the agent.
        let Ok(now) = tokio::task::spawn_blocking(move || volumes.look(&before)).await else { continue };
        board.report(|report| report.full = now.full());
        spaces.send_if_modified(|spaces| std::mem::replace(spaces, now.clone()) != now);
    }
}

/// What is free on the volume at `path`, in bytes; its reserve is not.
pub fn free(path: &Path) -> io::Result<u64> {
    measure(path).map(|measured| measured.free)
}

fn measure(path: &Path) -> io::Result<Measured> {
    let found = statvfs(path)?;
    let unit = found.fragment_size() as u64;
    let reserve = match fs::metadata(path.join(RESERVE)) {
        Ok(file) => file.blocks() * BLOCK,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    Ok(Measured { size: found.blocks() as u64 * unit, free: found.blocks_available() as u64 * unit, reserve })
}

fn allocate(path: &Path, size: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let size = i64::try_from(size).map_err(io::Error::other)?;
    Ok(posix_fallocate(&file, 0, size)?)
}

/// Gives the reserve of the volume at `path` back, if there is one. Answers whether that made room.
pub fn give_back(path: &Path) -> bool {
    match fs::remove_file(path.join(RESERVE)) {
        Ok(()) => {
            tracing::warn!(volume = %path.display(), "the reserve is given back: the volume is full");
            true
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => {
            tracing::error!(%error, volume = %path.display(), "the reserve can't be given back");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> (tempfile::TempDir, Volumes) {
        let dir = tempfile::tempdir().unwrap();
        let volumes = Volumes::new(dir.path().to_owned(), None);
        (dir, volumes)
    }

    #[test]
    fn a_reserve_is_made_where_a_database_is_and_taken_for_no_use_of_the_volume() {
        let (dir, volumes) = volume();
        let spaces = volumes.look(&Spaces::default());
        assert!(!dir.path().join(RESERVE).exists());
        fs::create_dir(dir.path().join("pgdata")).unwrap();
        assert_eq!(volumes.look(&spaces), spaces);
        // A machine whose own disk is full has none to give.
        let made = measure(dir.path()).unwrap().reserve;
        assert!(spaces.least() == Space::Full || made > 0);
        assert_eq!(give_back(dir.path()), made > 0);
        assert!(!give_back(dir.path()));
    }

    #[test]
    fn the_least_counts_and_the_full_ones_are_named() {
        let spaces = Spaces(BTreeMap::from([(VolumeKind::Data, Space::Ample), (VolumeKind::Wal, Space::Full)]));
        assert_eq!((spaces.least(), spaces.full()), (Space::Full, vec![VolumeKind::Wal]));
        assert_eq!(Spaces::default().least(), Space::Ample);
    }
}
