//! The HTTP face of the store.

/// The version of Kubernetes whose API this is, as `/version` says it.
pub(crate) const VERSION: &str = "1.34";

pub mod accept;
pub mod audit;
mod body;
pub mod discovery;
pub mod escalation;
mod kubeconfig;
pub mod openapi;
mod options;
pub mod pki;
pub mod rbac;
mod refusal;
pub mod route;
pub mod table;
mod token;
pub mod user;
