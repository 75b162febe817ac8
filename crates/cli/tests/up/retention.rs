//! Retention in a real S3 server: what goes, what stays whatever the policy says, a store that removes nothing, and the same from the store alone.

use std::process::Command;

use bellwether_api::v1::{BackupPhase, PostgresCluster};
use bellwether_backup::catalog::{Backup, Catalog};
use bellwether_backup::layout::{BackupId, SegmentName, WalFile};
use bellwether_backup::record::{Commit, FORMAT, Object, Owner, VERIFIED, Verified};
use bellwether_backup::{Store, wal};
use bellwether_core::contract::{Report, Retained};
use bellwether_core::wal::{Lsn, SystemIdentifier, Timeline};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{json, to_vec};

use crate::backups::{BURST, TABLE, archive, archiving_and_verifying, ask_for, backups, over};
use crate::home::{BELLWETHER, Home, eventually};
use crate::store::proxy::Fault;
use crate::store::s3::{self, KEY};

const SIZE: u64 = 16 << 20;

async fn put(store: &Store, key: &str, record: Result<Vec<u8>, serde_json::Error>) {
    store.put_new(key, record.unwrap().into()).await.unwrap();
}

/// As if it had been restored and found good.
async fn verify(archive: &Store, commit: &Commit) {
    let verified = Verified {
        format: FORMAT,
        id: commit.id.clone(),
        verified: Timestamp::now(),
        agent_version: "0.1.0".to_owned(),
        timeline: commit.timeline,
        reached: commit.stop,
        phases: vec![],
        not_looked_at: vec![],
        queries: 0,
    };
    put(archive, &commit.id.key(VERIFIED), to_vec(&verified)).await;
}

/// Asks for a backup, and waits until it is complete.
async fn take(home: &Home, name: &str) {
    ask_for(home, name).await;
    let status = over(home, name).await;
    assert_eq!(status.phase, Some(BackupPhase::Completed), "{status:?}");
}

/// The first backup, which nobody asked for.
async fn first(home: &Home) {
    let api = backups(home).await;
    let any = || async { api.list(&ListParams::default()).await.ok()?.items.into_iter().next()?.metadata.name };
    let name = eventually("a backup is scheduled", any).await;
    assert_eq!(over(home, &name).await.phase, Some(BackupPhase::Completed));
}

async fn keep(home: &Home, policy: &str) {
    let clusters: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
    let patch = Patch::Merge(json!({"spec": {"backup": {"retention": policy}}}));
    clusters.patch("demo", &PatchParams::default(), &patch).await.unwrap();
}

/// What the primary says of retention.
async fn said(home: &Home) -> Option<Retained> {
    let pod = Api::<Pod>::default_namespaced(home.client().await).get_opt("demo-1").await.ok()??;
    let text = pod.annotations().get(bellwether_api::labels::REPORT)?;
    serde_json::from_str::<Report>(text).ok()?.archiving?.retention
}

async fn retained(home: &Home, status: &str, reason: &str) {
    let wanted = (status.to_owned(), reason.to_owned());
    let is = || async { home.condition("demo", "Retained").await.filter(|found| *found == wanted) };
    eventually(&format!("Retained is {status}, {reason}"), is).await;
}

async fn there(archive: &Store) -> Vec<Backup> {
    Catalog::read(archive).await.unwrap().backups
}

fn ids<'a>(backups: impl IntoIterator<Item = &'a Backup>) -> Vec<BackupId> {
    backups.into_iter().map(|backup| backup.commit.id.clone()).collect()
}

/// The numbers of the segments in the archive.
async fn numbers(archive: &Store) -> Vec<u64> {
    let segments = Catalog::read(archive).await.unwrap().segments();
    segments.into_iter().map(|segment| segment.number(SIZE)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn note_34_what_is_too_much_goes_and_the_newest_verified_backup_stays_with_its_log() {
    let (server, _proxy, home) = archiving_and_verifying("1", "never").await;
    first(&home).await;
    let archive = archive(&server.store()).await;
    retained(&home, "True", "AsSpecified").await;
    home.execute("demo", TABLE).await;
    for name in ["second", "third"] {
        home.execute("demo", BURST).await;
        take(&home, name).await;
    }
    // As long as nobody knows which of them is a backup, a policy of one removes none of them.
    keep(&home, "1 backup").await;
    retained(&home, "False", "RetentionHeld").await;
    let looked = || async { said(&home).await.filter(|said| said.policy == "1 backup") };
    let removed = eventually("the policy is looked at", looked).await.removed;
    assert!(removed.is_none_or(|removed| removed.backups == 0), "no more than log from before the first");
    let before = there(&archive).await;
    assert_eq!(before.len(), 3);
    let needed = before[1].commit.start.0 / SIZE;
    assert!(numbers(&archive).await[0] < needed, "the first backup has a log of its own");

    verify(&archive, &before[1].commit).await;
    home.execute("demo", BURST).await;
    take(&home, "fourth").await;
    let removed = || async { said(&home).await?.removed.filter(|removed| removed.backups > 0) };
    let removed = eventually("a backup was removed", removed).await;
    let after = there(&archive).await;
    assert_eq!((ids(&after[..2]), after.len()), (ids(&before[1..]), 3));
    let left = numbers(&archive).await;
    assert_eq!(
        left,
        (needed..needed + left.len() as u64).collect::<Vec<_>>(),
        "all that the second needs, and no more"
    );
    assert_eq!((removed.backups, removed.log > 0), (1, true), "{removed:?}");
    retained(&home, "True", "AsSpecified").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_removes_nothing_is_said_and_when_it_does_again_all_that_is_to_go_is_gone() {
    let (server, proxy, home) = archiving_and_verifying("1", "never").await;
    first(&home).await;
    take(&home, "second").await;
    let archive = archive(&server.store()).await;
    let before = there(&archive).await;
    for backup in &before {
        verify(&archive, &backup.commit).await;
    }
    proxy.fail("DELETE", "/base/", Fault::Unavailable, usize::MAX);
    keep(&home, "1 backup").await;
    retained(&home, "False", "RetentionFailing").await;
    assert_eq!(
        home.condition("demo", "Archiving").await.unwrap().0,
        "True",
        "that the log gets there is another matter"
    );
    assert_eq!(ids(&there(&archive).await), ids(&before));
    proxy.heal();
    retained(&home, "True", "AsSpecified").await;
    assert_eq!(ids(&there(&archive).await), ids(&before[1..]));
}

/// An archive without a cluster: so many verified backups, a day apart, each with two segments.
async fn orphan(store: &Store, incarnation: &str, backups: i64) -> Store {
    let owner = Owner {
        format: FORMAT,
        system_identifier: SystemIdentifier(7),
        incarnation: incarnation.to_owned(),
        namespace: "shop".to_owned(),
        cluster: "orders".to_owned(),
    };
    let archive = store.below(&wal::root(&owner).unwrap());
    wal::Archive::open_or_create(store, owner).await.unwrap();
    for number in 1..=backups {
        let started = Timestamp::now() - SignedDuration::from_hours(24 * (backups - number) + 1);
        let id = BackupId::at(started);
        let object = |key: String| Object { key, size: 6, sha256: String::new(), bytes: 6 };
        let start = number.unsigned_abs() * 2 * SIZE + 40;
        let commit = Commit {
            format: FORMAT,
            id: id.clone(),
            system_identifier: SystemIdentifier(7),
            postgres_version: "17.6".to_owned(),
            agent_version: "0.1.0".to_owned(),
            instance: "orders-1".to_owned(),
            started,
            finished: started,
            timeline: Timeline(1),
            start: Lsn(start),
            stop: Lsn(start + 40),
            segment_size: SIZE,
            tablespaces: vec![],
            packs: vec![object(id.pack(0))],
            manifest: object(id.key("backup_manifest.zst")),
            bytes: 6,
        };
        for segment in [start / SIZE, start / SIZE + 1] {
            let file = WalFile::Segment(SegmentName::numbered(Timeline(1), segment, SIZE));
            put(&archive, &file.key(), to_vec("segment")).await;
        }
        put(&archive, &id.pack(0), to_vec("pack")).await;
        verify(&archive, &commit).await;
        put(&archive, &id.key("commit.json"), to_vec(&commit)).await;
    }
    archive
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_without_a_cluster_is_pruned_as_it_was_shown_and_never_unasked() {
    let server = s3::Server::start().await;
    let archive = orphan(&server.store(), "u-1", 5).await;
    let prune = async |arguments: &[&str]| {
        let mut command = Command::new(BELLWETHER);
        command.args(["backup", "prune", "--from", &format!("s3://{}/prod", s3::BUCKET)]).args(arguments);
        command.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", s3::SECRET);
        command.env("AWS_ENDPOINT", format!("http://{}", server.address));
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout) + &text(&output.stderr))
    };
    let before = there(&archive).await;

    let (done, shown) = prune(&["orders", "--retention", "36h", "--dry-run"]).await;
    assert!(done, "{shown}");
    for (word, times) in
        [("goes", 2), ("stays", 3), ("the newest that was verified", 1), ("older than what is kept", 2)]
    {
        assert_eq!(shown.matches(word).count(), times, "{word}: {shown}");
    }
    assert!(shown.contains("2 backups and 4 files of the log go"), "{shown}");
    let (done, said) = prune(&["--retention", "36h", "--keep", "4"]).await;
    assert!(!done && said.contains("1 backup and 2 files of the log go") && said.contains("--yes"), "{said}");
    assert_eq!(there(&archive).await, before, "nothing was removed unasked");

    orphan(&server.store(), "u-2", 1).await;
    let (done, said) = prune(&["orders", "--keep", "1", "--yes"]).await;
    assert!(!done && said.contains("only one at a time") && said.contains("7-u-1 (shop/orders)"), "{said}");
    let (done, said) = prune(&["7-u-1", "--keep", "1", "--yes"]).await;
    assert!(done && said.contains("all of it is gone"), "{said}");
    assert_eq!(ids(&there(&archive).await), ids(&before[4..]));
    assert_eq!(numbers(&archive).await, [10, 11]);
    let (done, said) = prune(&["7-u-1", "--keep", "1", "--yes"]).await;
    assert!(done && said.contains("nothing is to be removed"), "{said}");
    let (done, said) = prune(&["7-u-1", "--retention", "7"]).await;
    assert!(!done && said.contains("such as 7d"), "{said}");
}
