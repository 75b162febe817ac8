//! The data directory of one `bellwether up`: its layout, and that only one process uses it.
//!
//! Never: two processes on one directory (they would start two PostgreSQLs on one volume), a lock that outlives its process
//! (it is the kernel's, released by any kind of death), or a directory that the databases' user can't reach, found out only
//! when PostgreSQL fails an hour later.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::fcntl::{Flock, FlockArg};

use crate::run_as::RunAs;

/// PostgreSQL's socket must fit into `sun_path` (107 bytes); this is what we and PostgreSQL add to the directory's name:
/// `/pods/<8 of the pod's uid>/<volume>/.s.PGSQL.5432` with room for a volume's name.
const LONGEST_ROOT: usize = 107 - "/pods/12345678/bellwether-run/.s.PGSQL.5432".len();

/// An open, locked data directory.
#[derive(Debug)]
pub struct DataDirectory {
    root: PathBuf,
    _lock: Flock<File>,
}

/// Why the directory can't be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Another process has it.
    #[error("{} is in use by another `bellwether up` (pid {pid}); stop that one (kill {pid}), or choose another \
             directory with --data-dir", root.display())]
    InUse {
        /// The directory.
        root: PathBuf,
        /// Who has it.
        pid: String,
    },
    /// The databases' user can't get there.
    #[error("PostgreSQL runs as {user:?}, who may not enter {} (mode {mode:04o}); choose another directory with \
             --data-dir, or allow it: chmod o+x {}", blocked.display(), blocked.display())]
    NotTraversable {
        /// The databases' user.
        user: String,
        /// The directory that it may not enter.
        blocked: PathBuf,
        /// The directory's mode.
        mode: u32,
    },
    /// Sockets below it would have names that the kernel doesn't take.
    #[error("the path {} is too long: PostgreSQL's sockets below it would exceed the kernel's 107 bytes; choose a \
             directory of at most {LONGEST_ROOT} bytes with --data-dir", root.display())]
    TooLong {
        /// The directory.
        root: PathBuf,
    },
    /// The operating system said no.
    #[error("{what} {}: {source}; choose another directory with --data-dir, or fix its permissions", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
}

impl DataDirectory {
    /// The directory when none is named: the system's for root, the user's own otherwise.
    pub fn default_path() -> PathBuf {
        if nix::unistd::geteuid().is_root() {
            return PathBuf::from("/var/lib/bellwether");
        }
        let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/tmp".into())).join(".local/share");
        std::env::var_os("XDG_DATA_HOME").map_or_else(home, PathBuf::from).join("bellwether")
    }

    /// Creates or opens the directory for this process alone.
    pub fn open(path: &Path, user: &RunAs) -> Result<Self, DirectoryError> {
        let io = |what, path: &Path| {
            let path = path.to_owned();
            move |source| DirectoryError::Io { what, path, source }
        };
        create_dir(path, 0o711).map_err(io("creating", path))?;
        let root = path.canonicalize().map_err(io("resolving", path))?;
        if root.as_os_str().len() > LONGEST_ROOT {
            return Err(DirectoryError::TooLong { root });
        }
        let lock = lock(&root)?;
        open_to_the_user(&root).map_err(io("reading", &root))?;
        traversable(&root, user)?;
        for (name, mode) in [("api", 0o700), ("bin", 0o711), ("volumes", 0o711), ("pods", 0o711), ("logs", 0o700)] {
            let below = root.join(name);
            create_dir(&below, mode).map_err(io("creating", &below))?;
        }
        Ok(Self { root, _lock: lock })
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }
    /// State and keys of the API.
    pub fn api(&self) -> PathBuf {
        self.root.join("api")
    }
    /// Copies of our own binary that the databases' user can run.
    pub fn bin(&self) -> PathBuf {
        self.root.join("bin")
    }
    /// A directory for each PersistentVolumeClaim.
    pub fn volumes(&self) -> PathBuf {
        self.root.join("volumes")
    }
    /// A directory for each pod.
    pub fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }
    /// The pods' output.
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }
    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }
    /// The operator's kubeconfig, where the operator runs outside.
    pub fn operator_kubeconfig(&self) -> PathBuf {
        self.root.join("operator.kubeconfig")
    }
    /// Which loopback range the directory's objects have their addresses from.
    pub fn range(&self) -> PathBuf {
        self.root.join("range")
    }
}

/// Writes a file that only its owner may read, all of it or nothing.
pub fn write_private(path: &Path, content: &[u8]) -> std::io::Result<()> {
    // A name of its own: two who write the same file at once must not take each other's draft away.
    static DRAFTS: AtomicU64 = AtomicU64::new(0);
    let draft = path.with_extension(format!("draft-{}-{}", std::process::id(), DRAFTS.fetch_add(1, Ordering::Relaxed)));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&draft, path)
}

fn create_dir(path: &Path, mode: u32) -> std::io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(mode).create(path)
}

fn lock(root: &Path) -> Result<Flock<File>, DirectoryError> {
    let path = root.join("lock");
    let io = |source| DirectoryError::Io { what: "locking", path: path.clone(), source };
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let mut locked = match Flock::lock(file.map_err(io)?, FlockArg::LockExclusiveNonblock) {
        Ok(locked) => locked,
        Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
            let mut pid = String::new();
            file.read_to_string(&mut pid).map_err(io)?;
            return Err(DirectoryError::InUse { root: root.to_owned(), pid: pid.trim().to_owned() });
        }
        Err((_, errno)) => return Err(io(errno.into())),
    };
    locked
        .set_len(0)
        .and_then(|()| locked.rewind())
        .and_then(|()| writeln!(locked, "{}", std::process::id()))
        .map_err(io)?;
    Ok(locked)
}

/// `mktemp -d` makes directories that only their owner may enter. One that is ours and still empty is opened by us; one
/// with something in it is left as its owner wanted it.
fn open_to_the_user(root: &Path) -> std::io::Result<()> {
    let is_new = fs::read_dir(root)?.flatten().all(|entry| entry.file_name() == "lock");
    let mode = fs::metadata(root)?.mode() & 0o777;
    if is_new && mode & 0o011 != 0o011 {
        fs::set_permissions(root, Permissions::from_mode(mode | 0o011))
    } else {
        Ok(())
    }
}

fn traversable(root: &Path, user: &RunAs) -> Result<(), DirectoryError> {
    for directory in root.ancestors().filter(|_| user.switch) {
        let io = |source| DirectoryError::Io { what: "reading", path: directory.to_owned(), source };
        let meta = fs::metadata(directory).map_err(io)?;
        let needed = match (meta.uid() == user.uid, meta.gid() == user.gid) {
            (true, _) => 0o100,
            (_, true) => 0o010,
            _ => 0o001,
        };
        if meta.mode() & needed == 0 {
            let (user, blocked) = (user.name.clone(), directory.to_owned());
            return Err(DirectoryError::NotTraversable { user, blocked, mode: meta.mode() & 0o7777 });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn somebody_else() -> RunAs {
        RunAs { name: "somebody".into(), uid: 12345, gid: 12345, switch: true }
    }

    #[test]
    fn a_second_opening_is_refused_with_the_pid_of_the_first_and_what_to_do() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("home");
        fs::set_permissions(temp.path(), Permissions::from_mode(0o711)).unwrap();
        let first = DataDirectory::open(&root, &somebody_else()).unwrap();
        let refusal = DataDirectory::open(&root, &somebody_else()).unwrap_err().to_string();
        assert!(refusal.contains(&format!("pid {}", std::process::id())), "{refusal}");
        assert!(refusal.contains("--data-dir"), "{refusal}");
        drop(first);
        DataDirectory::open(&root, &somebody_else()).unwrap();
    }

    #[test]
    fn a_directory_that_the_databases_user_cannot_reach_is_refused_early() {
        let temp = tempfile::tempdir().unwrap();
        fs::set_permissions(temp.path(), Permissions::from_mode(0o700)).unwrap();
        let refusal = DataDirectory::open(&temp.path().join("home"), &somebody_else()).unwrap_err().to_string();
        assert!(refusal.contains("chmod o+x"), "{refusal}");
        assert!(refusal.contains("\"somebody\""), "{refusal}");
    }

    #[test]
    fn a_fresh_private_directory_is_opened_to_the_user() {
        let outer = tempfile::tempdir().unwrap();
        fs::set_permissions(outer.path(), Permissions::from_mode(0o711)).unwrap();
        let fresh = tempfile::tempdir_in(outer.path()).unwrap();
        fs::set_permissions(fresh.path(), Permissions::from_mode(0o700)).unwrap();
        DataDirectory::open(fresh.path(), &somebody_else()).unwrap();
    }

    #[test]
    fn many_writers_of_one_file_never_fail_and_never_mix() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("file");
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let (path, text) = (&path, writer.to_string().repeat(1000));
                scope.spawn(move || (0..20).for_each(|_| write_private(path, text.as_bytes()).unwrap()));
            }
        });
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.len() == 1000 && text.chars().all(|c| text.starts_with(c)));
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn a_path_too_long_for_sockets_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let refusal = DataDirectory::open(&temp.path().join("x".repeat(90)), &somebody_else()).unwrap_err();
        assert!(matches!(refusal, DirectoryError::TooLong { .. }), "{refusal}");
    }
}
