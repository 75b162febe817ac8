//! Records for tests.

use bellwether_core::wal::{Lsn, SystemIdentifier, Timeline};
use jiff::Timestamp;

use crate::layout::BackupId;
use crate::record::{Commit, FORMAT, Object, Verified};

/// The beginning of a backup, as its name says.
pub fn begun(id: &BackupId) -> Timestamp {
    let text = id.as_str();
    let part = |range: std::ops::Range<usize>| &text[range];
    let text =
        format!("{}-{}-{}T{}:{}:{}Z", part(0..4), part(4..6), part(6..8), part(9..11), part(11..13), part(13..15));
    text.parse().unwrap()
}

/// A backup, with one pack.
pub fn commit(id: &str, timeline: u32, start: u64, stop: u64) -> Commit {
    let id: BackupId = id.parse().unwrap();
    let object = |key| Object { key, size: 1000, sha256: "00".repeat(32), bytes: 4000 };
    Commit {
        format: FORMAT,
        system_identifier: SystemIdentifier(7),
        postgres_version: "17.6".to_owned(),
        agent_version: "0.1.0".to_owned(),
        instance: "main-1".to_owned(),
        started: begun(&id),
        finished: begun(&id),
        timeline: Timeline(timeline),
        start: Lsn(start),
        stop: Lsn(stop),
        segment_size: 16 << 20,
        tablespaces: vec![],
        packs: vec![object(id.pack(0))],
        manifest: object(id.key(crate::layout::MANIFEST)),
        bytes: 4000,
        id,
    }
}

/// That it was verified a little later.
pub fn verified(commit: &Commit) -> Verified {
    Verified {
        format: FORMAT,
        id: commit.id.clone(),
        verified: commit.finished,
        agent_version: "0.1.0".to_owned(),
        timeline: commit.timeline,
        reached: commit.stop,
        phases: vec![],
        not_looked_at: vec![],
        queries: 0,
    }
}
