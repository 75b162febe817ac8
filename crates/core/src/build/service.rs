//! The Services: `-rw` to the primary, `-ro` to standbys, `-r` to any instance, and the headless `-pods`.
//!
//! The first three have no selector: readiness flips of pods would change their endpoints at the worst moment, during a
//! failover. Their EndpointSlices are ours ([`super::slices`]).

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::Parent;
use crate::contract::POSTGRES_PORT;
use crate::object::{Desired, Kind};

/// The name of PostgreSQL's port in Services and EndpointSlices; they are matched by it.
pub const PORT_NAME: &str = "postgresql";

/// All Services of the cluster.
pub fn services(parent: &Parent<'_>) -> Vec<Desired> {
    let names = &parent.names;
    let mut services: Vec<_> =
        [names.rw(), names.ro(), names.r()].iter().map(|name| without_selector(parent, name)).collect();
    services.push(headless(parent));
    services
}

fn without_selector(parent: &Parent<'_>, name: &str) -> Desired {
    service(parent, name, || ServiceSpec {
        type_: Some("ClusterIP".to_owned()),
        ports: Some(vec![port()]),
        ..ServiceSpec::default()
    })
}

/// Gives each pod the name that certificates cover. Instances find each other by it before they are ready.
fn headless(parent: &Parent<'_>) -> Desired {
    service(parent, &parent.names.pods(), || ServiceSpec {
        type_: Some("ClusterIP".to_owned()),
        cluster_ip: Some("None".to_owned()),
        selector: Some(parent.selector()),
        publish_not_ready_addresses: Some(true),
        ports: Some(vec![port()]),
        ..ServiceSpec::default()
    })
}

fn service(parent: &Parent<'_>, name: &str, spec: impl FnOnce() -> ServiceSpec) -> Desired {
    parent.built(Kind::Service, name, &(), || {
        let object = Service { metadata: parent.owned(name), spec: Some(spec()), ..Service::default() };
        Desired::of(Kind::Service, name, &object)
    })
}

fn port() -> ServicePort {
    ServicePort {
        name: Some(PORT_NAME.to_owned()),
        port: i32::from(POSTGRES_PORT),
        target_port: Some(IntOrString::Int(i32::from(POSTGRES_PORT))),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    }
}
