//! Faults: what can be done to a running cluster, and undone. Library calls; the commands are a thin layer over them.
//!
//! Each call returns when the fault is in effect, so that a test measures from there. Never: a fault that `heal` or `down`
//! does not undo.

mod api;
mod cut;
mod freeze;
mod pod;
mod storage;

pub use api::{SLOW_ETCD, pace_etcd, slow_etcd, start_api, stop_api, undo_slow_etcd};
pub use cut::{Cut, cut, cuts, heal};
pub use freeze::{freeze, thaw};
pub use pod::{ObjectName, Process, drain, kill_container, processes, signal_process, uncordon};
pub use storage::{fill, free};
