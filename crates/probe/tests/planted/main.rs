//! The probe against real PostgreSQL: each lie is planted, and seen; a frozen server hangs nobody.

mod command;
mod lies;
mod proxy;
mod server;
mod silence;
mod split;
