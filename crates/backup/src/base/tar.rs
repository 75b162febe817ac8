//! Reads a tar stream that arrives in pieces of any size: PostgreSQL's, and our own packs.
//!
//! From bytes that somebody else wrote, without keeping more than a header of them: content is handed on as it arrives. Never: an entry that
//! leads out of its directory; a stream taken for whole that was cut off.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use super::header::{self, BLOCK, Entry, HeaderError, Inside, Kind, LONGEST_EXTENDED, Raw};

/// Why a stream is no tar that we take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TarError {
    /// A header is none.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// It ends before its end.
    #[error("the tar stream ends too early, {0}")]
    Truncated(&'static str),
    /// Something follows its end.
    #[error("something follows the end of the tar stream")]
    Trailing,
}

/// What comes next in a stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// An entry begins.
    Entry(Entry),
    /// A piece of its content.
    Data(&'a [u8]),
    /// All of its content was there. Of every entry, those without content too.
    End,
}

/// Where in a stream we are.
#[derive(Debug)]
enum State {
    /// Before a header, of which so much is there.
    Header { filled: usize },
    /// Within the content of an extended header, of which so much is missing.
    Extended { left: u64 },
    /// Within an entry's content.
    Content { left: u64 },
    /// Within what fills up a block.
    Padding { left: usize, then: Next },
    /// Behind the two blocks of zeros that end it.
    Ended,
}

/// What padding is followed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The extended header is whole.
    ExtendedEnd,
    /// A header.
    Header,
}

/// A reader of a tar stream.
#[derive(Debug)]
pub struct Reader {
    state: State,
    block: [u8; BLOCK],
    zero_blocks: usize,
    /// Of the content that is being read, for its padding.
    size: u64,
    extended: Vec<u8>,
    records: Vec<(String, Vec<u8>)>,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            state: State::Header { filled: 0 },
            block: [0; BLOCK],
            zero_blocks: 0,
            size: 0,
            extended: vec![],
            records: vec![],
        }
    }
}

impl Reader {
    /// Takes from the front of `input` up to the next event. `None`: all of it is taken, and more is needed.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, TarError> {
        loop {
            match self.state {
                State::Content { left: 0 } => {
                    self.state = padding(self.size, Next::Header);
                    return Ok(Some(Event::End));
                }
                State::Padding { left: 0, then } => {
                    self.state = State::Header { filled: 0 };
                    if then == Next::ExtendedEnd {
                        self.records.extend(header::records(&self.extended)?);
                        self.extended.clear();
                    }
                    continue;
                }
                State::Extended { left: 0 } => {
                    self.state = padding(self.size, Next::ExtendedEnd);
                    continue;
                }
                _ if input.is_empty() => return Ok(None),
                _ => {}
            }
            match &mut self.state {
                State::Header { filled } => {
                    let piece = take(input, BLOCK - *filled);
                    self.block[*filled..*filled + piece.len()].copy_from_slice(piece);
                    *filled += piece.len();
                    if *filled == BLOCK
                        && let Some(entry) = self.header()?
                    {
                        return Ok(Some(Event::Entry(entry)));
                    }
                }
                State::Extended { left } => {
                    let piece = take(input, usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= piece.len() as u64;
                    self.extended.extend_from_slice(piece);
                }
                State::Content { left } => {
                    let piece = take(input, usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= piece.len() as u64;
                    return Ok(Some(Event::Data(piece)));
                }
                State::Padding { left, .. } => *left -= take(input, *left).len(),
                State::Ended => {
                    // Writers fill up to a multiple of theirs with zeros.
                    let rest = std::mem::take(input);
                    if rest.iter().any(|&byte| byte != 0) {
                        return Err(TarError::Trailing);
                    }
                }
            }
        }
    }

    /// Says that nothing more comes. An error unless the stream is whole.
    pub fn finish(&self) -> Result<(), TarError> {
        match self.state {
            State::Ended => Ok(()),
            State::Header { .. } => Err(TarError::Truncated("before the blocks that end it")),
            _ => Err(TarError::Truncated("within an entry")),
        }
    }

    /// Whether it is between two entries, or behind the last.
    pub fn is_between_entries(&self) -> bool {
        matches!(self.state, State::Header { .. } | State::Ended)
    }

    /// Understands a whole block where a header is expected.
    fn header(&mut self) -> Result<Option<Entry>, TarError> {
        self.state = State::Header { filled: 0 };
        if self.block.iter().all(|&byte| byte == 0) {
            self.zero_blocks += 1;
            if self.zero_blocks == 2 {
                self.state = State::Ended;
            }
            return Ok(None);
        }
        if self.zero_blocks > 0 {
            return Err(TarError::Trailing);
        }
        let raw = header::read(&self.block)?;
        if raw.kind == header::EXTENDED {
            if raw.size > LONGEST_EXTENDED {
                return Err(HeaderError::Extended { problem: "it is too long" }.into());
            }
            self.size = raw.size;
            self.state = State::Extended { left: raw.size };
            return Ok(None);
        }
        let entry = entry(raw, std::mem::take(&mut self.records))?;
        self.size = entry.size;
        self.state = State::Content { left: entry.size };
        Ok(Some(entry))
    }
}

/// Takes at most so many bytes from the front.
fn take<'a>(input: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (piece, rest) = input.split_at(most.min(input.len()));
    *input = rest;
    piece
}

fn padding(size: u64, then: Next) -> State {
    // Less than a block, whatever the size.
    let left = usize::try_from(size.next_multiple_of(BLOCK as u64) - size).unwrap_or(0);
    State::Padding { left, then }
}

/// A header with what the extended ones before it say instead.
fn entry(raw: Raw, records: Vec<(String, Vec<u8>)>) -> Result<Entry, HeaderError> {
    let (mut name, mut link, mut size, mut extended) = (raw.name, raw.link, raw.size, vec![]);
    for (key, value) in records {
        match key.as_str() {
            "path" => name = value,
            "linkpath" => link = value,
            "size" => {
                let digits = std::str::from_utf8(&value).ok().and_then(|digits| digits.parse().ok());
                size = digits.ok_or(HeaderError::Number { field: "size" })?;
            }
            _ => extended.push((key, value)),
        }
    }
    let path = Inside::of(&name)?;
    let kind = match raw.kind {
        b'0' | 0 => Kind::File,
        b'5' => Kind::Directory,
        b'2' => Kind::Link { target: OsString::from_vec(link).into() },
        kind => return Err(HeaderError::Kind { path: path.to_string(), kind: char::from(kind) }),
    };
    // PostgreSQL writes none for these; if somebody did, it would have no content all the same.
    let size = if kind == Kind::File { size } else { 0 };
    Ok(Entry { path, kind, mode: raw.mode, changed: raw.changed, size, extended })
}
