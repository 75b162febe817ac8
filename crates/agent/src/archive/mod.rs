//! Backups and the archive of the log, in a process beside the agent.
//!
//! ```text
//!  agent ──────── Tell: store, role, order … ─────► archiver ──► object store
//!    ▲ └────────◄ Said: failing or not, backup … ◄────┘ ▲
//!    │ guards                                            │ a line for each file, through a socket
//!  PostgreSQL ── archive_command: `bellwether archive-wal` ┘
//! ```
//!
//! A process of its own ([ADR 0026](../../../docs/adr/0026-the-archiver-is-a-process.md)): it compresses, holds tens of megabytes and talks to
//! strangers. Should it stall, grow or panic, tenure is renewed all the same, and PostgreSQL keeps its log until it is back.
//!
//! | part | runs in |
//! |---|---|
//! | [`keeper`] | the agent: starts it, tells it, listens to it |
//! | [`process`], [`serve`], [`take`], [`retain`] | the archiver |
//! | [`command`] | a child of PostgreSQL, for each file |
//! | [`restore_wal`] | the way back: a child of PostgreSQL while it recovers |
//! | [`verify`] | a pod of its own, for each backup that is verified |
//!
//! Never: PostgreSQL told that a file is safe before the store has acknowledged it; a secret in arguments, environment or a log; the archiver
//! outliving its agent.

pub mod command;
pub mod keeper;
pub mod message;
pub(crate) mod place;
pub mod process;
pub mod restore_wal;
mod retain;
mod serve;
mod take;
pub mod verify;

/// The name of the archiver's socket, in the directory of PostgreSQL's own, which only its owner can enter.
pub const SOCKET: &str = "archive";
