//! A server that speaks S3, on this machine, at the address by which the harness's pods reach it. It ends with whoever started it.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, body::Incoming};
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

use crate::failure::{Failure, Outcome};

/// The bucket that there is.
pub const BUCKET: &str = "backups";
/// Who may use it.
pub const KEY: &str = "e2e";
/// By this word.
pub const SECRET: &str = "e2e-not-a-secret";

/// A server. Dropped, it is gone, with what was put there.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    dir: TempDir,
    _runtime: Runtime,
}

impl Server {
    /// Starts one on any free port of this address.
    pub fn start(address: Ipv4Addr) -> Outcome<Self> {
        let failed = |error: &dyn std::fmt::Display| Failure::Wrong(format!("the S3 server on {address}: {error}"));
        let dir = tempfile::Builder::new().prefix("e2e-s3-").tempdir().map_err(|error| failed(&error))?;
        std::fs::create_dir(dir.path().join(BUCKET)).map_err(|error| failed(&error))?;
        let files = FileSystem::new(dir.path()).map_err(|error| failed(&format!("{error:?}")))?;
        let mut builder = S3ServiceBuilder::new(files);
        builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let service = builder.build();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| failed(&error))?;
        let listener = runtime.block_on(TcpListener::bind((address, 0))).map_err(|error| failed(&error))?;
        let address = listener.local_addr().map_err(|error| failed(&error))?;
        runtime.spawn(async move {
            // It looks whether a file is there and then writes it: two creates of one object would both succeed.
            let creating = Arc::new(Mutex::new(()));
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, service.clone(), creating.clone()));
            }
        });
        Ok(Self { address, dir, _runtime: runtime })
    }

    /// Where the objects are, as files.
    pub fn files(&self) -> &Path {
        self.dir.path()
    }
}

async fn serve(stream: TcpStream, service: S3Service, creating: Arc<Mutex<()>>) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let (service, creating) = (service.clone(), creating.clone());
        async move {
            let _alone = match *request.method() == Method::PUT {
                true => Some(creating.lock().await),
                false => None,
            };
            let answer = service.call(request.map(s3s::Body::from)).await;
            Ok::<_, Infallible>(answer.unwrap_or_else(|_| {
                let mut failed = hyper::Response::new(s3s::Body::empty());
                *failed.status_mut() = hyper::StatusCode::INTERNAL_SERVER_ERROR;
                failed
            }))
        }
    });
    // A client that goes in the middle comes again.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
}
