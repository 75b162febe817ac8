//! A checkpoint before a planned stop: a shutdown writes one, and what is written before it begins need not be written while nobody can
//! write. Where it can't be had in time the stop goes on without, and takes longer.

use std::path::Path;
use std::time::Duration;

use bellwether_core::contract::POSTGRES_PORT;
use bellwether_postgres::sql::{POSTGRES_DATABASE, Session};

/// Makes one on the server behind this socket, or waits no longer.
pub(crate) async fn before_stopping(socket: &Path, within: Duration) {
    let made = async { Session::local(socket, POSTGRES_PORT, POSTGRES_DATABASE, within).await?.checkpoint().await };
    match tokio::time::timeout(within, made).await {
        Ok(Ok(())) => tracing::info!("made a checkpoint before the stop"),
        Ok(Err(error)) => tracing::warn!(%error, "no checkpoint before the stop"),
        Err(_) => tracing::warn!(?within, "the checkpoint before the stop takes too long"),
    }
}
