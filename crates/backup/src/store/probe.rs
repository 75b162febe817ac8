//! What a store can do.

/// What a store can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {}
