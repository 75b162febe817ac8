//! A volume: a file system of its own, of the size that was asked for, in a file on the node.
//!
//! Real in the way that matters to tests: it can be full while the machine's disk is not, and it can grow. Never: a volume
//! whose file system ends where the machine's disk ends.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::command::Run;
use crate::layout::{Node, node_dir};

/// The file that fills a volume.
const FILLING: &str = ".harness-filling";

/// mkfs.xfs makes nothing below 300 MB. XFS, because growing ext4 in use takes a privilege that many virtual machines lack.
const SMALLEST: u64 = 320 << 20;

/// A volume on a node.
#[derive(Debug, Clone)]
pub struct Volume {
    node: Node,
    name: String,
}

impl Volume {
    /// The volume of that name on that node, there or not.
    pub fn new(node: Node, name: &str) -> Volume {
        Volume { node, name: name.to_owned() }
    }

    /// Where it is mounted on the node: what the PersistentVolume names.
    pub fn path(&self) -> PathBuf {
        node_dir(self.node).join("volumes").join(&self.name)
    }

    fn file(&self) -> PathBuf {
        node_dir(self.node).join("volumes").join(format!("{}.img", self.name))
    }

    fn is_mounted(&self) -> bool {
        crate::down::mounts().contains(&self.path())
    }

    /// Makes and mounts it; a step that an interrupted call has done is not done again.
    pub fn create(&self, bytes: u64) -> Result<(), Error> {
        let (path, file) = (self.path(), self.file());
        fs::create_dir_all(&path).map_err(Error::file(&path))?;
        if self.is_mounted() {
            return Ok(());
        }
        // Sparse: takes what is written to it.
        let created = fs::File::create(&file).and_then(|created| created.set_len(bytes.max(SMALLEST)));
        created.map_err(Error::file(&file))?;
        Run::new("mkfs.xfs", ["-q", "-f", &shown(&file)]).go()?;
        Run::new("mount", ["-o", "loop,noatime", &shown(&file), &shown(&path)]).go()
    }

    /// Makes it larger while it is in use.
    pub fn grow(&self, bytes: u64) -> Result<(), Error> {
        let file = self.file();
        let grown = fs::File::options().write(true).open(&file).and_then(|opened| opened.set_len(bytes.max(SMALLEST)));
        grown.map_err(Error::file(&file))?;
        let device = Run::new("losetup", ["-n", "-O", "NAME", "-j", &shown(&file)]).output()?;
        Run::new("losetup", ["-c", device.trim()]).go()?;
        Run::new("xfs_growfs", [&shown(&self.path())]).go()
    }

    /// Unmounts and deletes it, data and all. Nothing happens when it is gone.
    pub fn delete(&self) -> Result<(), Error> {
        let (path, file) = (self.path(), self.file());
        if self.is_mounted() {
            nix::mount::umount(&path).map_err(|errno| Error::File { path: path.clone(), source: errno.into() })?;
        }
        if path.exists() {
            fs::remove_dir(&path).map_err(Error::file(&path))?;
        }
        if file.exists() {
            fs::remove_file(&file).map_err(Error::file(&file))?;
        }
        Ok(())
    }

    /// Takes all its free space.
    pub fn fill(&self) -> Result<(), Error> {
        if !self.is_mounted() {
            return Err(Error::Refused(format!("{} is no volume of this cluster", self.path().display())));
        }
        let filling = self.path().join(FILLING);
        // At once what is free, then on until "no space left", which is the point; then seen from the outside.
        let script = r#"fallocate -l $(($(stat -f -c '%a * %S' "$1"))) "$2" 2>/dev/null
cat /dev/zero >>"$2" 2>/dev/null
! head -c 65536 /dev/zero 2>/dev/null >"$2.probe"; full=$?
rm -f "$2.probe"; exit $full"#;
        let words = ["-c", script, "sh", &shown(&self.path()), &shown(&filling)];
        Run::new("sh", words).within(std::time::Duration::from_secs(120)).go()
    }

    /// Gives the space back.
    pub fn free(&self) -> Result<(), Error> {
        let filling = self.path().join(FILLING);
        match fs::remove_file(&filling) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::File { path: filling, source: error })
            }
            _ => Ok(()),
        }
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
