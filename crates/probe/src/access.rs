//! Who the probe is, and whom it connects to: from a URI as libpq has it, or from the files of an `-app` Secret.
//!
//! Never: a server believed that did not prove its name, unless TLS is switched off by `sslmode=disable`. A probe that can
//! be answered by an impostor proves nothing; so `require` and `prefer` mean `verify-full` here.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use bellwether_core::contract::{POSTGRES_PORT, key};
use bellwether_postgres::Secret;
use bellwether_postgres::sql::{TlsClient, TlsError};
use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// A way in: role, password, database, and whom to believe.
#[derive(Clone, Debug)]
pub struct Access {
    user: String,
    password: Option<Secret>,
    database: String,
    tls: Option<TlsClient>,
    /// The URI's host: usually a Service.
    pub service: Target,
}

/// A server or Service to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The name: its certificate must cover it, and without an address it is looked up for every connection.
    pub host: String,
    /// The address, when no name is to be looked up.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: u16,
}

/// Why there is no way in.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The URI.
    #[error(
        "the URI is none: {problem}. It looks like postgresql://user:password@host:5432/database?sslmode=verify-full&sslrootcert=ca.crt"
    )]
    Uri {
        /// What is wrong with it.
        problem: String,
    },
    /// A parameter of the URI.
    #[error("the URI's {name}={value:?} is not supported: {fix}")]
    Parameter {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
        /// What to do.
        fix: &'static str,
    },
    /// TLS without an authority.
    #[error(
        "no certificate authority to verify the server with: give sslrootcert in the URI or --ca FILE, or say sslmode=disable"
    )]
    NoAuthority,
    /// A target.
    #[error(
        "{text:?} is no server: write ADDRESS[:PORT], or NAME@ADDRESS[:PORT] with the name that its certificate covers"
    )]
    Target {
        /// What was given.
        text: String,
    },
    /// A file of the Secret.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The authority's file.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl Access {
    /// From a URI. `ca` is used where the URI names no `sslrootcert`; `password` where it has none.
    pub fn from_uri(uri: &str, ca: Option<&Path>, password: Option<Secret>) -> Result<Self, AccessError> {
        let (address, parameters) = uri.split_once('?').unwrap_or((uri, ""));
        let config: Config =
            Config::from_str(address).map_err(|error| AccessError::Uri { problem: text_of(&error) })?;
        let missing = |what: &str| AccessError::Uri { problem: format!("it names no {what}") };
        let [Host::Tcp(host)] = config.get_hosts() else { return Err(missing("single host")) };
        let port = config.get_ports().first().copied().unwrap_or(POSTGRES_PORT);
        let user = config.get_user().ok_or_else(|| missing("user"))?.to_owned();
        let written = config.get_password().map(|password| Secret::new(String::from_utf8_lossy(password)));
        let mut transport = Transport { encrypted: true, ca: ca.map(Path::to_owned), address: None };
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            transport.take(parameter)?;
        }
        Ok(Self {
            password: written.or(password),
            database: config.get_dbname().unwrap_or(&user).to_owned(),
            user,
            tls: transport.client()?,
            service: Target { host: host.clone(), address: transport.address, port },
        })
    }

    /// From the files of an `-app` Secret. `address` replaces the lookup of its host, for a probe outside of the cluster.
    pub fn from_secret(dir: &Path, address: Option<SocketAddr>) -> Result<Self, AccessError> {
        let path = |name: &str| dir.join(name);
        let read =
            |name: &str| Secret::read(&path(name)).map_err(|source| AccessError::File { path: path(name), source });
        let port = read(key::PORT)?;
        let not_a_port = || AccessError::Uri { problem: format!("the Secret's {} is {:?}", key::PORT, port.expose()) };
        let written = port.expose().parse().map_err(|_| not_a_port())?;
        Ok(Self {
            user: read(key::USERNAME)?.expose().to_owned(),
            password: Some(read(key::PASSWORD)?),
            database: read(key::DBNAME)?.expose().to_owned(),
            tls: Some(TlsClient::anonymous(&path(key::CA_CRT))?),
            service: Target {
                host: read(key::HOST)?.expose().to_owned(),
                address: address.map(|address| address.ip()),
                port: address.map_or(written, |address| address.port()),
            },
        })
    }

    /// The same way in, through another Service.
    pub fn through(self, service: Target) -> Self {
        Self { service, ..self }
    }

    /// A server named on the command line: `NAME@ADDRESS[:PORT]`, or `ADDRESS[:PORT]`, which must prove the URI's host name.
    pub fn target(&self, text: &str) -> Result<Target, AccessError> {
        let (host, address) = text.split_once('@').unwrap_or((&self.service.host, text));
        let malformed = || AccessError::Target { text: text.to_owned() };
        let (address, port) = match (address.parse::<SocketAddr>(), address.parse::<IpAddr>()) {
            (Ok(socket), _) => (socket.ip(), socket.port()),
            (_, Ok(address)) => (address, self.service.port),
            _ => return Err(malformed()),
        };
        if host.is_empty() {
            return Err(malformed());
        }
        Ok(Target { host: host.to_owned(), address: Some(address), port })
    }

    /// The session's parameters, and the TLS to speak, if any.
    pub(crate) fn config(&self) -> (Config, Option<TlsClient>) {
        let mut config = Config::new();
        config.user(&self.user).dbname(&self.database).application_name("bellwether-probe");
        if let Some(password) = &self.password {
            config.password(password.expose());
        }
        (config, self.tls.clone())
    }
}

impl Target {
    /// An address, with the name that the server there must prove.
    pub fn at(host: impl Into<String>, address: IpAddr, port: u16) -> Self {
        Self { host: host.into(), address: Some(address), port }
    }

    /// What to call it: the first label of its name when it is one pod's, else the whole.
    pub fn name(&self) -> String {
        match self.host.parse::<IpAddr>() {
            Ok(_) => self.to_string(),
            Err(_) => self.host.split('.').next().unwrap_or(&self.host).to_owned(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) if address.to_string() != self.host => {
                write!(f, "{}@{}", self.host, SocketAddr::new(address, self.port))
            }
            _ => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

struct Transport {
    encrypted: bool,
    ca: Option<PathBuf>,
    address: Option<IpAddr>,
}

impl Transport {
    fn take(&mut self, parameter: &str) -> Result<(), AccessError> {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let unsupported = |fix| AccessError::Parameter { name: name.to_owned(), value: value.to_owned(), fix };
        match (name, value) {
            ("sslmode", "disable") => self.encrypted = false,
            ("sslmode", "verify-full" | "require" | "prefer") => self.encrypted = true,
            ("sslmode", _) => return Err(unsupported("use verify-full or disable")),
            ("sslrootcert", path) => self.ca = Some(PathBuf::from(decoded(path))),
            ("hostaddr", address) => {
                self.address = Some(address.parse().map_err(|_| unsupported("give an IP address"))?);
            }
            // The probe has deadlines of its own, and a name.
            ("connect_timeout" | "application_name", _) => {}
            _ => return Err(unsupported("leave it out")),
        }
        Ok(())
    }

    fn client(&self) -> Result<Option<TlsClient>, AccessError> {
        if !self.encrypted {
            return Ok(None);
        }
        let ca = self.ca.as_deref().ok_or(AccessError::NoAuthority)?;
        Ok(Some(TlsClient::anonymous(ca)?))
    }
}

/// `%2F` as `/`. What is no valid escape stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escape = match (first, tail) {
            (b'%', [high, low, ..]) => {
                std::str::from_utf8(&[*high, *low]).ok().and_then(|digits| u8::from_str_radix(digits, 16).ok())
            }
            _ => None,
        };
        bytes.push(escape.unwrap_or(*first));
        rest = if escape.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn text_of(error: &tokio_postgres::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_without_tls_has_to_say_so() {
        let plain = Access::from_uri("postgresql://app:x@db:6432/orders?sslmode=disable", None, None).unwrap();
        assert_eq!(plain.service.to_string(), "db:6432");
        assert!(plain.tls.is_none());
        let refused = Access::from_uri("postgresql://app:x@db/orders?sslmode=require", None, None);
        assert!(matches!(refused, Err(AccessError::NoAuthority)));
        let refused = Access::from_uri("postgresql://app:x@db/orders?sslmode=verify-ca", None, None);
        assert!(matches!(refused, Err(AccessError::Parameter { .. })));
    }

    #[test]
    fn a_server_is_named_with_its_address() {
        let access = Access::from_uri("postgresql://app@db/orders?sslmode=disable", None, None).unwrap();
        let direct = access.target("orders-1.orders-pods.shop.svc@10.0.0.7").unwrap();
        assert_eq!((direct.port, direct.name().as_str()), (5432, "orders-1"));
        assert_eq!(direct.to_string(), "orders-1.orders-pods.shop.svc@10.0.0.7:5432");
        assert_eq!(access.target("[::1]:99").unwrap().to_string(), "db@[::1]:99");
        for text in ["", "@10.0.0.1", "orders-1", "10.0.0.1:x", "a@b"] {
            assert!(matches!(access.target(text), Err(AccessError::Target { .. })), "{text}");
        }
    }

    #[test]
    fn paths_in_a_uri_are_decoded() {
        assert_eq!(decoded("%2Ftmp%2Fca%20x.crt"), "/tmp/ca x.crt");
        assert_eq!(decoded("100%"), "100%");
        assert_eq!(decoded("%zz"), "%zz");
    }

    #[test]
    fn a_password_is_never_printed() {
        let access = Access::from_uri("postgresql://app:hunter2@db/o?sslmode=disable", None, None).unwrap();
        assert!(!format!("{access:?}").contains("hunter2"));
    }
}
