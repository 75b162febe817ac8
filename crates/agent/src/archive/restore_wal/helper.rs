//! A process that outlives the calls of one recovery: it keeps its connections to the store, and fetches the next segments while PostgreSQL replays.
//!
//! The first call starts it, in the session of PostgreSQL's startup process, which calls us; it ends with that, or when nobody has asked for a while. It is only ever a short cut:
//! whoever gets no word from it, or a bad one, does without.
//!
//! Never: two of them in one directory; one left when recovery is over, nor what it had fetched.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bellwether_backup::WalFile;
use bellwether_backup::wal::Prefetcher;
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::{Pid, getpgrp, getpid};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream as AsyncUnixStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::ROLE;
use super::access::Access;

/// Beside what PostgreSQL asks for, so that a file gets there by being renamed: in `pg_wal`, where PostgreSQL passes over names that it does not know.
pub(crate) const DIRECTORY: &str = "bellwether.ahead";
const SOCKET: &str = "socket";
const LOCK: &str = "lock";
/// What the helper is told to be.
pub(super) const HELPER: &str = "--helper";
/// What it says once it can be asked.
const READY: &str = "ready";
/// What it answers when a file is there. Anything else is for whoever asked to find out himself.
const DONE: &str = "done";
const NOT_DONE: &str = "not done";

/// How much is kept ahead, at most: what a fast disk replays while a slow store answers.
const AHEAD_BYTES: u64 = 128 << 20;
const AHEAD: u64 = 8;
/// How long a word of it is waited for: it gives up on a store earlier than that by itself.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long it may take to start.
const START: Duration = Duration::from_secs(10);
/// It ends when nobody has asked for so long: recovery has paused, or ended in a way that it can't see.
const IDLE: Duration = Duration::from_secs(60);
/// How often it looks whether PostgreSQL's process is still there.
const LOOK: Duration = Duration::from_millis(500);
/// No line that it is told is longer.
const LONGEST: u64 = 16 << 10;

/// The directory of the helper for files that go there.
fn directory(destination: &Path) -> Option<PathBuf> {
    destination.parent().map(|parent| parent.join(DIRECTORY))
}

/// Has the helper put a file there, which is started if there is none: whether it did. If not, nothing follows.
pub(super) fn ask(access: &Path, file: WalFile, destination: &Path) -> bool {
    let Some(directory) = directory(destination) else { return false };
    let stream = connect(&directory).or_else(|_| start(access, &directory).and_then(|()| connect(&directory)));
    stream.and_then(|stream| asked(stream, file, destination)).is_ok_and(|answer| answer == DONE)
}

/// A path of a socket has to be short, and this may not be: so it is looked at from the directory.
fn connect(directory: &Path) -> io::Result<UnixStream> {
    let held = File::open(directory)?;
    UnixStream::connect(through(&held))
}

fn through(directory: &File) -> PathBuf {
    use std::os::fd::AsRawFd as _;
    format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd()).into()
}

fn asked(mut stream: UnixStream, file: WalFile, destination: &Path) -> io::Result<String> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let line = serde_json::to_string(&(file.to_string(), destination))?;
    writeln!(stream, "{line}")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    match answer.strip_suffix('\n') {
        Some(whole) => Ok(whole.to_owned()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Starts one, and waits until it can be asked.
fn start(access: &Path, directory: &Path) -> io::Result<()> {
    let mut helper = Command::new(std::env::current_exe()?)
        .args([ROLE, HELPER])
        .arg(std::path::absolute(access)?)
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // PostgreSQL's log would not end before it does.
        .stderr(Stdio::null())
        .spawn()?;
    let stdout = helper.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let (said, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = BufReader::new(stdout).read_line(&mut line);
        let _ = said.send(line);
    });
    match heard.recv_timeout(START) {
        Ok(line) if line.trim_end() == READY => Ok(()),
        _ => Err(io::ErrorKind::NotConnected.into()),
    }
}

/// Is the helper, with these arguments: a file that says how to get into the archive, and its directory.
pub(super) fn main(args: &[String]) -> ExitCode {
    let [access, directory] = args else { return ExitCode::FAILURE };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let ended = runtime.block_on(run(Path::new(access), Path::new(directory)));
    // A thread may still write what nobody wants any more.
    runtime.shutdown_background();
    if ended.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run(access: &Path, directory: &Path) -> Option<()> {
    // Whoever leads our session is who is helped.
    let helped = Some(getpgrp()).filter(|leader| *leader != getpid());
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).ok()?;
    let _alone = lock(directory).ok()?;
    let access = Access::read(access).ok()?;
    let ahead = usize::try_from((AHEAD_BYTES / access.segment_size.max(1)).clamp(2, AHEAD)).ok()?;
    let prefetcher = Prefetcher::new(access.open().ok()?, directory, access.segment_size, ahead).await.ok()?;
    let listener = listen(directory).ok()?;
    {
        let mut out = io::stdout().lock();
        writeln!(out, "{READY}").and_then(|()| out.flush()).ok()?;
    }
    serve(listener, Arc::new(prefetcher), helped).await;
    // Another finds nothing here that it could take for its own.
    fs::remove_dir_all(directory).ok()
}

/// For as long as it is held there is no other.
fn lock(directory: &Path) -> io::Result<File> {
    let path = directory.join(LOCK);
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
    file.try_lock().map_err(io::Error::from)?;
    // One that ended has removed it meanwhile: then this is nobody's.
    match fs::metadata(&path)?.ino() == file.metadata()?.ino() {
        true => Ok(file),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

fn listen(directory: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(directory.join(SOCKET)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    UnixListener::bind(through(&File::open(directory)?))
}

/// Answers until nobody is left who could ask.
async fn serve(listener: UnixListener, prefetcher: Arc<Prefetcher>, helped: Option<Pid>) {
    let mut look = tokio::time::interval(LOOK);
    let (failed, mut failing) = mpsc::channel::<()>(1);
    let mut last = Instant::now();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                last = Instant::now();
                tokio::spawn(answer(stream, prefetcher.clone(), failed.clone()));
            }
            // What it knows of the store may be out of date: the next is told anew.
            _ = failing.recv() => return,
            _ = look.tick() => {
                let gone = helped.is_some_and(|leader| kill(leader, None) == Err(Errno::ESRCH));
                if gone || last.elapsed() > IDLE {
                    return;
                }
            }
        }
    }
}

async fn answer(stream: AsyncUnixStream, prefetcher: Arc<Prefetcher>, failed: mpsc::Sender<()>) -> Option<()> {
    let mut stream = tokio::io::BufReader::new(stream);
    let mut line = String::new();
    tokio::time::timeout(PATIENCE, (&mut stream).take(LONGEST).read_line(&mut line)).await.ok()?.ok()?;
    let (file, destination): (String, PathBuf) = serde_json::from_str(&line).ok()?;
    let fetched = prefetcher.fetch(file.parse().ok()?, &destination).await;
    let answer = if matches!(fetched, Ok(true)) { DONE } else { NOT_DONE };
    stream.get_mut().write_all(format!("{answer}\n").as_bytes()).await.ok()?;
    if fetched.is_err() {
        let _ = failed.try_send(());
    }
    Some(())
}
