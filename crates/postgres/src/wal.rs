//! What the files in `pg_wal` say: which timelines reach a position, and where the log of a server ends that was shut down.
//!
//! Must never happen: that a log is called longer than it is, or of a newer timeline. A history file proves nothing: it is written
//! before the first byte of its timeline.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use bellwether_core::wal::{Lsn, Timeline};

use crate::control::{self, ControlError, State};
use crate::installation::Installation;

/// Why the end of a log can't be read.
#[derive(Debug, thiserror::Error)]
pub enum WalError {
    /// The control file can't be read.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A file can't be read.
    #[error("{}: {cause}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What came back.
        cause: io::Error,
    },
    /// Where the control file has its shutdown checkpoint, there is something else.
    #[error("{}: no shutdown checkpoint at {at}", path.display())]
    NoCheckpoint {
        /// The segment.
        path: PathBuf,
        /// The position.
        at: Lsn,
    },
}

/// How the log is cut into files and pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes in a segment.
    pub segment: u64,
    /// Bytes in a page.
    pub page: u64,
}

/// A record's header: its length in the first four bytes, its kind in the two named here.
const HEADER: usize = 24;
const HEADER_INFO: usize = 16;
const HEADER_MANAGER: usize = 17;
/// `RM_XLOG_ID`, `XLOG_CHECKPOINT_SHUTDOWN`.
const SHUTDOWN_CHECKPOINT: (u8, u8) = (0, 0);
/// What a page begins with; the first of a segment says more.
const PAGE_HEADER: u64 = 24;
const FIRST_PAGE_HEADER: u64 = 40;
/// Records begin at multiples of this, and what follows one does.
const ALIGNMENT: u64 = 8;

/// Where the log ends of a primary that was shut down cleanly: after its shutdown checkpoint, which is the last thing that it
/// writes, and which it sends to every connected standby before it ends. `None`: it crashed, runs, or was a standby.
pub async fn end_of_shutdown(
    installation: &Installation,
    data_dir: &Path,
) -> Result<Option<(Timeline, Lsn)>, WalError> {
    let control = control::read(installation, data_dir).await?;
    if control.state != State::ShutDown {
        return Ok(None);
    }
    let (layout, start) = (control.layout, control.checkpoint);
    let path = data_dir.join("pg_wal").join(segment_name(control.timeline, start.0 / layout.segment, layout.segment));
    // The header of a record may be cut by the end of a page, its length never is.
    let whole = layout.page - start.0 % layout.page >= HEADER as u64;
    let mut header = [0; HEADER];
    let wanted = if whole { &mut header[..] } else { &mut header[..4] };
    File::open(&path)
        .and_then(|file| file.read_exact_at(wanted, start.0 % layout.segment))
        .map_err(|cause| WalError::Io { path: path.clone(), cause })?;
    let [a, b, c, d, ..] = header;
    let kind = (header[HEADER_MANAGER], header[HEADER_INFO] & 0xf0);
    let length = u64::from(u32::from_ne_bytes([a, b, c, d]));
    if length < HEADER as u64 || length > layout.page || (whole && kind != SHUTDOWN_CHECKPOINT) {
        return Err(WalError::NoCheckpoint { path, at: start });
    }
    Ok(Some((control.timeline, record_end(start, length, layout))))
}

/// Where a record of this length ends, page headers and alignment included.
fn record_end(start: Lsn, length: u64, layout: Layout) -> Lsn {
    let (mut position, mut left) = (start.0, length);
    loop {
        let room = layout.page - position % layout.page;
        if left <= room {
            return Lsn((position + left).next_multiple_of(ALIGNMENT));
        }
        left -= room;
        position += room;
        position += if position.is_multiple_of(layout.segment) { FIRST_PAGE_HEADER } else { PAGE_HEADER };
    }
}

/// Where the timelines before `timeline` ended, oldest first, as its history file says. The first timeline has none.
pub fn forks(data_dir: &Path, timeline: Timeline) -> Result<Vec<(Timeline, Lsn)>, WalError> {
    if timeline <= Timeline(1) {
        return Ok(vec![]);
    }
    let path = data_dir.join("pg_wal").join(format!("{:08X}.history", timeline.0));
    let text = std::fs::read_to_string(&path).map_err(|cause| WalError::Io { path, cause })?;
    Ok(parse_history(&text))
}

/// Each line is a timeline, its end, and a reason; comments begin with `#`.
fn parse_history(text: &str) -> Vec<(Timeline, Lsn)> {
    let fork = |line: &str| {
        let mut words = line.split_whitespace();
        Some((Timeline(words.next()?.parse().ok()?), words.next()?.parse().ok()?))
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(fork).collect()
}

/// The newest timeline on which there is a segment that holds the last byte before `end`.
pub fn newest_timeline(data_dir: &Path, end: Lsn, segment_size: u64) -> io::Result<Option<Timeline>> {
    let Some(last) = end.0.checked_sub(1) else { return Ok(None) };
    let mut newest = None;
    for entry in std::fs::read_dir(data_dir.join("pg_wal"))? {
        let found = entry?.file_name().to_str().and_then(|name| parse_segment_name(name, segment_size));
        if let Some((timeline, segment)) = found
            && segment == last / segment_size
        {
            newest = newest.max(Some(timeline));
        }
    }
    Ok(newest)
}

/// Segments in four gigabytes: the name counts in these.
fn segments_per_id(segment_size: u64) -> u64 {
    0x1_0000_0000 / segment_size
}

fn segment_name(timeline: Timeline, segment: u64, segment_size: u64) -> String {
    let per_id = segments_per_id(segment_size);
    format!("{:08X}{:08X}{:08X}", timeline.0, segment / per_id, segment % per_id)
}

/// Timeline and number of a segment; none for history files, partial segments and what else lies there.
fn parse_segment_name(name: &str, segment_size: u64) -> Option<(Timeline, u64)> {
    if name.len() != 24 || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let part = |range| u32::from_str_radix(name.get(range)?, 16).ok();
    let number = u64::from(part(8..16)?) * segments_per_id(segment_size) + u64::from(part(16..24)?);
    Some((Timeline(part(0..8)?), number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    const MIB: u64 = 1024 * 1024;
    const LAYOUT: Layout = Layout { segment: 16 * MIB, page: 8192 };

    #[rstest]
    #[case::within_a_page(0x0100_0028, 114, 0x0100_00a0)]
    #[case::to_the_very_end_of_a_page(0x0100_1f88, 120, 0x0100_2000)]
    #[case::aligned_to_the_end_of_a_page(0x0100_1f88, 114, 0x0100_2000)]
    #[case::across_a_page(0x0100_1ff8, 114, 0x0100_2000 + 24 + 112)]
    #[case::across_a_segment(0x01ff_fff8, 114, 0x0200_0000 + 40 + 112)]
    fn a_record_ends_where_postgresql_says(#[case] start: u64, #[case] length: u64, #[case] end: u64) {
        assert_eq!(record_end(Lsn(start), length, LAYOUT), Lsn(end));
    }

    #[test]
    fn a_history_names_each_timeline_and_its_end() {
        let text = "1\t0/3000148\tno recovery target specified\n\n# by hand\n2\t1/A0\tno recovery target specified\n";
        assert_eq!(parse_history(text), [(Timeline(1), Lsn(0x0300_0148)), (Timeline(2), Lsn(0x1_0000_00a0))]);
    }

    #[test]
    fn the_newest_timeline_is_that_of_a_segment_and_not_of_a_history_file() {
        let dir = tempfile::tempdir().unwrap();
        let wal = dir.path().join("pg_wal");
        std::fs::create_dir(&wal).unwrap();
        let newest = |end| newest_timeline(dir.path(), Lsn(end), 16 * MIB).unwrap();
        assert_eq!(newest(0x0300_0000), None);
        for name in [
            "000000010000000000000002",
            "000000010000000000000003",
            "000000020000000000000003",
            "000000020000000000000004",
            "00000003.history",
            "000000030000000000000003.partial",
            "00000009000000000000000Z",
            "archive_status",
        ] {
            std::fs::write(wal.join(name), "").unwrap();
        }
        assert_eq!(newest(0x0300_0000), Some(Timeline(1)), "the last byte is in the segment before");
        assert_eq!(newest(0x0300_0001), Some(Timeline(2)));
        assert_eq!(newest(0x0400_0000), Some(Timeline(2)));
        assert_eq!(newest(0x0600_0000), None);
        assert_eq!(newest(0), None);
    }

    proptest! {
        #[test]
        fn names_of_segments_read_as_they_are_written(timeline in 1u32.., segment in 0u64..1 << 32, power in 0u32..11) {
            let size = MIB << power;
            let name = segment_name(Timeline(timeline), segment, size);
            prop_assert_eq!(parse_segment_name(&name, size), Some((Timeline(timeline), segment)));
        }
    }
}
