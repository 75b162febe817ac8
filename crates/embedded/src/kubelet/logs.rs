//! Keeps what a pod's processes say: one file a pod, and one older when it has grown too large.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

/// Where a file is put aside. Two files of this size a pod hold days of ordinary logs.
const LARGEST: u64 = 10 * 1024 * 1024;

/// A log that is put aside when it has grown.
#[derive(Debug)]
struct Log {
    path: PathBuf,
    file: File,
    size: u64,
}

/// The file of a pod's log.
pub fn path(directory: &Path, namespace: &str, pod: &str) -> PathBuf {
    directory.join(format!("{namespace}_{pod}.log"))
}

/// Copies everything from `source` into the log until the last writer has closed it.
pub async fn keep(mut source: pipe::Receiver, path: PathBuf) {
    let mut log = match Log::open(path.clone()) {
        Ok(log) => log,
        Err(error) => return tracing::warn!(%error, path = %path.display(), "no log for this pod"),
    };
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = source.read(&mut buffer).await {
        // A full disk must not stop the database: what can't be written is dropped, but the pipe is emptied.
        if let Err(error) = log.append(&buffer[..count]) {
            tracing::warn!(%error, path = %path.display(), "log lines dropped");
        }
    }
}

impl Log {
    fn open(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        let size = file.metadata()?.len();
        Ok(Self { path, file, size })
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.size > LARGEST {
            fs::rename(&self.path, self.path.with_extension("log.1"))?;
            *self = Self::open(self.path.clone())?;
        }
        self.file.write_all(bytes)?;
        self.size += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grown_log_is_put_aside_once() {
        let temp = tempfile::tempdir().unwrap();
        let mut log = Log::open(path(temp.path(), "default", "db-1")).unwrap();
        log.append(b"old").unwrap();
        log.size = LARGEST + 1;
        log.append(b"new").unwrap();
        let read = |name: &str| fs::read_to_string(temp.path().join(name)).unwrap();
        assert_eq!((read("default_db-1.log").as_str(), read("default_db-1.log.1").as_str()), ("new", "old"));
    }
}
