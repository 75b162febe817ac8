//! Decides how a port of a pod is reached: directly where the pod is a process on this machine, through the API server elsewhere.
//!
//! From: the pod's address. On loopback it is one of `bellwether up`, and no pod of a Kubernetes ever has such an address. Everything else goes
//! through the subresource `portforward`, as with kubectl: pods' networks are seldom reachable from where people sit.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

use bellwether_core::observed::Pod;
use kube::Client;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::forward::{self, ForwardError};

/// A connection, whichever way it goes.
pub type Stream = Pin<Box<dyn Duplex>>;

/// What a connection can do.
pub trait Duplex: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoWay {
    /// The API server said no: that says nothing about the pod.
    Refused(String),
    /// There was nobody at the other end, or no answer.
    Unreachable(String),
}

/// Connects to a port of a pod.
pub async fn to(client: &Client, namespace: &str, pod: &Pod, port: u16) -> Result<Stream, NoWay> {
    let address: Option<IpAddr> = pod.ip.as_deref().and_then(|ip| ip.parse().ok());
    match address {
        Some(address) if address.is_loopback() => {
            let connected = TcpStream::connect(SocketAddr::new(address, port)).await;
            let stream = connected.map_err(|error| NoWay::Unreachable(format!("{address}:{port}: {error}")))?;
            Ok(Box::pin(stream))
        }
        _ => match forward::open(client, namespace, &pod.name, port).await {
            Ok(stream) => Ok(Box::pin(stream)),
            Err(error @ ForwardError::Refused { code: 401 | 403, .. }) => {
                let may = format!("`kubectl auth can-i create pods/portforward -n {namespace}`");
                Err(NoWay::Refused(format!("{error} ({may})")))
            }
            Err(error @ (ForwardError::Api(_) | ForwardError::NotSpoken(_))) => Err(NoWay::Refused(error.to_string())),
            Err(error @ ForwardError::Refused { .. }) => Err(NoWay::Unreachable(error.to_string())),
        },
    }
}
