//! How agents prove to each other who they are: the server's certificate is the instances' own, the client's is the one for
//! replication, and both are of the cluster's CA.
//!
//! Never: a client without a certificate, or with one of another purpose: the application's clients may have certificates of the
//! same CA.

use std::path::Path;
use std::sync::Arc;

use bellwether_core::contract::{REPLICATION_USER, key};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::http::TlsError;

/// Both sides of a connection.
#[derive(Clone, Debug)]
pub struct PeerTls {
    /// For those who connect to us.
    pub server: Arc<ServerConfig>,
    /// For those we connect to.
    pub client: Arc<ClientConfig>,
}

impl PeerTls {
    /// From the staged certificates of server and replication.
    pub fn read(server: &Path, replication: &Path) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Ok(Self {
            server: Arc::new(server_config(server, &provider)?),
            client: Arc::new(client_config(replication, &provider)?),
        })
    }
}

/// Whether a certificate, which TLS has checked, is the one for replication.
pub fn is_replications(certificate: &CertificateDer<'_>) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
    let mut names = certificate.subject().iter_common_name();
    // More than one name would be one too many to choose from.
    let only = names.next().filter(|_| names.next().is_none());
    only.and_then(|name| name.as_str().ok()) == Some(REPLICATION_USER)
}

fn server_config(dir: &Path, provider: &Arc<CryptoProvider>) -> Result<ServerConfig, TlsError> {
    let (chain, private) = pair(dir)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authority(dir)?), Arc::clone(provider))
        .build()
        .map_err(|error| unusable(&error))?;
    ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_client_cert_verifier(verifier).with_single_cert(chain, private))
        .map_err(|error| unusable(&error))
}

fn client_config(dir: &Path, provider: &Arc<CryptoProvider>) -> Result<ClientConfig, TlsError> {
    let (chain, private) = pair(dir)?;
    let roots = authority(dir)?;
    ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_root_certificates(roots).with_client_auth_cert(chain, private))
        .map_err(|error| unusable(&error))
}

fn pair(dir: &Path) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let path = dir.join(key::TLS_KEY);
    let private = PrivateKeyDer::from_pem_file(&path).map_err(|error| unreadable(&path, &error))?;
    Ok((certificates(&dir.join(key::TLS_CRT))?, private))
}

fn authority(dir: &Path) -> Result<RootCertStore, TlsError> {
    let path = dir.join(key::CA_CRT);
    let mut roots = RootCertStore::empty();
    match roots.add_parsable_certificates(certificates(&path)?) {
        (0, _) => Err(unreadable(&path, &"no certificate of an authority in it that can be used")),
        _ => Ok(roots),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, why: &dyn std::fmt::Display) -> TlsError {
    TlsError::File { path: path.display().to_string(), why: why.to_string() }
}

fn unusable(error: &dyn std::fmt::Display) -> TlsError {
    TlsError::Unusable(error.to_string())
}
