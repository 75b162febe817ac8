//! A server that speaks S3, in this process, over a directory that goes with it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bellwether_backup::{Location, Store};
use http::header::{IF_NONE_MATCH, RANGE};
use http::{Method, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::PATIENCE;

pub const BUCKET: &str = "backups";
pub const KEY: &str = "AKIDEXAMPLE";
pub const SECRET: &str = "wJalrXUtnFEMI";

/// What the server does with conditions and ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// As Amazon does.
    Conditions,
    /// As servers do that have never heard of them.
    Nothing,
}

pub struct Server {
    pub address: SocketAddr,
    dir: TempDir,
    accepting: JoinHandle<()>,
    ca: Option<String>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Server {
    pub async fn start() -> Self {
        Self::that(Keeps::Conditions).await
    }

    pub async fn that(keeps: Keeps) -> Self {
        let (dir, service) = service(keeps);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = tokio::spawn(async move {
            // With the last handle to it, all that was accepted ends too.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, service.clone(), keeps));
            }
        });
        Self { address, dir, accepting, ca: None }
    }

    /// With a certificate of its own.
    pub async fn over_tls() -> Self {
        let (dir, service) = service(Keeps::Conditions);
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(vec![cert.der().clone()], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, service) = (acceptor.clone(), service.clone());
                connections.spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream, service, Keeps::Conditions).await;
                    }
                });
            }
        });
        Self { address, dir, accepting, ca: Some(cert.pem()) }
    }

    /// The store there, when it is reached at this address.
    pub fn location_at(&self, address: SocketAddr, bucket: &str) -> Location {
        let scheme = if self.ca.is_some() { "https" } else { "http" };
        located(&format!("{scheme}://{address}"), bucket, self.ca.as_deref())
    }

    pub fn location(&self) -> Location {
        self.location_at(self.address, BUCKET)
    }

    pub fn store(&self) -> Store {
        Store::open(&self.location()).unwrap()
    }

    /// Where an object is on disk.
    pub fn file(&self, key: &str) -> PathBuf {
        self.dir.path().join(BUCKET).join("prod").join(key)
    }
}

pub fn located(endpoint: &str, bucket: &str, ca: Option<&str>) -> Location {
    let settings = [("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", SECRET), ("AWS_ENDPOINT", endpoint)];
    let settings: BTreeMap<_, _> = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    Location::new(&format!("s3://{bucket}/prod"), settings, ca).unwrap().with_patience(PATIENCE)
}

fn service(keeps: Keeps) -> (TempDir, S3Service) {
    let dir = tempfile::Builder::new().prefix("bw-s3-").tempdir().unwrap();
    std::fs::create_dir(dir.path().join(BUCKET)).unwrap();
    let mut builder = S3ServiceBuilder::new(FileSystem::new(dir.path()).unwrap());
    // What is taken out of a request can't be signed.
    if keeps == Keeps::Conditions {
        builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
    }
    (dir, builder.build())
}

/// It looks whether a file is there, and then writes it: two creates of one object would both succeed. Amazon does them one after the other.
static CREATING: Mutex<()> = Mutex::const_new(());

async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, service: S3Service, keeps: Keeps) {
    let answer = service_fn(move |mut request: Request<Incoming>| {
        let service = service.clone();
        async move {
            if !request.uri().path().starts_with(&format!("/{BUCKET}")) {
                return Ok(no_such_bucket());
            }
            if keeps == Keeps::Nothing {
                request.headers_mut().remove(IF_NONE_MATCH);
                request.headers_mut().remove(RANGE);
                request.headers_mut().remove("authorization");
            }
            let creating = match *request.method() == Method::PUT {
                true => Some(CREATING.lock().await),
                false => None,
            };
            let answer = service.call(request.map(s3s::Body::from)).await.map_err(|_| "the server failed");
            drop(creating);
            answer
        }
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
}

/// As Amazon says it: the server takes a bucket that is not there for an empty one.
fn no_such_bucket() -> http::Response<s3s::Body> {
    let said = "<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message></Error>";
    http::Response::builder().status(404).body(s3s::Body::from(said.to_owned())).unwrap()
}

/// What answers at this address is a proxy without anything behind it.
pub async fn no_backend() -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepting = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = service_fn(|_: Request<Incoming>| async {
                let answer = http::Response::builder().status(404).body("default backend - 404".to_owned());
                Ok::<_, Infallible>(answer.unwrap())
            });
            let _ = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), answer).await;
        }
    });
    (address, accepting)
}
