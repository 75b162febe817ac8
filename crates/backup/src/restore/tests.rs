//! Packs that nobody should have written: each of their objects is what its commit says, and still nothing comes of them.

use std::path::Path;

use bellwether_core::wal::{Lsn, SystemIdentifier, Timeline};
use bytes::Bytes;
use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use tempfile::TempDir;
use tokio::sync::watch;

use super::{MARKER, Options, Progress, RestoreError, unpack};
use crate::base::header::{self, BLOCK, Entry, Inside, Kind};
use crate::base::objects::hex;
use crate::base::pack::entry_of;
use crate::base::tests::in_memory;
use crate::layout::BackupId;
use crate::record::{Commit, FORMAT, Object};
use crate::store::{Location, Store};

/// An entry of a pack and its content, as bytes of tar.
fn file(path: &str, content: &[u8]) -> Vec<u8> {
    padded(&entry(path, Kind::File, content.len() as u64), content)
}

fn entry(path: &str, kind: Kind, size: u64) -> Entry {
    let path = Inside::of(path.as_bytes()).unwrap();
    Entry { path, kind, mode: 0o600, changed: 0, size, extended: vec![] }
}

fn padded(entry: &Entry, content: &[u8]) -> Vec<u8> {
    let mut tar = header::write(entry);
    tar.extend(content);
    tar.resize(tar.len().next_multiple_of(BLOCK), 0);
    tar
}

/// A part of a file of this size.
fn part(path: &str, size: u64, begin: u64, content: &[u8]) -> Vec<u8> {
    let bytes = begin..begin + content.len() as u64;
    padded(&entry_of(&entry(path, Kind::File, size), &bytes).unwrap(), content)
}

/// A header whose path is what we would never write.
fn renamed(path: &str, content: &[u8]) -> Vec<u8> {
    let mut tar = file(&"x".repeat(path.len()), content);
    tar[..path.len()].copy_from_slice(path.as_bytes());
    let sum: u32 =
        tar[..BLOCK].iter().enumerate().map(|(n, &b)| if (148..156).contains(&n) { 32 } else { b.into() }).sum();
    tar[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    tar
}

/// A backup of these packs. Each pack: its entries, and how many bytes of files it says are in it.
struct Backup {
    store: Store,
    commit: Commit,
    dir: TempDir,
}

impl Backup {
    async fn of(packs: &[(Vec<Vec<u8>>, u64)]) -> Self {
        let dir = in_memory();
        std::fs::create_dir(dir.path().join("store")).unwrap();
        let store = Store::open(&Location::directory(&dir.path().join("store"))).unwrap();
        let id: BackupId = "20261118T020000Z".parse().unwrap();
        let mut objects = vec![];
        for (number, (entries, bytes)) in packs.iter().enumerate() {
            let tar = [entries.concat(), vec![0; 2 * BLOCK]].concat();
            objects.push(put(&store, id.pack(number), &tar, *bytes).await);
        }
        let manifest = put(&store, id.key("backup_manifest.zst"), b"{}", 2).await;
        let bytes = objects.iter().map(|pack| pack.bytes).sum();
        let commit = Commit {
            format: FORMAT,
            id,
            system_identifier: SystemIdentifier(7),
            postgres_version: "17.6".to_owned(),
            agent_version: "0".to_owned(),
            instance: String::new(),
            started: Timestamp::UNIX_EPOCH,
            finished: Timestamp::UNIX_EPOCH,
            timeline: Timeline(1),
            start: Lsn(1),
            stop: Lsn(2),
            segment_size: 16 << 20,
            tablespaces: vec![],
            packs: objects,
            manifest,
            bytes,
        };
        Self { store, commit, dir }
    }

    async fn restore(&self) -> Result<(), RestoreError> {
        let progress = watch::Sender::new(Progress::default());
        unpack(&self.commit, &self.store, &self.target(), &Options::default(), &progress).await
    }

    fn target(&self) -> std::path::PathBuf {
        self.dir.path().join("data")
    }
}

async fn put(store: &Store, key: String, content: &[u8], bytes: u64) -> Object {
    let body = zstd::bulk::compress(content, 1).unwrap();
    let (size, sha256) = (body.len() as u64, hex(digest(&SHA256, &body).as_ref()));
    store.put_new(&key, Bytes::from(body)).await.unwrap();
    Object { key, size, sha256, bytes }
}

fn control() -> Vec<u8> {
    file("global/pg_control", b"control")
}

/// A whole backup's first pack, and a second one.
async fn restored(second: Vec<Vec<u8>>, bytes: u64) -> (Backup, Result<(), RestoreError>) {
    let backup = Backup::of(&[(vec![control()], 7), (second, bytes)]).await;
    let outcome = backup.restore().await;
    (backup, outcome)
}

/// The second pack is refused, by name, and what there is does not look whole.
async fn refused(second: Vec<Vec<u8>>, bytes: u64, because: &str) {
    let (backup, outcome) = restored(second, bytes).await;
    let error = outcome.unwrap_err().to_string();
    assert!(error.starts_with("base/20261118T020000Z/pack-00001.tar.zst is damaged: "), "{error}");
    assert!(error.contains(because), "{error}");
    looks_half(&backup.target());
}

fn looks_half(target: &Path) {
    assert!(target.join(MARKER).exists());
    assert!(!target.join("global/pg_control").exists(), "PostgreSQL would start on it");
}

#[tokio::test]
async fn parts_in_any_order_become_a_file() {
    let second =
        vec![part("base/1/2", 10, 6, b"ghij"), part("base/1/2", 10, 0, b"abc"), part("base/1/2", 10, 3, b"def")];
    let (backup, outcome) = restored(second, 10).await;
    outcome.unwrap();
    assert_eq!(std::fs::read(backup.target().join("base/1/2")).unwrap(), b"abcdefghij");
    assert!(!backup.target().join(MARKER).exists());
    assert!(backup.target().join("global/pg_control").exists());
}

#[tokio::test]
async fn a_path_that_leads_elsewhere_is_refused() {
    for path in ["../escaped", "/tmp/bellwether-escaped", "base/../../escaped"] {
        let (backup, outcome) = restored(vec![renamed(path, b"x")], 1).await;
        assert!(outcome.unwrap_err().to_string().contains("is no path below a directory"));
        assert!(!backup.dir.path().join("escaped").exists() && !Path::new("/tmp/bellwether-escaped").exists());
        looks_half(&backup.target());
    }
}

#[tokio::test]
async fn a_link_is_refused() {
    let link = header::write(&entry("base/out", Kind::Link { target: "/etc".into() }, 0));
    refused(vec![link], 0, "a link, which no backup has").await;
}

#[tokio::test]
async fn a_file_that_is_there_twice_is_refused() {
    refused(vec![file("base/1/2", b"x"), file("base/1/2", b"y")], 2, "in the backup twice").await;
    refused(vec![file("base/1/2", b"xy"), part("base/1/2", 2, 0, b"x")], 3, "in the backup twice").await;
}

#[tokio::test]
async fn parts_that_overlap_are_refused() {
    refused(vec![part("a", 10, 0, b"abcdef"), part("a", 10, 5, b"fghij")], 11, "bytes 5 to 10 overlap with 0 to 6")
        .await;
}

#[tokio::test]
async fn parts_of_files_of_different_sizes_are_refused() {
    refused(vec![part("a", 10, 0, b"abc"), part("a", 11, 3, b"d")], 4, "where others say 10").await;
}

#[tokio::test]
async fn a_file_of_a_tablespace_that_the_commit_does_not_name_is_refused() {
    refused(vec![file("pg_tblspc/16384/PG_17/1/2", b"x")], 1, "there is no such tablespace").await;
    refused(vec![part("pg_tblspc/16384/PG_17/1/2", 9, 0, b"x")], 1, "there is no such tablespace").await;
}

#[tokio::test]
async fn a_pack_that_holds_less_than_was_said_is_refused() {
    refused(vec![file("a", b"x")], 2, "it holds 1 bytes of files instead of 2").await;
}

#[tokio::test]
async fn an_object_that_can_be_read_and_is_another_is_refused() {
    let mut backup = Backup::of(&[(vec![control()], 7), (vec![file("a", b"x")], 1)]).await;
    let other = put(&backup.store, "other".to_owned(), &[file("a", b"y"), vec![0; 2 * BLOCK]].concat(), 1).await;
    backup.commit.packs[1].sha256 = other.sha256;
    let error = backup.restore().await.unwrap_err().to_string();
    assert!(error.starts_with("base/20261118T020000Z/pack-00001.tar.zst is damaged: its SHA-256 is "), "{error}");
    looks_half(&backup.target());
}

#[tokio::test]
async fn a_pack_whose_tar_is_cut_off_is_refused() {
    let mut cut = file("a", &[1; 3000]);
    cut.truncate(1000);
    let backup = Backup::of(&[(vec![control()], 7)]).await;
    let mut commit = backup.commit.clone();
    commit.packs.push(put(&backup.store, commit.id.pack(1), &cut, 3000).await);
    commit.bytes += 3000;
    let error = Backup { commit, ..backup }.restore().await.unwrap_err().to_string();
    assert!(error.contains("pack-00001.tar.zst is damaged: the tar stream ends too early"), "{error}");
}

#[tokio::test]
async fn a_part_that_is_missing_is_noticed() {
    for (second, at) in [
        (vec![part("a", 10, 0, b"abc"), part("a", 10, 6, b"ghij")], 3),
        (vec![part("a", 10, 3, b"defghij")], 0),
        (vec![part("a", 10, 0, b"abcdef")], 6),
    ] {
        let bytes = if at == 6 { 6 } else { 7 };
        let (backup, outcome) = restored(second, bytes).await;
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(&format!("a: the part that begins at byte {at} of 10 is missing")), "{error}");
        looks_half(&backup.target());
    }
}

#[tokio::test]
async fn without_a_control_file_nothing_is_whole() {
    let backup = Backup::of(&[(vec![file("a", b"x")], 1)]).await;
    let error = backup.restore().await.unwrap_err().to_string();
    assert!(error.contains("global/pg_control: it is in no pack"), "{error}");
}

#[tokio::test]
async fn a_commit_that_lost_a_pack_is_noticed() {
    let mut backup = Backup::of(&[(vec![control()], 7), (vec![file("a", b"x")], 1)]).await;
    backup.commit.packs.pop();
    let error = backup.restore().await.unwrap_err().to_string();
    assert!(error.contains("7 bytes were in its packs, and its commit says 8"), "{error}");
}

#[tokio::test]
async fn what_a_broken_restore_left_is_not_restored_over() {
    let (backup, outcome) = restored(vec![file("a", b"x")], 2).await;
    outcome.unwrap_err();
    let again = backup.restore().await;
    assert!(matches!(again, Err(RestoreError::NotEmpty { half: true, .. })), "{again:?}");
}
