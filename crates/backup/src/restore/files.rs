//! Writes what is in packs to where it belongs, several packs at the same time.
//!
//! A pack may come before the one with its directories, and the parts of a large file in any order: directories are made when something is put into
//! them, and parts are written at their offsets. Never: a file written twice; a file called whole of which a part is missing, or of which two parts
//! overlap.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::arriving::{Arriving, Stopped};
use super::target::{CONTROL, Directories};
use super::{Progress, RestoreError, io_error};
use crate::base::header::{Entry, Inside, Kind};
use crate::base::pack::{Piece, piece_of};
use crate::base::tar::{Event, Reader};
use crate::record::Commit;

/// PostgreSQL's manifest in a data directory.
const MANIFEST: &str = "backup_manifest";
/// Where tablespaces were. PostgreSQL would link to there; the links are made already, to where they are now.
pub(crate) const TABLESPACE_MAP: &str = "tablespace_map";
/// After how much it is said how far we are.
const REPORT: u64 = 1 << 20;

/// Parts of a large file that were written: the size of the whole, and where each begins and ends.
#[derive(Debug)]
struct Parts {
    size: u64,
    written: Vec<(u64, u64)>,
}

/// The files of a backup.
#[derive(Debug)]
pub(super) struct Files {
    directories: Directories,
    id: String,
    bytes: u64,
    written: AtomicU64,
    parts: Mutex<HashMap<Inside, Parts>>,
    progress: watch::Sender<Progress>,
    /// Whether it is of no use to go on.
    stop: CancellationToken,
}

/// A file that is being written.
struct Open {
    file: File,
    path: PathBuf,
    position: u64,
}

impl Files {
    pub(super) fn new(
        directories: Directories,
        commit: &Commit,
        progress: watch::Sender<Progress>,
        stop: CancellationToken,
    ) -> Self {
        let (id, bytes) = (commit.id.to_string(), commit.bytes);
        Self { directories, id, bytes, written: AtomicU64::new(0), parts: Mutex::default(), progress, stop }
    }

    /// Unpacks a pack.
    pub(super) fn pack(&self, mut arriving: Arriving<'_>) -> Result<(), RestoreError> {
        let used = self.unpack(&mut arriving);
        arriving.check(used)
    }

    /// Writes the manifest, which is the last thing that a whole backup needs to be checked by others.
    pub(super) fn manifest(&self, mut arriving: Arriving<'_>) -> Result<(), RestoreError> {
        let path = self.directories.data.join(MANIFEST);
        let used = self.create(&path, 0o600).and_then(|file| {
            let mut open = Open { file, path, position: 0 };
            arriving.each(|data| open.write(data))?;
            Ok(open.position)
        });
        arriving.check(used)
    }

    fn unpack(&self, arriving: &mut Arriving<'_>) -> Result<u64, Stopped> {
        let (mut reader, mut open, mut bytes, mut reported) = (Reader::default(), None::<Open>, 0, 0);
        arriving.each(|mut data| {
            if self.stop.is_cancelled() {
                return Err(Stopped::Other(RestoreError::Aborted { key: self.id.clone() }));
            }
            while let Some(event) = reader.next(&mut data).map_err(|error| Stopped::Content(error.to_string()))? {
                match event {
                    Event::Entry(entry) => open = self.begin(&entry)?,
                    Event::Data(piece) => {
                        bytes += piece.len() as u64;
                        if let Some(open) = &mut open {
                            open.write(piece)?;
                        }
                    }
                    Event::End => open = None,
                }
            }
            if bytes - reported >= REPORT {
                self.report(bytes - reported);
                reported = bytes;
            }
            Ok(())
        })?;
        self.report(bytes - reported);
        reader.finish().map_err(|error| Stopped::Content(error.to_string()))?;
        Ok(bytes)
    }

    fn report(&self, more: u64) {
        let before = self.written.fetch_add(more, Ordering::Relaxed);
        self.progress.send_modify(|progress| progress.done = progress.done.max(before + more));
    }

    /// Makes room for an entry. `None`: its content is of no use.
    fn begin(&self, entry: &Entry) -> Result<Option<Open>, Stopped> {
        let content = |problem: String| Stopped::Content(format!("{}: {problem}", entry.path));
        if self.directories.is_unknown_tablespace(entry.path.as_path()) {
            return Err(content("there is no such tablespace in the commit".to_owned()));
        }
        match &entry.kind {
            Kind::Directory => self.directory(entry).map(|()| None).map_err(Stopped::Other),
            Kind::Link { .. } => Err(content("a link, which no backup has".to_owned())),
            Kind::File if entry.path.as_bytes() == TABLESPACE_MAP.as_bytes() => Ok(None),
            Kind::File => {
                let piece = piece_of(entry).map_err(|error| content(error.to_string()))?;
                if self.directories.is_unknown_tablespace(piece.path.as_path()) {
                    return Err(content("there is no such tablespace in the commit".to_owned()));
                }
                if piece.size == entry.size { self.whole(entry) } else { self.part(entry, &piece) }.map(Some)
            }
        }
    }

    fn directory(&self, entry: &Entry) -> Result<(), RestoreError> {
        let path = self.directories.data.join(entry.path.as_path());
        self.make(&path)?;
        // Not while something is put into it: nobody but its owner may enter until now, and who else may is what the entry says.
        fs::set_permissions(&path, fs::Permissions::from_mode(entry.mode & 0o777))
            .map_err(|cause| io_error("set the permissions of", &path, cause))
    }

    fn whole(&self, entry: &Entry) -> Result<Open, Stopped> {
        let path = self.directories.place_of(entry.path.as_path());
        Ok(Open { file: self.create(&path, entry.mode)?, path, position: 0 })
    }

    fn part(&self, entry: &Entry, piece: &Piece) -> Result<Open, Stopped> {
        let path = self.directories.place_of(piece.path.as_path());
        let (begin, end) = (piece.offset, piece.offset + entry.size);
        let content = |problem: String| Stopped::Content(format!("{}: {problem}", piece.path));
        let mut files = self.parts();
        let parts = files.entry(piece.path.clone()).or_insert(Parts { size: piece.size, written: vec![] });
        if parts.size != piece.size {
            return Err(content(format!("a part of {} bytes, where others say {}", piece.size, parts.size)));
        }
        if let Some((from, to)) = parts.written.iter().find(|(from, to)| begin < *to && *from < end) {
            return Err(content(format!("bytes {begin} to {end} overlap with {from} to {to}")));
        }
        // Under the lock: whoever comes with the next part finds the file.
        let file = if parts.written.is_empty() {
            self.create(&path, entry.mode)?
        } else {
            let opened = OpenOptions::new().write(true).open(&path);
            opened.map_err(|cause| Stopped::Other(io_error("open", &path, cause)))?
        };
        parts.written.push((begin, end));
        Ok(Open { file, path, position: begin })
    }

    /// A new file, and the directory that it goes into.
    fn create(&self, path: &Path, mode: u32) -> Result<File, Stopped> {
        path.parent().map_or(Ok(()), |parent| self.make(parent)).map_err(Stopped::Other)?;
        match OpenOptions::new().write(true).create_new(true).mode(mode & 0o777).open(path) {
            Ok(file) => Ok(file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(Stopped::Content(format!("{} is in the backup twice", path.display())))
            }
            Err(cause) => Err(Stopped::Other(io_error("create", path, cause))),
        }
    }

    /// A directory, and those that it is in. Never the data directory: when that is gone, somebody has removed it.
    fn make(&self, dir: &Path) -> Result<(), RestoreError> {
        match DirBuilder::new().mode(0o700).create(dir) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound && dir != self.directories.data => {
                dir.parent().map_or(Ok(()), |parent| self.make(parent))?;
                match DirBuilder::new().mode(0o700).create(dir) {
                    // Another thread needed it too.
                    Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => Err(io_error("make", dir, cause)),
                    _ => Ok(()),
                }
            }
            Err(cause) => Err(io_error("make", dir, cause)),
        }
    }

    fn parts(&self) -> MutexGuard<'_, HashMap<Inside, Parts>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything was unpacked: whether it is everything, and then it is closed.
    pub(super) fn finish(&self) -> Result<(), RestoreError> {
        let incomplete =
            |path: String, problem: String| RestoreError::Incomplete { id: self.id.clone(), path, problem };
        for (path, parts) in self.parts().iter_mut() {
            parts.written.sort_unstable();
            // They don't overlap, so what is missing is missing between two, or at the end.
            let reached = parts.written.iter().try_fold(0, |at, &(from, to)| if from == at { Ok(to) } else { Err(at) });
            match reached {
                Ok(end) if end == parts.size => {}
                Ok(at) | Err(at) => {
                    let problem = format!("the part that begins at byte {at} of {} is missing", parts.size);
                    return Err(incomplete(path.to_string(), problem));
                }
            }
        }
        let written = self.written.load(Ordering::Relaxed);
        if written != self.bytes {
            let problem = format!("{written} bytes were in its packs, and its commit says {}", self.bytes);
            return Err(incomplete("all files".to_owned(), problem));
        }
        if !self.directories.place_of(Path::new(CONTROL)).exists() {
            return Err(incomplete(CONTROL.to_owned(), "it is in no pack".to_owned()));
        }
        self.directories.close()
    }
}

impl Open {
    fn write(&mut self, data: &[u8]) -> Result<(), Stopped> {
        let written = self.file.write_all_at(data, self.position);
        written.map_err(|cause| Stopped::Other(io_error("write", &self.path, cause)))?;
        self.position += data.len() as u64;
        Ok(())
    }
}
