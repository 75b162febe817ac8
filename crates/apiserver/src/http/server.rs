//! Starts and stops the server: its directory, its listener, its connections and its garbage collector.
//!
//! Never: two servers on one directory, an answer cut off by a shutdown that could have waited for it, or a watch that holds a
//! shutdown up.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use jiff::Timestamp;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::access::Access;
use super::audit::Audit;
use super::kubeconfig::{self, Credential};
use super::pki::{Pki, PkiError};
use super::pods::PodLogs;
use super::serve::{self, App};
use super::shared::Shared;
use super::token::Tokens;
use super::user::{MASTERS, User};
use super::{bootstrap, tls};
use crate::error::ApiError;
use crate::request::{Subresource, Target};
use crate::store::{Ids, OpenError, Store};

/// A client that has not finished its TLS handshake by then is not one of ours.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Requests under way get this long at a shutdown; only a client that stopped reading needs more.
const DRAIN: Duration = Duration::from_secs(5);
/// Garbage that no change announces, such as expired events, is collected this often.
const COLLECT_EVERY: Duration = Duration::from_secs(30);

/// Where a server listens and what it keeps.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The address; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Certificates, tokens, audit log and state are kept here; none keeps all in memory.
    pub dir: Option<PathBuf>,
}

impl ServerConfig {
    /// A server on a free loopback port that forgets everything when it stops: for tests.
    pub fn in_memory() -> ServerConfig {
        ServerConfig { listen: (Ipv4Addr::LOCALHOST, 0).into(), dir: None }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Somebody else listens there.
    #[error("{address} is in use by another process: stop it, or listen on another port (port 0 takes any free one)")]
    Busy {
        /// The address.
        address: SocketAddr,
    },
    /// It cannot listen there.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Another server has the directory.
    #[error("{} is in use by another server: stop it, or choose another directory", dir.display())]
    DirectoryInUse {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory cannot be used.
    #[error("{}: {source}", path.display())]
    Directory {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No certificates or keys.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// No TLS.
    #[error("setting up TLS: {0}")]
    Tls(io::Error),
    /// The state cannot be read.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The first objects cannot be created.
    #[error("creating the first objects: {0}")]
    Bootstrap(ApiError),
}

/// Starts servers.
pub struct Server;

/// A server that runs. Dropping it stops it at once; [`Running::shutdown`] stops it in order.
pub struct Running {
    address: SocketAddr,
    app: Arc<App>,
    pki: Pki,
    tasks: TaskTracker,
    abort: CancellationToken,
    _lock: Option<File>,
}

impl Server {
    /// Starts a server; when this returns it answers.
    pub async fn start(config: ServerConfig) -> Result<Running, ServeError> {
        let dir = config.dir.as_deref();
        let lock = dir.map(lock_directory).transpose()?;
        let listener = listen(config.listen).await?;
        let address = listener.local_addr().map_err(|source| ServeError::Listen { address: config.listen, source })?;
        let now = Timestamp::now();
        let pki_dir = dir.map(|dir| dir.join("pki"));
        let pki = Pki::open(pki_dir.as_deref(), address.ip(), now)?;
        let acceptor = tls::acceptor(&pki).map_err(ServeError::Tls)?;
        let mut store = match dir {
            Some(dir) => Store::open(&dir.join("store"), Box::new(RandomIds))?,
            None => Store::in_memory(Box::new(RandomIds)),
        };
        bootstrap::create_missing(&mut store, now).map_err(ServeError::Bootstrap)?;
        let audit = Audit::open(dir)
            .map_err(|source| ServeError::Directory { path: config.dir.clone().unwrap_or_default(), source })?;
        let app = Arc::new(App {
            shared: Arc::new(Shared::new(store)),
            tokens: Tokens::open(pki_dir.as_deref())?,
            access: Access::default(),
            audit: Arc::new(audit),
            logs: RwLock::new(None),
            documents: Mutex::new(None),
            shutdown: CancellationToken::new(),
            address: address.to_string(),
        });
        let (tasks, abort) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(accept(app.clone(), listener, acceptor, tasks.clone(), abort.clone()));
        tasks.spawn(collect_garbage(app.clone()));
        Ok(Running { address, app, pki, tasks, abort, _lock: lock })
    }
}

impl Running {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The store, for parts in the same process.
    pub fn shared(&self) -> Arc<Shared> {
        self.app.shared.clone()
    }

    /// Who wrote what.
    pub fn audit(&self) -> Arc<Audit> {
        self.app.audit.clone()
    }

    /// The certificate of its authority, in PEM: what clients must trust.
    pub fn authority(&self) -> &str {
        self.pki.authority()
    }

    /// Its URL.
    pub fn url(&self) -> String {
        let ip = if self.address.ip().is_unspecified() { IpAddr::from(Ipv4Addr::LOCALHOST) } else { self.address.ip() };
        format!("https://{}", SocketAddr::new(ip, self.address.port()))
    }

    /// A kubeconfig for somebody who may do everything.
    pub fn admin_kubeconfig(&self) -> Result<String, PkiError> {
        self.kubeconfig_for_user("kubernetes-admin", Some(MASTERS))
    }

    /// A kubeconfig with a client certificate for a user, in a group.
    pub fn kubeconfig_for_user(&self, user: &str, group: Option<&str>) -> Result<String, PkiError> {
        let identity = self.pki.client(user, group, Timestamp::now())?;
        Ok(kubeconfig::render(&self.url(), self.authority(), user, "default", &Credential::Certificate(&identity)))
    }

    /// A kubeconfig for a service account, which must exist.
    pub fn kubeconfig_for_service_account(&self, namespace: &str, name: &str) -> Result<String, ApiError> {
        let token = self.token_for(namespace, name)?;
        let user = format!("system:serviceaccount:{namespace}:{name}");
        Ok(kubeconfig::render(&self.url(), self.authority(), &user, namespace, &Credential::Token(&token)))
    }

    /// A token of a service account, good for as long as the account exists.
    pub fn token_for(&self, namespace: &str, name: &str) -> Result<String, ApiError> {
        let account = self.app.shared.read(|store| {
            let resource = store.resource("", "v1", "serviceaccounts").ok_or_else(super::refusal::no_such_path)?;
            let (namespace, name) = (Some(namespace.to_owned()), name.to_owned());
            store.get(&Target { resource, namespace, name, subresource: Subresource::Main })
        })?;
        let uid = account["metadata"]["uid"].as_str().unwrap_or_default();
        Ok(self.app.tokens.issue(namespace, name, uid, Timestamp::now(), None))
    }

    /// Says where `kubectl logs` reads.
    pub fn set_pod_logs(&self, logs: Arc<dyn PodLogs>) {
        *self.app.logs.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(logs);
    }

    /// Stops: no new connections, watches end, requests under way finish, within a deadline.
    pub async fn shutdown(self) {
        self.app.shutdown.cancel();
        self.tasks.close();
        if tokio::time::timeout(DRAIN, self.tasks.wait()).await.is_err() {
            tracing::warn!("connections were still open {DRAIN:?} after the shutdown began; they are cut");
        }
        self.abort.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.app.shutdown.cancel();
        self.abort.cancel();
    }
}

/// Two servers that append to one log would destroy it. The kernel drops the lock with the process, however it ends.
fn lock_directory(dir: &Path) -> Result<File, ServeError> {
    let path = dir.join("lock");
    let failed = |source| ServeError::Directory { path: path.clone(), source };
    std::fs::create_dir_all(dir).map_err(failed)?;
    let file = File::options().create(true).append(true).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(ServeError::DirectoryInUse { dir: dir.to_owned() }),
        Err(std::fs::TryLockError::Error(source)) => Err(failed(source)),
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).await.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => ServeError::Busy { address },
        _ => ServeError::Listen { address, source },
    })
}

async fn accept(
    app: Arc<App>,
    listener: TcpListener,
    acceptor: TlsAcceptor,
    tasks: TaskTracker,
    abort: CancellationToken,
) {
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            () = app.shutdown.cancelled() => return,
        };
        match stream {
            Ok((stream, _)) => {
                let connection = connection(app.clone(), stream, acceptor.clone());
                let abort = abort.clone();
                tasks.spawn(async move { abort.run_until_cancelled(connection).await });
            }
            // Out of file descriptors, most likely: one that is closed meanwhile lets the next attempt succeed.
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(app: Arc<App>, stream: TcpStream, acceptor: TlsAcceptor) {
    // Small answers must not wait for the acknowledgement of earlier ones; a failure only costs time.
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => return tracing::debug!("a TLS handshake took too long"),
    };
    let certificate = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(<[_]>::first)
        .and_then(|certificate| User::from_certificate(certificate));
    let service = service_fn({
        let app = app.clone();
        move |request| {
            let (app, certificate) = (app.clone(), certificate.clone());
            async move { Ok::<_, std::convert::Infallible>(serve::answer(app, certificate, request).await) }
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    // A controller holds one stream for each kind that it watches; the default of 200 is too few for a test with many clients.
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(1000);
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = app.shutdown.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended with an error");
    }
}

async fn collect_garbage(app: Arc<App>) {
    let mut changes = app.shared.changes();
    loop {
        changes.borrow_and_update();
        // Each pass may make garbage of what it orphaned; it is over when a pass finds nothing.
        loop {
            match app.shared.write(|store| Ok(store.collect_garbage(Timestamp::now()))).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!(%error, "garbage was not collected");
                    break;
                }
            }
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(COLLECT_EVERY) => {}
            () = app.shutdown.cancelled() => return,
        }
    }
}

/// Uids and suffixes from the system's random numbers.
struct RandomIds;

impl Ids for RandomIds {
    fn uid(&mut self) -> String {
        uuid::Uuid::new_v4().to_string()
    }

    /// Without vowels, so that no generated name is a word.
    fn suffix(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        uuid::Uuid::new_v4()
            .as_bytes()
            .iter()
            .take(5)
            .map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]))
            .collect()
    }
}
