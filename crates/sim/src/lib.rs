//! One seed, one run: the operator's real plan and actions and the agents' real election, over the real API store, in virtual time, with
//! simulated machines, network, clocks and PostgreSQL, and with faults.
//!
//! | file | holds |
//! |---|---|
//! | `run` | the loop, and what is asked for at the end |
//! | `fault` | what goes wrong, and when |
//! | `ghost` | what must hold |
//! | `agent` | the shell around `bellwether_core::election::step` |
//! | `operator` | the shell around the operator's pass |
//! | `api`, `kubelet`, `network`, `postgres`, `client` | the world |
//!
//! Nothing here reads a clock or a random device, or iterates over anything without an order: a seed is a run, byte for byte.

pub mod agent;
pub mod api;
pub mod client;
pub mod fault;
pub mod ghost;
pub mod kubelet;
pub mod network;
pub mod operator;
pub mod options;
pub mod output;
pub mod postgres;
pub mod queue;
pub mod rng;
pub mod run;
pub mod sweep;
pub mod trace;
pub mod world;
