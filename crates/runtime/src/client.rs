//! Kubernetes clients: TLS by rustls on ring, a deadline on every request, no hidden retries.
//!
//! Never: kube's own retry of 429, 503 and 504. It sleeps for minutes inside a call that looks like one request, while the
//! work queue (operator) or the protocol (agent) believes that it is still waiting for one answer.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::traffic::{Observed, Traffic};

/// How long connecting may take: a handshake with a healthy API server takes milliseconds, a SYN that was lost is sent again
/// after one second and again after three.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long anything but a watch may take. The API server gives up on a request of its own after 60 s; one that has not
/// answered within 15 is better asked again later than waited for, because a worker is held meanwhile.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Neither a kubeconfig nor a service account was found.
    #[error("no way to reach Kubernetes: {0}; set KUBECONFIG, or run in a pod with a service account")]
    NotConfigured(#[source] kube::config::InferConfigError),
    /// The kubeconfig can't be used.
    #[error("kubeconfig {path}: {cause}")]
    Kubeconfig {
        /// The file.
        path: String,
        /// What is wrong with it.
        cause: KubeconfigError,
    },
    /// The configuration was read, but no client can be made of it.
    #[error("the Kubernetes client can't be built: {0}")]
    Build(#[source] kube::Error),
}

/// Makes ring the process's TLS provider. Every entry point calls it first; calling it again does nothing.
pub fn install_crypto() {
    // The only error is that a provider is there already, which is what we want.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A client from `KUBECONFIG`, `~/.kube/config` or the pod's service account, in this order.
pub async fn infer() -> Result<Client, ClientError> {
    install_crypto();
    from_config(Config::infer().await.map_err(ClientError::NotConfigured)?)
}

/// As [`infer`], or from this context of the kubeconfig.
pub async fn for_context(context: Option<&str>) -> Result<Client, ClientError> {
    let Some(context) = context else { return infer().await };
    install_crypto();
    let options = KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
    let failed = |cause| ClientError::Kubeconfig { path: format!("context {context:?}"), cause };
    from_config(Config::from_kubeconfig(&options).await.map_err(failed)?)
}

/// As [`infer`], with an account of what is sent.
pub async fn infer_observed(traffic: &Arc<Traffic>) -> Result<Client, ClientError> {
    install_crypto();
    observed(Config::infer().await.map_err(ClientError::NotConfigured)?, traffic)
}

/// A client from the kubeconfig at `path`.
pub async fn from_kubeconfig(path: &Path) -> Result<Client, ClientError> {
    install_crypto();
    let failed = |cause| ClientError::Kubeconfig { path: path.display().to_string(), cause };
    let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(failed)?;
    from_config(config)
}

/// A client from a configuration, with our timeouts.
pub fn from_config(config: Config) -> Result<Client, ClientError> {
    observed(config, &Arc::default())
}

/// As [`from_config`], with an account of what is sent. Watches are long, so there is no read timeout on the connection,
/// but a deadline for the beginning of an answer and one for silence in lists and watches ([`crate::traffic`]); callers of anything
/// else use [`within`].
pub fn observed(mut config: Config, traffic: &Arc<Traffic>) -> Result<Client, ClientError> {
    install_crypto();
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.write_timeout = Some(REQUEST_TIMEOUT);
    config.read_timeout = None;
    config.default_retry = false;
    let client = ClientBuilder::try_from(config).map_err(ClientError::Build)?;
    Ok(client.with_layer(&Observed(traffic.clone())).build())
}

/// The request did not answer within its deadline. Whether it was carried out is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer within {} s; whether it was carried out is unknown", .0.as_secs_f32())]
pub struct DeadlinePassed(pub Duration);

/// `request`, but no longer than [`REQUEST_TIMEOUT`].
pub async fn within<T>(request: impl Future<Output = T>) -> Result<T, DeadlinePassed> {
    tokio::time::timeout(REQUEST_TIMEOUT, request).await.map_err(|_| DeadlinePassed(REQUEST_TIMEOUT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_that_hangs_is_given_up() {
        assert_eq!(within(std::future::pending::<()>()).await, Err(DeadlinePassed(REQUEST_TIMEOUT)));
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named() {
        let error = from_kubeconfig(Path::new("nowhere/kubeconfig")).await.err().unwrap().to_string();
        assert!(error.contains("nowhere/kubeconfig"), "{error}");
    }
}
