//! What is promised of every store, on servers that speak the protocols of the clouds: Azure's (Azurite), Google's (fake-gcs-server) and Amazon's (versitygw).
//! A suite of its own, because they are installed apart (`hack/clouds`); where one is not, its tests are skipped, and say so.

mod cloud;
mod postgres;
mod promises;
mod support;

use bellwether_backup::layout::WalFile;
use bellwether_backup::restore::recovery::Target;
use bellwether_backup::restore::verify::Looked;
use bellwether_backup::{Location, Store, wal};
use cloud::{BUCKET, Cloud, NO_BUCKET, Over};
use postgres::restored::{restored, verified};
use support::proxy::Proxy;
use support::s3;

/// A part of a server's store; nothing where it isn't installed.
fn store(cloud: Cloud, over: Over) -> Option<Store> {
    cloud.server(over).map(|server| opened(&server.part()))
}

fn opened(location: &Location) -> Store {
    Store::open(location).unwrap()
}

async fn behind_a_proxy(cloud: Cloud) -> Option<(Proxy, Store)> {
    let server = cloud.server(Over::PlainHttp)?;
    let proxy = Proxy::before(server.address).await;
    let store = opened(&server.part_at(proxy.address, BUCKET));
    Some((proxy, store))
}

/// Everything that an object store is there for, on real PostgreSQL.
async fn a_database_comes_back_from(store: Store) {
    let server = postgres::Server::new().await;
    server.sql("create table item as select n, md5(n::text) as text from generate_series(1, 60000) as n").await;
    let commit = server.backup(&store).await;
    assert!(commit.packs.len() > 2, "{} packs", commit.packs.len());
    server.sql("insert into item values (0, 'after the backup')").await;
    server.archive_into(&store).await;

    let verification = verified(&store, &commit).await.unwrap();
    assert_eq!((&verification.structure, &verification.pages), (&Looked::Good, &Looked::Good));

    let log = postgres::place("bw-log-");
    for entry in store.list("wal").await.unwrap() {
        let name = entry.key.rsplit('/').next().unwrap().trim_end_matches(".zst");
        let file: WalFile = name.parse().unwrap();
        assert!(wal::fetch(&store, file, &log.path().join(name)).await.unwrap(), "{name}");
    }
    postgres::give_all_to_postgres(log.path());
    let restored = restored(&store, &commit, log.path(), Target::Latest).await;
    assert_eq!(restored.value("select count(*) from item").await, "60001");
}

/// The tests of one cloud.
macro_rules! tests_of {
    ($cloud:expr) => {
        use super::*;

        async fn stores() -> Vec<((), Store)> {
            store($cloud, Over::Tls).into_iter().map(|store| ((), store)).collect()
        }

        async fn proxied() -> Vec<((), (Proxy, Store))> {
            behind_a_proxy($cloud).await.into_iter().map(|both| ((), both)).collect()
        }

        promises::of_a_store!(stores, proxied);
        promises::of_an_archive!(stores, proxied);

        #[tokio::test(flavor = "multi_thread")]
        async fn a_database_comes_back_from_it() {
            if let Some(store) = store($cloud, Over::Tls) {
                a_database_comes_back_from(store).await;
            }
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn without_the_store_nothing_is_missing_from_it() {
            let Some(server) = $cloud.server(Over::PlainHttp) else { return };
            let (nothing, accepting) = s3::no_backend().await;
            for location in [server.part_at(server.address, NO_BUCKET), server.part_at(nothing, BUCKET)] {
                promises::store::without_it_nothing_is_missing(opened(&location)).await;
            }
            accepting.abort();
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn wrong_credentials_are_said_to_be_wrong_and_not_shown() {
            let Some(server) = $cloud.server(Over::Tls) else { return };
            let (credentials, secret) = server.wrong_credentials();
            let store = opened(&server.located(server.address, BUCKET, credentials));
            promises::store::who_may_not_is_told_so_without_his_secret(&store, $cloud.refusal(), &secret).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn whoever_has_another_certificate_is_not_the_store() {
            let Some(server) = $cloud.server(Over::Tls) else { return };
            let impostor = s3::Server::over_tls().await;
            let store = opened(&server.part_at(impostor.address, BUCKET));
            promises::store::who_can_not_be_trusted_gets_nothing(&store).await;
        }
    };
}

mod azure {
    tests_of!(Cloud::Azure);

    #[tokio::test(flavor = "multi_thread")]
    async fn a_signature_for_a_while_is_enough_and_is_not_shown() {
        let Some(server) = Cloud::Azure.server(Over::Tls) else { return };
        let store = opened(&server.located(server.address, BUCKET, server.shared_access()));
        promises::store::what_was_put_is_there_and_is_listed_and_goes(store).await;
        let mut wrong = server.shared_access();
        wrong.values_mut().for_each(|value| *value = value.replace("sp=rcwdl&", "sp=racwdl&"));
        let signature = wrong["AZURE_STORAGE_SAS_TOKEN"].rsplit_once("sig=").unwrap().1.to_owned();
        let store = opened(&server.located(server.address, BUCKET, wrong));
        promises::store::who_may_not_is_told_so_without_his_secret(&store, "Authorization", &signature).await;
    }
}

mod google {
    tests_of!(Cloud::Google);
}

mod amazon {
    tests_of!(Cloud::Amazon);
}
