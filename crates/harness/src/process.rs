//! The long-running components: starting one in its place, knowing whether it still is the one we started, ending it.
//!
//! A record of each (what, pid, start time) is kept below the state directory, because `up` ends and `fault` or `down` come
//! as other processes. Never: a signal to a pid that has been given to somebody else since.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::command::until;
use crate::error::{Error, tail};
use crate::layout::{Place, state};
use crate::{cgroup, network};

/// A component to run: enough to start it again after a fault.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Component {
    /// Unique in the cluster, such as `kubelet-node-1`.
    pub name: String,
    /// Where it runs.
    pub place: Place,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// A component that was started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Started {
    /// What.
    pub component: Component,
    /// Its process.
    pub pid: i32,
    /// When the process began, in the kernel's ticks: tells it from a later process with the same number.
    pub since: u64,
}

/// Joins the cgroup and the network before the program begins, so that not even its first thread runs outside. `setsid`:
/// a Ctrl-C for the harness is none for the cluster.
const ENTER: &str = r#"echo $$ >"$1" || exit 126; net=$2; shift 2; exec setsid nsenter --net="$net" -- "$@""#;

impl Component {
    /// Where it logs.
    pub fn log(&self) -> PathBuf {
        state("log").join(&self.name)
    }

    fn record(name: &str) -> PathBuf {
        state("run").join(name)
    }

    /// Starts it and records it. It need not be ready yet: see [`Started::ready_when`].
    pub fn start(self) -> Result<Started, Error> {
        let log = self.log();
        for directory in [state("log"), state("run")] {
            fs::create_dir_all(&directory).map_err(Error::file(&directory))?;
        }
        let output = File::options().create(true).append(true).mode(0o644).open(&log).map_err(Error::file(&log))?;
        let errors = output.try_clone().map_err(Error::file(&log))?;
        let joining = cgroup::create(&format!("{}/daemons", self.place.cgroup()))?;
        let child = Command::new("sh")
            .args(["-c", ENTER, "sh"])
            .arg(joining)
            .arg(network::handle(self.place))
            .arg(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(Error::file(Path::new("sh")))?;
        let pid = child.id().cast_signed();
        let since = start_time(pid).unwrap_or_default();
        let started = Started { component: self, pid, since };
        let record = Component::record(&started.component.name);
        let text = serde_json::to_vec_pretty(&started).unwrap_or_default();
        fs::write(&record, text).map_err(Error::file(&record))?;
        Ok(started)
    }
}

impl Started {
    /// The component of that name as it was last started, running or not.
    pub fn named(name: &str) -> Result<Started, Error> {
        let record = Component::record(name);
        let bytes = fs::read(&record).map_err(Error::file(&record))?;
        serde_json::from_slice(&bytes).map_err(|error| Error::File { path: record, source: error.into() })
    }

    /// All that were ever started, by name.
    pub fn all() -> Vec<Started> {
        let entries = fs::read_dir(state("run")).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        // A record that can't be read was being written when the harness died; its process is found by cgroup.
        names.iter().filter_map(|name| Started::named(name).ok()).collect()
    }

    /// Whether the very process that was started is still there.
    pub fn is_alive(&self) -> bool {
        start_time(self.pid) == Some(self.since)
    }

    /// Waits until `look` says that it is ready; fails at once, with the end of its log, when it dies.
    pub fn ready_when(&self, deadline: Duration, mut look: impl FnMut() -> Result<(), String>) -> Result<(), Error> {
        let waited = until(&self.component.name, deadline, || {
            if !self.is_alive() {
                return Err(self.failed("has ended"));
            }
            Ok(look())
        });
        match waited {
            Err(Error::Deadline { last, .. }) => {
                Err(self.failed(&format!("is not ready after {} s: {last}", deadline.as_secs())))
            }
            other => other,
        }
    }

    fn failed(&self, problem: &str) -> Error {
        let log = self.component.log();
        let text = fs::read_to_string(&log).unwrap_or_default();
        Error::Component {
            component: self.component.name.clone(),
            problem: problem.to_owned(),
            log,
            tail: tail(&text, 20),
        }
    }

    /// Sends a signal, unless the process is gone.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        if !self.is_alive() {
            return Err(self.failed("is not running"));
        }
        kill(Pid::from_raw(self.pid), signal)
            .map_err(|errno| self.failed(&format!("can't be signalled ({signal}): {errno}")))
    }

    /// Ends it and waits until it has let go of its ports and files. Nothing happens when it has ended already.
    pub fn kill(&self) -> Result<(), Error> {
        if self.is_alive() {
            self.signal(Signal::SIGKILL)?;
        }
        until(&format!("{} to end", self.component.name), Duration::from_secs(20), || {
            Ok(if self.is_alive() { Err(format!("process {}", self.pid)) } else { Ok(()) })
        })
    }
}

/// When a process began; nothing if there is none, or only its remains that its parent has not fetched.
pub fn start_time(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses, and may contain anything.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let run_state = fields.next()?;
    (run_state != "Z" && run_state != "X").then(|| fields.nth(18)?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_one_start_time_and_a_missing_one_none() {
        let me = std::process::id().cast_signed();
        assert!(start_time(me).is_some());
        assert_eq!(start_time(me), start_time(me));
        assert_eq!(start_time(i32::MAX), None);
    }

    #[test]
    fn a_process_that_ended_but_was_not_waited_for_is_gone() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id().cast_signed();
        until("the child to end", Duration::from_secs(5), || {
            Ok(if start_time(pid).is_none() { Ok(()) } else { Err("running".into()) })
        })
        .unwrap();
        child.wait().unwrap();
    }
}
