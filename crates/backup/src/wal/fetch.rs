//! One file out of the archive: it appears when every byte of it was checked, and is on disk by then.
//!
//! Never: a part of a file where PostgreSQL looks for one; "not there" said of what could not be read.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::TryStreamExt as _;
use tokio::sync::mpsc;

use super::frame::{Header, Unpacker, Unpacking};
use super::{WalError, blocking};
use crate::layout::WalFile;
use crate::store::{Store, StoreError};

/// What of an object waits to be unpacked: a few pieces as they come from the network.
const WAITING: usize = 4;

/// What a file that is not whole yet has behind its name, and a dot before it.
const STAGED: &str = ".fetching";

/// Whether a file of this name is one that is not whole yet.
pub(super) fn is_staged(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(STAGED)
}

/// What a file in the archive holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Its size.
    pub size: u64,
    /// Its SHA-256, in hexadecimal digits.
    pub sha256: String,
}

/// Puts a file of the archive there; `false` when the archive does not have it. A file that is there is replaced.
pub async fn fetch(archive: &Store, file: WalFile, destination: &Path) -> Result<bool, WalError> {
    let destination = destination.to_owned();
    let written = unpack(archive, file, move |pieces| write(file, pieces, &destination)).await?;
    Ok(written.is_some())
}

/// Reads a file of the archive back, without keeping it: what it holds, or nothing when the archive does not have it.
pub async fn read_back(archive: &Store, file: WalFile) -> Result<Option<Contents>, WalError> {
    let read = move |pieces: Pieces| {
        let (_, header) = pieces.unpack(file, io::sink())?;
        Ok(Contents { size: header.size, sha256: header.sha256 })
    };
    unpack(archive, file, read).await
}

/// The text of a small file, from its object.
pub(crate) fn text(file: WalFile, object: &[u8]) -> Result<String, String> {
    let mut unpacker = Unpacker::new(file, Text(vec![]));
    let unpacked = unpacker.feed(object).and_then(|()| unpacker.finish());
    let (Text(text), _) = unpacked.map_err(|error| match error {
        Unpacking::Damage(damage) => damage.to_string(),
        Unpacking::Write(cause) => cause.to_string(),
    })?;
    String::from_utf8(text).map_err(|error| error.to_string())
}

/// What a history of every timeline that there can be would not fill.
const LARGEST_TEXT: usize = 1 << 20;

struct Text(Vec<u8>);

impl io::Write for Text {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.0.len() + piece.len() > LARGEST_TEXT {
            return Err(io::Error::other("it is larger than any history"));
        }
        self.0.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Hands an object over, as it comes, to what unpacks it.
async fn unpack<T: Send + 'static>(
    archive: &Store,
    file: WalFile,
    work: impl FnOnce(Pieces) -> Result<T, Ended> + Send + 'static,
) -> Result<Option<T>, WalError> {
    let mut stream = match archive.stream(&file.key()).await {
        Ok(stream) => stream,
        Err(StoreError::Missing { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let (pieces, waiting) = mpsc::channel(WAITING);
    let unpacking = tokio::spawn(blocking(file, move || Ok(work(Pieces(waiting)))));
    let mut failed = None;
    loop {
        match stream.try_next().await {
            Ok(Some(piece)) => {
                // Whoever unpacks has ended, and says why.
                if pieces.send(piece).await.is_err() {
                    break;
                }
            }
            Ok(None) => break,
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    // What was broken off here is not the file: that is found out there, as it is when all of this is given up.
    drop(pieces);
    let ended = unpacking.await.unwrap_or(Err(WalError::GivenUp { file }))?;
    match (failed, ended) {
        (Some(error), _) => Err(error.into()),
        (None, Ok(done)) => Ok(Some(done)),
        (None, Err(Ended::Io(path, cause))) => Err(WalError::Io { path, cause }),
        (None, Err(Ended::Unpacking(Unpacking::Damage(problem)))) => {
            Err(WalError::Damaged { store: archive.to_string(), file, problem })
        }
        (None, Err(Ended::Unpacking(Unpacking::Write(cause)))) => {
            Err(WalError::Io { path: file.to_string().into(), cause })
        }
    }
}

/// Why there is no file.
enum Ended {
    Io(PathBuf, io::Error),
    Unpacking(Unpacking),
}

impl From<Unpacking> for Ended {
    fn from(unpacking: Unpacking) -> Self {
        Self::Unpacking(unpacking)
    }
}

struct Pieces(mpsc::Receiver<Bytes>);

impl Pieces {
    fn unpack<W: io::Write>(mut self, file: WalFile, to: W) -> Result<(W, Header), Ended> {
        let mut unpacker = Unpacker::new(file, to);
        while let Some(piece) = self.0.blocking_recv() {
            unpacker.feed(&piece)?;
        }
        Ok(unpacker.finish()?)
    }
}

/// The file, under its name only once it is whole and on disk.
fn write(file: WalFile, pieces: Pieces, destination: &Path) -> Result<(), Ended> {
    let directory = destination.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    let io = |cause| Ended::Io(destination.to_owned(), cause);
    let (staged, path) = stage(directory, destination).map_err(io)?;
    let written = pieces.unpack(file, &staged).and_then(|_| {
        staged.sync_all().and_then(|()| std::fs::rename(&path, destination)).map_err(io)?;
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(io)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&path);
    }
    written
}

/// An empty file beside the destination, which nobody else writes to. It always has the same name, so that one that was left behind by a crash is used again.
fn stage(directory: &Path, destination: &Path) -> io::Result<(File, PathBuf)> {
    let name = destination.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let path = directory.join(format!(".{}{STAGED}", name.to_string_lossy()));
    loop {
        let staged = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        staged.lock()?;
        // Whoever had it may have given it its final name, or removed it: then it must not be touched.
        let still =
            std::fs::metadata(&path).is_ok_and(|there| staged.metadata().is_ok_and(|ours| ours.ino() == there.ino()));
        if still {
            staged.set_len(0)?;
            return Ok((staged, path));
        }
    }
}
