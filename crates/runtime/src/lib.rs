//! The machinery under the shells: work queue, leader election, caches fed by watches, the pace of requests, telemetry, Kubernetes
//! clients.

pub mod bucket;
pub mod client;
pub mod leader;
pub mod lines;
#[cfg(test)]
mod loopback;
pub mod pace;
pub mod queue;
pub mod telemetry;
pub mod traffic;
pub mod watch;
