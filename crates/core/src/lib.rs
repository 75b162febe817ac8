//! Every decision of Bellwether as a pure, synchronous function.
//!
//! No clock, no randomness, no I/O: time and seeds are arguments, effects are data. The same functions run in the
//! operator, in the agent, and in the simulator. `cargo xtask boundaries` proves that it stays so.

pub mod breaker;
pub mod build;
pub mod check;
pub mod contract;
pub mod election;
pub mod fact;
pub mod fence;
pub mod force;
pub mod instance;
pub mod lease_object;
pub mod object;
pub mod observed;
pub mod plan;
pub mod quantity;
pub mod rbac;
pub mod wal;
pub mod words;
