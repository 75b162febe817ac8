//! Where everything is in the store, and what files of the log are called.
//!
//! ```text
//! <url>/<system identifier>-<incarnation>/
//!   owner.json                             whose this is; whoever is another never writes here
//!   base/<id>/pack-00000.tar.zst …         parts of the data directory, each readable by itself
//!   base/<id>/backup_manifest.zst          PostgreSQL's own
//!   base/<id>/commit.json                  last: with it the backup exists
//!   wal/00000001/000000010000000000000002.zst, wal/00000002/00000002.history.zst
//! ```
//!
//! Names sort in the order of time, and of the log. Never: a name made from anything that was not checked to be one.

use std::fmt;
use std::str::FromStr;

use bellwether_core::wal::{Lsn, Timeline};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Whose the archive is.
pub const OWNER: &str = "owner.json";
/// Below this are base backups.
pub const BASE: &str = "base";
/// Below this is the log.
pub const WAL: &str = "wal";
/// The last object of a backup.
pub const COMMIT: &str = "commit.json";
/// PostgreSQL's manifest of a backup.
pub const MANIFEST: &str = "backup_manifest.zst";
/// What compressed objects end with.
const COMPRESSED: &str = ".zst";

/// Why a text is no name of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct BadName {
    text: String,
    expected: &'static str,
}

fn bad(text: &str, expected: &'static str) -> BadName {
    BadName { text: text.to_owned(), expected }
}

/// A base backup: when it was begun, in UTC (`20261118T020000Z`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BackupId(String);

impl BackupId {
    /// Of a backup that begins now.
    pub fn at(now: Timestamp) -> Self {
        Self(now.strftime("%Y%m%dT%H%M%SZ").to_string())
    }
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
    /// The key of one of its objects.
    pub fn key(&self, object: &str) -> String {
        format!("{BASE}/{self}/{object}")
    }
    /// The key of a pack.
    pub fn pack(&self, number: usize) -> String {
        self.key(&format!("pack-{number:05}.tar.zst"))
    }
}

impl FromStr for BackupId {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        let expected = "the id of a backup, such as 20261118T020000Z";
        let shape = text.len() == 16 && text.is_ascii() && text.ends_with('Z') && &text[8..9] == "T";
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if shape && digits(&text[..8]) && digits(&text[9..15]) {
            Ok(Self(text.to_owned()))
        } else {
            Err(bad(text, expected))
        }
    }
}

impl TryFrom<String> for BackupId {
    type Error = BadName;
    fn try_from(text: String) -> Result<Self, BadName> {
        text.parse()
    }
}

impl From<BackupId> for String {
    fn from(id: BackupId) -> Self {
        id.0
    }
}

impl fmt::Display for BackupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A segment of the log: its timeline, and its number counted from the log's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentName {
    /// Its timeline.
    pub timeline: Timeline,
    /// Its number in the file's name: high and low part, as PostgreSQL writes them.
    pub log: u32,
    /// The low part. How many there are to a high part depends on the size of segments.
    pub part: u32,
}

impl SegmentName {
    /// The segment that a position lies in.
    pub fn of(timeline: Timeline, position: Lsn, segment_size: u64) -> Self {
        Self::numbered(timeline, position.0 / segment_size, segment_size)
    }

    /// The segment with this number.
    pub fn numbered(timeline: Timeline, number: u64, segment_size: u64) -> Self {
        let per_log = 0x1_0000_0000 / segment_size;
        let low = |number: u64| u32::try_from(number & 0xFFFF_FFFF).unwrap_or(u32::MAX);
        Self { timeline, log: low(number / per_log), part: low(number % per_log) }
    }

    /// Its number, counted from the log's beginning.
    pub fn number(self, segment_size: u64) -> u64 {
        u64::from(self.log) * (0x1_0000_0000 / segment_size) + u64::from(self.part)
    }

    /// Where it begins.
    pub fn start(self, segment_size: u64) -> Lsn {
        Lsn(self.number(segment_size) * segment_size)
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08X}{:08X}{:08X}", self.timeline.0, self.log, self.part)
    }
}

impl FromStr for SegmentName {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        let expected = "the name of a WAL segment, such as 000000010000000000000002";
        if text.len() != 24 || !text.bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b)) {
            return Err(bad(text, expected));
        }
        let part = |range| u32::from_str_radix(&text[range], 16).map_err(|_| bad(text, expected));
        Ok(Self { timeline: Timeline(part(0..8)?), log: part(8..16)?, part: part(16..24)? })
    }
}

/// A file that PostgreSQL archives, or asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WalFile {
    /// A whole segment.
    Segment(SegmentName),
    /// What there was of a segment when its timeline ended.
    Partial(SegmentName),
    /// The history of a timeline.
    History(Timeline),
    /// Where a backup lies in the log: `<segment>.<offset>.backup`. It is written for people.
    Label(SegmentName, u32),
}

impl WalFile {
    /// Its timeline.
    pub fn timeline(self) -> Timeline {
        match self {
            Self::Segment(name) | Self::Partial(name) | Self::Label(name, _) => name.timeline,
            Self::History(timeline) => timeline,
        }
    }

    /// The key of its object.
    pub fn key(self) -> String {
        format!("{WAL}/{:08X}/{self}{COMPRESSED}", self.timeline().0)
    }

    /// The file that the object under this key is, if it is one.
    pub fn of_key(key: &str) -> Option<Self> {
        let (directory, name) = key.strip_prefix(WAL)?.strip_prefix('/')?.split_once('/')?;
        let file: Self = name.strip_suffix(COMPRESSED)?.parse().ok()?;
        (directory == format!("{:08X}", file.timeline().0)).then_some(file)
    }
}

impl fmt::Display for WalFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Segment(name) => name.fmt(f),
            Self::Partial(name) => write!(f, "{name}.partial"),
            Self::History(timeline) => write!(f, "{:08X}.history", timeline.0),
            Self::Label(name, offset) => write!(f, "{name}.{offset:08X}.backup"),
        }
    }
}

impl FromStr for WalFile {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        let expected = "the name of a file in pg_wal that PostgreSQL archives";
        let hex = |digits: &str| {
            let upper = digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b));
            upper.then(|| u32::from_str_radix(digits, 16).ok()).flatten().ok_or_else(|| bad(text, expected))
        };
        match text.split_once('.') {
            None => Ok(Self::Segment(text.parse()?)),
            Some((timeline, "history")) => Ok(Self::History(Timeline(hex(timeline)?))),
            Some((segment, "partial")) => Ok(Self::Partial(segment.parse()?)),
            Some((segment, rest)) => {
                let offset = rest.strip_suffix(".backup").ok_or_else(|| bad(text, expected))?;
                Ok(Self::Label(segment.parse()?, hex(offset)?))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 16 << 20;

    #[test]
    fn a_segment_is_called_as_postgresql_calls_it() {
        let name = SegmentName::of(Timeline(3), Lsn(0x16_B374_D848), SIZE);
        assert_eq!(name.to_string(), "0000000300000016000000B3");
        assert_eq!(name.start(SIZE), Lsn(0x16_B300_0000));
        assert_eq!("0000000300000016000000B3".parse(), Ok(name));
        assert_eq!(
            SegmentName::numbered(Timeline(3), name.number(SIZE) + 1, SIZE).to_string(),
            "0000000300000016000000B4"
        );
        let last = SegmentName::of(Timeline(1), Lsn(0xFFFF_FFFF), SIZE);
        assert_eq!(
            SegmentName::numbered(Timeline(1), last.number(SIZE) + 1, SIZE).to_string(),
            "000000010000000100000000"
        );
    }

    #[test]
    fn every_file_of_the_log_has_a_key_that_leads_back_to_it() {
        for name in [
            "000000010000000000000002",
            "000000020000000000000005.partial",
            "0000000A.history",
            "000000010000000000000002.00000028.backup",
        ] {
            let file: WalFile = name.parse().unwrap();
            assert_eq!(file.to_string(), name);
            assert_eq!(WalFile::of_key(&file.key()), Some(file));
        }
        assert_eq!(WalFile::History(Timeline(2)).key(), "wal/00000002/00000002.history.zst");
    }

    #[test]
    fn what_is_not_a_file_of_the_log_is_refused() {
        for name in
            ["", "x", "..", "00000001000000000000000g", "00000001.histor", "0000000a.history", "../../etc/passwd"]
        {
            assert!(name.parse::<WalFile>().is_err(), "{name}");
        }
        assert_eq!(WalFile::of_key("wal/00000002/000000010000000000000002.zst"), None, "in another timeline's place");
    }

    #[test]
    fn a_backup_is_named_after_its_beginning() {
        let id = BackupId::at("2026-11-18T02:00:05.7Z".parse().unwrap());
        assert_eq!(id.as_str(), "20261118T020005Z");
        assert_eq!(id.pack(3), "base/20261118T020005Z/pack-00003.tar.zst");
        assert!("20261118T020005Z".parse::<BackupId>().is_ok());
        for text in ["", "20261118T020005", "2026-11-18T02:00Z", "../../../../../x"] {
            assert!(text.parse::<BackupId>().is_err(), "{text}");
        }
    }
}
