//! Servers that don't answer: frozen ones, and ones whose commits wait for a standby that isn't there.

use std::path::Path;
use std::time::Duration;

use probe::history::{self, Event, Kind, Outcome};
use probe::{Deadlines, Probe, Settings};
use tokio::time::timeout;

use crate::server::{PATIENCE, Server, eventually, settings};

/// The longest that a stop may take: the write in flight, with each of its deadlines, on a busy machine.
const STOPS_WITHIN: Duration = Duration::from_secs(20);

fn events(path: &Path) -> Vec<Event> {
    history::read(path).map(|history| history.events).unwrap_or_default()
}

#[tokio::test]
async fn a_frozen_server_does_not_hang_the_probe() {
    let server = Server::start("frozen").await;
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("history");
    let settings = Settings { history: Some(path.clone()), ..settings(server.access()) };
    let probe = Probe::start(settings).await.unwrap();
    assert!(probe.more_acknowledged(20, PATIENCE).await);
    server.freeze();
    let silence = |event: &Event| match event {
        Event::Write(write) => match &write.outcome {
            Outcome::Refused { why } | Outcome::Ambiguous { why } => why.contains("no answer in"),
            Outcome::Acknowledged => false,
        },
        _ => false,
    };
    eventually("deadlines are missed", async || events(&path).iter().any(silence)).await;
    let history = timeout(STOPS_WITHIN, probe.stop()).await.expect("it stops while the server is frozen").unwrap();
    server.thaw();
    assert_eq!(server.judge(&history).await.lies, []);
}

#[tokio::test]
async fn a_session_that_was_frozen_is_held_on_to_and_its_late_answer_is_recorded() {
    let server = Server::start("thawed").await;
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("history");
    let history = Some(path.clone());
    let probe = Probe::start(Settings { sessions: 4, history, ..settings(server.access()) }).await.unwrap();
    assert!(probe.more_acknowledged(20, PATIENCE).await);
    server.freeze();
    let set_aside = |event: &Event| matches!(event, Event::Writer(writer) if writer.kind == Kind::Lingering);
    eventually("sessions are set aside", async || events(&path).iter().any(set_aside)).await;
    server.thaw();
    let lingering = || {
        let events = events(&path);
        let of = |event: &Event| match event {
            Event::Writer(writer) if writer.kind == Kind::Lingering => Some(writer.writer),
            _ => None,
        };
        let writers: Vec<_> = events.iter().filter_map(of).collect();
        let wrote = |event: &Event| matches!(event, Event::Write(write) if writers.contains(&write.writer) && write.outcome.is_acknowledged());
        events.iter().any(wrote)
    };
    eventually("an old session writes again", async || lingering()).await;
    let history = probe.stop().await.unwrap();
    let verdict = server.judge(&history).await;
    assert_eq!(verdict.lies, []);
}

#[tokio::test]
async fn a_commit_whose_wait_for_a_standby_was_cancelled_is_ambiguous() {
    let server = Server::start("alone").await;
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("history");
    let deadlines = Deadlines { commit: PATIENCE, ..Deadlines::default() };
    let quiet = "alter role app set client_min_messages = error";
    server.admin(quiet).await;
    let settings = Settings { new: 0, deadlines, history: Some(path.clone()), ..settings(server.access()) };
    let probe = Probe::start(settings).await.unwrap();
    assert!(probe.more_acknowledged(20, PATIENCE).await);
    server.set("synchronous_standby_names", "nobody").await;
    let warned = |event: &Event| match event {
        Event::Write(write) => matches!(&write.outcome, Outcome::Ambiguous { why } if why.contains("(01000)")),
        _ => false,
    };
    let cancel = "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'";
    eventually("a cancelled wait is ambiguous", async || {
        server.try_admin(cancel).await.unwrap();
        events(&path).iter().any(warned)
    })
    .await;
    let acknowledged = probe.acknowledged();
    let terminate = "select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'";
    let broken = |event: &Event| match event {
        Event::Write(write) => matches!(&write.outcome, Outcome::Ambiguous { why } if !why.contains("(01000)")),
        _ => false,
    };
    eventually("an ended wait is ambiguous", async || {
        server.try_admin(terminate).await.unwrap();
        events(&path).iter().any(broken)
    })
    .await;
    assert_eq!(probe.acknowledged(), acknowledged, "nothing is acknowledged while no standby confirms");
    server.set("synchronous_standby_names", "").await;
    assert!(probe.more_acknowledged(5, PATIENCE).await);
    let history = probe.stop().await.unwrap();
    assert_eq!(server.judge(&history).await.lies, []);
}
