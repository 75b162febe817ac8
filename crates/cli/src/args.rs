//! The command line.

mod look;
mod reach;
mod restore;

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use bellwether_backup::retention::Policy;
use bellwether_embedded::range::Range;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::exit;

pub use look::{Doctor, Events, Format, Plan, Status, Why};
pub use reach::{Completion, Logs, Psql};
pub use restore::{Gaps, Restore, Source, Target, Verify, Wal, Which};

/// The file's name by which kubectl finds us as a plugin.
const PLUGIN: &str = "kubectl-bellwether";

const EXAMPLES: &str = "Begin here:
  bellwether try                     a three-instance PostgreSQL on this machine, checked, measured, and gone again
  bellwether up                      the same, and it stays
  bellwether up -f my-cluster.yaml   your own";

/// PostgreSQL with replicas, run the way a careful DBA would: on Kubernetes, or on this machine alone.
#[derive(Debug, Parser)]
#[command(name = "bellwether", version, after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", exit::HELP))]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    max_term_width = 110
)]
pub struct Cli {
    /// What to be.
    #[command(subcommand)]
    pub role: Role,
}

impl Cli {
    /// The command line of this process; or its end, with what is wrong with it.
    pub fn read() -> Self {
        let called = std::env::args_os().next().unwrap_or_default();
        let matches = Self::command().bin_name(name(&called)).get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

/// What people typed to get here: kubectl starts its plugins by their file's name.
fn name(called: &OsStr) -> &'static str {
    let file = Path::new(called).file_name().unwrap_or_default();
    if file == PLUGIN { "kubectl bellwether" } else { "bellwether" }
}

/// The roles.
#[derive(Debug, Subcommand)]
#[command(subcommand_help_heading = "Roles")]
pub enum Role {
    /// Start a PostgreSQL cluster on this machine, without Kubernetes
    ///
    /// One process serves a Kubernetes API on loopback, runs the operator, and starts every pod as local processes: real agents,
    /// real PostgreSQL. Ctrl-C stops everything in order; the next `up` brings the same clusters back.
    #[command(after_long_help = exit::HELP)]
    Up(Up),
    /// Start a cluster in a temporary directory, check that it replicates, measure it, and stop
    #[command(after_long_help = exit::HELP)]
    Try(Try),
    /// Show how clusters are: instances, lag, what commits wait for, backups, what is under way
    ///
    /// The agents are asked directly, so it is as fresh as it looks; what could not be asked is said, with why. Changes nothing. Without a cluster: a line for
    /// each.
    #[command(after_long_help = exit::HELP)]
    Status(Status),
    /// Say what one instance is doing, why, what it waits on, and which runbook is for that
    #[command(after_long_help = exit::HELP)]
    Why(Why),
    /// Show what happened to a cluster, its pods, volumes and backups, in order, each piece of news once
    #[command(after_long_help = exit::HELP)]
    Events(Events),
    /// Say what the operator would do about a cluster now, or why nothing
    ///
    /// Observes and plans as the operator does, with your rights, and writes nothing.
    #[command(after_long_help = exit::HELP)]
    Plan(Plan),
    /// Go through the checklist of an incident: who leads, who operates, certificates, disks, replication, archive, backups
    ///
    /// Each finding with the runbook that is for it. Changes nothing.
    #[command(after_long_help = exit::HELP)]
    Doctor(Doctor),
    /// Let no rollout and no scale-down begin a new step, until `resume`
    ///
    /// Elections, failover and repairs go on: they are what keeps the cluster up.
    #[command(after_long_help = exit::HELP)]
    Pause(Pause),
    /// Let rollouts and scale-downs go on
    #[command(after_long_help = exit::HELP)]
    Resume(Pause),
    /// Let another instance of a cluster lead, without losing a commit
    ///
    /// The primary shuts down, makes sure that the other has everything, and hands over; writes wait for a fraction of a second. It
    /// does not begin when no standby streams closely, and goes on leading if the other fails.
    #[command(after_long_help = exit::HELP)]
    Switchover(Switchover),
    /// Make an instance lead that may lack acknowledged commits, when those are lost for good who would know
    ///
    /// For nothing else: a primary that is lost is replaced by itself, and `switchover` loses nothing. Shows what is known and who is
    /// missing, and asks for the cluster's name. Refused while somebody leads.
    #[command(after_long_help = exit::HELP)]
    Failover(Failover),
    /// Stop PostgreSQL on an instance, and keep it stopped until `unfence`
    ///
    /// For an instance that must serve nobody: its disk is suspect, its machine is to be looked at. Its agent goes on, and its volume is
    /// not touched. A primary hands over first if a standby can take over. Shows what will happen, and asks.
    #[command(after_long_help = exit::HELP)]
    Fence(Fence),
    /// Let PostgreSQL run again on an instance that was fenced
    #[command(after_long_help = exit::HELP)]
    Unfence(Unfence),
    /// Take backups of a cluster, and remove old ones
    #[command(subcommand, after_long_help = exit::HELP)]
    Backup(Backup),
    /// List backups: those of a namespace, or with --from all that an object store holds, without Kubernetes
    #[command(after_long_help = exit::HELP)]
    Backups(Backups),
    /// Get a database back from an object store, to any moment, without Kubernetes
    ///
    /// Unpacks a backup into a directory, and writes down the recovery that PostgreSQL does when it is started there. Starts nothing. What is known not to lead to the target is
    /// refused before anything is made.
    #[command(after_long_help = exit::HELP)]
    Restore(Restore),
    /// Look at the log in an object store
    #[command(subcommand, after_long_help = exit::HELP)]
    Wal(Wal),
    /// Open a session with a cluster as the application's user, by psql
    ///
    /// It goes to the primary, directly or through the API server as kubectl port-forward does, over TLS, with the password from the Secret.
    #[command(after_long_help = exit::HELP)]
    Psql(Psql),
    /// Show the log of an instance, or of all of a cluster
    #[command(after_long_help = exit::HELP)]
    Logs(Logs),
    /// Print a script that completes this command line in a shell
    Completion(Completion),
    /// Inside a cluster: run the operator, against the API that KUBECONFIG or the pod's service account names
    Operator(Operator),
    /// Inside a cluster: run PostgreSQL, as PID 1 of a database pod; configured by its environment
    Agent,
    /// Inside a cluster: copy this binary into a directory, as the init container of a database pod
    #[command(name = "install-agent", visible_alias = "install")]
    InstallAgent(InstallAgent),
    /// Print the version
    Version,
}

/// Where a home is; the same for `up` and `try`.
#[derive(Clone, Debug, Default, Args)]
pub struct Place {
    /// Where the API listens [default: port 6443 on the first address of the range]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Loopback range for the addresses of pods and Services [default: the first free one; kept in the data directory]
    #[arg(long, value_name = "127.N")]
    pub range: Option<Range>,
    /// The account that PostgreSQL runs as when you are root [default: postgres, else nobody]
    #[arg(long, value_name = "USER")]
    pub postgres_user: Option<String>,
}

/// Options of `switchover`.
#[derive(Clone, Debug, Args)]
pub struct Switchover {
    /// The cluster
    pub cluster: String,
    /// The instance that is to lead [default: the standby that lacks least]
    #[arg(long, value_name = "INSTANCE")]
    pub to: Option<String>,
    /// Where the cluster is.
    #[command(flatten)]
    pub place: Where,
}

/// Where a cluster is.
#[derive(Clone, Debug, Default, Args)]
pub struct Where {
    /// The cluster's namespace [default: the context's]
    #[arg(short = 'n', long)]
    pub namespace: Option<String>,
    /// The context in KUBECONFIG [default: the current one]
    #[arg(long)]
    pub context: Option<String>,
}

/// Options of `failover`.
#[derive(Clone, Debug, Args)]
pub struct Failover {
    /// The cluster
    pub cluster: String,
    /// The instance that is to lead [default: the one with the longest log of those who answer]
    #[arg(long, value_name = "INSTANCE")]
    pub to: Option<String>,
    /// Lead though it is not certain that nothing is lost
    #[arg(long)]
    pub force: bool,
    /// Acknowledged commits may be lost for good
    #[arg(long)]
    pub accept_data_loss: bool,
    /// Don't ask
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// Where the cluster is.
    #[command(flatten)]
    pub place: Where,
}

/// What can be done about backups.
#[derive(Debug, Subcommand)]
pub enum Backup {
    /// Take a base backup now, and wait until it is complete
    ///
    /// It is complete when all of it is in the store, with every segment of the log that it needs: each is read back. With --verify it is then
    /// restored in a pod of its own and checked, and this waits for that too.
    Now(BackupNow),
    /// Remove from an object store what is not to be kept, without Kubernetes
    ///
    /// Clusters do that by themselves, by spec.backup.retention. This is for the archive of one that is gone, and with --dry-run to see what
    /// a policy would remove: backups, and the log that no kept backup needs. The newest verified backup always stays. Shows what goes, and
    /// asks for the cluster's name.
    Prune(Prune),
    /// Restore a backup apart from everything, without Kubernetes, and have PostgreSQL look whether it is one
    ///
    /// Every file against PostgreSQL's manifest, the recovery to the backup's end, tables and indexes, the checksums of every page. That it was found good is written beside it into
    /// the store; the restored copy is removed.
    Verify(Verify),
}

/// Options of `backup now`.
#[derive(Clone, Debug, Args)]
pub struct BackupNow {
    /// The cluster
    pub cluster: String,
    /// Restore it apart from everything once it is complete, and check it [default: as the cluster's spec.backup.verification.policy says]
    #[arg(long)]
    pub verify: bool,
    /// Ask for it, and don't wait
    #[arg(long)]
    pub no_wait: bool,
    /// Where the cluster is.
    #[command(flatten)]
    pub place: Where,
}

/// Options of `backup prune`.
#[derive(Clone, Debug, Args)]
pub struct Prune {
    /// The cluster, or the directory of its archive as `bellwether backups --from` shows it [default: the only one in the store]
    pub cluster: Option<String>,
    /// The store, such as s3://bucket/path; credentials come from the environment (AWS_*, GOOGLE_*, AZURE_*)
    #[arg(long, value_name = "URL")]
    pub from: String,
    /// What is kept, as in spec.backup.retention: 7d, '10 backups', '7d and 10 backups'
    #[arg(long, required_unless_present = "keep")]
    pub retention: Option<Policy>,
    /// Keep so many of the newest backups, too
    #[arg(long, value_name = "N")]
    pub keep: Option<NonZeroUsize>,
    /// Show what would go, and remove nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Don't ask
    #[arg(short = 'y', long)]
    pub yes: bool,
}

/// Options of `backups`.
#[derive(Clone, Debug, Args)]
pub struct Backups {
    /// Only those of this cluster
    pub cluster: Option<String>,
    /// What is in this store, such as s3://bucket/path; credentials come from the environment (AWS_*, GOOGLE_*, AZURE_*)
    #[arg(long, value_name = "URL", conflicts_with_all = ["namespace", "context"])]
    pub from: Option<String>,
    /// Where the clusters are.
    #[command(flatten)]
    pub place: Where,
}

/// Options of `fence`.
#[derive(Clone, Debug, Args)]
pub struct Fence {
    /// The instance, such as demo-2
    pub instance: String,
    /// Don't ask
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// Where the cluster is.
    #[command(flatten)]
    pub place: Where,
}

/// Options of `unfence`.
#[derive(Clone, Debug, Args)]
pub struct Unfence {
    /// The instance, such as demo-2
    pub instance: String,
    /// Where the cluster is.
    #[command(flatten)]
    pub place: Where,
}

/// Options of `pause` and `resume`.
#[derive(Clone, Debug, Args)]
pub struct Pause {
    /// The cluster
    pub cluster: String,
    /// Where the cluster is.
    #[command(flatten)]
    pub place: Where,
}

/// Options of `up`.
#[derive(Clone, Debug, Default, Args)]
pub struct Up {
    /// Manifests to apply instead of the default cluster
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Name of the default cluster [default: demo]
    #[arg(long, conflicts_with = "files")]
    pub name: Option<String>,
    /// PostgreSQL's major version [default: the newest that is installed and supported]
    #[arg(long = "version", value_name = "MAJOR", conflicts_with = "files")]
    pub postgres_version: Option<String>,
    /// Instances of the default cluster: one primary, the rest standbys [default: 3]
    #[arg(long, value_name = "N", conflicts_with = "files")]
    pub replicas: Option<i32>,
    /// Start without a cluster
    #[arg(long, conflicts_with_all = ["files", "name", "postgres_version", "replicas"])]
    pub no_cluster: bool,
    /// Leave the operator out, to run it yourself (in a debugger, say)
    #[arg(long)]
    pub no_operator: bool,
    /// Everything is kept here [default: /var/lib/bellwether as root, else $XDG_DATA_HOME/bellwether]
    #[arg(long, value_name = "DIRECTORY")]
    pub data_dir: Option<PathBuf>,
    /// For scripts: stop everything and exit with 4 unless all clusters are Ready within this many seconds
    #[arg(long, value_name = "SECONDS")]
    pub wait_ready: Option<u64>,
    /// Where it listens, and as whom.
    #[command(flatten)]
    pub place: Place,
}

/// Options of `try`.
#[derive(Clone, Debug, Default, Args)]
pub struct Try {
    /// PostgreSQL's major version [default: the newest that is installed and supported]
    #[arg(long = "version", value_name = "MAJOR")]
    pub postgres_version: Option<String>,
    /// Instances
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub replicas: i32,
    /// How long the cluster may take to become Ready, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub within: u64,
    /// Print answers and figures as one JSON object, and nothing else
    #[arg(long)]
    pub json: bool,
    /// Keep the temporary directory
    #[arg(long)]
    pub keep: bool,
    /// Where it listens, and as whom.
    #[command(flatten)]
    pub place: Place,
}

/// Options of `operator`.
#[derive(Clone, Debug, Default, Args)]
pub struct Operator {
    /// The operator's own image, from which database pods copy the agent
    #[arg(long, env = "BELLWETHER_IMAGE", value_name = "IMAGE")]
    pub image: Option<String>,
    /// Look after these namespaces only [default: all]
    #[arg(
        long = "namespace",
        short = 'n',
        env = "BELLWETHER_NAMESPACES",
        value_delimiter = ',',
        value_name = "NAMESPACE"
    )]
    pub namespaces: Vec<String>,
    /// The user and group that PostgreSQL runs as: 999 in the official Debian images, 70 in Alpine's
    #[arg(long, env = "BELLWETHER_POSTGRES_UID", value_name = "UID", default_value_t = 999)]
    pub postgres_uid: i64,
    /// Take part in an election: of all operators with a Lease in this namespace one acts, the others wait [default: act alone]
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    pub leader_election_namespace: Option<String>,
    /// Where health (/healthz, /readyz) and metrics (/metrics) are served over HTTPS; `none` for nowhere
    #[arg(long, env = "BELLWETHER_LISTEN", value_name = "ADDRESS:PORT", default_value = "[::]:8443")]
    pub listen: Listen,
    /// The listener's certificate in PEM, read again when it changes [default: one made in memory at the start]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// The key of that certificate in PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// What this operator is called in the election [default: the host's name]
    #[arg(long, env = "POD_NAME", value_name = "NAME", hide = true)]
    pub pod_name: Option<String>,
    /// The API server's address, as pods get it; it tells the address family of the cluster's Services
    #[arg(long, env = "KUBERNETES_SERVICE_HOST", hide = true)]
    pub api_host: Option<String>,
}

/// An address to listen on, or `none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listen(pub Option<SocketAddr>);

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(None)),
            text => text.parse().map(|address| Self(Some(address))).map_err(|_| {
                "neither an address with a port, such as 0.0.0.0:8443 or [::]:8443, nor `none`".to_owned()
            }),
        }
    }
}

/// Options of `install-agent`.
#[derive(Clone, Debug, Args)]
pub struct InstallAgent {
    /// The directory
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_a_plugin_of_kubectl_it_is_called_as_one() {
        assert_eq!(name(OsStr::new("/home/jo/.krew/bin/kubectl-bellwether")), "kubectl bellwether");
        assert_eq!(name(OsStr::new("target/debug/bellwether")), "bellwether");
        let mut command = Cli::command().bin_name("kubectl bellwether");
        let help =
            command.try_get_matches_from_mut(["kubectl-bellwether", "status", "--help"]).unwrap_err().to_string();
        assert!(help.contains("Usage: kubectl bellwether status"), "{help}");
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_hidden_roles_are_not_in_the_help() {
        let help = Cli::command().render_long_help().to_string();
        for hidden in ["guard", "pod-exec", "restore-wal"] {
            assert!(!help.contains(hidden), "{hidden} is in the help");
        }
        assert!(help.contains("Exit codes"), "{help}");
    }

    #[test]
    fn the_operator_listens_unless_it_is_told_not_to() {
        let operator = |line: &[&str]| match Cli::try_parse_from([&["bellwether", "operator"], line].concat()) {
            Ok(Cli { role: Role::Operator(options) }) => Ok(options),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        };
        assert_eq!(operator(&[]).unwrap().listen.0.unwrap().port(), 8443);
        assert_eq!(operator(&["--listen", "none"]).unwrap().listen, Listen(None));
        assert!(operator(&["--listen", "8443"]).unwrap_err().contains("0.0.0.0:8443"));
        assert!(operator(&["--tls-certificate", "a.crt"]).is_err(), "a certificate without its key");
    }

    #[test]
    fn a_default_cluster_and_manifests_exclude_each_other() {
        let parse = |line: &[&str]| Cli::try_parse_from([&["bellwether", "up"], line].concat());
        assert!(parse(&["-f", "a.yaml", "-f", "b.yaml"]).is_ok());
        assert!(parse(&["--version", "17", "--replicas", "1", "--name", "orders"]).is_ok());
        assert!(parse(&["-f", "a.yaml", "--replicas", "1"]).is_err());
        assert!(parse(&["--no-cluster", "--name", "x"]).is_err());
    }
}
