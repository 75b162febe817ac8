//! What is promised of the archive of a log, in a store that has nothing in it.

use bellwether_backup::record::Owner;
use bellwether_backup::store::Put;
use bellwether_backup::wal::{Archive, ArchiveError, fetch, push, read_back};
use bellwether_backup::{Store, WalFile};
use futures::future::join_all;

use crate::support::log::{LEVEL, SIZE, SYSTEM, archive, contents, names, owner, pg_wal, place, pushed, segment};
use crate::support::proxy::{Fault, Proxy};

pub async fn what_goes_in_comes_out(store: Store) {
    let (wal, place) = (pg_wal(1..2), place());
    let texts = [
        ("00000002.history", "1\t0/3000148\tno recovery target specified\n"),
        ("000000010000000000000001.00000028.backup", "START WAL LOCATION: 0/100028\n"),
    ];
    for (name, text) in texts {
        std::fs::write(wal.path().join(name), text).unwrap();
    }
    std::fs::write(wal.path().join("000000010000000000000002.partial"), contents(2, 0)).unwrap();
    let archive = archive(&store).await;
    for name in names(wal.path()).iter().filter(|name| *name != "archive_status") {
        let (file, destination): (WalFile, _) = (name.parse().unwrap(), place.path().join("RECOVERYXLOG"));
        assert!(!fetch(archive.store(), file, &destination).await.unwrap(), "{name} is not there yet");
        let done = push(&archive, file, &wal.path().join(name), SIZE, LEVEL).await.unwrap();
        let original = std::fs::read(wal.path().join(name)).unwrap();
        assert_eq!((done.put, done.size), (Put::Created, original.len() as u64), "{store}: {name}");
        assert_eq!(archive.store().size(&file.key()).await.unwrap(), Some(done.stored));
        assert!(fetch(archive.store(), file, &destination).await.unwrap());
        assert!(std::fs::read(&destination).unwrap() == original, "{store}: {name}");
        let held = read_back(archive.store(), file).await.unwrap().unwrap();
        assert_eq!((held.size, held.sha256.len()), (done.size, 64));
        assert_eq!(names(place.path()), ["RECOVERYXLOG"], "and nothing is left lying about");
        std::fs::remove_file(&destination).unwrap();
    }
    assert_eq!(read_back(archive.store(), segment(9)).await.unwrap(), None);
    assert!(!fetch(archive.store(), segment(9), &place.path().join("x")).await.unwrap());
    assert_eq!(names(place.path()), [""; 0]);
}

pub async fn the_same_segment_is_there_whatever_compressed_it_and_another_is_a_conflict(store: Store) {
    let wal = pg_wal(1..2);
    let archive = archive(&store).await;
    let (file, path) = (segment(1), wal.path().join(segment(1).to_string()));
    std::fs::write(&path, contents(1, 0)).unwrap();
    assert_eq!(push(&archive, file, &path, SIZE, 1).await.unwrap().put, Put::Created);
    assert_eq!(push(&archive, file, &path, SIZE, 9).await.unwrap().put, Put::WasThere, "{store}");
    std::fs::write(&path, contents(1, 1)).unwrap();
    let error = push(&archive, file, &path, SIZE, 1).await.unwrap_err();
    assert!(error.is_conflict() && !error.is_transient(), "{store}: {error}");
    let destination = wal.path().join("x");
    assert!(fetch(archive.store(), file, &destination).await.unwrap());
    assert!(std::fs::read(&destination).unwrap() == contents(1, 0), "{store}: it was not touched");
}

pub async fn note_32_an_archive_belongs_to_one_life_of_one_database(store: Store) {
    assert_eq!(archive(&store).await.owner(), &owner(SYSTEM));
    let again = archive(&store).await;
    let other = Owner { cluster: "other".to_owned(), ..owner(SYSTEM) };
    match Archive::open_or_create(&store, other.clone()).await {
        Err(error @ ArchiveError::Foreign { .. }) => {
            let said = error.to_string();
            assert!(said.contains("shop/main") && said.contains("shop/other"), "{said}");
        }
        opened => panic!("{opened:?}"),
    }
    let life = Owner { incarnation: "another".to_owned(), ..other.clone() };
    let another = Archive::open_or_create(&store, life.clone()).await.unwrap();
    assert_ne!(again.store().to_string(), another.store().to_string());
    assert_eq!(Archive::open(another.store().clone()).await.unwrap().owner(), &life);
    assert!(matches!(Archive::open(store.below("nothing")).await, Err(ArchiveError::NotThere { .. })));
    let nameless = Owner { incarnation: "../7".to_owned(), ..other };
    assert!(matches!(Archive::open_or_create(&store, nameless).await, Err(ArchiveError::Incarnation { .. })));
}

pub async fn of_two_clusters_that_want_one_archive_one_gets_it(store: Store) {
    let wants = (0..6).map(|cluster| {
        let owner = Owner { cluster: format!("cluster-{cluster}"), ..owner(SYSTEM) };
        Archive::open_or_create(&store, owner)
    });
    let opened = join_all(wants).await;
    let got: Vec<_> = opened.iter().filter_map(|opened| opened.as_ref().ok()).collect();
    assert_eq!(got.len(), 1, "{store}: {opened:?}");
    let refused = |opened: &&Result<Archive, _>| matches!(opened, Err(ArchiveError::Foreign { .. }));
    assert_eq!(opened.iter().filter(refused).count(), 5, "{store}: {opened:?}");
}

pub async fn two_instances_that_archive_one_segment_do_no_harm(store: Store) {
    let (archive, wal) = (archive(&store).await, pg_wal(1..2));
    let path = wal.path().join(segment(1).to_string());
    let pushes = [1, 3, 5, 7].map(|level| push(&archive, segment(1), &path, SIZE, level));
    let puts: Vec<_> = join_all(pushes).await.into_iter().map(|result| result.unwrap().put).collect();
    assert_eq!(puts.iter().filter(|put| **put == Put::Created).count(), 1, "{store}: {puts:?}");
}

pub async fn a_segment_whose_acknowledgement_was_lost_is_archived_and_no_conflict((proxy, store): (Proxy, Store)) {
    let (archive, wal) = (archive(&store).await, pg_wal(1..3));
    proxy.fail("PUT", &segment(1).key(), Fault::LoseAnswer, 1);
    assert_eq!(pushed(&archive, wal.path(), segment(1)).await.unwrap(), Put::WasThere);
    proxy.fail("PUT", &segment(2).key(), Fault::Unavailable, usize::MAX);
    let error = pushed(&archive, wal.path(), segment(2)).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert_eq!(read_back(archive.store(), segment(2)).await.unwrap(), None);
}
