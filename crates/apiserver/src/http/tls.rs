//! The TLS of the server: its certificate, and client certificates that its own authority has signed.
//!
//! A client without a certificate is let in here and has to show a token; one with a certificate of another authority is not.

use std::io;
use std::sync::Arc;

use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::pki::Pki;

/// What accepts connections.
pub(super) fn acceptor(pki: &Pki) -> io::Result<TlsAcceptor> {
    let certificates = |pem: &str| {
        CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>().map_err(io::Error::other)
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pki.authority())? {
        roots.add(certificate).map_err(io::Error::other)?;
    }
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_slice(pki.server.key.as_bytes()).map_err(io::Error::other)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_client_cert_verifier(clients)
        .with_single_cert(certificates(&pki.server.certificate)?, key)
        .map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
