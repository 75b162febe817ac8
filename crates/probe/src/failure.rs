//! Why the probe could not do its work, and what the exit code says.

use std::process::ExitCode;

use probe::access::AccessError;
use probe::check::{CheckError, Conclusion};
use probe::history::HistoryError;
use probe::run::RunError;

/// Why it could not.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// There is no way in.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A history.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// Histories that can't be judged.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// Signals, the terminal, the runtime.
    #[error(transparent)]
    System(#[from] std::io::Error),
}

/// The exit code of a verdict.
pub fn code_of(conclusion: Conclusion) -> ExitCode {
    ExitCode::from(match conclusion {
        Conclusion::Truthful => 0,
        Conclusion::Lied => 1,
        Conclusion::Inconclusive => 3,
    })
}

/// The exit code of a failure of the probe's own.
pub const FAILED: u8 = 4;
