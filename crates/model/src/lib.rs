//! Explores the election exhaustively within bounds: the real `step` of `core::election`, three instances, few ticks, few faults.
//!
//! It proves nothing beyond its bounds; what they are, and why they are enough to find every bug that we know how to plant, is in
//! `docs/proof/model.md`.

pub mod act;
pub mod explore;
pub mod fingerprint;
pub mod invariants;
pub mod moves;
pub mod passing;
pub mod plants;
pub mod scenario;
pub mod trace;
pub mod walk;
pub mod world;
