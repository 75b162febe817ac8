//! Who this agent is and where its files are, from the environment that its home gives it (`contract::env`).
//!
//! Everything is read once, at the start, so that a missing variable is named then and not in the middle of a failover.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use bellwether_api::names::Names;
use bellwether_core::contract::env;

/// The agent's identity and places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The names of the cluster.
    pub names: Names,
    /// The namespace.
    pub namespace: String,
    /// This instance.
    pub instance: String,
    /// This pod's UID: who we are in the Lease.
    pub pod_uid: String,
    /// The UID of the claim that the data volume belongs to, if the operator said.
    pub claim_uid: Option<String>,
    /// This pod's address.
    pub address: IpAddr,
    /// PostgreSQL's major version.
    pub pg_version: String,
    /// The data volume.
    pub data_dir: PathBuf,
    /// The WAL volume.
    pub wal_dir: Option<PathBuf>,
    /// Sockets and generated files.
    pub run_dir: PathBuf,
    /// `instance.json`.
    pub config_dir: PathBuf,
    /// The server certificate.
    pub server_tls_dir: PathBuf,
    /// The replication certificate.
    pub replication_tls_dir: PathBuf,
    /// The superuser's Secret.
    pub superuser_dir: PathBuf,
    /// The application's Secret.
    pub app_dir: PathBuf,
}

/// Why the environment can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    /// A variable is missing or empty.
    #[error("{0} is not set: the agent runs in a pod that the operator made, or under `bellwether up`")]
    Missing(&'static str),
    /// A variable's value can't be used.
    #[error("{name}={value:?} is not {expected}")]
    Malformed {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
}

impl Environment {
    /// From this process's environment.
    pub fn read() -> Result<Self, EnvironmentError> {
        Self::from(|name| std::env::var(name).ok())
    }

    fn from(get: impl Fn(&str) -> Option<String>) -> Result<Self, EnvironmentError> {
        let optional = |name: &str| get(name).filter(|value| !value.is_empty());
        let needed = |name| optional(name).ok_or(EnvironmentError::Missing(name));
        let dir = |name| needed(name).map(PathBuf::from);
        let address = needed(env::POD_IP)?;
        Ok(Self {
            names: Names::of(needed(env::CLUSTER)?),
            namespace: needed(env::NAMESPACE)?,
            instance: needed(env::INSTANCE)?,
            pod_uid: needed(env::POD_UID)?,
            claim_uid: optional(env::CLAIM_UID),
            address: address.parse().map_err(|_| EnvironmentError::Malformed {
                name: env::POD_IP,
                value: address,
                expected: "an IP address",
            })?,
            pg_version: needed(env::PG_VERSION)?,
            data_dir: dir(env::DATA_DIR)?,
            wal_dir: optional(env::WAL_DIR).map(PathBuf::from),
            run_dir: dir(env::RUN_DIR)?,
            config_dir: dir(env::CONFIG_DIR)?,
            server_tls_dir: dir(env::SERVER_TLS_DIR)?,
            replication_tls_dir: dir(env::REPLICATION_TLS_DIR)?,
            superuser_dir: dir(env::SUPERUSER_DIR)?,
            app_dir: dir(env::APP_DIR)?,
        })
    }

    /// Where PostgreSQL and the agent listen: at the pod's address, and on the pod's loopback, which is where a forwarded port arrives. In `bellwether up` pods share the
    /// machine's, and each has an address of its own there.
    pub fn listen(&self) -> Vec<IpAddr> {
        let loopback = (!self.address.is_loopback()).then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        std::iter::once(self.address).chain(loopback).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(name: &str) -> Option<String> {
        match name {
            env::POD_IP => Some("127.0.0.2".into()),
            env::WAL_DIR => None,
            _ => Some(format!("value-of-{name}")),
        }
    }

    #[test]
    fn a_complete_environment_is_accepted() {
        let environment = Environment::from(full).unwrap();
        assert_eq!(environment.address.to_string(), "127.0.0.2");
        assert_eq!(environment.wal_dir, None);
    }

    #[test]
    fn a_forwarded_port_arrives_on_a_pod_s_own_loopback_and_never_on_one_that_pods_share() {
        let at = |ip: &'static str| {
            Environment::from(move |name| if name == env::POD_IP { Some(ip.into()) } else { full(name) })
        };
        let listens = |ip| at(ip).unwrap().listen().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(listens("10.0.0.7"), ["10.0.0.7", "127.0.0.1"]);
        assert_eq!(listens("fd00::7"), ["fd00::7", "127.0.0.1"]);
        assert_eq!(listens("127.64.0.2"), ["127.64.0.2"]);
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = Environment::from(|name| full(name).filter(|_| name != env::POD_UID)).unwrap_err();
        assert_eq!(error, EnvironmentError::Missing(env::POD_UID));
    }

    #[test]
    fn an_address_that_is_none_is_named_with_its_value() {
        let get = |name: &str| if name == env::POD_IP { Some("localhost".into()) } else { full(name) };
        let error = Environment::from(get).unwrap_err().to_string();
        assert!(error.contains("localhost") && error.contains(env::POD_IP), "{error}");
    }
}
