//! The way to the API, on which a test sees every request and can stop one: before it is carried out, or when it has been and nobody has been told.
//!
//! It is the server to the agents, with a certificate of its own, and a client to the real one. Nothing of this is in the agent.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, TRANSFER_ENCODING};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use k8s_openapi::ByteString;
use kube::Client;
use kube::client::Body;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// Where on its way a write is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The API has not seen it.
    Request,
    /// It is carried out, and whoever sent it is not told.
    Answer,
}

/// A write that is stopped. Dropped, it stays so for as long as whoever sent it waits.
pub struct Stopped {
    /// What it says.
    pub body: Value,
    go_on: oneshot::Sender<()>,
}

impl Stopped {
    /// It goes its way.
    pub fn go_on(self) {
        let _ = self.go_on.send(());
    }
}

type Meant = Box<dyn Fn(&Value) -> bool + Send>;

struct Trap {
    method: Method,
    part: String,
    stop: Stop,
    meant: Meant,
    caught: oneshot::Sender<Stopped>,
}

pub struct Gate {
    address: SocketAddr,
    certificate: String,
    trap: Arc<Mutex<Option<Trap>>>,
    task: JoinHandle<()>,
}

impl Gate {
    /// Before the API that this kubeconfig leads to.
    pub async fn before(kubeconfig: &Path) -> Self {
        let api = bellwether_runtime::client::from_kubeconfig(kubeconfig).await.expect("a client");
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.expect("versions of TLS").with_no_client_auth();
        let config = config.with_single_cert(vec![cert.der().clone()], key).expect("a configuration");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let trap = Arc::new(Mutex::new(None));
        let task = tokio::spawn({
            let trap = trap.clone();
            async move {
                let mut connections = JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    connections.spawn(serve(acceptor.clone(), stream, api.clone(), trap.clone()));
                }
            }
        });
        Self { address, certificate: cert.pem(), trap, task }
    }

    /// A kubeconfig that leads here.
    pub fn kubeconfig(&self) -> String {
        let authority = serde_json::to_value(ByteString(self.certificate.clone().into_bytes())).expect("JSON");
        let server = format!("https://{}", self.address);
        // Who they are is what the gate is: it passes everything on as an administrator.
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "gate",
            "clusters": [{"name": "gate", "cluster": {"server": server, "certificate-authority-data": authority}}],
            "contexts": [{"name": "gate", "context": {"cluster": "gate", "user": "agent"}}],
            "users": [{"name": "agent", "user": {}}],
        });
        config.to_string()
    }

    /// Stops the next write of this kind that is meant.
    pub fn stop(
        &self,
        method: Method,
        part: &str,
        stop: Stop,
        meant: impl Fn(&Value) -> bool + Send + 'static,
    ) -> oneshot::Receiver<Stopped> {
        let (caught, catches) = oneshot::channel();
        let trap = Trap { method, part: part.to_owned(), stop, meant: Box::new(meant), caught };
        *self.trap.lock().unwrap_or_else(PoisonError::into_inner) = Some(trap);
        catches
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream, api: Client, trap: Arc<Mutex<Option<Trap>>>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let answer = service_fn(move |request| {
        let (api, trap) = (api.clone(), trap.clone());
        async move { Ok::<_, Infallible>(pass(&api, &trap, request).await) }
    });
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
}

async fn pass(api: &Client, trap: &Mutex<Option<Trap>>, request: Request<Incoming>) -> Response<Body> {
    let (mut head, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return failed() };
    let body = body.to_bytes();
    let sprung = spring(trap, &head.method, head.uri.path(), &body);
    let (stop, caught) = match sprung {
        Some((trap, body)) => {
            let (go_on, goes_on) = oneshot::channel();
            (Some(trap.stop), Some((trap.caught, Stopped { body, go_on }, goes_on)))
        }
        None => (None, None),
    };
    let wait = async {
        if let Some((caught, stopped, goes_on)) = caught {
            let _ = caught.send(stopped);
            if goes_on.await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    let send = async {
        head.headers.remove(hyper::header::HOST);
        let mut answer =
            api.send(Request::from_parts(head, Body::from(body.to_vec()))).await.unwrap_or_else(|_| failed());
        for name in [CONNECTION, TRANSFER_ENCODING] {
            answer.headers_mut().remove(name);
        }
        answer
    };
    match stop {
        Some(Stop::Request) => {
            wait.await;
            send.await
        }
        _ => {
            let answer = send.await;
            wait.await;
            answer
        }
    }
}

fn spring(trap: &Mutex<Option<Trap>>, method: &Method, path: &str, body: &[u8]) -> Option<(Trap, Value)> {
    let mut trap = trap.lock().unwrap_or_else(PoisonError::into_inner);
    let set = trap.as_ref().filter(|trap| trap.method == *method && path.contains(&trap.part))?;
    let body: Value = serde_json::from_slice(body).ok()?;
    if !(set.meant)(&body) {
        return None;
    }
    Some((trap.take()?, body))
}

fn failed() -> Response<Body> {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::BAD_GATEWAY;
    answer
}
