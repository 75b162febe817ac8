//! What this crate claims about PostgreSQL, asked of a real one.

mod server;

use std::collections::BTreeMap;

use bellwether_api::v1::Initdb;
use bellwether_core::contract::{REPLICATION_USER, SUPERUSER};
use bellwether_core::wal::Timeline;
use bellwether_postgres::basebackup::{self, BaseBackup};
use bellwether_postgres::initdb::InitdbError;
use bellwether_postgres::log::Level;
use bellwether_postgres::pidfile::{self, Status};
use bellwether_postgres::signal::{self, StartAs};
use bellwether_postgres::sql::{Changed, Context, POSTGRES_DATABASE, Remote, Session, SqlError, TlsClient};
use bellwether_postgres::{Secret, SlotName, control};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;

use server::{Authority, DEADLINE, PORT, Server, clone, eventually};

fn password() -> Secret {
    Secret::new("it's \"a\" \\ sécret")
}

async fn log_in(
    server: &Server,
    user: &str,
    password: Option<&Secret>,
    tls: TlsClient,
    host: &str,
) -> Result<Session, SqlError> {
    let database = POSTGRES_DATABASE;
    let remote = Remote { host, address: server.address(), port: PORT, user, password, database };
    Session::tls(&remote, tls, DEADLINE).await
}

#[tokio::test]
async fn a_new_primary_says_what_it_is() {
    let mut primary = Server::initdb("orders-1", &Authority::new(), &password()).await;
    let new = control::read(&primary.installation, &primary.data_dir()).await.unwrap();
    assert!(new.state.is_shut_down() && new.data_checksums);
    assert!(pidfile::read(&primary.data_dir()).unwrap().is_none());

    primary.start().await;
    let state = primary.session().await.state().await.unwrap();
    assert!(!state.in_recovery && state.receiver.is_none() && state.received.is_none() && state.lag_seconds.is_none());
    assert_eq!(state.system_identifier, new.system_identifier);
    assert_eq!(state.timeline, Timeline(1));
    assert!(state.written.unwrap() >= new.checkpoint);
    assert_eq!(state.version, primary.installation.full_version);
    let running = control::read(&primary.installation, &primary.data_dir()).await.unwrap();
    assert_eq!(running.state, control::State::InProduction);
    let pidfile = pidfile::read(&primary.data_dir()).unwrap().unwrap();
    assert_eq!((pidfile.pid, pidfile.port, pidfile.status), (primary.pid(), Some(PORT), Some(Status::Ready)));
    assert_eq!(pidfile.socket_dir.as_deref(), Some(primary.settings.socket_dir.path()));

    primary.stop().await;
    let stopped = control::read(&primary.installation, &primary.data_dir()).await.unwrap();
    assert_eq!(stopped.state, control::State::ShutDown);
}

#[tokio::test]
async fn roles_and_databases_are_made_once() {
    let mut primary = Server::initdb("orders-1", &Authority::new(), &password()).await;
    primary.start().await;
    let session = primary.session().await;
    let sly = "o'ne \"two\" \\three";
    for expected in [Changed::Yes, Changed::No] {
        assert_eq!(session.ensure_login(sly, &password()).await.unwrap(), expected);
        assert_eq!(session.ensure_database(sly, sly).await.unwrap(), expected);
        assert_eq!(session.ensure_replication_role().await.unwrap(), expected);
    }
    assert_eq!(session.set_password(sly, &Secret::new("another")).await.unwrap(), Changed::Yes);
    assert_eq!(session.set_password(SUPERUSER, &password()).await.unwrap(), Changed::No, "initdb's is the same one");

    let slot = SlotName::of_instance("orders-2").unwrap();
    assert_eq!(session.ensure_slot(&slot).await.unwrap(), Changed::Yes);
    assert_eq!(session.ensure_slot(&slot).await.unwrap(), Changed::No);
    let slots = session.slots().await.unwrap();
    assert!(slots[0].name == "bw_orders_2" && slots[0].physical && !slots[0].active && slots[0].restart.is_some());
    assert_eq!(session.drop_slot(&slot).await.unwrap(), Changed::Yes);
    assert_eq!(session.drop_slot(&slot).await.unwrap(), Changed::No);
}

#[tokio::test]
async fn people_come_in_only_as_the_rules_say() {
    let authority = Authority::new();
    let mut primary = Server::initdb("orders-1", &authority, &password()).await;
    // As bad as a user can make it.
    primary.hba = vec!["host all all all trust".into()];
    primary.start().await;
    let session = primary.session().await;
    session.ensure_replication_role().await.unwrap();
    session.set_password(REPLICATION_USER, &password()).await.unwrap();
    session.ensure_login("app", &password()).await.unwrap();

    let anonymous = || TlsClient::anonymous(&primary.ca()).unwrap();
    let certified = || TlsClient::with_certificate(&primary.replication_tls()).unwrap();
    let (host, wrong) = (primary.host(), Secret::new("wrong"));
    let refused = |result: Result<Session, SqlError>| matches!(result, Err(SqlError::Refused { .. }));

    assert!(log_in(&primary, SUPERUSER, Some(&password()), anonymous(), &host).await.is_ok());
    assert!(refused(log_in(&primary, SUPERUSER, Some(&wrong), anonymous(), &host).await));
    assert!(log_in(&primary, "app", None, anonymous(), &host).await.is_ok(), "the user's own rule is in force");
    assert!(log_in(&primary, REPLICATION_USER, None, certified(), &host).await.is_ok());
    assert!(refused(log_in(&primary, REPLICATION_USER, Some(&password()), anonymous(), &host).await));
    assert!(refused(log_in(&primary, SUPERUSER, None, certified(), &host).await), "a certificate is for one role");

    let imposter = log_in(&primary, "app", None, anonymous(), "orders-2.orders-pods.shop.svc").await;
    assert!(matches!(imposter, Err(SqlError::Unreachable { .. })), "{imposter:?}");
    let elsewhere = tempfile::tempdir().unwrap();
    Authority::new().issue(elsewhere.path(), "x", &[]);
    let stranger = TlsClient::anonymous(&elsewhere.path().join("ca.crt")).unwrap();
    let believed = log_in(&primary, "app", None, stranger, &host).await;
    assert!(matches!(believed, Err(SqlError::Unreachable { .. })), "{believed:?}");

    let mut clear = tokio_postgres::Config::new();
    clear
        .host(primary.address().to_string())
        .port(PORT)
        .user("app")
        .dbname(POSTGRES_DATABASE)
        .ssl_mode(SslMode::Disable);
    let refusal = clear.connect(tokio_postgres::NoTls).await.err().expect("clear text is refused");
    assert_eq!(refusal.code(), Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION), "{refusal}");
}

#[tokio::test]
async fn without_a_users_rule_a_password_is_needed_and_enough() {
    let mut primary = Server::initdb("orders-1", &Authority::new(), &password()).await;
    primary.start().await;
    primary.session().await.ensure_login("app", &password()).await.unwrap();
    let tls = TlsClient::anonymous(&primary.ca()).unwrap();
    assert!(log_in(&primary, "app", Some(&password()), tls.clone(), &primary.host()).await.is_ok());
    assert!(log_in(&primary, "app", Some(&Secret::new("wrong")), tls.clone(), &primary.host()).await.is_err());
    assert!(log_in(&primary, "app", None, tls, &primary.host()).await.is_err());
}

#[tokio::test]
async fn the_log_is_whole_and_holds_no_password() {
    let mut primary = Server::initdb("orders-1", &Authority::new(), &password()).await;
    primary.parameters =
        BTreeMap::from([("log_statement".into(), "all".into()), ("log_connections".into(), "on".into())]);
    primary.start().await;
    primary.session().await.ensure_login("app", &password()).await.unwrap();

    let sly = "x\nbw1|2026-01-01 00:00:00.000 UTC|1|XX000|a|b|";
    let mut config = tokio_postgres::Config::new();
    config.host_path(primary.settings.socket_dir.path()).user(sly).password("guess").dbname("no\n\tsuch");
    assert!(config.connect(tokio_postgres::NoTls).await.is_err());
    let refusal = primary.logged("the refusal", |record| record.message.contains("authentication failed")).await;
    assert_eq!((refusal.user.as_deref(), refusal.database.as_deref()), (Some(sly), Some("no\n\tsuch")));
    assert_eq!((refusal.level, refusal.backend.as_deref()), (Level::Fatal, Some("client backend")));

    let users = Session::local_for_users(primary.settings.socket_dir.path(), PORT, POSTGRES_DATABASE, DEADLINE).await;
    let statement = "select 1\nbw1|;\n\tselect nothing from \"no\nwhere\"";
    assert!(users.unwrap().run_script(statement).await.is_err());
    let error = primary.logged("the error", |record| record.level == Level::Error).await;
    assert_eq!(error.statement.as_deref(), Some(statement));
    assert!(error.timestamp.unwrap().ends_with('Z') && error.sqlstate.is_some());

    primary.stop().await;
    primary.logged("the last line", |record| record.message == "database system is shut down").await;
    for record in primary.records.lock().unwrap().iter() {
        let text = serde_json::to_string(record).unwrap();
        assert!(!text.contains("sécret") && !text.contains("SCRAM-SHA-256$"), "{text}");
    }
}

#[tokio::test]
async fn a_change_is_taken_over_waits_or_is_refused() {
    let mut primary = Server::initdb("orders-1", &Authority::new(), &password()).await;
    primary.start().await;
    let session = primary.session().await;
    let contexts = session.contexts(&["work_mem", "shared_buffers", "block_size", "no_such"]).await.unwrap();
    let expected =
        [("work_mem", Context::Reload), ("shared_buffers", Context::Restart), ("block_size", Context::Internal)];
    assert_eq!(contexts, expected.into_iter().map(|(name, context)| (name.to_owned(), context)).collect());

    primary.parameters = BTreeMap::from([("work_mem".into(), "7MB".into()), ("max_connections".into(), "50".into())]);
    primary.configure();
    session.reload().await.unwrap();
    eventually("the change waits", || async { session.pending_restart().await.unwrap() == ["max_connections"] }).await;
    assert_eq!(session.lowered().await.unwrap(), ["max_connections"]);
    assert_eq!(session.setting("work_mem").await.unwrap().as_deref(), Some("7MB"));
    assert_eq!(session.setting("no.such").await.unwrap(), None);
    assert_eq!(session.file_errors().await.unwrap(), []);

    primary.parameters =
        BTreeMap::from([("max_connections".into(), "500".into()), ("shared_buffers".into(), "16MB".into())]);
    primary.configure();
    session.reload().await.unwrap();
    let both = ["max_connections", "shared_buffers"];
    eventually("both changes wait", || async { session.pending_restart().await.unwrap() == both }).await;
    assert_eq!(session.lowered().await.unwrap(), [""; 0], "one is raised, the other may differ");

    primary.parameters = BTreeMap::from([("work_mem".into(), "lots".into())]);
    primary.hba = vec!["host all all all no-such-method".into()];
    primary.configure();
    let files: Vec<_> = session.file_errors().await.unwrap().into_iter().map(|error| error.file).collect();
    assert_eq!(files, ["postgresql.conf", "pg_hba.conf"]);
}

#[tokio::test]
async fn a_clone_streams_and_goes_on_after_a_restart() {
    let authority = Authority::new();
    let mut primary = Server::initdb("orders-1", &authority, &password()).await;
    primary.start().await;
    let session = primary.session().await;
    session.ensure_replication_role().await.unwrap();
    let slot = SlotName::of_instance("orders-2").unwrap();
    session.ensure_slot(&slot).await.unwrap();

    let mut standby = Server::place("orders-2", &authority);
    let (source, data_dir) = (primary.conninfo_for(&standby), standby.data_dir());
    let backup = BaseBackup { source: &source, slot: Some(&slot), data_dir: &data_dir, wal_dir: None };
    let said = clone(&backup, &standby.installation).await.unwrap();
    let seen: Vec<_> = said.lines().filter_map(basebackup::progress).map(|progress| progress.percent()).collect();
    assert!(seen.is_sorted() && seen.last() == Some(&100), "{seen:?}");

    standby.follow(&primary);
    signal::set(&standby.data_dir(), StartAs::Standby).unwrap();
    for _ in 0..2 {
        standby.start().await;
        let there = standby.session().await;
        eventually("it streams", || async { there.state().await.unwrap().receiver.is_some_and(|r| r.streaming) }).await;
        session.ensure_database(&format!("db{}", standby.pid()), SUPERUSER).await.unwrap();
        let written = session.state().await.unwrap().written;
        eventually("it has replayed", || async { there.state().await.unwrap().replayed >= written }).await;
        let state = there.state().await.unwrap();
        assert!(state.in_recovery && state.written.is_none());
        assert_eq!(state.timeline, Timeline(1));
        assert_eq!(state.receiver.unwrap().slot.as_deref(), Some(slot.as_str()));
        eventually("the primary sees it", || async {
            let standbys = session.standbys().await.unwrap();
            standbys.len() == 1 && standbys[0].streaming && standbys[0].application_name == "orders-2"
        })
        .await;
        assert!(session.drop_slot(&slot).await.is_err(), "a slot in use stays");
        standby.stop().await;
        let stopped = control::read(&standby.installation, &standby.data_dir()).await.unwrap();
        assert_eq!(stopped.state, control::State::ShutDownInRecovery);
        assert!(stopped.min_recovery.is_some());
    }
}

#[tokio::test]
async fn a_clone_that_fails_says_why() {
    let authority = Authority::new();
    let nobody = Server::place("orders-1", &authority);
    let standby = Server::place("orders-2", &authority);
    let (source, data_dir) = (nobody.conninfo_for(&standby), standby.data_dir());
    let slot = SlotName::of_instance("orders-2").unwrap();
    let backup = BaseBackup { source: &source, slot: Some(&slot), data_dir: &data_dir, wal_dir: None };
    let error = clone(&backup, &standby.installation).await.unwrap_err();
    assert!(error.contains("Connection refused"), "{error}");
}

#[tokio::test]
async fn nothing_is_cloned_over_what_is_there() {
    let authority = Authority::new();
    let (nobody, standby) = (Server::place("orders-1", &authority), Server::place("orders-2", &authority));
    let (source, data_dir) = (nobody.conninfo_for(&standby), standby.data_dir());
    std::fs::create_dir(&data_dir).unwrap();
    std::fs::write(data_dir.join("precious"), "").unwrap();
    let slot = SlotName::of_instance("orders-2").unwrap();
    let backup = BaseBackup { source: &source, slot: Some(&slot), data_dir: &data_dir, wal_dir: None };
    assert!(clone(&backup, &standby.installation).await.is_err());
    assert!(data_dir.join("precious").exists());
}

#[tokio::test]
async fn a_locale_that_is_not_there_is_named() {
    let server = Server::place("orders-1", &Authority::new());
    let spec = Initdb { locale: "tlh_QX.UTF-8".into(), ..Initdb::default() };
    let error = server.try_initdb(&spec, &password()).await.unwrap_err();
    assert!(matches!(error, InitdbError::NoSuchLocale { .. }), "{error}");
    assert!(error.to_string().contains("tlh_QX.UTF-8"), "{error}");
}

#[tokio::test]
async fn a_server_that_hangs_is_noticed() {
    let mut primary = Server::initdb("orders-1", &Authority::new(), &password()).await;
    primary.start().await;
    let socket = primary.settings.socket_dir.path();
    let deadline = std::time::Duration::from_millis(300);
    let session = Session::local(socket, PORT, POSTGRES_DATABASE, deadline).await.unwrap();
    let error = session.run_script("select pg_sleep(60)").await.unwrap_err();
    // Who gives up first, server or client, is a matter of microseconds.
    let given_up = matches!(error, SqlError::Deadline { .. }) && !session.is_usable();
    let cancelled = error.code() == Some(&SqlState::QUERY_CANCELED);
    assert!(given_up || cancelled, "{error}");
}
