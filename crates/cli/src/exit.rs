//! What the program's exit code means. Scripts depend on it, so it is documented in the help.

use std::process::ExitCode;

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done, or stopped in order.
    Ok = 0,
    /// A check failed, or the role ended with an error.
    Failed = 1,
    /// It could not start: bad manifest, busy directory or port, no PostgreSQL.
    CannotStart = 3,
    /// Not Ready: now, or not within the time given.
    NotReady = 4,
    /// Something of the log is missing in the store.
    Gaps = 5,
    /// Something is wrong with a cluster.
    Findings = 6,
}

/// The section of the help.
pub const HELP: &str = "Exit codes:
  0  done, or stopped in order
  1  a check failed, or the role ended with an error
  2  the command line can't be understood
  3  it could not start: bad manifest, directory or port in use, no PostgreSQL
  4  not Ready: `status` now, `up` and `try` within the time given
  5  `wal gaps`: something of the log is missing in the store
  6  `doctor`: something is wrong";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}
