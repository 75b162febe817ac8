//! Stores for tests: a directory, a server that speaks S3 on loopback, and one behind a proxy that fails on demand.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod log;
pub mod proxy;
pub mod s3;

use std::time::Duration;

use bellwether_backup::store::Patience;
use bellwether_backup::{Location, Store};
use tempfile::TempDir;

use proxy::Proxy;
use s3::{BUCKET, Server};

/// As patient as a test can be: long enough for a busy machine, short enough to wait for.
pub const PATIENCE: Patience = Patience {
    connect: Duration::from_secs(5),
    answer: Duration::from_secs(2),
    total: Duration::from_secs(6),
    retries: 3,
};

/// A directory that goes with the test.
pub fn directory() -> (TempDir, Location) {
    let dir = tempfile::Builder::new().prefix("bw-store-").tempdir().unwrap();
    let location = Location::directory(&dir.path().join("backups"));
    (dir, location)
}

/// A store of each kind, with what it lives in.
pub async fn stores() -> Vec<(Box<dyn Send>, Store)> {
    let (dir, location) = directory();
    let (server, tls) = (Server::start().await, Server::over_tls().await);
    let (plain, secure) = (server.store(), tls.store());
    vec![(Box::new(dir), Store::open(&location).unwrap()), (Box::new(server), plain), (Box::new(tls), secure)]
}

/// A store that is reached through a proxy that fails on demand.
pub async fn behind_a_proxy() -> (Server, Proxy, Store) {
    let server = Server::start().await;
    let proxy = Proxy::before(server.address).await;
    let store = Store::open(&server.location_at(proxy.address, BUCKET)).unwrap();
    (server, proxy, store)
}

/// Until something is so. What never comes fails the test.
pub async fn until<F: Future<Output = bool>>(what: &str, so: impl Fn() -> F) {
    let waited = async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waited).await.unwrap_or_else(|_| panic!("never: {what}"));
}
