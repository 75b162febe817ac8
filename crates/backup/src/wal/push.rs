//! One file into the archive: it is done when the store has acknowledged it, and not before.
//!
//! Never: a file archived that is not what its name says; another file of the same name replaced, or taken for the same without having the same contents.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use bellwether_core::wal::SystemIdentifier;
use bytes::Bytes;

use super::archive::Archive;
use super::frame::{self, Header};
use super::header::{self, Expected, Foreign};
use super::{WalError, blocking};
use crate::gaps::History;
use crate::layout::WalFile;
use crate::store::Put;

/// Histories and labels are text of a few lines. What is larger is something else.
const LARGEST_TEXT: u64 = 1 << 20;

/// A file that is in the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// Whether it was there before.
    pub put: Put,
    /// Its size.
    pub size: u64,
    /// Its size in the store.
    pub stored: u64,
}

/// Archives the file at `path` as `file`, compressed at this level of zstd.
pub async fn push(
    archive: &Archive,
    file: WalFile,
    path: &Path,
    segment_size: u64,
    level: i32,
) -> Result<Pushed, WalError> {
    // Nothing is read and compressed for a store that is not going to be asked.
    archive.store().awake()?;
    let (path, system) = (path.to_owned(), archive.owner().system_identifier);
    let (header, body) = blocking(file, move || read(file, &path, system, segment_size, level)).await?;
    let store = archive.store();
    let key = file.key();
    let stored = body.len() as u64;
    let same = || async {
        // The compression may be another version's: what counts is what was compressed.
        let head = store.range(&key, 0..frame::HEAD).await?;
        Ok(matches!(frame::header(&head), Ok(Some((there, _))) if there == header))
    };
    let put = store.put_unless(&key, body, same).await?;
    Ok(Pushed { put, size: header.size, stored })
}

/// The file, checked and packed.
fn read(
    file: WalFile,
    path: &Path,
    system: SystemIdentifier,
    segment_size: u64,
    level: i32,
) -> Result<(Header, Bytes), WalError> {
    let io = || WalError::io(path);
    let mut from = File::open(path).map_err(io())?;
    let size = from.metadata().map_err(io())?.len();
    let foreign = |problem| WalError::Foreign { path: path.to_owned(), file, problem };
    match file {
        WalFile::Segment(name) | WalFile::Partial(name) => {
            if size != segment_size {
                return Err(foreign(Foreign::Size { found: size, expected: segment_size }));
            }
            let mut page = [0; header::LENGTH];
            from.read_exact(&mut page).map_err(io())?;
            header::check(&page, Expected { name, system, segment_size }).map_err(foreign)?;
        }
        WalFile::History(timeline) => {
            let mut text = String::new();
            (&from).take(LARGEST_TEXT).read_to_string(&mut text).map_err(io())?;
            History::parse(timeline, &text).ok_or_else(|| foreign(Foreign::History(timeline)))?;
        }
        WalFile::Label(..) if size > LARGEST_TEXT => {
            return Err(foreign(Foreign::Size { found: size, expected: LARGEST_TEXT }));
        }
        WalFile::Label(..) => {}
    }
    from.seek(SeekFrom::Start(0)).map_err(io())?;
    frame::pack(file, &mut from, size, level).map_err(io())
}
