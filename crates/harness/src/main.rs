//! `harness`: the test cluster by hand. Everything it does is a library call that tests make as well.

mod output;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use harness::fault::{self, Cut, ObjectName};
use harness::layout::{Node, audit_log, kubeconfig};
use harness::process::Started;
use harness::up::Outcome;
use harness::{Error, Layout, down, images, inventory, kubectl, provisioner, up};
use nix::sys::signal::Signal;

use output::say;

/// A real three-node Kubernetes on this machine, and faults to inject into it.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Bring the cluster up: installs, builds and starts what is missing, and prints the kubeconfig.
    Up,
    /// Remove the cluster, or whatever is left of one. Caches stay.
    Down,
    /// Show whether it runs, and which of its components.
    Status,
    /// Load an image archive on every node.
    Load {
        /// As written by `docker save`, or an OCI archive.
        archive: PathBuf,
    },
    /// List everything on this machine that a cluster could leave behind: compare it before `up` and after `down`.
    Inventory,
    /// Inject a fault, or undo one.
    #[command(subcommand)]
    Fault(Fault),
    /// Serve local volumes: a component of the cluster.
    #[command(hide = true)]
    ServeVolumes,
    /// Stop and continue etcd: a component of a fault.
    #[command(hide = true)]
    PaceEtcd { stopped: u64, running: u64 },
}

#[derive(Subcommand)]
enum Fault {
    /// Explain each fault in one line.
    List,
    /// Stop all processes of a node, containers included; connections stay open and silent.
    Freeze { node: Node },
    /// Undo `freeze`.
    Thaw { node: Node },
    /// Drop a node's packets; both directions unless told otherwise. Cuts of one node add up.
    Cut {
        node: Node,
        #[command(flatten)]
        what: What,
    },
    /// Undo all cuts of a node (of all nodes if none is named).
    Heal { node: Option<Node> },
    /// Kill PID 1 of a container with SIGKILL.
    KillContainer {
        /// `namespace/name`.
        pod: ObjectName,
        #[arg(long)]
        container: Option<String>,
    },
    /// Kill one process of a pod with SIGKILL.
    KillProcess(OneProcess),
    /// Stop one process of a pod (SIGSTOP).
    FreezeProcess(OneProcess),
    /// Undo `freeze-process`.
    ThawProcess(OneProcess),
    /// Kill the API server.
    StopApi,
    /// Undo `stop-api`.
    StartApi,
    /// Let etcd run only part of the time.
    SlowEtcd {
        /// Milliseconds for which it is stopped.
        #[arg(long, default_value_t = 400)]
        stopped: u64,
        /// Milliseconds for which it then runs.
        #[arg(long, default_value_t = 100)]
        running: u64,
    },
    /// Undo `slow-etcd`.
    NormalEtcd,
    /// Take all free space of the volume behind a claim.
    Fill {
        /// `namespace/name`.
        claim: ObjectName,
    },
    /// Undo `fill`.
    Free {
        /// `namespace/name`.
        claim: ObjectName,
    },
    /// Evict a node's pods and keep new ones away.
    Drain {
        node: Node,
        /// Seconds until it gives up.
        #[arg(long, default_value_t = 120)]
        timeout: u64,
    },
    /// Undo `drain`.
    Uncordon { node: Node },
    /// Undo everything that concerns nodes and the control plane.
    UndoAll,
}

#[derive(Args)]
#[group(multiple = false)]
struct What {
    /// Only what comes in.
    #[arg(long)]
    incoming: bool,
    /// Only what goes out.
    #[arg(long)]
    outgoing: bool,
    /// Only the way to and from the API server.
    #[arg(long)]
    api: bool,
    /// Only one other node.
    #[arg(long)]
    from: Option<Node>,
}

impl What {
    fn cut(&self) -> Cut {
        match self {
            What { from: Some(other), .. } => Cut::From(*other),
            What { api: true, .. } => Cut::Api,
            What { incoming: true, .. } => Cut::Incoming,
            What { outgoing: true, .. } => Cut::Outgoing,
            _ => Cut::Both,
        }
    }
}

#[derive(Args)]
struct OneProcess {
    /// `namespace/name`.
    pod: ObjectName,
    /// Part of the process's command line, such as "walwriter"; exactly one process must match.
    pattern: String,
    #[arg(long)]
    container: Option<String>,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), Error> {
    let layout = Layout::from_environment();
    match command {
        Command::Up => bring_up(&layout),
        Command::Down => {
            let began = Instant::now();
            down::down(&layout)?;
            say(&format!("nothing of the cluster is left ({:.1} s)", began.elapsed().as_secs_f64()));
            Ok(())
        }
        Command::Status => status(&layout),
        Command::Load { archive } => images::load(&archive),
        Command::Inventory => {
            inventory::listing()?.iter().for_each(|line| say(line));
            Ok(())
        }
        Command::Fault(fault) => inject(&layout, fault),
        Command::ServeVolumes => provisioner::serve(&say),
        Command::PaceEtcd { stopped, running } => {
            fault::pace_etcd(Duration::from_millis(stopped), Duration::from_millis(running))
        }
    }
}

fn bring_up(layout: &Layout) -> Result<(), Error> {
    let began = Instant::now();
    let binary = std::env::current_exe().map_err(Error::file("/proc/self/exe".as_ref()))?;
    match up::up(layout, &binary, &say)? {
        Outcome::AlreadyRunning => {
            say(&format!("the cluster is already running; KUBECONFIG={}", kubeconfig().display()));
        }
        Outcome::Started => say(&format!("up after {:.1} s", began.elapsed().as_secs_f64())),
    }
    Ok(())
}

fn status(layout: &Layout) -> Result<(), Error> {
    let all = Started::all();
    if all.is_empty() {
        return Err(Error::Refused("no cluster is running; `harness up` starts one".into()));
    }
    for started in &all {
        let state = if started.is_alive() { format!("running, pid {}", started.pid) } else { "ended".into() };
        say(&format!("{:<28} {state}", started.component.name));
    }
    for node in Node::ALL {
        for rule in fault::cuts(node)? {
            say(&format!("{node} is cut off: {rule}"));
        }
    }
    say(&format!("audit log                    {}", audit_log().display()));
    say(&format!("KUBECONFIG                   {}", kubeconfig().display()));
    say(&format!("nodes that are Ready         {}", kubectl::ready_nodes(layout)?.join(", ")));
    Ok(())
}

fn inject(layout: &Layout, fault: Fault) -> Result<(), Error> {
    let signal = |one: &OneProcess, signal| {
        fault::signal_process(layout, &one.pod, one.container.as_deref(), &one.pattern, signal)
    };
    match fault {
        Fault::List => {
            list_faults();
            Ok(())
        }
        Fault::Freeze { node } => fault::freeze(node),
        Fault::Thaw { node } => fault::thaw(node),
        Fault::Cut { node, what } => fault::cut(node, what.cut()),
        Fault::Heal { node: Some(node) } => fault::heal(node),
        Fault::Heal { node: None } => Node::ALL.into_iter().try_for_each(fault::heal),
        Fault::KillContainer { pod, container } => fault::kill_container(layout, &pod, container.as_deref()),
        Fault::KillProcess(one) => signal(&one, Signal::SIGKILL),
        Fault::FreezeProcess(one) => signal(&one, Signal::SIGSTOP),
        Fault::ThawProcess(one) => signal(&one, Signal::SIGCONT),
        Fault::StopApi => fault::stop_api(),
        Fault::StartApi => fault::start_api(layout),
        Fault::SlowEtcd { stopped, running } => {
            fault::slow_etcd(Duration::from_millis(stopped), Duration::from_millis(running))
        }
        Fault::NormalEtcd => fault::undo_slow_etcd(),
        Fault::Fill { claim } => fault::fill(layout, &claim),
        Fault::Free { claim } => fault::free(layout, &claim),
        Fault::Drain { node, timeout } => fault::drain(layout, node, Duration::from_secs(timeout)),
        Fault::Uncordon { node } => fault::uncordon(layout, node),
        Fault::UndoAll => fault::undo_all(layout),
    }
}

/// From the commands themselves, so that the list is never behind them.
fn list_faults() {
    let cli = <Cli as clap::CommandFactory>::command();
    let faults = cli.find_subcommand("fault").map(clap::Command::get_subcommands).into_iter().flatten();
    for fault in faults.filter(|fault| fault.get_name() != "list") {
        let about = fault.get_about().map(ToString::to_string).unwrap_or_default();
        say(&format!("{:<16} {about}", fault.get_name()));
    }
}
