//! Whoever ends this program in the middle of a fault gets a cluster without that fault.

use harness::{Error, Layout, fault};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Outcome;
use crate::output::complain;

/// As shells say it of a program that SIGTERM ended.
const ENDED: i32 = 143;

/// From here on SIGTERM and SIGINT undo what is done to nodes and control plane before they end the program.
pub fn undoes_faults() -> Outcome {
    let failed = Error::file("signals".as_ref());
    let runtime = Builder::new_current_thread().enable_io().build();
    let (runtime, asked) = runtime.and_then(caught).map_err(failed)?;
    std::thread::spawn(move || {
        runtime.block_on(asked);
        complain(&"ended: undoing what was done to nodes");
        if let Err(error) = fault::undo_all(&Layout::from_environment()) {
            complain(&error);
        }
        std::process::exit(ENDED);
    });
    Ok(())
}

fn caught(runtime: Runtime) -> std::io::Result<(Runtime, impl Future<Output = ()> + Send)> {
    let inside = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    drop(inside);
    let asked = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    Ok((runtime, asked))
}
