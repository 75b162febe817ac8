//! The command line of what leads into a cluster: its logs, a session, and the shell's completion.

use std::ffi::OsString;

use clap::Args;
use clap_complete::Shell;

use super::Where;

/// Options of `logs`.
#[derive(Clone, Debug, Args)]
pub struct Logs {
    /// The cluster, or one instance of it, such as demo-2
    pub of: String,
    /// Go on as the log grows
    #[arg(short, long)]
    pub follow: bool,
    /// Begin with so many of the last lines of each instance
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub tail: i64,
    /// As it was written: a JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Where the cluster is.
    #[command(flatten)]
    pub place: Where,
}

/// Options of `psql`.
#[derive(Clone, Debug, Args)]
pub struct Psql {
    /// The cluster
    pub cluster: String,
    /// Arguments for psql, such as -- -c 'select 1'
    #[arg(last = true, value_name = "ARGUMENT")]
    pub arguments: Vec<OsString>,
    /// This instance [default: the primary]
    #[arg(long, value_name = "INSTANCE")]
    pub instance: Option<String>,
    /// Where the cluster is.
    #[command(flatten)]
    pub place: Where,
}

/// Options of `completion`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Completion {
    /// The shell
    pub shell: Shell,
}
