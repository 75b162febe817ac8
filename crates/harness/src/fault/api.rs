//! The API server gone, and a slow etcd.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::command::until;
use crate::control_plane::{API_SERVER, ETCD, PATIENCE, api_answers};
use crate::layout::{Place, state};
use crate::process::{Component, Started};
use crate::{Error, Layout};

/// The component that stops and continues etcd.
pub const SLOW_ETCD: &str = "slow-etcd";

/// Kills the API server, and waits until it has let go of its port.
pub fn stop_api() -> Result<(), Error> {
    Started::named(API_SERVER)?.kill()
}

/// Whether there is one.
pub fn api_runs() -> Result<bool, Error> {
    Ok(Started::named(API_SERVER)?.is_alive())
}

/// On a real cluster these end when they could not renew their Lease for ten seconds, and are started again. Ours have no Lease, because
/// each is alone; a controller-manager that lived on would take the heartbeats that it could not see for nodes that are gone, and
/// say of every pod that it is not ready.
const END_WITHOUT_API: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

/// Starts it again as it was, and waits until it is ready; then those that would have ended without it.
pub fn start_api(layout: &Layout) -> Result<(), Error> {
    let last = Started::named(API_SERVER)?;
    if last.is_alive() {
        return Err(Error::Refused("the API server runs; stop it first".into()));
    }
    let followers = END_WITHOUT_API.map(Started::named).into_iter().collect::<Result<Vec<_>, _>>()?;
    followers.iter().try_for_each(Started::kill)?;
    let started = last.component.start()?;
    started.ready_when(PATIENCE, || api_answers(layout))?;
    followers.into_iter().try_for_each(|follower| follower.component.start().map(drop))
}

/// Lets etcd run only part of the time, over and over, until [`undo_slow_etcd`].
pub fn slow_etcd(stopped: Duration, running: Duration) -> Result<(), Error> {
    undo_slow_etcd()?;
    let times = [stopped, running].map(|time| time.as_millis().to_string());
    let arguments = std::iter::once("pace-etcd".to_owned()).chain(times).collect();
    let component =
        Component { name: SLOW_ETCD.to_owned(), place: Place::Control, program: state("bin/harness"), arguments };
    let etcd = Started::named(ETCD)?;
    let pacer = component.start()?;
    pacer.ready_when(stopped + running + Duration::from_secs(10), || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", etcd.pid)).unwrap_or_default();
        if stat.contains(") T ") { Ok(()) } else { Err("etcd has not been stopped yet".into()) }
    })
}

/// What the component does. Ends when etcd does.
pub fn pace_etcd(stopped: Duration, running: Duration) -> Result<(), Error> {
    let etcd = Started::named(ETCD)?;
    loop {
        etcd.signal(Signal::SIGSTOP)?;
        std::thread::sleep(stopped);
        etcd.signal(Signal::SIGCONT)?;
        std::thread::sleep(running);
    }
}

/// Lets etcd run all the time again.
pub fn undo_slow_etcd() -> Result<(), Error> {
    if let Ok(pacer) = Started::named(SLOW_ETCD) {
        pacer.kill()?;
    }
    let etcd = Started::named(ETCD)?;
    etcd.signal(Signal::SIGCONT)?;
    until("etcd to run", Duration::from_secs(5), || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", etcd.pid)).unwrap_or_default();
        Ok(if stat.contains(") T ") { Err("stopped".into()) } else { Ok(()) })
    })
}
