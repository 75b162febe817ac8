//! The HTTP face of the store.
