//! What becomes of a backup: restored and started, or looked at by a verification.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bellwether_backup::Store;
use bellwether_backup::record::Commit;
use bellwether_backup::restore::recovery::{Along, LEFT_OVER, Recovery, SIGNAL, Target, Then};
use bellwether_backup::restore::verify::{Check, RunAs, Verification, VerifyError, verify};
use bellwether_backup::restore::{Options, Progress, unpack};
use bellwether_postgres::Installation;
use tokio::sync::watch;

use super::{Server, eventually, installed, place, postgres_user};

/// Restores a backup with the log from a plain directory, and starts it.
pub async fn restored(store: &Store, commit: &Commit, log: &Path, target: Target) -> Server {
    let dir = place("bw-restored-");
    let progress = progress();
    let options = Options { tablespaces: mapping(commit, dir.path()), ..Options::default() };
    unpack(commit, store, &dir.path().join("data"), &options, &progress).await.unwrap();
    assert_eq!(progress.borrow().done, commit.bytes);
    let recovery = Recovery {
        restore_command: format!("cp {}/%f %p", log.display()),
        target,
        along: Along::Latest,
        then: Then::Promote,
    };
    for name in LEFT_OVER {
        let _ = std::fs::remove_file(dir.path().join("data").join(name));
    }
    std::fs::write(dir.path().join("data").join(SIGNAL), "").unwrap();
    let server = Server::on_restored(dir, installed(), &recovery.lines().unwrap()).await;
    eventually("recovery ends", || async { server.value("select pg_is_in_recovery()").await == "f" }).await;
    server
}

fn mapping(commit: &Commit, dir: &Path) -> BTreeMap<u32, PathBuf> {
    commit.tablespaces.iter().map(|space| (space.oid, dir.join(format!("space-{}", space.oid)))).collect()
}

pub fn check<'a>(installation: &'a Installation, scratch: &'a Path) -> Check<'a> {
    Check {
        installation,
        scratch,
        socket_dir: None,
        run_as: postgres_user().map(|user| RunAs { uid: user.uid.as_raw(), gid: user.gid.as_raw() }),
        workers: 2,
        restore_command: None,
        reach: None,
        parameters: BTreeMap::new(),
        queries: vec![],
        patience: Duration::from_secs(120),
    }
}

pub async fn verified(store: &Store, commit: &Commit) -> Result<Verification, VerifyError> {
    let (installation, dir) = (installed(), place("bw-verify-"));
    let scratch = dir.path().join("scratch");
    let outcome = verify(commit, store, &check(&installation, &scratch), &progress()).await;
    assert!(!scratch.exists(), "nothing is left of a verification");
    // Nor does a thread that nobody waited for make it again.
    dir.close().unwrap();
    outcome
}

pub fn progress() -> watch::Sender<Progress> {
    watch::Sender::new(Progress::default())
}
