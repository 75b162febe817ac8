//! Replaces a small file as a whole. Must never happen: that PostgreSQL, or a crash, meets half of one.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Whether a file had to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The content is new.
    Changed,
    /// It was there already, word for word; nothing was touched.
    Unchanged,
}

impl Written {
    /// Whether somebody has to read the file again.
    pub fn changed(self) -> bool {
        self == Self::Changed
    }
}

/// Makes `path` hold `content`, readable for its owner only: written beside it, synced, renamed over it.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<Written> {
    let written = put(path, content, |file| file.sync_all())?;
    if written.changed() {
        sync_parent(path)?;
    }
    Ok(written)
}

/// The same for what is written again before whoever reads it is started: a power failure may take it back, and nobody would meet
/// that. It spares a failover the disk's time, several times over.
pub fn rewrite(path: &Path, content: &[u8]) -> io::Result<Written> {
    put(path, content, |_| Ok(()))
}

fn put(path: &Path, content: &[u8], settle: impl FnOnce(&File) -> io::Result<()>) -> io::Result<Written> {
    match fs::read(path) {
        Ok(present) if present == content => return Ok(Written::Unchanged),
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = Path::new(&beside);
    settle(&fill_new(beside, content)?)?;
    fs::rename(beside, path)?;
    Ok(Written::Changed)
}

/// Creates (or overwrites) `path` with mode 0600 and syncs it.
pub(crate) fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    fill_new(path, content)?.sync_all()
}

fn fill_new(path: &Path, content: &[u8]) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    // The mode above counts only when the file is created; one left over by a crash may have another.
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(content)?;
    Ok(file)
}

/// Makes an entry of a directory (a rename, a creation, a removal) survive a crash.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => Ok(()),
    }
}

/// Whether a directory is absent or has no entry: the only kind that a database may be put into.
pub fn is_absent_or_empty(dir: &Path) -> io::Result<bool> {
    match fs::read_dir(dir) {
        Ok(mut entries) => match entries.next() {
            None => Ok(true),
            Some(Ok(_)) => Ok(false),
            Some(Err(e)) => Err(e),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_content_is_not_written_twice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.conf");
        assert_eq!(replace(&path, b"x = 1\n").unwrap(), Written::Changed);
        assert_eq!(replace(&path, b"x = 1\n").unwrap(), Written::Unchanged);
        assert_eq!(rewrite(&path, b"x = 1\n").unwrap(), Written::Unchanged);
        assert_eq!(rewrite(&path, b"x = 2\n").unwrap(), Written::Changed);
        assert_eq!(fs::read(&path).unwrap(), b"x = 2\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_directory_with_anything_in_it_is_not_empty() {
        let dir = tempfile::tempdir().unwrap();
        assert!(is_absent_or_empty(dir.path()).unwrap());
        assert!(is_absent_or_empty(&dir.path().join("nothing")).unwrap());
        fs::write(dir.path().join(".hidden"), "").unwrap();
        assert!(!is_absent_or_empty(dir.path()).unwrap());
    }

    #[test]
    fn a_file_is_no_empty_directory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(is_absent_or_empty(file.path()).is_err());
    }
}
