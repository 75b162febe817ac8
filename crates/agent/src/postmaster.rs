//! One run of PostgreSQL, or of a program that works on its directory, seen from the agent: started under a guard, told things, and over
//! only when every process of it is.
//!
//! Never: a second run while a process of the first lives. [`Postmaster::start`] sweeps first, and [`Postmaster::ended`]
//! answers only after the guard has reaped everything, or, had the guard been killed, after the agent has.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bellwether_core::election::Deadline;
use bellwether_core::instance::stop::{self, StopMode};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::Instant;

use crate::guard::orders::{End, News, Order};
use crate::process::reaper::{Children, Known};

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Our own binary, which has the guard's role.
    pub guard: PathBuf,
    /// A file on the volume: the guard of an earlier run holds a lock on it until everything of that run is gone.
    pub lock: PathBuf,
    /// PostgreSQL's server program, or another of its programs.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// What its environment has beyond ours.
    pub environment: &'static [(&'static str, &'static str)],
}

/// PostgreSQL, running.
#[derive(Debug)]
pub struct Postmaster {
    guard: Child,
    known: Option<Known>,
    children: Children,
    reins: Reins,
    pid: watch::Receiver<Option<i32>>,
    expired: watch::Receiver<bool>,
    end: mpsc::Receiver<End>,
}

/// How the guard is told things. Clones tell the same guard.
#[derive(Clone, Debug)]
pub struct Reins(Arc<Mutex<ChildStdin>>);

impl Reins {
    /// Tells the guard. Answers whether it was there to be told.
    pub async fn order(&self, order: Order) -> bool {
        let told = self.0.lock().await.write_all(&order.bytes()).await;
        if let Err(error) = &told {
            tracing::debug!(%error, ?order, "the guard is gone");
        }
        told.is_ok()
    }
}

/// Requests to stop, as they come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopRequest {
    /// When the first came.
    pub since: Instant,
    /// How many came so far.
    pub count: u32,
    /// How long after the first everything must be gone.
    pub grace: Duration,
}

impl StopRequest {
    /// The first request.
    pub fn first(grace: Duration) -> Self {
        Self { since: Instant::now(), count: 1, grace }
    }
}

impl Postmaster {
    /// Starts PostgreSQL, after every process of an earlier run is gone. Its log goes to `log`.
    ///
    /// Must be called on the main thread: see [`crate::guard::exec`].
    pub async fn start<L>(launch: &Launch, children: &Children, log: L) -> std::io::Result<Self>
    where
        L: FnOnce(BufReader<tokio::process::ChildStderr>),
    {
        Self::start_until(launch, Deadline::Never, children, log).await
    }

    /// As [`Postmaster::start`], with a deadline from before the first instruction of PostgreSQL on: for one that starts writable.
    pub async fn start_until<L>(
        launch: &Launch,
        deadline: Deadline,
        children: &Children,
        log: L,
    ) -> std::io::Result<Self>
    where
        L: FnOnce(BufReader<tokio::process::ChildStderr>),
    {
        children.kill_orphans().await;
        let mut command = Command::new(&launch.guard);
        command.arg(crate::guard::ROLE).arg(&launch.lock).arg(&launch.program).args(&launch.arguments);
        command.envs(launch.environment.iter().copied());
        // A group of its own: a terminal's Ctrl-C is for the agent, which then stops PostgreSQL in order.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut guard = command.spawn()?;
        let known = guard.id().map(|pid| children.own(pid as i32));
        let missing = || std::io::Error::other("the guard has no pipes");
        let reins = Reins(Arc::new(Mutex::new(guard.stdin.take().ok_or_else(missing)?)));
        let news = guard.stdout.take().ok_or_else(missing)?;
        log(BufReader::new(guard.stderr.take().ok_or_else(missing)?));
        let (pid_tx, pid) = watch::channel(None);
        let (expired_tx, expired) = watch::channel(false);
        let (end_tx, end) = mpsc::channel(1);
        tokio::spawn(listen(news, pid_tx, expired_tx, end_tx));
        let mut postmaster = Self { guard, known, children: children.clone(), reins, pid, expired, end };
        // The guard waits for this.
        postmaster.guard_until(deadline).await;
        Ok(postmaster)
    }

    /// The postmaster's process id, once the guard has told it.
    pub fn pid(&self) -> Option<i32> {
        *self.pid.borrow()
    }

    /// Tells the guard. One that is dead needs no telling: its postmaster is dead too.
    pub async fn order(&mut self, order: Order) {
        self.reins.order(order).await;
    }

    /// For those who must be able to tell the guard something while the instance's loop is busy.
    pub fn reins(&self) -> Reins {
        self.reins.clone()
    }

    /// The guard kills every process of PostgreSQL when this has passed, whatever becomes of the agent. May be moved either way.
    pub async fn guard_until(&mut self, deadline: Deadline) {
        self.order(Order::Until(deadline)).await;
    }

    /// Whether the guard has said that the deadline passed: then that is why everything was killed.
    pub fn expired(&self) -> bool {
        *self.expired.borrow()
    }

    /// How it ended, once every process of it is gone. Can be dropped and asked again.
    pub async fn ended(&mut self) -> End {
        if let Err(error) = self.guard.wait().await {
            tracing::error!(%error, "can't wait for the guard");
        }
        self.known = None;
        // Nothing is left after a guard that did its work; after one that was killed, backends are.
        self.children.kill_orphans().await;
        self.end.recv().await.unwrap_or(End::Unknown)
    }

    /// Stops it, harder as time passes and requests come in; every process is gone before the grace period is over.
    pub async fn stop(&mut self, requests: &mut watch::Receiver<Option<StopRequest>>, first: StopRequest) -> End {
        let mut request = first;
        let mut sent = None;
        loop {
            let mode = stop::mode(request.count, request.since.elapsed(), request.grace);
            if sent != Some(mode) {
                tracing::info!(?mode, "stopping PostgreSQL");
                self.order(order_for(mode)).await;
                sent = Some(mode);
            }
            let next = stop::next_change(request.since.elapsed(), request.grace);
            tokio::select! {
                end = self.ended() => return end,
                () = sleep_until(next.map(|after| request.since + after)) => {}
                Ok(()) = requests.changed() => request = requests.borrow_and_update().unwrap_or(request),
            }
        }
    }
}

fn order_for(mode: StopMode) -> Order {
    match mode {
        StopMode::Fast => Order::StopFast,
        StopMode::Immediate => Order::StopImmediate,
        StopMode::Kill => Order::Kill,
    }
}

async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

async fn listen(
    news: impl AsyncRead + Unpin,
    pid: watch::Sender<Option<i32>>,
    expired: watch::Sender<bool>,
    end: mpsc::Sender<End>,
) {
    let mut lines = BufReader::with_capacity(256, news).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match line.parse() {
            Ok(News::Started(started)) => {
                pid.send_replace(Some(started));
            }
            Ok(News::Expired) => {
                tracing::error!("the deadline has passed: the guard kills PostgreSQL");
                expired.send_replace(true);
            }
            Ok(News::Ended(how)) => {
                let _ = end.send(how).await;
            }
            Err(()) => tracing::warn!(line, "the guard says something unknown"),
        }
    }
}
