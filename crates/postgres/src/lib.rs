//! What Bellwether knows about PostgreSQL 15–18: where it is installed, how it is configured, what its files say, what
//! its programs are called with, and what it answers over SQL.
//!
//! Nothing here decides who leads or what should exist. Each module reads or writes one thing of PostgreSQL's, and says
//! "unknown" where it could not look.

pub mod basebackup;
pub mod conf;
pub mod conninfo;
pub mod control;
pub mod file;
pub mod hba;
pub mod initdb;
pub mod installation;
pub mod log;
pub mod pidfile;
pub mod rewind;
pub mod scram;
pub mod secret;
pub mod signal;
pub mod slot;
pub mod socket;
pub mod sql;
pub mod wal;

pub use installation::Installation;
pub use secret::Secret;
pub use slot::SlotName;
