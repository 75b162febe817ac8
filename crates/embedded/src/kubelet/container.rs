//! A container's process: how it is started, watched and stopped.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::context::Context;
use super::logs;
use super::probe::{self, Finding};
use super::status::Exit;
use crate::proc::{self, HOME_MARKER, Scope};
use crate::spawn;

/// What is started.
pub struct Start {
    /// The container's spec.
    pub container: Container,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Its whole environment.
    pub environment: BTreeMap<String, String>,
    /// The pod's address, for probes.
    pub address: String,
}

/// What happened to a running container.
#[derive(Debug)]
pub enum Attention {
    /// Its process ended.
    Exited(Exit),
    /// Its startup probe succeeded.
    Started,
    /// Its readiness changed.
    Ready(bool),
    /// It must be restarted.
    Unhealthy(String),
    /// Objects that its files come from may have changed.
    ObjectsChanged,
}

/// A running container.
pub struct Running {
    /// When it was started.
    pub since: Timestamp,
    child: Child,
    findings: mpsc::Receiver<Finding>,
    prober: JoinHandle<()>,
}

impl Running {
    /// Starts the process, its probes and its log.
    pub async fn start(context: &Context, pod: &Pod, start: Start) -> std::io::Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        let mut command = Command::new(&context.binary);
        command.arg(spawn::STAGE).arg(std::process::id().to_string()).args(&start.command);
        command.env_clear().envs(&start.environment).env(HOME_MARKER, &context.home);
        command.current_dir("/").stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer).kill_on_drop(true);
        // A group of its own: Ctrl-C in the terminal is for us, who then stop everything in order.
        command.process_group(0);
        if context.user.switch {
            // With a user id and no groups named, the supplementary groups of root are dropped too.
            command.uid(context.user.uid).gid(context.user.gid);
        }
        let child = context.spawner.spawn(command).await?;
        let log = logs::path(&context.logs, &pod.namespace().unwrap_or_default(), &pod.name_any());
        tokio::spawn(logs::keep(pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?, log));
        let (sender, findings) = mpsc::channel(8);
        let prober = tokio::spawn(probe::attend(start.container, start.address, sender));
        Ok(Self { since: Timestamp::now(), child, findings, prober })
    }

    /// The next thing that happens.
    pub async fn attention(&mut self) -> Attention {
        tokio::select! {
            status = self.child.wait() => Attention::Exited(self.exit(status)),
            Some(finding) = self.findings.recv() => match finding {
                Finding::Started => Attention::Started,
                Finding::Ready(ready) => Attention::Ready(ready),
                Finding::Unhealthy(why) => Attention::Unhealthy(why),
            },
        }
    }

    fn exit(&self, status: std::io::Result<std::process::ExitStatus>) -> Exit {
        const UNKNOWN: i32 = 255;
        let status = status.ok();
        let signal = status.and_then(|status| status.signal());
        let code = signal.map(|signal| 128 + signal).or(status.and_then(|status| status.code()));
        Exit { code: code.unwrap_or(UNKNOWN), signal, started: self.since, finished: Timestamp::now(), message: None }
    }

    /// Asks the process to end, waits for the grace period, then kills everything of the pod.
    pub async fn stop(&mut self, scope: &Scope, grace: Duration) {
        self.prober.abort();
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) {
            let _gone_meanwhile = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _late = tokio::time::timeout(grace, self.child.wait()).await;
        proc::kill_all(scope).await;
        let _reaped = self.child.wait().await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.prober.abort();
    }
}
