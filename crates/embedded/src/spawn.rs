//! Starts processes that die with us.
//!
//! Linux sends a process its "parent death" signal when the *thread* that started it ends, so everything is started by one
//! thread that lives as long as this process. The signal itself is set by the first stage of the child (`pod-exec`), which
//! then becomes the agent. Never: an agent, and so a PostgreSQL, that goes on after `up` was killed.

use std::io;
use std::path::Path;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

/// The name of the role that sets the signal; hidden in the command line's help.
pub const STAGE: &str = "pod-exec";

type Order = (Command, oneshot::Sender<io::Result<Child>>);

/// The thread that starts processes.
#[derive(Clone, Debug)]
pub struct Spawner {
    orders: std::sync::mpsc::Sender<Order>,
}

impl Spawner {
    /// Starts the thread. Must be called inside the runtime that will wait for the children.
    pub fn start() -> io::Result<Self> {
        let runtime = tokio::runtime::Handle::current();
        let (orders, queue) = std::sync::mpsc::channel::<Order>();
        std::thread::Builder::new().name("spawner".into()).spawn(move || {
            let _inside = runtime.enter();
            for (mut command, answer) in queue {
                // Nobody waits any more: the pod was deleted meanwhile. `kill_on_drop` ends the child.
                let _unheard = answer.send(command.spawn());
            }
            // All senders are gone: the home has stopped. The thread stays until the process ends, or the signal would
            // be sent to processes that are meant to end in their own time.
            std::thread::park();
        })?;
        Ok(Self { orders })
    }

    /// Starts a process from the spawning thread.
    pub async fn spawn(&self, command: Command) -> io::Result<Child> {
        let (answer, result) = oneshot::channel();
        let gone = || io::Error::other("the spawning thread is gone");
        self.orders.send((command, answer)).map_err(|_| gone())?;
        result.await.map_err(|_| gone())?
    }
}

/// The stage between `up` and an agent: asks the kernel to kill us when our parent dies, then becomes the program.
///
/// `arguments` are the parent's pid, the program and its arguments. Returns only on failure.
pub fn stage(arguments: &[String]) -> io::Error {
    use std::os::unix::process::CommandExt;
    let [parent, program, rest @ ..] = arguments else {
        return io::Error::other("usage: pod-exec <parent pid> <program> [arguments]");
    };
    if let Err(errno) = prctl::set_pdeathsig(Signal::SIGKILL) {
        return errno.into();
    }
    // It may have died between the fork and the line above; then nobody would send the signal.
    if nix::unistd::getppid().to_string() != *parent {
        return io::Error::other("the parent is gone");
    }
    std::process::Command::new(Path::new(program)).args(rest).exec()
}
