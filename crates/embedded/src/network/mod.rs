//! Plays kube-proxy, and says which addresses Services get.
//!
//! Services have addresses of the home's range; each of their ports is a [`proxy`] to the ready endpoints.
//! Never: a connection that goes on to an endpoint that has left the Service (an old primary must not be written to).

mod proxy;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bellwether_apiserver::store::ClusterIps;
use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;

use crate::mirror::Mirror;
use crate::range::{Pool, Range};

/// The label by which a slice names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The addresses that the API gives to Services: on loopback, where the proxies listen.
#[derive(Debug)]
pub struct ServiceAddresses(Pool);

impl ServiceAddresses {
    /// From a home's range.
    pub fn of(range: Range) -> Self {
        Self(range.services())
    }
}

impl ClusterIps for ServiceAddresses {
    fn allocate(&mut self, taken: &dyn Fn(&str) -> bool) -> Option<String> {
        self.0.next_free(|address| taken(&address.to_string())).map(|address| address.to_string())
    }
}

/// What a proxy is called: the address it listens on.
type Proxies = BTreeMap<SocketAddr, watch::Sender<BTreeSet<SocketAddr>>>;

/// Keeps addresses and proxies as Services and EndpointSlices want them, until dropped.
pub struct Network {
    task: tokio::task::JoinHandle<()>,
}

struct Loop {
    services: Mirror<Service>,
    slices: Mirror<EndpointSlice>,
    proxies: Proxies,
}

impl Network {
    /// Starts it.
    pub async fn start(client: Client) -> Self {
        let services = Mirror::start(Api::<Service>::all(client.clone())).await;
        let slices = Mirror::start(Api::<EndpointSlice>::all(client)).await;
        let state = Loop { services, slices, proxies: Proxies::new() };
        Self { task: tokio::spawn(state.run()) }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Loop {
    async fn run(mut self) {
        let (mut services, mut slices) = (self.services.ticks(), self.slices.ticks());
        loop {
            self.pass();
            tokio::select! {
                _ = services.changed() => {}
                _ = slices.changed() => {}
            }
        }
    }

    fn pass(&mut self) {
        let (services, slices) = (self.services.all(), self.slices.all());
        let wanted: BTreeMap<_, _> = services.iter().flat_map(|service| routes(service, &slices)).collect();
        self.proxies.retain(|address, _| wanted.contains_key(address));
        for (address, endpoints) in wanted {
            match self.proxies.get(&address) {
                Some(proxy) => {
                    proxy.send_if_modified(|current| std::mem::replace(current, endpoints.clone()) != endpoints);
                }
                None => {
                    self.proxies.insert(address, proxy::start(address, endpoints));
                }
            }
        }
    }
}

fn cluster_ip(service: &Service) -> Option<Ipv4Addr> {
    service.spec.as_ref()?.cluster_ip.as_ref()?.parse().ok()
}

/// For each port of a Service: where it listens, and the ready endpoints behind it.
fn routes(service: &Service, slices: &[Arc<EndpointSlice>]) -> Vec<(SocketAddr, BTreeSet<SocketAddr>)> {
    let Some(address) = cluster_ip(service) else { return vec![] };
    let (namespace, name) = (service.namespace(), service.name_any());
    let of_service =
        |slice: &&Arc<EndpointSlice>| slice.namespace() == namespace && slice.labels().get(SERVICE_NAME) == Some(&name);
    let slices: Vec<_> = slices.iter().filter(of_service).collect();
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let route = |port: &ServicePort| {
        let number = u16::try_from(port.port).ok()?;
        let endpoints = slices.iter().flat_map(|slice| endpoints(slice, port)).collect();
        Some((SocketAddr::from((address, number)), endpoints))
    };
    ports.filter_map(route).collect()
}

fn endpoints(slice: &EndpointSlice, port: &ServicePort) -> Vec<SocketAddr> {
    let name = |name: &Option<String>| name.clone().unwrap_or_default();
    let numbered = slice.ports.iter().flatten().find(|p| name(&p.name) == name(&port.name)).and_then(|p| p.port);
    let Some(number) = numbered.and_then(|number| u16::try_from(number).ok()) else { return vec![] };
    // No value of `ready` means yes, says the API.
    let ready = slice.endpoints.iter().filter(|e| e.conditions.as_ref().and_then(|c| c.ready) != Some(false));
    let addresses = ready.flat_map(|endpoint| endpoint.addresses.iter());
    addresses.filter_map(|ip| Some(SocketAddr::new(ip.parse().ok()?, number))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(ip: &str) -> Service {
        let spec = json!({"clusterIP": ip, "ports": [{"name": "postgres", "port": 5432}]});
        serde_json::from_value(json!({"metadata": {"name": "db-rw", "namespace": "default"}, "spec": spec})).unwrap()
    }
    fn slice(endpoints: &serde_json::Value) -> Arc<EndpointSlice> {
        let metadata = json!({"name": "db-rw", "namespace": "default", "labels": {SERVICE_NAME: "db-rw"}});
        let ports = json!([{"name": "postgres", "port": 5432}]);
        let slice = json!({"metadata": metadata, "addressType": "IPv4", "endpoints": endpoints, "ports": ports});
        Arc::new(serde_json::from_value(slice).unwrap())
    }

    #[test]
    fn only_ready_endpoints_are_reached() {
        let slice = slice(&json!([
            {"addresses": ["127.9.16.1"], "conditions": {"ready": true}}, {"addresses": ["127.9.16.2"]},
            {"addresses": ["127.9.16.3"], "conditions": {"ready": false}},
        ]));
        let routes = routes(&service("127.9.1.1"), &[slice]);
        let ends: Vec<_> = routes[0].1.iter().map(ToString::to_string).collect();
        assert_eq!(
            (routes[0].0.to_string().as_str(), ends),
            ("127.9.1.1:5432", vec!["127.9.16.1:5432".to_owned(), "127.9.16.2:5432".to_owned()])
        );
    }

    #[test]
    fn a_headless_service_has_no_proxy() {
        assert!(routes(&service("None"), &[]).is_empty());
    }
}
