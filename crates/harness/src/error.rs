//! What can go wrong, with what a person needs to see next: the component and the tail of its log.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why the harness gave up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program that should have done one thing failed, or took too long.
    #[error("{command}: {outcome}\n{output}")]
    Command {
        /// What ran.
        command: String,
        /// How it ended.
        outcome: String,
        /// The last lines that it printed.
        output: String,
    },
    /// A long-running component died, or never became ready.
    #[error("{component} {problem}\nlast lines of {}:\n{tail}", log.display())]
    Component {
        /// Its name, as in `harness status`.
        component: String,
        /// What happened.
        problem: String,
        /// Where it logs.
        log: PathBuf,
        /// The end of that log.
        tail: String,
    },
    /// A file or directory can't be used.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Something that was waited for did not come.
    #[error("after {} s still waiting for {what}: {last}", waited.as_secs())]
    Deadline {
        /// The condition.
        what: String,
        /// For how long.
        waited: Duration,
        /// What was seen last.
        last: String,
    },
    /// The harness won't, and says what to do instead.
    #[error("{0}")]
    Refused(String),
    /// A certificate can't be made.
    #[error("certificates: {0}")]
    Certificate(#[from] rcgen::Error),
}

impl Error {
    /// For `map_err` on operations on `path`.
    pub fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Error + '_ {
        move |source| Error::File { path: path.to_owned(), source }
    }
}

/// The last `lines` of a text.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
