//! The `bellwether.dev` API: what users write, what Bellwether answers, and the names everything goes by.
//!
//! No client, no clock, no I/O: the operator, the agents, the in-memory API server and the generator of CRDs and
//! documentation all read the same types.

pub mod labels;
pub mod names;
pub mod owned;
pub mod reason;
pub mod retention;
pub mod schedule;
#[cfg(feature = "testing")]
pub mod testing;
pub mod v1;
pub mod validate;
pub mod versions;
pub mod zone;

/// The API group of every kind of ours.
pub const GROUP: &str = "bellwether.dev";
