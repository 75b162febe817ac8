//! Decides where packs are cut, and what stands in them.
//!
//! A pack is a tar of its own, of about [`Cutter::new`]'s size of content, cut between files; only a file that is larger than a whole pack is cut
//! into parts. So packs are read side by side, and each with tools that everybody has. Compressed, a pack is a sequence of zstd frames, one for each
//! block of the tar ([`super::objects`]), which every zstd reads as one. A part is an entry of its own, with three records in an
//! extended header: `BELLWETHER.path` (the file), `BELLWETHER.offset` (where the part begins in it) and `BELLWETHER.size` (of the whole file).
//!
//! How a person restores by hand what nothing of ours can read any more:
//!
//! ```text
//! for pack in pack-*.tar.zst; do zstd -dc $pack | tar -x --warning=no-unknown-keyword -C data; done
//! cd data
//! find . -name '*.part-000000000000' | while read -r first; do        # the parts' names sort by their offsets
//!     file=${first%.part-*}; cat "$file".part-* > "$file" && rm "$file".part-*
//! done
//! zstd -dc ../backup_manifest.zst > backup_manifest && chmod 0700 . && pg_verifybackup -n .
//! ```
//!
//! Tablespaces are below `pg_tblspc/<oid>`: move such a directory to where `tablespace_map` says (or change that) before PostgreSQL is started.
//!
//! Never: a file in two packs without saying so; a part whose name could be taken for a file of PostgreSQL's.

use std::ops::Range;

use super::header::{BLOCK, Entry, HeaderError, Inside, Kind};

/// The records that a part has.
const PART_PATH: &str = "BELLWETHER.path";
const PART_OFFSET: &str = "BELLWETHER.offset";
const PART_SIZE: &str = "BELLWETHER.size";
/// What stands between a file's name and a part's offset in the part's name.
const PART: &str = ".part-";
/// A pack that is this full is closed rather than filled with a splinter of a large file.
const NEARLY_FULL: u64 = 8;

/// The piece of a file that comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Whether a new pack begins with it.
    pub new_pack: bool,
    /// Which bytes of the file.
    pub bytes: Range<u64>,
}

/// Cuts files into packs.
#[derive(Debug)]
pub struct Cutter {
    target: u64,
    /// Nothing while no pack is open.
    used: Option<u64>,
}

impl Cutter {
    /// Packs of about this many bytes.
    pub fn new(target: u64) -> Self {
        Self { target: target.max(1), used: None }
    }

    /// The next piece of an entry of this size, of which everything before `offset` is in packs already.
    pub fn next(&mut self, size: u64, offset: u64) -> Cut {
        let left = size - offset;
        let room = self.used.map_or(0, |used| self.target.saturating_sub(used));
        let fits = left < room;
        let is_part = size > self.target;
        // A new pack is begun for a file that fits into one and not into the rest of this one, and when hardly anything fits any more.
        let new_pack = self.used.is_none() || (!fits && (!is_part || room <= self.target / NEARLY_FULL));
        let room = if new_pack { self.target } else { room };
        let length = if is_part { left.min(room) } else { left };
        let used = if new_pack { 0 } else { self.used.unwrap_or(0) };
        self.used = Some(used.saturating_add(length).saturating_add(BLOCK as u64));
        Cut { new_pack, bytes: offset..offset + length }
    }
}

/// The entry for a piece of another one: itself, or a part of it.
pub fn entry_of(whole: &Entry, bytes: &Range<u64>) -> Result<Entry, HeaderError> {
    if *bytes == (0..whole.size) {
        return Ok(whole.clone());
    }
    let name = [whole.path.as_bytes(), format!("{PART}{:012}", bytes.start).as_bytes()].concat();
    let extended = vec![
        (PART_PATH.to_owned(), whole.path.as_bytes().to_vec()),
        (PART_OFFSET.to_owned(), bytes.start.to_string().into_bytes()),
        (PART_SIZE.to_owned(), whole.size.to_string().into_bytes()),
    ];
    Ok(Entry { path: Inside::of(&name)?, size: bytes.end - bytes.start, extended, ..whole.clone() })
}

/// What an entry of a pack holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The file.
    pub path: Inside,
    /// Its whole size.
    pub size: u64,
    /// Where this piece begins in it.
    pub offset: u64,
}

/// What an entry of a pack holds: a whole file, or a part of one.
pub fn piece_of(entry: &Entry) -> Result<Piece, HeaderError> {
    let find = |key| entry.extended.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_slice());
    let number = |value: &[u8]| std::str::from_utf8(value).ok().and_then(|digits| digits.parse::<u64>().ok());
    let bad = |problem| HeaderError::Extended { problem };
    match (find(PART_PATH), find(PART_OFFSET), find(PART_SIZE)) {
        (None, None, None) => Ok(Piece { path: entry.path.clone(), size: entry.size, offset: 0 }),
        (Some(path), Some(offset), Some(size)) if entry.kind == Kind::File => {
            let offset = number(offset).ok_or(bad("the offset of a part is none"))?;
            let size = number(size).ok_or(bad("the size of a part's file is none"))?;
            match offset.checked_add(entry.size) {
                Some(end) if end <= size => Ok(Piece { path: Inside::of(path)?, size, offset }),
                _ => Err(bad("a part is larger than its file")),
            }
        }
        _ => Err(bad("a part does not say what it is a part of")),
    }
}
