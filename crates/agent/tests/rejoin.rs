//! How instances come to have the leader's database: a former primary with WAL that nobody else has, and copies whose source fails. Real
//! agents, real PostgreSQL, the in-memory API.

mod support;
#[path = "support/cluster.rs"]
mod support_cluster;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use bellwether_api::v1::{DurabilityMode, InstanceRole, InstanceState};
use bellwether_core::contract::{InstanceConfig, Report};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support_cluster::{Cluster, superuser};

/// In the log of an agent, when a rewind has succeeded.
const REWOUND: &str = "rewound, and whole again";
/// … and when a copy has.
const COPIED: &str = "copied the database";

fn leads(report: &Report) -> bool {
    report.state == InstanceState::Leading && report.accepts_sql && report.role == Some(InstanceRole::Primary)
}
fn streams(report: &Report) -> bool {
    report.state == InstanceState::Streaming && report.accepts_sql && report.role == Some(InstanceRole::Standby)
}

/// A cluster whose commits wait for nobody, with one row that everybody has.
async fn cluster(instances: &[&str]) -> Cluster {
    cluster_of(instances, instances.len()).await
}

/// The same, of which only the first few have started.
async fn cluster_of(instances: &[&str], count: usize) -> Cluster {
    start(&config(instances), count).await
}

fn config(instances: &[&str]) -> InstanceConfig {
    let mut config = InstanceConfig {
        instances: instances.iter().map(|name| (*name).to_owned()).collect(),
        bootstrap_instance: "orders-1".into(),
        durability: Some(DurabilityMode::Async),
        ..InstanceConfig::default()
    };
    config.initdb.post_init_sql =
        vec!["create table greetings (text text)".into(), "grant all on greetings to app".into()];
    config
}

async fn start(config: &InstanceConfig, count: usize) -> Cluster {
    let mut cluster = Cluster::new(config).await;
    let started = &config.instances[..count];
    for (host, instance) in (1..).zip(started) {
        cluster.start(instance, host).await;
    }
    cluster.wait_for_report("orders-1", "it leads", leads).await;
    for instance in &started[1..] {
        cluster.wait_for_report(instance, "it streams", streams).await;
    }
    write(&cluster, "orders-1", "everybody's").await;
    let root = superuser(&cluster, "orders-1").await;
    let written = root.written().await.unwrap();
    support::eventually("everybody has it", async || {
        let standbys = root.standbys().await.unwrap();
        standbys.len() == count - 1 && standbys.iter().all(|standby| standby.replayed >= Some(written))
    })
    .await;
    cluster
}

fn host(instance: &str) -> u8 {
    instance.rsplit('-').next().unwrap().parse().unwrap()
}

async fn write(cluster: &Cluster, instance: &str, text: &str) {
    let app = cluster.connect(instance, host(instance), "first").await.unwrap();
    app.run_script(&format!("insert into greetings values ('{}')", text.replace('\'', "''"))).await.unwrap();
}

/// Whether these are the rows there, and no others.
async fn has(cluster: &Cluster, instance: &str, rows: &[&str]) -> bool {
    let Ok(app) = cluster.connect(instance, host(instance), "first").await else { return false };
    let rows: Vec<_> = rows.iter().map(|row| format!("'{}'", row.replace('\'', "''"))).collect();
    let rows = rows.join(", ");
    let sql = format!(
        "do $$ begin assert (select array_agg(text order by text) from greetings) = \
         (select array_agg(text order by text) from unnest(array[{rows}]) as text); end $$"
    );
    app.run_script(&sql).await.is_ok()
}

/// The primary writes what it can't send any more, and its node is lost. Answers who leads then, with a row of its own.
async fn part(cluster: &mut Cluster) -> String {
    for pid in cluster.below("orders-1") {
        let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if command.contains("walsender") {
            kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
        }
    }
    for n in 0..20 {
        write(cluster, "orders-1", &format!("nobody's {n}")).await;
    }
    cluster.lose("orders-1").await;
    let (leader, _) = cluster.wait_for_leader(2).await;
    write(cluster, &leader, "after").await;
    leader
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

/// PostgreSQL's programs, with some of them replaced by scripts. `$real` is where the real ones are, `$data` the instance's volume.
fn programs(cluster: &Cluster, instance: &str, replaced: &[(&str, &str)]) -> PathBuf {
    let real = support::postgresql().bin_dir;
    let dir = cluster.home.path().join("programs");
    fs::create_dir(&dir).unwrap();
    for entry in fs::read_dir(&real).unwrap() {
        let entry = entry.unwrap();
        symlink(entry.path(), dir.join(entry.file_name())).unwrap();
    }
    for (name, script) in replaced {
        let path = dir.join(name);
        fs::remove_file(&path).unwrap();
        let data = cluster.home.path().join(instance).join("data");
        let text = format!("#!/bin/sh\nreal={}\ndata={}\n{script}\n", real.display(), data.display());
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    dir
}

#[tokio::test(flavor = "multi_thread")]
async fn a_former_primary_with_wal_of_its_own_is_rewound_and_follows() {
    let mut cluster = cluster(&["orders-1", "orders-2", "orders-3"]).await;
    let pgdata = cluster.pgdata("orders-1");
    let before = inode(&pgdata);
    let leader = part(&mut cluster).await;

    cluster.start("orders-1", 1).await;
    support::eventually("it streams, and accepted no write till then", async || {
        if let Ok(app) = cluster.connect("orders-1", 1, "first").await {
            assert!(app.run_script("insert into greetings values ('written to the wrong one')").await.is_err());
        }
        let report = cluster.report("orders-1").await;
        streams(&report) && report.term == Some(2)
    })
    .await;
    let said = cluster.said("orders-1");
    assert!(said.contains(REWOUND) && !said.contains(COPIED), "it was rewound, and not copied");
    assert_eq!(inode(&pgdata), before, "the directory is the same");
    for instance in ["orders-1", "orders-2", "orders-3"] {
        support::eventually("all have the new primary's rows", async || {
            has(&cluster, instance, &["everybody's", "after"]).await
        })
        .await;
    }
    let volume = pgdata.parent().unwrap();
    assert!(!volume.join("rewind.unfinished").exists() && !volume.join("pgdata.aside").exists());

    // It counts again: the next to lead may be this one.
    write(&cluster, &leader, "more").await;
    support::eventually("it streams on", async || has(&cluster, "orders-1", &["everybody's", "after", "more"]).await)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_rewound_is_kept_aside_until_a_copy_streams() {
    let mut cluster = cluster(&["orders-1", "orders-2"]).await;
    let pgdata = cluster.pgdata("orders-1");
    let before = inode(&pgdata);
    part(&mut cluster).await;

    // It fails after it has made a mess; and whoever copies looks whether that is still there.
    cluster.programs = Some(programs(
        &cluster,
        "orders-1",
        &[
            ("pg_rewind", "rm $data/pgdata/global/pg_control; echo half > $data/pgdata/half; exit 1"),
            (
                "pg_basebackup",
                "$real/pg_basebackup \"$@\" && test -e $data/pgdata.aside/half && touch $data/pgdata.scratch/kept",
            ),
        ],
    ));
    cluster.start("orders-1", 1).await;
    cluster.wait_for_report("orders-1", "it streams", |report| streams(report) && report.term == Some(2)).await;
    let said = cluster.said("orders-1");
    assert!(said.contains(COPIED) && !said.contains(REWOUND), "it was copied");
    assert!(pgdata.join("kept").exists(), "the old directory was there when the copy was whole");
    assert_ne!(inode(&pgdata), before);
    support::eventually("it has the new primary's rows", async || {
        has(&cluster, "orders-1", &["everybody's", "after"]).await
    })
    .await;
    let aside = pgdata.with_extension("aside");
    support::eventually("what parted is removed once the copy streams", async || !aside.exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rewind_that_was_cut_short_is_never_started() {
    let mut cluster = cluster(&["orders-1", "orders-2"]).await;
    let pgdata = cluster.pgdata("orders-1");
    part(&mut cluster).await;

    let script = "echo half > $data/pgdata/half; echo $$ > $data/pgdata/working; exec sleep 3600";
    cluster.programs = Some(programs(&cluster, "orders-1", &[("pg_rewind", script)]));
    cluster.start("orders-1", 1).await;
    let working = pgdata.join("working");
    support::eventually("the rewind is under way", async || working.exists()).await;
    assert!(pgdata.with_file_name("rewind.unfinished").exists());
    let pid = fs::read_to_string(&working).unwrap().trim().parse().unwrap();
    cluster.lose("orders-1").await;
    support::eventually("it ends with its agent", async || !support::is_alive(pid)).await;

    cluster.programs = None;
    let so_far = cluster.said("orders-1").len();
    cluster.start("orders-1", 1).await;
    cluster.wait_for_report("orders-1", "it streams", |report| streams(report) && report.term == Some(2)).await;
    let said = cluster.said("orders-1").split_off(so_far);
    let copied = said.find(COPIED).expect("it was copied");
    let started = said.find("starting PostgreSQL").expect("it was started");
    assert!(copied < started, "and not started before");
    assert!(!pgdata.join("half").exists());
    support::eventually("it has the new primary's rows", async || {
        has(&cluster, "orders-1", &["everybody's", "after"]).await
    })
    .await;
}

/// A copy is under way, from a leader with one standby, and so slow that it never ends; the next will not be.
async fn copying(cluster: &mut Cluster) -> PathBuf {
    let script = "test -e $data/../slow && exec $real/pg_basebackup \"$@\"\n\
                  touch $data/../slow\nexec $real/pg_basebackup --max-rate=32k \"$@\"";
    cluster.programs = Some(programs(cluster, "orders-3", &[("pg_basebackup", script)]));
    cluster.start("orders-3", 3).await;
    let scratch = cluster.pgdata("orders-3").with_extension("scratch");
    support::eventually("half a copy is there", async || scratch.join("backup_label").exists()).await;
    cluster.programs = None;
    scratch
}

/// It has the copy of one of these, and PostgreSQL was never started on half of one.
async fn copied_from(cluster: &Cluster, sources: &[&str], rows: &[&str]) {
    cluster.wait_for_report("orders-3", "it streams", streams).await;
    let said = cluster.said("orders-3");
    let copied = said.find(COPIED).expect("it was copied");
    let line = said[..copied].rfind('\n').map_or(&said[..], |from| &said[from + 1..]);
    let line = line.lines().next().unwrap();
    assert!(sources.iter().any(|source| line.contains(source)), "copied from {sources:?}: {line}");
    assert!(said.find("starting PostgreSQL").expect("it was started") > copied, "and started after that only");
    support::eventually("it has the rows", async || has(cluster, "orders-3", rows).await).await;
}

/// Two members, and a third that is to join.
async fn before_a_third() -> Cluster {
    let cluster = cluster_of(&["orders-1", "orders-2", "orders-3"], 2).await;
    cluster.wait_for_report("orders-2", "it streams", streams).await;
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_source_crashes_is_made_again_from_whoever_leads_then() {
    let mut cluster = before_a_third().await;
    copying(&mut cluster).await;
    kill(Pid::from_raw(cluster.postmaster("orders-1")), Signal::SIGKILL).unwrap();
    // Commits wait for nobody, so it may have started again in place.
    support::eventually("somebody accepts writes", async || {
        for instance in ["orders-1", "orders-2"] {
            if let Ok(app) = cluster.connect(instance, host(instance), "first").await
                && app.run_script("insert into greetings values ('after')").await.is_ok()
            {
                return true;
            }
        }
        false
    })
    .await;
    // From the leader, or from the other where that one follows it already.
    copied_from(&cluster, &["orders-1", "orders-2"], &["everybody's", "after"]).await;
}

/// A page of a table on the leader's disk is not what PostgreSQL wrote: `pg_basebackup` finds that out by its checksum. The standby's is intact.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_source_is_corrupt_comes_from_a_standby() {
    let mut cluster = before_a_third().await;
    let root = superuser(&cluster, "orders-1").await;
    root.run_script(
        "create table public.big as select n, repeat('x', 100) as text from generate_series(1, 1000) as n; checkpoint",
    )
    .await
    .unwrap();
    let file = fs::read_dir(cluster.pgdata("orders-1").join("base"))
        .unwrap()
        .flat_map(|database| fs::read_dir(database.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        .find(|path| {
            let bytes = fs::read(path).unwrap();
            bytes.windows(50).any(|window| window == [b'x'; 50])
        })
        .expect("the table's file");
    let mut bytes = fs::read(&file).unwrap();
    bytes[4000] ^= 0xff;
    fs::write(&file, bytes).unwrap();
    cluster.start("orders-3", 3).await;
    copied_from(&cluster, &["orders-2"], &["everybody's"]).await;
    assert!(cluster.said("orders-3").contains("checksum"), "the leader was asked first");
    write(&cluster, "orders-1", "after").await;
    support::eventually("it streams from the leader", async || {
        has(&cluster, "orders-3", &["everybody's", "after"]).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_source_is_frozen_is_made_again_from_the_next_leader() {
    let mut cluster = before_a_third().await;
    copying(&mut cluster).await;
    let frozen: Vec<i32> = [cluster.agent("orders-1")].into_iter().chain(cluster.below("orders-1")).collect();
    for pid in &frozen {
        kill(Pid::from_raw(*pid), Signal::SIGSTOP).unwrap();
    }
    cluster.wait_for_report("orders-2", "it leads", leads).await;
    write(&cluster, "orders-2", "after").await;
    copied_from(&cluster, &["orders-2"], &["everybody's", "after"]).await;
    for pid in &frozen {
        kill(Pid::from_raw(*pid), Signal::SIGCONT).unwrap();
    }
    // It was frozen with nothing of its own, or with what nobody has; either way it comes back.
    cluster.wait_for_report("orders-1", "it streams", |report| streams(report) && report.term == Some(2)).await;
}

/// So much WAL, and a checkpoint after it, that nobody keeps what was before unless a slot says so.
async fn leave_behind(cluster: &Cluster, leader: &str, standby: &str) {
    let root = superuser(cluster, leader).await;
    for _ in 0..8 {
        root.run_script("select pg_logical_emit_message(false, 'x', 'x'); select pg_switch_wal()").await.unwrap();
    }
    root.checkpoint().await.unwrap();
    let there = superuser(cluster, standby).await;
    let written = root.written().await.unwrap();
    support::eventually("the other has it too", async || {
        there.state().await.unwrap().replayed.is_some_and(|replayed| replayed >= written)
    })
    .await;
    there.checkpoint().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_was_away_during_a_failover_finds_its_wal_on_the_new_primary() {
    let mut config = config(&["orders-1", "orders-2", "orders-3"]);
    config.parameters = [("wal_keep_size", "0"), ("min_wal_size", "32MB"), ("max_wal_size", "32MB")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let mut cluster = start(&config, 3).await;
    let slots = async |instance: &str| superuser(&cluster, instance).await.slots().await.unwrap();
    for (instance, expected) in [
        ("orders-1", ["bw_orders_2", "bw_orders_3"]),
        ("orders-2", ["bw_orders_1", "bw_orders_3"]),
        ("orders-3", ["bw_orders_1", "bw_orders_2"]),
    ] {
        support::eventually("every instance keeps a slot for every other", async || {
            let slots = slots(instance).await;
            slots.iter().all(|slot| slot.restart.is_some())
                && slots.iter().map(|slot| slot.name.as_str()).eq(expected.iter().copied())
        })
        .await;
    }

    // It goes, much is written and forgotten, and then the primary is lost.
    cluster.delete("orders-3").await;
    let so_far = cluster.said("orders-3").len();
    for _ in 0..3 {
        leave_behind(&cluster, "orders-1", "orders-2").await;
    }
    cluster.lose("orders-1").await;
    cluster.wait_for_report("orders-2", "it leads", leads).await;
    let there = superuser(&cluster, "orders-2").await.slots().await.unwrap();
    let names: Vec<_> = there.iter().map(|slot| slot.name.as_str()).collect();
    assert_eq!(names, ["bw_orders_1", "bw_orders_3"]);
    assert!(there.iter().all(|slot| slot.restart.is_some() && !slot.lost), "{there:?}");
    write(&cluster, "orders-2", "after").await;

    cluster.start("orders-3", 3).await;
    cluster.wait_for_report("orders-3", "it streams", |report| streams(report) && report.term == Some(2)).await;
    let said = cluster.said("orders-3").split_off(so_far);
    assert!(!said.contains(COPIED) && !said.contains(REWOUND), "it went on from where it was");
    support::eventually("it has the rows", async || has(&cluster, "orders-3", &["everybody's", "after"]).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_slots_of_standbys_move_on_with_whom_they_are_for() {
    let cluster = cluster(&["orders-1", "orders-2", "orders-3"]).await;
    leave_behind(&cluster, "orders-1", "orders-2").await;
    let root = superuser(&cluster, "orders-1").await;
    let written = root.written().await.unwrap();
    support::eventually("what nobody needs any more is kept by no standby", async || {
        let there = superuser(&cluster, "orders-2").await.slots().await.unwrap();
        there.iter().any(|slot| slot.name == "bw_orders_3" && slot.restart >= Some(written))
    })
    .await;
}
