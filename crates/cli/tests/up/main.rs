//! The whole product on this machine: the built binary, real agents, real PostgreSQL.
//!
//! Each test has a data directory and a loopback range of its own, waits for conditions, and leaves no process behind however
//! it ends.

mod backups;
mod data;
mod failures;
mod hands;
mod home;
mod identity;
mod idle;
mod instances;
mod keep;
mod kubectl;
#[path = "../../../backup/tests/postgres/mod.rs"]
mod postgres;
mod recovery;
mod restored;
mod restoring;
mod retention;
mod rollout;
mod scale;
mod screen;
mod settings;
mod space;
mod stopping;
#[path = "../../../backup/tests/support/mod.rs"]
mod store;
mod trial;
mod truth;
