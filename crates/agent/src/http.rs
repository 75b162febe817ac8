//! The agent's HTTPS server: probes for everybody, the detail page for holders of a certificate of the cluster's CA.
//!
//! Never: the detail page without a certificate; a probe that hangs. Kubelets have no client certificate, so one is asked for
//! but not required, and one that is shown must be valid.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bellwether_api::v1::InstanceState;
use bellwether_core::contract::{key, probe};
use bellwether_core::instance;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::board::Board;

/// A main loop that has not turned for this long is stuck: it turns every second, and its longest call has a deadline of a
/// few seconds.
pub const STUCK_AFTER: Duration = Duration::from_secs(30);
/// How long one connection may last, handshake included. Probes take milliseconds.
const CONNECTION_LIMIT: Duration = Duration::from_secs(20);
/// Connections at once; more wait. Each costs tens of kilobytes, and memory is what we have little of.
const CONNECTIONS: usize = 32;

/// Why the server can't have its certificate.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read.
    #[error("{path}: {why}")]
    File {
        /// The file.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// The certificate can't be used.
    #[error("the server certificate can't be used: {0}")]
    Unusable(String),
}

/// The TLS configuration from a mounted Secret.
pub fn server_config(dir: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let file = |name: &str| dir.join(name);
    let unreadable = |name: &str, why: String| TlsError::File { path: file(name).display().to_string(), why };
    let certificates = |name: &'static str| -> Result<Vec<CertificateDer<'static>>, TlsError> {
        CertificateDer::pem_file_iter(file(name))
            .and_then(Iterator::collect)
            .map_err(|error| unreadable(name, error.to_string()))
    };
    let private = PrivateKeyDer::from_pem_file(file(key::TLS_KEY))
        .map_err(|error| unreadable(key::TLS_KEY, error.to_string()))?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(key::CA_CRT)?);
    let unusable = |error: &dyn std::fmt::Display| TlsError::Unusable(error.to_string());
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots))
        .allow_unauthenticated()
        .build()
        .map_err(|error| unusable(&error))?;
    let mut config = ServerConfig::builder()
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates(key::TLS_CRT)?, private)
        .map_err(|error| unusable(&error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Opens the port. Separate from [`serve`], so that a port in use is said at the start.
pub async fn listen(address: IpAddr, port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::new(address, port)).await
}

/// Serves for ever, each connection with the newest certificate.
pub async fn serve(listener: TcpListener, tls: watch::Receiver<Arc<ServerConfig>>, board: Board) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let acceptor = TlsAcceptor::from(Arc::clone(&tls.borrow()));
                let board = board.clone();
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(CONNECTION_LIMIT, answer(stream, acceptor, board)).await;
                    drop(slot);
                });
            }
            Err(error) => {
                // Out of file descriptors, for example: others need the moment to close some.
                tracing::warn!(%error, "can't accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn answer(stream: TcpStream, acceptor: TlsAcceptor, board: Board) {
    let stream = match acceptor.accept(stream).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, "no TLS handshake");
            return;
        }
    };
    let visitor = if stream.get_ref().1.peer_certificates().is_some() { Visitor::Known } else { Visitor::Unknown };
    let service = service_fn(move |request: Request<Incoming>| {
        let response = route(request.uri().path(), visitor, &board);
        async move { Ok::<_, Infallible>(response) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(CONNECTION_LIMIT)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visitor {
    /// Somebody with a certificate of the cluster's CA; TLS has checked it.
    Known,
    /// Anybody.
    Unknown,
}

fn route(path: &str, visitor: Visitor, board: &Board) -> Response<String> {
    match path {
        probe::STARTUP if board.started() => text(StatusCode::OK, "PostgreSQL has started".into()),
        // It is not to start, and a container that is killed for that would only come back to the same.
        probe::STARTUP if board.current().state == InstanceState::Fenced => text(StatusCode::OK, "fenced".into()),
        probe::STARTUP => {
            let report = board.current();
            let why = report.message.map(|message| format!(": {message}")).unwrap_or_default();
            text(StatusCode::SERVICE_UNAVAILABLE, format!("{:?}{why}", report.state))
        }
        probe::READY => match instance::probe::ready(&board.current()) {
            Ok(()) => text(StatusCode::OK, "ready".into()),
            Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, why),
        },
        probe::LIVE => {
            let silence = board.since_beat();
            if silence < STUCK_AFTER {
                text(StatusCode::OK, "alive".into())
            } else {
                text(
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!("the main loop has not turned for {} s", silence.as_secs()),
                )
            }
        }
        probe::DETAIL if visitor == Visitor::Known => match serde_json::to_string(&board.detail()) {
            Ok(detail) => json(detail),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        },
        probe::DETAIL => text(StatusCode::FORBIDDEN, "a certificate of the cluster's CA is needed".into()),
        _ => text(StatusCode::NOT_FOUND, "no such page".into()),
    }
}

fn text(status: StatusCode, line: String) -> Response<String> {
    let mut response = Response::new(line + "\n");
    *response.status_mut() = status;
    response
}

fn json(body: String) -> Response<String> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::Vitals;
    use bellwether_api::v1::InstanceRole;
    use bellwether_core::contract::Report;

    fn board() -> Board {
        Board::new(Report::default())
    }

    #[test]
    fn startup_says_what_it_is_doing() {
        let board = board();
        board.report(|report| {
            report.state = InstanceState::Joining;
            report.message = Some("copied 40 %".into());
        });
        let response = route(probe::STARTUP, Visitor::Unknown, &board);
        assert_eq!(response.status(), 503);
        assert_eq!(response.body(), "Joining: copied 40 %\n");
        board.set_started();
        assert_eq!(route(probe::STARTUP, Visitor::Unknown, &board).status(), 200);
    }

    #[test]
    fn readiness_follows_the_report() {
        let board = board();
        assert_eq!(route(probe::READY, Visitor::Unknown, &board).status(), 503);
        board.report(|report| {
            report.role = Some(InstanceRole::Primary);
            report.state = InstanceState::Leading;
            report.accepts_sql = true;
        });
        assert_eq!(route(probe::READY, Visitor::Unknown, &board).status(), 200);
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_whose_loop_is_stuck_is_not_alive() {
        let board = board();
        assert_eq!(route(probe::LIVE, Visitor::Unknown, &board).status(), 200);
        tokio::time::advance(STUCK_AFTER).await;
        assert_eq!(route(probe::LIVE, Visitor::Unknown, &board).status(), 503);
        board.beat();
        assert_eq!(route(probe::LIVE, Visitor::Unknown, &board).status(), 200);
    }

    #[tokio::test(start_paused = true)]
    async fn the_detail_page_says_how_old_positions_are() {
        let board = board();
        assert_eq!(board.detail().age_seconds, None, "PostgreSQL was never asked");
        board.set_vitals(Vitals::default());
        tokio::time::advance(Duration::from_secs(12)).await;
        assert_eq!(board.detail().age_seconds, Some(12.0));
    }

    #[test]
    fn the_detail_page_is_for_holders_of_a_certificate() {
        assert_eq!(route(probe::DETAIL, Visitor::Unknown, &board()).status(), 403);
        assert_eq!(route(probe::DETAIL, Visitor::Known, &board()).status(), 200);
    }
}
