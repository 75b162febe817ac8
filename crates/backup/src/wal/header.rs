//! Decides whether a file is the segment that its name says, of the database that it should be of.
//!
//! From: the header of its first page. PostgreSQL makes new segments of old ones, by another name, and a data directory may be mounted where another was: both look like
//! segments, and have the right size.
//!
//! Never: a segment archived that recovery would stop at.

use bellwether_core::wal::{Lsn, SystemIdentifier, Timeline};

use crate::layout::SegmentName;

/// How many bytes the header of a segment's first page has.
pub(super) const LENGTH: usize = 40;
/// The high byte of PostgreSQL's magic number; the low one is the version of the format.
const MAGIC: u16 = 0xD100;
/// `XLP_LONG_HEADER`: the page says more than others, as the first of a segment does.
const LONG: u16 = 0x0002;

/// Why a file is not what its name says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// Its size is not that of a segment.
    #[error("it has {found} bytes, and a segment here has {expected}")]
    Size {
        /// Its size.
        found: u64,
        /// The size of segments.
        expected: u64,
    },
    /// It does not begin as a segment does.
    #[error("it does not begin as a segment does (its first bytes are {0:04X} {1:04X})")]
    NoLog(u16, u16),
    /// It holds another part of the log: it was made of an older segment, and not written to yet.
    #[error("it holds the log from {found} on, and not from {expected}: it was made of another segment")]
    Position {
        /// Where it begins.
        found: Lsn,
        /// Where it should.
        expected: Lsn,
    },
    /// It is of a later timeline than its name.
    #[error("it is of timeline {found}, which is later than {expected}")]
    Timeline {
        /// Its timeline.
        found: Timeline,
        /// That of its name.
        expected: Timeline,
    },
    /// It is of another database.
    #[error("it is of the database with system identifier {found}, and this is the archive of {expected}")]
    System {
        /// Its database.
        found: SystemIdentifier,
        /// The archive's.
        expected: SystemIdentifier,
    },
    /// Segments of its database have another size.
    #[error("it says that segments have {found} bytes, and not {expected}")]
    SegmentSize {
        /// What it says.
        found: u64,
        /// What was expected.
        expected: u64,
    },
    /// The history of a timeline does not say where that begins.
    #[error("it is no history of timeline {0}")]
    History(Timeline),
}

/// What a segment should be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub name: SegmentName,
    pub system: SystemIdentifier,
    pub segment_size: u64,
}

/// Whether a segment that begins with these bytes is the expected one.
pub(super) fn check(header: &[u8; LENGTH], expected: Expected) -> Result<(), Foreign> {
    let Expected { name, system, segment_size } = expected;
    let (magic, info) = (u16::from_ne_bytes(part(header, 0)), u16::from_ne_bytes(part(header, 2)));
    if magic & 0xFF00 != MAGIC || info & LONG == 0 {
        return Err(Foreign::NoLog(magic, info));
    }
    let found = SystemIdentifier(u64::from_ne_bytes(part(header, 24)));
    if found != system {
        return Err(Foreign::System { found, expected: system });
    }
    let found = u64::from(u32::from_ne_bytes(part(header, 32)));
    if found != segment_size {
        return Err(Foreign::SegmentSize { found, expected: segment_size });
    }
    let (found, start) = (Lsn(u64::from_ne_bytes(part(header, 8))), name.start(segment_size));
    if found != start {
        return Err(Foreign::Position { found, expected: start });
    }
    // The first segment of a timeline begins with what the one before had written there.
    let found = Timeline(u32::from_ne_bytes(part(header, 4)));
    if found > name.timeline {
        return Err(Foreign::Timeline { found, expected: name.timeline });
    }
    Ok(())
}

fn part<const N: usize>(header: &[u8; LENGTH], from: usize) -> [u8; N] {
    std::array::from_fn(|at| header[from + at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const SIZE: u64 = 16 << 20;
    const SYSTEM: u64 = 7_459_982_111_223_344_556;

    /// The header of segment 5 on timeline 2, with some bytes others.
    fn header(change: impl FnOnce(&mut [u8; LENGTH])) -> Result<(), Foreign> {
        let mut header = [0; LENGTH];
        let mut put = |from: usize, bytes: &[u8]| header[from..from + bytes.len()].copy_from_slice(bytes);
        put(0, &0xD116_u16.to_ne_bytes());
        put(2, &0x0002_u16.to_ne_bytes());
        put(4, &2_u32.to_ne_bytes());
        put(8, &(5 * SIZE).to_ne_bytes());
        put(24, &SYSTEM.to_ne_bytes());
        put(32, &(SIZE as u32).to_ne_bytes());
        put(36, &8192_u32.to_ne_bytes());
        change(&mut header);
        let name = SegmentName::numbered(Timeline(2), 5, SIZE);
        check(&header, Expected { name, system: SystemIdentifier(SYSTEM), segment_size: SIZE })
    }

    #[test]
    fn the_segment_itself_is_taken_also_where_its_timeline_begins() {
        assert_eq!(header(|_| {}), Ok(()));
        assert_eq!(header(|header| header[4] = 1), Ok(()), "the log before the fork is the older timeline's");
        assert_eq!(header(|header| header[0] = 0x18), Ok(()), "another version of PostgreSQL");
    }

    #[rstest]
    #[case::zeroes(0..40, Foreign::NoLog(0, 0))]
    #[case::no_first_page(2..4, Foreign::NoLog(0xD116, 0))]
    #[case::of_another_database(24..32, Foreign::System { found: SystemIdentifier(0), expected: SystemIdentifier(SYSTEM) })]
    #[case::recycled(8..16, Foreign::Position { found: Lsn(0), expected: Lsn(5 * SIZE) })]
    #[case::of_other_segments(32..36, Foreign::SegmentSize { found: 0, expected: SIZE })]
    fn what_is_not_the_segment_is_refused(#[case] zeroed: std::ops::Range<usize>, #[case] expected: Foreign) {
        assert_eq!(header(|header| header[zeroed].fill(0)), Err(expected));
    }

    #[test]
    fn a_segment_of_a_later_timeline_is_refused() {
        let expected = Foreign::Timeline { found: Timeline(3), expected: Timeline(2) };
        assert_eq!(header(|header| header[4] = 3), Err(expected));
    }
}
