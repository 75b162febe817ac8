//! The guard: a tiny process between agent and PostgreSQL, so that PostgreSQL never outlives its agent.
//!
//! ```text
//! agent ──spawns──► guard ──spawns──► guard-exec ══becomes══► postgres ──► backends
//!   │  stdin: orders ─►│ │                                                    │
//!   │◄─ stdout: news ──┘ └◄── every orphan comes back here (child subreaper) ◄┘
//! ```
//!
//! - The agent dies, however: its end of the pipe closes, the guard kills every process of PostgreSQL and reaps them all.
//! - The guard dies: the kernel kills the postmaster (parent-death signal, see [`exec`]), and the agent, a child subreaper
//!   too, kills what is left before it starts anything.
//! - The postmaster dies: the guard kills the backends that it left, reaps them, and only then says so.
//! - Tenure ends and nobody has said otherwise, because the agent is frozen or hangs: the guard has the deadline, and does as if the
//!   agent had died. It starts nothing before it has been told one, so there is no moment without.
//!
//! Never: a guard that exits while a process of PostgreSQL lives. No async, no allocation to speak of: it must work when
//! memory is short, which is when it is needed.

pub mod exec;
pub mod orders;

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether_core::election::Deadline;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use crate::clock;
use crate::process::tree;
use orders::{Decoder, End, News, Order};

/// The hidden role's name: `bellwether guard <lock file> <program> <arguments…>`.
pub const ROLE: &str = "guard";

/// The postmaster while it has not been reaped. Signals are sent, and it is reaped, under the lock: so a signal can't go to
/// another process that got its number.
static POSTMASTER: Mutex<Option<Pid>> = Mutex::new(None);

fn postmaster() -> MutexGuard<'static, Option<Pid>> {
    POSTMASTER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the program given in `args`, after a lock file, under guard, until neither it nor any descendant of it is left.
pub fn main(args: &[String]) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "bellwether guard: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> std::io::Result<()> {
    let [lock, program @ ..] = args else { return Err(std::io::Error::other("a lock file and a program are needed")) };
    nix::sys::prctl::set_child_subreaper(true)?;
    // The kernel sends it when an agent dies and leaves a process group behind in which somebody is stopped: and the first that
    // we do then is to stop the postmaster. It would end this guard before its work. (Children begin with no signal blocked.)
    SigSet::from(Signal::SIGHUP).thread_block()?;
    let _lock = take_lock(lock)?;
    let mut orders = Orders::listen()?;
    if orders.first_deadline()?.passed(clock::now()?) {
        tell(News::Expired);
        tell(News::Ended(End::Unknown));
        return Ok(());
    }
    // Spawned from the main thread, which lives as long as the process: the parent-death signal goes by thread.
    let child = Command::new(std::env::current_exe()?)
        .arg(exec::ROLE)
        .arg(std::process::id().to_string())
        .args(program)
        .stdin(Stdio::null())
        .stdout(std::io::stderr().as_fd().try_clone_to_owned()?)
        .spawn()?;
    let pid = child.id() as i32;
    *postmaster() = Some(Pid::from_raw(pid));
    tell(News::Started(pid));
    std::thread::Builder::new().name("orders".into()).stack_size(64 * 1024).spawn(move || orders.follow())?;
    let end = reap_until_alone(Pid::from_raw(pid))?;
    tell(News::Ended(end));
    Ok(())
}

/// One guard at a time on a volume. An agent that was killed and started again may come before the guard of its former life
/// has finished killing; the lock goes when that guard does.
fn take_lock(path: &str) -> std::io::Result<File> {
    let file = File::create(path)?;
    if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        let _ =
            writeln!(std::io::stderr(), "bellwether guard: waiting until a former PostgreSQL on this volume is gone");
        file.lock()?;
    }
    Ok(file)
}

/// Reaps until there is no child left. Without a child a subreaper has no descendant: each orphan would be its child.
fn reap_until_alone(first: Pid) -> std::io::Result<End> {
    let mut end = None;
    loop {
        match waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
            Err(Errno::ECHILD) => return Ok(end.unwrap_or(End::Unknown)),
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno.into()),
            Ok(_) => end = reap_the_dead(first)?.or(end),
        }
        if end.is_some() {
            // What the postmaster left behind may be acknowledging commits this very moment. Each of them comes back here
            // when it dies, so whatever was forked while we walked is met by the next walk.
            tree::kill_descendants(std::process::id() as i32, &BTreeSet::new());
        }
    }
}

/// Reaps all who are dead by now; how the postmaster ended, if it is among them.
fn reap_the_dead(first: Pid) -> std::io::Result<Option<End>> {
    let mut end = None;
    loop {
        let mut postmaster = postmaster();
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(end),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
            Ok(status) if status.pid() == Some(first) => {
                *postmaster = None;
                end = Some(End::of(status));
            }
            Ok(_) => {}
        }
    }
}

/// The agent's orders, and the deadline among them.
struct Orders {
    decoder: Decoder,
    timer: TimerFd,
}

/// What the next wait has brought.
enum Word {
    Order(Order),
    /// The agent is gone, or can't be heard any more.
    Gone,
    Expired,
}

impl Orders {
    fn listen() -> std::io::Result<Self> {
        Ok(Self { decoder: Decoder::default(), timer: TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC)? })
    }

    /// The first order. Until it is there, nothing is started.
    fn first_deadline(&mut self) -> std::io::Result<Deadline> {
        match self.next() {
            Word::Order(Order::Until(deadline)) => {
                self.set(deadline)?;
                Ok(deadline)
            }
            Word::Order(order) => Err(std::io::Error::other(format!("told {order:?} before any deadline"))),
            Word::Gone | Word::Expired => Err(std::io::Error::other("the agent went before it gave an order")),
        }
    }

    /// Does what the agent says, until the agent is gone, or time is up; then, or when told so, kills everything.
    fn follow(mut self) {
        loop {
            match self.next() {
                Word::Order(Order::Until(deadline)) => {
                    if let Err(errno) = self.set(deadline) {
                        // Without a deadline nobody would end a tenure that has lapsed.
                        let _ = writeln!(std::io::stderr(), "bellwether guard: can't keep a deadline: {errno}");
                        return kill_everything();
                    }
                }
                Word::Order(order) => match order.signal() {
                    Some(signal) => send(signal),
                    None => return kill_everything(),
                },
                Word::Gone => return kill_everything(),
                Word::Expired => {
                    tell(News::Expired);
                    return kill_everything();
                }
            }
        }
    }

    fn set(&self, deadline: Deadline) -> nix::Result<()> {
        match deadline {
            // Zero would mean "never" to the timer.
            Deadline::At(moment) => {
                let at = TimeSpec::from_duration(Duration::from_millis(moment.0.max(1)));
                self.timer.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)
            }
            Deadline::Never => self.timer.unset(),
        }
    }

    /// What is in the pipe comes before the deadline: after a freeze of both, an extension that was given in time still counts.
    fn next(&mut self) -> Word {
        let stdin = std::io::stdin();
        loop {
            let mut sources = [&stdin.as_fd(), &self.timer.as_fd()].map(|fd| PollFd::new(*fd, PollFlags::POLLIN));
            match poll(&mut sources, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                Err(_) => return Word::Gone,
                Ok(_) => {}
            }
            let [orders, timer] = sources.map(|source| source.any().unwrap_or(true));
            if orders {
                // One at a time, and not through the standard library's buffer, whose content `poll` does not see.
                let mut byte = [0];
                match nix::unistd::read(&stdin, &mut byte) {
                    Ok(0) => return Word::Gone,
                    Ok(_) => match self.decoder.next(byte[0]) {
                        Some(order) => return Word::Order(order),
                        None => continue,
                    },
                    Err(Errno::EINTR) => continue,
                    Err(_) => return Word::Gone,
                }
            }
            if timer {
                return Word::Expired;
            }
        }
    }
}

fn send(signal: Signal) {
    if let Some(pid) = *postmaster() {
        let _ = kill(pid, signal);
    }
}

/// The postmaster is stopped first, so that it can't start new backends while the old are being killed, and killed with
/// them. Repeated until a walk finds nobody: an archive command may have been forking. The main thread reaps, and ends the
/// process when nobody is left.
fn kill_everything() {
    send(Signal::SIGSTOP);
    let me = std::process::id() as i32;
    while tree::kill_descendants(me, &BTreeSet::new()) > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An agent that no longer listens is noticed by its orders' end, not here.
fn tell(news: News) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{news}").and_then(|()| out.flush());
}
