//! Talks SQL to a server: as superuser through its socket, or over TLS as anybody.
//!
//! Everything has a deadline: a server that hangs must look like one, not hang its agent. A session that missed one is of
//! no use any more, because the answer may still come; drop it and make another.

mod configuration;
mod drain;
mod facts;
mod quote;
mod receiver;
mod restored;
mod roles;
mod slots;
mod tls;
mod writers;

use std::error::Error as _;
use std::future::Future;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bellwether_core::contract::SUPERUSER;
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, NoTls, Socket};

use crate::secret::Secret;

pub use configuration::{Context, FileError};
pub use facts::{Receiver, Sender, ServerState, Standby};
pub use receiver::{Cut, CutError};
pub use roles::Changed;
pub use slots::Slot;
pub use tls::{TlsClient, TlsError};

/// The database that every server has.
pub const POSTGRES_DATABASE: &str = "postgres";
/// What our sessions are called in `pg_stat_activity`.
const APPLICATION: &str = "bellwether";

/// A session with a server. It ends when this is dropped.
#[derive(Debug)]
pub struct Session {
    client: Client,
    /// What moves the bytes; taken when the session ends.
    driver: Option<JoinHandle<()>>,
    deadline: Duration,
    spoilt: AtomicBool,
}

/// A server, and who asks.
#[derive(Clone, Debug)]
pub struct Remote<'a> {
    /// The name that its certificate must cover.
    pub host: &'a str,
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// The role.
    pub user: &'a str,
    /// The role's password, where it has one.
    pub password: Option<&'a Secret>,
    /// The database.
    pub database: &'a str,
}

/// Why the server did not do or say what was asked.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    /// It can't be reached.
    #[error("{to}: no connection: {message}")]
    Unreachable {
        /// Which server.
        to: String,
        /// What is wrong.
        message: String,
    },
    /// It is there, and starting, stopping or recovering.
    #[error("{to}: not ready: {message}")]
    NotReady {
        /// Which server.
        to: String,
        /// What it said.
        message: String,
    },
    /// It does not let us in.
    #[error("{to}: refused: {message}")]
    Refused {
        /// Which server.
        to: String,
        /// What it said.
        message: String,
    },
    /// No answer in time.
    #[error("{what}: no answer in {after:?}")]
    Deadline {
        /// What was asked.
        what: &'static str,
        /// How long we waited.
        after: Duration,
    },
    /// It says no.
    #[error("{what}: {message}")]
    Failed {
        /// What was asked.
        what: &'static str,
        /// What it said.
        message: String,
        /// PostgreSQL's code, unless the connection broke.
        code: Option<SqlState>,
    },
    /// It answers what no server should.
    #[error("{what}: unexpected answer: {problem}")]
    Unexpected {
        /// What was asked.
        what: &'static str,
        /// What is wrong with the answer.
        problem: String,
    },
}

impl Session {
    /// As superuser through the socket. `deadline` is for the connection and for each thing asked.
    pub async fn local(socket_dir: &Path, port: u16, database: &str, deadline: Duration) -> Result<Self, SqlError> {
        let mut config = Config::new();
        config.host_path(socket_dir).port(port).user(SUPERUSER).dbname(database).options(options(deadline, OURS));
        Self::connect(format!("{}:{port}", socket_dir.display()), config, NoTls, deadline).await
    }

    /// As superuser through the socket, with the settings that SQL of a user's may count on (`post_init_sql`).
    pub async fn local_for_users(
        socket_dir: &Path,
        port: u16,
        database: &str,
        deadline: Duration,
    ) -> Result<Self, SqlError> {
        let mut config = Config::new();
        config.host_path(socket_dir).port(port).user(SUPERUSER).dbname(database).options(options(deadline, &[]));
        Self::connect(format!("{}:{port}", socket_dir.display()), config, NoTls, deadline).await
    }

    /// Over TLS.
    pub async fn tls(remote: &Remote<'_>, tls: TlsClient, deadline: Duration) -> Result<Self, SqlError> {
        let mut config = Config::new();
        config.host(remote.host).hostaddr(remote.address).port(remote.port).ssl_mode(SslMode::Require);
        config.user(remote.user).dbname(remote.database).options(options(deadline, &[]));
        if let Some(password) = remote.password {
            config.password(password.expose());
        }
        Self::connect(format!("{} ({}:{})", remote.host, remote.address, remote.port), config, tls, deadline).await
    }

    async fn connect<T>(to: String, mut config: Config, tls: T, deadline: Duration) -> Result<Self, SqlError>
    where
        T: MakeTlsConnect<Socket> + Send,
        T::Stream: Send + 'static,
        T::TlsConnect: Send,
        <T::TlsConnect as tokio_postgres::tls::TlsConnect<Socket>>::Future: Send,
    {
        config.application_name(APPLICATION);
        let connected = tokio::time::timeout(deadline, config.connect(tls)).await;
        let connected = connected.map_err(|_| SqlError::Deadline { what: "connect", after: deadline })?;
        let (client, connection) = connected.map_err(|error| not_connected(to, &error))?;
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                // Whoever uses the session gets an error of their own; this says when it broke.
                tracing::debug!(error = %describe(&error), "a session with PostgreSQL ended");
            }
        });
        Ok(Self { client, driver: Some(driver), deadline, spoilt: AtomicBool::new(false) })
    }

    /// Whether it can be asked anything more.
    pub fn is_usable(&self) -> bool {
        !self.client.is_closed() && !self.spoilt.load(Ordering::Relaxed)
    }

    /// Whether the server answers at all.
    pub async fn ping(&self) -> Result<(), SqlError> {
        self.within("ping", self.client.simple_query("select 1")).await.map(drop)
    }

    /// Runs SQL of a user's as it is.
    pub async fn run_script(&self, sql: &str) -> Result<(), SqlError> {
        self.within("run SQL of spec.bootstrap.initdb.postInitSQL", self.client.batch_execute(sql)).await
    }

    async fn execute(&self, what: &'static str, sql: &str) -> Result<(), SqlError> {
        self.within(what, self.client.batch_execute(sql)).await
    }

    async fn within<T>(
        &self,
        what: &'static str,
        asked: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, SqlError> {
        match tokio::time::timeout(self.deadline, asked).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(SqlError::Failed { what, message: describe(&error), code: error.code().cloned() }),
            Err(_) => {
                self.spoilt.store(true, Ordering::Relaxed);
                Err(SqlError::Deadline { what, after: self.deadline })
            }
        }
    }
}

impl Drop for Session {
    /// Takes leave, for as long as a question may take: a connection that just breaks off is a line in the server's log.
    fn drop(&mut self) {
        let Some(mut driver) = self.driver.take() else { return };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if self.is_usable() => {
                let patience = self.deadline;
                drop(runtime.spawn(async move {
                    if tokio::time::timeout(patience, &mut driver).await.is_err() {
                        driver.abort();
                    }
                }));
            }
            _ => driver.abort(),
        }
    }
}

impl SqlError {
    /// PostgreSQL's code, where it gave one.
    pub fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Failed { code, .. } => code.as_ref(),
            _ => None,
        }
    }
}

/// The settings of our own superuser sessions.
const OURS: &[(&str, &str)] = &[
    // Nothing that a user created under the name of a function or table of PostgreSQL's is ever run as superuser.
    ("search_path", "pg_catalog"),
    // What we ask every second, and verifiers of passwords, have no place in a log.
    ("log_statement", "none"),
    ("log_duration", "off"),
    ("log_min_duration_statement", "-1"),
    ("log_min_error_statement", "panic"),
    // With no standby left, a commit would wait for one for ever. What we commit (roles, passwords, databases) is made sure of
    // again by whoever leads next.
    ("synchronous_commit", "local"),
    ("default_transaction_read_only", "off"),
    ("lock_timeout", "2s"),
];

/// Startup options. The server gives up when we do, or the sessions of a slow server would pile up.
fn options(deadline: Duration, settings: &[(&str, &str)]) -> String {
    let mut options = format!("-c statement_timeout={}", deadline.as_millis().max(1));
    for (name, value) in settings {
        options.push_str(&format!(" -c {name}={value}"));
    }
    options
}

fn not_connected(to: String, error: &tokio_postgres::Error) -> SqlError {
    let message = describe(error);
    match error.code() {
        Some(code) if *code == SqlState::CANNOT_CONNECT_NOW => SqlError::NotReady { to, message },
        None if error.is_closed() || is_io(error) => SqlError::Unreachable { to, message },
        // Without a code: it asks for a password, and we have none.
        Some(_) | None => SqlError::Refused { to, message },
    }
}

/// Whether the network or the handshake is to blame.
fn is_io(error: &tokio_postgres::Error) -> bool {
    causes(error).any(|cause| cause.is::<std::io::Error>())
}

fn causes(error: &tokio_postgres::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}

/// What an error says with all its causes; the crate's own text leaves out what the server said.
fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        return format!("{} ({})", db.message(), db.code().code());
    }
    let mut text = error.to_string();
    for cause in causes(error) {
        text.push_str(&format!(": {cause}"));
    }
    text
}
