//! The agent: PID 1 beside PostgreSQL. It looks, asks `bellwether_core::instance` what to do, and does it.
//!
//! ```text
//!            ┌───────── start() ◄──────────────────────────────┐
//!            ▼                                                 │ PostgreSQL ended
//!  Initialise ─► Lead ─► primary: roles, slots, rw endpoint ───┤
//!  Join ───────► Follow ─► standby: streams, follows the Lease ┤
//!  Wait, Refuse ─► says why, looks again ──────────────────────┘
//! ```
//!
//! Never: PostgreSQL outlives its agent ([`guard`]); two postmasters at once ([`postmaster`]); a database initialised twice
//! or overwritten ([`volume`]).

pub mod agent;
pub mod backoff;
pub mod board;
pub mod configuration;
pub mod environment;
mod fill;
mod follow;
pub mod guard;
pub mod http;
pub mod inputs;
pub mod instance;
pub mod kubernetes;
mod lead;
pub mod logs;
pub mod postmaster;
pub mod primary;
pub mod process;
pub mod settings;
pub mod signals;
pub mod synchronous;
pub mod trouble;
pub mod volume;
