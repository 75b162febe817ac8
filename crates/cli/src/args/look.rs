//! The command line of what looks at clusters, and changes nothing.

use clap::{Args, ValueEnum};

use super::Where;

/// How something is printed for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// Options of `status`.
#[derive(Clone, Debug, Default, Args)]
pub struct Status {
    /// The cluster [default: a line for each of the namespace]
    pub cluster: Option<String>,
    /// The clusters of all namespaces
    #[arg(short = 'A', long, conflicts_with_all = ["cluster", "namespace"])]
    pub all_namespaces: bool,
    /// For programs; docs/cli.md says what is in it
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<Format>,
    /// Where the cluster is.
    #[command(flatten)]
    pub place: Where,
}
