//! The operator's HTTPS listener: `/healthz` and `/readyz` for kubelets, `/metrics` for Prometheus.
//!
//! The certificate is given as files (and read again when they change), or made in memory at the start: kubelets don't check it, and
//! whoever wants to be sure of it names files. Never: plain text; a connection that lasts; anything but these pages.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bellwether_runtime::traffic::Traffic;
use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::vitals::Vitals;

/// How long one connection may last, handshake included. Probes and scrapes take milliseconds.
const CONNECTION_LIMIT: Duration = Duration::from_secs(10);
/// Connections at once; more wait. Each costs tens of kilobytes of a small limit.
const CONNECTIONS: usize = 16;
/// What `accept` fails with passes (no file descriptors left) or doesn't; it is not asked at once again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);
/// Prometheus asks for it by this name.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Where to listen, and with which certificate.
#[derive(Clone, Debug)]
pub struct Listening {
    /// The address. The operator doesn't start if it is taken.
    pub address: SocketAddr,
    /// The certificate.
    pub certificate: Certificate,
    /// The account of what the operator's own client sends: the liveness of watches is judged by it.
    pub traffic: Arc<Traffic>,
}

/// Which certificate to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// One that is made at the start and belongs to nobody.
    Made,
    /// The one in these PEM files.
    Files {
        /// The certificate, with intermediate ones after it.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
    },
}

/// Why there is no listener.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address can't be had.
    #[error("can't listen on {address}: {cause}; choose another with --listen")]
    Address {
        /// The address.
        address: SocketAddr,
        /// Why.
        cause: std::io::Error,
    },
    /// The certificate's files can't be used.
    #[error("{file}: {cause}")]
    File {
        /// The file.
        file: String,
        /// What is wrong with it.
        cause: String,
    },
    /// A certificate could not be made.
    #[error("no certificate: {0}")]
    Made(String),
}

/// A listener that has its address and its certificate, and does not serve yet.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    tls: Tls,
}

/// What is served.
#[derive(Debug)]
pub struct Pages {
    /// Signs of life.
    pub vitals: Arc<Vitals>,
    /// Figures.
    pub metrics: Arc<Metrics>,
}

/// Takes the address. Apart from [`serve`], so that a busy port or a bad file is said at the start.
pub async fn bind(listening: &Listening) -> Result<Listener, ListenError> {
    let tls = Tls::new(&listening.certificate)?;
    let address = listening.address;
    let socket = match TcpListener::bind(address).await {
        // "Everywhere" is meant, and a host without IPv6 has less of it.
        Err(error) if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && error.kind() != ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    };
    Ok(Listener { socket: socket.map_err(|cause| ListenError::Address { address, cause })?, tls })
}

/// Serves until `shutdown`.
pub async fn serve(listener: Listener, pages: Arc<Pages>, shutdown: CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let place = places.clone().acquire_owned().await;
        let accepted = tokio::select! {
            accepted = listener.socket.accept() => accepted,
            () = shutdown.cancelled() => return,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, _)) => {
                let (tls, pages) = (listener.tls.current(), pages.clone());
                connections.spawn(async move {
                    // Who is too slow, or speaks no TLS, is hung up on.
                    let _ = tokio::time::timeout(CONNECTION_LIMIT, answer(stream, tls, pages)).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn answer(stream: TcpStream, tls: Arc<ServerConfig>, pages: Arc<Pages>) {
    let Ok(stream) = TlsAcceptor::from(tls).accept(stream).await else { return };
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let page = pages.page(request.uri().path());
        async move { Ok::<_, Infallible>(page) }
    });
    // One request a connection: probes don't need more, and nobody keeps a place.
    let connection =
        hyper::server::conn::http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection ended early");
    }
}

impl Pages {
    fn page(&self, path: &str) -> Response<Full<Bytes>> {
        match path {
            "/healthz" => healthy("alive", &self.vitals.ailments().iter().map(ToString::to_string).collect::<Vec<_>>()),
            "/readyz" => {
                let unlisted = self.vitals.unlisted().into_iter();
                healthy("ready", &unlisted.map(|kind| format!("{kind} have not been listed yet")).collect::<Vec<_>>())
            }
            "/metrics" => match self.metrics.text() {
                Ok(text) => page(StatusCode::OK, OPENMETRICS, text),
                Err(error) => page(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", format!("{error}\n")),
            },
            _ => page(StatusCode::NOT_FOUND, "text/plain", "/healthz, /readyz, /metrics\n".to_owned()),
        }
    }
}

fn healthy(well: &str, problems: &[String]) -> Response<Full<Bytes>> {
    if problems.is_empty() {
        return page(StatusCode::OK, "text/plain", format!("{well}\n"));
    }
    page(StatusCode::SERVICE_UNAVAILABLE, "text/plain", format!("{}\n", problems.join("\n")))
}

fn page(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

/// The TLS configuration, kept up to date with its files.
#[derive(Debug)]
struct Tls {
    files: Option<(PathBuf, PathBuf)>,
    current: Mutex<(Option<SystemTime>, Arc<ServerConfig>)>,
}

impl Tls {
    fn new(certificate: &Certificate) -> Result<Self, ListenError> {
        let (files, config) = match certificate {
            Certificate::Made => (None, made()?),
            Certificate::Files { certificate, key } => {
                (Some((certificate.clone(), key.clone())), from_files(certificate, key)?)
            }
        };
        let changed = files.as_ref().and_then(|(certificate, _)| changed(certificate));
        Ok(Self { files, current: Mutex::new((changed, config)) })
    }

    /// The configuration for the next connection. Files that changed and can't be used leave the last good ones in force.
    fn current(&self) -> Arc<ServerConfig> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((certificate, key)) = &self.files {
            let changed = changed(certificate);
            if changed != current.0 {
                current.0 = changed;
                match from_files(certificate, key) {
                    Ok(config) => current.1 = config,
                    Err(error) => tracing::warn!(%error, "the changed certificate is not used"),
                }
            }
        }
        current.1.clone()
    }
}

fn changed(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file).and_then(|metadata| metadata.modified()).ok()
}

fn made() -> Result<Arc<ServerConfig>, ListenError> {
    let failed = |error: &dyn std::fmt::Display| ListenError::Made(error.to_string());
    let key = KeyPair::generate().map_err(|error| failed(&error))?;
    let params = CertificateParams::new(vec!["bellwether-operator".to_owned()]).map_err(|error| failed(&error))?;
    let certificate = params.self_signed(&key).map_err(|error| failed(&error))?;
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(|error| failed(&error))?;
    config(vec![certificate.der().clone()], key).map_err(|error| failed(&error))
}

fn from_files(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, ListenError> {
    let failed = |file: &Path, cause: String| ListenError::File { file: file.display().to_string(), cause };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| failed(certificate, error.to_string()))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| failed(key, error.to_string()))?;
    config(chain, private).map_err(|error| failed(certificate, error.to_string()))
}

fn config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(directory: &Path, name: &str) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap();
        let (certificate_file, key_file) = (directory.join("tls.crt"), directory.join("tls.key"));
        std::fs::write(&certificate_file, certificate.pem()).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        Certificate::Files { certificate: certificate_file, key: key_file }
    }

    #[test]
    fn a_certificate_that_is_renewed_is_used_and_a_broken_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let tls = Tls::new(&files(directory.path(), "first")).unwrap();
        let first = tls.current();
        assert!(Arc::ptr_eq(&first, &tls.current()), "nothing changed");
        tls.current.lock().unwrap().0 = None;
        files(directory.path(), "second");
        let second = tls.current();
        assert!(!Arc::ptr_eq(&first, &second));
        std::fs::write(directory.path().join("tls.key"), "half a file").unwrap();
        tls.current.lock().unwrap().0 = None;
        assert!(Arc::ptr_eq(&second, &tls.current()));
    }

    #[test]
    fn a_file_that_is_missing_is_named_at_the_start() {
        let directory = tempfile::tempdir().unwrap();
        let nowhere = directory.path().join("nowhere.crt");
        let error = Tls::new(&Certificate::Files { certificate: nowhere.clone(), key: nowhere }).unwrap_err();
        assert!(error.to_string().contains("nowhere.crt"), "{error}");
    }
}
