//! Backups of PostgreSQL in an object store.
//!
//! The store is the truth: what a backup is, whether it is whole and what can be restored follow from the objects there
//! ([`layout`], [`catalog`]), so that a lost Kubernetes cluster loses no backup. Objects are written once and never changed; a backup exists
//! when its [`record::Commit`] does, which is written last.
//!
//! | part | what it does |
//! |---|---|
//! | [`store`] | S3, GCS, Azure, a filesystem: create-only puts, and what came of one that nobody answered |
//! | [`base`] | takes a base backup: PostgreSQL's own stream, cut into packs |
//! | [`wal`] | archives segments and fetches them |
//! | [`restore`] | unpacks a backup, and starts it apart from everything to see whether it is one |
//! | [`catalog`], [`gaps`], [`retention`] | what there is, what is missing, what may go: pure |
//!
//! Never: an object overwritten; a segment called archived before the store has acknowledged it; a backup called whole that was not.

pub mod base;
pub mod catalog;
pub mod gaps;
pub mod layout;
pub mod record;
pub mod restore;
pub mod retention;
pub mod store;
#[cfg(test)]
mod testing;
pub mod wal;

pub use layout::{BackupId, SegmentName, WalFile};
pub use store::{Location, Store, StoreError};
