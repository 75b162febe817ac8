//! Where the log of a standby ends once its receiver is cut, and where that of a primary ends that was shut down; of real servers.

mod server;

use std::time::{Duration, Instant};

use bellwether_core::wal::{Lsn, Timeline};
use bellwether_postgres::basebackup::BaseBackup;
use bellwether_postgres::signal::{self, StartAs};
use bellwether_postgres::sql::{Cut, CutError, POSTGRES_DATABASE, Session};
use bellwether_postgres::{Secret, SlotName, wal};

use server::{Authority, Server, clone, eventually};

const PATIENCE: Duration = Duration::from_secs(20);

async fn primary(authority: &Authority) -> Server {
    let mut primary = Server::initdb("orders-1", authority, &Secret::new("secret")).await;
    primary.start().await;
    primary.session().await.ensure_replication_role().await.unwrap();
    primary
}

async fn standby_of(primary: &Server, instance: &str, authority: &Authority) -> Server {
    let slot = SlotName::of_instance(instance).unwrap();
    primary.session().await.ensure_slot(&slot).await.unwrap();
    let mut standby = Server::place(instance, authority);
    let (source, data_dir) = (primary.conninfo_for(&standby), standby.data_dir());
    let backup = BaseBackup { source: &source, slot: Some(&slot), data_dir: &data_dir, wal_dir: None };
    clone(&backup, &standby.installation).await.unwrap();
    standby.follow(primary);
    signal::set(&standby.data_dir(), StartAs::Standby).unwrap();
    standby.start().await;
    streams(&standby).await;
    standby
}

async fn streams(standby: &Server) {
    let session = standby.session().await;
    eventually("it streams", || async { session.state().await.unwrap().receiver.is_some_and(|r| r.streaming) }).await;
}

async fn run(server: &Server, sql: &str) {
    server.session().await.run_script(sql).await.unwrap();
}

/// Writes, and answers how far.
async fn write(primary: &Server) -> Lsn {
    run(primary, "create table if not exists public.t (i int); insert into public.t select generate_series(1, 1000)")
        .await;
    primary.session().await.state().await.unwrap().written.unwrap()
}

async fn caught_up(standby: &Server, position: Lsn) {
    let session = standby.session().await;
    eventually("it has received it", || async { session.state().await.unwrap().received >= Some(position) }).await;
}

async fn cut(standby: &mut Server) -> Session {
    standby.settings.upstream = None;
    standby.configure();
    let key = standby.replication_tls().key;
    let cut = Cut { key: Some(&key), patience: PATIENCE };
    let present = standby.session().await;
    cut.run(&present, || standby.try_session(POSTGRES_DATABASE)).await.unwrap()
}

async fn end(session: &Session, standby: &Server) -> (Timeline, Lsn) {
    session.end_of_log(&standby.data_dir(), PATIENCE).await.unwrap()
}

#[tokio::test]
async fn nothing_arrives_after_the_cut() {
    let authority = Authority::new();
    let primary = primary(&authority).await;
    let mut standby = standby_of(&primary, "orders-2", &authority).await;
    let written = write(&primary).await;
    caught_up(&standby, written).await;
    let session = cut(&mut standby).await;
    let cut_at = end(&session, &standby).await;
    assert_eq!(cut_at.0, Timeline(1));
    assert!(cut_at.1 >= written);
    let further = write(&primary).await;
    assert!(further > cut_at.1);
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(end(&session, &standby).await, cut_at);
    assert!(session.state().await.unwrap().receiver.is_none());

    // With the key put back it follows again.
    authority.issue(standby.replication_tls().key.parent().unwrap(), "bellwether_replication", &[]);
    standby.follow(&primary);
    standby.configure();
    as_owner(&standby);
    run(&standby, "select pg_reload_conf()").await;
    caught_up(&standby, further).await;
}

/// Files that a test wrote as root, PostgreSQL's.
fn as_owner(standby: &Server) {
    let tls = standby.replication_tls();
    let of = std::fs::metadata(standby.data_dir()).unwrap();
    for path in [&tls.ca, &tls.cert, &tls.key] {
        use std::os::unix::fs::MetadataExt as _;
        std::os::unix::fs::chown(path, Some(of.uid()), Some(of.gid())).unwrap();
    }
}

#[tokio::test]
async fn a_receiver_is_cut_though_replay_hangs() {
    let authority = Authority::new();
    let primary = primary(&authority).await;
    let mut standby = standby_of(&primary, "orders-2", &authority).await;
    let written = write(&primary).await;
    caught_up(&standby, written).await;
    run(&standby, "select pg_wal_replay_pause()").await;
    let written = write(&primary).await;
    caught_up(&standby, written).await;
    let began = Instant::now();
    let session = cut(&mut standby).await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    let cut_at = end(&session, &standby).await;
    assert!(cut_at.1 >= written, "what was received counts, replayed or not");
    write(&primary).await;
    run(&standby, "select pg_wal_replay_resume()").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(end(&session, &standby).await, cut_at);
}

#[tokio::test]
async fn a_standby_that_starts_says_nothing_before_it_knows_what_it_has() {
    let authority = Authority::new();
    let primary = primary(&authority).await;
    let mut standby = standby_of(&primary, "orders-2", &authority).await;
    run(&standby, "select pg_wal_replay_pause()").await;
    let written = write(&primary).await;
    caught_up(&standby, written).await;
    // Received, acknowledged, and not replayed: then it is started anew, without anybody to follow.
    standby.stop().await;
    standby.settings.upstream = None;
    standby.start().await;
    let session = standby.session().await;
    let found = end(&session, &standby).await;
    assert_eq!(found.0, Timeline(1));
    // The end is that of the last whole record now: a fragment behind it was received too, and holds no commit.
    run(&standby, "do $$ begin if (select count(*) from public.t) <> 1000 then raise 'lost'; end if; end $$").await;
    assert_eq!(session.state().await.unwrap().replayed, Some(found.1));
}

#[tokio::test]
async fn across_a_promotion_the_timeline_is_that_of_the_wal_that_is_there() {
    let authority = Authority::new();
    let mut first = primary(&authority).await;
    let second = standby_of(&first, "orders-2", &authority).await;
    let mut third = standby_of(&first, "orders-3", &authority).await;
    let written = write(&first).await;
    caught_up(&second, written).await;
    caught_up(&third, written).await;
    first.stop().await;
    let stopped = wal::end_of_shutdown(&first.installation, &first.data_dir()).await.unwrap().unwrap();

    let session = cut(&mut third).await;
    assert_eq!(end(&session, &third).await, stopped);
    drop(session);

    run(&second, "select pg_promote()").await;
    let slot = SlotName::of_instance("orders-3").unwrap();
    second.session().await.ensure_slot(&slot).await.unwrap();
    authority.issue(third.replication_tls().key.parent().unwrap(), "bellwether_replication", &[]);
    third.follow(&second);
    third.configure();
    as_owner(&third);
    run(&third, "select pg_reload_conf()").await;
    let written = write(&second).await;
    caught_up(&third, written).await;
    let session = cut(&mut third).await;
    let found = end(&session, &third).await;
    assert_eq!(found.0, Timeline(2));
    assert!(found.1 >= written);

    let present = second.session().await;
    let is_primary =
        Cut { key: None, patience: PATIENCE }.run(&present, || second.try_session(POSTGRES_DATABASE)).await;
    assert!(matches!(is_primary, Err(CutError::NotStandby)));
}

#[tokio::test]
async fn who_follows_a_standby_before_its_promotion_is_waited_for_right_after_it() {
    let authority = Authority::new();
    let mut first = primary(&authority).await;
    let second = standby_of(&first, "orders-2", &authority).await;
    let mut third = standby_of(&first, "orders-3", &authority).await;
    let written = write(&first).await;
    caught_up(&second, written).await;
    caught_up(&third, written).await;
    first.stop().await;
    let slot = SlotName::of_instance("orders-3").unwrap();
    second.session().await.ensure_slot(&slot).await.unwrap();
    third.follow(&second);
    third.configure();
    as_owner(&third);
    run(&third, "select pg_reload_conf()").await;
    let asked = second.session().await;
    eventually("the other standby is connected", || async { !asked.senders().await.unwrap().is_empty() }).await;
    assert!(asked.state().await.unwrap().in_recovery);

    run(&second, "alter system set synchronous_standby_names = 'ANY 1 (\"orders-3\")'").await;
    run(&second, "select pg_reload_conf()").await;
    run(&second, "select pg_promote()").await;
    // It is acknowledged only by the one that was connected before there was a timeline to follow.
    run(&second, "create table public.acknowledged ()").await;
    let state = third.session().await.state().await.unwrap();
    assert!(state.receiver.is_some_and(|receiver| receiver.streaming));
}

#[tokio::test]
async fn after_a_clean_stop_standbys_have_exactly_what_the_primary_has() {
    let authority = Authority::new();
    let mut primary = primary(&authority).await;
    let standby = standby_of(&primary, "orders-2", &authority).await;
    assert_eq!(wal::end_of_shutdown(&primary.installation, &primary.data_dir()).await.unwrap(), None, "it runs");
    // Ends of different alignment, and the first record of a segment.
    for round in 0..4 {
        if round == 3 {
            run(&primary, "select pg_switch_wal()").await;
        } else {
            run(&primary, &format!("select pg_logical_emit_message(false, 'x', repeat('x', {}))", 8000 + 13 * round))
                .await;
        }
        primary.stop().await;
        let (timeline, end) = wal::end_of_shutdown(&primary.installation, &primary.data_dir()).await.unwrap().unwrap();
        assert_eq!(timeline, Timeline(1));
        let session = standby.session().await;
        eventually("the receiver is gone", || async { session.state().await.unwrap().receiver.is_none() }).await;
        assert_eq!(session.end_of_log(&standby.data_dir(), PATIENCE).await.unwrap(), (timeline, end));
        primary.start().await;
        streams(&standby).await;
    }
    let mut standby = standby;
    standby.stop().await;
    assert_eq!(wal::end_of_shutdown(&standby.installation, &standby.data_dir()).await.unwrap(), None, "a standby's");
}
