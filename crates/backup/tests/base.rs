//! Backups of a real PostgreSQL: what is in them, and what makes them fail.

mod postgres;

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bellwether_backup::base::protocol::{ProtocolError, Purpose};
use bellwether_backup::base::{self, BaseError, Progress, ReadBackError, read_back, take};
use bellwether_backup::layout::{COMMIT, WalFile};
use bellwether_backup::restore::recovery::{Including, Target};
use bellwether_core::wal::SystemIdentifier;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use postgres::restored::restored;
use postgres::{Archive, PATIENCE, Server, eventually, give_to_postgres, quick};
use tokio::sync::watch;

/// Writes numbers, one a commit, and counts those that were acknowledged.
struct Writer {
    acknowledged: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Writer {
    async fn start(server: &Server) -> Self {
        server.sql("create table written (n bigint primary key, filler text default repeat('x', 500))").await;
        let (acknowledged, stop): (Arc<AtomicU64>, Arc<AtomicBool>) = Default::default();
        let (count, stopped) = (acknowledged.clone(), stop.clone());
        let mut session = server.connect(Purpose::Database("postgres")).await.unwrap();
        let task = tokio::spawn(async move {
            while !stopped.load(Ordering::Relaxed) {
                let next = count.load(Ordering::Relaxed) + 1;
                session.query("write", &format!("insert into written values ({next})")).await.unwrap();
                count.store(next, Ordering::Relaxed);
            }
        });
        Self { acknowledged, stop, task }
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    async fn wrote(&self, more: u64) {
        let enough = self.acknowledged() + more;
        eventually("the writer writes", || async { self.acknowledged() >= enough }).await;
    }

    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_under_writes_has_every_row_that_was_acknowledged_before_it_ended() {
    let (server, archive) = (Server::new().await, Archive::new());
    let writer = Writer::start(&server).await;
    writer.wrote(200).await;
    let before = writer.acknowledged();
    let commit = server.backup(&archive.store).await;
    writer.end().await;

    assert!(commit.start < commit.stop);
    assert!(commit.packs.len() > 3, "{} packs", commit.packs.len());
    let restored = restored(&archive.store, &commit, &server.archive(), Target::Immediate).await;
    let rows: u64 = restored.value("select count(*) from written").await.parse().unwrap();
    let newest: u64 = restored.value("select max(n) from written").await.parse().unwrap();
    assert!(rows >= before, "{rows} rows of {before}");
    assert_eq!(rows, newest, "none is missing in between");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_standby_has_every_row_that_the_standby_had() {
    let (primary, archive) = (Server::new().await, Archive::new());
    let standby = primary.standby().await;
    let writer = Writer::start(&primary).await;
    writer.wrote(200).await;
    let before = writer.acknowledged();
    let replayed = format!("select coalesce(max(n), 0) >= {before} from written");
    eventually("the standby replays", || async { standby.value(&replayed).await == "t" }).await;
    let taken = standby.take(&archive.store).await.unwrap();
    writer.end().await;
    primary.archive_into(&archive.store).await;
    taken.read_back(&archive.store, PATIENCE).await.unwrap();
    let commit = taken.commit(&archive.store).await.unwrap();

    let restored = restored(&archive.store, &commit, &primary.archive(), Target::Immediate).await;
    let rows: u64 = restored.value("select count(*) from written").await.parse().unwrap();
    let newest: u64 = restored.value("select max(n) from written").await.parse().unwrap();
    assert!(rows >= before && rows == newest, "{rows} rows up to {newest}, of at least {before}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tablespaces_come_along_and_go_where_they_are_sent() {
    let (server, archive) = (Server::new().await, Archive::new());
    let space = server.dir().join("space");
    std::fs::create_dir(&space).unwrap();
    give_to_postgres(&space);
    server.sql(&format!("create tablespace fast location '{}'", space.display())).await;
    server.sql("create table far tablespace fast as select generate_series(1, 100000) as n").await;
    let commit = server.backup(&archive.store).await;
    assert_eq!(
        commit.tablespaces.iter().map(|space| space.location.as_str()).collect::<Vec<_>>(),
        [space.to_str().unwrap()]
    );

    let restored = restored(&archive.store, &commit, &server.archive(), Target::Immediate).await;
    assert_eq!(restored.value("select count(*) from far").await, "100000");
    let location = restored.value("select pg_tablespace_location(oid) from pg_tablespace where spcname = 'fast'").await;
    assert!(Path::new(&location).starts_with(restored.dir()), "{location}");
    assert!(restored.file_of("far").await.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_larger_than_a_pack_comes_back_in_one_piece() {
    let (server, archive) = (Server::new().await, Archive::new());
    server
        .sql("create table large as select n, repeat(md5(n::text), 60) as text from generate_series(1, 110000) as n")
        .await;
    let sums = "select sum(hashtext(text)) || '/' || count(*) from large";
    let (before, size) = (server.value(sums).await, server.file_of("large").await.metadata().unwrap().len());
    assert!(size > 200 << 20, "{size}");
    let commit = server.backup(&archive.store).await;
    assert!(commit.packs.iter().all(|pack| pack.bytes <= 4 << 20));
    assert!(commit.packs.len() > 50, "{} packs", commit.packs.len());
    let restored = restored(&archive.store, &commit, &server.archive(), Target::Immediate).await;
    assert_eq!(restored.value(sums).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn recovery_goes_as_far_as_it_is_told_and_no_further() {
    let (server, archive) = (Server::new().await, Archive::new());
    server.sql("create table step (name text)").await;
    let commit = server.backup(&archive.store).await;
    let step = async |name: &str| {
        server.value(&format!("insert into step values ('{name}') returning pg_current_xact_id()")).await
    };
    let first = step("first").await;
    server.sql("select pg_create_restore_point('by name')").await;
    step("second").await;
    let position = server.value("select pg_current_wal_lsn()").await.parse().unwrap();
    let third = step("third").await;
    let time =
        server.value("select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')").await;
    step("fourth").await;
    server.archive_into(&archive.store).await;

    let xid = |text: &str, including| Target::Xid(text.parse().unwrap(), including);
    let targets = [
        (xid(&first, Including::JustBefore), 0),
        (Target::Name("by name".to_owned()), 1),
        (Target::Lsn(position, Including::Target), 2),
        (xid(&third, Including::Target), 3),
        (Target::Time(time.parse().unwrap(), Including::Target), 3),
        (Target::Latest, 4),
    ];
    let restores = targets.into_iter().map(async |(target, expected): (Target, u32)| {
        let restored = restored(&archive.store, &commit, &server.archive(), target.clone()).await;
        assert_eq!(restored.value("select count(*) from step").await, expected.to_string(), "{target:?}");
    });
    futures::future::join_all(restores).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_database_is_not_read() {
    let (server, archive) = (Server::new().await, Archive::new());
    let socket_dir = server.socket_dir();
    let refused = take(&quick(&socket_dir, SystemIdentifier(7)), &archive.store, &progress()).await;
    assert!(matches!(refused, Err(BaseError::OtherDatabase { expected: SystemIdentifier(7), .. })), "{refused:?}");
    assert_eq!(archive.keys().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_broken_at_its_source_makes_no_backup() {
    let (mut server, archive) = (Server::new().await, Archive::new());
    server.sql("create table item as select generate_series(1, 100000) as n").await;
    let file = server.file_of("item").await;
    server.stop();
    break_page(&file, 3);
    server.start().await;
    let error = server.take(&archive.store).await.unwrap_err();
    let name = file.file_name().unwrap().to_str().unwrap();
    let BaseError::Protocol(ProtocolError::Server { code, warnings, .. }) = &error else { panic!("{error}") };
    assert_eq!(code, "XX001");
    assert!(warnings.iter().any(|warning| warning.contains(name) && warning.contains("block 3")), "{error}");
    eventually("nothing is left in the store", || async { archive.keys().await.is_empty() }).await;
}

fn break_page(file: &Path, number: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
    file.write_all_at(b"broken", number * 8192 + 4000).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_is_broken_off_is_none_and_leaves_nothing_behind() {
    let (server, archive) = (Server::new().await, Archive::new());
    server.sql("create table item as select n, md5(n::text) from generate_series(1, 400000) as n").await;
    let (socket_dir, identity, progress) = (server.socket_dir(), server.identity().await, progress());
    // So slow that it can't be done before somebody looks.
    let options = base::Options { max_rate: Some(8192), ..quick(&socket_dir, identity) };
    {
        let taking = take(&options, &archive.store, &progress);
        // Looked at while it is being taken: as soon as it is not, what it wrote is removed.
        let some = async {
            let total = progress.subscribe().wait_for(|progress| progress.objects >= 2).await.unwrap().total;
            (total, archive.keys().await.len())
        };
        tokio::select! {
            taken = taking => panic!("it is done already: {taken:?}"),
            (total, objects) = some => assert!(total > 20 << 20 && objects >= 2, "{total}, {objects}"),
        }
    }
    eventually("nothing is left in the store", || async { archive.keys().await.is_empty() }).await;
    eventually("the server has ended it too", || async {
        server.value("select count(*) from pg_stat_progress_basebackup").await == "0"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_in_the_middle_makes_no_backup() {
    let (server, archive) = (Server::new().await, Archive::new());
    server.sql("create table item as select n, md5(n::text) from generate_series(1, 400000) as n").await;
    let (socket_dir, identity, progress) = (server.socket_dir(), server.identity().await, progress());
    let options = base::Options { max_rate: Some(8192), ..quick(&socket_dir, identity) };
    let gone = async {
        progress.subscribe().wait_for(|progress| progress.objects >= 1).await.unwrap();
        kill(server.pid(), Signal::SIGQUIT).unwrap();
    };
    let (taken, ()) = tokio::join!(take(&options, &archive.store, &progress), gone);
    assert!(matches!(taken, Err(BaseError::Protocol(_))), "{taken:?}");
    eventually("nothing is left in the store", || async { archive.keys().await.is_empty() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_nothing_is_not_waited_for_without_end() {
    let (server, archive) = (Server::new().await, Archive::new());
    server.sql("create table item as select n, md5(n::text) from generate_series(1, 400000) as n").await;
    let (socket_dir, identity, progress) = (server.socket_dir(), server.identity().await, progress());
    let silence = Duration::from_millis(300);
    let options = base::Options { max_rate: Some(8192), silence, ..quick(&socket_dir, identity) };
    let walsender = "select pid from pg_stat_activity where backend_type = 'walsender'";
    let (sender, frozen) = tokio::sync::oneshot::channel();
    let freeze = async {
        progress.subscribe().wait_for(|progress| progress.objects >= 1).await.unwrap();
        let pid = Pid::from_raw(server.value(walsender).await.parse().unwrap());
        kill(pid, Signal::SIGSTOP).unwrap();
        sender.send(pid).unwrap();
    };
    let taking = tokio::time::timeout(PATIENCE, take(&options, &archive.store, &progress));
    let (taken, ()) = tokio::join!(taking, freeze);
    kill(frozen.await.unwrap(), Signal::SIGCONT).unwrap();
    let taken = taken.expect("it ends by itself");
    assert!(
        matches!(taken, Err(BaseError::Protocol(ProtocolError::Silent { after, .. })) if after == silence),
        "{taken:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn note_31_a_backup_without_its_log_is_not_one_yet() {
    let (server, archive) = (Server::new().await, Archive::new());
    let taken = server.take(&archive.store).await.unwrap();
    let needed = taken.needed_segments();
    let key = WalFile::Segment(needed[0]).key();
    let missing = taken.read_back(&archive.store, Duration::ZERO).await;
    assert!(matches!(missing, Err(ReadBackError::NotArchived { key: missing, .. }) if missing == key));
    assert!(archive.store.find(&taken.commit_to_be().id.key(COMMIT)).await.unwrap().is_none());

    server.archive_into(&archive.store).await;
    taken.read_back(&archive.store, PATIENCE).await.unwrap();
    archive.tamper(&key, |body| body.truncate(body.len() / 2));
    let size = taken.commit_to_be().segment_size;
    let damaged = read_back(&archive.store, &needed, size, PATIENCE).await;
    assert!(matches!(damaged, Err(ReadBackError::Unusable { key: damaged, .. }) if damaged == key));
    taken.discard(&archive.store).await;
    assert!(archive.keys().await.iter().all(|key| !key.starts_with("base/")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_is_never_written_over_another() {
    let (server, archive) = (Server::new().await, Archive::new());
    let taken = server.take(&archive.store).await.unwrap();
    let key = taken.commit_to_be().id.key(COMMIT);
    archive.store.put_new(&key, "another's".into()).await.unwrap();
    assert!(matches!(taken.commit(&archive.store).await, Err(BaseError::Store(_))));
    assert_eq!(archive.store.get(&key).await.unwrap(), "another's");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_of_a_timeline_is_asked_for_and_answered() {
    let primary = Server::new().await;
    let standby = primary.standby().await;
    standby.sql("select pg_promote()").await;
    let mut session = standby.connect(Purpose::Replication).await.unwrap();
    let identity = session.identify_system().await.unwrap();
    assert_eq!(identity.timeline.0, 2);
    assert!(session.timeline_history(identity.timeline).await.unwrap().starts_with("1\t"));
    assert_eq!(session.segment_size().await.unwrap(), 16 << 20);
    let error = session.timeline_history(bellwether_core::wal::Timeline(9)).await.unwrap_err();
    assert!(matches!(error, ProtocolError::Server { .. }), "{error}");
}

fn progress() -> watch::Sender<Progress> {
    watch::Sender::new(Progress::default())
}
