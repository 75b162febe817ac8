//! A cluster at rest costs the API nothing.

use std::time::Duration;

use crate::home::{Home, eventually};

/// How long nobody may write. Longer than every period of ours but the resync.
const QUIET: Duration = Duration::from_secs(12);

fn writes(home: &Home) -> Vec<String> {
    let log = std::fs::read_to_string(home.path().join("api/audit.log")).unwrap_or_default();
    log.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn note_11_nobody_writes_to_the_api_while_nothing_happens() {
    let home = Home::up(&["--replicas", "3"]).await;
    home.ready("demo", 3).await;
    // Settled: a second passes without a write. Reports that were on their way at Ready have arrived.
    eventually("the cluster settles", || async {
        let before = writes(&home).len();
        tokio::time::sleep(Duration::from_secs(3)).await;
        (writes(&home).len() == before).then_some(())
    })
    .await;
    let before = writes(&home).len();
    tokio::time::sleep(QUIET).await;
    let after = writes(&home);
    assert_eq!(after.len(), before, "written at rest:\n{}", after[before..].join("\n"));
}
