//! Faults: what can be done to a running cluster, and undone. Library calls; the commands are a thin layer over them.
//!
//! Each call returns when the fault is in effect, so that a test measures from there. Never: a fault that `heal` or `down`
//! does not undo.

mod api;
mod cut;
mod freeze;
mod pod;
mod storage;

pub use api::{SLOW_ETCD, api_runs, pace_etcd, slow_etcd, start_api, stop_api, undo_slow_etcd};
pub use cut::{Cut, cut, cuts, heal};
pub use freeze::{freeze, thaw};
pub use pod::{ObjectName, Process, drain, kill_container, processes, signal_process, uncordon};
pub use storage::{fill, free};

use crate::layout::Node;
use crate::{Error, Layout};

/// Undoes what concerns nodes and the control plane, whatever of it is in effect: whoever did it may have been ended before it undid it.
/// Full volumes and frozen processes go with their pods.
pub fn undo_all(layout: &Layout) -> Result<(), Error> {
    for node in Node::ALL {
        thaw(node)?;
        heal(node)?;
    }
    undo_slow_etcd()?;
    if !api_runs()? {
        start_api(layout)?;
    }
    Node::ALL.into_iter().try_for_each(|node| uncordon(layout, node))
}
