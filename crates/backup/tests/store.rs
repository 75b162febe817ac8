//! What a store promises, on a directory and on a server that speaks S3: objects are written once, whatever is lost on the way.

mod promises;
mod support;

use std::time::Duration;

use bellwether_backup::store::{Capabilities, Put};
use bellwether_backup::{Location, Store, StoreError};
use bytes::Bytes;
use rstest::rstest;
use support::proxy::{Fault, Proxy};
use support::s3::{self, BUCKET, Keeps, Server};
use support::{behind_a_proxy, stores};

fn bytes(text: &str) -> Bytes {
    Bytes::from(text.to_owned())
}

async fn proxied() -> Vec<(Box<dyn Send>, (Proxy, Store))> {
    let (server, proxy, store) = behind_a_proxy().await;
    vec![(Box::new(server), (proxy, store))]
}

promises::of_a_store!(stores, proxied);

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
        promises::store::without_it_nothing_is_missing(store).await;
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
    promises::store::who_may_not_is_told_so_without_his_secret(&store, "SignatureDoesNotMatch", "another secret").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_another_certificate_is_not_the_store() {
    let (server, impostor) = (Server::over_tls().await, Server::over_tls().await);
    let store = Store::open(&server.location_at(impostor.address, BUCKET)).unwrap();
    promises::store::who_can_not_be_trusted_gets_nothing(&store).await;
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
