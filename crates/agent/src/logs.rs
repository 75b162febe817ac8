//! PostgreSQL's log: onto standard output as JSON lines, and the last complaints kept, because they are the best answer to
//! "why is it down" and "why doesn't it stream".

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwether_postgres::log::{self, Level, Record};
use bellwether_runtime::telemetry;
use tokio::io::AsyncRead;
use tokio::time::Instant;

/// The background process that fetches WAL on a standby, as the log calls it.
const WAL_RECEIVER: &str = "walreceiver";

/// What a standby says at each attempt to find more WAL.
const WAITING: &str = "waiting for WAL to become available";

/// What a leader says that no longer has the WAL that is asked for.
const REMOVED: &str = "has already been removed";

/// What PostgreSQL last complained about.
#[derive(Clone, Debug, Default)]
pub struct Complaints {
    last: Arc<Mutex<Last>>,
}

#[derive(Debug, Default)]
struct Last {
    fatal: Option<String>,
    streaming: Option<String>,
    removed: Option<Instant>,
}

impl Complaints {
    /// Forgets everything: PostgreSQL starts.
    pub fn forget(&self) {
        *self.last() = Last::default();
    }
    /// Why it ended or didn't start.
    pub fn fatal(&self) -> Option<String> {
        self.last().fatal.clone()
    }
    /// Why it doesn't stream.
    pub fn streaming(&self) -> Option<String> {
        self.last().streaming.clone()
    }

    /// When it last said that the leader no longer has the WAL that it asks for.
    pub fn removed(&self) -> Option<Instant> {
        self.last().removed
    }

    /// Something that the server itself could not say.
    pub fn say(&self, why: String) {
        self.last().fatal = Some(why);
    }

    fn note(&self, record: &Record) {
        if record.level < Level::Error {
            return;
        }
        let mut last = self.last();
        match record.backend.as_deref() {
            Some(WAL_RECEIVER) => {
                if record.message.contains(REMOVED) {
                    last.removed = Some(Instant::now());
                }
                last.streaming = Some(first_line(&record.message));
            }
            // A client's mistakes are the client's; what concerns the server comes from its own processes.
            Some("client backend") => {}
            _ if record.level >= Level::Fatal => last.fatal = Some(first_line(&record.message)),
            _ => {}
        }
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// libpq adds advice in further lines, which a report has no room for.
fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().to_owned()
}

/// Forwards the log until it ends.
pub async fn forward(stderr: impl AsyncRead + Unpin, complaints: Complaints) {
    let mut waiting = false;
    let forwarded = log::pump(stderr, |record| {
        complaints.note(&record);
        // Ten times a second while there is nobody to receive from: once says it.
        let waits = record.message.starts_with(WAITING);
        if !(waits && waiting) {
            print(&record);
        }
        waiting = waits;
    });
    if let Err(error) = forwarded.await {
        tracing::warn!(%error, "PostgreSQL's log can't be read");
    }
}

/// One line.
fn print(record: &Record) {
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(record) else { return };
    let mut line = serde_json::Map::from_iter([("logger".to_owned(), "postgres".into())]);
    line.extend(fields);
    telemetry::line(&serde_json::Value::Object(line).to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(level: Level, backend: &str, message: &str) -> Record {
        Record { level, backend: Some(backend.into()), message: message.into(), ..Record::default() }
    }

    #[test]
    fn the_last_complaint_of_the_right_process_is_kept() {
        let complaints = Complaints::default();
        complaints.note(&record(Level::Fatal, WAL_RECEIVER, "could not connect\n\tIs the server running?"));
        complaints.note(&record(Level::Fatal, "postmaster", "could not bind"));
        complaints.note(&record(Level::Fatal, "client backend", "password authentication failed"));
        complaints.note(&record(Level::Log, "postmaster", "ready"));
        assert_eq!(complaints.streaming().as_deref(), Some("could not connect"));
        assert_eq!(complaints.fatal().as_deref(), Some("could not bind"));
        complaints.forget();
        assert_eq!(complaints.fatal(), None);
    }
}
