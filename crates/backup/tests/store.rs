//! What a store promises, on a directory and on a server that speaks S3: objects are written once, whatever is lost on the way.

mod support;

use std::time::Duration;

use bellwether_backup::store::{Capabilities, Put};
use bellwether_backup::{Location, Store, StoreError};
use bytes::Bytes;
use futures::TryStreamExt as _;
use futures::future::join_all;
use rstest::rstest;
use support::proxy::Fault;
use support::s3::{self, BUCKET, Keeps, SECRET, Server};
use support::{behind_a_proxy, stores};

fn bytes(text: &str) -> Bytes {
    Bytes::from(text.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_put_is_there_and_is_listed_and_goes() {
    for (_alive, store) in stores().await {
        assert_eq!(store.find("a/b").await.unwrap(), None, "{store}");
        assert_eq!(store.size("a/b").await.unwrap(), None, "{store}");
        assert_eq!(store.put_new("a/b", bytes("0123456789")).await.unwrap(), Put::Created, "{store}");
        assert_eq!(store.find("a/b").await.unwrap(), Some(bytes("0123456789")));
        assert_eq!(store.range("a/b", 3..5).await.unwrap(), bytes("34"));
        assert_eq!(store.range("a/b", 8..4096).await.unwrap(), bytes("89"), "{store}: a range may reach too far");
        assert_eq!(store.size("a/b").await.unwrap(), Some(10));
        let streamed: Vec<Bytes> = store.stream("a/b").await.unwrap().try_collect().await.unwrap();
        assert_eq!(streamed.concat(), b"0123456789");
        store.below("a").put_new("c/d", bytes("")).await.unwrap();
        let keys = |entries: Vec<bellwether_backup::store::Entry>| -> Vec<_> {
            entries.into_iter().map(|entry| (entry.key, entry.size)).collect()
        };
        assert_eq!(keys(store.list("").await.unwrap()), [("a/b".to_owned(), 10), ("a/c/d".to_owned(), 0)], "{store}");
        assert_eq!(keys(store.below("a").list("c").await.unwrap()), [("c/d".to_owned(), 0)]);
        assert_eq!(store.directories("a").await.unwrap(), ["c"]);
        assert_eq!(store.list("nothing").await.unwrap(), []);
        store.delete("a/b").await.unwrap();
        store.delete("a/b").await.unwrap();
        assert_eq!(store.find("a/b").await.unwrap(), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn note_32_what_is_there_is_never_replaced() {
    for (_alive, store) in stores().await {
        store.put_new("wal/1", bytes("ours")).await.unwrap();
        assert_eq!(store.put_new("wal/1", bytes("ours")).await.unwrap(), Put::WasThere, "{store}");
        let error = store.put_new("wal/1", bytes("theirs")).await.unwrap_err();
        assert!(matches!(error, StoreError::Conflict { .. }) && !error.is_transient(), "{error}");
        assert_eq!(store.get("wal/1").await.unwrap(), bytes("ours"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_create_one_object_exactly_one_does() {
    for (_alive, store) in stores().await {
        let puts = (0..8).map(|writer| {
            let store = store.clone();
            async move { store.put_new("owner.json", bytes(&format!("writer {writer}"))).await }
        });
        let results = join_all(puts).await;
        let created = results.iter().filter(|result| matches!(result, Ok(Put::Created))).count();
        let conflicts = results.iter().filter(|result| matches!(result, Err(StoreError::Conflict { .. }))).count();
        assert_eq!((created, conflicts), (1, 7), "{store}: {results:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_whose_answer_was_lost_is_found_out_to_be_done() {
    let (_server, proxy, store) = behind_a_proxy().await;
    proxy.fail("PUT", "wal/1", Fault::LoseAnswer, 1);
    let put = store.put_new("wal/1", bytes("ours")).await.unwrap();
    assert_eq!(put, Put::WasThere);
    assert_eq!(proxy.seen("PUT", "wal/1"), 1, "it was looked at, and not sent again");
    assert_eq!(store.get("wal/1").await.unwrap(), bytes("ours"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_whose_answer_was_lost_may_still_be_a_conflict() {
    let (_server, proxy, store) = behind_a_proxy().await;
    store.put_new("wal/1", bytes("theirs")).await.unwrap();
    proxy.fail("PUT", "wal/1", Fault::LoseAnswer, 1);
    let error = store.put_new("wal/1", bytes("ours")).await.unwrap_err();
    assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
    assert_eq!(store.get("wal/1").await.unwrap(), bytes("theirs"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_that_never_arrived_is_sent_again() {
    let (_server, proxy, store) = behind_a_proxy().await;
    proxy.fail("PUT", "wal/1", Fault::LoseRequest, 2);
    assert_eq!(store.put_new("wal/1", bytes("ours")).await.unwrap(), Put::Created);
    proxy.fail("PUT", "wal/2", Fault::LoseRequest, 99);
    let error = store.put_new("wal/2", bytes("ours")).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert_eq!(proxy.seen("PUT", "wal/2"), 3, "but not without end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_says_there_is_one_under_way_is_asked_again() {
    let (_server, proxy, store) = behind_a_proxy().await;
    proxy.fail("PUT", "wal/1", Fault::Undecided, 2);
    assert_eq!(store.put_new("wal/1", bytes("ours")).await.unwrap(), Put::Created);
    proxy.fail("PUT", "wal/2", Fault::Undecided, usize::MAX);
    let error = store.put_new("wal/2", bytes("ours")).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("ConditionalRequestConflict"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_knows_while_the_store_does_not_answer_and_that_is_what_is_said() {
    let (_server, proxy, store) = behind_a_proxy().await;
    proxy.fail("PUT", "wal/1", Fault::LoseAnswer, 1);
    proxy.fail("GET", "wal/1", Fault::LoseRequest, 99);
    let error = store.put_new("wal/1", bytes("ours")).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("put wal/1"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_busy_is_asked_again_and_then_that_is_the_error() {
    let (_server, proxy, store) = behind_a_proxy().await;
    for method in ["PUT", "GET"] {
        proxy.fail(method, "wal/1", Fault::Unavailable, 2);
    }
    assert_eq!(store.put_new("wal/1", bytes("ours")).await.unwrap(), Put::Created);
    assert_eq!(store.get("wal/1").await.unwrap(), bytes("ours"));
    proxy.fail("", "wal/2", Fault::Unavailable, usize::MAX);
    for error in [store.put_new("wal/2", bytes("x")).await.unwrap_err(), store.find("wal/2").await.unwrap_err()] {
        assert!(error.is_transient() && error.to_string().contains("SlowDown: Please reduce"), "{error}");
        assert!(!error.to_string().contains(SECRET), "{error}");
    }
    let retries = support::PATIENCE.retries;
    assert_eq!((proxy.seen("PUT", "wal/2"), proxy.seen("GET", "wal/2")), (1 + retries, 2 * (1 + retries)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_cut_short_is_never_taken_for_a_whole_one() {
    let (_server, proxy, store) = behind_a_proxy().await;
    let body = Bytes::from(vec![7; 300_000]);
    store.put_new("wal/1", body.clone()).await.unwrap();
    proxy.fail("GET", "wal/1", Fault::Truncate(100_000), 1);
    assert_eq!(store.get("wal/1").await.unwrap(), body, "the rest is asked for");
    proxy.fail("GET", "wal/1", Fault::Truncate(1), usize::MAX);
    let whole = store.get("wal/1").await;
    assert!(whole.as_ref().is_err_and(StoreError::is_transient), "{whole:?}");
    let streamed = store.stream("wal/1").await.unwrap().try_collect::<Vec<_>>().await;
    assert!(streamed.as_ref().is_err_and(StoreError::is_transient), "{:?}", streamed.map(|parts| parts.len()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_answer_is_not_waited_for_without_end() {
    let (_server, proxy, store) = behind_a_proxy().await;
    store.put_new("wal/1", bytes("ours")).await.unwrap();
    proxy.fail("GET", "wal/1", Fault::Slow(Duration::from_secs(600)), usize::MAX);
    let began = tokio::time::Instant::now();
    let error = store.get("wal/1").await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("no answer within 2 s"), "{error}");
    // Three further attempts of two seconds each, and what lies between.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// To a restore, "there is no such segment" means that the log ends there.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_store_nothing_is_missing_from_it() {
    let server = Server::start().await;
    let (nothing, accepting) = s3::no_backend().await;
    let (dir, location) = support::directory();
    let unmounted = Store::open(&location).unwrap();
    std::fs::remove_dir(dir.path().join("backups")).unwrap();
    let stores = [
        Store::open(&server.location_at(server.address, "no-such-bucket")).unwrap(),
        Store::open(&server.location_at(nothing, BUCKET)).unwrap(),
        unmounted,
    ];
    for store in stores {
        let errors = [
            store.find("wal/1").await.map(|_| ()),
            store.size("wal/1").await.map(|_| ()),
            store.list("wal").await.map(|_| ()),
            store.directories("").await.map(|_| ()),
        ];
        for error in &errors {
            assert!(matches!(error, Err(StoreError::NoStore { .. })), "{store}: {errors:?}");
        }
    }
    accepting.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_are_said_to_be_wrong_and_not_shown() {
    let server = Server::start().await;
    let settings = [
        ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "another secret".to_owned()),
        ("AWS_ENDPOINT", format!("http://{}", server.address)),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value)).into();
    let store = Store::open(&Location::new(&format!("s3://{BUCKET}"), settings, None).unwrap()).unwrap();
    let error = store.put_new("wal/1", bytes("x")).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }) && !error.is_transient(), "{error}");
    assert!(error.to_string().contains("SignatureDoesNotMatch"), "{error}");
    assert!(!format!("{error} {error:?}").contains("another secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_another_certificate_is_not_the_store() {
    let (server, impostor) = (Server::over_tls().await, Server::over_tls().await);
    let store = Store::open(&server.location_at(impostor.address, BUCKET)).unwrap();
    let error = store.put_new("wal/1", bytes("x")).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().to_lowercase().contains("certificate"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_keeps_to_conditions_is_fit_and_nothing_is_left_of_the_look() {
    for (_alive, store) in stores().await {
        let seen = store.probe().await.unwrap();
        assert_eq!(seen, Capabilities { conditional_put: true, ranges: true, list: true, delete: true }, "{store}");
        assert_eq!(seen.unfit(), None);
        assert_eq!(store.list("").await.unwrap(), [], "{store}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_replaces_objects_gets_none() {
    let server = Server::that(Keeps::Nothing).await;
    let store = server.store();
    let archive = store.below("archive");
    let seen = store.probe().await.unwrap();
    assert_eq!(seen, Capabilities { conditional_put: false, ranges: false, list: true, delete: true });
    assert!(seen.unfit().unwrap().contains("If-None-Match"));
    for store in [store, archive] {
        let error = store.put_new("wal/1", bytes("ours")).await.unwrap_err();
        assert!(matches!(error, StoreError::Refused { .. }) && error.to_string().contains("If-None-Match"), "{error}");
        assert_eq!(store.find("wal/1").await.unwrap(), None);
    }
}

#[rstest]
#[case(Fault::Unavailable)]
#[case(Fault::LoseRequest)]
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_can_not_be_looked_at_is_not_called_anything(#[case] fault: Fault) {
    let (_server, proxy, store) = behind_a_proxy().await;
    proxy.fail("", "probe", fault, usize::MAX);
    assert!(store.probe().await.unwrap_err().is_transient());
    drop(proxy);
    assert!(store.probe().await.unwrap_err().is_transient());
}
