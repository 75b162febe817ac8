//! The machinery under the shells: work queue, caches fed by watches, telemetry, Kubernetes clients.

pub mod client;
pub mod queue;
pub mod telemetry;
pub mod watch;
