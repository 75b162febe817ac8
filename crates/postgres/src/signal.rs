//! Whether a data directory starts as a standby: the file `standby.signal`.
//!
//! Must never happen: that a directory which should follow starts writable because the file was lost in a crash. So the
//! directory is synced before anybody starts PostgreSQL on it.

use std::fs;
use std::io;
use std::path::Path;

use crate::file;

const STANDBY: &str = "standby.signal";
const RECOVERY: &str = "recovery.signal";

/// How a server starts on a data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAs {
    /// It follows another one until it is promoted.
    Standby,
    /// It accepts writes.
    Primary,
}

/// How a server would start on this directory now.
pub fn read(data_dir: &Path) -> io::Result<StartAs> {
    Ok(if data_dir.join(STANDBY).try_exists()? { StartAs::Standby } else { StartAs::Primary })
}

/// Makes the next start on this directory one as standby or as primary.
///
/// As primary both signal files go: with `recovery.signal` left behind the server would look for an archive and stop.
pub fn set(data_dir: &Path, start_as: StartAs) -> io::Result<()> {
    let standby = data_dir.join(STANDBY);
    match start_as {
        StartAs::Standby => file::write_new(&standby, b"")?,
        StartAs::Primary => {
            remove(&standby)?;
            remove(&data_dir.join(RECOVERY))?;
        }
    }
    file::sync_parent(&standby)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_follows_until_told_otherwise() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), StartAs::Primary);
        for start_as in [StartAs::Standby, StartAs::Standby, StartAs::Primary, StartAs::Primary] {
            set(dir.path(), start_as).unwrap();
            assert_eq!(read(dir.path()).unwrap(), start_as);
        }
    }
}
