//! The operator's shell around the decisions in `core`: observe, plan, check, act.
//!
//! | step | file | needs |
//! |---|---|---|
//! | observe | `observe` | caches, and a live read where a cache must not be trusted |
//! | plan, check | `bellwether_core::{plan, check}` | nothing |
//! | act | `act`, [`secrets`], [`mint`] | the [`port`] |
//! | say | `status`, `events` | the [`port`] |
//!
//! [`look`] is the first half of a pass, for people: it sees and plans, and writes nothing.
//!
//! `vitals` judges whether all that is alive, `metrics` counts it, and [`listen`] tells both to whoever asks.
//!
//! [`run`] feeds keys of clusters from watches through a queue into a [`Reconciler`]. The same reconciler runs in a simulator: see
//! [`port`].

mod act;
mod caches;
mod events;
mod failure;
mod familiar;
pub mod listen;
pub mod look;
mod metrics;
pub mod mint;
mod observe;
pub mod port;
mod reconcile;
mod run;
pub mod secrets;
mod settings;
mod status;
mod vitals;

pub use caches::{Caches, priority};
pub use events::Events;
pub use failure::Failure;
pub use reconcile::Reconciler;
pub use run::{RunError, run};
pub use settings::Settings;
