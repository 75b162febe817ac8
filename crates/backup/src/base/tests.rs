//! Whatever the files, and however their bytes arrive: what is unpacked is what was packed.

use std::collections::BTreeMap;
use std::path::Path;

use bellwether_core::wal::{Lsn, SystemIdentifier, Timeline};
use jiff::Timestamp;
use proptest::prelude::*;
use tokio::sync::watch;

use super::header::{self, BLOCK, Entry, Inside, Kind};
use super::objects::{Effort, Objects};
use super::packing::{Packed, Packing};
use super::protocol::{self, Archive};
use super::tar::{Event, Reader, TarError};
use super::{BaseError, Progress, check, needed_segments};
use crate::record::{Commit, FORMAT, Tablespace};
use crate::restore::{Options, unpack};
use crate::store::{Location, Store};

/// A file: its path, its content, and its mode.
type File = (String, Vec<u8>, u32);

fn entry(path: &str, kind: Kind, mode: u32, size: u64) -> Entry {
    let path = Inside::of(path.as_bytes()).unwrap();
    Entry { path, kind, mode, changed: 1_795_000_000, size, extended: vec![] }
}

/// A tar as PostgreSQL writes it.
fn tar_of(files: &[File]) -> Vec<u8> {
    let mut tar = header::write(&entry("pg_wal", Kind::Directory, 0o700, 0));
    for (path, content, mode) in files {
        tar.extend(header::write(&entry(path, Kind::File, *mode, content.len() as u64)));
        tar.extend(content);
        tar.resize(tar.len().next_multiple_of(BLOCK), 0);
    }
    tar.extend([0; 2 * BLOCK]);
    tar
}

/// Cuts bytes at these distances, again and again.
fn pieces<'a>(bytes: &'a [u8], distances: &[usize]) -> Vec<&'a [u8]> {
    let (mut rest, mut pieces) = (bytes, vec![]);
    for distance in distances.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*distance).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

fn commit_of(packed: Packed, tablespaces: Vec<Tablespace>) -> Commit {
    Commit {
        format: FORMAT,
        id: "20261118T020000Z".parse().unwrap(),
        system_identifier: SystemIdentifier(7),
        postgres_version: "17.6".to_owned(),
        agent_version: "0".to_owned(),
        instance: "orders-1".to_owned(),
        started: Timestamp::UNIX_EPOCH,
        finished: Timestamp::UNIX_EPOCH,
        timeline: Timeline(1),
        start: Lsn(0x0200_0028),
        stop: Lsn(0x0200_0138),
        segment_size: 16 << 20,
        tablespaces,
        packs: packed.packs,
        manifest: packed.manifest,
        bytes: packed.bytes,
    }
}

async fn pack(store: &Store, pack_bytes: u64, main: &[File], space: &[File], distances: &[usize]) -> Packed {
    let progress = watch::Sender::new(Progress::default());
    let effort = Effort { level: 1, workers: 2, uploads: 2 };
    let objects = Objects::new(store, effort, &progress);
    let mut packing = Packing::new("20261118T020000Z".parse().unwrap(), pack_bytes, objects, &progress);
    for (archive, files) in [(Archive::Tablespace(16384), space), (Archive::Main, main)] {
        packing.archive(archive).unwrap();
        for piece in pieces(&tar_of(files), distances) {
            packing.data(piece).await.unwrap();
        }
    }
    packing.end_of_archives().await.unwrap();
    packing.manifest(b"{}").await.unwrap();
    let packed = packing.finish().await.unwrap();
    packing.keep();
    packed
}

/// Every file below a directory, links followed.
fn tree(root: &Path, below: &str, found: &mut BTreeMap<String, (Vec<u8>, u32)>) {
    use std::os::unix::fs::PermissionsExt as _;
    for entry in std::fs::read_dir(root.join(below)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        let meta = std::fs::metadata(root.join(&path)).unwrap();
        if meta.is_dir() {
            tree(root, &path, found);
        } else {
            found.insert(path.clone(), (std::fs::read(root.join(&path)).unwrap(), meta.permissions().mode() & 0o777));
        }
    }
}

/// A directory that costs no disk anything: a restore waits for the disk of everybody who works here.
pub(crate) fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    let size = prop_oneof![Just(0), Just(BLOCK), 1..2000usize, 1000..40_000usize];
    (size, any::<u64>())
        .prop_map(|(size, seed)| (0..size as u64).map(|n| (seed.wrapping_mul(n | 1) >> 32) as u8).collect())
}

fn files(prefix: &'static str) -> impl Strategy<Value = Vec<File>> {
    let mode = prop_oneof![Just(0o600), Just(0o640)];
    prop::collection::vec((content(), mode), 0..8).prop_map(move |files| {
        let name = |n: usize| format!("{prefix}/{}{n}", "long".repeat(n * 3));
        files.into_iter().enumerate().map(|(n, (content, mode))| (name(n), content, mode)).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_unpacked_is_what_was_packed(
        files in files("base/1"),
        space in files("PG_17/1"),
        pack_bytes in prop_oneof![1..3000u64, 3000..100_000u64],
        distances in prop::collection::vec(1..5000usize, 1..6),
    ) {
        let needed = [("backup_label", b"label".to_vec(), 0o600), ("global/pg_control", vec![7; 8192], 0o600)];
        let main: Vec<File> = files.into_iter().chain(needed.map(|(path, content, mode)| (path.to_owned(), content, mode))).collect();
        let (place, objects) = (in_memory(), in_memory());
        let store = Store::open(&Location::directory(objects.path())).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let packed = pack(&store, pack_bytes, &main, &space, &distances).await;
            for pack in &packed.packs {
                assert!(pack.bytes <= pack_bytes, "{} bytes in a pack of {pack_bytes}", pack.bytes);
            }
            let commit = commit_of(packed, vec![Tablespace { oid: 16384, location: "/gone".to_owned() }]);
            let progress = watch::Sender::new(crate::restore::Progress::default());
            unpack(&commit, &store, &place.path().join("data"), &Options { workers: 3, ..Options::default() }, &progress).await.unwrap();
        });
        let mut found = BTreeMap::new();
        tree(&place.path().join("data"), "", &mut found);
        let below = |(path, content, mode): File| (format!("pg_tblspc/16384/{path}"), (content, mode));
        let expected: BTreeMap<_, _> = main.into_iter().map(|(path, content, mode)| (path, (content, mode)))
            .chain(space.into_iter().map(below))
            .chain([("backup_manifest".to_owned(), (b"{}".to_vec(), 0o600))])
            .collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn a_tar_reads_the_same_however_it_arrives(files in files("a"), distances in prop::collection::vec(1..3000usize, 1..6)) {
        let (tar, mut reader, mut found) = (tar_of(&files), Reader::default(), vec![]);
        for mut piece in pieces(&tar, &distances) {
            while let Some(event) = reader.next(&mut piece).unwrap() {
                match event {
                    Event::Entry(entry) => found.push((entry.path.to_string(), vec![], entry.mode)),
                    Event::Data(data) => found.last_mut().unwrap().1.extend_from_slice(data),
                    Event::End => {}
                }
            }
        }
        reader.finish().unwrap();
        prop_assert_eq!(&found[1..], files.as_slice());
    }

    #[test]
    fn no_bytes_make_the_reader_do_anything_but_refuse(mut tar in prop::collection::vec(any::<u8>(), 0..4000), at in 0..3000usize) {
        let read = |tar: &[u8]| {
            let (mut reader, mut rest) = (Reader::default(), tar);
            while let Some(_event) = reader.next(&mut rest)? {}
            reader.finish()
        };
        prop_assert!(read(&tar).is_err());
        // In front of it something that is right.
        let good = tar_of(&[("a".to_owned(), vec![1; 700], 0o600)]);
        tar.splice(0..0, good[..at.min(good.len() - 2 * BLOCK)].iter().copied());
        let _ = read(&tar);
    }
}

#[tokio::test]
async fn an_object_of_many_blocks_is_what_was_written() {
    let dir = in_memory();
    let store = Store::open(&Location::directory(dir.path())).unwrap();
    let progress = watch::Sender::new(Progress::default());
    let mut objects = Objects::new(&store, Effort { level: 1, workers: 3, uploads: 1 }, &progress);
    // Blocks that take one more and one less time, so that they are done in another order than they were begun in.
    let hard = |n: u64| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 29).to_le_bytes();
    let block = |easy: bool| (0..(4 << 20) / 8).flat_map(move |n| if easy { [7; 8] } else { hard(n) });
    let content: Vec<u8> = (0..7).flat_map(|n| block(n % 2 == 1)).chain(*b"the end").collect();
    for piece in content.chunks(1_000_000) {
        objects.write(piece).await.unwrap();
    }
    objects.end("first".to_owned(), 1).await.unwrap();
    objects.write(b"second").await.unwrap();
    objects.end("second".to_owned(), 2).await.unwrap();
    let done = objects.finish().await.unwrap();
    objects.keep();
    assert_eq!(
        done.iter().map(|object| (object.key.as_str(), object.bytes)).collect::<Vec<_>>(),
        [("first", 1), ("second", 2)]
    );
    let read = |key: &'static str| {
        let store = store.clone();
        async move { zstd::decode_all(store.get(key).await.unwrap().as_ref()).unwrap() }
    };
    assert!(read("first").await == content);
    assert_eq!(read("second").await, b"second");
    assert_eq!((progress.borrow().objects, progress.borrow().stored), (2, done[0].size + done[1].size));
}

#[test]
fn a_stream_that_is_cut_off_is_not_whole() {
    let tar = tar_of(&[("a".to_owned(), vec![1; 700], 0o600)]);
    for length in 0..tar.len() {
        let (mut reader, mut rest) = (Reader::default(), &tar[..length]);
        while let Some(_event) = reader.next(&mut rest).unwrap() {}
        assert!(matches!(reader.finish(), Err(TarError::Truncated(_))), "{length}");
    }
}

#[test]
fn nothing_may_follow_the_end_but_zeros() {
    for (last, whole) in [(0, true), (1, false)] {
        let mut tar = tar_of(&[]);
        tar.extend([0, 0, last]);
        let (mut reader, mut rest) = (Reader::default(), tar.as_slice());
        let read = std::iter::from_fn(|| reader.next(&mut rest).transpose()).collect::<Result<Vec<_>, _>>();
        assert_eq!(read.is_ok(), whole);
    }
}

#[test]
fn the_log_of_a_backup_goes_up_to_the_byte_before_its_end() {
    let packed = Packed { packs: vec![], manifest: object(), bytes: 0 };
    let mut commit = commit_of(packed, vec![]);
    let names = |commit: &Commit| needed_segments(commit).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names(&commit), ["000000010000000000000002"]);
    commit.stop = Lsn(0x0300_0000);
    assert_eq!(names(&commit), ["000000010000000000000002"], "the last byte is in the segment before");
    (commit.start, commit.stop) = (Lsn(0xFF00_0028), Lsn(0x1_0000_0001));
    assert_eq!(names(&commit), ["0000000100000000000000FF", "000000010000000100000000"]);
}

fn object() -> crate::record::Object {
    crate::record::Object { key: String::new(), size: 0, sha256: String::new(), bytes: 0 }
}

#[test]
fn a_backup_across_a_change_of_timelines_is_none() {
    let start = |timeline| protocol::Start {
        position: Lsn(0x0200_0028),
        timeline: Timeline(timeline),
        tablespaces: vec![],
        estimate: 0,
    };
    let end = |position, timeline| protocol::End { position: Lsn(position), timeline: Timeline(timeline) };
    assert!(check(&start(1), &end(0x0200_0138, 1)).is_ok());
    let changed = check(&start(1), &end(0x0200_0138, 2));
    assert!(matches!(changed, Err(BaseError::TimelineChanged { start: Timeline(1), end: Timeline(2) })));
    assert!(
        matches!(check(&start(1), &end(0x0200_0028, 1)), Err(BaseError::NoRange { .. })),
        "it ends where it begins"
    );
}
