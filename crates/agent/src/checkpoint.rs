//! Checkpoints that we ask for: what a planned stop is prepared with, while clients still write; and what lets go of log where room is short.
//!
//! Before a stop: a shutdown writes one, and what is written before it begins need not be written while nobody can write. Then a new segment of
//! the log: those who follow the next leader are sent the segment in which its timeline begins from the start, up to 16 MiB, before the
//! first commit can be acknowledged. Where they can't be had in time the stop goes on without, and takes longer.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bellwether_core::contract::POSTGRES_PORT;
use bellwether_core::wal::Lsn;
use bellwether_postgres::sql::{POSTGRES_DATABASE, Session, SqlError, Standby};

const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// So many copies of the present segment, one for each promotion since it was begun, are no burden.
const COPIES: usize = 2;

fn files(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// How often the same segment is there at most: once for each timeline that wrote it. The first eight digits of its name are the timeline.
fn copies(names: &[String]) -> usize {
    let mut numbers = BTreeMap::new();
    for number in names.iter().filter(|name| name.len() == 24).filter_map(|name| name.get(8..)) {
        *numbers.entry(number).or_insert(0) += 1;
    }
    numbers.into_values().max().unwrap_or(0)
}

/// Until every standby that streams has the log up to here.
async fn confirmed(session: &Session, end: Lsn) -> Result<(), SqlError> {
    let lacks = |standby: &Standby| standby.streaming && standby.flushed < Some(end);
    while session.standbys().await?.iter().any(lacks) {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

/// Lets the server behind this socket remove log that it does not need any more; a primary's data directory is given.
pub(crate) async fn let_go_of_log(socket: &Path, primary: Option<&Path>, within: Duration) {
    let let_go = async {
        let session = Session::local(socket, POSTGRES_PORT, POSTGRES_DATABASE, within).await?;
        if primary.is_some_and(|pgdata| copies(&files(&pgdata.join("pg_wal"))) > COPIES) {
            session.end_segment().await?;
        }
        session.checkpoint().await
    };
    match tokio::time::timeout(within, let_go).await {
        Ok(Ok(())) => tracing::info!("little room: log that is not needed was let go"),
        Ok(Err(error)) => tracing::warn!(%error, "little room, and no checkpoint"),
        Err(_) => tracing::warn!(?within, "little room, and a checkpoint takes too long"),
    }
}

/// Prepares the server behind this socket, or waits no longer.
pub(crate) async fn before_stopping(socket: &Path, within: Duration) {
    let prepared = async {
        let session = Session::local(socket, POSTGRES_PORT, POSTGRES_DATABASE, within).await?;
        session.checkpoint().await?;
        // Commits wait behind what is left of a segment: better now than while nobody can write.
        match session.begin_segment().await? {
            Some(begins) => confirmed(&session, begins).await,
            None => Ok(()),
        }
    };
    match tokio::time::timeout(within, prepared).await {
        Ok(Ok(())) => tracing::info!("made a checkpoint before the stop"),
        Ok(Err(error)) => tracing::warn!(%error, "no checkpoint before the stop"),
        Err(_) => tracing::warn!(?within, "the checkpoint before the stop takes too long"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_timelines_wrote_of_one_segment_are_copies() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let log = ["000000010000000000000003", "000000010000000000000004", "000000020000000000000004", "00000002.history"];
        // Files that are kept to be written over have names of segments to come.
        let recycled = ["000000020000000000000005"];
        assert_eq!(copies(&names(&[&log[..], &recycled].concat())), 2);
        assert_eq!(copies(&[]), 0);
    }
}
