//! Gives what was restored to whoever PostgreSQL runs as.
//!
//! Only root restores for somebody else. Never: a link followed out of what was restored.

use std::fs;
use std::os::unix::fs::lchown;
use std::path::Path;

use super::{RestoreError, io_error};

/// Who PostgreSQL runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunAs {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// Gives a directory, and everything in it.
pub fn give(path: &Path, who: RunAs) -> Result<(), RestoreError> {
    let given = |path: &Path| lchown(path, Some(who.uid), Some(who.gid));
    given(path).map_err(|cause| io_error("change the owner of", path, cause))?;
    // Links are not followed: what they lead to is given by itself.
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        let entries = fs::read_dir(path).map_err(|cause| io_error("look into", path, cause))?;
        for entry in entries {
            give(&entry.map_err(|cause| io_error("look into", path, cause))?.path(), who)?;
        }
    }
    Ok(())
}
