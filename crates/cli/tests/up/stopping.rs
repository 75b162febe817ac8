//! How `up` ends, and what the next one finds.

use crate::home::{Home, eventually};

#[tokio::test]
async fn a_killed_up_leaves_no_process_and_the_next_one_has_every_row() {
    let mut home = Home::up(&["--replicas", "2"]).await;
    home.ready("demo", 2).await;
    home.execute("demo", "create table kept (id int); insert into kept select generate_series(1, 500)").await;
    home.kill();
    home.nothing_left().await;
    home.start(&[]).await;
    let view = home.ready("demo", 2).await;
    for instance in &view.instances {
        let rows =
            || async { home.number("demo", &instance.name, "select count(*) from kept").await.filter(|n| *n == 500) };
        eventually(&format!("{} has every row", instance.name), rows).await;
    }
    home.execute("demo", "insert into kept values (501)").await;
}

#[tokio::test]
async fn a_stopped_up_ends_with_success_and_the_next_one_brings_the_cluster_back() {
    let mut home = Home::up(&["--replicas", "1"]).await;
    home.ready("demo", 1).await;
    home.execute("demo", "create table kept (id int); insert into kept values (7)").await;
    let status = home.stop().await;
    assert!(status.success(), "{status}: {}", home.printed());
    assert!(home.scope().processes().is_empty());
    assert!(home.printed().contains("every PostgreSQL has shut down"), "{}", home.printed());
    home.start(&[]).await;
    home.ready("demo", 1).await;
    assert_eq!(home.number("demo", "demo-1", "select id::bigint from kept").await, Some(7));
}

#[tokio::test]
async fn what_is_printed_says_how_to_connect_and_never_the_password() {
    let home = Home::up(&["--replicas", "1"]).await;
    home.ready("demo", 1).await;
    let printed = || async { Some(home.printed()).filter(|text| text.contains("Ctrl-C")) };
    let printed = eventually("up says what to try next", printed).await;
    assert!(printed.contains("psql \"host=demo-rw.default.svc hostaddr=127."), "{printed}");
    assert!(printed.contains("export KUBECONFIG="), "{printed}");
    let file = std::fs::read_to_string(home.path().join("clients/default_demo/pgpass")).unwrap();
    let password = file.trim().rsplit(':').next().unwrap();
    assert!(password.len() > 8 && !printed.contains(password));
}
