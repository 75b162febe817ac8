//! Probes a container as a kubelet does: HTTPS without verifying the certificate, thresholds and periods from the spec.
//!
//! One liberty: while a container isn't ready yet it is asked ten times a second, so that Ready comes at once. Such extra
//! questions never count as failures; those are counted by the spec's periods alone.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How often a container that isn't ready yet is asked, at first …
const EAGER: Duration = Duration::from_millis(100);
/// … and after this long only twice a second: a base backup of a large database takes hours.
const EAGER_FOR: Duration = Duration::from_secs(60);
const PATIENT: Duration = Duration::from_millis(500);

/// What probing found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The startup probe succeeded (or there is none).
    Started,
    /// It became ready, or ceased to be.
    Ready(bool),
    /// Startup or liveness failed for good: the container must be restarted.
    Unhealthy(String),
}

/// Probes until the receiver is dropped.
pub async fn attend(container: Container, address: String, findings: mpsc::Sender<Finding>) {
    if let Some(probe) = &container.startup_probe
        && let Err(why) = until_started(&container, probe, &address).await
    {
        let _gone = findings.send(Finding::Unhealthy(why)).await;
        return;
    }
    if findings.send(Finding::Started).await.is_err() {
        return;
    }
    let readiness = readiness(&container, &address, &findings);
    let liveness = liveness(&container, &address, &findings);
    tokio::select! {
        () = async { tokio::join!(readiness, liveness); } => {}
        () = findings.closed() => {}
    }
}

async fn until_started(container: &Container, probe: &Probe, address: &str) -> Result<(), String> {
    let began = Instant::now();
    let allowed = delay(probe) + period(probe) * positive(probe.failure_threshold, 3);
    loop {
        match ask(container, probe, address).await {
            Ok(()) => return Ok(()),
            Err(why) if began.elapsed() > allowed => return Err(format!("Startup probe failed: {why}")),
            Err(_) => tokio::time::sleep(eagerness(began).min(period(probe))).await,
        }
    }
}

async fn readiness(container: &Container, address: &str, findings: &mpsc::Sender<Finding>) {
    let Some(probe) = &container.readiness_probe else {
        let _gone = findings.send(Finding::Ready(true)).await;
        return;
    };
    let (mut ready, mut failures, mut since) = (false, 0, Instant::now());
    loop {
        let answer = ask(container, probe, address).await;
        failures = if answer.is_ok() { 0 } else { failures + 1 };
        let now_ready = answer.is_ok() || (ready && failures < positive(probe.failure_threshold, 3));
        if now_ready != ready {
            (ready, since) = (now_ready, Instant::now());
            if findings.send(Finding::Ready(ready)).await.is_err() {
                return;
            }
        }
        tokio::time::sleep(if ready { period(probe) } else { eagerness(since).min(period(probe)) }).await;
    }
}

async fn liveness(container: &Container, address: &str, findings: &mpsc::Sender<Finding>) {
    let Some(probe) = &container.liveness_probe else { return };
    tokio::time::sleep(delay(probe)).await;
    let mut failures = 0;
    loop {
        match ask(container, probe, address).await {
            Ok(()) => failures = 0,
            Err(_) if failures + 1 < positive(probe.failure_threshold, 3) => failures += 1,
            Err(why) => {
                let _gone = findings.send(Finding::Unhealthy(format!("Liveness probe failed: {why}"))).await;
                return;
            }
        }
        tokio::time::sleep(period(probe)).await;
    }
}

fn eagerness(since: Instant) -> Duration {
    if since.elapsed() < EAGER_FOR { EAGER } else { PATIENT }
}
fn period(probe: &Probe) -> Duration {
    seconds(positive(probe.period_seconds, 10))
}
fn delay(probe: &Probe) -> Duration {
    seconds(u32::try_from(probe.initial_delay_seconds.unwrap_or(0)).unwrap_or(0))
}
fn seconds(count: u32) -> Duration {
    Duration::from_secs(count.into())
}
fn positive(value: Option<i32>, default: u32) -> u32 {
    value.and_then(|value| u32::try_from(value).ok()).filter(|value| *value > 0).unwrap_or(default)
}

async fn ask(container: &Container, probe: &Probe, address: &str) -> Result<(), String> {
    let timeout = seconds(positive(probe.timeout_seconds, 1));
    let question = async {
        if let Some(get) = &probe.http_get {
            http_get(container, get, address).await
        } else if let Some(socket) = &probe.tcp_socket {
            let port = port(container, &socket.port)?;
            TcpStream::connect((address, port)).await.map(drop).map_err(|error| error.to_string())
        } else {
            Err("this kind of probe is not supported by `bellwether up`".to_owned())
        }
    };
    tokio::time::timeout(timeout, question).await.unwrap_or_else(|_| Err(format!("no answer within {timeout:?}")))
}

async fn http_get(container: &Container, get: &HTTPGetAction, address: &str) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let host = get.host.as_deref().unwrap_or(address);
    let stream = TcpStream::connect((host, port(container, &get.port)?)).await.map_err(|e| text(&e))?;
    let path = get.path.as_deref().unwrap_or("/");
    let request = hyper::Request::get(path).header("host", host).header("user-agent", "kube-probe/bellwether-up");
    let request = request.body(Empty::<bytes::Bytes>::new()).map_err(|e| text(&e))?;
    let response = if get.scheme.as_deref() == Some("HTTPS") {
        let name = ServerName::try_from(host.to_owned()).map_err(|e| text(&e))?;
        let connector = tokio_rustls::TlsConnector::from(unverified());
        exchange(connector.connect(name, stream).await.map_err(|e| text(&e))?, request).await
    } else {
        exchange(stream, request).await
    };
    let (status, body) = response.map_err(|e| text(&e))?;
    if (200..400).contains(&status) { Ok(()) } else { Err(format!("HTTP status {status}: {}", body.trim())) }
}

async fn exchange<S>(stream: S, request: hyper::Request<Empty<bytes::Bytes>>) -> Result<(u16, String), hyper::Error>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    const LONGEST_ANSWER: usize = 4096;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await;
    driver.abort();
    Ok((status, body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned()).unwrap_or_default()))
}

fn port(container: &Container, port: &IntOrString) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            ports.find(|port| port.name.as_ref() == Some(name)).map(|port| port.container_port)
        }
    };
    number.and_then(|number| u16::try_from(number).ok()).ok_or_else(|| format!("the container has no port {port:?}"))
}

/// TLS that takes any certificate: a kubelet's probes can't know whom to trust either.
fn unverified() -> Arc<rustls::ClientConfig> {
    static CONFIG: std::sync::LazyLock<Arc<rustls::ClientConfig>> = std::sync::LazyLock::new(|| {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let trust = Arc::new(Anybody(provider.clone()));
        let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.expect("ring supports the default protocol versions").dangerous();
        Arc::new(builder.with_custom_certificate_verifier(trust).with_no_client_auth())
    });
    CONFIG.clone()
}

#[derive(Debug)]
struct Anybody(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn server(answers: Vec<&'static str>) -> std::net::SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let last = answers.len() - 1;
            for n in 0.. {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _request = stream.read(&mut [0; 1024]).await;
                let answer = format!("HTTP/1.1 {} x\r\ncontent-length: 0\r\n\r\n", answers[n.min(last)]);
                let _sent = stream.write_all(answer.as_bytes()).await;
            }
        });
        address
    }

    fn container(port: u16, probes: &[&str]) -> Container {
        let probe = json!({"httpGet": {"path": "/", "port": port}, "periodSeconds": 1, "failureThreshold": 1});
        let mut container = json!({"name": "c"});
        for name in probes {
            container[*name] = probe.clone();
        }
        serde_json::from_value(container).unwrap()
    }

    #[tokio::test]
    async fn a_container_is_started_and_ready_as_soon_as_it_answers() {
        let address = server(vec!["503", "503", "200"]).await;
        let (sender, mut findings) = mpsc::channel(4);
        tokio::spawn(attend(
            container(address.port(), &["startupProbe", "readinessProbe"]),
            "127.0.0.1".into(),
            sender,
        ));
        assert_eq!(findings.recv().await, Some(Finding::Started));
        assert_eq!(findings.recv().await, Some(Finding::Ready(true)));
    }

    #[tokio::test]
    async fn a_container_that_stops_answering_is_unhealthy() {
        let address = server(vec!["500"]).await;
        let (sender, mut findings) = mpsc::channel(4);
        tokio::spawn(attend(container(address.port(), &["livenessProbe"]), "127.0.0.1".into(), sender));
        let mut seen = vec![];
        while let Some(finding) = findings.recv().await {
            seen.push(finding);
        }
        assert!(matches!(seen.last(), Some(Finding::Unhealthy(why)) if why.contains("HTTP status 500")), "{seen:?}");
    }
}
