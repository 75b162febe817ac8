//! A plan is carried out on a server that speaks S3, whatever fails on the way.

mod support;

use std::num::NonZeroUsize;

use bellwether_backup::catalog::{Catalog, Newest};
use bellwether_backup::layout::{BackupId, COMMIT, SegmentName, WalFile};
use bellwether_backup::record::{Commit, FORMAT, Object, VERIFIED, Verified};
use bellwether_backup::retention::{self, Policy};
use bellwether_backup::{Store, StoreError};
use bellwether_core::wal::{Lsn, SystemIdentifier, Timeline};
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use support::behind_a_proxy;
use support::proxy::Fault;

const SIZE: u64 = 1 << 20;

async fn put(store: &Store, key: &str, record: &impl Serialize) {
    store.put_new(key, Bytes::from(serde_json::to_vec(record).unwrap())).await.unwrap();
}

/// A verified backup of so many days ago, with its log.
async fn backup(store: &Store, days: i64, segment: u64) -> BackupId {
    let started = Timestamp::now() - SignedDuration::from_hours(24 * days);
    let id = BackupId::at(started);
    let object = |key: String| Object { key, size: 6, sha256: String::new(), bytes: 6 };
    let commit = Commit {
        format: FORMAT,
        id: id.clone(),
        system_identifier: SystemIdentifier(7),
        postgres_version: "17.6".to_owned(),
        agent_version: "0.1.0".to_owned(),
        instance: "main-1".to_owned(),
        started,
        finished: started,
        timeline: Timeline(1),
        start: Lsn(segment * SIZE + 40),
        stop: Lsn(segment * SIZE + 80),
        segment_size: SIZE,
        tablespaces: vec![],
        packs: vec![object(id.pack(0))],
        manifest: object(id.key("backup_manifest.zst")),
        bytes: 6,
    };
    let verified = Verified {
        format: FORMAT,
        id: id.clone(),
        verified: started,
        agent_version: "0.1.0".to_owned(),
        timeline: Timeline(1),
        reached: commit.stop,
        phases: vec![],
        not_looked_at: vec![],
        queries: 0,
    };
    for number in segment..segment + 3 {
        let file = WalFile::Segment(SegmentName::numbered(Timeline(1), number, SIZE));
        store.put_new(&file.key(), Bytes::from_static(b"segment")).await.unwrap();
    }
    put(store, &id.pack(0), &"pack").await;
    put(store, &id.key("backup_manifest.zst"), &"manifest").await;
    put(store, &id.key(VERIFIED), &verified).await;
    put(store, &id.key(COMMIT), &commit).await;
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_fails_on_the_way_leaves_nothing_that_looks_whole_and_is_not() {
    let (_server, proxy, store) = behind_a_proxy().await;
    let (old, new) = (backup(&store, 9, 10).await, backup(&store, 1, 20).await);
    let before = Catalog::read(&store).await.unwrap();
    let policy = Policy::Count(NonZeroUsize::MIN);
    let plan = retention::plan(&before, policy, Timestamp::now());
    assert_eq!((plan.backups.len(), plan.log.len()), (1, 3));

    // The commit can't be removed: it is a backup still, with all that it needs.
    proxy.fail("DELETE", &old.key(COMMIT), Fault::Unavailable, usize::MAX);
    let error = retention::apply(&store, &plan).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert_eq!(Catalog::read(&store).await.unwrap(), before);

    // A pack can't be removed: it is none any longer, and the log is still there.
    proxy.mend();
    proxy.fail("DELETE", &old.pack(0), Fault::LoseRequest, usize::MAX);
    assert!(matches!(retention::apply(&store, &plan).await, Err(StoreError::Failed { .. })));
    let half = Catalog::read(&store).await.unwrap();
    assert_eq!(half.backups.len(), 1);
    assert_eq!(half.incomplete[0].objects, [old.pack(0)]);
    assert_eq!(half.wal, before.wal);

    // The same plan again does the rest.
    proxy.mend();
    proxy.fail("DELETE", "wal/", Fault::LoseAnswer, 1);
    retention::apply(&store, &plan).await.unwrap_err();
    retention::apply(&store, &plan).await.unwrap();
    let after = Catalog::read(&store).await.unwrap();
    assert_eq!(after.backups.iter().map(|backup| &backup.commit.id).collect::<Vec<_>>(), [&new]);
    assert_eq!((after.incomplete.len(), after.wal.len(), after.unreadable.len()), (0, 3, 0));
    assert!(retention::plan(&after, policy, Timestamp::now()).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn note_34_the_newest_verified_backup_and_its_log_outlive_every_policy() {
    let (_dir, location) = support::directory();
    let store = Store::open(&location).unwrap();
    let verified = [backup(&store, 400, 10).await, backup(&store, 300, 20).await];
    let later = [backup(&store, 200, 30).await, backup(&store, 100, 40).await];
    for id in &later {
        store.delete(&id.key(VERIFIED)).await.unwrap();
    }
    for policy in ["1h", "1 backup", "1h and 1 backup"] {
        let catalog = Catalog::read(&store).await.unwrap();
        let plan = retention::plan(&catalog, policy.parse().unwrap(), Timestamp::now());
        retention::apply(&store, &plan).await.unwrap();
        let left = Catalog::read(&store).await.unwrap();
        let ids: Vec<_> = left.backups.iter().map(|backup| &backup.commit.id).collect();
        assert_eq!(ids, [&verified[1], &later[0], &later[1]], "{policy}");
        let first = left.segments().into_iter().next().unwrap();
        assert_eq!((first.number(SIZE), left.wal.len()), (20, 9), "{policy}: the log from its beginning on");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_newest_is_seen_without_reading_everything() {
    let (_server, proxy, store) = behind_a_proxy().await;
    assert_eq!(Newest::of(&store).await.unwrap(), Newest::default());
    let (old, new) = (backup(&store, 9, 10).await, backup(&store, 1, 20).await);
    let newest =
        |whole: &BackupId, verified: &BackupId| Newest { whole: Some(whole.clone()), verified: Some(verified.clone()) };
    assert_eq!(Newest::of(&store).await.unwrap(), newest(&new, &new));
    store.delete(&new.key(VERIFIED)).await.unwrap();
    assert_eq!(Newest::of(&store).await.unwrap(), newest(&new, &old));
    // One that is being taken is not there yet.
    store.put_new(&BackupId::at(Timestamp::now()).pack(0), Bytes::from_static(b"pack")).await.unwrap();
    assert_eq!(Newest::of(&store).await.unwrap(), newest(&new, &old));
    proxy.fail("HEAD", &new.key(COMMIT), Fault::Unavailable, usize::MAX);
    assert!(Newest::of(&store).await.is_err(), "an answer that failed is not one that nothing is there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_is_not_read_half() {
    let (_server, proxy, store) = behind_a_proxy().await;
    let id = backup(&store, 1, 20).await;
    proxy.fail("GET", &id.key(COMMIT), Fault::Unavailable, usize::MAX);
    assert!(
        Catalog::read(&store).await.unwrap_err().is_transient(),
        "a backup that can't be read is not one that is missing"
    );
}
