//! What a planned stop is prepared with, while clients still write.
//!
//! A checkpoint: a shutdown writes one, and what is written before it begins need not be written while nobody can write. Then a new segment of
//! the log: those who follow the next leader are sent the segment in which its timeline begins from the start, up to 16 MiB, before the
//! first commit can be acknowledged. Where they can't be had in time the stop goes on without, and takes longer.

use std::path::Path;
use std::time::Duration;

use bellwether_core::contract::POSTGRES_PORT;
use bellwether_core::wal::Lsn;
use bellwether_postgres::sql::{POSTGRES_DATABASE, Session, SqlError, Standby};

const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Until every standby that streams has the log up to here.
async fn confirmed(session: &Session, end: Lsn) -> Result<(), SqlError> {
    let lacks = |standby: &Standby| standby.streaming && standby.flushed < Some(end);
    while session.standbys().await?.iter().any(lacks) {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
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
