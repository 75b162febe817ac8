//! Writes down in the store that a backup was found good: beside its commit, once.
//!
//! A backup may be verified again, by somebody else at the same time even. The first record stands: it says the same of the same backup, and nothing in
//! the store is ever replaced. Never: a record that is another's, or can't be understood, taken for this one's.

use bytes::Bytes;

use crate::record::{VERIFIED, Verified};
use crate::store::{Store, StoreError};

/// Writes it into the archive at this root. One that is there already stays.
pub async fn record(archive: &Store, verified: &Verified) -> Result<(), StoreError> {
    let key = verified.id.key(VERIFIED);
    // It has nothing in it that JSON can't say; should that change, there is no record rather than half of one.
    let text = serde_json::to_vec_pretty(verified).map_err(|_| archive.conflict(&key))?;
    let same = || async {
        let there = archive.get(&key).await?;
        Ok(serde_json::from_slice::<Verified>(&there).is_ok_and(|there| there.id == verified.id))
    };
    archive.put_unless(&key, Bytes::from(text), same).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::store::Location;
    use crate::testing;

    fn archive() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&Location::directory(dir.path())).unwrap();
        (dir, store)
    }

    #[tokio::test]
    async fn what_was_recorded_is_in_the_catalog_and_the_first_record_stands() {
        let (_dir, archive) = archive();
        let commit = testing::commit("20261118T020000Z", 1, 0, 1);
        let text = crate::base::seal::seal(&commit).unwrap();
        archive.put_new(&commit.id.key(crate::layout::COMMIT), text.into()).await.unwrap();
        let first = testing::verified(&commit);
        record(&archive, &first).await.unwrap();
        record(&archive, &Verified { queries: 7, ..first.clone() }).await.unwrap();
        let catalog = Catalog::read(&archive).await.unwrap();
        assert_eq!(catalog.newest_verified().unwrap().verified, Some(first));
    }

    #[tokio::test]
    async fn a_record_that_is_not_this_backups_is_a_conflict() {
        let (_dir, archive) = archive();
        let verified = testing::verified(&testing::commit("20261118T020000Z", 1, 0, 1));
        let other = testing::verified(&testing::commit("20261118T030000Z", 1, 0, 1));
        for strange in [serde_json::to_vec(&other).unwrap(), b"{".to_vec()] {
            archive.put_new(&verified.id.key(VERIFIED), strange.into()).await.unwrap();
            let refused = record(&archive, &verified).await;
            assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
            archive.delete(&verified.id.key(VERIFIED)).await.unwrap();
        }
    }
}
