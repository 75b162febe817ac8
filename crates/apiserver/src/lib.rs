//! An in-memory Kubernetes API: the kinds that Bellwether uses, behaving as a real kube-apiserver does.
//!
//! Two halves. [`store`] is synchronous and owns neither a clock nor a random generator, so that a simulator can own time and
//! order. [`http`] is its face: TLS, authentication, RBAC, discovery, OpenAPI, tables and watches for kube's client and kubectl.

pub mod error;
pub mod http;
pub mod registry;
pub mod request;
pub mod store;
