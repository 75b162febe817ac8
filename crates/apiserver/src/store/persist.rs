//! Keeps the store's state on disk: a snapshot and a log of what came after it.
//!
//! Each record is a line: a checksum, a space, JSON, a newline. A record is written with one `write` before the change is answered,
//! so a kill at any moment loses nothing that was answered; what a power failure could lose is made durable by [`Unsynced::sync`],
//! outside of the store's lock, one `fdatasync` for all who wait. Never: a record read that was not written whole (a torn end is
//! cut off, damage in the middle refuses to open), or a snapshot replaced before its successor is on disk.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

const LOG: &str = "log";
const SNAPSHOT: &str = "snapshot";

/// A log shorter than this is not worth a snapshot; replaying it takes a fraction of a second.
const LOG_AT_LEAST: u64 = 4 << 20;

/// Why the state can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The operating system said no.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// A file is damaged before its end, which no crash of ours does.
    #[error("{path} is damaged at byte {offset}: restore it from a copy, or move it away to start with an empty state", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the first bad record starts.
        offset: u64,
    },
    /// The first namespaces could not be created.
    #[error("the first namespaces can't be created: {message}")]
    Seed {
        /// Why.
        message: String,
    },
}

/// One change, or one object of a snapshot. A snapshot's first and last lines have no bucket: they carry its revision.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) revision: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) bucket: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "shared")]
    pub(super) object: Option<Arc<Value>>,
}

mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::Value;

    pub(super) fn serialize<S: Serializer>(object: &Option<Arc<Value>>, serializer: S) -> Result<S::Ok, S::Error> {
        object.as_deref().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<Value>>, D::Error> {
        Option::<Value>::deserialize(deserializer).map(|object| object.map(Arc::new))
    }
}

/// The open log.
pub(super) struct Log {
    dir: PathBuf,
    sync: Arc<Sync>,
    length: u64,
    snapshot_length: u64,
}

/// What is written and what is known to be on disk, shared with those who wait for it.
struct Sync {
    file: File,
    written: AtomicU64,
    synced: Mutex<u64>,
}

/// A claim on durability: everything written up to the moment it was taken.
pub struct Unsynced {
    sync: Arc<Sync>,
    up_to: u64,
}

impl Unsynced {
    /// Blocks until it is on disk. Of many that wait at once, one does the work.
    pub fn sync(&self) -> io::Result<()> {
        let mut synced = self.sync.synced.lock().unwrap_or_else(PoisonError::into_inner);
        if *synced >= self.up_to {
            return Ok(());
        }
        let written = self.sync.written.load(Ordering::Acquire);
        self.sync.file.sync_data()?;
        *synced = written;
        Ok(())
    }
}

impl Log {
    /// Writes a record. After an error the log is as it was before.
    pub(super) fn append(&mut self, record: &Record) -> io::Result<()> {
        let line = encode(record)?;
        let mut file = &self.sync.file;
        if let Err(error) = file.write_all(&line) {
            // A part of the record may be there; a later record after it would look like damage.
            self.sync.file.set_len(self.length)?;
            file.seek(SeekFrom::Start(self.length))?;
            return Err(error);
        }
        self.length += line.len() as u64;
        self.sync.written.store(self.length, Ordering::Release);
        Ok(())
    }

    pub(super) fn unsynced(&self) -> Option<Unsynced> {
        let synced = *self.sync.synced.lock().unwrap_or_else(PoisonError::into_inner);
        (synced < self.length).then(|| Unsynced { sync: self.sync.clone(), up_to: self.length })
    }

    /// Whether most of the log describes what is no longer so.
    pub(super) fn wants_snapshot(&self) -> bool {
        self.length > LOG_AT_LEAST && self.length > 4 * self.snapshot_length
    }

    /// Puts a snapshot in the place of snapshot and log. Those who hold an [`Unsynced`] of the old log sync a file that no longer
    /// matters: what they wait for is in the snapshot, which is on disk.
    pub(super) fn snapshot(&mut self, revision: u64, objects: impl Iterator<Item = Record>) -> io::Result<()> {
        let fresh = self.dir.join("snapshot.new");
        let mut out = BufWriter::new(File::create(&fresh)?);
        let mark = |revision| Record {
            revision,
            bucket: String::new(),
            namespace: String::new(),
            name: String::new(),
            object: None,
        };
        let mut length = 0;
        // The first line sets the revision that objects are replayed at, the last proves that the file is whole.
        for record in
            std::iter::once(mark(revision)).chain(objects.map(|one| Record { revision, ..one })).chain([mark(revision)])
        {
            let line = encode(&record)?;
            length += line.len() as u64;
            out.write_all(&line)?;
        }
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        std::fs::rename(&fresh, self.dir.join(SNAPSHOT))?;
        sync_dir(&self.dir)?;
        let empty = self.dir.join("log.new");
        let file = File::create(&empty)?;
        file.sync_all()?;
        std::fs::rename(&empty, self.dir.join(LOG))?;
        sync_dir(&self.dir)?;
        self.sync = Arc::new(Sync { file, written: AtomicU64::new(0), synced: Mutex::new(0) });
        self.length = 0;
        self.snapshot_length = length;
        Ok(())
    }
}

/// Reads the state, cuts a torn record off the log's end, and opens the log for appending.
pub(super) fn open(dir: &Path, mut replay: impl FnMut(Record)) -> Result<Log, OpenError> {
    std::fs::create_dir_all(dir).map_err(at(dir))?;
    let snapshot = dir.join(SNAPSHOT);
    let mut snapshot_length = 0;
    if snapshot.exists() {
        let read = read(&snapshot, &mut replay)?;
        // A snapshot was renamed into place only when whole.
        if read.whole < read.length {
            return Err(OpenError::Damaged { path: snapshot, offset: read.whole });
        }
        snapshot_length = read.length;
    }
    let path = dir.join(LOG);
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(at(&path))?;
    let read = read(&path, &mut replay)?;
    file.set_len(read.whole).map_err(at(&path))?;
    file.seek(SeekFrom::Start(read.whole)).map_err(at(&path))?;
    file.sync_all().map_err(at(&path))?;
    sync_dir(dir).map_err(at(dir))?;
    let sync = Arc::new(Sync { file, written: AtomicU64::new(read.whole), synced: Mutex::new(read.whole) });
    Ok(Log { dir: dir.into(), sync, length: read.whole, snapshot_length })
}

struct Read {
    /// The bytes of whole records.
    whole: u64,
    /// The bytes of the file.
    length: u64,
}

fn read(path: &Path, replay: &mut impl FnMut(Record)) -> Result<Read, OpenError> {
    let file = File::open(path).map_err(at(path))?;
    let length = file.metadata().map_err(at(path))?.len();
    let mut lines = BufReader::new(file);
    let mut whole = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        let count = lines.read_until(b'\n', &mut line).map_err(at(path))?;
        match decode(&line) {
            Some(record) => replay(record),
            // Nothing after it: the end was torn by a crash, and its record was never answered.
            None if lines.fill_buf().map_err(at(path))?.is_empty() => return Ok(Read { whole, length }),
            None => return Err(OpenError::Damaged { path: path.into(), offset: whole }),
        }
        whole += count as u64;
    }
}

fn encode(record: &Record) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(record)?;
    let mut line = checksum(&json).into_bytes();
    line.push(b' ');
    line.extend(json);
    line.push(b'\n');
    Ok(line)
}

fn decode(line: &[u8]) -> Option<Record> {
    let line = line.strip_suffix(b"\n")?;
    let (sum, json) = line.split_at_checked(16)?;
    let json = json.strip_prefix(b" ")?;
    if sum != checksum(json).as_bytes() {
        return None;
    }
    serde_json::from_slice(json).ok()
}

/// The first eight bytes of SHA-256: the question is whether the bytes are those that were written, not who wrote them.
fn checksum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> OpenError + '_ {
    move |source| OpenError::Io { path: path.into(), source }
}

#[cfg(test)]
mod tests {
    use super::super::Store;
    use super::super::fixture::{Counter, Fixture, config_map};
    use super::*;
    use crate::request::DeleteOptions;
    use serde_json::json;

    /// What a reader of the state can see.
    fn state(fixture: &Fixture) -> (u64, Vec<String>) {
        let mut all = fixture.names("configmaps");
        for name in &mut all {
            let object = fixture.get(&format!("configmaps/{name}")).expect("it was listed");
            name.push_str(&object["data"].to_string());
        }
        (fixture.store.revision(), all)
    }

    /// A session with creates, updates and deletes; after each answer, how long the log was and what had been answered.
    fn recorded(dir: &Path) -> Vec<(u64, (u64, Vec<String>))> {
        let mut fixture = Fixture::open(dir);
        let mut answers = Vec::new();
        let length = || std::fs::metadata(dir.join(LOG)).expect("the log").len();
        answers.push((length(), state(&fixture)));
        fixture.given("configmaps", config_map("a", json!({"k": "1"})));
        answers.push((length(), state(&fixture)));
        fixture.merge("configmaps/a", json!({"data": {"k": "2"}})).unwrap();
        answers.push((length(), state(&fixture)));
        fixture.delete("configmaps/a", &DeleteOptions::default()).unwrap();
        answers.push((length(), state(&fixture)));
        answers
    }

    #[test]
    fn a_log_cut_at_any_byte_keeps_every_answered_write() {
        let original = tempfile::tempdir().unwrap();
        let answers = recorded(original.path());
        let log = std::fs::read(original.path().join(LOG)).unwrap();
        for cut in answers[0].0 as usize..=log.len() {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join(LOG), &log[..cut]).unwrap();
            let mut reopened = Fixture::open(dir.path());
            let (_, answered) = answers.iter().rev().find(|(length, _)| *length as usize <= cut).unwrap();
            assert_eq!(state(&reopened), *answered, "cut at byte {cut}");
            // What is written after the cut must not run into what was left of the torn record.
            reopened.given("configmaps", config_map("b", json!({})));
            let after = state(&reopened);
            drop(reopened);
            assert_eq!(state(&Fixture::open(dir.path())), after, "written after a cut at byte {cut}");
        }
    }

    #[test]
    fn damage_before_the_end_is_not_taken_for_a_torn_end() {
        let dir = tempfile::tempdir().unwrap();
        recorded(dir.path());
        let path = dir.path().join(LOG);
        let mut log = std::fs::read(&path).unwrap();
        log[40] ^= 1;
        std::fs::write(&path, &log).unwrap();
        let error = Store::open(dir.path(), Box::new(Counter::default())).err().unwrap();
        assert!(matches!(error, OpenError::Damaged { offset: 0, .. }), "{error}");
    }

    #[test]
    fn a_snapshot_holds_what_the_log_held() {
        let dir = tempfile::tempdir().unwrap();
        recorded(dir.path());
        let mut fixture = Fixture::open(dir.path());
        let big = "x".repeat(100_000);
        for round in 0..60 {
            fixture
                .put("configmaps/big", json!({"metadata": {"name": "big"}, "data": {"k": format!("{round}{big}")}}))
                .or_else(|_| fixture.create("configmaps", config_map("big", json!({"k": "new"}))))
                .unwrap();
        }
        assert!(dir.path().join(SNAPSHOT).exists(), "sixty times a tenth of a megabyte is past the limit");
        assert!(std::fs::metadata(dir.path().join(LOG)).unwrap().len() < LOG_AT_LEAST);
        let before = state(&fixture);
        drop(fixture);
        assert_eq!(state(&Fixture::open(dir.path())), before);
    }

    #[test]
    fn a_crash_between_snapshot_and_new_log_replays_nothing_twice() {
        let dir = tempfile::tempdir().unwrap();
        let mut fixture = Fixture::open(dir.path());
        fixture.given("configmaps", config_map("a", json!({"k": "1"})));
        let old_log = std::fs::read(dir.path().join(LOG)).unwrap();
        fixture.merge("configmaps/a", json!({"data": {"k": "2"}})).unwrap();
        let before = state(&fixture);
        let objects: Vec<Record> = fixture
            .store
            .buckets
            .iter()
            .flat_map(|(bucket, all)| {
                all.iter().map(|(key, object)| Record {
                    revision: 0,
                    bucket: bucket.clone(),
                    namespace: key.0.clone(),
                    name: key.1.clone(),
                    object: Some(object.whole().clone()),
                })
            })
            .collect();
        let revision = fixture.store.revision();
        fixture.store.log.as_mut().unwrap().snapshot(revision, objects.into_iter()).unwrap();
        drop(fixture);
        std::fs::write(dir.path().join(LOG), old_log).unwrap();
        assert_eq!(state(&Fixture::open(dir.path())), before);
    }

    #[test]
    fn what_is_written_is_unsynced_until_somebody_syncs() {
        let dir = tempfile::tempdir().unwrap();
        let mut fixture = Fixture::open(dir.path());
        fixture.given("configmaps", config_map("a", json!({})));
        let first = fixture.store.unsynced().expect("a write that is not on disk");
        fixture.given("configmaps", config_map("b", json!({})));
        let second = fixture.store.unsynced().expect("another");
        second.sync().unwrap();
        assert!(fixture.store.unsynced().is_none(), "one sync covers all before it");
        first.sync().unwrap();
    }
}
