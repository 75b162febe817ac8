//! What is on the data volume, and how a database gets there as a whole or not at all.
//!
//! ```text
//! <data>/pgdata              the database; there only when complete (it is renamed into place)
//! <data>/pgdata.scratch      an initdb or base backup under way
//! <data>/initdb.unfinished   from before the initdb until the Lease names its database
//! <data>/restore.unfinished  the same of a restore, with the UID of the cluster that it is for
//! <data>/postgres.lock       held by the guard of a running PostgreSQL
//! <data>/agent.lock          held by the agent
//! <data>/election.json       who this instance is, and what the election remembers
//! <data>/clone.unfinished    from before the base backup until it is in place
//! <data>/rewind.unfinished   from before a rewind changes the database until it is whole again
//! <data>/pgdata.aside        a database whose log parted from the leader's, until the new copy streams
//! <data>/reserve             room that is given back when the volume is full
//! <wal>/pg_wal               the write-ahead log, where it has a volume of its own
//! <wal>/pg_wal.aside         … and that of the database set aside
//! <wal>/reserve              the same there
//! ```
//!
//! Never: deletes anything without a marker that says it is this instance's own unfinished work. A marker is durable before
//! the first file that it speaks for exists.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt as _};
use std::path::{Path, PathBuf};

use bellwether_core::instance::start::VolumeState;
use bellwether_core::wal::SystemIdentifier;
use bellwether_postgres::control::{self, ControlError};
use bellwether_postgres::{Installation, file};

use crate::election;
use crate::space;

/// What file systems put at the root of a volume, and what is ours there beside the database.
const NOT_DATA: [&str; 7] =
    ["lost+found", LOCK, AGENT_LOCK, ASIDE, space::RESERVE, election::memory::FILE, election::memory::UNFINISHED];
/// Held by the agent that works on the volume.
pub(crate) const AGENT_LOCK: &str = "agent.lock";
/// A database that parted from the leader's.
const ASIDE: &str = "pgdata.aside";
/// There while a rewind is under way. Whoever it names: what it speaks for must not be started by anybody.
const REWIND: &str = "rewind.unfinished";
/// What a guard holds while a process of PostgreSQL runs on the volume.
const LOCK: &str = "postgres.lock";

/// The volumes of one instance.
#[derive(Clone, Debug)]
pub struct Volume {
    data: PathBuf,
    wal: Option<PathBuf>,
    instance: String,
}

/// Work that fills a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// `initdb`.
    Initdb,
    /// A restore from an object store.
    Restore,
    /// A base backup.
    Clone,
}

impl Work {
    fn marker(self) -> &'static str {
        match self {
            Self::Initdb => "initdb.unfinished",
            Self::Restore => "restore.unfinished",
            Self::Clone => "clone.unfinished",
        }
    }
}

/// What became of the copy before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LastCopy {
    /// Nothing speaks against another beside what was set aside.
    #[default]
    Other,
    /// The volume was full before it was whole: what was expected to fit did not.
    FoundNoRoom,
}

/// Why a volume can't be worked on.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The file system said no.
    #[error("{what} {}: {cause}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What came back.
        cause: io::Error,
    },
    /// The copy is of another database than was asked for.
    #[error("the copy is of database {found}, but the cluster's is {expected}; it is thrown away")]
    WrongDatabase {
        /// What was copied.
        found: SystemIdentifier,
        /// What should have been.
        expected: SystemIdentifier,
    },
    /// The new database can't be read.
    #[error(transparent)]
    Control(#[from] ControlError),
}

impl Volume {
    /// The volumes mounted at `data` and `wal`.
    pub fn new(data: PathBuf, wal: Option<PathBuf>, instance: &str) -> Self {
        Self { data, wal, instance: instance.to_owned() }
    }

    /// PostgreSQL's data directory.
    pub fn pgdata(&self) -> PathBuf {
        self.data.join("pgdata")
    }
    /// Where a new database is put together.
    pub fn scratch(&self) -> PathBuf {
        self.data.join("pgdata.scratch")
    }
    /// Where the WAL goes when it has a volume of its own.
    pub fn wal(&self) -> Option<PathBuf> {
        self.wal.as_ref().map(|wal| wal.join("pg_wal"))
    }

    /// Where a database goes whose log parted from the leader's.
    fn aside(&self) -> PathBuf {
        self.data.join(ASIDE)
    }
    /// … and its WAL, where that has a volume of its own.
    fn wal_aside(&self) -> Option<PathBuf> {
        self.wal.as_ref().map(|wal| wal.join("pg_wal.aside"))
    }

    /// What a guard holds while a process of PostgreSQL runs on the volume.
    pub fn lock(&self) -> PathBuf {
        self.data.join(LOCK)
    }

    /// Looks at the volume. What can't be looked at is foreign: it is refused and stays.
    pub async fn inspect(&self, installation: &Installation) -> VolumeState {
        match self.look(installation).await {
            Ok(state) => state,
            Err(error) => VolumeState::Foreign(error.to_string()),
        }
    }

    async fn look(&self, installation: &Installation) -> Result<VolumeState, VolumeError> {
        let (initdb, clone) = (self.marked(Work::Initdb)?, self.marked(Work::Clone)?);
        let restored_for = self.restored_for()?;
        let pgdata = self.pgdata();
        if !is_empty(&pgdata)? {
            if self.rewinding()? {
                return Ok(VolumeState::UnfinishedRewind);
            }
            if !pgdata.join("PG_VERSION").exists() {
                return Ok(VolumeState::Foreign(format!("{} is not empty and has no PG_VERSION", pgdata.display())));
            }
            let system = control::read(installation, &pgdata).await?.system_identifier;
            // In place, and named by no Lease yet.
            return Ok(match (initdb, restored_for, clone) {
                (true, None, false) => VolumeState::Unannounced(system),
                (false, Some(incarnation), false) => VolumeState::Restored { system, incarnation },
                _ => VolumeState::Data(system),
            });
        }
        if clone {
            return Ok(VolumeState::UnfinishedClone);
        }
        if initdb {
            return Ok(VolumeState::UnfinishedInitdb);
        }
        if restored_for.is_some() {
            return Ok(VolumeState::UnfinishedRestore);
        }
        match self.stranger()? {
            Some(stranger) => Ok(VolumeState::Foreign(stranger.display().to_string())),
            None => Ok(VolumeState::Empty),
        }
    }

    /// Something that we did not put there.
    fn stranger(&self) -> Result<Option<PathBuf>, VolumeError> {
        for entry in entries(&self.data)? {
            let known = entry.file_name().is_some_and(|name| NOT_DATA.iter().any(|ours| name == *ours));
            if !known && entry != self.pgdata() {
                return Ok(Some(entry));
            }
        }
        Ok(self.wal().filter(|wal| !matches!(is_empty(wal), Ok(true))))
    }

    /// A marker that names another instance speaks for nothing here.
    fn marked(&self, work: Work) -> Result<bool, VolumeError> {
        Ok(self.marker(work)?.is_some_and(|text| text == self.instance))
    }

    /// For which cluster a restore was begun here, by its UID.
    fn restored_for(&self) -> Result<Option<String>, VolumeError> {
        let text = self.marker(Work::Restore)?;
        let of = text.as_deref().and_then(|text| text.split_once(' '));
        Ok(of.filter(|(instance, _)| *instance == self.instance).map(|(_, incarnation)| incarnation.to_owned()))
    }

    fn marker(&self, work: Work) -> Result<Option<String>, VolumeError> {
        let path = self.data.join(work.marker());
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim_end().to_owned())),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(VolumeError::Io { what: "read", path, cause }),
        }
    }

    /// Begins to fill the volume: from here on, what is in the scratch directory is ours to delete. `state` is what
    /// [`Volume::inspect`] found; a volume with a database is never begun on.
    pub fn begin(&self, work: Work, state: &VolumeState) -> Result<(), VolumeError> {
        let unannounced = match state {
            VolumeState::Empty
            | VolumeState::UnfinishedInitdb
            | VolumeState::UnfinishedRestore
            | VolumeState::UnfinishedClone => false,
            VolumeState::Unannounced(_) => true,
            // What was restored gives way to a copy of the cluster's, and to nothing else.
            VolumeState::Restored { .. } if work == Work::Clone => true,
            VolumeState::Data(_)
            | VolumeState::Restored { .. }
            | VolumeState::UnfinishedRewind
            | VolumeState::Foreign(_) => return Err(self.has_data()),
        };
        self.mark(work.marker(), &self.instance)?;
        remove_tree(&self.scratch())?;
        if unannounced {
            // Moved in one step, so that half a database is never met under the name of a whole one.
            rename(&self.pgdata(), &self.scratch())?;
            self.sync()?;
            remove_tree(&self.scratch())?;
        }
        if let Some(wal) = self.wal() {
            remove_tree(&wal)?;
        }
        if work == Work::Clone {
            self.unmark(Work::Initdb)?;
        }
        self.unmark(Work::Restore)?;
        // What it spoke for was set aside.
        self.remove_marker(REWIND)
    }

    /// What there is of unfinished work: bytes that its next beginning gives back.
    pub fn unfinished_bytes(&self) -> u64 {
        size_of(&self.scratch()).unwrap_or(0)
    }

    /// The same for a restore, which is for this cluster alone. Nothing that looks like a database gives way to it.
    pub fn begin_restore(&self, incarnation: &str, state: &VolumeState) -> Result<(), VolumeError> {
        use VolumeState::{Empty, UnfinishedInitdb, UnfinishedRestore};
        if !matches!(state, Empty | UnfinishedInitdb | UnfinishedRestore) {
            return Err(self.has_data());
        }
        self.mark(Work::Restore.marker(), &format!("{} {incarnation}", self.instance))?;
        remove_tree(&self.scratch())?;
        if let Some(wal) = self.wal() {
            remove_tree(&wal)?;
        }
        self.unmark(Work::Initdb)
    }

    fn has_data(&self) -> VolumeError {
        let cause = io::Error::other("there is data on the volume");
        VolumeError::Io { what: "begin on", path: self.data.clone(), cause }
    }

    /// A rewind is about to change the database in place: it is none from here on, until [`Volume::rewound`].
    pub fn begin_rewind(&self) -> Result<(), VolumeError> {
        self.mark(REWIND, &self.instance)
    }

    /// The rewind is done, and what it left is whole.
    pub fn rewound(&self) -> Result<(), VolumeError> {
        self.remove_marker(REWIND)
    }

    fn rewinding(&self) -> Result<bool, VolumeError> {
        let path = self.data.join(REWIND);
        path.try_exists().map_err(io_error("look for", &path))
    }

    /// Sets the database aside, to be replaced by a copy of the leader's. It is kept until that streams. Whoever calls this has made sure
    /// that what is left half-way here is not taken for a database.
    pub fn set_aside(&self) -> Result<(), VolumeError> {
        self.mark(Work::Clone.marker(), &self.instance)?;
        remove_tree(&self.aside())?;
        if let (Some(wal), Some(aside)) = (self.wal(), self.wal_aside())
            && !is_empty(&wal)?
        {
            remove_tree(&aside)?;
            rename(&wal, &aside)?;
            sync_parent(&aside)?;
        }
        // In one step: half a database is never met under the name of a whole one.
        rename(&self.pgdata(), &self.aside())?;
        self.sync()?;
        if let Some(wal) = self.wal_aside() {
            relink(&self.aside().join("pg_wal"), &wal)?;
        }
        self.remove_marker(REWIND)
    }

    /// A leader that serves the cluster's database is about to be copied: what was set aside goes if there is no room for both. Not before:
    /// it could be the last copy.
    pub fn make_room(&self, last: LastCopy) -> Result<(), VolumeError> {
        if !self.aside().exists() || (last != LastCopy::FoundNoRoom && self.has_room()) {
            return Ok(());
        }
        tracing::warn!("no room for two copies: the one that parted from the leader's is removed first");
        self.forget_aside()
    }

    /// The new copy streams: the old one is not needed any more.
    pub fn forget_aside(&self) -> Result<(), VolumeError> {
        remove_tree(&self.aside())?;
        self.wal_aside().map_or(Ok(()), |wal| remove_tree(&wal))
    }

    /// Whether what is free could hold as much as was set aside, and a quarter more: the leader has gone on. What can't be looked at has none.
    fn has_room(&self) -> bool {
        let Ok(free) = space::free(&self.data) else { return false };
        size_of(&self.aside()).is_ok_and(|needed| free / 5 * 4 > needed)
    }

    /// Puts the finished database in place. After `initdb` and a restore the marker stays until [`Volume::announced`].
    pub async fn finish(
        &self,
        work: Work,
        installation: &Installation,
        expected: Option<SystemIdentifier>,
    ) -> Result<SystemIdentifier, VolumeError> {
        let found = control::read(installation, &self.scratch()).await?.system_identifier;
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            return Err(VolumeError::WrongDatabase { found, expected });
        }
        sync_dir(&self.scratch())?;
        rename(&self.scratch(), &self.pgdata())?;
        self.sync()?;
        if work == Work::Clone {
            self.unmark(Work::Clone)?;
        }
        Ok(found)
    }

    /// The Lease names the database on this volume: from now on it is data, and nobody's to delete.
    pub fn announced(&self) -> Result<(), VolumeError> {
        self.unmark(Work::Initdb)?;
        self.unmark(Work::Restore)?;
        self.unmark(Work::Clone)
    }

    fn mark(&self, marker: &str, whose: &str) -> Result<(), VolumeError> {
        let path = self.data.join(marker);
        file::replace(&path, format!("{whose}\n").as_bytes()).map_err(io_error("write", &path))?;
        Ok(())
    }

    fn unmark(&self, work: Work) -> Result<(), VolumeError> {
        self.remove_marker(work.marker())
    }

    fn remove_marker(&self, marker: &str) -> Result<(), VolumeError> {
        let path = self.data.join(marker);
        match fs::remove_file(&path) {
            Ok(()) => self.sync(),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(cause) => Err(VolumeError::Io { what: "remove", path, cause }),
        }
    }

    fn sync(&self) -> Result<(), VolumeError> {
        sync_dir(&self.data)
    }
}

fn io_error<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> VolumeError + use<'a> {
    move |cause| VolumeError::Io { what, path: path.to_owned(), cause }
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, VolumeError> {
    fs::read_dir(dir)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .map_err(io_error("list", dir))
}

/// The bytes that a directory takes up on its own volume: what links lead to is elsewhere.
fn size_of(dir: &Path) -> io::Result<u64> {
    let mut size = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let found = entry.metadata()?;
        size += if found.is_dir() { size_of(&entry.path())? } else { found.blocks() * 512 };
    }
    Ok(size)
}

fn is_empty(dir: &Path) -> Result<bool, VolumeError> {
    file::is_absent_or_empty(dir).map_err(io_error("list", dir))
}

fn rename(from: &Path, to: &Path) -> Result<(), VolumeError> {
    // An empty directory of that name (some provisioners make one) is replaced by the rename.
    fs::rename(from, to).map_err(io_error("rename", from))
}

/// Lets the link at `link` lead to `target`.
fn relink(link: &Path, target: &Path) -> Result<(), VolumeError> {
    let is_link = fs::symlink_metadata(link).is_ok_and(|found| found.is_symlink());
    if !is_link {
        return Ok(());
    }
    fs::remove_file(link).and_then(|()| std::os::unix::fs::symlink(target, link)).map_err(io_error("link", link))
}

fn sync_parent(path: &Path) -> Result<(), VolumeError> {
    path.parent().map_or(Ok(()), sync_dir)
}

fn sync_dir(dir: &Path) -> Result<(), VolumeError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io_error("sync", dir))
}

fn remove_tree(dir: &Path) -> Result<(), VolumeError> {
    match fs::remove_dir_all(dir) {
        Ok(()) => {
            tracing::info!(dir = %dir.display(), "removed what unfinished work had left");
            Ok(())
        }
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(cause) => Err(VolumeError::Io { what: "remove", path: dir.to_owned(), cause }),
    }
}

/// Makes a directory that only we can enter, if it isn't there.
pub fn private_dir(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}
