//! What a spec sets arrives in PostgreSQL: volumes, locale, names, first SQL, parameters.

use bellwether_api::v1::PostgresCluster;
use bellwether_postgres::installation;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::home::{Home, eventually};

fn manifest(version: &str) -> String {
    json!({
        "apiVersion": "bellwether.dev/v1", "kind": "PostgresCluster", "metadata": {"name": "orders"},
        "spec": {
            "version": version, "replicas": 2,
            "storage": {"size": "1Gi", "wal": {"size": "1Gi"}},
            "parameters": {"work_mem": "16MB", "max_connections": "50"},
            "bootstrap": {"initdb": {
                "database": "shop", "owner": "clerk", "localeProvider": "icu", "locale": "de-DE",
                "postInitSql": ["create table greeting as select 42::bigint as answer", "grant select on greeting to clerk"],
            }},
        },
    })
    .to_string()
}

#[tokio::test]
async fn what_a_spec_sets_arrives_in_postgresql() {
    let newest = installation::find_all().into_iter().max_by_key(|found| found.major.parse::<u32>().unwrap_or(0));
    let newest = newest.expect("PostgreSQL is installed");
    let mut home = Home::new();
    let path = home.path().with_extension("manifest");
    std::fs::write(&path, manifest(&newest.major)).unwrap();
    home.start(&["-f", path.to_str().unwrap()]).await;
    home.ready("orders", 2).await;
    std::fs::remove_file(&path).unwrap();

    for instance in ["orders-1", "orders-2"] {
        let number = async |sql: &str| home.number("orders", instance, sql).await;
        assert_eq!(number("select answer from greeting").await, Some(42), "post-init SQL, copied to the standby");
        let memory = "select setting::bigint from pg_settings where name = 'work_mem'";
        assert_eq!(number(memory).await, Some(16 * 1024), "{instance}");
        let icu = "select count(*) from pg_database where datname = 'shop' and datlocprovider = 'i'";
        assert_eq!(number(icu).await, Some(1), "{instance}");
    }
    assert_eq!(wal_links(&home), 2, "each instance has its WAL on a volume of its own");

    let api: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
    let change = json!({"spec": {"parameters": {"work_mem": "32MB", "max_connections": "60"}}});
    api.patch("orders", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    let memory = "select setting::bigint from pg_settings where name = 'work_mem'";
    let reloaded = || async { home.number("orders", "orders-2", memory).await.filter(|kib| *kib == 32 * 1024) };
    eventually("work_mem is reloaded", reloaded).await;
    let connections = "select setting::bigint from pg_settings where name = 'max_connections'";
    for instance in ["orders-1", "orders-2"] {
        let rolled = || async { home.number("orders", instance, connections).await.filter(|number| *number == 60) };
        eventually(&format!("{instance} was restarted for max_connections"), rolled).await;
    }
}

/// How many data directories have their WAL elsewhere.
fn wal_links(home: &Home) -> usize {
    let volumes = std::fs::read_dir(home.path().join("volumes")).unwrap();
    let wal = volumes.map(|volume| volume.unwrap().path().join("data/pgdata/pg_wal"));
    wal.filter(|path| path.read_link().is_ok_and(|target| target.to_string_lossy().contains("-wal_"))).count()
}
