//! `bellwether.dev/v1`, the stored version.

mod spec;
mod status;

pub use spec::*;
pub use status::*;
