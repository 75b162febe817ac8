//! An object as it arrives from the store: read by whoever unpacks it, and checked against what its commit says of it.
//!
//! Content is used before the last byte of it was checked, which is why whatever came of it counts for nothing until [`Arriving::check`] has said so.

use std::io::{self, BufReader, Read};

use bytes::{Buf as _, Bytes};
use ring::digest::{Context, SHA256};
use tokio::sync::mpsc::Receiver;
use zstd::stream::read::Decoder;

use super::RestoreError;
use crate::base::objects::hex;
use crate::record::Object;
use crate::store::StoreError;

/// How much is decompressed at once: with hardly more, the system's calls for writing it would not be felt.
const READ: usize = 256 << 10;

/// An object on its way.
pub(super) struct Arriving<'a> {
    expected: &'a Object,
    pieces: Pieces,
}

/// Its bytes.
struct Pieces {
    receiver: Receiver<Result<Bytes, StoreError>>,
    piece: Bytes,
    hash: Context,
    size: u64,
    failed: Option<StoreError>,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.receiver.blocking_recv() {
                None => return Ok(0),
                Some(Ok(piece)) => self.piece = piece,
                Some(Err(error)) => {
                    let problem = error.to_string();
                    self.failed = Some(error);
                    return Err(io::Error::other(problem));
                }
            }
        }
        let length = self.piece.len().min(buffer.len());
        self.piece.copy_to_slice(&mut buffer[..length]);
        self.hash.update(&buffer[..length]);
        self.size += length as u64;
        Ok(length)
    }
}

/// Why content was not used to its end.
pub(super) enum Stopped {
    /// It is not what it should be.
    Content(String),
    /// It is not its fault.
    Other(RestoreError),
}

impl<'a> Arriving<'a> {
    pub(super) fn new(receiver: Receiver<Result<Bytes, StoreError>>, expected: &'a Object) -> Self {
        let hash = Context::new(&SHA256);
        Self { expected, pieces: Pieces { receiver, piece: Bytes::new(), hash, size: 0, failed: None } }
    }

    /// Hands the decompressed content on, piece by piece.
    pub(super) fn each(&mut self, mut take: impl FnMut(&[u8]) -> Result<(), Stopped>) -> Result<(), Stopped> {
        let content = |error: io::Error| Stopped::Content(error.to_string());
        let source = BufReader::with_capacity(READ, &mut self.pieces);
        let mut decoder = Decoder::with_buffer(source).map_err(content)?;
        let mut buffer = vec![0; READ];
        loop {
            match decoder.read(&mut buffer).map_err(content)? {
                0 => return Ok(()),
                length => take(&buffer[..length])?,
            }
        }
    }

    /// Says whether what was used, so many bytes of files, was what the commit says; whatever is wrong with the content, it is likeliest that the
    /// object is another.
    pub(super) fn check(self, used: Result<u64, Stopped>) -> Result<(), RestoreError> {
        let Self { expected, mut pieces } = self;
        if let Err(Stopped::Other(error)) = used {
            return Err(error);
        }
        // Behind what was used there may be more.
        let rest = io::copy(&mut pieces, &mut io::sink());
        if let Some(error) = pieces.failed {
            return Err(error.into());
        }
        let damaged = |problem| Err(RestoreError::Damaged { key: expected.key.clone(), problem });
        if let Err(error) = rest {
            return damaged(error.to_string());
        }
        if pieces.size != expected.size {
            return damaged(format!("it has {} bytes instead of {}", pieces.size, expected.size));
        }
        let found = hex(pieces.hash.finish().as_ref());
        if found != expected.sha256 {
            return damaged(format!("its SHA-256 is {found} instead of {}", expected.sha256));
        }
        match used {
            Ok(bytes) if bytes == expected.bytes => Ok(()),
            Ok(bytes) => damaged(format!("it holds {bytes} bytes of files instead of {}", expected.bytes)),
            Err(Stopped::Content(problem)) => damaged(problem),
            Err(Stopped::Other(error)) => Err(error),
        }
    }
}
