//! Writes down what a backup consists of, and believes only what was written down whole.
//!
//! Everything of a backup is checked against its commit, so the commit needs something that it can be checked against itself: its first field is
//! the SHA-256 of its text, with zeros where the digest stands. `sed 's/<the digest>/<64 zeros>/' commit.json | sha256sum` shows a person the same.
//!
//! Never: a commit believed of which a single byte is another, or whose format is newer than what we know.

use ring::digest::{SHA256, digest};
use serde::Deserialize;

use super::objects::hex;
use crate::layout::{BackupId, COMMIT};
use crate::record::{Commit, FORMAT};
use crate::store::{Store, StoreError};

/// The field, as it stands in the text; the digest follows.
const SEAL: &str = "{\n  \"seal\": \"";
const DIGITS: usize = 64;

/// Why a commit is not believed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// It can't be had.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It is not what was written.
    #[error("{key}: {problem}; nothing of this backup can be believed")]
    Damaged {
        /// Its key.
        key: String,
        /// What is wrong.
        problem: String,
    },
    /// Whoever wrote it knew more than we do.
    #[error("{key}: it has format {format}, and this version reads up to {FORMAT}; use a newer one")]
    TooNew {
        /// Its key.
        key: String,
        /// Its format.
        format: u32,
    },
}

/// The text of a commit.
pub fn seal(commit: &Commit) -> Result<String, serde_json::Error> {
    let text = serde_json::to_string_pretty(commit)?;
    let fields = text.strip_prefix("{\n").unwrap_or(&text);
    let sealed = |digest: &str| format!("{SEAL}{digest}\",\n{fields}\n");
    Ok(sealed(&hex(digest(&SHA256, sealed(&"0".repeat(DIGITS)).as_bytes()).as_ref())))
}

/// Understands the text of the commit of this backup.
pub fn unseal(id: &BackupId, text: &[u8]) -> Result<Commit, CommitError> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let key = id.key(COMMIT);
    let damaged = |problem: String| CommitError::Damaged { key: key.clone(), problem };
    let rest = text.strip_prefix(SEAL.as_bytes()).and_then(|rest| rest.split_at_checked(DIGITS));
    let (said, rest) = rest.ok_or_else(|| damaged("it does not begin with its seal".to_owned()))?;
    let unsealed = [SEAL.as_bytes(), "0".repeat(DIGITS).as_bytes(), rest].concat();
    if hex(digest(&SHA256, &unsealed).as_ref()).as_bytes() != said {
        return Err(damaged("it is not as it was written: its seal is broken".to_owned()));
    }
    let Format { format } = serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
    if format > FORMAT {
        return Err(CommitError::TooNew { key, format });
    }
    let commit: Commit = serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
    if commit.id != *id {
        return Err(damaged(format!("it is the commit of {}", commit.id)));
    }
    Ok(commit)
}

/// Reads the commit of a backup.
pub async fn read(store: &Store, id: &BackupId) -> Result<Commit, CommitError> {
    unseal(id, &store.get(&id.key(COMMIT)).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Object;
    use bellwether_core::wal::{Lsn, SystemIdentifier, Timeline};
    use jiff::Timestamp;

    fn commit() -> Commit {
        let object = |key: &str| Object { key: key.to_owned(), size: 7, sha256: "00".repeat(32), bytes: 9 };
        Commit {
            format: FORMAT,
            id: "20261118T020000Z".parse().unwrap(),
            system_identifier: SystemIdentifier(7_573_012_345_678_901_234),
            postgres_version: "17.6".to_owned(),
            agent_version: "0.1.0".to_owned(),
            instance: "orders-1".to_owned(),
            started: Timestamp::UNIX_EPOCH,
            finished: Timestamp::UNIX_EPOCH,
            timeline: Timeline(1),
            start: Lsn(0x0200_0028),
            stop: Lsn(0x0200_0138),
            segment_size: 16 << 20,
            tablespaces: vec![],
            packs: vec![object("pack")],
            manifest: object("manifest"),
            bytes: 9,
        }
    }

    #[test]
    fn a_sealed_commit_reads_as_it_was_and_is_plain_json() {
        let text = seal(&commit()).unwrap();
        assert_eq!(unseal(&commit().id, text.as_bytes()).unwrap(), commit());
        assert_eq!(
            serde_json::from_str::<Commit>(&text).unwrap(),
            commit(),
            "whoever doesn't know the seal reads it too"
        );
    }

    #[test]
    fn no_byte_of_a_commit_can_be_another() {
        let text = seal(&commit()).unwrap().into_bytes();
        for at in 0..text.len() {
            let mut other = text.clone();
            other[at] ^= 1;
            let error = unseal(&commit().id, &other).unwrap_err().to_string();
            assert!(error.starts_with("base/20261118T020000Z/commit.json: "), "{at}: {error}");
        }
        assert!(unseal(&commit().id, &text[..text.len() - 1]).is_err(), "cut off");
        assert!(unseal(&commit().id, b"").is_err());
    }

    #[test]
    fn a_commit_is_that_of_the_backup_under_whose_name_it_lies() {
        let text = seal(&commit()).unwrap();
        assert!(unseal(&"20261118T020001Z".parse().unwrap(), text.as_bytes()).is_err());
    }

    #[test]
    fn a_format_that_is_newer_than_we_is_refused() {
        let text = seal(&Commit { format: FORMAT + 1, ..commit() }).unwrap();
        assert!(matches!(unseal(&commit().id, text.as_bytes()), Err(CommitError::TooNew { .. })));
    }
}
