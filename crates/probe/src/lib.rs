//! Writes unique rows to a PostgreSQL while somebody hurts it, and checks afterwards that it told the truth.
//!
//! [`Probe::start`] writes (sessions kept, sessions by a server's own address, connections anew), [`Probe::stop`] gives the
//! [`History`], [`finals`] reads the table of every instance, and [`check()`] is a pure function over both. It works with any
//! PostgreSQL; it knows nothing of Kubernetes.

pub mod access;
pub mod check;
pub mod clock;
pub mod finals;
pub mod history;
pub mod outcome;
pub mod run;
pub mod session;
pub mod table;
mod writer;

pub use access::{Access, Target};
pub use check::{Verdict, check};
pub use finals::{FinalTable, finals};
pub use history::History;
pub use run::{Probe, RunError, Settings, run};
pub use session::Deadlines;
