//! What is promised of a store that has nothing in it.

use bellwether_backup::store::{Capabilities, Put};
use bellwether_backup::{Store, StoreError};
use bytes::Bytes;
use futures::TryStreamExt as _;
use futures::future::join_all;

use crate::support::proxy::{Fault, Proxy};
use crate::support::{PATIENCE, s3::SECRET};

fn bytes(text: &str) -> Bytes {
    Bytes::from(text.to_owned())
}

pub async fn what_was_put_is_there_and_is_listed_and_goes(store: Store) {
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

pub async fn note_32_what_is_there_is_never_replaced(store: Store) {
    store.put_new("wal/1", bytes("ours")).await.unwrap();
    assert_eq!(store.put_new("wal/1", bytes("ours")).await.unwrap(), Put::WasThere, "{store}");
    let error = store.put_new("wal/1", bytes("theirs")).await.unwrap_err();
    assert!(matches!(error, StoreError::Conflict { .. }) && !error.is_transient(), "{error}");
    assert_eq!(store.get("wal/1").await.unwrap(), bytes("ours"));
}

pub async fn of_many_that_create_one_object_exactly_one_does(store: Store) {
    let puts = (0..8).map(|writer| {
        let store = store.clone();
        async move { store.put_new("owner.json", bytes(&format!("writer {writer}"))).await }
    });
    let results = join_all(puts).await;
    let created = results.iter().filter(|result| matches!(result, Ok(Put::Created))).count();
    let conflicts = results.iter().filter(|result| matches!(result, Err(StoreError::Conflict { .. }))).count();
    assert_eq!((created, conflicts), (1, 7), "{store}: {results:?}");
}

pub async fn a_store_that_keeps_to_conditions_is_fit_and_nothing_is_left_of_the_look(store: Store) {
    let seen = store.probe().await.unwrap();
    assert_eq!(seen, Capabilities { conditional_put: true, ranges: true, list: true, delete: true }, "{store}");
    assert_eq!(seen.unfit(), None);
    assert_eq!(store.list("").await.unwrap(), [], "{store}");
}

pub async fn a_put_whose_answer_was_lost_is_found_out_to_be_done((proxy, store): (Proxy, Store)) {
    proxy.fail("PUT", "wal/1", Fault::LoseAnswer, 1);
    let put = store.put_new("wal/1", bytes("ours")).await.unwrap();
    assert_eq!(put, Put::WasThere);
    assert_eq!(proxy.seen("PUT", "wal/1"), 1, "it was looked at, and not sent again");
    assert_eq!(store.get("wal/1").await.unwrap(), bytes("ours"));
}

pub async fn a_put_whose_answer_was_lost_may_still_be_a_conflict((proxy, store): (Proxy, Store)) {
    store.put_new("wal/1", bytes("theirs")).await.unwrap();
    proxy.fail("PUT", "wal/1", Fault::LoseAnswer, 1);
    let error = store.put_new("wal/1", bytes("ours")).await.unwrap_err();
    assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
    assert_eq!(store.get("wal/1").await.unwrap(), bytes("theirs"));
}

pub async fn a_put_that_never_arrived_is_sent_again((proxy, store): (Proxy, Store)) {
    proxy.fail("PUT", "wal/1", Fault::LoseRequest, 2);
    assert_eq!(store.put_new("wal/1", bytes("ours")).await.unwrap(), Put::Created);
    proxy.fail("PUT", "wal/2", Fault::LoseRequest, 99);
    let error = store.put_new("wal/2", bytes("ours")).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert_eq!(proxy.seen("PUT", "wal/2"), 3, "but not without end");
}

pub async fn a_store_that_is_busy_is_asked_again_and_then_that_is_the_error((proxy, store): (Proxy, Store)) {
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
    let retries = PATIENCE.retries;
    assert_eq!((proxy.seen("PUT", "wal/2"), proxy.seen("GET", "wal/2")), (1 + retries, 2 * (1 + retries)));
}

pub async fn an_answer_that_is_cut_short_is_never_taken_for_a_whole_one((proxy, store): (Proxy, Store)) {
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

/// To a restore, "there is no such segment" means that the log ends there. Of a store that is none.
pub async fn without_it_nothing_is_missing(store: Store) {
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

/// Of a store that was opened with this secret, which is a wrong one.
pub async fn who_may_not_is_told_so_without_his_secret(store: &Store, said: &str, secret: &str) {
    let puts = store.put_new("wal/1", bytes("x")).await.map(|_| ());
    let (gets, lists) = (store.find("wal/1").await.map(|_| ()), store.list("wal").await.map(|_| ()));
    for error in [puts, gets, lists].map(Result::unwrap_err) {
        assert!(matches!(error, StoreError::Refused { .. }) && !error.is_transient(), "{store}: {error}");
        assert!(error.to_string().contains(said), "{error}");
        assert!(!format!("{error} {error:?}").contains(secret));
    }
}

/// Of an address where somebody else answers.
pub async fn who_can_not_be_trusted_gets_nothing(store: &Store) {
    let error = store.put_new("wal/1", bytes("x")).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().to_lowercase().contains("certificate"), "{error}");
}
