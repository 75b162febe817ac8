//! A database is got back from the store alone, by command: to a time, a position, a name, a transaction, on either timeline; and what can't be had is refused, or fails aloud.

use bellwether_backup::WalFile;
use bellwether_backup::layout::SegmentName;
use bellwether_backup::restore::recovery::Including;
use bellwether_core::wal::{Lsn, Timeline};
use futures::stream::{self, StreamExt as _};
use jiff::Timestamp;

use crate::postgres::{Server, eventually};
use crate::restored::{Original, has};
use crate::store::proxy::Fault;

const TABLE: &str = "create table item (n int primary key)";
const SEGMENT: u64 = 16 << 20;
/// Settings of an original that would do harm in a copy.
const ACTS: &str = "synchronous_standby_names = 'ghost'\nsynchronous_commit = local\nlisten_addresses = '*'\n\
                    primary_conninfo = 'host=nowhere'\n";

async fn insert(server: &Server, n: u32) {
    server.sql(&format!("insert into item values ({n})")).await;
}

/// A small generator: the same seed, the same moments.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.unsigned_abs().max(1)).cast_signed()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::print_stdout, reason = "the seed is needed to try the same moments again")]
async fn at_each_of_twenty_moments_there_is_exactly_what_was_committed_before() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| Timestamp::now().as_microsecond().unsigned_abs() | 1);
    println!("seed {seed}");
    let original = Original::with("track_commit_timestamp = on\n").await;
    original.server.sql(TABLE).await;
    let first = original.backup().await;
    let mut n = 0;
    let mut write = async |rows: u32| {
        for _ in 0..rows {
            n += 1;
            insert(&original.server, n).await;
            if n % 40 == 0 {
                original.server.sql("select pg_switch_wal()").await;
            }
        }
    };
    write(100).await;
    let second = original.backup().await;
    write(101).await;
    original.archived().await;

    let times = "select (extract(epoch from pg_xact_commit_timestamp(xmin)) * 1000000)::bigint from item order by n";
    let times = original.server.sql(times).await;
    let times: Vec<i64> = times.iter().map(|row| row[0].as_ref().unwrap().parse().unwrap()).collect();
    // PostgreSQL knows that it has reached a moment when it meets a later commit: the last row is that.
    let (begin, end) = (first.finished.as_microsecond() + 1, times[times.len() - 2]);
    let mut random = Random(seed);
    let moments: Vec<_> = (0..20)
        .map(|round| {
            // Every third at the very moment of a commit.
            let at = match round % 3 {
                0 => times[usize::try_from(random.below(times.len() as i64 - 1)).unwrap()],
                _ => begin + random.below(end - begin),
            };
            (at, if random.below(2) == 0 { Including::Target } else { Including::JustBefore })
        })
        .collect();
    let restored = stream::iter(moments).map(|(at, including)| {
        let (original, times, second) = (&original, &times, &second);
        async move {
            let time = Timestamp::from_microsecond(at).unwrap().to_string();
            let mut arguments = vec!["orders", "--target-time", &time];
            if including == Including::JustBefore {
                arguments.push("--exclusive");
            }
            let mut restored = original.restored(&arguments).await;
            let newest = at >= second.finished.as_microsecond();
            assert_eq!(restored.said.contains(second.id.as_str()), newest, "{arguments:?}: {}", restored.said);
            restored.start();
            restored.recovered().await;
            let before = |&&time: &&i64| if including == Including::Target { time <= at } else { time < at };
            let expected = times.iter().filter(before).count();
            let found = restored.value("select count(*) || ' up to ' || coalesce(max(n), 0) from item").await;
            assert_eq!(found, format!("{expected} up to {expected}"), "seed {seed}: {arguments:?}");
        }
    });
    assert_eq!(restored.buffer_unordered(2).count().await, 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_is_got_back_to_a_position_a_name_a_transaction_or_all_of_it_and_does_nothing_for_its_original() {
    let original = Original::with(ACTS).await;
    let server = &original.server;
    server.sql(TABLE).await;
    insert(server, 1).await;
    let commit = original.backup().await;
    let xid = server.value("insert into item values (2) returning xmin").await;
    insert(server, 3).await;
    server.sql("select pg_create_restore_point('before-drop')").await;
    insert(server, 4).await;
    let position = server.value("select pg_current_wal_insert_lsn()").await;
    insert(server, 5).await;
    original.archived().await;

    assert_eq!(original.rows_at(&["--target-xid", &xid]).await, "1 2");
    assert_eq!(original.rows_at(&["--target-xid", &xid, "--exclusive"]).await, "1");
    assert_eq!(original.rows_at(&["--target-name", "before-drop"]).await, "1 2 3");
    // The record that begins there is the next insert's, which commits later.
    assert_eq!(original.rows_at(&["--target-lsn", &position]).await, "1 2 3 4");
    assert_eq!(original.rows_at(&["--target-lsn", &position, "--exclusive", "--timeline", "current"]).await, "1 2 3 4");

    let mut all = original.restored(&["shop/orders", "--backup", commit.id.as_str()]).await;
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(all.access()).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert!(
        std::fs::read_to_string(all.data().join("postgresql.conf")).unwrap().contains("listen_addresses = '127.0.0.1'")
    );
    let kept = std::fs::read_to_string(all.data().join("postgresql.conf.original")).unwrap();
    assert!(kept.contains("'ghost'"), "the original's settings can be looked up");
    all.start();
    all.recovered().await;
    assert_eq!(all.rows().await, "1 2 3 4 5");
    for (setting, value) in [
        ("archive_mode", "off"),
        ("synchronous_standby_names", ""),
        ("primary_conninfo", ""),
        ("ssl", "off"),
        ("max_logical_replication_workers", "0"),
    ] {
        assert_eq!(all.value(&format!("show {setting}")).await, value, "{setting}");
    }
    // A commit that waited for the original's standbys would never come back.
    assert_eq!(all.value("with new as (insert into item values (6) returning n) select n from new").await, "6");
    eventually("the way into the store is gone", || async { !all.access().exists() }).await;
    eventually("nothing that was fetched ahead is left", || async {
        !has(&all.data().join("pg_wal"), "bellwether.ahead")
    })
    .await;
    assert!(!has(&server.archive(), "00000002.history"), "nothing of the copy is archived");

    // Into a directory that is not empty nothing goes.
    let said = original.says(&["restore", "--to", all.data().to_str().unwrap()]).await;
    assert_eq!(said.code, Some(1));
    assert!(said.text.contains("not empty; nothing was touched"), "{}", said.text);
}

/// What the command says to run next, by its program.
fn line_with<'a>(said: &'a str, program: &str) -> &'a str {
    said.lines()
        .find(|line| line.starts_with("  ") && line.contains(program))
        .unwrap_or_else(|| panic!("no {program}: {said}"))
}

fn shell(line: &str) -> String {
    let output =
        std::process::Command::new("sh").args(["-c", line]).stdin(std::process::Stdio::null()).output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{line}: {said}");
    said
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_runs_what_the_command_says_has_the_database_back() {
    let original = Original::with("").await;
    original.server.sql(TABLE).await;
    original.backup().await;
    insert(&original.server, 1).await;
    original.archived().await;

    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let wal = crate::postgres::place("bw-restored-wal-");
    let log = wal.path().join("log");
    let port = free.to_string();
    let restored = original.restored(&["--port", &port, "--wal-directory", log.to_str().unwrap()]).await;
    assert_eq!(std::fs::read_link(restored.data().join("pg_wal")).unwrap(), log);
    shell(line_with(&restored.said, "pg_ctl"));
    let psql =
        line_with(&restored.said, "psql").replace("pg_is_in_recovery()", "pg_is_in_recovery(), count(*) from item");
    eventually("it has recovered", || async { shell(&psql).contains(" f                 |     1") }).await;
    assert!(shell(line_with(&restored.said, "grep")).contains("archive recovery complete"));
    let stop = line_with(&restored.said, "pg_ctl").split(" -l ").next().unwrap().to_owned() + " -m immediate stop";
    shell(&stop);
    eventually("nothing that was fetched ahead is left", || async { !has(&log, "bellwether.ahead") }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_not_be_reached_is_refused_before_anything_is_made_and_what_only_the_log_knows_fails_aloud() {
    let original = Original::with("").await;
    original.server.sql(TABLE).await;
    let commit = original.backup().await;
    insert(&original.server, 1).await;
    original.archived().await;

    let before = commit.started.to_string();
    for (target, why) in [
        (["--target-time", before.as_str()], "it ended at"),
        (["--target-time", "2999-01-01T00:00:00Z"], "is in the future"),
        (["--target-lsn", "0/100"], "it ended at"),
        (["--target-lsn", "FF/0"], "its log ends at"),
        (["--timeline", "7"], "there is no history of timeline 7"),
        (["--backup", "20200101T000000Z"], "there is no backup 20200101T000000Z"),
    ] {
        let said = original.refused(&target).await;
        assert!(said.contains(why) && said.contains("what can be reached:"), "{target:?}: {said}");
        assert!(said.contains(&format!("from {}, on timeline 1", commit.id)), "{said}");
    }
    let said = original.refused(&["invoices"]).await;
    assert!(said.contains("there is no archive of invoices here") && said.contains("shop/orders"), "{said}");

    for target in [["--target-name", "never-made"], ["--target-xid", "4000000"]] {
        let mut restored = original.restored(&target).await;
        assert!(restored.said.contains("recovery ended before configured recovery target was reached"));
        restored.start();
        let log = restored.broke_off().await;
        assert!(log.contains("recovery ended before configured recovery target was reached"), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_goes_down_in_the_middle_is_waited_for_and_neither_that_nor_damage_ends_recovery_early() {
    let original = Original::with("").await;
    let server = &original.server;
    server.sql(TABLE).await;
    let commit = original.backup().await;
    let begin = commit.stop.0 / SEGMENT + 1;
    for n in 1..9 {
        insert(server, n).await;
        server.sql("select pg_switch_wal()").await;
    }
    original.archived().await;
    let segment =
        |number: u64| WalFile::Segment(SegmentName::of(Timeline(1), Lsn((begin + number) * SEGMENT), SEGMENT));
    let all = "1 2 3 4 5 6 7 8";

    // Each comes once, though it was fetched before it was asked for.
    assert_eq!(original.rows_at(&[]).await, all);
    let times: Vec<_> = (0..6).map(|number| original.proxy.seen("GET", &segment(number).key())).collect();
    assert_eq!(times, [1; 6]);

    // Down, and up again.
    let (key, proxy) = (segment(4).key(), &original.proxy);
    let seen = proxy.seen("GET", &key);
    let mut restored = original.restored(&[]).await;
    proxy.fail("GET", "/wal/", Fault::Unavailable, 0);
    proxy.fail("GET", &key, Fault::Unavailable, usize::MAX);
    restored.start();
    eventually("PostgreSQL waits", || async { restored.log().contains("it is tried again for 300 s") }).await;
    assert!(proxy.seen("GET", &key) > seen);
    assert_ne!(restored.try_value("select pg_is_in_recovery()").await.as_deref(), Some("f"), "{}", restored.log());
    proxy.heal();
    restored.recovered().await;
    assert_eq!(restored.rows().await, all);

    // Down for longer than anybody waits: it stops, and goes on from there when the store is back.
    let mut restored = original.restored(&[]).await;
    restored.change_access(|access| access["waitSeconds"] = 1.into());
    proxy.fail("GET", &key, Fault::LoseAnswer, usize::MAX);
    restored.start();
    let log = restored.broke_off().await;
    assert!(log.contains("waited for") && log.contains("child process exited with exit code 200"), "{log}");
    proxy.heal();
    restored.start();
    restored.recovered().await;
    assert_eq!(restored.rows().await, all);

    // Damaged: it stops, whatever is behind it.
    let object = original.object(segment(4));
    let body = std::fs::read(&object).unwrap();
    let mut damaged = body.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&object, damaged).unwrap();
    let mut restored = original.restored(&[]).await;
    restored.start();
    let log = restored.broke_off().await;
    assert!(log.contains("is damaged"), "{log}");
    std::fs::write(&object, body).unwrap();
    restored.start();
    restored.recovered().await;
    assert_eq!(restored.rows().await, all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_history_forks_either_way_can_be_gone() {
    let original = Original::with("").await;
    let server = &original.server;
    server.sql(TABLE).await;
    original.backup().await;
    insert(server, 1).await;
    let mut standby = server.standby().await;
    standby.configure(&format!("archive_mode = on\narchive_command = 'cp %p {}/%f'\n", standby.archive().display()));
    standby.stop();
    standby.start().await;
    let caught_up = server.value("select pg_current_wal_lsn()").await;
    let caught_up = format!("select pg_last_wal_replay_lsn() >= '{caught_up}'");
    eventually("the standby has it", || async { standby.value(&caught_up).await == "t" }).await;
    standby.sql("select pg_promote()").await;
    eventually("it is promoted", || async { standby.value("select pg_is_in_recovery()").await == "f" }).await;
    insert(&standby, 2).await;
    insert(server, 3).await;
    original.archived().await;
    standby.archive_into(&original.archive).await;

    assert_eq!(original.rows_at(&[]).await, "1 2", "the newest timeline, unless another is asked for");
    assert_eq!(original.rows_at(&["--timeline", "2"]).await, "1 2");
    assert_eq!(original.rows_at(&["--timeline", "1"]).await, "1 3");
    assert_eq!(original.rows_at(&["--timeline", "current"]).await, "1 3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_verified_by_command_and_what_is_missing_of_the_log_is_named() {
    let original = Original::with("").await;
    let server = &original.server;
    server.sql(TABLE).await;
    let commit = original.backup().await;
    let segment = |number: u64| {
        WalFile::Segment(SegmentName::of(Timeline(1), Lsn((commit.stop.0 / SEGMENT + number) * SEGMENT), SEGMENT))
    };
    for n in 1..5 {
        insert(server, n).await;
        server.sql("select pg_switch_wal()").await;
    }
    original.archived().await;

    let said = original.says(&["backup", "verify", "--no-record"]).await;
    assert_eq!(said.code, Some(0), "{}", said.text);
    for phase in
        ["unpack", "log", "manifest", "recovery", "structure", "queries", "pages", "good: recovered to", "not recorded"]
    {
        assert!(said.text.contains(phase), "{phase}: {}", said.text);
    }
    let listed = original.says(&["backups"]).await.text;
    assert!(listed.lines().any(|line| line.contains(commit.id.as_str()) && line.ends_with("no")), "{listed}");
    let said = original.says(&["backup", "verify", "orders", "--backup", commit.id.as_str()]).await;
    assert_eq!(said.code, Some(0), "{}", said.text);
    let listed = original.says(&["backups"]).await.text;
    assert!(listed.lines().any(|line| line.contains(commit.id.as_str()) && line.contains("20")), "{listed}");
    assert!(!listed.lines().any(|line| line.ends_with(" no")), "{listed}");

    let said = original.says(&["wal", "gaps"]).await;
    assert_eq!(said.code, Some(0), "{}", said.text);
    assert!(said.text.contains("nothing"), "{}", said.text);
    let object = original.object(segment(2));
    let body = std::fs::read(&object).unwrap();
    std::fs::remove_file(&object).unwrap();
    let said = original.says(&["wal", "gaps", "orders"]).await;
    assert_eq!(said.code, Some(5), "{}", said.text);
    assert!(said.text.contains(&segment(2).to_string()), "{}", said.text);
    let refused = original.refused(&[]).await;
    assert!(refused.contains("is missing and the log goes on behind it"), "{refused}");
    assert_eq!(original.rows_at(&["--up-to-gap"]).await, "1");
    std::fs::write(&object, body).unwrap();

    // Any finding is an error, named.
    let pack = original.object(segment(0)).ancestors().nth(3).unwrap().join(&commit.packs[0].key);
    let mut body = std::fs::read(&pack).unwrap();
    body[100] ^= 1;
    std::fs::write(&pack, body).unwrap();
    let said = original.says(&["backup", "verify"]).await;
    assert_eq!(said.code, Some(1), "{}", said.text);
    assert!(said.text.contains(&format!("{} is damaged", commit.packs[0].key)), "{}", said.text);
}
