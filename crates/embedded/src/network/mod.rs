//! Plays kube-proxy and the allocation of Services' addresses.
//!
//! A Service without an address gets one from the home's range; each of its ports is then a [`proxy`] to its ready endpoints.
//! Never: a connection that goes on to an endpoint that has left the Service (an old primary must not be written to).

mod proxy;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::sync::watch;

use crate::mirror::Mirror;
use crate::range::Pool;

/// The label by which a slice names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// What a proxy is called: the address it listens on.
type Proxies = BTreeMap<SocketAddr, watch::Sender<BTreeSet<SocketAddr>>>;

/// Keeps addresses and proxies as Services and EndpointSlices want them, until dropped.
pub struct Network {
    task: tokio::task::JoinHandle<()>,
}

struct Loop {
    client: Client,
    services: Mirror<Service>,
    slices: Mirror<EndpointSlice>,
    pool: Pool,
    given: BTreeMap<String, Ipv4Addr>,
    proxies: Proxies,
}

impl Network {
    /// Starts it.
    pub async fn start(client: Client, pool: Pool) -> Self {
        let services = Mirror::start(Api::<Service>::all(client.clone())).await;
        let slices = Mirror::start(Api::<EndpointSlice>::all(client.clone())).await;
        let (given, proxies) = (BTreeMap::new(), Proxies::new());
        let state = Loop { client, services, slices, pool, given, proxies };
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
            self.pass().await;
            tokio::select! {
                _ = services.changed() => {}
                _ = slices.changed() => {}
            }
        }
    }

    async fn pass(&mut self) {
        let (services, slices) = (self.services.all(), self.slices.all());
        for service in &services {
            self.give_address(service, &services).await;
        }
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

    async fn give_address(&mut self, service: &Service, services: &[Arc<Service>]) {
        let (Some(uid), Some(spec)) = (service.uid(), service.spec.as_ref()) else { return };
        let wants = spec.type_.as_deref().is_none_or(|kind| kind != "ExternalName");
        if !wants || spec.cluster_ip.as_deref().is_some_and(|ip| !ip.is_empty()) || self.given.contains_key(&uid) {
            return;
        }
        let existing = services.iter().filter_map(|service| cluster_ip(service));
        let used = existing.chain(self.given.values().copied()).collect();
        let Some(address) = self.pool.next(&used) else { return };
        let spec = json!({"clusterIP": address, "clusterIPs": [address], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"});
        let patch = Patch::Merge(json!({"metadata": {"uid": uid}, "spec": spec}));
        let api: Api<Service> = Api::namespaced(self.client.clone(), &service.namespace().unwrap_or_default());
        match api.patch(&service.name_any(), &PatchParams::default(), &patch).await {
            Ok(_) => drop(self.given.insert(uid, address)),
            Err(error) => tracing::warn!(service = service.name_any(), %error, "no address given"),
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
