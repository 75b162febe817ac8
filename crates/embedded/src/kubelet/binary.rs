//! Our own binary where the databases' user can run it: one copy for each build in `bin/`, linked into each pod.
//!
//! The copy is taken from `/proc/self/exe`, which is the running program even when its file was replaced meanwhile. Never: a
//! half-copied binary under its final name.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The name of our program.
pub const PROGRAM: &str = "bellwether";

/// Copies the running binary into `directory`, unless this build is there already, and removes other builds.
pub fn provide(directory: &Path) -> io::Result<PathBuf> {
    let meta = fs::metadata("/proc/self/exe")?;
    let build = directory.join(format!("{:x}-{:x}-{:x}", meta.size(), meta.mtime(), meta.mtime_nsec()));
    let path = build.join(PROGRAM);
    if !path.exists() {
        fs::create_dir_all(&build)?;
        fs::set_permissions(&build, Permissions::from_mode(0o755))?;
        install(&path)?;
    }
    for entry in fs::read_dir(directory)?.flatten().filter(|entry| entry.path() != build) {
        fs::remove_dir_all(entry.path())?;
    }
    Ok(path)
}

/// Copies the running binary to `target`, all of it or nothing.
pub fn install(target: &Path) -> io::Result<()> {
    let draft = target.with_extension("draft");
    fs::copy("/proc/self/exe", &draft)?;
    fs::set_permissions(&draft, Permissions::from_mode(0o755))?;
    fs::File::open(&draft)?.sync_all()?;
    fs::rename(&draft, target)
}

/// Puts the binary into a pod's directory: a link where that is possible.
pub fn link(binary: &Path, directory: &Path) -> io::Result<()> {
    let target = directory.join(PROGRAM);
    if target.exists() {
        fs::remove_file(&target)?;
    }
    fs::hard_link(binary, &target).or_else(|_| fs::copy(binary, &target).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_copy_a_build_and_no_old_ones() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("an-older-build")).unwrap();
        let first = provide(temp.path()).unwrap();
        assert_eq!(provide(temp.path()).unwrap(), first);
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
        assert_eq!(fs::metadata(first).unwrap().len(), fs::metadata("/proc/self/exe").unwrap().len());
    }
}
