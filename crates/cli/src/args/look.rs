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

/// Options of `why`.
#[derive(Clone, Debug, Args)]
pub struct Why {
    /// The instance, such as demo-2
    pub instance: String,
    /// Where the cluster is.
    #[command(flatten)]
    pub place: Where,
}

/// Options of `events`.
#[derive(Clone, Debug, Args)]
pub struct Events {
    /// The cluster
    pub cluster: String,
    /// Only warnings
    #[arg(short, long)]
    pub warnings: bool,
    /// Where the cluster is.
    #[command(flatten)]
    pub place: Where,
}

/// Options of `plan`.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// The cluster
    pub cluster: String,
    /// Say why, of each step and of each wait
    #[arg(long)]
    pub explain: bool,
    /// Where the cluster is.
    #[command(flatten)]
    pub place: Where,
}

/// Options of `doctor`.
#[derive(Clone, Debug, Args)]
pub struct Doctor {
    /// The cluster [default: each of the namespace]
    pub cluster: Option<String>,
    /// Where the cluster is.
    #[command(flatten)]
    pub place: Where,
}
