//! A catalog is read from a directory, with everything in it that can be there.

use bellwether_core::wal::SystemIdentifier;
use serde::Serialize;
use tempfile::TempDir;

use super::*;
use crate::store::Location;
use crate::testing;
use crate::wal::Archive;

fn store() -> (TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&Location::directory(dir.path())).unwrap();
    (dir, store)
}

async fn put(store: &Store, key: &str, record: &impl Serialize) {
    store.put_new(key, Bytes::from(serde_json::to_vec(record).unwrap())).await.unwrap();
}

fn owner(system: u64, incarnation: &str) -> Owner {
    Owner {
        format: FORMAT,
        system_identifier: SystemIdentifier(system),
        incarnation: incarnation.to_owned(),
        namespace: "shop".to_owned(),
        cluster: "main".to_owned(),
    }
}

#[tokio::test]
async fn an_empty_archive_is_empty() {
    let (_dir, store) = store();
    assert_eq!(Catalog::read(&store).await.unwrap(), Catalog::default());
    assert_eq!(archives(&store).await.unwrap(), Archives::default());
}

#[tokio::test]
async fn backups_what_is_left_of_them_and_the_log_are_found() {
    let (_dir, store) = store();
    let (old, new) = (testing::commit("20261117T020000Z", 1, 40, 80), testing::commit("20261118T020000Z", 1, 99, 120));
    for commit in [&new, &old] {
        put(&store, &commit.id.key(COMMIT), commit).await;
        put(&store, &commit.id.pack(0), &"pack").await;
    }
    put(&store, &old.id.key(VERIFIED), &testing::verified(&old)).await;
    let broken: BackupId = "20261116T020000Z".parse().unwrap();
    put(&store, &broken.pack(0), &"pack").await;
    put(&store, &broken.pack(1), &"pack").await;
    let segment: WalFile = "000000010000000000000002".parse().unwrap();
    store.put_new(&segment.key(), Bytes::from_static(b"segment")).await.unwrap();

    let catalog = Catalog::read(&store).await.unwrap();
    assert_eq!(catalog.backups.iter().map(|backup| &backup.commit).collect::<Vec<_>>(), [&old, &new]);
    assert_eq!(catalog.backups[0].objects.len(), 3);
    assert_eq!(catalog.newest_verified().map(|backup| &backup.commit.id), Some(&old.id));
    let [incomplete] = &catalog.incomplete[..] else { panic!("{:?}", catalog.incomplete) };
    assert_eq!((&incomplete.id, incomplete.objects.len(), incomplete.bytes), (&broken, 2, 12));
    assert!(Timestamp::now().duration_since(incomplete.newest).as_secs() < 60);
    assert_eq!(catalog.wal, [(segment, 7)].into());
    assert_eq!(catalog.segments().len(), 1);
    assert_eq!(catalog.unreadable, []);
}

#[tokio::test]
async fn what_can_not_be_understood_is_named_and_hides_nothing() {
    let (_dir, store) = store();
    let good = testing::commit("20261118T020000Z", 1, 40, 80);
    put(&store, &good.id.key(COMMIT), &good).await;
    put(&store, &good.id.key(VERIFIED), &"damaged").await;
    let newer = Commit { format: FORMAT + 1, ..testing::commit("20261119T020000Z", 1, 40, 80) };
    put(&store, &newer.id.key(COMMIT), &newer).await;
    put(&store, "base/20261120T020000Z/commit.json", &good).await;
    put(&store, "base/20261121T020000Z/commit.json", &"damaged").await;
    put(&store, "base/notes.txt", &"?").await;
    put(&store, "wal/00000002/00000002.history.zst", &"damaged").await;
    put(&store, "wal/00000001/notes.txt", &"?").await;

    let catalog = Catalog::read(&store).await.unwrap();
    let [backup] = &catalog.backups[..] else { panic!("{:?}", catalog.backups) };
    assert_eq!((&backup.commit, &backup.verified), (&good, &None));
    let named: Vec<_> = catalog.unreadable.iter().map(|unreadable| unreadable.key.as_str()).collect();
    assert_eq!(
        named,
        [
            "base/20261118T020000Z/verified.json",
            "base/20261119T020000Z/commit.json",
            "base/20261120T020000Z/commit.json",
            "base/20261121T020000Z/commit.json",
            "base/notes.txt",
            "wal/00000001/notes.txt",
            "wal/00000002/00000002.history.zst",
        ]
    );
    assert!(catalog.unreadable[1].problem.contains("newer"), "{:?}", catalog.unreadable[1]);
    assert!(catalog.unreadable[2].problem.contains("20261118T020000Z"), "{:?}", catalog.unreadable[2]);
    assert_eq!(catalog.unknown().count(), 3);
    assert_eq!(catalog.incomplete, [], "what may be a backup is not something that was broken off");
}

#[tokio::test]
async fn the_archives_of_a_store_are_told_apart_by_their_owners() {
    let (_dir, store) = store();
    for ours in [owner(7, "a"), owner(7, "b")] {
        Archive::open_or_create(&store, ours).await.unwrap();
    }
    put(&store, "8-moved/owner.json", &owner(9, "moved")).await;
    put(&store, "8-x/owner.json", &"damaged").await;
    put(&store, "8-y/wal/x", &"nobody's").await;
    put(&store, "probe/x", &"a probe").await;
    let found = archives(&store).await.unwrap();
    assert_eq!(found.archives.keys().collect::<Vec<_>>(), ["7-a", "7-b"]);
    let named: Vec<_> = found.unreadable.iter().map(|unreadable| unreadable.key.as_str()).collect();
    assert_eq!(named, ["8-moved/owner.json", "8-x/owner.json"]);
}
