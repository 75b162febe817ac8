//! How to connect to a cluster of this home: names, addresses, and files with what must not be printed.
//!
//! Never: a password on the terminal or in a process's arguments. psql finds it in a password file that only its owner may
//! read.

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bellwether_api::names::Names;
use bellwether_core::contract::{POSTGRES_PORT, key};
use bellwether_postgres::secret::Secret as Password;
use bellwether_postgres::sql::{TlsClient, TlsError};
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::{Api, Client};

use crate::directory::write_private;

/// A way into one cluster, as the application's user.
#[derive(Clone, Debug)]
pub struct Connection {
    names: Names,
    namespace: String,
    /// The role.
    pub user: String,
    /// The database.
    pub database: String,
    password: Password,
    authority: PathBuf,
    password_file: PathBuf,
}

/// An end of it: a Service or one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The name that the certificate must cover.
    pub host: String,
    /// The address.
    pub address: IpAddr,
}

/// Why a cluster can't be connected to.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The API didn't say.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// Something isn't there (yet).
    #[error("{0}")]
    Missing(String),
    /// A file could not be written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The CA can't be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// PostgreSQL said no, or nothing.
    #[error("{host} ({address}): {problem}")]
    Sql {
        /// Whom we asked.
        host: String,
        /// Where.
        address: IpAddr,
        /// What came.
        problem: String,
    },
}

impl Connection {
    /// Reads the application's Secret and writes CA and password file below `directory`.
    pub async fn of(
        client: &Client,
        directory: &Path,
        namespace: &str,
        cluster: &str,
    ) -> Result<Self, ConnectionError> {
        let names = Names::of(cluster);
        let secret = Api::<Secret>::namespaced(client.clone(), namespace).get(&names.app()).await?;
        let value = |name: &str| {
            let found = secret.data.as_ref().and_then(|data| data.get(name));
            let missing = || ConnectionError::Missing(format!("the Secret {:?} has no key {name:?}", names.app()));
            found.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).ok_or_else(missing)
        };
        let home = directory.join("clients").join(format!("{namespace}_{cluster}"));
        let file = |path: &Path| {
            let path = path.to_owned();
            move |source| ConnectionError::File { path, source }
        };
        std::fs::create_dir_all(&home).map_err(file(&home))?;
        let (authority, password_file) = (home.join("ca.crt"), home.join("pgpass"));
        write_private(&authority, value(key::CA_CRT)?.as_bytes()).map_err(file(&authority))?;
        let (user, password) = (value(key::USERNAME)?, value(key::PASSWORD)?);
        let line = format!("*:*:*:{}:{}\n", escaped(&user), escaped(&password));
        write_private(&password_file, line.as_bytes()).map_err(file(&password_file))?;
        let (database, password) = (value(key::DBNAME)?, Password::new(password));
        Ok(Self { names, namespace: namespace.to_owned(), user, database, password, authority, password_file })
    }

    /// The Service called `service`.
    pub async fn service(&self, client: &Client, service: &str) -> Result<Target, ConnectionError> {
        let found = Api::<Service>::namespaced(client.clone(), &self.namespace).get(service).await?;
        let address = found.spec.and_then(|spec| spec.cluster_ip?.parse().ok());
        let missing = || ConnectionError::Missing(format!("the Service {service:?} has no address yet"));
        Ok(Target { host: format!("{service}.{}.svc", self.namespace), address: address.ok_or_else(missing)? })
    }

    /// One instance, at its pod's address.
    pub fn instance(&self, instance: &str, address: IpAddr) -> Target {
        Target { host: self.names.host(instance, &self.namespace), address }
    }

    /// A command line for psql.
    pub fn psql(&self, target: &Target) -> String {
        format!(
            "psql \"host={} hostaddr={} port={POSTGRES_PORT} user={} dbname={} sslmode=verify-full sslrootcert={} passfile={}\"",
            target.host,
            target.address,
            self.user,
            self.database,
            self.authority.display(),
            self.password_file.display()
        )
    }

    /// The same but for the target, for the environment of whatever is made with libpq.
    pub fn environment(&self) -> [(&'static str, OsString); 5] {
        [
            ("PGUSER", self.user.clone().into()),
            ("PGDATABASE", self.database.clone().into()),
            ("PGSSLMODE", "verify-full".into()),
            ("PGSSLROOTCERT", self.authority.clone().into()),
            ("PGPASSFILE", self.password_file.clone().into()),
        ]
    }

    /// A session with a target, over TLS, its certificate verified.
    pub async fn open(&self, target: &Target, within: Duration) -> Result<tokio_postgres::Client, ConnectionError> {
        let mut config = tokio_postgres::Config::new();
        config.host(&target.host).hostaddr(target.address).port(POSTGRES_PORT);
        config.user(&self.user).password(self.password.expose()).dbname(&self.database);
        config.ssl_mode(tokio_postgres::config::SslMode::Require).application_name("bellwether-try");
        let tls = TlsClient::anonymous(&self.authority)?;
        let problem = |problem: String| sql(target, problem);
        let connected = tokio::time::timeout(within, config.connect(tls)).await;
        let connected = connected.map_err(|_| problem(format!("no answer within {within:?}")))?;
        let (client, connection) = connected.map_err(|error| problem(describe(&error)))?;
        tokio::spawn(connection);
        Ok(client)
    }
}

/// An error of a session, with whom it was.
pub fn sql(target: &Target, problem: String) -> ConnectionError {
    ConnectionError::Sql { host: target.host.clone(), address: target.address, problem }
}

/// What PostgreSQL said, which the error's own text leaves out.
pub fn describe(error: &tokio_postgres::Error) -> String {
    let said = error.as_db_error().map(ToString::to_string);
    said.or_else(|| std::error::Error::source(error).map(|cause| format!("{error}: {cause}")))
        .unwrap_or_else(|| error.to_string())
}

/// A field of a password file: `:` and `\` are escaped.
fn escaped(field: &str) -> String {
    field.replace('\\', "\\\\").replace(':', "\\:")
}
