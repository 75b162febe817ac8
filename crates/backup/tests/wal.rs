//! The archive of the log, on a directory and on a server that speaks S3: what goes in comes out, and nothing else does.

mod promises;
mod support;

use std::path::Path;

use bellwether_backup::record::Owner;
use bellwether_backup::store::Put;
use bellwether_backup::wal::{
    Archive, ArchiveError, Damage, Foreign, Prefetcher, Uploader, WalError, fetch, push, read_back,
};
use bellwether_backup::{Store, WalFile};
use futures::future::join_all;
use support::log::{self, LEVEL, SIZE, SYSTEM, archive, contents, names, owner, pg_wal, place, pushed, segment};
use support::proxy::{Fault, Proxy};
use support::{behind_a_proxy, stores, until};

async fn proxied() -> Vec<(Box<dyn Send>, (Proxy, Store))> {
    let (server, proxy, store) = behind_a_proxy().await;
    vec![(Box::new(server), (proxy, store))]
}

promises::of_an_archive!(stores, proxied);

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_can_not_be_understood_lets_nobody_in() {
    for body in ["damaged", r#"{"format": 2}"#, &serde_json::to_string(&Owner { format: 2, ..owner(SYSTEM) }).unwrap()]
    {
        let (_dir, location) = support::directory();
        let store = Store::open(&location).unwrap();
        let key = format!("{SYSTEM}-3f1c7a9e-one/owner.json");
        store.put_new(&key, bytes::Bytes::from(body.to_owned())).await.unwrap();
        let opened = Archive::open_or_create(&store, owner(SYSTEM)).await;
        assert!(matches!(opened, Err(ArchiveError::Unreadable { .. })), "{opened:?}");
    }
}

/// Field note 32: a segment of another cluster, or one that PostgreSQL made of an older one, must not get in under this name.
#[tokio::test(flavor = "multi_thread")]
async fn note_32_postgresql_s_own_segment_is_taken_and_no_other_in_its_place() {
    let (_dir, path, file, system) = log::initdb();
    let (_store_dir, location) = support::directory();
    let store = Store::open(&location).unwrap();
    let ours = Archive::open_or_create(&store, Owner { system_identifier: system, ..owner(SYSTEM) }).await.unwrap();
    assert_eq!(push(&ours, file, &path, SIZE, LEVEL).await.unwrap().put, Put::Created);

    let theirs = archive(&store).await;
    let foreign = |result: Result<_, WalError>| match result {
        Err(WalError::Foreign { problem, .. }) => problem,
        other => panic!("{other:?}"),
    };
    let problem = foreign(push(&theirs, file, &path, SIZE, LEVEL).await);
    assert!(matches!(problem, Foreign::System { .. }), "{problem}");
    let problem = foreign(push(&ours, segment(99), &path, SIZE, LEVEL).await);
    assert!(matches!(problem, Foreign::Position { .. }), "{problem}");
    let problem = foreign(push(&ours, file, &path, 16 * SIZE, LEVEL).await);
    assert!(matches!(problem, Foreign::Size { .. }), "{problem}");
    let later = file.to_string().replacen("00000001", "00000002", 1).parse().unwrap();
    assert!(push(&ours, later, &path, SIZE, LEVEL).await.is_ok(), "a timeline begins with what the one before wrote");
    let short = path.with_file_name("short");
    std::fs::write(&short, &std::fs::read(&path).unwrap()[..SIZE as usize - 1]).unwrap();
    let problem = foreign(push(&ours, segment(3), &short, SIZE, LEVEL).await);
    assert!(matches!(problem, Foreign::Size { .. }), "{problem}");
    std::fs::write(&short, "1\tnowhere\n").unwrap();
    let problem = foreign(push(&ours, "00000002.history".parse().unwrap(), &short, SIZE, LEVEL).await);
    assert!(matches!(problem, Foreign::History(_)), "{problem}");
    assert_eq!(theirs.store().list("wal").await.unwrap(), []);
    assert_eq!(ours.store().list("wal").await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_not_there_is_an_error_here_and_not_in_the_store() {
    let (_dir, location) = support::directory();
    let archive = archive(&Store::open(&location).unwrap()).await;
    let error = push(&archive, segment(1), Path::new("/nowhere/x"), SIZE, LEVEL).await.unwrap_err();
    assert!(matches!(error, WalError::Io { .. }) && error.to_string().contains("/nowhere/x"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_damaged_object_nothing_is_given_out() {
    let (_server, proxy, store) = behind_a_proxy().await;
    let (archive, wal, place) = (archive(&store).await, pg_wal(1..2), place());
    pushed(&archive, wal.path(), segment(1)).await.unwrap();
    let destination = place.path().join("RECOVERYXLOG");
    std::fs::write(&destination, "what was there").unwrap();
    let key = segment(1).key();
    for before in [1, 4, 1000, 500_000] {
        proxy.fail("GET", &key, Fault::Flip(before), 2);
        let error = fetch(archive.store(), segment(1), &destination).await.unwrap_err();
        assert!(matches!(error, WalError::Damaged { .. }) && !error.is_transient(), "{before}: {error}");
        assert!(error.to_string().contains("000000010000000000000001 is damaged"), "{error}");
        let error = read_back(archive.store(), segment(1)).await.unwrap_err();
        assert!(matches!(error, WalError::Damaged { .. }), "{before}: {error}");
    }
    proxy.fail("GET", &key, Fault::Truncate(1000), usize::MAX);
    let error = fetch(archive.store(), segment(1), &destination).await.unwrap_err();
    assert!(error.is_transient(), "the network, and not the archive: {error}");
    assert_eq!(names(place.path()), ["RECOVERYXLOG"]);
    assert_eq!(std::fs::read(&destination).unwrap(), b"what was there");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_segment_in_the_place_of_another_is_damage() {
    let (dir, location) = support::directory();
    let (archive, wal) = (archive(&Store::open(&location).unwrap()).await, pg_wal(1..2));
    pushed(&archive, wal.path(), segment(1)).await.unwrap();
    let root = dir.path().join("backups").join(format!("{SYSTEM}-3f1c7a9e-one"));
    std::fs::copy(root.join(segment(1).key()), root.join(segment(2).key())).unwrap();
    let error = read_back(archive.store(), segment(2)).await.unwrap_err();
    let expected = Damage::Other(segment(1).to_string());
    assert!(matches!(&error, WalError::Damaged { problem, .. } if *problem == expected), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fetches_into_one_place_do_not_mix_and_one_that_is_given_up_leaves_nothing() {
    let (_server, proxy, store) = behind_a_proxy().await;
    let (archive, wal, place) = (archive(&store).await, pg_wal(1..9), place());
    for number in 1..9 {
        pushed(&archive, wal.path(), segment(number)).await.unwrap();
    }
    let destination = place.path().join("RECOVERYXLOG");
    let fetches = (1..9).map(|number| fetch(archive.store(), segment(number), &destination));
    for fetched in join_all(fetches).await {
        assert!(fetched.unwrap());
    }
    let restored = std::fs::read(&destination).unwrap();
    assert!((1..9).any(|number| restored == contents(number, 0)), "the file is one of them");
    std::fs::remove_file(&destination).unwrap();

    proxy.fail("GET", &segment(1).key(), Fault::Slow(std::time::Duration::from_secs(600)), 1);
    let given_up = fetch(archive.store(), segment(1), &destination);
    assert!(tokio::time::timeout(std::time::Duration::from_millis(300), given_up).await.is_err());
    until("everything is removed", || async { names(place.path()).is_empty() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_for_next_is_archived_meanwhile_and_answered_at_once() {
    let (_server, proxy, store) = behind_a_proxy().await;
    let (archive, wal) = (archive(&store).await, pg_wal(1..8));
    let uploader = Uploader::new(archive.clone(), wal.path(), SIZE, LEVEL, 4);
    assert_eq!(uploader.archive_file(segment(1)).await.unwrap().put, Put::Created);
    let there = |number| {
        let store = archive.store().clone();
        async move { store.size(&segment(number).key()).await.unwrap().is_some() }
    };
    for number in 2..6 {
        until("it is archived before it is asked for", || there(number)).await;
    }
    assert!(!there(6).await, "and no more than four");
    for number in 2..8 {
        // As PostgreSQL does once a file is archived.
        let ready = wal.path().join(format!("archive_status/{}.ready", segment(number - 1)));
        std::fs::rename(&ready, ready.with_extension("done")).unwrap();
        assert_eq!(uploader.archive_file(segment(number)).await.unwrap().put, Put::Created);
    }
    assert_eq!(proxy.seen("PUT", "wal/"), 7, "each was sent once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_became_another_is_not_answered_for_by_the_first() {
    let (_dir, location) = support::directory();
    let (archive, wal) = (archive(&Store::open(&location).unwrap()).await, pg_wal(1..3));
    let uploader = Uploader::new(archive.clone(), wal.path(), SIZE, LEVEL, 4);
    uploader.archive_file(segment(1)).await.unwrap();
    let store = archive.store();
    until("the next is archived", || async { store.size(&segment(2).key()).await.unwrap().is_some() }).await;
    let path = wal.path().join(segment(2).to_string());
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, contents(2, 1)).unwrap();
    let error = uploader.archive_file(segment(2)).await.unwrap_err();
    assert!(error.is_conflict(), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_told_for_the_file_that_it_is_of() {
    let (_server, proxy, store) = behind_a_proxy().await;
    let (archive, wal) = (archive(&store).await, pg_wal(1..4));
    std::fs::write(wal.path().join(segment(2).to_string()), contents(9, 0)).unwrap();
    proxy.fail("PUT", &segment(3).key(), Fault::Unavailable, usize::MAX);
    let uploader = Uploader::new(archive.clone(), wal.path(), SIZE, LEVEL, 4);
    assert_eq!(uploader.archive_file(segment(1)).await.unwrap().put, Put::Created);
    let error = uploader.archive_file(segment(2)).await.unwrap_err();
    assert!(matches!(error, WalError::Foreign { problem: Foreign::Position { .. }, .. }), "{error}");
    assert!(uploader.archive_file(segment(3)).await.unwrap_err().is_transient());
    assert!(uploader.archive_file(segment(3)).await.is_err(), "also when it is asked again");
    std::fs::write(wal.path().join(segment(2).to_string()), contents(2, 0)).unwrap();
    // One that refuses so much is left alone for a moment.
    archive.store().rested().await;
    assert_eq!(uploader.archive_file(segment(2)).await.unwrap().put, Put::Created);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_for_next_is_fetched_meanwhile() {
    let (_server, proxy, store) = behind_a_proxy().await;
    let (archive, wal, place) = (archive(&store).await, pg_wal(1..8), place());
    for number in 1..8 {
        pushed(&archive, wal.path(), segment(number)).await.unwrap();
    }
    let (directory, destination) = (place.path().join("ahead"), place.path().join("RECOVERYXLOG"));
    std::fs::create_dir(&directory).unwrap();
    for left in ["000000010000000000000001", ".000000010000000000000001.fetching", "not-ours"] {
        std::fs::write(directory.join(left), "of a program that ended").unwrap();
    }
    let prefetcher = Prefetcher::new(archive.store().clone(), &directory, SIZE, 3).await.unwrap();
    assert_eq!(names(&directory), ["not-ours"]);
    for number in 1..8 {
        assert!(prefetcher.fetch(segment(number), &destination).await.unwrap());
        assert!(std::fs::read(&destination).unwrap() == contents(number, 0), "{number}");
        let following: Vec<_> = (number + 1..8).take(3).map(|next| segment(next).to_string()).collect();
        until("the next three are there", || async { following.iter().all(|name| directory.join(name).exists()) })
            .await;
        assert_eq!(names(&directory).len(), following.len() + 1, "and no more");
    }
    assert_eq!((1..8).map(|number| proxy.seen("GET", &segment(number).key())).max(), Some(1));
    assert!(!prefetcher.fetch(segment(8), &destination).await.unwrap(), "the log ends here");
    // It may go on: what was not there is asked for again.
    std::fs::write(wal.path().join(segment(8).to_string()), contents(8, 0)).unwrap();
    pushed(&archive, wal.path(), segment(8)).await.unwrap();
    assert!(prefetcher.fetch(segment(8), &destination).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_that_was_met_ahead_is_told_when_it_is_asked_for() {
    let (server, proxy, store) = behind_a_proxy().await;
    let (archive, wal, place) = (archive(&store).await, pg_wal(1..4), place());
    for number in 1..4 {
        pushed(&archive, wal.path(), segment(number)).await.unwrap();
    }
    let root = format!("{SYSTEM}-3f1c7a9e-one");
    let object = server.file(&format!("{root}/{}", segment(2).key()));
    let mut bytes = std::fs::read(&object).unwrap();
    bytes[400] ^= 1;
    std::fs::write(&object, bytes).unwrap();
    proxy.fail("GET", &segment(3).key(), Fault::Unavailable, usize::MAX);
    let destination = place.path().join("RECOVERYXLOG");
    let prefetcher = Prefetcher::new(archive.store().clone(), &place.path().join("ahead"), SIZE, 3).await.unwrap();
    assert!(prefetcher.fetch(segment(1), &destination).await.unwrap());
    let error = prefetcher.fetch(segment(2), &destination).await.unwrap_err();
    assert!(matches!(error, WalError::Damaged { .. }), "{error}");
    let error = prefetcher.fetch(segment(3), &destination).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(std::fs::read(&destination).unwrap() == contents(1, 0), "the first stays until there is another");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_fetched_for_another_timeline_is_removed() {
    let (_dir, location) = support::directory();
    let (archive, wal, place) = (archive(&Store::open(&location).unwrap()).await, pg_wal(1..6), place());
    for number in 1..6 {
        pushed(&archive, wal.path(), segment(number)).await.unwrap();
    }
    let second: WalFile = "000000020000000000000002".parse().unwrap();
    push(&archive, second, &wal.path().join(segment(2).to_string()), SIZE, LEVEL).await.unwrap();
    let (directory, destination) = (place.path().join("ahead"), place.path().join("RECOVERYXLOG"));
    let prefetcher = Prefetcher::new(archive.store().clone(), &directory, SIZE, 3).await.unwrap();
    assert!(prefetcher.fetch(segment(1), &destination).await.unwrap());
    let three: Vec<_> = (2..5).map(|number| segment(number).to_string()).collect();
    until("three are there", || async { names(&directory) == three }).await;
    assert!(prefetcher.fetch(second, &destination).await.unwrap());
    assert_eq!(names(&directory), [""; 0]);
}
