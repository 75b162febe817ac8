//! The operator's health and figures, over HTTPS.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bellwether_api::v1::PostgresCluster;
use bellwether_core::rbac;
use bellwether_operator::Settings;
use bellwether_operator::listen::{Certificate, Listening};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::stage::{Operator, Stage};

/// Whoever asks the operator, with its certificate in hand.
struct Caller {
    address: SocketAddr,
    tls: TlsConnector,
    _files: tempfile::TempDir,
}

impl Caller {
    /// An operator of this stage, and somebody who knows its certificate.
    async fn and_operator(stage: &Stage) -> (Self, Operator) {
        let files = tempfile::tempdir().unwrap();
        let (certificate, der) = certificate(files.path());
        let mut roots = RootCertStore::empty();
        roots.add(der).unwrap();
        let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        // Free a moment ago; nobody else here asks for ports of its own choice.
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listening = Some(Listening { address, certificate, traffic: Arc::default() });
        let operator = stage.operator_as(rbac::OPERATOR, Settings { listening, ..Settings::default() }).await;
        (Self { address, tls: TlsConnector::from(Arc::new(tls)), _files: files }, operator)
    }

    /// Status code and body, as soon as somebody answers.
    async fn get(&self, path: &str) -> (u16, String) {
        let patience = tokio::time::Instant::now() + Duration::from_secs(30);
        let stream = loop {
            match TcpStream::connect(self.address).await {
                Ok(stream) => break stream,
                Err(error) => assert!(tokio::time::Instant::now() < patience, "nobody listens: {error}"),
            }
            tokio::task::yield_now().await;
        };
        let name = ServerName::try_from("bellwether-operator").unwrap();
        let mut stream = self.tls.connect(name, stream).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: operator\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split_whitespace().nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}

fn certificate(directory: &Path) -> (Certificate, CertificateDer<'static>) {
    let key = KeyPair::generate().unwrap();
    let made = CertificateParams::new(vec!["bellwether-operator".to_owned()]).unwrap().self_signed(&key).unwrap();
    let (certificate, key_file) = (directory.join("tls.crt"), directory.join("tls.key"));
    std::fs::write(&certificate, made.pem()).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    (Certificate::Files { certificate, key: key_file }, made.der().clone())
}

fn has_status(cluster: &PostgresCluster) -> bool {
    cluster.status.is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubelets_and_prometheus_are_answered() {
    let stage = Stage::set().await;
    let (caller, operator) = Caller::and_operator(&stage).await;
    stage.create_cluster("orders", json!({"replicas": 1})).await;
    stage.wait("orders", "orders has a status", has_status).await;
    assert_eq!(caller.get("/readyz").await, (200, "ready\n".to_owned()));
    assert_eq!(caller.get("/healthz").await, (200, "alive\n".to_owned()));
    let (code, metrics) = caller.get("/metrics").await;
    assert_eq!(code, 200);
    for series in [
        "bellwether_operator_api_requests_total{verb=\"patch\",code=\"201\"}",
        "bellwether_operator_api_requests_total{verb=\"patch_status\",code=\"200\"}",
        "bellwether_operator_api_requests_total{verb=\"watch\",code=\"200\"}",
        "bellwether_operator_queue_wait_seconds_bucket",
        "bellwether_operator_watch_restarts_total{resource=\"pods\"} 0",
        "bellwether_operator_leading 1",
    ] {
        assert!(metrics.contains(series), "{series} is not in\n{metrics}");
    }
    assert_eq!(caller.get("/secrets").await.0, 404);
    operator.stop().await;
    stage.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_nothing_can_be_listed_it_is_alive_and_not_ready_and_says_what_it_waits_for() {
    let stage = Stage::set().await;
    // The kind can't be listed: to the operator that is no different from a server that can't be reached.
    stage.remove_role().await;
    let (caller, operator) = Caller::and_operator(&stage).await;
    assert_eq!(caller.get("/healthz").await.0, 200, "a restart would not help");
    let (code, text) = caller.get("/readyz").await;
    assert_eq!(code, 503);
    assert!(text.contains("postgresclusters have not been listed yet"), "{text}");
    operator.stop().await;
    stage.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_answered_in_plain_text() {
    let stage = Stage::set().await;
    let (caller, operator) = Caller::and_operator(&stage).await;
    caller.get("/healthz").await;
    let mut stream = TcpStream::connect(caller.address).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: operator\r\n\r\n").await.unwrap();
    let mut answer = vec![];
    let _hung_up_on = stream.read_to_end(&mut answer).await;
    let text = String::from_utf8_lossy(&answer);
    assert!(!text.contains("HTTP") && !text.contains("bellwether"), "{text}");
    operator.stop().await;
    stage.server.shutdown().await;
}
