//! How a file of the log lies in an object: a zstd skippable frame with a few words about the file, and then the file, compressed.
//!
//! `zstd -d` on any machine gives the file back. The words are enough to tell whether two objects hold the same file, without reading either.
//!
//! Never: a byte given out that is not of the file that was put in; more memory or disk taken than the words say.

use std::io::{self, Read, Write};

use bytes::{Bytes, BytesMut};
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use zstd::stream::write::{Decoder, Encoder};

use crate::layout::WalFile;

/// The first of the magic numbers that zstd skips.
const MAGIC: u32 = 0x184D_2A50;
/// The magic number, and how long the words are.
const PREFIX: usize = 8;
/// What the words may be at most: names and numbers need a few hundred bytes.
const LONGEST: usize = 4096;
/// Enough of an object to find the words in it.
pub(super) const HEAD: u64 = (PREFIX + LONGEST) as u64;
/// The largest segment that PostgreSQL can be built for.
const LARGEST: u64 = 1 << 30;
const FORMAT: u32 = 1;
/// What is read at once.
const PIECE: usize = 256 * 1024;

/// The words about a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    pub format: u32,
    pub name: String,
    pub size: u64,
    pub sha256: String,
}

/// Why what is in an object is not the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// It does not begin with words about a file.
    #[error("it does not begin as a file of the log does")]
    NoHeader,
    /// The words can't be understood.
    #[error("what it says of itself can't be understood: {0}")]
    Header(String),
    /// It is of a newer version.
    #[error("its format is {0}, newer than this program's: use a newer version")]
    Newer(u32),
    /// It is another file.
    #[error("it is {0}")]
    Other(String),
    /// It can't be decompressed.
    #[error("it can't be decompressed: {0}")]
    Compression(String),
    /// It has another size than it says.
    #[error("{found} bytes came out of it, of {expected}")]
    Size {
        /// What came.
        found: u64,
        /// What it says.
        expected: u64,
    },
    /// Its contents are not those that it says.
    #[error("its contents are not what was archived (SHA-256)")]
    Contents,
}

/// Packs a file of so many bytes. It is read piece by piece; what is kept is what is sent.
pub(super) fn pack(file: WalFile, from: &mut impl Read, size: u64, level: i32) -> io::Result<(Header, Bytes)> {
    let mut header = Header { format: FORMAT, name: file.to_string(), size, sha256: "0".repeat(64) };
    // The words come first, and are known last: they are as long with another checksum.
    let mut body = framed(&header)?;
    let words = body.len();
    let mut encoder = Encoder::new(&mut body, level)?;
    encoder.set_pledged_src_size(Some(size))?;
    encoder.include_checksum(true)?;
    let mut digest = Context::new(&SHA256);
    let mut piece = vec![0; PIECE];
    let mut from = from.take(size + 1);
    let mut total = 0;
    loop {
        let read = from.read(&mut piece)?;
        if read == 0 {
            break;
        }
        total += read as u64;
        if total > size {
            break;
        }
        digest.update(&piece[..read]);
        encoder.write_all(&piece[..read])?;
    }
    if total != size {
        return Err(io::Error::other(format!("it changed while it was read: {total} bytes, and {size} before")));
    }
    encoder.finish()?;
    header.sha256 = hex(digest.finish().as_ref());
    body[..words].copy_from_slice(&framed(&header)?);
    Ok((header, Bytes::from(body)))
}

fn framed(header: &Header) -> io::Result<Vec<u8>> {
    let words = serde_json::to_vec(header)?;
    let length = u32::try_from(words.len()).map_err(io::Error::other)?;
    Ok([&MAGIC.to_le_bytes()[..], &length.to_le_bytes(), &words].concat())
}

pub(super) fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The words at the beginning of an object, and where they end; nothing as long as there is too little of it.
pub(super) fn header(head: &[u8]) -> Result<Option<(Header, usize)>, Damage> {
    let Some((prefix, rest)) = head.split_first_chunk::<PREFIX>() else { return Ok(None) };
    let [a, b, c, d, length @ ..] = *prefix;
    let length = u32::from_le_bytes(length) as usize;
    if u32::from_le_bytes([a, b, c, d]) != MAGIC || length > LONGEST {
        return Err(Damage::NoHeader);
    }
    let Some(words) = rest.get(..length) else { return Ok(None) };
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let bad = |error: serde_json::Error| Damage::Header(error.to_string());
    let Format { format } = serde_json::from_slice(words).map_err(bad)?;
    if format > FORMAT {
        return Err(Damage::Newer(format));
    }
    let header: Header = serde_json::from_slice(words).map_err(bad)?;
    if header.size > LARGEST {
        return Err(Damage::Header(format!("no file of the log has {} bytes", header.size)));
    }
    Ok(Some((header, PREFIX + length)))
}

/// Why unpacking ended.
#[derive(Debug)]
pub(super) enum Unpacking {
    /// The object is not what it should be.
    Damage(Damage),
    /// The file could not be written.
    Write(io::Error),
}

impl From<Damage> for Unpacking {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}

/// Takes an object piece by piece, and writes the file that is in it.
pub(super) struct Unpacker<W: Write> {
    file: WalFile,
    state: State<W>,
}

enum State<W: Write> {
    Head(BytesMut, W),
    Body(Header, Box<Decoder<'static, Checked<W>>>),
    Ended,
}

impl<W: Write> Unpacker<W> {
    pub fn new(file: WalFile, to: W) -> Self {
        Self { file, state: State::Head(BytesMut::new(), to) }
    }

    /// The next piece of the object.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), Unpacking> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Head(mut head, to) => {
                head.extend_from_slice(piece);
                let Some((header, end)) = header(&head)? else {
                    self.state = State::Head(head, to);
                    return Ok(());
                };
                if header.name != self.file.to_string() {
                    return Err(Damage::Other(header.name).into());
                }
                let checked = Checked { to, left: header.size, digest: Context::new(&SHA256), failed: None };
                let mut decoder = Box::new(Decoder::new(checked).map_err(Unpacking::Write)?);
                decode(&mut decoder, &head[end..])?;
                self.state = State::Body(header, decoder);
            }
            State::Body(header, mut decoder) => {
                decode(&mut decoder, piece)?;
                self.state = State::Body(header, decoder);
            }
            State::Ended => {}
        }
        Ok(())
    }

    /// There is no more: all that was written is the file, or it is not.
    pub fn finish(self) -> Result<(W, Header), Unpacking> {
        let State::Body(header, mut decoder) = self.state else { return Err(Damage::NoHeader.into()) };
        decode(&mut decoder, &[])?;
        let Checked { to, left, digest, .. } = decoder.into_inner();
        if left != 0 {
            return Err(Damage::Size { found: header.size - left, expected: header.size }.into());
        }
        if hex(digest.finish().as_ref()) != header.sha256 {
            return Err(Damage::Contents.into());
        }
        Ok((to, header))
    }
}

fn decode<W: Write>(decoder: &mut Decoder<'static, Checked<W>>, piece: &[u8]) -> Result<(), Unpacking> {
    let decoded = if piece.is_empty() { decoder.flush() } else { decoder.write_all(piece) };
    decoded.map_err(|error| match decoder.get_mut().failed.take() {
        Some(Failed::Write(cause)) => Unpacking::Write(cause),
        Some(Failed::TooLong(damage)) => damage.into(),
        None => Damage::Compression(error.to_string()).into(),
    })
}

/// Writes what comes out, and no more than was announced.
struct Checked<W> {
    to: W,
    left: u64,
    digest: Context,
    failed: Option<Failed>,
}

enum Failed {
    Write(io::Error),
    TooLong(Damage),
}

impl<W: Write> Write for Checked<W> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let length = piece.len() as u64;
        if length > self.left {
            self.failed = Some(Failed::TooLong(Damage::Contents));
            return Err(io::Error::other("more than there should be"));
        }
        if let Err(cause) = self.to.write_all(piece) {
            let kind = cause.kind();
            self.failed = Some(Failed::Write(cause));
            return Err(kind.into());
        }
        self.left -= length;
        self.digest.update(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAME: &str = "000000010000000000000002";

    fn file() -> WalFile {
        NAME.parse().unwrap()
    }

    fn packed(contents: &[u8]) -> Bytes {
        pack(file(), &mut &contents[..], contents.len() as u64, 3).unwrap().1
    }

    fn unpacked(file: WalFile, object: &[u8], piece: usize) -> Result<Vec<u8>, Unpacking> {
        let mut unpacker = Unpacker::new(file, vec![]);
        for piece in object.chunks(piece) {
            unpacker.feed(piece)?;
        }
        unpacker.finish().map(|(contents, _)| contents)
    }

    proptest! {
        #[test]
        fn what_went_in_comes_out_however_it_is_cut(contents: Vec<u8>, piece in 1usize..5000) {
            prop_assert_eq!(unpacked(file(), &packed(&contents), piece).unwrap(), contents);
        }

        #[test]
        fn no_change_of_an_object_changes_what_comes_out(contents in prop::collection::vec(0u8..4, 1..3000), at: prop::sample::Index, bit in 0u8..8) {
            let mut object = packed(&contents).to_vec();
            let at = at.index(object.len());
            object[at] ^= 1 << bit;
            if let Ok(unpacked) = unpacked(file(), &object, 1000) {
                prop_assert_eq!(unpacked, contents, "byte {} is of no account", at);
            }
        }

        #[test]
        fn an_object_that_is_cut_short_is_damaged(contents: Vec<u8>, at: prop::sample::Index) {
            let object = packed(&contents);
            let cut = at.index(object.len());
            // The last four bytes are zstd's own checksum; the file is whole without them, and has been checked by ours.
            if let Ok(unpacked) = unpacked(file(), &object[..cut], 1000) {
                prop_assert_eq!(unpacked, contents);
            }
        }
    }

    #[test]
    fn any_zstd_gives_the_file_back() {
        let contents = b"segment ".repeat(100_000);
        assert_eq!(zstd::stream::decode_all(&packed(&contents)[..]).unwrap(), contents);
    }

    #[test]
    fn the_words_are_the_same_at_every_level() {
        let contents = b"segment ".repeat(100_000);
        let headers = [1, 19].map(|level| pack(file(), &mut &contents[..], contents.len() as u64, level).unwrap());
        assert_eq!(headers[0].0, headers[1].0);
        assert_ne!(headers[0].1, headers[1].1);
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_not_packed() {
        for size in [9, 11] {
            assert!(pack(file(), &mut &[0; 10][..], size, 3).is_err(), "{size}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let damage = |file, object: &[u8]| match unpacked(file, object, 7) {
            Err(Unpacking::Damage(damage)) => damage,
            other => panic!("{other:?}"),
        };
        let object = packed(b"contents");
        let other = "000000010000000000000003".parse().unwrap();
        assert_eq!(damage(other, &object), Damage::Other(NAME.to_owned()));
        assert_eq!(damage(file(), b""), Damage::NoHeader);
        assert_eq!(damage(file(), &zstd::encode_all(&b"contents"[..], 3).unwrap()), Damage::NoHeader);
        assert_eq!(damage(file(), &object[..object.len() - 12]), Damage::Size { found: 0, expected: 8 });
        let mut words = header(&object).unwrap().unwrap().0;
        let rest = zstd::encode_all(&b"contents"[..], 3).unwrap();
        words.sha256 = "0".repeat(64);
        assert_eq!(damage(file(), &[framed(&words).unwrap(), rest.clone()].concat()), Damage::Contents);
        words.format = 2;
        assert_eq!(damage(file(), &[framed(&words).unwrap(), rest].concat()), Damage::Newer(2));
    }

    #[test]
    fn an_object_that_lies_about_its_size_fills_no_disk() {
        let words = Header { format: 1, name: NAME.to_owned(), size: 10, sha256: String::new() };
        let bomb = zstd::encode_all(&vec![0; 50 << 20][..], 3).unwrap();
        let mut unpacker = Unpacker::new(file(), vec![]);
        let fed = unpacker.feed(&[framed(&words).unwrap(), bomb].concat());
        assert!(matches!(fed, Err(Unpacking::Damage(Damage::Contents))), "{fed:?}");
        let huge = Header { size: 1 << 40, ..words };
        assert!(matches!(header(&framed(&huge).unwrap()), Err(Damage::Header(_))));
    }

    #[test]
    fn a_disk_that_is_full_is_no_damage() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut unpacker = Unpacker::new(file(), Full);
        let fed = unpacker.feed(&packed(b"contents")).and_then(|()| unpacker.finish().map(drop));
        assert!(matches!(fed, Err(Unpacking::Write(cause)) if cause.kind() == io::ErrorKind::StorageFull));
    }
}
