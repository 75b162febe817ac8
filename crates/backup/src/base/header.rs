//! The blocks that tar describes its entries with: ustar as PostgreSQL writes it, and the extended headers that we add.
//!
//! From bytes that somebody else wrote. Never: a path believed that leads out of the directory it is put into ([`Inside`]); a header
//! believed whose checksum is wrong.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Tar is made of blocks of this size.
pub const BLOCK: usize = 512;
/// The longest name, and target of a link, that fits into a header.
const NAME: usize = 100;
/// The longest extended header that is read: a path, its parts and some more, but never memory without end.
pub(super) const LONGEST_EXTENDED: u64 = 64 * 1024;

/// Why a header is none, or is one that no backup has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The sum over its bytes is another.
    #[error("a header of tar has a wrong checksum")]
    Checksum,
    /// A number that is none.
    #[error("the {field} in a header of tar is no number")]
    Number {
        /// Which.
        field: &'static str,
    },
    /// A path that leads elsewhere.
    #[error("{path:?} is no path below a directory")]
    Path {
        /// The path.
        path: String,
    },
    /// No file, directory or link.
    #[error("{path:?} is of kind {kind:?}, which no database is made of")]
    Kind {
        /// The path.
        path: String,
        /// The letter in the header.
        kind: char,
    },
    /// An extended header that can't be read.
    #[error("an extended header of tar can't be read: {problem}")]
    Extended {
        /// What is wrong.
        problem: &'static str,
    },
}

/// A path that stays inside whatever directory it is put into.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inside(PathBuf);

impl Inside {
    /// Takes a path as tar has it: relative, without `..` and empty parts. Directories may end with a slash, and PostgreSQL begins one with `./`.
    pub fn of(bytes: &[u8]) -> Result<Self, HeaderError> {
        let bytes = bytes.strip_prefix(b"./").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"/").unwrap_or(bytes);
        let part_is_plain = |part: &[u8]| !part.is_empty() && part != b"." && part != b".." && !part.contains(&0);
        if bytes.split(|&byte| byte == b'/').all(part_is_plain) {
            Ok(Self(PathBuf::from(OsStr::from_bytes(bytes))))
        } else {
            Err(HeaderError::Path { path: String::from_utf8_lossy(bytes).into_owned() })
        }
    }

    /// As a path.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// The bytes of its name.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_os_str().as_bytes()
    }

    /// The same below another directory.
    pub(super) fn below(&self, directory: &Self) -> Self {
        Self(directory.0.join(&self.0))
    }
}

impl fmt::Display for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl fmt::Debug for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file, whose content follows.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link {
        /// What it points to. Not checked: nobody follows it.
        target: PathBuf,
    },
}

/// A file, directory or link in a tar stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it goes.
    pub path: Inside,
    /// What it is.
    pub kind: Kind,
    /// Its permissions.
    pub mode: u32,
    /// When it was changed, in seconds since 1970.
    pub changed: u64,
    /// Bytes of content that follow.
    pub size: u64,
    /// What extended headers say beyond that, in their order.
    pub extended: Vec<(String, Vec<u8>)>,
}

/// A header, before the extended ones that stood in front of it are applied.
pub(super) struct Raw {
    pub name: Vec<u8>,
    pub kind: u8,
    pub mode: u32,
    pub changed: u64,
    pub size: u64,
    pub link: Vec<u8>,
}

/// The letter of an extended header for the entry that follows.
pub(super) const EXTENDED: u8 = b'x';

/// Reads a block that is not all zeros.
pub(super) fn read(block: &[u8; BLOCK]) -> Result<Raw, HeaderError> {
    let said = number(&block[148..156], "checksum")?;
    if said != u64::from(checksum(block)) {
        return Err(HeaderError::Checksum);
    }
    let mut name = text(&block[..100]).to_vec();
    let prefix = text(&block[345..500]);
    // The prefix is ustar's; what GNU has there in its own variant is something else.
    if &block[257..263] == b"ustar\0" && !prefix.is_empty() {
        name = [prefix, b"/", &name].concat();
    }
    Ok(Raw {
        name,
        kind: block[156],
        mode: u32::try_from(number(&block[100..108], "mode")? & 0o7777).unwrap_or(0),
        changed: number(&block[136..148], "time")?,
        size: number(&block[124..136], "size")?,
        link: text(&block[157..257]).to_vec(),
    })
}

/// What stands before the first zero.
fn text(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Octal digits; or, where those don't suffice, the number itself behind a byte that says so.
fn number(field: &[u8], name: &'static str) -> Result<u64, HeaderError> {
    let bad = || HeaderError::Number { field: name };
    if field[0] & 0x80 != 0 {
        // Eight bytes are all that fits into our number: what stands before them must be nothing but the mark.
        let (head, tail) = field.split_at_checked(4).filter(|(_, tail)| tail.len() == 8).ok_or_else(bad)?;
        if head.iter().enumerate().any(|(n, &byte)| byte != if n == 0 { 0x80 } else { 0 }) {
            return Err(bad());
        }
        return Ok(tail.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)));
    }
    let digits = text(field).trim_ascii();
    let value = |sum: u64, &digit: &u8| {
        matches!(digit, b'0'..=b'7').then(|| sum.checked_mul(8)?.checked_add(u64::from(digit - b'0'))).flatten()
    };
    digits.iter().try_fold(0, value).ok_or_else(bad)
}

/// The sum of all bytes, those of the sum itself taken for blanks.
fn checksum(block: &[u8; BLOCK]) -> u32 {
    block.iter().enumerate().map(|(n, &byte)| if (148..156).contains(&n) { 32 } else { u32::from(byte) }).sum()
}

/// The blocks that stand before an entry's content: an extended header where one is needed, and the header.
pub(crate) fn write(entry: &Entry) -> Vec<u8> {
    let mut records: Vec<u8> = vec![];
    let mut name = entry.path.as_bytes().to_vec();
    if entry.kind == Kind::Directory {
        name.push(b'/');
    }
    if name.len() > NAME {
        record(&mut records, "path", &name);
    }
    let (kind, link): (u8, &[u8]) = match &entry.kind {
        Kind::File => (b'0', b""),
        Kind::Directory => (b'5', b""),
        Kind::Link { target } => (b'2', target.as_os_str().as_bytes()),
    };
    if link.len() > NAME {
        record(&mut records, "linkpath", link);
    }
    for (key, value) in &entry.extended {
        record(&mut records, key, value);
    }
    let mut blocks = vec![];
    if !records.is_empty() {
        blocks.extend_from_slice(&block(b"extended", EXTENDED, 0o600, entry.changed, records.len() as u64, b""));
        blocks.extend_from_slice(&records);
        blocks.resize(blocks.len().next_multiple_of(BLOCK), 0);
    }
    blocks.extend_from_slice(&block(&name, kind, entry.mode, entry.changed, entry.size, link));
    blocks
}

fn block(name: &[u8], kind: u8, mode: u32, changed: u64, size: u64, link: &[u8]) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &name[..name.len().min(NAME)]);
    put(100, format!("{mode:07o}").as_bytes());
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, &twelve(size));
    put(136, &twelve(changed));
    put(156, &[kind]);
    put(157, &link[..link.len().min(NAME)]);
    put(257, b"ustar\x0000");
    put(265, b"postgres");
    put(297, b"postgres");
    let sum = checksum(&block);
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// A number in a field of twelve bytes.
fn twelve(number: u64) -> [u8; 12] {
    let mut field = [0; 12];
    if number < 1 << 33 {
        field[..11].copy_from_slice(format!("{number:011o}").as_bytes());
    } else {
        field[0] = 0x80;
        field[4..].copy_from_slice(&number.to_be_bytes());
    }
    field
}

/// A record of an extended header: its own length in decimal, a blank, the key, `=`, the value, and a line's end.
fn record(records: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    // The length counts its own digits, and may get one more by that.
    while rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    records.extend_from_slice(format!("{length} {key}=").as_bytes());
    records.extend_from_slice(value);
    records.push(b'\n');
}

/// The records of an extended header.
pub(super) fn records(mut text: &[u8]) -> Result<Vec<(String, Vec<u8>)>, HeaderError> {
    let mut found = vec![];
    while !text.is_empty() {
        let bad = |problem| HeaderError::Extended { problem };
        let blank = text.iter().position(|&byte| byte == b' ').ok_or(bad("a record has no length"))?;
        let length = std::str::from_utf8(&text[..blank]).ok().and_then(|digits| digits.parse::<usize>().ok());
        let length = length.filter(|&length| length > blank + 1 && length <= text.len());
        let (record, rest) = text.split_at(length.ok_or(bad("a record's length is none"))?);
        let record = record[blank + 1..].strip_suffix(b"\n").ok_or(bad("a record does not end with its line"))?;
        let equals = record.iter().position(|&byte| byte == b'=').ok_or(bad("a record has no value"))?;
        let key = std::str::from_utf8(&record[..equals]).map_err(|_| bad("a record's key is no text"))?;
        found.push((key.to_owned(), record[equals + 1..].to_vec()));
        text = rest;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, size: u64) -> Entry {
        let path = Inside::of(path.as_bytes()).unwrap();
        Entry { path, kind: Kind::File, mode: 0o640, changed: 1_795_000_000, size, extended: vec![] }
    }

    #[test]
    fn a_path_that_leads_out_of_its_directory_is_refused() {
        for path in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "../x",
            "base/../../x",
            "base//1",
            "././a",
            "./",
            ".",
            ".//a",
            "base/.",
            "a\0b",
            "base//",
        ] {
            assert!(Inside::of(path.as_bytes()).is_err(), "{path:?}");
        }
        assert_eq!(Inside::of(b"./pg_wal/archive_status/").unwrap().as_bytes(), b"pg_wal/archive_status");
        for path in ["base", "base/", "base/1/2", "a..b", ".hidden", "...", "\u{fc}"] {
            assert!(Inside::of(path.as_bytes()).is_ok(), "{path:?}");
        }
    }

    #[test]
    fn sizes_that_octal_digits_do_not_hold_are_written_and_read() {
        for size in [0, 1, (1 << 33) - 1, 1 << 33, 1 << 40, u64::MAX] {
            let block: [u8; BLOCK] = write(&entry("a", size)).try_into().unwrap();
            assert_eq!(read(&block).unwrap().size, size);
        }
    }

    #[test]
    fn a_number_that_is_none_is_refused() {
        assert!(number(b"12x\0", "size").is_err());
        assert!(number(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "size").is_err());
        assert!(number(b"\x80\0\0\x01\0\0\0\0\0\0\0\0", "size").is_err(), "too large for anything");
        assert_eq!(number(b"0000644 ", "mode"), Ok(0o644));
    }

    #[test]
    fn a_changed_header_is_noticed() {
        let mut block: [u8; BLOCK] = write(&entry("base/1/16384", 8192)).try_into().unwrap();
        block[0] ^= 1;
        assert_eq!(read(&block).err(), Some(HeaderError::Checksum));
    }

    #[test]
    fn records_read_as_they_are_written_whatever_their_length() {
        for length in [0, 1, 80, 85, 86, 87, 88, 89, 90, 95, 960, 990, 995, 9_980, 9_990] {
            let (value, mut text) = (vec![b'\n'; length], vec![]);
            record(&mut text, "key", &value);
            record(&mut text, "BELLWETHER.path", b"a=b");
            let expected = vec![("key".to_owned(), value), ("BELLWETHER.path".to_owned(), b"a=b".to_vec())];
            assert_eq!(records(&text), Ok(expected), "{length}");
        }
        for text in ["7", "7 a=b", "99 a=b\n", "x a=b\n", "6 a_b\n", "2 "] {
            assert!(records(text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
