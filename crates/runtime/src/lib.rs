//! The machinery under the shells: work queue, leader election, caches fed by watches, telemetry, Kubernetes clients.

pub mod client;
pub mod leader;
pub mod lines;
pub mod queue;
pub mod telemetry;
pub mod traffic;
pub mod watch;
