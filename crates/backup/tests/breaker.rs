//! A store that is down is left alone, whoever asks: counted on a server that speaks S3, behind a proxy that refuses everything.

mod support;

use std::time::Duration;

use bellwether_backup::store::{Limits, Trouble};
use bellwether_backup::wal::Uploader;
use bellwether_backup::{Location, Store, StoreError};
use bytes::Bytes;
use futures::future::join_all;
use support::log::{LEVEL, SIZE, archive, pg_wal, segment};
use support::proxy::{Fault, Proxy};
use support::s3::{BUCKET, KEY, Server};
use support::until;

/// Rests that a test can wait for.
const SHORT: Limits = Limits {
    failures: 3,
    first: Duration::from_millis(20),
    longest: Duration::from_millis(100),
    trial: Duration::from_secs(60),
};
/// Rests that no test sees the end of.
const LONG: Limits = Limits { first: Duration::from_secs(3600), longest: Duration::from_secs(3600), ..SHORT };
/// As if there were no breaker.
const NONE: Limits = Limits { failures: u32::MAX, ..SHORT };

async fn behind_a_proxy(limits: Limits) -> (Server, Proxy, Store) {
    let server = Server::start().await;
    let proxy = Proxy::before(server.address).await;
    let location = server.location_at(proxy.address, BUCKET).with_limits(limits);
    (server, proxy, Store::open(&location).unwrap())
}

/// So many requests of a store that is known to be down arrive there, when this many ask for something.
async fn arrived(limits: Limits, callers: usize) -> usize {
    let (_server, proxy, store) = behind_a_proxy(limits).await;
    proxy.fail("", "", Fault::Unavailable, usize::MAX);
    for _ in 0..limits.failures.min(3) {
        assert!(store.get("wal/1").await.unwrap_err().is_transient());
    }
    let before = proxy.seen("", "");
    let asked = (0..callers).map(|caller| {
        let store = store.below(&format!("archive-{caller}"));
        async move {
            match caller % 4 {
                0 => store.put_new("wal/1", Bytes::from_static(b"x")).await.map(drop),
                1 => store.size("wal/1").await.map(drop),
                2 => store.list("base").await.map(drop),
                _ => store.delete("wal/1").await,
            }
        }
    });
    assert!(join_all(asked).await.iter().all(|answer| answer.as_ref().is_err_and(StoreError::is_transient)));
    proxy.seen("", "") - before
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_hundred_that_ask_a_store_that_is_down_none_gets_there() {
    let (with, without) = (arrived(LONG, 100).await, arrived(NONE, 100).await);
    assert_eq!(with, 0);
    assert!(without >= 400, "or it shows nothing: {without}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_refused_is_told_at_once_since_when_and_why_in_the_same_words_each_time() {
    let (_server, proxy, store) = behind_a_proxy(LONG).await;
    proxy.fail("", "", Fault::Unavailable, usize::MAX);
    for number in 0..3 {
        assert_eq!(store.rest(), None);
        assert!(matches!(store.get(&format!("wal/{number}")).await, Err(StoreError::Failed { .. })));
    }
    let refused = |error: StoreError| match error {
        StoreError::Resting { ref rest, .. } => (error.to_string(), rest.clone()),
        other => panic!("{other}"),
    };
    let (said, rest) = refused(store.get("wal/4").await.unwrap_err());
    assert_eq!(rest.trouble, Trouble::Down);
    for part in
        ["prod: left alone since 20", "because it is down, and tried again within 3600 s", "SlowDown: Please reduce"]
    {
        assert!(said.contains(part), "{part:?} is not in {said:?}");
    }
    let (put, _) = refused(store.put_new("wal/5", Bytes::new()).await.unwrap_err());
    assert_eq!(put, said);
    assert!(store.awake().is_err_and(|error| error.to_string() == said));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_at_a_time_shows_whether_it_is_back_and_then_everybody_is_served() {
    let (_server, proxy, store) = behind_a_proxy(SHORT).await;
    store.put_new("wal/1", Bytes::from_static(b"there")).await.unwrap();
    proxy.fail("", "", Fault::Unavailable, usize::MAX);
    while store.rest().is_none() {
        assert!(store.get("wal/1").await.is_err());
    }
    for _ in 0..5 {
        let before = proxy.seen("", "");
        store.rested().await;
        let asked = join_all((0..10).map(|_| store.get("wal/1"))).await;
        let tried = asked.iter().filter(|answer| matches!(answer, Err(StoreError::Failed { .. }))).count();
        assert!(asked.iter().all(Result::is_err));
        assert_eq!(proxy.seen("", "") - before, tried, "each was sent once");
        assert!(tried >= 1, "somebody may look");
    }
    let since = store.rest().map(|rest| rest.since);
    proxy.heal();
    until("it is found out that it is back", || async {
        store.rested().await;
        store.get("wal/1").await.is_ok()
    })
    .await;
    assert_eq!(store.rest(), None, "it was said to be down since {since:?}");
    assert!(join_all((0..10).map(|_| store.get("wal/1"))).await.iter().all(Result::is_ok));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_says_no_with_reason_is_not_left_alone() {
    let (_server, _proxy, store) = behind_a_proxy(LONG).await;
    store.put_new("wal/1", Bytes::from_static(b"theirs")).await.unwrap();
    for _ in 0..10 {
        assert!(matches!(store.get("wal/2").await, Err(StoreError::Missing { .. })));
        assert_eq!(store.size("wal/2").await.unwrap(), None);
        let put = store.put_new("wal/1", Bytes::from_static(b"ours")).await;
        assert!(matches!(put, Err(StoreError::Conflict { .. })));
    }
    assert_eq!(store.rest(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_nobody_knows_are_not_tried_again_and_again_and_that_is_what_is_said() {
    let server = Server::start().await;
    let proxy = Proxy::before(server.address).await;
    let settings = [
        ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "another secret".to_owned()),
        ("AWS_ENDPOINT", format!("http://{}", proxy.address)),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value)).into();
    let location = Location::new(&format!("s3://{BUCKET}"), settings, None).unwrap().with_limits(LONG);
    let store = Store::open(&location).unwrap();
    for _ in 0..3 {
        assert!(matches!(store.get("wal/1").await, Err(StoreError::Refused { .. })));
    }
    let seen = proxy.seen("", "");
    let error = store.get("wal/1").await.unwrap_err();
    assert!(error.to_string().contains("because its credentials let nobody in"), "{error}");
    assert!(!error.to_string().contains("another secret"), "{error}");
    assert_eq!(store.rest().unwrap().trouble, Trouble::Credentials);
    assert_eq!(proxy.seen("", ""), seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_took_long_waits_for_a_store_that_is_left_alone_for_a_moment() {
    let (_server, proxy, store) = behind_a_proxy(SHORT).await;
    store.put_new("base/1", Bytes::from_static(b"there")).await.unwrap();
    proxy.fail("", "", Fault::Unavailable, usize::MAX);
    while store.rest().is_none() {
        assert!(store.get("base/1").await.is_err());
    }
    proxy.heal();
    assert!(store.patient().get("base/1").await.is_ok());

    let (_server, proxy, store) = behind_a_proxy(LONG).await;
    proxy.fail("", "", Fault::Unavailable, usize::MAX);
    while store.rest().is_none() {
        assert!(store.get("base/1").await.is_err());
    }
    let error = store.patient().get("base/1").await.unwrap_err();
    assert!(matches!(error, StoreError::Resting { .. }), "but not without end: {error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_gives_up_while_he_tries_leaves_that_to_the_next() {
    let (_server, proxy, store) = behind_a_proxy(SHORT).await;
    store.put_new("wal/1", Bytes::from_static(b"there")).await.unwrap();
    proxy.fail("", "", Fault::Unavailable, usize::MAX);
    while store.rest().is_none() {
        assert!(store.get("wal/1").await.is_err());
    }
    proxy.heal();
    proxy.fail("GET", "wal/1", Fault::Slow(Duration::from_secs(600)), 1);
    store.rested().await;
    let before = proxy.seen("GET", "wal/1");
    let gone = tokio::spawn({
        let store = store.clone();
        async move { store.get("wal/1").await }
    });
    until("it is on its way", || async { proxy.seen("GET", "wal/1") > before }).await;
    gone.abort();
    until("the next is served", || async {
        store.rested().await;
        store.get("wal/1").await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_goes_on_into_a_store_that_is_back_and_no_segment_was_called_archived_before() {
    let (_server, proxy, store) = behind_a_proxy(SHORT).await;
    let (archive, wal) = (archive(&store).await, pg_wal(1..6));
    let uploader = Uploader::new(archive.clone(), wal.path(), SIZE, LEVEL, 3);
    proxy.fail("", "", Fault::Unavailable, usize::MAX);
    while store.rest().is_none() {
        assert!(uploader.archive_file(segment(1)).await.is_err());
    }
    for _ in 0..5 {
        assert!(uploader.archive_file(segment(1)).await.unwrap_err().is_transient());
    }
    proxy.heal();
    for number in 1..6 {
        until("it is archived", || async {
            store.rested().await;
            uploader.archive_file(segment(number)).await.is_ok()
        })
        .await;
        assert!(archive.store().size(&segment(number).key()).await.unwrap().is_some(), "{number}");
    }
}
