//! An instance whose volume holds another database than the cluster's: it is refused, that is said, and nothing is deleted.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use bellwether_api::v1::{InstanceState, PostgresCluster};
use bellwether_postgres::installation;
use kube::Api;

use crate::home::{Home, eventually};

/// Every file below a directory, with its content's length.
fn files(below: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = vec![];
    for entry in fs::read_dir(below).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push((entry.path(), entry.metadata().unwrap().len())),
        }
    }
    found.sort();
    found
}

/// Puts a database of its own onto the volume of `instance`, in the place of the cluster's, which is kept beside it.
fn swap(home: &Home, instance: &str) -> PathBuf {
    let claim = format!("default_{instance}-data_");
    let volumes = fs::read_dir(home.path().join("volumes")).unwrap().flatten();
    let volume = volumes.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains(&claim)).unwrap();
    let pgdata = volume.join("data/pgdata");
    fs::rename(&pgdata, volume.join("of-the-cluster")).unwrap();
    let owner = fs::metadata(volume.join("data")).unwrap();
    let version = fs::read_to_string(volume.join("of-the-cluster/PG_VERSION")).unwrap();
    let found = installation::find(version.trim()).unwrap();
    let mut initdb = Command::new(found.program("initdb"));
    initdb.arg("-D").arg(&pgdata).args(["-U", "postgres", "-A", "trust", "-N"]).current_dir(volume.join("data"));
    if owner.uid() != nix::unistd::geteuid().as_raw() {
        initdb.uid(owner.uid()).gid(owner.gid());
    }
    let made = initdb.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    pgdata
}

/// Says how it went with `instance` holding another database, and who leads then.
async fn refused(instance: &str) -> String {
    let mut home = Home::up(&["--replicas", "2"]).await;
    home.ready("demo", 2).await;
    home.execute("demo", "create table kept (id int); insert into kept values (1)").await;
    // Of two, commits wait for the other one only once it is recorded as a voter; what it lacks could not be led with.
    let both = || async { home.number("demo", "demo-2", "select count(*) from kept").await.filter(|rows| *rows == 1) };
    eventually("the standby has it", both).await;
    assert!(home.stop().await.success());
    let pgdata = swap(&home, instance);
    let before = files(&pgdata);
    home.start(&[]).await;
    let api: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
    let status = || async { api.get_opt("demo").await.ok()??.status };
    let says = || async {
        let instances = status().await?.instances;
        let found = instances.into_iter().find(|one| one.name == instance)?;
        // The last report of its life before says that it is down, too.
        found.message.filter(|said| found.state == InstanceState::Down && said.contains("the volume holds database"))
    };
    let said = eventually(&format!("{instance} is refused"), says).await;
    assert!(said.contains("but the cluster's is") && said.contains("nothing was changed"), "{said}");
    // The other one has the cluster's database, and goes on with it.
    let takes = || async {
        let connection = home.connection("demo").await;
        let rw = connection.service(&home.client().await, "demo-rw").await.ok()?;
        let session = connection.open(&rw, std::time::Duration::from_secs(5)).await.ok()?;
        session.batch_execute("insert into kept values (2)").await.ok()
    };
    eventually("the cluster takes writes", takes).await;
    let wanted = ("True".to_owned(), "ReplicaUnhealthy".to_owned());
    let degraded = || async { home.condition("demo", "Degraded").await.filter(|seen| *seen == wanted) };
    eventually("that is said", degraded).await;
    assert_eq!(files(&pgdata), before, "nothing of it was touched");
    eventually("somebody leads", || async { status().await?.primary }).await
}

#[tokio::test]
async fn a_standby_with_another_database_is_refused_and_keeps_it() {
    assert_eq!(refused("demo-2").await, "demo-1");
}

#[tokio::test]
async fn a_leader_with_another_database_is_refused_and_keeps_it_and_the_other_leads() {
    assert_eq!(refused("demo-1").await, "demo-2");
}
