//! Signals to the agent become requests to stop. SIGTERM and SIGINT ask for a fast shutdown, SIGQUIT for an immediate one;
//! each further one asks harder. SIGHUP does nothing: files are looked at every few seconds anyway.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::postmaster::StopRequest;

/// Publishes requests to stop, for ever.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hangup: Signal,
}

impl Signals {
    /// From here on, signals don't end the process by themselves.
    pub fn catch() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Turns signals into requests; everything must be gone `grace` after the first.
    pub async fn publish(mut self, grace: Duration, requests: watch::Sender<Option<StopRequest>>) {
        loop {
            let harder = tokio::select! {
                _ = self.terminate.recv() => 1,
                _ = self.interrupt.recv() => 1,
                _ = self.quit.recv() => 2,
                _ = self.hangup.recv() => continue,
            };
            requests.send_modify(|request| {
                let first = StopRequest { count: 0, ..StopRequest::first(grace) };
                let request = request.get_or_insert(first);
                request.count += harder;
                tracing::info!(requests = request.count, "asked to stop");
            });
        }
    }
}
