//! What an agent decides about its own instance: how to start, how to stop, what a standby's state is called, whether it is
//! stuck, whether it has to be copied anew, how much room its volumes have, which standbys commits wait for, and which slots exist.
//!
//! Everything here is a pure function of what the agent saw; the agent's crate does the looking and the doing.

pub mod copying;
pub mod durability;
pub mod history;
pub mod leaving;
pub mod missing;
pub mod probe;
pub mod pulse;
pub mod rejoin;
pub mod rewind;
pub mod slots;
pub mod space;
pub mod standby;
pub mod start;
pub mod stop;
pub mod switchover;
