//! The directory of PostgreSQL's Unix socket, and why local access needs no password.
//!
//! The agent must reach its own PostgreSQL as superuser at any time. `peer` asks the system for the client's user name, and
//! in a container that runs under an arbitrary UID there is none. A password would lock the agent out exactly when it is
//! needed: when the Secret was changed, or made anew for adopted volumes, only a superuser's session can set it.
//! So the socket's superuser is trusted, and the kernel guards the socket: it lies in a directory that only its owner
//! can enter (0700), and is itself 0700. Whoever passes that is PostgreSQL's own user (or root), and can read the data
//! files and rewrite `pg_hba.conf` anyway: the socket gives them nothing new.
//!
//! Must never happen: that the socket lies where somebody else can reach it. `hba` trusts it only because a
//! [`SocketDir`] can't be had otherwise.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What `sun_path` holds, less the closing zero.
const MAX_SOCKET_PATH: usize = 107;

/// A directory that only its owner can enter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketDir(PathBuf);

/// Why a directory can't hold the socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketDirError {
    /// The path of the socket would be longer than the system allows.
    #[error(
        "socket directory {dir:?}: its path has {length} bytes, at most {max} fit; choose a shorter run or data directory"
    )]
    TooLong {
        /// The directory.
        dir: PathBuf,
        /// The length of its path.
        length: usize,
        /// The longest that fits.
        max: usize,
    },
    /// Others can enter it, and it belongs to somebody else, so that we can't change that.
    #[error("socket directory {dir:?}: owned by UID {owner}, but this process is UID {own}; remove the directory")]
    NotOurs {
        /// The directory.
        dir: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        own: u32,
    },
    /// It is a symbolic link or no directory.
    #[error("socket directory {dir:?}: there is something else by that name; remove it")]
    NotADirectory {
        /// The path.
        dir: PathBuf,
    },
    /// It can't be made or looked at.
    #[error("socket directory {dir:?}: {source}")]
    Io {
        /// The directory.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl SocketDir {
    /// Makes the directory, or takes one of ours, and closes it to everybody else. Its parent must exist.
    pub fn ensure(dir: &Path, port: u16) -> Result<Self, SocketDirError> {
        let max = MAX_SOCKET_PATH - format!("/.s.PGSQL.{port}").len();
        let length = dir.as_os_str().len();
        if length > max {
            return Err(SocketDirError::TooLong { dir: dir.to_owned(), length, max });
        }
        let io = |source| SocketDirError::Io { dir: dir.to_owned(), source };
        match DirBuilder::new().mode(0o700).create(dir) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(io(e)),
        }
        // Not followed: a link planted by somebody else would lead the socket out of reach of these checks.
        let found = fs::symlink_metadata(dir).map_err(io)?;
        if !found.is_dir() {
            return Err(SocketDirError::NotADirectory { dir: dir.to_owned() });
        }
        let own = nix::unistd::geteuid().as_raw();
        if found.uid() != own {
            return Err(SocketDirError::NotOurs { dir: dir.to_owned(), owner: found.uid(), own });
        }
        if found.mode() & 0o077 != 0 {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(io)?;
        }
        Ok(Self(dir.to_owned()))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_open_to_others_is_closed() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("socket");
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        let socket = SocketDir::ensure(&dir, 5432).unwrap();
        assert_eq!(fs::metadata(socket.path()).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_link_to_elsewhere_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let link = base.path().join("socket");
        std::os::unix::fs::symlink("/tmp", &link).unwrap();
        assert!(matches!(SocketDir::ensure(&link, 5432), Err(SocketDirError::NotADirectory { .. })));
    }

    #[test]
    fn somebody_elses_directory_is_refused() {
        // `/` belongs to root; when the test itself runs as root, what belongs to somebody else is found in a process
        // of another user only, so there is nothing to show then.
        if !nix::unistd::geteuid().is_root() {
            assert!(matches!(SocketDir::ensure(Path::new("/"), 5432), Err(SocketDirError::NotOurs { .. })));
        }
    }

    #[test]
    fn a_path_that_no_socket_fits_into_says_so() {
        let error = SocketDir::ensure(Path::new(&format!("/tmp/{}", "x".repeat(100))), 5432).unwrap_err();
        assert!(error.to_string().contains("at most 93 fit"), "{error}");
    }
}
