//! Lies told with a single server: rows that go, come, or come twice behind the probe's back; and one that is told by somebody
//! between the two.

use std::time::Duration;

use probe::check::{Conclusion, Lie, Verdict};
use probe::history::{Event, Outcome};
use probe::{History, Probe, Settings, Target};

use crate::proxy::{self, Lying};
use crate::server::{PATIENCE, Server, settings};

/// A probe's history of some writes.
async fn written(settings: Settings) -> History {
    let probe = Probe::start(settings).await.unwrap();
    assert!(probe.more_acknowledged(40, PATIENCE).await, "only {} were acknowledged", probe.acknowledged());
    probe.stop().await.unwrap()
}

fn lied(verdict: &Verdict, is_it: impl Fn(&Lie) -> bool) {
    assert_eq!(verdict.conclusion, Conclusion::Lied, "{verdict:#?}");
    assert!(verdict.lies.iter().any(is_it), "{:#?}", verdict.lies);
}

#[tokio::test]
async fn an_honest_server_is_believed_and_each_record_says_where_it_was_written() {
    let server = Server::start("honest").await;
    let history = written(settings(server.access())).await;
    let verdict = server.judge(&history).await;
    assert_eq!(verdict.conclusion, Conclusion::Truthful, "{verdict:#?}");
    let system = server.try_admin("select system_identifier from pg_control_system()").await.unwrap().remove(0);
    for event in &history.events {
        let Event::Write(write) = event else { continue };
        if write.outcome != Outcome::Acknowledged {
            continue;
        }
        let place = write.server.as_ref().unwrap();
        assert_eq!(place.instance.as_deref(), Some("honest"));
        assert_eq!(place.address, Some(format!("{}:5432", server.address())));
        assert_eq!(place.system.to_string(), system);
        assert!(place.postmaster.is_some());
        assert_eq!((place.timeline.unwrap().0, place.term.unwrap().0), (1, 3));
        assert!(write.sent <= write.committing.unwrap() && write.committing.unwrap() <= write.answered);
    }
}

#[tokio::test]
async fn a_row_deleted_a_row_doubled_and_a_row_invented_are_each_caught() {
    let server = Server::start("forgetful").await;
    let history = written(settings(server.access())).await;
    let behind_its_back = async |sql: &str| drop(server.query("app", sql).await.unwrap());

    behind_its_back("insert into bellwether_probe select * from bellwether_probe where (writer, seq) = (1, 2)").await;
    lied(&server.judge(&history).await, |lie| matches!(lie, Lie::Duplicate { rows, .. } if rows.first[0].id.seq == 2));

    behind_its_back("delete from bellwether_probe where (writer, seq) = (1, 3)").await;
    lied(&server.judge(&history).await, |lie| matches!(lie, Lie::Lost { rows, .. } if rows.first[0].id.seq == 3));

    behind_its_back("insert into bellwether_probe select run, 1, 1000000 from bellwether_probe limit 1").await;
    lied(&server.judge(&history).await, |lie| matches!(lie, Lie::NeverWritten { rows, .. } if rows.count == 1));
}

#[tokio::test]
async fn a_refused_row_that_is_there_all_the_same_is_caught() {
    let server = Server::start("undecided").await;
    let probe = Probe::start(Settings { sessions: 1, ..settings(server.access()) }).await.unwrap();
    assert!(probe.more_acknowledged(20, PATIENCE).await);
    // Only sessions that begin after it take this over: the new connections'.
    server.admin("alter database app set default_transaction_read_only = on").await;
    assert!(probe.more_acknowledged(20, PATIENCE).await);
    let history = probe.stop().await.unwrap();
    let refused = history.events.iter().rev().find_map(|event| match event {
        Event::Write(write) => match &write.outcome {
            Outcome::Refused { why } if why.contains("25006") => Some((write.writer.0, write.seq)),
            _ => None,
        },
        _ => None,
    });
    let (writer, seq) = refused.expect("a new connection was refused");
    assert_eq!(server.judge(&history).await.lies, []);
    let insert = format!(
        "set transaction_read_only = off; insert into bellwether_probe select run, {writer}, {seq} from bellwether_probe limit 1"
    );
    server.query("app", &insert).await.unwrap();
    lied(&server.judge(&history).await, |lie| matches!(lie, Lie::RefusedButThere { rows, .. } if rows.count == 1));
}

#[tokio::test]
async fn an_acknowledgement_that_somebody_else_gave_is_caught() {
    let server = Server::start("believed").await;
    let liar = proxy::answering_commit_itself(server.address(), Lying::Always).await;
    let access = server.access().through(Target::at("proxy", liar.ip(), liar.port()));
    let history = written(Settings { every_new: Duration::from_millis(20), ..settings(access) }).await;
    let verdict = server.judge(&history).await;
    lied(&verdict, |lie| matches!(lie, Lie::Lost { rows, .. } if rows.count == verdict.writes.acknowledged));
}

#[tokio::test]
async fn one_false_acknowledgement_among_honest_ones_is_caught() {
    let server = Server::start("mostly-honest").await;
    let liar = proxy::answering_commit_itself(server.address(), Lying::Once).await;
    let access = server.access().through(Target::at("proxy", liar.ip(), liar.port()));
    let history = written(settings(access)).await;
    let verdict = server.judge(&history).await;
    lied(&verdict, |lie| matches!(lie, Lie::Lost { rows, .. } if rows.count == 1));
    assert_eq!(verdict.lies.len(), 1, "{:#?}", verdict.lies);
}
