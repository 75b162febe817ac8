//! `bellwether.dev/v1`, the stored version.
//!
//! The types say what there is ([`spec`](PostgresClusterSpec), [`status`](PostgresClusterStatus)), the table of
//! [`fields`](fields::fields) what may be written, and [`crd()`] puts both together.

mod backup;
mod bootstrap;
mod crd;
pub mod fields;
mod policy;
mod recovery;
mod recovery_rules;
pub mod rule;
mod rules;
mod schedule;
mod scheduling;
mod spec;
mod status;
mod storage;

pub use backup::*;
pub use bootstrap::*;
pub use crd::{at, backup_crd, backup_schema, crd, crds, schema};
pub use policy::*;
pub use recovery::*;
pub use scheduling::*;
pub use spec::*;
pub use status::*;
pub use storage::*;
