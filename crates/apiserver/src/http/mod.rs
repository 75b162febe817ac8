//! The HTTP face of the store: what kube's client and kubectl talk to.
//!
//! ```text
//! connection ── tls ──► serve: route ► user (certificate, token) ► rbac ► objects · feed (watch) · reviews · pods ► audit
//!                                                                     │
//!                                  discovery · openapi ◄── registry   └──► shared ──► store
//! ```
//!
//! Decisions are pure functions in files of their own (`route`, `accept`, `rbac`, `escalation`, `table`, `discovery`, `openapi`);
//! [`Server`] ties them to sockets. Everything that a client can see is meant to be what a kube-apiserver shows.

mod accept;
mod access;
mod audit;
mod body;
mod bootstrap;
mod deprecation;
mod discovery;
mod escalation;
mod feed;
mod kubeconfig;
mod objects;
mod openapi;
mod options;
mod pki;
mod pods;
mod protobuf;
mod rbac;
mod refusal;
mod respond;
mod reviews;
mod route;
mod serve;
mod server;
mod shared;
mod table;
#[cfg(test)]
mod tests;
mod tls;
mod token;
mod user;

pub use audit::{Audit, AuditEntry};
pub use pki::PkiError;
pub use pods::{LogOptions, LogStream, PodLogs};
pub use rbac::{Ask, Policy, Rule};
pub use server::{Running, ServeError, Server, ServerConfig};
pub use shared::Shared;
pub use user::User;

/// The version of Kubernetes whose API this is, as `/version` says it.
pub(crate) const VERSION: &str = "1.34";
