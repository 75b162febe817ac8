//! The seam between the operator's pass and the world: everything that a pass asks of anybody, as data, through one trait.
//!
//! A pass ([`crate::Reconciler::reconcile`]) is a function of its caches, its settings and the answers that it gets here. It
//! awaits nothing but [`Port::send`], one call at a time, and takes time, chance and key material from the same trait. So it can
//! be driven by anything that polls: tokio in production, a loop with a waker that does nothing in a simulator.
//!
//! | adapter | what answers | where |
//! |---|---|---|
//! | [`Kube`] | an API server, by kube's client, each call within a deadline | always |
//! | `simulated` | whoever drives the pass: at each call it answers, refuses, loses the answer, or drops the pass | feature `simulated` |
//!
//! Never: a second way to the API server, to a clock or to randomness beside this one in a pass (the simulator would not see it),
//! or the contents of a Secret in what a request shows of itself.

mod kube;
#[cfg(feature = "simulated")]
pub mod simulated;

use std::sync::Arc;

use ::kube::api::ApiResource;
use ::kube::core::GroupVersionKind;
use bellwether_api::v1::PostgresCluster;
use bellwether_core::object::Kind;
use jiff::Timestamp;
use serde_json::Value;

pub use self::kube::Kube;
use crate::mint::Mint;

/// What a pass asks of the world.
pub trait Port {
    /// Sends one request to the API server and waits for its answer.
    fn send(&self, request: Request) -> impl Future<Output = Answer>;
    /// The time.
    fn now(&self) -> Timestamp;
    /// A number between 0 and 1, to keep many from doing the same at the same time.
    fn fraction(&self) -> f64;
    /// Where keys, certificates and passwords come from.
    fn mint(&self) -> &dyn Mint;
}

/// The object as it is after the request. Nothing when a read found nothing, and after a deletion, whose answer doesn't tell
/// whether the object is gone or on its way out.
pub type Answer = Result<Option<Arc<Value>>, CallError>;

/// One request. The field managers are the operator's own: one for status, one for the rest.
#[derive(Clone, PartialEq)]
pub struct Request {
    /// Of which resource.
    pub resource: Resource,
    /// In which namespace.
    pub namespace: String,
    /// Which object.
    pub name: String,
    /// What is to be done.
    pub verb: Verb,
}

/// The resources that a pass asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// The cluster itself.
    Cluster,
    /// A child of it, or a Secret that the user named.
    Child(Kind),
    /// News for people.
    Event,
    /// The namespace that all of these are in.
    Namespace,
}

/// What a request does.
#[derive(Clone, PartialEq)]
pub enum Verb {
    /// Read it, live.
    Get,
    /// Create it; refused with 409 if it is there.
    Create(Value),
    /// Server-side apply, with force.
    Apply(Arc<Value>),
    /// Server-side apply of the status, with force.
    ApplyStatus(Value),
    /// Merge patch. A uid or resourceVersion in its metadata is a precondition.
    Merge(Value),
    /// Delete it if it is still this one.
    Delete {
        /// Its UID.
        uid: String,
        /// Its version.
        resource_version: String,
    },
}

/// Why there is no good answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The API server said no.
    #[error("{message}")]
    Refused {
        /// The HTTP status code.
        code: u16,
        /// Why, in its words.
        message: String,
    },
    /// No answer came. Whether the request was carried out is unknown.
    #[error("{cause}")]
    Unanswered {
        /// What happened instead.
        cause: String,
    },
}

impl Resource {
    /// As kube names it.
    pub fn api_resource(self) -> ApiResource {
        match self {
            Self::Cluster => ApiResource::erase::<PostgresCluster>(&()),
            Self::Child(kind) => {
                let (group, version, name, plural) = kind.coordinates();
                ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, name), plural)
            }
            Self::Event => ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Event"), "events"),
            Self::Namespace => {
                ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Namespace"), "namespaces")
            }
        }
    }

    /// The namespace in the address of an object: a namespace is in none.
    pub fn place(self, namespace: &str) -> Option<&str> {
        (self != Self::Namespace).then_some(namespace)
    }
}

impl std::fmt::Display for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cluster => f.write_str("PostgresCluster"),
            Self::Child(kind) => kind.fmt(f),
            Self::Event => f.write_str("Event"),
            Self::Namespace => f.write_str("Namespace"),
        }
    }
}

impl Verb {
    /// One word for it: a label of metrics, a column of coverage.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Create(_) => "create",
            Self::Apply(_) => "apply",
            Self::ApplyStatus(_) => "apply-status",
            Self::Merge(_) => "merge",
            Self::Delete { .. } => "delete",
        }
    }
}

impl std::fmt::Debug for Verb {
    /// Without the body: it may hold the contents of a Secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}/{}", self.verb.name(), self.resource, self.namespace, self.name)
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_request_shows_what_it_is_about_and_no_contents() {
        let secret = json!({"data": {"password": "aHVudGVyMg=="}});
        let request = Request {
            resource: Resource::Child(Kind::Secret),
            namespace: "shop".into(),
            name: "orders-app".into(),
            verb: Verb::Apply(secret.into()),
        };
        for shown in [format!("{request:?}"), request.to_string(), format!("{:?}", request.verb)] {
            assert!(!shown.contains("aHVudGVyMg"), "{shown}");
        }
        assert_eq!(request.to_string(), "apply Secret shop/orders-app");
    }
}
