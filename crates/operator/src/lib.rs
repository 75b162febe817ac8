//! The operator's shell around the decisions in `core`: observe, plan, check, act.
//!
//! | step | file | needs |
//! |---|---|---|
//! | observe | [`observe`] | caches, and a live read where a cache must not be trusted |
//! | plan, check | `bellwether_core::{plan, check}` | nothing |
//! | act | [`act`], [`secrets`] | a client, randomness |
//! | say | [`status`], [`events`] | a client |
//!
//! [`run`] feeds keys of clusters from watches through a queue into [`reconcile`].

mod act;
mod caches;
mod events;
mod failure;
mod observe;
mod reconcile;
mod run;
mod secrets;
mod settings;
mod status;

pub use failure::Failure;
pub use run::{RunError, run};
pub use settings::Settings;
