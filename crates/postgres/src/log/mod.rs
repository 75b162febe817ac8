//! PostgreSQL's log, as records.
//!
//! PostgreSQL's own JSON goes only through its logging collector: a further process that must be outlived, and files (or
//! pipes by name) that somebody must clean. What is written before it runs, and what a dying server writes last, goes to
//! stderr all the same. So everything goes to stderr, one way for the first line and the last, nothing on disk, and is
//! parsed here. PostgreSQL writes each message with its details in one `write`, which a pipe keeps in one piece up to 4 KiB,
//! and Linux beyond that as long as the pipe has room: who starts PostgreSQL gives it a large pipe and reads it at once.
//!
//! Must never happen: that a client forges a record. Message lines after the first begin with a tab, which PostgreSQL puts
//! there. But a user name, taken from anybody who can connect, is put into the prefix as it is, line breaks included. So the
//! fields that clients choose come last in the prefix and have a fixed width, and are counted, not searched.

mod parser;

use std::io;
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt as _};

pub use parser::LineParser;

/// The value of `log_line_prefix` that [`LineParser`] reads: time, process, SQLSTATE, kind of process, client's address; then, in
/// fixed width (the longest name that PostgreSQL has), user, database and application.
pub const LINE_PREFIX: &str = "bw1|%m|%p|%e|%b|%r|%-63u|%-63d|%-63a|";

/// How long the last line may wait for a continuation. PostgreSQL writes all of a message at once, so what follows later is
/// something else.
const IDLE: Duration = Duration::from_millis(50);

/// One message of PostgreSQL's, or a line that something else wrote to its stderr.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Record {
    /// When (RFC 3339, UTC); `None` for what PostgreSQL did not write itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// How bad.
    pub level: Level,
    /// The process that wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// What kind of process: `client backend`, `walreceiver`, `checkpointer` …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Where the client is: `10.0.0.7(51234)` or `[local]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// The client's role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The client's database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// What the client calls itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application_name: Option<String>,
    /// The five-character code, where it says anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sqlstate: Option<String>,
    /// What happened.
    pub message: String,
    /// More about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The query that PostgreSQL itself had made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// Where in a function or in replay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Where in PostgreSQL's source, with `log_error_verbosity = verbose`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// The stack, with `backtrace_functions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backtrace: Option<String>,
    /// The client's statement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statement: Option<String>,
    /// Whether this goes on where the record before it had grown too large to keep in memory.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub continued: bool,
}

/// How bad a message is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// For developers.
    Debug,
    /// For the administrator.
    #[default]
    Log,
    /// What the client asked to know.
    Info,
    /// For the client.
    Notice,
    /// Something may be wrong.
    Warning,
    /// A statement failed.
    Error,
    /// A session or the start of the server failed.
    Fatal,
    /// The server crashed on purpose.
    Panic,
}

/// Reads a server's stderr to its end and hands over each record as soon as it is whole.
pub async fn pump(mut stderr: impl AsyncRead + Unpin, mut emit: impl FnMut(Record)) -> io::Result<()> {
    let mut parser = LineParser::default();
    let mut chunk = vec![0; 16 * 1024];
    loop {
        let read = stderr.read(&mut chunk);
        let length = if parser.is_pending() {
            match tokio::time::timeout(IDLE, read).await {
                Ok(length) => length?,
                Err(_) => {
                    parser.flush().into_iter().for_each(&mut emit);
                    // What is left now is half a line: nothing more to do before the rest of it comes.
                    stderr.read(&mut chunk).await?
                }
            }
        } else {
            read.await?
        };
        if length == 0 {
            parser.finish().into_iter().for_each(&mut emit);
            return Ok(());
        }
        parser.push(&chunk[..length]).into_iter().for_each(&mut emit);
    }
}

#[cfg(test)]
mod tests;
