//! Writes libpq connection strings: how a standby, `pg_basebackup` and `pg_rewind` reach another instance.
//!
//! Must never happen: that a connection is made to a server whose certificate was not checked against the cluster's CA and
//! the instance's name. There is no field for another `sslmode`.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// A TLS client's files, PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTls {
    /// The certificate.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority that server certificates are checked against.
    pub ca: PathBuf,
}

impl ClientTls {
    /// The files of a mounted Secret.
    pub fn in_dir(dir: &Path) -> Self {
        use bellwether_core::contract::key;
        Self { cert: dir.join(key::TLS_CRT), key: dir.join(key::TLS_KEY), ca: dir.join(key::CA_CRT) }
    }
}

/// How to reach another instance: over TLS, by client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnInfo {
    /// The name that the server's certificate must cover.
    pub host: String,
    /// The address that is dialled, so that no DNS is needed (it lags behind a failover).
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// The role; the client certificate's common name.
    pub user: String,
    /// Who is calling: the own instance's name. Synchronous replication goes by it.
    pub application_name: String,
    /// The own certificate, and whom to believe.
    pub tls: ClientTls,
}

/// A primary that does not answer the handshake in this time is tried again. libpq counts whole seconds and treats 1 as 2.
const CONNECT_TIMEOUT_S: u32 = 3;
/// A silent connection is probed after 5 s, three times 2 s apart: a node that vanished is noticed in about 11 s even
/// when neither side sends. While we send, `tcp_user_timeout` is quicker.
const KEEPALIVES: (u32, u32, u32) = (5, 2, 3);
/// Bytes that stay unacknowledged this long end the connection. The kernel alone would retry for a quarter of an hour.
const TCP_USER_TIMEOUT_MS: u32 = 10_000;

impl fmt::Display for ConnInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (idle, interval, count) = KEEPALIVES;
        let fields: [(&str, &dyn fmt::Display); 15] = [
            ("host", &self.host),
            ("hostaddr", &self.address),
            ("port", &self.port),
            ("user", &self.user),
            ("application_name", &self.application_name),
            ("sslmode", &"verify-full"),
            ("sslcert", &self.tls.cert.display()),
            ("sslkey", &self.tls.key.display()),
            ("sslrootcert", &self.tls.ca.display()),
            ("connect_timeout", &CONNECT_TIMEOUT_S),
            ("keepalives_idle", &idle),
            ("keepalives_interval", &interval),
            ("keepalives_count", &count),
            ("tcp_user_timeout", &TCP_USER_TIMEOUT_MS),
            // Kerberos is not ours; without this libpq asks for it first, a round trip for each connection.
            ("gssencmode", &"disable"),
        ];
        for (n, (name, value)) in fields.iter().enumerate() {
            let space = if n == 0 { "" } else { " " };
            write!(f, "{space}{name}={}", quoted(&value.to_string()))?;
        }
        Ok(())
    }
}

/// libpq's quoting: in single quotes, with `\` before quotes and backslashes.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':');
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders_2() -> ConnInfo {
        ConnInfo {
            host: "orders-1.orders-pods.shop.svc".into(),
            address: "10.0.0.7".parse().unwrap(),
            port: 5432,
            user: "bellwether_replication".into(),
            application_name: "orders-2".into(),
            tls: ClientTls::in_dir(Path::new("/tls")),
        }
    }

    #[test]
    fn the_servers_name_is_always_verified() {
        let text = orders_2().to_string();
        assert!(text.starts_with("host=orders-1.orders-pods.shop.svc hostaddr=10.0.0.7 port=5432 "), "{text}");
        assert!(text.contains(" sslmode=verify-full "), "{text}");
        assert!(text.contains(" sslrootcert=/tls/ca.crt "), "{text}");
    }

    #[test]
    fn a_value_can_not_become_a_second_setting() {
        let mut sly = orders_2();
        sly.application_name = "x sslmode=disable 'y\\".into();
        assert!(sly.to_string().contains(r"application_name='x sslmode=disable \'y\\' "), "{sly}");
    }

    #[test]
    fn nothing_is_still_a_value() {
        assert_eq!(quoted(""), "''");
    }
}
