//! The certificate by which agents know who may ask them, from the cluster's Secret. Never: any of it in a message.

use std::sync::Arc;

use bellwether_api::names::Names;
use bellwether_core::contract::key;
use bellwether_runtime::client::within;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// How to speak TLS with the agents of a cluster; or why that is not possible, in words for whoever asks.
pub async fn client_config(client: &Client, namespace: &str, names: &Names) -> Result<Arc<ClientConfig>, String> {
    let name = names.replication_tls();
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let found = within(api.get_opt(&name)).await.map_err(|late| format!("Secret {name}: {late}"))?;
    let found = found.map_err(|error| match error {
        kube::Error::Api(status) if status.code == 403 => {
            format!(
                "you may not read Secret {name}, whose certificate agents ask for \
                 (`kubectl auth can-i get secret/{name} -n {namespace}`)"
            )
        }
        error => format!("Secret {name}: {error}"),
    })?;
    let secret = found.ok_or_else(|| format!("there is no Secret {name} yet, whose certificate agents ask for"))?;
    let data = secret.data.unwrap_or_default();
    let value = |key: &str| data.get(key).map(|bytes| bytes.0.as_slice()).unwrap_or_default();
    let unusable = |key: &str| format!("{key} in Secret {name} is nothing that TLS can use");
    let certificates = |key: &str| {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(value(key)).collect();
        read.ok().filter(|found| !found.is_empty()).ok_or_else(|| unusable(key))
    };
    let private = PrivateKeyDer::from_pem_slice(value(key::TLS_KEY)).map_err(|_| unusable(key::TLS_KEY))?;
    let mut roots = RootCertStore::empty();
    if roots.add_parsable_certificates(certificates(key::CA_CRT)?).0 == 0 {
        return Err(unusable(key::CA_CRT));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?.with_root_certificates(roots);
    let config = builder.with_client_auth_cert(certificates(key::TLS_CRT)?, private);
    config.map(Arc::new).map_err(|_| unusable(key::TLS_CRT))
}
