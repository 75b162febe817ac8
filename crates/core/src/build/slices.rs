//! The EndpointSlices behind the Services.
//!
//! Never: endpoints in the `-rw` slice. The primary's agent alone writes those, at promotion and in one write; the operator
//! makes the slice so that there is something to write to.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};

use super::service::PORT_NAME;
use super::{AddressType, Parent};
use crate::contract::POSTGRES_PORT;
use crate::object::{Desired, Kind};

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Tells Kubernetes' own controller that the slice is not its.
const MANAGER: &str = "bellwether.dev";

/// A pod that clients are sent to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The pod's name.
    pub pod: String,
    /// Its UID.
    pub uid: String,
    /// Its address.
    pub address: String,
    /// Its node.
    pub node: Option<String>,
}

/// The slice of the `-rw` Service, without endpoints.
pub fn rw(parent: &Parent<'_>) -> Desired {
    slice(parent, &parent.names.rw(), &[])
}

/// The slice called `name` of the Service of that name, with these endpoints.
pub fn slice(parent: &Parent<'_>, name: &str, members: &[Member]) -> Desired {
    parent.built(Kind::EndpointSlice, name, members, || build(parent, name, members))
}

fn build(parent: &Parent<'_>, name: &str, members: &[Member]) -> Desired {
    let mut metadata = parent.owned(name);
    metadata
        .labels
        .get_or_insert_default()
        .extend([(SERVICE_NAME.to_owned(), name.to_owned()), (MANAGED_BY.to_owned(), MANAGER.to_owned())]);
    let family = parent.settings.addresses;
    let object = EndpointSlice {
        metadata,
        address_type: family.as_str().to_owned(),
        // A slice holds one family: an address of the other would make the API server refuse all of it.
        endpoints: members
            .iter()
            .filter(|m| AddressType::of(&m.address) == family)
            .map(|m| endpoint(parent, m))
            .collect(),
        ports: Some(vec![EndpointPort {
            name: Some(PORT_NAME.to_owned()),
            port: Some(i32::from(POSTGRES_PORT)),
            protocol: Some("TCP".to_owned()),
            ..EndpointPort::default()
        }]),
    };
    Desired::of(Kind::EndpointSlice, name, &object)
}

fn endpoint(parent: &Parent<'_>, member: &Member) -> Endpoint {
    Endpoint {
        addresses: vec![member.address.clone()],
        conditions: Some(EndpointConditions { ready: Some(true), serving: Some(true), terminating: Some(false) }),
        node_name: member.node.clone(),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: Some(parent.namespace.clone()),
            name: Some(member.pod.clone()),
            uid: Some(member.uid.clone()),
            ..ObjectReference::default()
        }),
        ..Endpoint::default()
    }
}
