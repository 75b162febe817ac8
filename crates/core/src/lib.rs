//! Every decision of Bellwether as a pure, synchronous function.
//!
//! No clock, no randomness, no I/O: time and seeds are arguments, effects are data. The same functions run in the
//! operator, in the agent, and in the simulator. `cargo xtask boundaries` proves that it stays so.

pub mod contract;
pub mod fact;
pub mod instance;
pub mod wal;
