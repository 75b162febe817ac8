//! Chaos: a running cluster is hurt at random while the probe writes, and what came of it is kept as lines of JSON.
//!
//! ```text
//!   plan (seed, round) ──► faults ──► site (embedded, or real nodes) ──► the probe's verdict ──► record ──► table
//! ```
//!
//! What is done follows from the seed alone, so a run can be resumed, and a bad round done again.

pub mod embedded;
pub mod fault;
pub mod overload;
pub mod plan;
pub mod record;
pub mod report;
