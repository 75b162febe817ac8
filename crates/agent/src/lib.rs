//! The agent: PID 1 beside PostgreSQL. The [`election`] says what PostgreSQL is wanted as; the [`instance`]'s loop makes it so.
//!
//! ```text
//!  start(): Initialise, Restore, Join ─► the cluster's database is on the volume
//!                                   │
//!  want:    Stand ──► a standby of nobody: says where its log ends
//!           Follow ─► a standby of the leader; rewound, or copied anew, where the logs part
//!           Lead ───► promotes: rw endpoint, slots, roles, whom commits wait for
//!           Stop ───► nothing of it runs
//!  fenced:  whatever is wanted, nothing of it runs; its log is answered for
//! ```
//!
//! Beside it the [`archive`] keeps the log and takes backups, in a process of its own.
//!
//! Never: PostgreSQL outlives its agent ([`guard`]); two postmasters at once ([`postmaster`]); a database initialised twice
//! or overwritten ([`volume`]).

pub mod agent;
pub mod archive;
pub mod backoff;
pub mod board;
mod checkpoint;
pub mod clock;
pub mod configuration;
mod drain;
pub mod election;
pub mod environment;
mod fenced;
mod fill;
mod follow;
mod full;
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
pub mod pulse;
pub mod restore;
mod rewind;
pub mod settings;
pub mod signals;
mod slots;
pub mod space;
pub mod synchronous;
mod tool;
pub mod trouble;
pub mod volume;
